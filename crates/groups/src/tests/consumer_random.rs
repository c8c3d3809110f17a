//! Seeded histories of consumer groups: members join, crash, leave, change their topics, answer late and
//! report their partitions; topics grow, are deleted and return. After each step a partition has one owner,
//! and a new coordinator loads an identical group from the log.

use super::consumer::{Consumer, GROUP, Partition, SESSION_MS};
use super::harness::{Harness, error};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::ConsumerGroupHeartbeatRequest;

const TOPICS: [(&str, u128); 3] = [("t", 7), ("u", 8), ("v", 9)];

struct Client {
    consumer: Consumer,
    /// The heartbeat that waits for its answer.
    waits: Option<Ticket>,
    is_alive: bool,
    heard_ms: i64,
    lives: usize,
}

struct History {
    h: Harness,
    rng: SmallRng,
    clients: Vec<Client>,
    seed: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut h = Harness::new();
        h.holds = true;
        h.topics.set("t", 7, rng.random_range(1..9));
        let clients = (0..rng.random_range(1..7))
            .map(|index| {
                let mut consumer = Consumer::new(&format!("m{index}-0"), &["t"]);
                consumer.instance_id = rng.random_bool(0.3).then(|| format!("i{index}"));
                consumer.assignor = rng.random_bool(0.3).then(|| "range".to_owned());
                Client { consumer, waits: None, is_alive: true, heard_ms: 0, lives: 0 }
            })
            .collect();
        History { h, rng, clients, seed }
    }

    fn step(&mut self, index: usize) {
        if !self.clients[index].is_alive {
            return;
        }
        match self.clients[index].waits {
            Some(ticket) => {
                let Some(response) = self.h.beat_answer(ticket) else { return };
                let now_ms = self.h.now_ms;
                let client = &mut self.clients[index];
                client.waits = None;
                match error(response.error_code) {
                    ErrorCode::None => {
                        client.heard_ms = now_ms;
                        client.consumer.take(&response);
                    }
                    ErrorCode::FencedMemberEpoch
                    | ErrorCode::UnknownMemberId
                    | ErrorCode::GroupIdNotFound => {
                        self.rejoin(index);
                    }
                    // The member's previous incarnation may not have expired yet.
                    ErrorCode::UnreleasedInstanceId | ErrorCode::CoordinatorNotAvailable => {
                        client.consumer.is_full = true;
                    }
                    ErrorCode::FencedInstanceId => self.rejoin(index),
                    other => panic!("seed {}: a heartbeat was answered by {other}", self.seed),
                }
            }
            None => {
                let request = self.clients[index].consumer.request();
                let ticket = self.h.send_beat(&request);
                self.clients[index].waits = Some(ticket);
            }
        }
    }

    /// Gives up all partitions of a member, which joins again.
    fn rejoin(&mut self, index: usize) {
        let consumer = &mut self.clients[index].consumer;
        (consumer.epoch, consumer.owned, consumer.assigned) = Default::default();
    }

    fn restart(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.lives += 1;
        client.consumer.id = format!("m{index}-{}", client.lives);
        (client.is_alive, client.waits) = (true, None);
        self.rejoin(index);
    }

    fn disturb(&mut self) {
        let index = self.rng.random_range(0..self.clients.len());
        match self.rng.random_range(0..100) {
            0..4 => {
                self.clients[index].is_alive = false;
                self.rejoin(index);
            }
            4..12 if !self.clients[index].is_alive => self.restart(index),
            12..16 => self.leave(index),
            16..22 => {
                let (name, id) = TOPICS[self.rng.random_range(0..3)];
                match self.rng.random_bool(0.2) {
                    true => self.h.topics.delete(name),
                    false => self.h.topics.set(name, id, self.rng.random_range(1..12)),
                }
                self.h.shard.topics_changed(&[name.to_owned()], true);
            }
            22..26 => {
                let names = TOPICS.iter().filter(|_| self.rng.random_bool(0.6));
                let topics: Vec<String> = names.map(|(name, _)| (*name).to_owned()).collect();
                let client = &mut self.clients[index];
                if client.is_alive && client.waits.is_none() && client.consumer.epoch > 0 {
                    client.consumer.topics.clone_from(&topics);
                    let names = Some(topics);
                    let request = client.consumer.request();
                    let request = ConsumerGroupHeartbeatRequest { subscribed_topic_names: names, ..request };
                    client.waits = Some(self.h.send_beat(&request));
                }
            }
            26..28 => self.h.refuses = Some(WriteError::TooFewReplicas),
            28..36 => self.h.refuses = None,
            36..38 => {
                self.h.restart();
                for client in &mut self.clients {
                    client.waits = None;
                    client.consumer.is_full = true;
                }
            }
            _ => self.h.advance(self.rng.random_range(0..1_500)),
        }
    }

    fn leave(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if !client.is_alive || client.consumer.epoch <= 0 || client.waits.is_some() {
            return;
        }
        let for_a_while = client.consumer.instance_id.is_some() && self.rng.random_bool(0.7);
        let member_epoch = if for_a_while { -2 } else { -1 };
        let request = ConsumerGroupHeartbeatRequest { member_epoch, ..client.consumer.request() };
        client.is_alive = false;
        self.rejoin(index);
        self.h.send_beat(&request);
    }

    /// A client that could not send heartbeats for too long stops consuming, like Kafka's.
    fn silence(&mut self) {
        for index in 0..self.clients.len() {
            if self.h.now_ms - self.clients[index].heard_ms >= SESSION_MS {
                self.rejoin(index);
            }
        }
    }

    fn check(&self) {
        let mut owners: BTreeMap<Partition, &str> = BTreeMap::new();
        for client in self.clients.iter().filter(|client| client.is_alive) {
            for partition in &client.consumer.owned {
                let other = owners.insert(*partition, &client.consumer.id);
                assert_eq!(other, None, "seed {}: {partition:?} is also {}'s", self.seed, client.consumer.id);
            }
        }
        let (live, loaded) =
            (self.h.shard.consumer_picture(GROUP), self.h.reloaded().consumer_picture(GROUP));
        assert_eq!(live, loaded, "seed {}", self.seed);
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.disturb();
            self.silence();
            for index in 0..self.clients.len() {
                self.step(index);
            }
            while self.h.acknowledge() {
                if self.rng.random_bool(0.3) {
                    break;
                }
            }
            while self.h.held.len() > 3 {
                self.h.acknowledge();
            }
            self.check();
        }
    }

    fn settle(&mut self) {
        self.h.holds = false;
        self.h.refuses = None;
        while self.h.acknowledge() {}
        for (name, id) in TOPICS {
            self.h.topics.set(name, id, 5);
            self.h.shard.topics_changed(&[name.to_owned()], true);
        }
        for _ in 0..2 * SESSION_MS / 1_000 {
            for index in 0..self.clients.len() {
                if !self.clients[index].is_alive {
                    self.restart(index);
                }
                self.step(index);
                self.step(index);
            }
            self.h.advance(1_000);
        }
    }
}

#[test]
fn consumers_settle_and_no_two_ever_have_a_partition() {
    for seed in 0..80 {
        let mut history = History::new(seed);
        history.run(150);
        history.settle();
        history.check();
        let group = history.h.described();
        assert_eq!(group.group_state, "Stable", "seed {seed}: {group:#?}");
        assert_eq!(group.members.len(), history.clients.len(), "seed {seed}");
        let mut wanted: Vec<Partition> = Vec::new();
        for (name, id) in TOPICS {
            let is_wanted = |client: &Client| client.consumer.topics.iter().any(|topic| topic == name);
            if history.clients.iter().any(is_wanted) {
                wanted.extend((0..5).map(|partition| (id, partition)));
            }
        }
        let owned = history.clients.iter().flat_map(|client| client.consumer.owned.iter().copied());
        let mut owned: Vec<Partition> = owned.collect();
        owned.sort_unstable();
        assert_eq!(owned, wanted, "seed {seed}: every partition has an owner");
        history.h.advance(2 * SESSION_MS);
        assert_eq!(history.h.shard.deadline_count(), 0, "seed {seed}");
    }
}
