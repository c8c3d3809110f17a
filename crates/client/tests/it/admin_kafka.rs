//! Administrative requests to a real cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{
    AbortTransaction, Admin, Cluster, CommittedOffset, ConfigChange, ConfigOperation, ConfigResource,
    ConfigResourceKind, ConfigSource, ConnectionOptions, Consumer, ConsumerConfig, DescribeConfigs, Election,
    FeatureChange, FeatureUpdate, GroupFilter, GroupKind, GroupProtocol, MemberToRemove, NewTopic,
    OffsetSpec, Outcomes, PollEvent, Producer, ProducerConfig, ProducerRecord, QuotaChanges, QuotaEntity,
    QuotaEntityKind, QuotaFilter, QuotaMatch, Replica, TopicPartition, TransactionFilter,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;

use crate::fake::StoredRecord;
use crate::kafka::{Kafka, PROTOCOLS, create, kafka, named, of_group, produce};

#[tokio::test]
async fn a_cluster_is_administered() {
    let Some(kafka) = kafka().await else { return };
    let cluster = Cluster::connect(&kafka.bootstrap, &ConnectionOptions::default()).await.expect("connected");
    let admin = Admin::new(cluster);
    topics_come_change_and_go(&admin).await;
    configurations_are_changed(&admin, &kafka).await;
    for protocol in PROTOCOLS {
        groups_and_their_offsets_are_seen_and_set(&admin, &kafka, protocol).await;
    }
    records_are_deleted_and_leaders_elected(&admin, &kafka).await;
    quotas_are_set_and_described(&admin).await;
    groups_are_requested_together(&admin, &kafka).await;
    brokers_describe_what_they_hold(&admin, &kafka).await;
    the_quorum_and_its_features_are_described(&admin).await;
    transactions_are_seen_fenced_and_aborted(&admin, &kafka).await;
}

/// A broker may answer before it has seen a change.
async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(found) = ask().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} did not come about");
}

async fn quotas_are_set_and_described(admin: &Admin) {
    let user = QuotaEntity(BTreeMap::from([(QuotaEntityKind::User, Some("alice".to_owned()))]));
    let clients = QuotaEntity(BTreeMap::from([(QuotaEntityKind::ClientId, None)]));
    let quota = |value| QuotaChanges::from([("producer_byte_rate".to_owned(), value)]);
    let wrong = QuotaEntity(BTreeMap::from([(QuotaEntityKind::Ip, Some("not an address".to_owned()))]));
    let changes = BTreeMap::from([
        (user.clone(), quota(Some(1024.0))),
        (clients.clone(), quota(Some(2048.0))),
        (wrong.clone(), QuotaChanges::from([("connection_creation_rate".to_owned(), Some(1.0))])),
    ]);
    let altered = admin.alter_quotas(&changes, false).await.expect("an answer");
    altered[&user].as_ref().expect("set");
    altered[&clients].as_ref().expect("set");
    altered[&wrong].as_ref().expect_err("no address");
    let all = eventually("quotas", async || {
        let found = admin.describe_quotas(&QuotaFilter::default()).await.expect("an answer");
        (found.len() >= 2).then_some(found)
    });
    assert_eq!(all.await[&user]["producer_byte_rate"], 1024.0);
    let parts = BTreeMap::from([(QuotaEntityKind::ClientId, QuotaMatch::Default)]);
    let found = admin.describe_quotas(&QuotaFilter { parts, strict: true }).await.expect("an answer");
    assert_eq!(found.keys().collect::<Vec<_>>(), [&clients]);
    let changes = BTreeMap::from([(user.clone(), quota(None)), (clients.clone(), quota(None))]);
    for outcome in admin.alter_quotas(&changes, false).await.expect("an answer").into_values() {
        outcome.expect("removed");
    }
    eventually("no quotas", async || {
        let found = admin.describe_quotas(&QuotaFilter::default()).await.expect("an answer");
        found.is_empty().then_some(())
    })
    .await;
}

async fn groups_are_requested_together(admin: &Admin, kafka: &Kafka) {
    let topic = create(kafka, "of-many", 1).await;
    let at = TopicPartition::new(topic.as_str(), 0);
    let groups: Vec<String> = (0..30).map(|number| format!("many-{number}")).collect();
    for group in &groups {
        let offsets = BTreeMap::from([(at.clone(), CommittedOffset::new(Offset(7)))]);
        admin.alter_group_offsets(group, &offsets).await.expect("set");
    }
    let asked: Vec<String> = groups.iter().cloned().chain(["nobody".to_owned()]).collect();
    let described = admin.describe_groups(&asked).await;
    assert_eq!(described.len(), 31);
    assert_eq!(error_of(&described, &"nobody".to_owned()), Some(ErrorCode::GroupIdNotFound));
    assert_eq!(described[&groups[3]].as_ref().expect("described").kind, GroupKind::Classic);
    let offsets = admin.list_offsets_of_groups(&groups, None).await;
    assert_eq!(offsets[&groups[29]].as_ref().expect("offsets")[&at].offset, Offset(7));
    let filter = GroupFilter { states: vec!["Empty".to_owned()], kinds: vec![GroupKind::Classic] };
    let listed = admin.list_groups_by_broker(&filter).await.expect("an answer");
    let names: Vec<&String> =
        listed.values().flat_map(|groups| groups.as_ref().expect("listed")).map(|one| &one.group).collect();
    assert!(groups.iter().all(|group| names.contains(&group)));
    let none = MemberToRemove::Instance("none".to_owned());
    let removed = admin.remove_members(&groups[0], std::slice::from_ref(&none), Some("a test")).await;
    let removed = removed.expect("an answer");
    assert_eq!(error_of(&removed, &none), Some(ErrorCode::UnknownMemberId));
    for (_, outcome) in admin.delete_groups(&groups).await {
        outcome.expect("deleted");
    }
}

async fn brokers_describe_what_they_hold(admin: &Admin, kafka: &Kafka) {
    let topic = create(kafka, "held", 1).await;
    let at = TopicPartition::new(topic.as_str(), 0);
    let cluster = admin.describe_cluster().await.expect("an answer");
    let id = cluster.brokers[0].id;
    assert!(cluster.fenced.is_empty());
    let dirs = admin.describe_log_dirs(None, Some(std::slice::from_ref(&at))).await.expect("an answer");
    let dirs = dirs[&id].as_ref().expect("described");
    let held: Vec<_> =
        dirs.values().filter(|dir| dir.as_ref().is_ok_and(|dir| dir.replicas.contains_key(&at))).collect();
    assert_eq!(held.len(), 1);
    let moves = BTreeMap::from([(Replica { broker: id, at: at.clone() }, "/no/such/dir".to_owned())]);
    let moved = admin.alter_replica_log_dirs(&moves).await.expect("an answer");
    assert_eq!(
        moved.values().next().expect("one").as_ref().expect_err("refused").error_code(),
        Some(ErrorCode::LogDirNotFound)
    );
    let missing =
        admin.clone().with_timeout(Duration::from_secs(1)).describe_log_dirs(Some(&[77]), None).await;
    missing.expect("an answer")[&77].as_ref().expect_err("there is no such broker");
    let wanted = DescribeConfigs {
        names: Some(vec!["segment.bytes".to_owned()]),
        synonyms: true,
        documentation: true,
    };
    let resource = ConfigResource::Topic(topic);
    let described =
        admin.describe_configs_with(std::slice::from_ref(&resource), &wanted).await.expect("an answer");
    let entries = described[&resource].as_ref().expect("described");
    let entry = &entries["segment.bytes"];
    assert_eq!((entries.len(), entry.source, entry.value_type), (1, ConfigSource::Default, Some("INT")));
    assert!(entry.documentation.as_ref().is_some_and(|text| !text.is_empty()) && !entry.synonyms.is_empty());
    let listed = admin.list_config_resources(&[ConfigResourceKind::Brokers]).await.expect("an answer");
    assert!(listed.contains(&ConfigResource::Broker(id)));
    assert!(admin.list_reassignments(None).await.expect("an answer").is_empty());
    let targets = BTreeMap::from([(at.clone(), None)]);
    let cancelled = admin.alter_reassignments(&targets).await.expect("an answer");
    assert_eq!(error_of(&cancelled, &at), Some(ErrorCode::NoReassignmentInProgress));
    let refused = admin.unregister_broker(77).await.expect_err("there is no such broker");
    assert_eq!(refused.error_code(), Some(ErrorCode::BrokerIdNotRegistered));
}

async fn the_quorum_and_its_features_are_described(admin: &Admin) {
    let quorum = admin.describe_quorum().await.expect("an answer");
    assert!(quorum.leader_id.is_some() && quorum.high_watermark > 0);
    assert!(quorum.voters.iter().any(|voter| Some(voter.id) == quorum.leader_id));
    let features = admin.describe_features().await.expect("an answer");
    let version = features.features["metadata.version"];
    assert!(version.supported.is_some_and(|(min, max)| (min..=max).contains(&version.level)));
    let name = "metadata.version".to_owned();
    let update = FeatureUpdate { level: 999, change: FeatureChange::Upgrade };
    let updated = admin.update_features(&BTreeMap::from([(name.clone(), update)]), true).await;
    updated.expect("an answer")[&name].as_ref().expect_err("no broker supports it");
}

async fn transactions_are_seen_fenced_and_aborted(admin: &Admin, kafka: &Kafka) {
    let topic = create(kafka, "paid", 1).await;
    let id = format!("payer-{}", std::process::id());
    let config = ProducerConfig { transactional_id: Some(id.clone()), ..ProducerConfig::default() };
    let mut producer = Producer::connect(&kafka.bootstrap, config, |_| {}).await.expect("connected");
    let to = producer.topic(&topic).await.expect("a topic");
    producer.init_transactions().await.expect("initialised");
    producer.begin_transaction().expect("begun");
    let record = ProducerRecord {
        topic: to,
        partition: Some(0),
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(b"v"),
        headers: &[],
        sent_at: tokio::time::Instant::now(),
        number: 0,
    };
    producer.send(&record).await.expect("sent");
    producer.flush().await;
    let at = TopicPartition::new(topic.as_str(), 0);
    let ids = [id.clone()];
    let described = admin.describe_transactions(&ids).await;
    let described = described[&id].as_ref().expect("described");
    assert_eq!((&*described.state, &*described.partitions), ("Ongoing", std::slice::from_ref(&at)));
    let filter = TransactionFilter { producer_ids: vec![described.producer_id], ..Default::default() };
    let listed = admin.list_transactions(&filter).await.expect("an answer");
    let listed: Vec<_> = listed.into_values().flat_map(|listed| listed.expect("listed")).collect();
    assert_eq!((listed.len(), &*listed[0].transactional_id), (1, &*id));
    let producers = admin.describe_producers(std::slice::from_ref(&at)).await.expect("an answer");
    let active = producers[&at].as_ref().expect("described")[0].clone();
    assert_eq!((active.producer_id, active.transaction_start), (described.producer_id, Some(0)));
    let abort = AbortTransaction {
        at: at.clone(),
        producer_id: active.producer_id,
        producer_epoch: i16::try_from(active.producer_epoch).expect("an epoch"),
        coordinator_epoch: active.coordinator_epoch.max(0),
    };
    admin.abort_transaction(&abort).await.expect("aborted");
    let producers = admin.describe_producers(std::slice::from_ref(&at)).await.expect("an answer");
    assert_eq!(producers[&at].as_ref().expect("described")[0].transaction_start, None);
    let fenced = admin.fence_producers(&ids).await;
    assert_eq!(fenced[&id].as_ref().expect("fenced").producer_id, active.producer_id);
}

fn error_of<K: Ord, T: std::fmt::Debug>(outcomes: &Outcomes<K, T>, key: &K) -> Option<ErrorCode> {
    outcomes[key].as_ref().expect_err("it is refused").error_code()
}

async fn topics_come_change_and_go(admin: &Admin) {
    let name = format!("administered-{}", std::process::id());
    let configs = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
    let topic = NewTopic { partitions: Some(2), configs, ..NewTopic::new(&name) };
    let checked = admin.create_topics(std::slice::from_ref(&topic), true).await.expect("an answer");
    checked[&name].as_ref().expect("it could be created");
    let created = admin.create_topics(std::slice::from_ref(&topic), false).await.expect("an answer");
    assert_eq!(created[&name].as_ref().expect("created").partitions, 2);
    let again = admin.create_topics(&[topic], false).await.expect("an answer");
    assert_eq!(error_of(&again, &name), Some(ErrorCode::TopicAlreadyExists));
    let counts = BTreeMap::from([(name.clone(), 3), ("nowhere".to_owned(), 3)]);
    let grown = admin.create_partitions(&counts).await.expect("an answer");
    grown[&name].as_ref().expect("it has more");
    assert_eq!(error_of(&grown, &"nowhere".to_owned()), Some(ErrorCode::UnknownTopicOrPartition));
    let names = [name.clone(), "nowhere".to_owned()];
    let mut partitions = 0;
    for _ in 0..100 {
        let described = admin.describe_topics(Some(&names)).await.expect("an answer");
        partitions = described[&name].as_ref().map_or(0, |topic| topic.partitions.len());
        assert_eq!(error_of(&described, &names[1]), Some(ErrorCode::UnknownTopicOrPartition));
        if partitions == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(partitions, 3);
    let deleted = admin.delete_topics(&names).await.expect("an answer");
    deleted[&name].as_ref().expect("it is gone");
    assert_eq!(error_of(&deleted, &names[1]), Some(ErrorCode::UnknownTopicOrPartition));
    let described = admin.describe_cluster().await.expect("an answer");
    assert!(!described.brokers.is_empty() && !described.cluster_id.is_empty());
}

async fn configurations_are_changed(admin: &Admin, kafka: &Kafka) {
    let name = create(kafka, "configured", 1).await;
    let topic = ConfigResource::Topic(name);
    let change = |operation| {
        let change = ConfigChange { name: "retention.ms".to_owned(), operation };
        BTreeMap::from([(topic.clone(), vec![change])])
    };
    let broker = ConfigResource::Broker(admin.describe_cluster().await.expect("an answer").brokers[0].id);
    for (operation, value) in
        [(ConfigOperation::Set("1234567".to_owned()), Some("1234567")), (ConfigOperation::Delete, None)]
    {
        let altered = admin.alter_configs(&change(operation), false).await.expect("an answer");
        altered[&topic].as_ref().expect("changed");
        let mut right = false;
        for _ in 0..100 {
            let described =
                admin.describe_configs(&[topic.clone(), broker.clone()]).await.expect("an answer");
            assert!(described[&broker].as_ref().expect("described").contains_key("log.retention.ms"));
            let entry = &described[&topic].as_ref().expect("described")["retention.ms"];
            right = entry.is_default == value.is_none()
                && value.is_none_or(|value| entry.value.as_deref() == Some(value));
            if right {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(right, "{value:?}");
    }
    let wrong = admin.alter_configs(&change(ConfigOperation::Set("soon".to_owned())), false).await;
    assert_eq!(error_of(&wrong.expect("an answer"), &topic), Some(ErrorCode::InvalidConfig));
}

async fn groups_and_their_offsets_are_seen_and_set(admin: &Admin, kafka: &Kafka, protocol: GroupProtocol) {
    let topic = create(kafka, &named("of-group", protocol), 2).await;
    let group = format!("{}-{}", named("administered", protocol), std::process::id());
    let partitions = [0, 1].map(|partition| TopicPartition::new(topic.as_str(), partition));
    let offset = CommittedOffset { metadata: "by hand".to_owned(), ..CommittedOffset::new(Offset(5)) };
    let offsets: BTreeMap<_, _> = partitions.clone().map(|at| (at, offset.clone())).into();
    admin.alter_group_offsets(&group, &offsets).await.expect("set");
    let listed = admin.list_group_offsets(&group, None).await.expect("an answer");
    assert_eq!((listed.len(), &*listed[&partitions[1]].metadata), (2, "by hand"));
    let config = ConsumerConfig { group_protocol: protocol, ..of_group(&group) };
    let mut consumer = Consumer::connect(&kafka.bootstrap, config).await.expect("connected");
    consumer.subscribe(vec![topic.clone()]).expect("there is a group");
    for _ in 0..100 {
        if let PollEvent::Assigned(_) = consumer.poll(Duration::from_millis(100)).await.expect("a poll") {
            break;
        }
    }
    let groups = admin.list_groups().await.expect("an answer");
    assert!(groups.iter().any(|listing| listing.group == group && listing.protocol_type == "consumer"));
    let groups = [group.clone()];
    let described = admin.describe_groups(&groups).await;
    let description = described[&group].as_ref().expect("described");
    assert_eq!((&*description.state, description.members.len()), ("Stable", 1));
    let member = &description.members[0];
    assert_eq!(member.assignment, partitions);
    let kind = match protocol {
        GroupProtocol::Classic => {
            assert_eq!((description.epochs, member.epoch), (None, None));
            GroupKind::Classic
        }
        GroupProtocol::Consumer => {
            let epoch = member.epoch.expect("it has one");
            assert_eq!(description.epochs, Some((epoch, epoch)));
            assert_eq!((&*member.target, &*member.subscribed), (&partitions[..], &[topic][..]));
            assert_eq!(member.protocol, Some(GroupKind::Consumer));
            GroupKind::Consumer
        }
    };
    assert_eq!(description.kind, kind);
    let filter = GroupFilter { kinds: vec![kind], states: vec!["Stable".to_owned()] };
    let listed = admin.list_groups_by_broker(&filter).await.expect("an answer").into_values();
    let listed: Vec<_> = listed.flat_map(|of_broker| of_broker.expect("an answer")).collect();
    assert!(listed.iter().any(|listing| listing.group == group && listing.kind == kind.name()), "{listed:?}");
    assert_eq!(error_of(&admin.delete_groups(&groups).await, &group), Some(ErrorCode::NonEmptyGroup));
    consumer.close().await.expect("left");
    let deleted = admin.delete_group_offsets(&group, &partitions[..1]).await.expect("an answer");
    deleted[&partitions[0]].as_ref().expect("deleted");
    let listed = admin.list_group_offsets(&group, None).await.expect("an answer");
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&partitions[1]]);
    admin.delete_groups(&groups).await[&group].as_ref().expect("deleted");
}

async fn records_are_deleted_and_leaders_elected(admin: &Admin, kafka: &Kafka) {
    let topic = create(kafka, "shortened", 1).await;
    let record = |number: i64| StoredRecord {
        key: None,
        value: Some(number.to_be_bytes().to_vec()),
        headers: Vec::new(),
        timestamp: 1_700_000_000_000,
    };
    let records: Vec<StoredRecord> = (0..10).map(record).collect();
    produce(kafka, &topic, ProducerConfig::default(), &records).await;
    let at = TopicPartition::new(topic.as_str(), 0);
    let nowhere = TopicPartition::new("nowhere", 0);
    let before = BTreeMap::from([(at.clone(), Offset(4))]);
    let deleted = admin.delete_records(&before).await.expect("an answer");
    assert_eq!(deleted[&at].as_ref().expect("deleted"), &Offset(4));
    let listed = admin.cluster().list_offsets(&[(at.clone(), OffsetSpec::Earliest)], false).await;
    assert_eq!(listed[&at].as_ref().expect("an offset").offset, Offset(4));
    let short = admin.clone().with_timeout(Duration::from_secs(1));
    let missing = short.delete_records(&BTreeMap::from([(nowhere.clone(), Offset(4))])).await;
    assert_eq!(error_of(&missing.expect("an answer"), &nowhere), Some(ErrorCode::UnknownTopicOrPartition));
    let partitions = std::slice::from_ref(&at);
    let elected = admin.elect_leaders(Election::Preferred, Some(partitions)).await.expect("an answer");
    assert_eq!(error_of(&elected, &at), Some(ErrorCode::ElectionNotNeeded));
}
