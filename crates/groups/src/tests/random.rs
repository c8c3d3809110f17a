//! Seeded histories: clients join, crash, return and commit against a shard whose log acknowledges late.
//! Invariants are checked after each step.

use super::harness::{Commit, Harness, Join, REBALANCE_MS, SESSION_MS, error};
use crate::answer::GroupAnswer;
use crate::record::CoordinatorRecord;
use crate::shard::GroupShard;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use thalweg_shard::{Ticket, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::offset_fetch_request::OffsetFetchRequestGroup;

/// The state of a client.
#[derive(Clone, Debug, PartialEq)]
enum ClientPhase {
    Nothing,
    Joining(Ticket),
    Syncing(Ticket),
    Working(String),
}

/// A consumer like those of librdkafka and Java, without the network.
#[derive(Debug)]
struct Client {
    name: String,
    instance_id: Option<String>,
    member_id: String,
    generation: i32,
    doing: ClientPhase,
    is_alive: bool,
    /// True if the client was ever silent long enough to expire.
    was_silent: bool,
}

struct History {
    h: Harness,
    rng: SmallRng,
    clients: Vec<Client>,
    /// (generation, member) to its assignment.
    assigned: BTreeMap<(i32, String), String>,
    seed: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = SmallRng::seed_from_u64(seed);
        let count = rng.random_range(1..8);
        let clients = (0..count)
            .map(|index| Client {
                name: format!("c{index}"),
                instance_id: rng.random_bool(0.3).then(|| format!("i{index}")),
                member_id: String::new(),
                generation: -1,
                doing: ClientPhase::Nothing,
                is_alive: true,
                was_silent: false,
            })
            .collect();
        let mut h = Harness::new();
        h.holds = true;
        History { h, rng, clients, assigned: BTreeMap::new(), seed }
    }

    /// Processes a client's answer, if there is one, and takes the client's next step.
    fn step(&mut self, index: usize) {
        let client = &self.clients[index];
        if !client.is_alive {
            return;
        }
        match client.doing.clone() {
            ClientPhase::Nothing => self.join(index),
            ClientPhase::Joining(ticket) => {
                let Some(answer) = self.h.join_answer(ticket) else { return };
                let client = &mut self.clients[index];
                client.doing = ClientPhase::Nothing;
                match error(answer.error_code) {
                    ErrorCode::None => {
                        client.generation = answer.generation_id;
                        client.member_id.clone_from(&answer.member_id);
                        self.sync(index, &answer);
                    }
                    ErrorCode::MemberIdRequired => client.member_id = answer.member_id,
                    ErrorCode::RebalanceInProgress | ErrorCode::CoordinatorNotAvailable => {}
                    ErrorCode::UnknownMemberId => self.forget(index),
                    other => panic!("seed {}: a join was answered by {other}", self.seed),
                }
            }
            ClientPhase::Syncing(ticket) => {
                let Some(answer) = self.h.sync_answer(ticket) else { return };
                self.clients[index].doing = ClientPhase::Nothing;
                match answer {
                    Ok(assignment) => {
                        self.check_assignment(index, &assignment);
                        self.clients[index].doing = ClientPhase::Working(assignment);
                    }
                    Err(ErrorCode::RebalanceInProgress | ErrorCode::CoordinatorNotAvailable) => {}
                    Err(ErrorCode::IllegalGeneration) => {}
                    Err(ErrorCode::UnknownMemberId) => self.forget(index),
                    Err(other) => panic!("seed {}: a sync was answered by {other}", self.seed),
                }
            }
            ClientPhase::Working(_) => self.work(index),
        }
    }

    fn join(&mut self, index: usize) {
        let client = &self.clients[index];
        let metadata: &[u8] = if self.rng.random_bool(0.05) { b"other" } else { b"same" };
        let join = Join {
            client: &client.name,
            member_id: &client.member_id,
            instance_id: client.instance_id.as_deref(),
            protocols: &[("range", metadata)],
            ..Join::default()
        };
        let ticket = self.h.send_join(join);
        self.clients[index].doing = ClientPhase::Joining(ticket);
    }

    fn sync(&mut self, index: usize, joined: &thalweg_wire::request::JoinGroupResponse) {
        let client = &self.clients[index];
        let share = format!("{}-", self.h.now_ms);
        let assignments: Vec<(String, String)> =
            joined.members.iter().map(|m| (m.member_id.clone(), format!("{share}{}", m.member_id))).collect();
        let assignments: Vec<(&str, &str)> =
            assignments.iter().map(|(id, share)| (id.as_str(), share.as_str())).collect();
        let assignments = if joined.skip_assignment { &[][..] } else { &assignments[..] };
        let id = client.member_id.clone();
        let ticket = self.h.send_sync(&id, joined.generation_id, assignments);
        self.clients[index].doing = ClientPhase::Syncing(ticket);
    }

    fn work(&mut self, index: usize) {
        let (id, generation) = (self.clients[index].member_id.clone(), self.clients[index].generation);
        let told = if self.rng.random_bool(0.3) {
            let commit = Commit { member_id: &id, generation, offset: self.h.now_ms, ..Commit::default() };
            let ticket = self.h.send_commit(commit);
            // A client sends commits without waiting for them.
            self.h.commit_answer(ticket)
        } else {
            self.beat(&id, generation)
        };
        match told {
            None | Some(ErrorCode::None | ErrorCode::CoordinatorNotAvailable) => {}
            Some(ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration) => {
                self.clients[index].doing = ClientPhase::Nothing;
            }
            Some(ErrorCode::UnknownMemberId) => self.forget(index),
            Some(other) => panic!("seed {}: a heartbeat was answered by {other}", self.seed),
        }
    }

    fn beat(&mut self, id: &str, generation: i32) -> Option<ErrorCode> {
        let request = thalweg_wire::request::HeartbeatRequest {
            group_id: super::harness::GROUP.to_owned(),
            generation_id: generation,
            member_id: id.to_owned(),
            group_instance_id: None,
        };
        let ticket = self.h.turn(|shard, ticket, now| shard.heartbeat(&request, ticket, now));
        match self.h.answer(ticket)? {
            GroupAnswer::Heartbeat(response) => Some(error(response.error_code)),
            other => panic!("{other:?}"),
        }
    }

    /// Forgets a client's membership. The coordinator never drops a client that was never silent.
    fn forget(&mut self, index: usize) {
        let client = &mut self.clients[index];
        assert!(
            client.was_silent,
            "seed {}: {} is unknown without having been silent",
            self.seed, client.name
        );
        client.member_id = String::new();
        client.doing = ClientPhase::Nothing;
        client.was_silent = false;
    }

    /// A client's assignment is in the acknowledged log, and the only one of its generation.
    fn check_assignment(&mut self, index: usize, assignment: &str) {
        let client = &self.clients[index];
        let key = (client.generation, client.member_id.clone());
        let earlier = self.assigned.entry(key).or_insert_with(|| assignment.to_owned());
        assert_eq!(earlier, assignment, "seed {}: one generation has one assignment", self.seed);
        let upto = usize::try_from(self.h.acknowledged + 1).expect("something is acknowledged");
        let is_written = self.h.records()[..upto].iter().any(|record| match record {
            CoordinatorRecord::GroupMetadata(_, Some(value)) => {
                value.generation == client.generation
                    && value.members.iter().any(|member| {
                        member.member_id == client.member_id && *member.assignment == *assignment.as_bytes()
                    })
            }
            _ => false,
        });
        assert!(is_written, "seed {}: told before it was written", self.seed);
    }

    /// A random fault, or a pause.
    fn disturb(&mut self) {
        let index = self.rng.random_range(0..self.clients.len());
        match self.rng.random_range(0..100) {
            // A client crashes. It restarts later with nothing but its name.
            0..6 => self.clients[index].is_alive = false,
            6..20 => {
                let client = &mut self.clients[index];
                if !client.is_alive {
                    client.is_alive = true;
                    client.member_id = String::new();
                    client.doing = ClientPhase::Nothing;
                    client.was_silent = false;
                }
            }
            // A client abandons a request and retries on another connection.
            20..24 => self.clients[index].doing = ClientPhase::Nothing,
            24..27 => self.leave(index),
            // All clients are silent for a while.
            27..29 => {
                self.clients.iter_mut().for_each(|client| client.was_silent = true);
                let ms = self.rng.random_range(0..2 * i64::from(REBALANCE_MS));
                self.h.advance(ms);
            }
            _ => self.h.advance(self.rng.random_range(0..300)),
        }
    }

    fn leave(&mut self, index: usize) {
        let client = &self.clients[index];
        if !client.is_alive || client.member_id.is_empty() || client.instance_id.is_some() {
            return;
        }
        let request = thalweg_wire::request::LeaveGroupRequest {
            group_id: super::harness::GROUP.to_owned(),
            members: vec![thalweg_wire::request::leave_group_request::MemberIdentity {
                member_id: client.member_id.clone(),
                ..Default::default()
            }],
            ..Default::default()
        };
        self.h.turn(|shard, ticket, now| shard.leave_group(&request, ticket, now));
        let client = &mut self.clients[index];
        client.member_id = String::new();
        client.doing = ClientPhase::Nothing;
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.rng.random_bool(0.5) {
                self.h.acknowledge();
            }
            // Writes are acknowledged within their timeout; another test covers writes that are not.
            while self.h.held.len() > 3 {
                self.h.acknowledge();
            }
            self.disturb();
            for index in 0..self.clients.len() {
                self.step(index);
            }
            while self.h.acknowledge() {
                if self.rng.random_bool(0.3) {
                    break;
                }
            }
        }
    }

    /// Restarts all clients and stops faults, until the group has had time to settle.
    fn settle(&mut self) {
        self.h.holds = false;
        while self.h.acknowledge() {}
        for client in &mut self.clients {
            if !client.is_alive {
                (client.is_alive, client.member_id, client.doing) =
                    (true, String::new(), ClientPhase::Nothing);
            }
        }
        for _ in 0..4 * (REBALANCE_MS + SESSION_MS) / 1_000 {
            for index in 0..self.clients.len() {
                self.step(index);
            }
            self.h.advance(1_000);
        }
    }
}

/// The observable state of a shard: groups, members, assignments, offsets.
fn picture(shard: &GroupShard) -> String {
    let mut text = String::new();
    for group in shard.list_groups(&[], &[]) {
        let all =
            OffsetFetchRequestGroup { group_id: group.group_id.clone(), topics: None, ..Default::default() };
        let described = shard.describe_group(&group.group_id, 6);
        text += &format!("{described:#?}\n{:#?}\n", shard.fetch_offsets(&all));
    }
    text
}

#[test]
fn groups_settle_whatever_happened_before() {
    for seed in 0..60 {
        let mut history = History::new(seed);
        history.run(150);
        history.settle();
        let generations: Vec<i32> = history.clients.iter().map(|client| client.generation).collect();
        let (shares, all): (Vec<_>, _) = history
            .clients
            .iter()
            .map(|client| match &client.doing {
                ClientPhase::Working(assignment) => (assignment.clone(), true),
                _ => (String::new(), false),
            })
            .unzip::<_, _, Vec<_>, Vec<bool>>();
        assert!(all.iter().all(|&works| works), "seed {seed}: {:#?}", history.clients);
        assert!(generations.windows(2).all(|two| two[0] == two[1]), "seed {seed}: {generations:?}");
        let mut distinct = shares.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), shares.len(), "seed {seed}: nobody shares an assignment");
        // A new coordinator loads an identical state from the log.
        assert_eq!(picture(&history.h.reloaded()), picture(&history.h.shard), "seed {seed}");
    }
}

#[test]
fn every_request_is_answered_once_even_if_all_members_disappear() {
    for seed in 1_000..1_060 {
        let mut history = History::new(seed);
        history.run(100);
        history.h.holds = false;
        while history.h.acknowledge() {}
        // Longer than any timeout; the longest one is the first rebalance of a new member.
        history.h.advance(60 * 60 * 1_000);
        for client in &history.clients {
            let ticket = match client.doing {
                ClientPhase::Joining(ticket) | ClientPhase::Syncing(ticket) => ticket,
                ClientPhase::Nothing | ClientPhase::Working(_) => continue,
            };
            assert!(history.h.answer(ticket).is_some(), "seed {seed}: {client:?} waits for ever");
        }
        let mut asked: Vec<Ticket> = history.h.answered.iter().map(|(ticket, _)| *ticket).collect();
        asked.sort();
        let before = asked.len();
        asked.dedup();
        assert_eq!(before, asked.len(), "seed {seed}: a request was answered twice");
    }
}

#[test]
fn nonsense_does_no_harm() {
    for seed in 2_000..2_060 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut h = Harness::new();
        h.holds = true;
        let mut tickets = Vec::new();
        let mut ids = vec![String::new(), "stranger".to_owned()];
        for _ in 0..300 {
            let id = ids[rng.random_range(0..ids.len())].clone();
            let generation = rng.random_range(-2..5);
            let instance_id = rng.random_bool(0.3).then_some("instance");
            match rng.random_range(0..8) {
                0..3 => {
                    let version = rng.random_range(0..10);
                    let protocols: &[(&str, &[u8])] =
                        if rng.random_bool(0.9) { &[("range", b"")] } else { &[] };
                    let join = Join { member_id: &id, instance_id, version, protocols, ..Join::default() };
                    tickets.push(h.send_join(join));
                }
                3 => tickets.push(h.send_sync(&id, generation, &[(&id, "x"), ("stranger", "y")])),
                4 => tickets.push(h.send_commit(Commit { member_id: &id, generation, ..Commit::default() })),
                5 => {
                    let ids = vec![super::harness::GROUP.to_owned()];
                    tickets.push(h.turn(|shard, ticket, _| shard.delete_groups(&ids, ticket)));
                }
                6 => drop(h.acknowledge()),
                _ => h.advance(rng.random_range(0..20_000)),
            }
            if rng.random_bool(0.02) {
                h.refuses = Some(WriteError::TooFewReplicas);
            } else if rng.random_bool(0.2) {
                h.refuses = None;
            }
            for (_, answer) in &h.answered {
                if let GroupAnswer::JoinGroup(response) = answer
                    && !response.member_id.is_empty()
                    && !ids.contains(&response.member_id)
                {
                    ids.push(response.member_id.clone());
                }
            }
        }
        h.refuses = None;
        h.holds = false;
        while h.acknowledge() {}
        h.advance(60 * 60 * 1_000);
        for ticket in tickets {
            assert!(h.answer(ticket).is_some(), "seed {seed}: {ticket:?} waits for ever");
        }
        assert_eq!(h.shard.deadline_count(), 0, "seed {seed}: nobody is left for whom to wait");
    }
}
