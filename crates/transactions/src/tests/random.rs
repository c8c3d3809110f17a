//! Seeded histories: producers come and go, answers are lost, coordinators are replaced, partitions accept
//! markers late. The clients' answers are compared with the content of the partitions.

use super::harness::{Harness, ID};
use crate::answer::{Producer, TransactionAnswer};
use crate::error::TransactionError;
use crate::state::TransactionState;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_groups::TransactionOutcome;
use thalweg_shard::{RequestError, Ticket, WriteError};

const STEPS: usize = 400;

/// A client that follows its answers.
#[derive(Default)]
struct Client {
    producer: Option<Producer>,
    is_open: bool,
    /// The partitions that answers added to the client's transaction.
    added: BTreeSet<i32>,
}

struct History {
    seed: u64,
    h: Harness,
    rng: StdRng,
    clients: [Client; 2],
    /// The epochs of each producer whose transactions were reported as committed, with their partitions.
    committed: BTreeMap<(i64, i16), BTreeSet<i32>>,
}

impl History {
    fn new(seed: u64, level: i16) -> History {
        let rng = StdRng::seed_from_u64(seed);
        History {
            seed,
            h: Harness::at_level(level),
            rng,
            clients: Default::default(),
            committed: BTreeMap::new(),
        }
    }

    /// The answer to a request, unless its acknowledgement is late or missing.
    fn answer(&mut self, ticket: Ticket) -> Option<TransactionAnswer> {
        while !self.h.answers.contains_key(&ticket) && !self.h.held.is_empty() {
            match self.rng.random_range(0..8) {
                0 => self.h.lose(WriteError::TimedOut),
                1 => {
                    self.restart();
                    return None;
                }
                _ => drop(self.h.acknowledge()),
            }
        }
        self.h.answers.get(&ticket).cloned()
    }

    /// Replaces the coordinator by one with the whole log, or with only a part of the unacknowledged batches.
    fn restart(&mut self) {
        self.h.holds = false;
        if self.rng.random_bool(0.3) {
            return self.h.restart();
        }
        let kept = self.rng.random_range(0..=self.h.unacknowledged());
        self.h.fail_over(kept);
    }

    fn step(&mut self) {
        self.h.holds = self.rng.random_bool(0.3);
        self.h.keeps_markers = self.rng.random_bool(0.3);
        let client = self.rng.random_range(0..self.clients.len());
        match self.rng.random_range(0..12) {
            0 => self.init(client),
            1..5 => self.add(client),
            5..9 => self.end(client),
            9 => self.restart(),
            10 => {
                let ms = self.rng.random_range(0..40_000);
                self.h.holds = false;
                self.h.advance(ms);
            }
            _ => self.h.write_markers(),
        }
    }

    fn init(&mut self, client: usize) {
        let known = self.clients[client].producer;
        let expected = if self.rng.random_bool(0.5) { known } else { None };
        let ticket = self.h.send_init(ID, expected);
        self.clients[client] = Client { producer: known, ..Client::default() };
        if let Some(TransactionAnswer::Producer(Ok(producer))) = self.answer(ticket) {
            self.clients[client].producer = Some(producer);
        }
    }

    fn add(&mut self, client: usize) {
        let Some(producer) = self.clients[client].producer else { return };
        let partition = self.rng.random_range(0..3);
        let ticket = self.h.send_add(producer, &[("t", partition)]);
        if let Some(TransactionAnswer::Added(Ok(()))) = self.answer(ticket) {
            self.clients[client].is_open = true;
            self.clients[client].added.insert(partition);
        }
    }

    fn end(&mut self, client: usize) {
        let Some(producer) = self.clients[client].producer.filter(|_| self.clients[client].is_open) else {
            return;
        };
        let outcome =
            if self.rng.random_bool(0.7) { TransactionOutcome::Commit } else { TransactionOutcome::Abort };
        // A client without an answer, or with a retriable one, retries.
        for _ in 0..20 {
            let ticket = self.h.send_end(producer, outcome);
            match self.answer(ticket) {
                Some(TransactionAnswer::Producer(Ok(next))) => {
                    let added = std::mem::take(&mut self.clients[client].added);
                    if outcome == TransactionOutcome::Commit {
                        self.committed.insert((producer.id, producer.epoch), added);
                    }
                    self.clients[client].is_open = false;
                    if next != Producer::NONE {
                        self.clients[client].producer = Some(next);
                    }
                    return;
                }
                Some(TransactionAnswer::Producer(Err(
                    TransactionError::Busy
                    | TransactionError::Request(RequestError::Write(WriteError::TimedOut)),
                )))
                | None => {
                    if self.rng.random_bool(0.5) {
                        self.h.write_markers();
                    }
                }
                Some(TransactionAnswer::Producer(Err(TransactionError::InvalidState)))
                    if self.h.metadata().producer_epoch == producer.epoch =>
                {
                    panic!("seed {}: the transaction of {producer:?} is not there", self.seed);
                }
                _ => {
                    self.clients[client] = Client::default();
                    return;
                }
            }
        }
        // The client gives up, and a new one replaces it.
        self.clients[client] = Client::default();
    }

    fn finish(mut self, seed: u64) {
        self.h.holds = false;
        self.h.keeps_markers = false;
        self.h.restart();
        self.h.write_markers();
        self.h.advance(200_000);
        let state = self.h.shard.metadata(ID).map(|metadata| metadata.state);
        assert!(
            state.is_none_or(TransactionState::is_idle),
            "seed {seed}: {state:?}: every transaction ends, by its client or by time"
        );
        if self.h.level == 2 {
            self.check_markers(seed);
        }
        let reloaded = self.h.reloaded(99);
        let live = self.h.shard.metadata(ID).map(|metadata| (metadata.producer_id, metadata.producer_epoch));
        let loaded = reloaded.metadata(ID).map(|metadata| (metadata.producer_id, metadata.producer_epoch));
        assert_eq!(live, loaded, "seed {seed}: the log tells what is in memory");
    }

    /// With an epoch per transaction, markers identify their transaction: its only outcome is the one
    /// reported to the client.
    fn check_markers(&self, seed: u64) {
        let mut outcomes = BTreeMap::new();
        let mut ended: BTreeMap<_, BTreeSet<i32>> = BTreeMap::new();
        for marker in &self.h.markers {
            let key = (marker.producer_id, marker.producer_epoch);
            let partitions = marker.partitions.iter().map(|(_, partition)| partition.0);
            ended.entry(key).or_default().extend(partitions);
            let earlier = outcomes.insert(key, marker.outcome);
            assert!(
                earlier.is_none_or(|earlier| earlier == marker.outcome),
                "seed {seed}: {key:?} has two outcomes"
            );
        }
        for ((id, epoch), added) in &self.committed {
            let ended = ended.get(&(*id, epoch + 1));
            assert!(
                ended.is_some_and(|ended| ended.is_superset(added)),
                "seed {seed}: {id} in epoch {epoch}: {added:?} were told to be added, {ended:?} have a marker"
            );
            let outcome = outcomes.get(&(*id, epoch + 1));
            assert_eq!(
                outcome,
                Some(&TransactionOutcome::Commit),
                "seed {seed}: {id} in epoch {epoch} was told to be committed"
            );
        }
    }
}

#[test]
fn answers_to_a_client_agree_with_its_partitions() {
    for seed in 0..300 {
        let mut history = History::new(seed, if seed % 3 == 0 { 0 } else { 2 });
        for _ in 0..STEPS {
            history.step();
        }
        history.finish(seed);
    }
}
