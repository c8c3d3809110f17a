//! Share groups on one broker: members get partitions once their states are initialized, offsets are
//! described with their lag, set and deleted, and the group goes with its states.

use crate::records::{Topic, batch, put};
use crate::running::RunningBroker;
use crate::share_states::STATE_TOPIC;
use std::path::Path;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_share::{SharePartitionKey, StateUpdate};
use thalweg_share_groups::PersistError;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::*;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);
const GROUP: &str = "sharers";

struct Member {
    id: &'static str,
    epoch: i32,
    assigned: usize,
}

impl Member {
    async fn beat(&mut self, broker: &RunningBroker, topic: &Topic) {
        let request = ShareGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.to_owned(),
            member_epoch: self.epoch,
            subscribed_topic_names: (self.epoch == 0).then(|| vec![topic.name.clone()]),
            ..Default::default()
        };
        let answer = broker.ask(&request).await;
        if answer.error_code == ErrorCode::CoordinatorLoadInProgress.code()
            || answer.error_code == ErrorCode::NotCoordinator.code()
        {
            return;
        }
        assert_eq!(answer.error_code, 0, "{answer:?}");
        self.epoch = answer.member_epoch;
        if let Some(assignment) = answer.assignment {
            self.assigned = assignment.topic_partitions.iter().map(|topic| topic.partitions.len()).sum();
        }
    }

    async fn join(id: &'static str, broker: &RunningBroker, topic: &Topic) -> Member {
        let mut member = Member { id, epoch: 0, assigned: 0 };
        let deadline = Instant::now() + PATIENCE;
        while member.assigned == 0 {
            assert!(Instant::now() < deadline, "no partition is assigned");
            member.beat(broker, topic).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        member
    }

    async fn leave(self, broker: &RunningBroker) {
        let request = ShareGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.to_owned(),
            member_epoch: -1,
            ..Default::default()
        };
        assert_eq!(broker.ask(&request).await.error_code, 0);
    }
}

/// A broker that coordinates the group, and a topic with ten records in its first partition.
async fn start(dir: &Path) -> (RunningBroker, Topic) {
    let broker = RunningBroker::start(dir, &STATE_TOPIC).await;
    let topic = Topic::create(&broker, "shared", 2, &[]).await;
    for _ in 0..10 {
        assert_eq!(put(&broker, &topic, -1, batch(&[b"value"])).await.error_code, 0);
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let find = FindCoordinatorRequest { coordinator_keys: vec![GROUP.to_owned()], ..Default::default() };
        let found = broker.ask(&find).await.coordinators.remove(0).error_code;
        let describe = ShareGroupDescribeRequest { group_ids: vec![GROUP.to_owned()], ..Default::default() };
        let described = broker.ask(&describe).await.groups.remove(0).error_code;
        if found == 0 && described == ErrorCode::GroupIdNotFound.code() {
            return (broker, topic);
        }
        assert!(Instant::now() < deadline, "no coordinator: {found} {described}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Start offset and lag of each partition, of all topics or of one.
async fn offsets(broker: &RunningBroker, topic: Option<&Topic>) -> Vec<(i32, i64, i64)> {
    use describe_share_group_offsets_request::{
        DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
    };
    let topics = topic.map(|topic| {
        vec![DescribeShareGroupOffsetsRequestTopic { topic_name: topic.name.clone(), partitions: vec![0, 1] }]
    });
    let group = DescribeShareGroupOffsetsRequestGroup { group_id: GROUP.to_owned(), topics };
    let answer = broker.ask(&DescribeShareGroupOffsetsRequest { groups: vec![group] }).await;
    assert_eq!(answer.groups[0].error_code, 0, "{answer:?}");
    let partitions = answer.groups[0].topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|one| (one.partition_index, one.start_offset, one.lag)).collect()
}

/// No coordinator is asked for partitions that the topic does not have.
async fn absent_partitions_are_described_at_once(broker: &RunningBroker, topic: &Topic) {
    use describe_share_group_offsets_request::{
        DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
    };
    let partitions = vec![2, -1, i32::MAX];
    let topics =
        Some(vec![DescribeShareGroupOffsetsRequestTopic { topic_name: topic.name.clone(), partitions }]);
    let group = DescribeShareGroupOffsetsRequestGroup { group_id: GROUP.to_owned(), topics };
    let request = DescribeShareGroupOffsetsRequest { groups: vec![group; 20] };
    let asked = tokio::time::timeout(Duration::from_secs(5), broker.ask(&request)).await;
    for group in asked.expect("nothing is retried").groups {
        let starts: Vec<i64> = group.topics[0].partitions.iter().map(|one| one.start_offset).collect();
        assert_eq!((group.error_code, starts), (0, vec![-1; 3]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_partitions_and_an_empty_group_has_offsets() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = start(dir.path()).await;
    assert_eq!(offsets(&broker, None).await, [], "there is no group");
    absent_partitions_are_described_at_once(&broker, &topic).await;
    let one = Member::join("one", &broker, &topic).await;
    let two = Member::join("two", &broker, &topic).await;
    assert_eq!(offsets(&broker, None).await, [(0, -1, -1), (1, -1, -1)], "no leader has read the states");

    // What the leader of the partition does.
    let persister = &broker.server().broker.share_persister;
    let key = |partition| SharePartitionKey {
        group: GROUP.into(),
        topic: topic.id,
        partition: PartitionIndex(partition),
    };
    let state = persister.read(&key(0), 0).await.expect("it is initialized");
    let update = StateUpdate {
        state_epoch: state.state_epoch,
        leader_epoch: 0,
        start_offset: 4,
        delivery_complete_count: 2,
        batches: Vec::new(),
    };
    assert_eq!(persister.write(&key(0), &update).await, Ok(()));
    assert_eq!(offsets(&broker, Some(&topic)).await, [(0, 4, 4), (1, -1, -1)]);

    let describe = ShareGroupDescribeRequest { group_ids: vec![GROUP.to_owned()], ..Default::default() };
    let described = broker.ask(&describe).await.groups.remove(0);
    assert_eq!((described.group_state.as_str(), described.members.len()), ("Stable", 2));
    let list = ListGroupsRequest { types_filter: vec!["share".to_owned()], ..Default::default() };
    let listed = broker.ask(&list).await.groups.remove(0);
    assert_eq!((listed.group_id.as_str(), listed.group_type.as_str()), (GROUP, "share"));

    let delete = || DeleteGroupsRequest { groups_names: vec![GROUP.to_owned()] };
    let refused = broker.ask(&delete()).await.results.remove(0);
    assert_eq!(refused.error_code, ErrorCode::NonEmptyGroup.code());
    one.leave(&broker).await;
    two.leave(&broker).await;

    let alter = AlterShareGroupOffsetsRequest {
        group_id: GROUP.to_owned(),
        topics: vec![alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic {
            topic_name: topic.name.clone(),
            partitions: vec![alter_share_group_offsets_request::AlterShareGroupOffsetsRequestPartition {
                partition_index: 0,
                start_offset: 7,
            }],
        }],
    };
    let altered = broker.ask(&alter).await;
    assert_eq!((altered.error_code, altered.responses[0].partitions[0].error_code), (0, 0), "{altered:?}");
    assert_eq!(offsets(&broker, Some(&topic)).await[0], (0, 7, 3));
    assert_eq!(persister.write(&key(0), &update).await, Err(PersistError::FencedStateEpoch));
    broker.stop().await;

    let broker = RunningBroker::start(dir.path(), &STATE_TOPIC).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let deleted = broker.ask(&delete()).await.results.remove(0).error_code;
        if deleted == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{deleted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let described = broker.ask(&describe).await.groups.remove(0);
    assert_eq!(described.error_code, ErrorCode::GroupIdNotFound.code());
    let persister = &broker.server().broker.share_persister;
    assert_eq!(persister.read(&key(0), 0).await, Err(PersistError::Invalid), "its states are gone");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_of_topics_are_deleted() {
    use delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (broker, topic) = start(dir.path()).await;
    let member = Member::join("one", &broker, &topic).await;
    let topics = [topic.name.clone(), "missing".to_owned()];
    let topics = topics.map(|topic_name| DeleteShareGroupOffsetsRequestTopic { topic_name });
    let request = DeleteShareGroupOffsetsRequest { group_id: GROUP.to_owned(), topics: topics.to_vec() };
    assert_eq!(broker.ask(&request).await.error_code, ErrorCode::NonEmptyGroup.code());
    member.leave(&broker).await;
    let answer = broker.ask(&request).await;
    let mut codes: Vec<(&str, i16)> =
        answer.responses.iter().map(|topic| (topic.topic_name.as_str(), topic.error_code)).collect();
    codes.sort_unstable();
    assert_eq!(codes, [("missing", ErrorCode::UnknownTopicOrPartition.code()), ("shared", 0)]);
    assert_eq!(offsets(&broker, None).await, []);
    broker.stop().await;
}
