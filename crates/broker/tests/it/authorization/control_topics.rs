//! Topics on whose records brokers act, or that are evidence: WRITE on the topic does not suffice.

use super::{address_of_admin, admin, allow, fill, start, until};
use crate::raw::Raw;
use crate::records::{Topic, batch, produce};
use crate::running::RunningBroker;
use bytes::BytesMut;
use thalweg_dial::Connection;
use thalweg_metadata::ConfigResource;
use thalweg_metadata::topic_name::STREAM_DEFINITIONS;
use thalweg_security::acl::{CLUSTER_NAME, Operation, ResourceType};
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::*;

/// The codes of requests to produce, which arrive together.
async fn produced(
    broker: &RunningBroker,
    client_id: &str,
    version: i16,
    topic: &Topic,
    count: usize,
) -> Vec<i16> {
    let mut raw = Raw::connect(broker).await;
    let mut bytes = BytesMut::new();
    let request = produce(version, topic, 0, 1, batch(&[b"forged"]));
    for id in 0..count {
        let frame = encode_request(&request, version, id as i32, Some(client_id)).expect("it fits");
        bytes.extend_from_slice(&frame);
    }
    raw.send_bytes(&bytes).await;
    let mut codes = Vec::new();
    for id in 0..count {
        let answer = raw.answer::<ProduceRequest>(id as i32, version).await.expect("an answer");
        codes.push(answer.responses[0].partition_responses[0].error_code);
    }
    codes
}

async fn described(connection: &Connection, name: &str) -> metadata_response::MetadataResponseTopic {
    let asked = MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() };
    let request =
        MetadataRequest { topics: Some(vec![asked]), allow_auto_topic_creation: true, ..Default::default() };
    connection.send(&request).await.expect("an answer").topics.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_streams_are_written_by_those_who_may_alter_the_cluster() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[]).await;
    let admin = admin(&address_of_admin(&broker)).await;
    let topic = fill(&admin, STREAM_DEFINITIONS, "group", "id").await.topic;
    let ordinary = fill(&admin, "__stream_definitions_not", "group", "id").await.topic;
    assert!(described(&admin, STREAM_DEFINITIONS).await.is_internal);
    allow(&admin, &[(ResourceType::Topic, "*", Operation::All)]).await;
    until("the right to write", async || produced(&broker, "c", 12, &ordinary, 1).await == [0]).await;
    for client_id in ["c", "__admin_client"] {
        for version in [3, 9, 12, 13] {
            let codes = produced(&broker, client_id, version, &topic, 3).await;
            assert_eq!(codes, [29; 3], "{client_id} {version}");
        }
    }
    allow(&admin, &[(ResourceType::Cluster, CLUSTER_NAME, Operation::Alter)]).await;
    until("the right to alter", async || produced(&broker, "c", 12, &topic, 1).await == [0]).await;
    for version in [3, 9, 12, 13] {
        assert_eq!(produced(&broker, "c", version, &topic, 3).await, [0; 3], "{version}");
    }
    admin.close();
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_topic_is_written_by_brokers_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(dir.path(), &[("thalweg.audit.topic", "trail")]).await;
    let admin = admin(&address_of_admin(&broker)).await;
    let ordinary = fill(&admin, "ordinary", "group", "id").await.topic;
    // The trail may be there before.
    until("the trail", async || described(&admin, "trail").await.error_code == 0).await;
    let trail = Topic { name: "trail".to_owned(), id: described(&admin, "trail").await.topic_id };
    allow(&admin, &[(ResourceType::Topic, "*", Operation::All)]).await;
    until("the right to write", async || produced(&broker, "c", 12, &ordinary, 1).await == [0]).await;
    assert_eq!(produced(&broker, "c", 12, &trail, 2).await, [29; 2]);
    allow(&admin, &[(ResourceType::Cluster, CLUSTER_NAME, Operation::ClusterAction)]).await;
    until("the right of brokers", async || produced(&broker, "c", 12, &trail, 1).await == [0]).await;
    admin.close();
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_streams_are_compacted_even_where_a_client_names_them_first() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("num.partitions", "3")]).await;
    let client = broker.connection();
    until("the topic is there", async || described(client, STREAM_DEFINITIONS).await.error_code == 0).await;
    assert_eq!(described(client, STREAM_DEFINITIONS).await.partitions.len(), 1);
    let image = broker.server().broker.image();
    let config = image.config(&ConfigResource::topic(STREAM_DEFINITIONS));
    assert_eq!(config.get("cleanup.policy").map(String::as_str), Some("compact"));
    broker.stop().await;
}
