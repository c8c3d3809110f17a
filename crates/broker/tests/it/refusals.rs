//! Requests with a wrong field get the errors that Apache Kafka gives them.

use crate::records::{Topic, batch, put};
use crate::running::RunningBroker;
use thalweg_wire::request::describe_topic_partitions_request::{Cursor, TopicRequest};
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic};
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use thalweg_wire::request::*;

const INVALID_REQUEST: i16 = 42;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolation_level_that_does_not_exist_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    // Without a code for the whole answer, with one, and with ids for names.
    for version in [4, 12, 13] {
        let wanted = FetchTopic {
            topic: topic.name_until(12, version),
            topic_id: topic.id_after(12, version),
            partitions: vec![FetchPartition::default()],
        };
        let request = FetchRequest { isolation_level: 2, topics: vec![wanted], ..Default::default() };
        let answer = broker.ask_at(&request, version).await;
        assert_eq!(answer.error_code, if version >= 7 { INVALID_REQUEST } else { 0 });
        let codes: Vec<i16> =
            answer.responses.iter().flat_map(|topic| &topic.partitions).map(|part| part.error_code).collect();
        assert_eq!(codes, if version <= 12 { vec![INVALID_REQUEST] } else { vec![] }, "version {version}");
    }
    let partitions = vec![ListOffsetsPartition { timestamp: -1, ..Default::default() }];
    let topics = vec![ListOffsetsTopic { name: topic.name.clone(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, isolation_level: 3, topics, ..Default::default() };
    assert_eq!(broker.ask(&request).await.topics[0].partitions[0].error_code, INVALID_REQUEST);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_without_a_key_is_refused_by_a_compacted_topic_in_kafkas_words() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "compacted", 1, &[("cleanup.policy", "compact")]).await;
    let refused = put(&broker, &topic, -1, batch(&[b"a", b"b"])).await;
    let words = "Compacted topic cannot accept message without key in topic partition compacted-0";
    assert_eq!(refused.error_code, 87);
    assert_eq!(refused.log_start_offset, 0);
    assert_eq!(refused.record_errors[1].batch_index_error_message.as_deref(), Some(words));
    let whole = format!(
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three errors at \
         most: [RecordError(batchIndex=0, message='{words}'), RecordError(batchIndex=1, message='{words}')]"
    );
    assert_eq!(refused.error_message, Some(whole));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_of_a_producer_with_a_negative_id_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let to =
        |name: &str, partition_indexes| WritableTxnMarkerTopic { name: name.to_owned(), partition_indexes };
    let marker = WritableTxnMarker {
        producer_id: -1,
        topics: vec![to(&topic.name, vec![0]), to("absent", vec![0]), to("absent", vec![])],
        ..Default::default()
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    let answer = broker.ask_at(&request, 1).await.markers.remove(0);
    let codes: Vec<i16> =
        answer.topics.iter().flat_map(|t| &t.partitions).map(|part| part.error_code).collect();
    assert_eq!((answer.topics.len(), codes), (2, vec![49, 3]));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_describes_the_cluster_refuses_what_it_does_not_know() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[]).await;
    for (endpoint_type, code) in [(0, 115), (1, 0), (2, 114), (3, 115)] {
        let request = DescribeClusterRequest { endpoint_type, ..Default::default() };
        assert_eq!(broker.ask(&request).await.error_code, code, "endpoint type {endpoint_type}");
    }
    for (cursor, code) in
        [(("topic", 0), 3), (("topic", -1), INVALID_REQUEST), (("other", 0), INVALID_REQUEST)]
    {
        let request = DescribeTopicPartitionsRequest {
            topics: vec![TopicRequest { name: "topic".to_owned() }],
            cursor: Some(Cursor { topic_name: cursor.0.to_owned(), partition_index: cursor.1 }),
            ..Default::default()
        };
        assert_eq!(broker.ask(&request).await.topics[0].error_code, code, "{cursor:?}");
    }
    let elsewhere = AddRaftVoterRequest { cluster_id: Some("another".to_owned()), ..Default::default() };
    assert_eq!(broker.ask(&elsewhere).await.error_code, 104);
    broker.stop().await;
}
