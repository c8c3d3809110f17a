//! The rules one by one, and a small cluster with lost answers, late images and restarts.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use thalweg_metadata::LeaderRecoveryState;

const LAG: Duration = Duration::from_secs(30);
const LEADER: BrokerId = BrokerId(1);
const SECOND: BrokerId = BrokerId(2);
const THIRD: BrokerId = BrokerId(3);

fn registration(replicas: &[i32], isr: &[i32], partition_epoch: i32) -> PartitionRegistration {
    PartitionRegistration {
        replicas: BrokerId::list(replicas),
        directories: Vec::new(),
        isr: BrokerId::list(isr),
        removing_replicas: Vec::new(),
        adding_replicas: Vec::new(),
        eligible_leader_replicas: Vec::new(),
        last_known_elr: Vec::new(),
        leader: LEADER,
        leader_recovery_state: LeaderRecoveryState::Recovered,
        leader_epoch: 5,
        partition_epoch: PartitionEpoch(partition_epoch),
    }
}

fn leading(isr: &[i32], log_end: i64, now: Instant) -> Followers {
    Followers::new(LEADER, &registration(&[1, 2, 3], isr, 0), Offset(log_end), LAG, now)
}

fn anybody(_: IsrMember) -> bool {
    true
}

fn made(change: &IsrChange) -> ChangeOutcome {
    ChangeOutcome::Made {
        leader_epoch: change.leader_epoch,
        partition_epoch: PartitionEpoch(change.partition_epoch.0 + 1),
        isr: change.isr.iter().map(|member| member.id).collect(),
    }
}

#[test]
fn the_high_watermark_is_what_all_in_sync_replicas_have() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2, 3], 10, now);
    let watermark = |leader: &Followers| leader.high_watermark(Offset(20), 1, now, anybody);
    assert_eq!(watermark(&leader), None, "nobody has said yet what it has");
    leader.on_fetch(SECOND, 7, Offset(20), Offset(20), now);
    assert_eq!(watermark(&leader), None);
    leader.on_fetch(THIRD, 7, Offset(15), Offset(20), now);
    assert_eq!(watermark(&leader), Some(Offset(15)));
}

#[test]
fn late_fetch_of_an_earlier_process_of_a_broker_is_no_news() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2], 10, now);
    let watermark = |leader: &Followers| leader.high_watermark(Offset(20), 1, now, anybody);
    leader.on_fetch(SECOND, 8, Offset(12), Offset(20), now);
    leader.on_fetch(SECOND, 7, Offset(20), Offset(20), now);
    assert_eq!(watermark(&leader), Some(Offset(12)));
    leader.on_fetch(SECOND, -1, Offset(15), Offset(20), now);
    assert_eq!(watermark(&leader), Some(Offset(15)), "by a version that does not tell");
}

#[test]
fn nothing_is_replicated_while_too_few_are_in_sync() {
    let now = Instant::now();
    let leader = leading(&[1], 10, now);
    assert_eq!(leader.high_watermark(Offset(20), 1, now, anybody), Some(Offset(20)));
    assert_eq!(leader.high_watermark(Offset(20), 2, now, anybody), None);
}

#[test]
fn a_replica_that_has_caught_up_is_waited_for_if_it_may_join() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2], 10, now);
    leader.on_fetch(SECOND, 7, Offset(20), Offset(20), now);
    leader.on_fetch(THIRD, 7, Offset(20), Offset(20), now);
    // The leader continues, and so does 2; 3 was caught up a moment ago.
    leader.on_fetch(SECOND, 7, Offset(30), Offset(30), now);
    assert_eq!(leader.high_watermark(Offset(30), 1, now, anybody), Some(Offset(20)));
    assert_eq!(leader.high_watermark(Offset(30), 1, now, |m| m.id != THIRD), Some(Offset(30)));
    let later = now + LAG + Duration::from_millis(1);
    assert_eq!(leader.high_watermark(Offset(30), 1, later, anybody), Some(Offset(30)));
}

#[test]
fn follower_that_fetches_the_same_records_again_and_again_is_stuck() {
    let mut leader = leading(&[1, 2, 3], 10, Instant::now());
    let mut sent = |id, offset| leader.on_records_sent(id, Offset(offset), 100);
    let reported: Vec<u32> = (1..=20).filter(|_| sent(SECOND, 5)).collect();
    assert_eq!(reported, [4, 8, 16], "not at each fetch");
    assert!((0..3).all(|_| !sent(SECOND, 6)), "it has gone on");
    assert!((0..3).all(|_| !sent(THIRD, 6) && !sent(BrokerId(4), 6)), "each is counted alone");
    assert!((0..3).all(|_| !sent(SECOND, 5)), "it was cut, and begins again");
    assert!(sent(THIRD, 6));
    let stuck = StuckFollower { id: THIRD, offset: Offset(6), sent_bytes: 100, is_new: true };
    assert_eq!((leader.take_stuck(), leader.take_stuck()), (Some(stuck), None));
}

#[test]
fn a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2], 10, now);
    leader.on_fetch(THIRD, 7, Offset(9), Offset(12), now);
    assert_eq!(leader.expand(THIRD, Offset(5), anybody), None, "it has not reached the leader's epoch");
    leader.on_fetch(THIRD, 7, Offset(10), Offset(12), now);
    assert_eq!(leader.expand(THIRD, Offset(11), anybody), None, "it has not reached the high watermark");
    assert_eq!(leader.expand(THIRD, Offset(10), |_| false), None, "its broker is fenced");
    let change = leader.expand(THIRD, Offset(10), anybody).expect("a change");
    let member = |id, broker_epoch| IsrMember { id, broker_epoch };
    assert_eq!(change.isr, [member(LEADER, -1), member(SECOND, -1), member(THIRD, 7)]);
    assert_eq!(leader.expand(THIRD, Offset(10), anybody), None, "one change at a time");
}

#[test]
fn one_who_is_about_to_join_counts_at_once() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2], 10, now);
    leader.on_fetch(SECOND, 7, Offset(12), Offset(12), now);
    leader.on_fetch(THIRD, 7, Offset(10), Offset(12), now);
    let change = leader.expand(THIRD, Offset(10), anybody).expect("a change");
    let later = now + LAG * 2;
    assert_eq!(leader.high_watermark(Offset(12), 1, later, anybody), Some(Offset(10)));
    assert_eq!(leader.maximal_isr_len(), 3);
    assert!(leader.on_outcome(&change, &made(&change)));
    assert_eq!((leader.isr(), leader.partition_epoch()), (&[LEADER, SECOND, THIRD][..], PartitionEpoch(1)));
}

#[test]
fn one_who_is_about_to_leave_counts_until_it_is_out() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2, 3], 10, now);
    leader.on_fetch(SECOND, 7, Offset(10), Offset(10), now);
    leader.on_fetch(THIRD, 7, Offset(10), Offset(10), now);
    let later = now + LAG + Duration::from_millis(1);
    assert_eq!(leader.shrink(Offset(10), later), None, "who has everything stays, however silent");
    leader.on_fetch(SECOND, 7, Offset(12), Offset(12), later);
    let change = leader.shrink(Offset(12), later).expect("3 lags");
    assert_eq!(change.isr.iter().map(|m| m.id).collect::<Vec<_>>(), [LEADER, SECOND]);
    assert_eq!(leader.high_watermark(Offset(12), 1, later, anybody), Some(Offset(10)));
    assert!(leader.on_outcome(&change, &made(&change)));
    assert_eq!(leader.high_watermark(Offset(12), 1, later, anybody), Some(Offset(12)));
}

#[test]
fn a_refused_change_is_as_if_it_had_not_been() {
    let now = Instant::now();
    let mut leader = leading(&[1], 0, now);
    leader.on_fetch(SECOND, 7, Offset(0), Offset(0), now);
    let change = leader.expand(SECOND, Offset(0), anybody).expect("a change");
    assert!(leader.on_outcome(&change, &ChangeOutcome::Refused));
    assert_eq!((leader.pending(), leader.maximal_isr_len()), (None, 1));
    assert!(leader.expand(SECOND, Offset(0), anybody).is_some(), "it may be tried again");
}

#[test]
fn an_outdated_change_stays_until_the_image_decides() {
    let now = Instant::now();
    let mut leader = leading(&[1], 0, now);
    leader.on_fetch(SECOND, 7, Offset(0), Offset(0), now);
    let change = leader.expand(SECOND, Offset(0), anybody).expect("a change");
    assert!(!leader.on_outcome(&change, &ChangeOutcome::Outdated));
    assert_eq!(leader.pending(), Some(&change));
    leader.on_registration(&registration(&[1, 2, 3], &[1, 3], 0), now);
    assert_eq!(leader.pending(), Some(&change), "the image is not newer");
    assert_eq!(leader.isr(), [LEADER]);
    leader.on_registration(&registration(&[1, 2, 3], &[1, 3], 1), now);
    assert_eq!((leader.pending(), leader.isr()), (None, &[LEADER, THIRD][..]));
    assert!(!leader.on_outcome(&change, &made(&change)), "an answer that comes later is no news");
}

#[test]
fn the_low_watermark_is_that_of_the_replicas_that_live() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2, 3], 10, now);
    leader.on_log_start(SECOND, Offset(4));
    assert_eq!(leader.low_watermark(Offset(7), |_| true), None, "3 has not told");
    assert_eq!(leader.low_watermark(Offset(7), |id| id == SECOND), Some(Offset(4)));
    leader.on_log_start(THIRD, Offset(2));
    assert_eq!(leader.low_watermark(Offset(7), |_| true), Some(Offset(2)));
    assert_eq!(leader.low_watermark(Offset(7), |_| false), Some(Offset(7)));
}

#[test]
fn consumers_are_sent_to_a_near_replica_that_has_what_they_want() {
    let now = Instant::now();
    let mut leader = leading(&[1, 2, 3], 10, now);
    for (id, end) in [(SECOND, 12), (THIRD, 15)] {
        leader.on_fetch(id, 7, Offset(end), Offset(20), now);
        leader.on_log_start(id, Offset(5));
    }
    let preferred =
        |offset, near: &[BrokerId]| leader.preferred_read_replica(Offset(offset), |id| near.contains(&id));
    assert_eq!(preferred(8, &[SECOND, THIRD]), Some(THIRD), "it has more");
    assert_eq!(preferred(8, &[SECOND]), Some(SECOND));
    assert_eq!(preferred(13, &[SECOND]), None, "it has not got that far");
    assert_eq!(preferred(4, &[SECOND, THIRD]), None, "they have that no more");
    let mut outside = leading(&[1, 3], 10, now);
    outside.on_fetch(SECOND, 7, Offset(20), Offset(20), now);
    outside.on_log_start(SECOND, Offset(0));
    assert_eq!(outside.preferred_read_replica(Offset(8), |_| true), None, "2 is not in sync");
}

#[test]
fn a_follower_that_keeps_up_with_a_busy_leader_stays() {
    let mut now = Instant::now();
    let mut leader = leading(&[1, 2], 0, now);
    // Never at the end, but always at the end of the previous fetch.
    for round in 0..100 {
        now += Duration::from_secs(1);
        leader.on_fetch(SECOND, 7, Offset(round * 10), Offset(round * 10 + 10), now);
        assert_eq!(leader.shrink(Offset(round * 10 + 10), now), None);
    }
}

/// A follower of the model: its stored records, and its broker epoch.
#[derive(Debug)]
struct Replica {
    stored: i64,
    epoch: i64,
}

/// A leader, two followers and a controller, each with its own view of the partition.
struct Model {
    random: SmallRng,
    now: Instant,
    leader: Followers,
    end: i64,
    high_watermark: i64,
    min_isr: usize,
    replicas: BTreeMap<BrokerId, Replica>,
    /// The controller's state: in-sync replicas, the registration's epoch, broker epochs.
    isr: Vec<BrokerId>,
    partition_epoch: i32,
    /// Registrations on their way to the leader, and brokers as the leader's image has them.
    images: Vec<(PartitionRegistration, BTreeMap<BrokerId, i64>)>,
    known_epochs: BTreeMap<BrokerId, i64>,
    /// Proposals on their way, and answers.
    proposed: Vec<IsrChange>,
    answers: Vec<(IsrChange, ChangeOutcome)>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = SmallRng::seed_from_u64(seed);
        let now = Instant::now();
        let replicas: BTreeMap<BrokerId, Replica> =
            [SECOND, THIRD].map(|id| (id, Replica { stored: 0, epoch: 1 })).into();
        let known_epochs = replicas.iter().map(|(id, replica)| (*id, replica.epoch)).collect();
        Model {
            min_isr: random.random_range(1..=3),
            random,
            now,
            leader: leading(&[1, 2, 3], 0, now),
            end: 0,
            high_watermark: 0,
            replicas,
            isr: vec![LEADER, SECOND, THIRD],
            partition_epoch: 0,
            images: Vec::new(),
            known_epochs,
            proposed: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.random.random_range(0..8_000));
        match self.random.random_range(0..12) {
            0..3 => self.end += self.random.random_range(1..10),
            3..7 => self.follower_fetches(),
            7 => {
                let change = self.leader.shrink(Offset(self.end), self.now);
                self.proposed.extend(change);
            }
            8 => self.controller_decides(),
            9 => self.answer_arrives(),
            10 => self.image_arrives(),
            _ => self.follower_restarts(),
        }
        self.raise();
        self.check();
    }

    fn follower_fetches(&mut self) {
        let id = BrokerId(self.random.random_range(2..=3));
        let replica = self.replicas.get_mut(&id).expect("a replica");
        let known = self.known_epochs.clone();
        if replica.epoch < known[&id] {
            return;
        }
        let offset = Offset(replica.stored);
        self.leader.on_fetch(id, replica.epoch, offset, Offset(self.end), self.now);
        let eligible = |member: IsrMember| known[&member.id] == member.broker_epoch;
        let change = self.leader.expand(id, Offset(self.high_watermark), eligible);
        self.proposed.extend(change);
        // A follower may get all, a part, or nothing of the answer.
        let replica = self.replicas.get_mut(&id).expect("a replica");
        replica.stored = self.random.random_range(replica.stored..=self.end);
    }

    fn controller_decides(&mut self) {
        if self.proposed.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.proposed.len());
        // A proposal may be decided twice: its answer was lost and it is retried.
        let change = if self.random.random_bool(0.7) {
            self.proposed.swap_remove(at)
        } else {
            self.proposed[at].clone()
        };
        let current = |m: &IsrMember| m.broker_epoch == -1 || self.replicas[&m.id].epoch == m.broker_epoch;
        let outcome = if change.partition_epoch.0 != self.partition_epoch {
            ChangeOutcome::Outdated
        } else if !change.isr.iter().filter(|member| member.id != LEADER).all(current) {
            ChangeOutcome::Refused
        } else {
            self.isr = change.isr.iter().map(|member| member.id).collect();
            self.commit();
            made(&change)
        };
        if self.random.random_bool(0.8) {
            self.answers.push((change, outcome));
        }
    }

    fn commit(&mut self) {
        self.partition_epoch += 1;
        let epochs = self.replicas.iter().map(|(id, replica)| (*id, replica.epoch)).collect();
        self.images
            .push((registration(&[1, 2, 3], &BrokerId::numbers(&self.isr), self.partition_epoch), epochs));
    }

    fn answer_arrives(&mut self) {
        if !self.answers.is_empty() {
            let (change, outcome) = self.answers.remove(0);
            self.leader.on_outcome(&change, &outcome);
        }
    }

    fn image_arrives(&mut self) {
        if !self.images.is_empty() {
            let (registration, epochs) = self.images.remove(0);
            self.leader.on_registration(&registration, self.now);
            self.known_epochs = epochs;
        }
    }

    /// A broker returns without the end of its log: the controller removes it from the ISR first.
    fn follower_restarts(&mut self) {
        let id = BrokerId(self.random.random_range(2..=3));
        let replica = self.replicas.get_mut(&id).expect("a replica");
        replica.epoch += 1;
        replica.stored = self.random.random_range(0..=replica.stored);
        self.isr.retain(|member| *member != id);
        self.commit();
    }

    fn raise(&mut self) {
        let known = &self.known_epochs;
        let eligible = |member: IsrMember| known[&member.id] == member.broker_epoch;
        let raised = self.leader.high_watermark(Offset(self.end), self.min_isr, self.now, eligible);
        if raised.is_some() {
            assert!(self.leader.isr().len() >= self.min_isr);
        }
        self.high_watermark = self.high_watermark.max(raised.map_or(-1, |offset| offset.0));
    }

    fn check(&self) {
        for id in self.isr.iter().filter(|id| **id != LEADER) {
            let stored = self.replicas[id].stored;
            assert!(stored >= self.high_watermark, "{id} has {stored} of {}", self.high_watermark);
        }
    }
}

#[test]
fn whoever_may_be_elected_has_everything_below_the_high_watermark() {
    let mut raised = 0;
    for seed in 0..400 {
        let mut model = Model::new(seed);
        for step in 0..400 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.step()));
            assert!(outcome.is_ok(), "seed {seed}, step {step}");
        }
        raised += i32::from(model.high_watermark > 0);
    }
    assert!(raised > 300, "the model rarely replicates anything: {raised}");
}
