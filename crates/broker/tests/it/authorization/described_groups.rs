//! Descriptions of groups with topics that the client may not describe.

use super::{address_of_admin, admin, allow, start, until};
use crate::share_states::STATE_TOPIC;
use thalweg_dial::Connection;
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;
use thalweg_wire::request::*;

const GROUP: &str = "sharers";
const TOPIC: &str = "secret";

/// A heartbeat of a member that subscribes to the topic; the epoch of the member, and whether partitions are
/// assigned.
async fn beat(member: &Connection, member_epoch: i32) -> (i32, bool) {
    let request = ShareGroupHeartbeatRequest {
        group_id: GROUP.to_owned(),
        member_id: "one".to_owned(),
        member_epoch,
        subscribed_topic_names: (member_epoch == 0).then(|| vec![TOPIC.to_owned()]),
        ..Default::default()
    };
    let answer = member.send(&request).await.expect("an answer");
    if answer.error_code != 0 {
        return (member_epoch, false);
    }
    let has_any = answer.assignment.is_some_and(|assignment| !assignment.topic_partitions.is_empty());
    (answer.member_epoch, has_any)
}

async fn described(client: &Connection) -> Vec<DescribedGroup> {
    let group_ids = vec![GROUP.to_owned(), "denied".to_owned()];
    let request = ShareGroupDescribeRequest { group_ids, ..Default::default() };
    client.send(&request).await.expect("an answer").groups
}

/// As in Kafka (`KafkaApis.handleShareGroupDescribe`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_a_subscription_are_shown_until_a_topic_is_assigned_that_the_client_may_not_describe() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &STATE_TOPIC).await;
    let admin = admin(&address_of_admin(&broker)).await;
    allow(&admin, &[(ResourceType::Group, GROUP, Operation::Describe)]).await;
    until("there is a coordinator", async || {
        let find = FindCoordinatorRequest { coordinator_keys: vec![GROUP.to_owned()], ..Default::default() };
        admin.send(&find).await.expect("an answer").coordinators.remove(0).error_code == 0
    })
    .await;
    let mut epoch = 0;
    until("the member joins", async || {
        (epoch, _) = beat(&admin, epoch).await;
        epoch > 0
    })
    .await;
    let client = broker.connection();
    until("the group is described", async || {
        described(client).await.iter().any(|group| group.error_code == 0)
    })
    .await;
    let groups = described(client).await;
    let denied = ErrorCode::GroupAuthorizationFailed.code();
    let heads: Vec<_> = groups.iter().map(|group| (group.group_id.as_str(), group.error_code)).collect();
    assert_eq!(heads, [("denied", denied), (GROUP, 0)], "in Kafka's order");
    assert_eq!(groups[1].members[0].subscribed_topic_names, [TOPIC]);

    let topic = CreatableTopic {
        name: TOPIC.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    assert_eq!(admin.send(&request).await.expect("an answer").topics[0].error_code, 0);
    until("the topic is assigned", async || {
        let has_any;
        (epoch, has_any) = beat(&admin, epoch).await;
        has_any
    })
    .await;
    let group = described(client).await.remove(1);
    assert_eq!(group.error_code, ErrorCode::TopicAuthorizationFailed.code());
    assert!(group.members.is_empty(), "{group:?}");
    admin.close();
    broker.stop().await;
}
