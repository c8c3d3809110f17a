//! The clients of a simulation: idempotent producers with acks=all, consumers that read everything, members
//! of groups, and clients of transactions.

use crate::chance::Chance;
use crate::history::{AcknowledgedRun, History, Name, TOPIC};
use crate::pace::Pace;
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_client::{
    Chunk, ChunkError, Cluster, ConnectionOptions, Connector, Consumer, ConsumerConfig, ConsumerError,
    Delivery, DeliveryError, OffsetReset, PollEvent, Producer, ProducerConfig, ProducerRecord, StartAt,
    TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};
use tokio::time::Instant;

/// Request timeout of clients.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Retry backoff of a failed client.
pub(crate) const AGAIN: Duration = Duration::from_millis(300);

/// State shared by the administrator and the members of the share group.
#[derive(Debug, Default)]
pub struct Attendance {
    /// True while members have to leave.
    pub(crate) is_closed: AtomicBool,
    /// Number of members that have not left.
    pub(crate) present: AtomicUsize,
}

/// State shared by all clients.
#[derive(Clone)]
pub struct Clients {
    /// Opens the clients' connections.
    pub connector: Connector,
    /// Addresses of the brokers.
    pub bootstrap: Vec<String>,
    /// Partition count of the topic.
    pub partitions: i32,
    /// The clients' history.
    pub history: History,
    /// Set when producers must finish.
    pub ending: Arc<AtomicBool>,
    /// Number of producers that have not finished.
    pub producing: Arc<AtomicUsize>,
    /// Attendance of the share group's members.
    pub attendance: Arc<Attendance>,
    /// Seed of the run.
    pub seed: u64,
}

impl Clients {
    /// Runs the plan's clients, as long as the future is polled.
    pub async fn run(self, plan: &Plan) {
        let Plan { producers, consumers, members, transactional, crowd, .. } = *plan;
        let Plan { consumer_members, share_members, streams_members, .. } = *plan;
        let mut tasks = tokio::task::JoinSet::new();
        self.producing.store((producers + transactional + crowd) as usize, Ordering::SeqCst);
        for id in 0..producers {
            tasks.spawn(self.clone().produce(id));
        }
        for id in 0..consumers {
            tasks.spawn(self.clone().consume(id));
        }
        for id in 0..members {
            tasks.spawn(self.clone().be_member(id));
        }
        for id in 0..consumer_members {
            tasks.spawn(self.clone().be_consumer_member(id, plan.is_mixed()));
        }
        for id in 0..share_members {
            tasks.spawn(self.clone().be_share_member(id));
        }
        if share_members > 0 {
            tasks.spawn(self.clone().administer_queue());
        }
        for id in 0..streams_members {
            tasks.spawn(self.clone().be_streams_member(id, plan.shape()));
        }
        if streams_members > 0 {
            tasks.spawn(self.clone().watch_streams());
        }
        for id in 0..transactional + crowd {
            let pace = if id < transactional { Pace::Usual } else { Pace::Hasty };
            tasks.spawn(self.clone().transact(id, pace));
        }
        if plan.has_transactions() {
            tasks.spawn(self.clone().audit());
        }
        while tasks.join_next().await.is_some() {}
    }

    pub(crate) fn options(&self, name: String) -> ConnectionOptions {
        ConnectionOptions {
            client_id: name,
            connect_timeout: Duration::from_secs(2),
            request_timeout: REQUEST_TIMEOUT,
            ..ConnectionOptions::default()
        }
    }

    pub(crate) async fn cluster(&self, name: &str) -> Cluster {
        loop {
            let options = self.options(name.to_owned());
            if let Ok(cluster) = Cluster::connect_by(self.connector.clone(), &self.bootstrap, &options).await
                && cluster.wait_for_topic(TOPIC, false, Duration::from_secs(5)).await.is_ok()
            {
                return cluster;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn produce(self, id: u32) {
        let mut chance = Chance::new(self.seed, 1000 + u64::from(id));
        let cluster = self.cluster(&format!("producer-{id}")).await;
        let linger = Duration::from_millis(chance.below(20));
        let batch_bytes = usize::try_from(chance.between(200, 4000)).unwrap_or(1000);
        let config = ProducerConfig {
            linger,
            batch_bytes,
            // A few batches: a producer that is faster than the network waits, and has no backlog of minutes
            // when the cluster must come to rest.
            buffer_bytes: 20 * batch_bytes,
            in_flight_max: usize::try_from(chance.between(1, 5)).unwrap_or(5),
            retry_backoff: Duration::from_millis(chance.between(10, 200)),
            // Never give up: every outcome must be known at the end.
            delivery_timeout: Duration::from_secs(3600),
            max_block: Duration::from_secs(3600),
            metadata_max_age: Duration::from_secs(5),
            connection: self.options(format!("producer-{id}")),
            ..ProducerConfig::default()
        };
        let history = self.history.clone();
        let mut producer = Producer::new(cluster, config, move |delivery| ended(&history, id, delivery));
        let topic = loop {
            match producer.topic(TOPIC).await {
                Ok(topic) => break topic,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        };
        let mut numbers: BTreeMap<i32, u64> = BTreeMap::new();
        let pause_ms_max = *chance.pick(&[2, 10, 50, 300]);
        while !self.ending.load(Ordering::SeqCst) {
            let partition = i32::try_from(chance.below(self.partitions.unsigned_abs().into())).unwrap_or(0);
            let number = numbers.entry(partition).or_default();
            let name = Name { producer: id, number: *number };
            *number += 1;
            let len = usize::try_from(chance.below(400)).unwrap_or(0);
            let value = name.value(partition, len);
            self.history.with(|known| *known.sent.entry((partition, id)).or_default() += 1);
            let record = ProducerRecord {
                topic,
                partition: Some(partition),
                timestamp: 1_800_000_000_000,
                key: None,
                value: Some(&value),
                headers: &[],
                sent_at: Instant::now(),
                number: name.number,
            };
            if let Err(error) = producer.send(&record).await {
                self.history.violation(format!("producer {id} could not send: {error}"));
            }
            let pause_ms = chance.below(pause_ms_max);
            if pause_ms > 0 {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            }
        }
        producer.close().await;
        self.producing.fetch_sub(1, Ordering::SeqCst);
    }

    async fn consume(self, id: u32) {
        let history = &self.history;
        self.read(&format!("consumer-{id}"), TOPIC, false, |chunk, buffer, next| {
            let partition = chunk.at.partition;
            chunk.for_each(buffer, |record| {
                if record.offset.0 != *next {
                    let what =
                        format!("partition {partition}: offset {} came after {}", record.offset.0, *next - 1);
                    history.violation(what);
                }
                *next = record.offset.0 + 1;
                history.read(partition, record.offset.0, record.value);
                ControlFlow::Continue(())
            })
        })
        .await;
    }

    /// Reads a whole topic, repeatedly from the last position, as long as the future is polled. `take` gets a
    /// partition's records, and the next expected offset, which it advances.
    pub(crate) async fn read(
        &self,
        name: &str,
        topic: &str,
        read_committed: bool,
        mut take: impl FnMut(&Chunk, &mut DecompressBuffer, &mut i64) -> Result<(), ChunkError>,
    ) {
        let mut positions: BTreeMap<i32, i64> =
            (0..self.partitions).map(|partition| (partition, 0)).collect();
        loop {
            let config = ConsumerConfig {
                read_committed,
                offset_reset: OffsetReset::None,
                fetch_wait_max: Duration::from_millis(100),
                retry_backoff: Duration::from_millis(100),
                metadata_max_age: Duration::from_secs(5),
                check_crcs: true,
                connection: self.options(name.to_owned()),
                ..ConsumerConfig::default()
            };
            let consumer = Consumer::new(self.cluster(name).await, config);
            if let Err(error) = self.read_from(name, topic, consumer, &mut positions, &mut take).await {
                tracing::info!(name, error, "Restarting a reader");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn read_from(
        &self,
        name: &str,
        topic: &str,
        mut consumer: Consumer,
        positions: &mut BTreeMap<i32, i64>,
        take: &mut impl FnMut(&Chunk, &mut DecompressBuffer, &mut i64) -> Result<(), ChunkError>,
    ) -> Result<(), String> {
        let from = positions.iter().map(|(&partition, &offset)| {
            (TopicPartition::new(topic, partition), StartAt::Offset(Offset(offset)))
        });
        consumer.assign(from.collect()).await.map_err(|error| error.to_string())?;
        let mut buffer = DecompressBuffer::default();
        loop {
            let chunk = match consumer.poll(Duration::from_secs(1)).await {
                Ok(PollEvent::Chunk(chunk)) => chunk,
                Ok(_) => continue,
                Err(error @ (ConsumerError::NoOffset(_) | ConsumerError::Truncated(_))) => {
                    self.history.violation(format!("{name}: {error}"));
                    return Err(error.to_string());
                }
                Err(error) => return Err(error.to_string()),
            };
            let next = positions.entry(chunk.at.partition).or_default();
            if let Err(error) = take(&chunk, &mut buffer, next) {
                self.history.violation(format!("{name} got an unreadable record: {error}"));
                return Err(error.to_string());
            }
        }
    }
}

/// Records the outcome of a batch.
fn ended(history: &History, producer: u32, delivery: &Delivery<'_>) {
    let partition = delivery.partition;
    let mut offset = match delivery.result {
        Ok(offset) => (offset != Offset::NONE).then_some(offset.0),
        // The producer was dropped with its process. The outcome of batches in flight is unknown.
        Err(DeliveryError::Closed(_)) => return,
        Err(error) => {
            let what = format!("partition {partition}: {} records were refused: {error}", delivery.records);
            return history.violation(what);
        }
    };
    for run in delivery.sent {
        let first = Name { producer, number: run.number };
        let acknowledged = AcknowledgedRun { first, records: u64::from(run.records), offset };
        history.with(|known| known.acknowledged.entry(partition).or_default().push(acknowledged));
        offset = offset.map(|offset| offset + i64::from(run.records));
    }
}
