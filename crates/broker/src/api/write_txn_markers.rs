//! WriteTxnMarkers (key 27), versions 1 and 2: the coordinator of a transaction has its end written into the partitions
//! that are led here. Each marker is answered by partition; the answer waits for the replicas. Version 2 tells the level of
//! transaction.version by which the transaction was made (KIP-1228): with it, a marker of an epoch that has ended already
//! is refused. kafka-transactions.sh aborts hanging transactions with it too.

use super::Call;
use crate::broker::Broker;
use crate::transaction::{Marker, Outcome, join_all, write_marker};
use std::sync::Arc;
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_wire::request::write_txn_markers_request::WritableTxnMarker;
use thalweg_wire::request::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use thalweg_wire::request::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tokio::time::Instant;

/// Writes all markers, and answers when each has its place on the replicas, or has not in time.
pub async fn handle(
    broker: Arc<Broker>,
    _: Arc<Call>,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let deadline = Instant::now() + broker.config().network.request_timeout;
    let markers = request.markers.into_iter().map(|marker| write(&broker, marker, deadline));
    let mut results: Vec<WritableTxnMarkerResult> = Vec::new();
    for result in join_all(markers).await {
        // As Kafka's answer: one entry for each producer.
        match results.iter_mut().find(|other| other.producer_id == result.producer_id) {
            Some(other) => other.topics.extend(result.topics),
            None => results.push(result),
        }
    }
    WriteTxnMarkersResponse { markers: results }
}

async fn write(broker: &Broker, marker: WritableTxnMarker, deadline: Instant) -> WritableTxnMarkerResult {
    let end = Marker {
        producer_id: ProducerId(marker.producer_id),
        producer_epoch: ProducerEpoch(marker.producer_epoch),
        coordinator_epoch: marker.coordinator_epoch,
        outcome: if marker.transaction_result { Outcome::Commit } else { Outcome::Abort },
        transaction_version: i16::from(marker.transaction_version),
    };
    let topics = marker.topics.iter().map(|topic| async {
        let partitions = topic.partition_indexes.iter().map(|index| async {
            let written = write_marker(broker, end, &topic.name, *index, deadline).await;
            let error_code = written.err().map_or(0, |error| error.code());
            WritableTxnMarkerPartitionResult { partition_index: *index, error_code }
        });
        WritableTxnMarkerTopicResult { name: topic.name.clone(), partitions: join_all(partitions).await }
    });
    WritableTxnMarkerResult { producer_id: marker.producer_id, topics: join_all(topics).await }
}
