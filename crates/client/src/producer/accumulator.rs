//! State shared by the caller and the senders: the partitions with their queues, the memory, and the leaders.
//!
//! One lock guards this state. The caller takes the lock for each record, usually uncontended; a sender takes
//! it once to gather a request and twice for each answer. Batches are finished, written and reported outside
//! the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_record::BatchHeader;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ProducerConfig;
use super::batch::{Batch, ProducerRecord};
use super::delivery::{DeliveryError, timed_out};
use super::partition::{Identity, InTransaction, PartitionQueue, Readiness};
use super::transaction::{Transaction, TransactionError};
use crate::metadata::{Metadata, TopicMetadata};

/// Number of partitions compared to find the one with the shortest queue.
const STICKY_CANDIDATES: usize = 16;

/// A batch in flight, and its partition.
#[derive(Debug)]
pub(super) struct InFlightBatch {
    pub(super) partition: usize,
    pub(super) batch: Box<Batch>,
}

/// A topic of the producer.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// The topic's partitions, as indexes into the accumulator's list.
    pub(super) partitions: Vec<usize>,
}

/// A broker that leads partitions.
#[derive(Debug)]
pub(super) struct Broker {
    /// Notified when there may be something to send.
    pub(super) wake: Arc<Notify>,
    pub(super) address: String,
    partitions: Vec<usize>,
    /// The partition where the next request starts, so that a small `max.request.size` starves no partition.
    begin: usize,
}

/// The outcome of [`Accumulator::join`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JoinOutcome {
    /// The record is in the open batch.
    Yes,
    /// The record did not fit, and the batch is sealed.
    Sealed,
    /// No batch was open.
    NoneOpen,
}

#[derive(Debug)]
pub(super) struct Accumulator {
    pub(super) topics: Vec<Topic>,
    pub(super) partitions: Vec<PartitionQueue>,
    pub(super) brokers: BTreeMap<i32, Broker>,
    pub(super) identity: Option<Identity>,
    /// The transaction state of a transactional producer.
    pub(super) transaction: Option<Transaction>,
    /// Notified when partitions must be registered with the transaction coordinator.
    pub(super) registration: Arc<Notify>,
    /// Batches that wait or are in flight.
    pub(super) incomplete: usize,
    /// Notified when a first batch is opened.
    pub(super) begun: Arc<Notify>,
    /// True if all batches must be sent at once, regardless of `linger.ms`.
    pub(super) flushing: bool,
    /// True if the producer is closing.
    pub(super) closing: bool,
    /// The recent failure that keeps batches from being stored.
    pub(super) trouble: Option<String>,
    /// True if the caller waits for memory.
    starving: bool,
    used_bytes: usize,
    #[expect(
        clippy::vec_box,
        reason = "a batch keeps its box from queue to request and back, and is not copied"
    )]
    free: Vec<Box<Batch>>,
}

impl Accumulator {
    pub(super) fn new(transaction: Option<Transaction>) -> Accumulator {
        Accumulator {
            topics: Vec::new(),
            partitions: Vec::new(),
            brokers: BTreeMap::new(),
            identity: None,
            transaction,
            registration: Arc::default(),
            incomplete: 0,
            begun: Arc::default(),
            flushing: false,
            closing: false,
            trouble: None,
            starving: false,
            used_bytes: 0,
            free: Vec::new(),
        }
    }

    /// Puts a record into the open batch of a partition. If the record does not fit, the batch is sealed.
    #[inline]
    pub(super) fn join(
        &mut self,
        partition: usize,
        record: &ProducerRecord<'_>,
        config: &ProducerConfig,
    ) -> JoinOutcome {
        match self.partitions[partition].queue.back_mut() {
            Some(batch) if !batch.sealed => {
                if batch.has_room(record, config) {
                    batch.push(record);
                    return JoinOutcome::Yes;
                }
                batch.sealed = true;
                JoinOutcome::Sealed
            }
            _ => JoinOutcome::NoneOpen,
        }
    }

    /// Fails if no record may be added, because no open transaction can be committed. Batches are open only
    /// during such a transaction, so check this before opening a batch.
    pub(super) fn check_open(&self) -> Result<(), Arc<TransactionError>> {
        self.transaction.as_ref().map_or(Ok(()), |transaction| transaction.check_open("send"))
    }

    /// Puts a record into a new batch of a partition; false if there is no memory for a batch.
    #[cold]
    pub(super) fn open(
        &mut self,
        partition: usize,
        record: &ProducerRecord<'_>,
        config: &ProducerConfig,
    ) -> bool {
        // The record may carry an intended time long past.
        let now = Instant::now();
        let mut batch = match self.free.pop() {
            Some(mut batch) => {
                batch.reset(now);
                batch
            }
            None => Batch::new(config, now),
        };
        let charged = config.batch_bytes.max(BatchHeader::LEN + batch.record_bytes(record));
        // A record larger than the whole memory is admitted alone, rather than never.
        if self.used_bytes > 0 && self.used_bytes + charged > config.buffer_bytes {
            self.free.push(batch);
            self.starving = true;
            self.wake(partition);
            return false;
        }
        self.starving = false;
        self.used_bytes += charged;
        self.incomplete += 1;
        if self.incomplete == 1 {
            self.begun.notify_one();
        }
        batch.charged = charged;
        self.partitions[partition].open(batch).push(record);
        self.join_transaction(partition);
        self.wake(partition);
        true
    }

    fn join_transaction(&mut self, partition: usize) {
        let Some(transaction) = &mut self.transaction else { return };
        let queue = &mut self.partitions[partition];
        if queue.in_transaction != InTransaction::No {
            return;
        }
        queue.in_transaction = match transaction.joined(partition) {
            true => {
                self.registration.notify_one();
                InTransaction::Joining
            }
            false => InTransaction::Yes,
        };
    }

    /// Notes that the coordinator has registered these partitions.
    pub(super) fn registered(&mut self, partitions: &[usize]) {
        for &partition in partitions {
            self.partitions[partition].in_transaction = InTransaction::Yes;
            self.wake(partition);
        }
    }

    /// Closes all open batches to further records.
    pub(super) fn seal(&mut self) {
        for batch in self.partitions.iter_mut().filter_map(|queue| queue.queue.back_mut()) {
            batch.sealed = true;
        }
    }

    /// Notes the end of the transaction; the next one uses `identity`.
    pub(super) fn transaction_ended(&mut self, identity: Option<Identity>) {
        self.identity = identity.or(self.identity);
        for queue in &mut self.partitions {
            queue.in_transaction = InTransaction::No;
        }
    }

    /// True if a failed batch of the open transaction, if any, may be sent again.
    pub(super) fn may_retry(&self) -> bool {
        !self.closing && self.transaction.as_ref().is_none_or(Transaction::may_retry)
    }

    /// Records a failed batch: its transaction cannot be committed.
    pub(super) fn batch_failed(&mut self, batch: &Batch, error: &DeliveryError) {
        if let Some(transaction) = &mut self.transaction {
            transaction.batch_failed(error, batch.sequence.is_some());
        }
    }

    /// Takes the waiting batches if their transaction cannot be committed.
    pub(super) fn drop_waiting(&mut self) -> Vec<InFlightBatch> {
        if self.transaction.as_ref().is_none_or(|transaction| !transaction.drops_batches()) {
            return Vec::new();
        }
        let dropped = self.take_all();
        for taken in &dropped {
            self.partitions[taken.partition].gave_up(&taken.batch);
            if taken.batch.sequence.is_some()
                && let Some(transaction) = &mut self.transaction
            {
                transaction.lost_sequence();
            }
        }
        dropped
    }

    /// Notifies the sender of a partition's leader.
    pub(super) fn wake(&self, partition: usize) {
        let leader = self.partitions[partition].leader;
        if let Some(broker) = leader.and_then(|id| self.brokers.get(&id)) {
            broker.wake.notify_one();
        }
    }

    /// Notifies all senders.
    pub(super) fn wake_all(&self) {
        for broker in self.brokers.values() {
            broker.wake.notify_one();
        }
    }

    /// The partition for the next records without a key: of the next few partitions in rotation, the one with
    /// the shortest queue (the adaptive part of KIP-794). Partitions without a leader are skipped if there
    /// are others.
    pub(super) fn next_sticky(&self, topic: usize, after: usize) -> usize {
        let partitions = &self.topics[topic].partitions;
        let count = partitions.len();
        let candidates = (1..=count.min(STICKY_CANDIDATES)).map(|step| (after + step) % count);
        candidates
            .min_by_key(|&at| {
                let queue = &self.partitions[partitions[at]];
                (queue.leader.is_none(), queue.queue.len())
            })
            .unwrap_or(0)
    }

    /// Takes the batches for a broker: at most one of each of its partitions, up to `max.request.size`. If
    /// there are none, returns the earliest time when there may be.
    ///
    /// Only full and lingered batches are taken. Kafka's producer also sends other batches along, which makes
    /// requests smaller.
    pub(super) fn take(
        &mut self,
        broker: i32,
        config: &ProducerConfig,
        now: Instant,
    ) -> (Vec<InFlightBatch>, Option<Instant>) {
        let (mut taken, mut next) = (Vec::new(), None);
        let hurry = self.flushing || self.closing || self.starving;
        let Some(led) = self.brokers.get_mut(&broker) else { return (taken, next) };
        let mut bytes = 0;
        let count = led.partitions.len();
        for step in 0..count {
            let partition = led.partitions[(led.begin + step) % count];
            let queue = &mut self.partitions[partition];
            let in_transaction = queue.in_transaction == InTransaction::Yes;
            if self.transaction.as_ref().is_some_and(|open| !open.may_produce(in_transaction)) {
                continue;
            }
            match queue.readiness(config, self.identity, hurry, now) {
                Readiness::Nothing => {}
                Readiness::At(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                Readiness::Ready => {
                    let size = queue.queue.front().expect("a ready partition has a batch").size_estimate();
                    if !taken.is_empty() && bytes + size > config.request_bytes_max {
                        led.begin = (led.begin + step) % count;
                        break;
                    }
                    bytes += size;
                    let identity = self.identity.filter(|_| config.idempotence);
                    taken.push(InFlightBatch { partition, batch: queue.take(identity) });
                }
            }
        }
        taken.sort_unstable_by_key(|taken| taken.partition);
        (taken, next)
    }

    /// Takes expired batches, either unsent or returned.
    pub(super) fn take_expired(
        &mut self,
        config: &ProducerConfig,
        now: Instant,
    ) -> Vec<(InFlightBatch, DeliveryError)> {
        let mut expired = Vec::new();
        if self.incomplete == 0 {
            return expired;
        }
        for (partition, queue) in self.partitions.iter_mut().enumerate() {
            while let Some(batch) = queue.queue.front()
                && batch.created + config.delivery_timeout <= now
            {
                let batch = queue.queue.pop_front().expect("the condition has found it");
                queue.gave_up(&batch);
                let error = timed_out(config, queue, &batch, self.trouble.clone());
                if let Some(transaction) = &mut self.transaction {
                    transaction.batch_failed(&error, batch.sequence.is_some());
                }
                expired.push((InFlightBatch { partition, batch }, error));
            }
        }
        expired
    }

    /// Takes all waiting batches, and continues without them.
    pub(super) fn give_up_waiting(&mut self) -> Vec<InFlightBatch> {
        let waiting = self.take_all();
        for taken in &waiting {
            self.partitions[taken.partition].gave_up(&taken.batch);
        }
        waiting
    }

    /// Takes all waiting batches, because the producer stops.
    pub(super) fn take_all(&mut self) -> Vec<InFlightBatch> {
        let queues = self.partitions.iter_mut().enumerate();
        queues
            .flat_map(|(partition, queue)| {
                std::mem::take(&mut queue.queue)
                    .into_iter()
                    .map(move |batch| InFlightBatch { partition, batch })
            })
            .collect()
    }

    /// Replaces a batch in flight by its parts.
    pub(super) fn split(&mut self, whole: InFlightBatch, parts: [Box<Batch>; 2]) {
        self.incomplete += parts.len();
        self.used_bytes += parts.iter().map(|part| part.charged).sum::<usize>();
        self.partitions[whole.partition].split(&whole.batch, parts);
        self.release(whole.batch);
    }

    /// Releases the memory of a completed batch.
    pub(super) fn release(&mut self, batch: Box<Batch>) {
        self.used_bytes -= batch.charged;
        self.incomplete -= 1;
        // Only batches of the usual size are kept, so that a few huge records do not hold memory forever.
        if batch.size_estimate() <= batch.charged && self.free.len() < 4096 {
            self.free.push(batch);
        }
    }

    /// Applies the cluster's metadata: leaders, addresses, new partitions.
    pub(super) fn apply(&mut self, metadata: &Metadata) {
        for topic in 0..self.topics.len() {
            let name = Arc::clone(&self.topics[topic].name);
            if let Some(known) = metadata.topics.get(&*name) {
                self.apply_topic(topic, known);
            }
        }
        for (id, address) in &metadata.brokers {
            let address = address.address();
            let broker = self.brokers.entry(*id).or_insert_with(|| Broker {
                wake: Arc::default(),
                address: String::new(),
                partitions: Vec::new(),
                begin: 0,
            });
            broker.address = address;
        }
        for broker in self.brokers.values_mut() {
            broker.partitions.clear();
            broker.begin = 0;
        }
        for (index, queue) in self.partitions.iter().enumerate() {
            if let Some(broker) = queue.leader.and_then(|id| self.brokers.get_mut(&id)) {
                broker.partitions.push(index);
            }
        }
        self.wake_all();
    }

    fn apply_topic(&mut self, topic: usize, known: &TopicMetadata) {
        for partition in &known.partitions {
            let at = usize::try_from(partition.index).unwrap_or(usize::MAX);
            let list = &mut self.topics[topic].partitions;
            if at == list.len() {
                list.push(self.partitions.len());
                self.partitions.push(PartitionQueue::new(Arc::clone(&known.name), known.id, partition.index));
            }
            if let Some(&index) = list.get(at) {
                self.partitions[index].apply(known.id, partition);
            }
        }
    }

    /// True if a partition with batches has no known leader.
    pub(super) fn misses_leader(&self) -> bool {
        self.without_leader().is_some()
    }

    /// A partition with batches and without a known leader.
    pub(super) fn without_leader(&self) -> Option<String> {
        let queue = self.partitions.iter().find(|queue| queue.leader.is_none() && !queue.queue.is_empty());
        queue.map(|queue| format!("partition {}-{} has no leader", queue.topic, queue.partition))
    }
}
