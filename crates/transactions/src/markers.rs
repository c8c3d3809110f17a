//! Markers: the control records that end a transaction in a partition. This broker's coordinator sends
//! markers to the leaders of its transactions' partitions, here or remote; this broker's partitions accept
//! markers of any coordinator (Kafka's `TransactionMarkerChannelManager`).
//!
//! Owns: the delivery of a marker to its partition. A failed delivery is retried, with the current leader, as
//! long as the marker's coordinator is elected. One request is in flight to each broker, with all markers
//! collected meanwhile.

use super::coordinator::TransactionCoordinator;
use super::error::MarkerError;
use super::shard::{Marker, MarkerDelivery, MarkerQueue, PartitionResult, TopicPartitions};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_dial::Connection;
use thalweg_groups::{EndOfTransaction, GroupCoordinator, TransactionOutcome};
use thalweg_hash::HashMap;
use thalweg_log::Clock;
use thalweg_membership::{Letter, NoAnswer, Outbox, PeerError, Peers};
use thalweg_metadata::topic_name::OFFSETS;
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex};
use thalweg_replica::partition::{EndMarker, Partition, Partitions};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use thalweg_wire::request::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Retry backoff for markers.
const RETRY: Duration = Duration::from_millis(50);
/// Maximum number of markers per request.
const MARKERS_AT_ONCE: usize = 1000;

/// Writes markers of any coordinator into the partitions led here.
#[derive(Debug)]
pub struct MarkerWriter {
    partitions: Arc<Partitions>,
    groups: Arc<GroupCoordinator>,
    clock: Clock,
}

impl MarkerWriter {
    /// A writer for these partitions, which notifies these groups.
    pub fn new(partitions: Arc<Partitions>, groups: Arc<GroupCoordinator>, clock: Clock) -> MarkerWriter {
        MarkerWriter { partitions, groups, clock }
    }

    /// Writes a marker into a partition led here, and waits until the in-sync replicas have it. The groups
    /// whose offsets the transaction commits are notified.
    pub async fn write(
        &self,
        marker: Marker,
        topic: &str,
        partition: PartitionIndex,
        deadline: Instant,
    ) -> Result<(), MarkerError> {
        let found = self.partitions.get(topic, partition).ok_or(MarkerError::UnknownPartition)?;
        if marker.producer_id.0 < 0 {
            return Err(MarkerError::NegativeProducerId);
        }
        if topic == OFFSETS {
            let ended = self.groups.complete_transaction(
                partition,
                marker.producer_id,
                marker.producer_epoch,
                EndOfTransaction {
                    outcome: marker.outcome,
                    coordinator_epoch: marker.coordinator_epoch,
                    transaction_version: marker.transaction_version,
                },
            );
            return match tokio::time::timeout_at(deadline, ended).await {
                Err(_) => Err(MarkerError::TimedOut),
                Ok(ended) => Ok(ended?),
            };
        }
        let end = EndMarker {
            aborts: marker.outcome == TransactionOutcome::Abort,
            coordinator_epoch: marker.coordinator_epoch,
            timestamp: self.clock.now_ms(),
        };
        let appended = found
        .append_marker(marker.producer_id, marker.producer_epoch, end, marker.transaction_version)
        .inspect_err(|error| {
            tracing::debug!(partition = ?found, producer_id = marker.producer_id.0, %error, "Rejected a transaction marker");
        })?;
        match Partition::ack_wait(&found, -1, &appended) {
            Some(wait) => Ok(wait.wait_until_acked(deadline).await?),
            None => Ok(()),
        }
    }
}

/// The destination of a partition's marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    /// This broker leads the partition.
    Here,
    /// Another broker leads it.
    Broker(BrokerId),
    /// The partition has no leader at the moment.
    Nobody,
    /// The partition does not exist, and needs no marker.
    Nowhere,
}

/// Sends the markers of this broker's coordinator.
#[derive(Debug)]
pub struct MarkerSender {
    node_id: BrokerId,
    image: Arc<ImageCell>,
    peers: Arc<Peers>,
    writer: Arc<MarkerWriter>,
    queue: Arc<MarkerQueue>,
    outbox: Outbox<MarkerDelivery>,
}

impl MarkerSender {
    /// A sender that uses `writer` for partitions led by this node, and peers for all other partitions.
    pub fn new(
        node_id: BrokerId,
        transactions: &TransactionCoordinator,
        writer: Arc<MarkerWriter>,
        image: Arc<ImageCell>,
        peers: Arc<Peers>,
    ) -> MarkerSender {
        let (outbox, queue) = (Outbox::new(Arc::clone(&peers)), Arc::clone(transactions.marker_queue()));
        MarkerSender { node_id, image, peers, writer, queue, outbox }
    }

    /// Sends markers as long as the future is polled.
    pub async fn run(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        let mut tasks = JoinSet::new();
        loop {
            let sendings = std::mem::take(&mut *queue.waiting.lock());
            for sending in sendings.into_iter().filter(|sending| sending.cell.is_active()) {
                for (destination, sending) in by_destination(&self, sending) {
                    match destination {
                        Destination::Nowhere => {
                            let results = sending.partitions.iter().cloned().map(|p| (p, ErrorCode::None));
                            let results = results.collect();
                            sending.complete(results);
                        }
                        Destination::Nobody => {
                            drop(tasks.spawn(send_again(Arc::clone(&queue), vec![sending])))
                        }
                        Destination::Here => {
                            tasks.spawn(write_here(Arc::clone(&self), sending));
                        }
                        Destination::Broker(id) => {
                            tasks.spawn(send_elsewhere(Arc::clone(&self), id, sending));
                        }
                    }
                }
            }
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "Sending transaction markers panicked");
                    }
                }
                () = queue.news.notified() => {}
            }
        }
    }
}

fn by_destination(sender: &MarkerSender, sending: MarkerDelivery) -> BTreeMap<Destination, MarkerDelivery> {
    let image = sender.image.get();
    let mut destinations: BTreeMap<Destination, MarkerDelivery> = BTreeMap::new();
    for (topic, partition) in &sending.partitions {
        let destination = match image.partition(topic, *partition) {
            None => Destination::Nowhere,
            Some(registration) if registration.leader == sender.node_id => Destination::Here,
            Some(registration) if image.is_alive(registration.leader) => {
                Destination::Broker(registration.leader)
            }
            Some(_) => Destination::Nobody,
        };
        let part = destinations
            .entry(destination)
            .or_insert_with(|| MarkerDelivery { partitions: Vec::new(), ..sending.clone() });
        part.partitions.push((topic.clone(), *partition));
    }
    destinations
}

async fn send_again(queue: Arc<MarkerQueue>, sendings: Vec<MarkerDelivery>) {
    tokio::time::sleep(RETRY).await;
    queue.put(sendings);
}

async fn write_here(sender: Arc<MarkerSender>, sending: MarkerDelivery) {
    let deadline = Instant::now() + sender.peers.request_timeout();
    let marker = sending.marker();
    let writes = sending.partitions.iter().map(|(topic, partition)| {
        let written = sender.writer.write(marker, topic, *partition, deadline);
        async move {
            let error = written.await.err().map_or(ErrorCode::None, |error| error.code());
            ((topic.clone(), *partition), error)
        }
    });
    let results = join_all(writes).await;
    if let Some(again) = sending.complete(results) {
        send_again(Arc::clone(&sender.queue), vec![again]).await;
    }
}

/// Sends to another broker. Without an answer, the next attempt uses the then current leader.
async fn send_elsewhere(sender: Arc<MarkerSender>, id: BrokerId, sending: MarkerDelivery) {
    let again = match sender.outbox.ask(id, sending.clone()).await {
        Ok(results) => sending.complete(results),
        Err(NoAnswer) => Some(sending),
    };
    if let Some(again) = again {
        send_again(Arc::clone(&sender.queue), vec![again]).await;
    }
}

impl Letter for MarkerDelivery {
    const PURPOSE: &'static str = "txn-markers";
    const FAILURE: &'static str = "Failed to send transaction markers, retrying";
    type Kind = ();
    /// The number of markers.
    type Load = usize;
    /// Results per partition; empty if another coordinator has taken over the transaction.
    type Answer = Vec<PartitionResult>;

    fn kind(&self) {}

    fn join(&self, count: &mut usize) -> bool {
        *count += 1;
        *count <= MARKERS_AT_ONCE
    }

    async fn send(
        connection: &Connection,
        _broker: BrokerId,
        sendings: &[MarkerDelivery],
    ) -> Result<Vec<Vec<PartitionResult>>, PeerError> {
        let is_active: Vec<bool> = sendings.iter().map(|sending| sending.cell.is_active()).collect();
        let active = sendings.iter().zip(&is_active).filter(|(_, is_active)| **is_active);
        let markers: Vec<WritableTxnMarker> = active.map(|(sending, _)| marker(sending)).collect();
        if markers.is_empty() {
            return Ok(sendings.iter().map(|_| Vec::new()).collect());
        }
        let response = connection.send(&WriteTxnMarkersRequest { markers }).await?;
        let results = sendings.iter().zip(is_active).map(|(sending, is_active)| match is_active {
            true => results(sending, &response),
            false => Vec::new(),
        });
        Ok(results.collect())
    }
}

fn marker(sending: &MarkerDelivery) -> WritableTxnMarker {
    let order = &sending.order;
    WritableTxnMarker {
        producer_id: order.producer_id,
        producer_epoch: order.producer_epoch,
        transaction_result: order.outcome == TransactionOutcome::Commit,
        topics: by_topic(&sending.partitions),
        coordinator_epoch: order.coordinator_epoch,
        transaction_version: i8::try_from(order.transaction_version).unwrap_or(i8::MAX),
    }
}

fn by_topic(partitions: &TopicPartitions) -> Vec<WritableTxnMarkerTopic> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(topic).or_default().push(partition.0);
    }
    let topics = topics
        .into_iter()
        .map(|(name, partition_indexes)| WritableTxnMarkerTopic { name: name.to_owned(), partition_indexes });
    topics.collect()
}

/// A broker's results for one marker's partitions. Missing results are retried.
fn results(sending: &MarkerDelivery, response: &WriteTxnMarkersResponse) -> Vec<PartitionResult> {
    let id = sending.order.producer_id;
    let markers = response.markers.iter().filter(|marker| marker.producer_id == id);
    let codes: HashMap<(&str, i32), i16> = markers
        .flat_map(|marker| &marker.topics)
        .flat_map(|topic| topic.partitions.iter().map(|p| ((&*topic.name, p.partition_index), p.error_code)))
        .collect();
    let result = |(topic, partition): &(Arc<str>, PartitionIndex)| {
        let code = codes.get(&(&**topic, partition.0)).copied();
        let error = code.and_then(ErrorCode::from_i16).unwrap_or(ErrorCode::UnknownServerError);
        ((topic.clone(), *partition), error)
    };
    sending.partitions.iter().map(result).collect()
}
