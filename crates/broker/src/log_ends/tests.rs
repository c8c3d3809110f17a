//! Every combination of fates of three replicas, checked against two rules: no replica with a possibly better
//! log is passed over before its wait is over, and every wait ends.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use thalweg_controller::UndecidedPartition;
use thalweg_metadata::BrokerId;
use tokio::time::Instant;

use super::choice::{Answer, Failure, LogEnd, choose, is_known};
use super::testing;
use super::waits::Waits;

const NEVER: u64 = u64::MAX;
/// Seconds: the wait for absent replicas, for starting ones, and for answers.
const PATIENCE: u64 = 60;
const STARTING: u64 = 20;
const ANSWERS: u64 = 30;
/// A time after all events, and after all waits in sequence.
const LAST: u64 = 85 + PATIENCE + 2 * (STARTING + ANSWERS);
/// Interval of requests to replicas, in seconds.
const STEP: usize = 5;

/// The fate of a replica, in seconds.
#[derive(Clone, Debug)]
struct ReplicaFate {
    /// The seconds at which the broker is alive, and up.
    alive: u64,
    up: u64,
    /// The seconds without answers.
    silent: Range<u64>,
    is_comparable: bool,
}

fn fates() -> Vec<ReplicaFate> {
    let fate = |alive, up, silent| ReplicaFate { alive, up, silent, is_comparable: true };
    vec![
        fate(0, 0, 0..0),
        fate(0, 0, 0..NEVER),
        // One request is lost, when the patience ends.
        fate(0, 0, PATIENCE..PATIENCE + 5),
        fate(0, 5, 5..10),
        fate(0, NEVER, 0..0),
        fate(NEVER, NEVER, 0..0),
        fate(40, 45, 0..0),
        // The replica starts while only answers are missing.
        fate(55, 70, 70..80),
        fate(80, 85, 85..NEVER),
        ReplicaFate { is_comparable: false, ..fate(0, 0, 0..0) },
        ReplicaFate { is_comparable: false, ..fate(40, 45, 0..0) },
    ]
}

/// Three replicas, the best of them last in `order`.
#[derive(Debug)]
struct Case<'a> {
    fates: [&'a ReplicaFate; 3],
    /// Complete replicas, the last leader first.
    remembered: &'a [usize],
    /// True if eligible leader replicas identify the last leader; otherwise any complete replica may lead.
    has_elr: bool,
    order: [usize; 3],
}

impl Case<'_> {
    fn is_up(&self, replica: usize, second: u64) -> bool {
        self.fates[replica].up <= second
    }

    fn starts(&self, replica: usize, second: u64) -> bool {
        let is_alive = self.fates[replica].alive <= second;
        is_alive && !self.is_up(replica, second) && !self.remembered.contains(&replica)
    }

    fn end(&self, replica: usize) -> LogEnd {
        let rank = self.order.iter().position(|one| *one == replica).expect("listed");
        LogEnd { epoch: 5, offset: 100 + i64::try_from(rank).expect("small") }
    }

    fn answers(&self, replica: usize, second: u64) -> bool {
        self.is_up(replica, second) && !self.fates[replica].silent.contains(&second)
    }

    fn answer(&self, replica: usize, second: u64) -> Answer {
        match (self.answers(replica, second), self.fates[replica].is_comparable) {
            (false, _) => Err(Failure::transient("no answer")),
            (true, false) => Err(Failure::epoch_of_registration()),
            (true, true) => Ok(self.end(replica)),
        }
    }

    fn last_leader(&self, second: u64) -> Option<usize> {
        let known = if self.has_elr { &self.remembered[..1] } else { self.remembered };
        known.iter().copied().find(|id| self.is_up(*id, second))
    }

    fn undecided(&self, second: u64) -> UndecidedPartition {
        let of = |wanted: &dyn Fn(usize) -> bool| -> Vec<BrokerId> {
            (0..3).filter(|id| wanted(*id)).map(broker).collect()
        };
        UndecidedPartition {
            candidates: of(&|id| self.is_up(id, second)),
            awaited: of(&|id| !self.is_up(id, second) && self.remembered.contains(&id)),
            starting: of(&|id| self.starts(id, second)),
            last_leader: self.last_leader(second).map(broker),
            ..testing::undecided(&[], &[], None)
        }
    }

    /// The second at which the partition is undecided and one of its replicas is up.
    fn began(&self) -> u64 {
        self.fates.iter().map(|fate| fate.up).min().expect("three")
    }

    fn awaits(&self, second: u64) -> bool {
        second < self.began() + PATIENCE && self.remembered.iter().any(|id| !self.is_up(*id, second))
    }

    /// True while a starting replica may be waited for.
    fn may_start(&self, replica: usize, second: u64) -> bool {
        self.starts(replica, second)
            && second < self.fates[replica].alive.max(self.began()).saturating_add(STARTING)
    }

    /// True while the answer of an available replica may be waited for. The wait begins when only answers are
    /// missing.
    fn may_answer(&self, replica: usize, second: u64) -> bool {
        let only_answers = |second: &u64| {
            self.last_leader(*second).is_some()
                && !self.awaits(*second)
                && !(0..3).any(|id| self.may_start(id, *second))
        };
        let queried_since = (self.fates[replica].up..=second).find(only_answers);
        !self.answers(replica, second) && queried_since.is_none_or(|since| second < since + ANSWERS)
    }

    /// The elected replica, and the second of the election.
    fn run(&self) -> Option<(usize, u64)> {
        let (mut waits, began) = (Waits::new(Duration::from_secs(PATIENCE)), Instant::now());
        for second in (0..=LAST).step_by(STEP) {
            let now = began + Duration::from_secs(second);
            for (one, waiting) in waits.select(vec![self.undecided(second)], now, 10) {
                let answers: BTreeMap<BrokerId, Answer> =
                    one.candidates.iter().map(|id| (*id, self.answer(replica(*id), second))).collect();
                if one.last_leader.and_then(|last| answers.get(&last)).is_some_and(is_known) {
                    waits.note_last(&one);
                }
                if let Some(leader) = choose(&one, &answers, &waiting) {
                    return Some((replica(leader), second));
                }
            }
        }
        None
    }

    /// The broken rule.
    fn fault(&self) -> Option<String> {
        let Some((leader, second)) = self.run() else {
            let may_lead = self.last_leader(LAST).is_some();
            return may_lead.then(|| "the wait does not end".to_owned());
        };
        let is_last = Some(leader) == self.last_leader(second);
        if is_last && self.answers(leader, second) && !self.fates[leader].is_comparable {
            // No other log can be proven better.
            return None;
        }
        let passed_over = |other: usize| {
            let is_better = self.fates[other].is_comparable && self.end(other) > self.end(leader);
            let is_awaited = self.remembered.contains(&other) && !self.is_up(other, second);
            let has_time = (is_awaited && self.awaits(second))
                || self.may_start(other, second)
                || (self.is_up(other, second) && self.may_answer(other, second));
            // A replica with an unknown log leads as the last leader.
            let is_compared = self.answers(other, second) && self.answers(leader, second);
            is_better && (has_time || is_compared)
        };
        let found = (0..3).filter(|id| *id != leader).find(|id| passed_over(*id));
        let fault = found.map(|other| format!("{other} is passed over by {leader} after {second} s"));
        fault.or_else(|| {
            let is_early = self.may_answer(leader, second);
            is_early.then(|| format!("{leader} is not queried again after {second} s"))
        })
    }
}

fn broker(replica: usize) -> BrokerId {
    BrokerId(i32::try_from(replica).expect("small"))
}

fn replica(broker: BrokerId) -> usize {
    usize::try_from(broker.0).expect("not negative")
}

#[test]
fn nobody_that_may_hold_more_is_passed_over_and_every_wait_ends() {
    let fates = fates();
    let (mut count, mut faults) = (0, Vec::new());
    for first in &fates {
        for second in &fates {
            for third in &fates {
                for remembered in [&[0][..], &[0, 1], &[0, 1, 2]] {
                    for (has_elr, order) in
                        [(true, [0, 1, 2]), (true, [0, 2, 1]), (true, [2, 1, 0]), (false, [0, 1, 2])]
                    {
                        let case = Case { fates: [first, second, third], remembered, has_elr, order };
                        count += 1;
                        faults.extend(case.fault().map(|fault| format!("{fault}: {case:?}")));
                    }
                }
            }
        }
    }
    let some = faults.iter().step_by(1 + faults.len() / 12).cloned().collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} of {count} combinations:\n{some}", faults.len());
}
