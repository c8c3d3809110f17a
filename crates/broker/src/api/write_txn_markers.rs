//! WriteTxnMarkers (key 27), versions 1 and 2: the transaction coordinator writes markers into the partitions
//! led here. Each marker has a result per partition, and the answer waits for the replicas. Version 2 adds
//! the transaction's level of transaction.version (KIP-1228), by which a marker of an already ended epoch is
//! refused. kafka-transactions.sh also aborts hanging transactions by this API.

use super::entry::{Api, cluster, later};
use futures_util::future::join_all;
use thalweg_config::NetworkSettings;
use thalweg_groups::TransactionOutcome;
use thalweg_metadata::PartitionIndex;
use thalweg_net::answer_parts::merge;
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_security::acl::Operation;
use thalweg_transactions::{Marker, MarkerWriter};
use thalweg_wire::ApiKey;
use thalweg_wire::request::write_txn_markers_request::WritableTxnMarker;
use thalweg_wire::request::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use thalweg_wire::request::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tokio::time::Instant;

pub(super) const API: Api = Api::new(
    ApiKey::WriteTxnMarkers,
    1..=2,
    cluster::<WriteTxnMarkersRequest>(&[Operation::Alter, Operation::ClusterAction]),
    |b, c, d| later(b, c, d, async |b, _, r| handle(&b.markers, &b.config().network, r).await),
);

/// Number of concurrent markers, to bound the memory of a long request.
const AT_ONCE: usize = 1_000;

/// Writes all markers, and answers when each is replicated or has timed out.
pub async fn handle(
    markers: &MarkerWriter,
    network: &NetworkSettings,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let deadline = Instant::now() + network.request_timeout;
    let writes: Vec<(Marker, &str, PartitionIndex)> = request.markers.iter().flat_map(writes).collect();
    let mut codes = Vec::with_capacity(writes.len());
    for some in writes.chunks(AT_ONCE) {
        let mut written = Vec::with_capacity(some.len());
        for (marker, topic, partition) in some {
            written.push(markers.write(*marker, topic, *partition, deadline));
        }
        codes.extend(join_all(written).await.into_iter().map(|written| match written {
            Ok(()) => 0,
            Err(error) => error.code().code(),
        }));
    }
    let mut codes = codes.into_iter();
    let each = request.markers.iter().map(|marker| WritableTxnMarkerResult {
        producer_id: marker.producer_id,
        topics: topic_results(marker, &mut codes),
    });
    // As in Kafka, the answer has one entry for each producer.
    let mut results = Vec::new();
    let producer = |result: &WritableTxnMarkerResult| result.producer_id;
    merge(&mut results, each.collect(), producer, |first, again| first.topics.extend(again.topics));
    WriteTxnMarkersResponse { markers: results }
}

/// The destinations of a marker, in the order of the request.
fn writes(marker: &WritableTxnMarker) -> impl Iterator<Item = (Marker, &str, PartitionIndex)> {
    let end = Marker {
        producer_id: ProducerId(marker.producer_id),
        producer_epoch: ProducerEpoch(marker.producer_epoch),
        coordinator_epoch: marker.coordinator_epoch,
        outcome: if marker.transaction_result {
            TransactionOutcome::Commit
        } else {
            TransactionOutcome::Abort
        },
        transaction_version: i16::from(marker.transaction_version),
    };
    marker.topics.iter().flat_map(move |topic| {
        topic.partition_indexes.iter().map(move |index| (end, topic.name.as_str(), PartitionIndex(*index)))
    })
}

/// The results of a marker, from the next error codes.
fn topic_results(
    marker: &WritableTxnMarker,
    codes: &mut impl Iterator<Item = i16>,
) -> Vec<WritableTxnMarkerTopicResult> {
    // As in Kafka's answer, a topic without partitions is left out.
    let with_partitions = marker.topics.iter().filter(|topic| !topic.partition_indexes.is_empty());
    let topics = with_partitions.map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|&partition_index| {
            let error_code = codes.next().expect("every write has its code");
            WritableTxnMarkerPartitionResult { partition_index, error_code }
        });
        WritableTxnMarkerTopicResult { name: topic.name.clone(), partitions: partitions.collect() }
    });
    topics.collect()
}
