//! The internal topics of a streams group are created by the rights of its member.

use super::{address_of_admin, admin, allow, fill, start, until};
use crate::streams_groups::{GROUP, INTERNAL, heartbeat, missing};
use thalweg_security::acl::{CLUSTER_NAME, Operation, ResourceType};
use thalweg_wire::ErrorCode;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_streams_groups_need_rights_on_all_topics_and_may_create_theirs() {
    use Operation::{Create, Describe, Read};
    use ResourceType::{Cluster, Group, Topic};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[("group.streams.initial.rebalance.delay.ms", "0")]).await;
    let admin = admin(&address_of_admin(&broker)).await;
    fill(&admin, "topic", GROUP, "id").await;
    let refusal = async |expected: ErrorCode| {
        until(expected.name(), async || broker.ask(&heartbeat(0, &[])).await.error_code == expected.code())
            .await;
    };
    refusal(ErrorCode::GroupAuthorizationFailed).await;
    allow(&admin, &[(Group, GROUP, Read), (Topic, "topic", Describe), (Topic, INTERNAL[0], Describe)]).await;
    refusal(ErrorCode::TopicAuthorizationFailed).await;
    allow(&admin, &[(Topic, INTERNAL[1], Describe), (Topic, INTERNAL[0], Create)]).await;
    until("a member that is told what it may not create", async || {
        let answer = broker.ask(&heartbeat(0, &[])).await;
        missing(&answer)
            .is_some_and(|detail| detail.ends_with("; Unauthorized to CREATE on topics words-repartition."))
    })
    .await;
    assert!(broker.server().broker.image().topic(INTERNAL[0]).is_none(), "all of them, or none");
    allow(&admin, &[(Cluster, CLUSTER_NAME, Create)]).await;
    until("tasks", async || {
        let answer = broker.ask(&heartbeat(0, &[])).await;
        missing(&answer).is_none() && answer.active_tasks.is_some_and(|tasks| !tasks.is_empty())
    })
    .await;
    admin.close();
    broker.stop().await;
}
