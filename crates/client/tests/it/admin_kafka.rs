//! Administrative requests to a real cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{
    Admin, Cluster, CommittedOffset, ConfigChange, ConfigOperation, ConfigResource, ConnectionOptions,
    Consumer, Election, NewTopic, OffsetSpec, Outcomes, Polled, ProducerConfig, TopicPartition,
};
use thalweg_record::Offset;
use thalweg_wire::ErrorCode;

use crate::fake::Stored;
use crate::kafka::{Kafka, create, kafka, of_group, produce};

#[tokio::test]
async fn a_cluster_is_administered() {
    let Some(kafka) = kafka().await else { return };
    let cluster = Cluster::connect(&kafka.bootstrap, &ConnectionOptions::default()).await.expect("connected");
    let admin = Admin::new(cluster);
    topics_come_change_and_go(&admin).await;
    configurations_are_changed(&admin, &kafka).await;
    groups_and_their_offsets_are_seen_and_set(&admin, &kafka).await;
    records_are_deleted_and_leaders_elected(&admin, &kafka).await;
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

async fn groups_and_their_offsets_are_seen_and_set(admin: &Admin, kafka: &Kafka) {
    let topic = create(kafka, "of-group", 2).await;
    let group = format!("administered-{}", std::process::id());
    let partitions = [0, 1].map(|partition| TopicPartition::new(topic.as_str(), partition));
    let offset = CommittedOffset { metadata: "by hand".to_owned(), ..CommittedOffset::new(Offset(5)) };
    let offsets: BTreeMap<_, _> = partitions.clone().map(|at| (at, offset.clone())).into();
    admin.alter_group_offsets(&group, &offsets).await.expect("set");
    let listed = admin.list_group_offsets(&group, None).await.expect("an answer");
    assert_eq!((listed.len(), &*listed[&partitions[1]].metadata), (2, "by hand"));
    let mut consumer = Consumer::connect(&kafka.bootstrap, of_group(&group)).await.expect("connected");
    consumer.subscribe(vec![topic]).expect("there is a group");
    for _ in 0..100 {
        if let Polled::Assigned(_) = consumer.poll(Duration::from_millis(100)).await.expect("a poll") {
            break;
        }
    }
    let groups = admin.list_groups().await.expect("an answer");
    assert!(groups.iter().any(|listing| listing.group == group && listing.protocol_type == "consumer"));
    let groups = [group.clone()];
    let described = admin.describe_groups(&groups).await;
    let description = described[&group].as_ref().expect("described");
    assert_eq!((&*description.state, description.members.len()), ("Stable", 1));
    assert_eq!(description.members[0].assignment, partitions);
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
    let record = |number: i64| Stored {
        key: None,
        value: Some(number.to_be_bytes().to_vec()),
        headers: Vec::new(),
        timestamp: 1_700_000_000_000,
    };
    let records: Vec<Stored> = (0..10).map(record).collect();
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
