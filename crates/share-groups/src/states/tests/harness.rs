//! A shard with a log in memory and a manual clock: acts as the driver, step by step.

use crate::states::config::ShareCoordinatorConfig;
use crate::states::request::{ShareStateAnswer, StateOutcomes, StateRequest};
use crate::states::shard::{ShareShard, ShareStatesView, SharedState};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use thalweg_hash::HashSet;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{DecompressBuffer, LeaderEpoch, Offset, batches, stamp_head};
use thalweg_shard::{HeldAnswers, Moment, Piece, Shard as _, Ticket, WriteError};
use thalweg_share::SharePartitionKey;
use thalweg_wire::Uuid;

/// Every topic has 8 partitions, except topic id 1, which does not exist, and deleted topics.
#[derive(Default)]
struct EightPartitions {
    deleted: Mutex<HashSet<Uuid>>,
}

impl ShareStatesView for EightPartitions {
    fn share_partition_count(&self) -> Option<i32> {
        Some(1)
    }

    fn has_partition(&self, topic: Uuid, partition: PartitionIndex) -> bool {
        topic != Uuid(1) && !self.deleted.lock().contains(&topic) && (0..8).contains(&partition.0)
    }
}

pub(super) fn key(group: &str, topic: u128, partition: i32) -> SharePartitionKey {
    SharePartitionKey { group: group.into(), topic: Uuid(topic), partition: PartitionIndex(partition) }
}

pub(super) struct Harness {
    pub(super) shard: ShareShard,
    shared: Arc<SharedState>,
    cluster: Arc<EightPartitions>,
    pub(super) now_ms: i64,
    /// The log: one encoded batch per write.
    pub(super) log: Vec<Bytes>,
    /// Places in the log of the batches that cannot be read any more.
    pub(super) lost: BTreeSet<usize>,
    next_offset: i64,
    /// True if appends wait for [`Harness::acknowledge`].
    pub(super) holds: bool,
    held: VecDeque<i64>,
    /// The next appends fail with this error.
    pub(super) refuses: Option<WriteError>,
    next_ticket: u64,
    /// Answers that wait for the log.
    waiting: HeldAnswers<ShareStateAnswer>,
    pub(super) answers: BTreeMap<Ticket, StateOutcomes>,
    /// The last answer to [`ShareShard::find_redundant`].
    pub(super) redundant_before: Option<i64>,
}

impl Harness {
    pub(super) fn new(updates_per_snapshot: usize) -> Harness {
        let config = ShareCoordinatorConfig { updates_per_snapshot, ..ShareCoordinatorConfig::default() };
        let cluster = Arc::new(EightPartitions::default());
        let shared = Arc::new(SharedState { config, cluster: cluster.clone() });
        let now_ms = 1_000_000;
        Harness {
            shard: ShareShard::new(&shared, 0, moment(now_ms)),
            shared,
            cluster,
            now_ms,
            log: Vec::new(),
            lost: BTreeSet::new(),
            next_offset: 0,
            holds: false,
            held: VecDeque::new(),
            refuses: None,
            next_ticket: 0,
            waiting: HeldAnswers::new(-1, -1),
            answers: BTreeMap::new(),
            redundant_before: None,
        }
    }

    /// A new coordinator, loaded from the log.
    pub(super) fn reloaded(&self) -> ShareShard {
        let mut shard = ShareShard::new(&self.shared, 0, moment(self.now_ms));
        let mut buffer = DecompressBuffer::default();
        for (place, batch) in self.log.iter().enumerate() {
            if self.lost.contains(&place) {
                shard.skip_lost();
                continue;
            }
            shard
                .replay(Piece::acknowledged(batch), &mut buffer, moment(self.now_ms))
                .expect("the log was written here");
        }
        shard.loaded(None, moment(self.now_ms));
        shard
    }

    /// Deletes a topic from the cluster.
    pub(super) fn delete_topic(&mut self, topic: Uuid) {
        self.cluster.deleted.lock().insert(topic);
    }

    /// One turn of the shard.
    pub(super) fn turn(&mut self, turn: impl FnOnce(&mut ShareShard, Ticket, Moment)) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        turn(&mut self.shard, ticket, moment(self.now_ms));
        self.finish_turn();
        ticket
    }

    fn finish_turn(&mut self) {
        let now = moment(self.now_ms);
        while let Some(write) = self.shard.next_write() {
            if let Some(error) = self.refuses {
                self.shard.refused(write, error, usize::MAX, now);
                continue;
            }
            let (batch, _) = ShareShard::batch(&self.shared, &write, now).expect("a small batch");
            let mut bytes = batch.to_vec();
            stamp_head(&mut bytes, Offset(self.next_offset), LeaderEpoch(0));
            let batch = Bytes::from(bytes);
            let header = batches(&batch).next().expect("one").expect("whole").header;
            let last_offset = self.next_offset + i64::from(header.last_offset_delta);
            self.next_offset = last_offset + 1;
            self.log.push(batch.clone());
            self.shard.written(write, last_offset, now);
            self.waiting.written(last_offset);
            if self.holds {
                self.held.push_back(last_offset);
            } else {
                self.shard.acknowledged(last_offset, now);
                self.waiting.acknowledged(last_offset);
            }
        }
        let expires_ms = self.now_ms + ShareShard::answer_timeout_ms(&self.shared);
        self.waiting.take_in(self.shard.answers(), expires_ms);
        for (ticket, answer) in self.waiting.drain() {
            match answer {
                ShareStateAnswer::Outcomes(outcomes) => drop(self.answers.insert(ticket, outcomes)),
                ShareStateAnswer::RedundantBefore(offset) => self.redundant_before = offset,
            }
        }
    }

    /// Acknowledges the oldest held batch, or fails it.
    pub(super) fn acknowledge(&mut self, result: Result<(), WriteError>) {
        let last_offset = self.held.pop_front().expect("a held batch");
        match result {
            Ok(()) => {
                self.shard.acknowledged(last_offset, moment(self.now_ms));
                self.waiting.acknowledged(last_offset);
            }
            Err(error) => {
                self.shard.unacknowledged(last_offset, error, moment(self.now_ms));
                self.waiting.unacknowledged(last_offset, error);
            }
        }
        self.finish_turn();
    }

    /// Sends requests without waiting.
    pub(super) fn begin(&mut self, requests: &[(SharePartitionKey, StateRequest)]) -> Ticket {
        let requests: Vec<&(SharePartitionKey, StateRequest)> = requests.iter().collect();
        self.turn(|shard, ticket, now| shard.serve(&requests, ticket, now))
    }

    /// Sends a request and returns its answer.
    pub(super) fn request(
        &mut self,
        key: &SharePartitionKey,
        request: StateRequest,
    ) -> <StateOutcomes as IntoIterator>::Item {
        let ticket = self.begin(&[(key.clone(), request)]);
        let mut answer = self.answers.remove(&ticket).expect("an answer at once");
        answer.pop().expect("one")
    }

    /// Advances the clock and does all due work.
    pub(super) fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        while self.shard.next_deadline_ms() <= self.now_ms && self.shard.expire_next(moment(self.now_ms)) {
            self.finish_turn();
        }
        self.waiting.expire(self.now_ms);
        self.finish_turn();
    }

    /// Keys and values of the log's records from this batch on.
    pub(super) fn records_from(&self, batch: usize) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut buffer = DecompressBuffer::default();
        let mut records = Vec::new();
        for bytes in &self.log[batch..] {
            for batch in batches(bytes) {
                for record in batch.expect("whole").records(&mut buffer).expect("readable") {
                    let record = record.expect("well-formed");
                    records.push((record.key.expect("a key").to_vec(), record.value.map(<[u8]>::to_vec)));
                }
            }
        }
        records
    }
}

pub(super) fn moment(ms: i64) -> Moment {
    Moment { wall_ms: ms, monotonic_ms: ms }
}
