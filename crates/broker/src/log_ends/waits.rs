//! The waits of an election: for complete replicas that are not up, up to
//! `unclean.leader.election.interval.ms`; for each other starting replica, and for each missing answer, at
//! most half a minute. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_controller::UndecidedPartition;
use thalweg_metadata::BrokerId;
use tokio::time::Instant;

use super::choice::ElectionWait;
use super::leaderless::log_waiting;
use super::{Key, key};

/// Maximum wait for a starting replica that was not complete.
const STARTING_MAX: Duration = Duration::from_secs(20);
/// Maximum wait for the answer of an available replica. A stopped broker is fenced within
/// `broker.session.timeout.ms`. A broker that reaches the controller but cannot be reached itself may stay
/// silent.
const ANSWERS_MAX: Duration = Duration::from_secs(30);

/// The waits of all undecided partitions.
pub(super) struct Waits {
    patience: Duration,
    waits: BTreeMap<Key, Wait>,
}

struct Wait {
    since: Instant,
    /// Time of each replica's first start. The wait is granted once, so that a broker in a restart loop does
    /// not block the election forever.
    starting: BTreeMap<BrokerId, Instant>,
    /// Time of the first request to each replica while only answers are missing.
    queried: BTreeMap<BrokerId, Instant>,
    /// Time of the last requests.
    last_round: Option<Instant>,
    /// True if the wait for other replicas was logged.
    is_logged: bool,
    /// True if the last leader has answered.
    last_is_known: bool,
}

impl Wait {
    fn new(now: Instant) -> Wait {
        Wait {
            since: now,
            starting: BTreeMap::new(),
            queried: BTreeMap::new(),
            last_round: None,
            is_logged: false,
            last_is_known: false,
        }
    }

    /// The replicas that the partition still waits for.
    fn look(&mut self, one: &UndecidedPartition, now: Instant, patience: Duration) -> ElectionWait {
        let has_time =
            |since: Instant, max: Duration| now.saturating_duration_since(since) < max.min(patience);
        let mut is_starting = false;
        for id in &one.starting {
            is_starting |= has_time(*self.starting.entry(*id).or_insert(now), STARTING_MAX);
        }
        // If the last leader is unknown, the wait has no limit, because no replica could lead after it.
        let is_awaited =
            !one.awaited.is_empty() && (one.last_leader.is_none() || has_time(self.since, patience));
        if is_starting || is_awaited {
            // The wait for answers starts again afterwards, with the full time.
            self.queried.clear();
            return ElectionWait::ForReplicas;
        }
        let may_answer =
            |id: &BrokerId| self.queried.get(id).is_none_or(|since| has_time(*since, ANSWERS_MAX));
        ElectionWait::ForAnswers(one.candidates.iter().copied().filter(may_answer).collect())
    }
}

impl Waits {
    pub fn new(patience: Duration) -> Waits {
        Waits { patience, waits: BTreeMap::new() }
    }

    /// Drops all waits, if every partition has a leader.
    pub fn clear(&mut self) {
        self.waits.clear();
    }

    /// Notes the answer of the last leader.
    pub fn note_last(&mut self, one: &UndecidedPartition) {
        if let Some(wait) = self.waits.get_mut(&key(one)) {
            wait.last_is_known = true;
        }
    }

    /// At most `max` partitions whose replicas are queried now, each with its wait. Partitions that only wait
    /// for answers come first, then partitions whose last leader has not answered yet: a last leader with an
    /// incomparable log leads immediately. Within both, the least recently queried partitions come first, so
    /// that a partition waiting for a broker does not delay the next ones.
    pub fn select(
        &mut self,
        undecided: Vec<UndecidedPartition>,
        now: Instant,
        max: usize,
    ) -> Vec<(UndecidedPartition, ElectionWait)> {
        let keys: BTreeSet<Key> = undecided.iter().map(key).collect();
        self.waits.retain(|key, _| keys.contains(key));
        let (mut queried, mut unlogged) = (Vec::new(), Vec::new());
        for one in undecided.into_iter().filter(|one| !one.candidates.is_empty()) {
            let wait = self.waits.entry(key(&one)).or_insert_with(|| Wait::new(now));
            let waiting = wait.look(&one, now, self.patience);
            let is_early = waiting == ElectionWait::ForReplicas;
            if is_early && !std::mem::replace(&mut wait.is_logged, true) {
                unlogged.push(one.clone());
            }
            let is_queried_early = one.last_leader.is_some()
                && !wait.last_is_known
                && now.saturating_duration_since(wait.since) < ANSWERS_MAX;
            if !is_early || is_queried_early {
                queried.push(((is_early, wait.last_round), one, waiting));
            }
        }
        log_waiting(&unlogged, self.patience);
        queried.sort_by_key(|(turn, ..)| *turn);
        queried.truncate(max);
        for (_, one, waiting) in &queried {
            let Some(wait) = self.waits.get_mut(&key(one)) else { continue };
            wait.last_round = Some(now);
            if *waiting != ElectionWait::ForReplicas {
                for id in &one.candidates {
                    wait.queried.entry(*id).or_insert(now);
                }
            }
        }
        queried.into_iter().map(|(_, one, waiting)| (one, waiting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_ends::choice::{Answer, choose};
    use crate::log_ends::testing;

    const PATIENCE: Duration = Duration::from_secs(300);

    fn undecided(awaited: &[i32], starting: &[i32], last_leader: Option<i32>) -> UndecidedPartition {
        UndecidedPartition {
            starting: BrokerId::list(starting),
            ..testing::undecided(&[1, 2], awaited, last_leader)
        }
    }

    /// The wait after each of these seconds; `None` if the replicas are not queried.
    fn select(
        waits: &mut Waits,
        one: &UndecidedPartition,
        began: Instant,
        seconds: &[u64],
    ) -> Vec<Option<ElectionWait>> {
        let after = |seconds: &u64| {
            let now = began + Duration::from_secs(*seconds);
            let selected = waits.select(vec![one.clone()], now, 10);
            selected.into_iter().next().map(|(_, waiting)| waiting)
        };
        seconds.iter().map(after).collect()
    }

    fn answers_of(ids: &[i32]) -> Option<ElectionWait> {
        Some(ElectionWait::ForAnswers(BrokerId::list(ids)))
    }

    /// The leader that is elected after so many seconds.
    fn elected(
        waits: &mut Waits,
        one: &UndecidedPartition,
        answers: &BTreeMap<BrokerId, Answer>,
        now: Instant,
    ) -> Option<BrokerId> {
        let selected = waits.select(vec![one.clone()], now, 10);
        selected.first().and_then(|(one, waiting)| choose(one, answers, waiting))
    }

    #[test]
    fn answers_are_waited_for_half_a_minute_from_when_all_are_up() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let (all, none) = (answers_of(&[1, 2]), answers_of(&[]));
        let one = undecided(&[3], &[], None);
        assert_eq!(select(&mut waits, &one, began, &[0, 100]), [None, None], "the last leader is not up");
        let one = undecided(&[], &[], Some(1));
        assert_eq!(
            select(&mut waits, &one, began, &[110, 139, 140]),
            [all.clone(), all.clone(), none.clone()]
        );
        let mut waits = Waits::new(Duration::from_secs(5));
        assert_eq!(
            select(&mut waits, &one, began, &[0, 4, 5]),
            [all.clone(), all, none],
            "less is configured"
        );
    }

    #[test]
    fn absent_replicas_are_waited_for_as_configured_and_silent_ones_after_that() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let (one, answers) = (undecided(&[3], &[], Some(1)), testing::ends(&[(1, 5, 10)]));
        let mut leader = |seconds| {
            let now = began + Duration::from_secs(seconds);
            waits.note_last(&one);
            elected(&mut waits, &one, &answers, now)
        };
        assert_eq!([0, 299].map(&mut leader), [None; 2]);
        assert_eq!([300, 329].map(&mut leader), [None; 2], "2 is up, and a single request may be lost");
        assert_eq!(leader(330), Some(BrokerId(1)));
        let one = undecided(&[3], &[], None);
        assert_eq!(select(&mut waits, &one, began, &[331]), [None], "nobody could lead");
    }

    #[test]
    fn last_leader_is_queried_early_until_it_answers() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let early = Some(ElectionWait::ForReplicas);
        let one = undecided(&[3], &[], Some(1));
        assert_eq!(select(&mut waits, &one, began, &[0, 29, 30]), [early.clone(), early.clone(), None]);
        let mut waits = Waits::new(PATIENCE);
        assert_eq!(select(&mut waits, &one, began, &[0]), [early]);
        waits.note_last(&one);
        assert_eq!(select(&mut waits, &one, began, &[1]), [None]);
    }

    #[test]
    fn each_replica_has_its_own_time() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let early = Some(ElectionWait::ForReplicas);
        let one = undecided(&[], &[3], Some(1));
        assert_eq!(select(&mut waits, &one, began, &[0, 5]), [early.clone(), early.clone()]);
        let both = undecided(&[], &[3, 4], Some(1));
        assert_eq!(
            select(&mut waits, &both, began, &[10, 29, 30]),
            [early.clone(), early, answers_of(&[1, 2])]
        );
        let up =
            UndecidedPartition { candidates: BrokerId::list(&[1, 2, 4]), ..undecided(&[], &[3], Some(1)) };
        assert_eq!(
            select(&mut waits, &up, began, &[50, 60, 79, 80]),
            [answers_of(&[1, 2, 4]), answers_of(&[4]), answers_of(&[4]), answers_of(&[])]
        );
    }

    #[test]
    fn replica_that_comes_and_goes_does_not_hold_the_election_up_for_ever() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let answers = testing::ends(&[(1, 5, 10)]);
        let away = UndecidedPartition { candidates: BrokerId::list(&[1]), ..undecided(&[2], &[], Some(1)) };
        let elected = (0..400).find(|second| {
            let one = if second % 10 < 5 { undecided(&[], &[], Some(1)) } else { away.clone() };
            elected(&mut waits, &one, &answers, began + Duration::from_secs(*second)).is_some()
        });
        assert_eq!(elected, Some(305));
    }

    /// All were killed together, and the third replica was the first to register again, so it is not
    /// remembered.
    #[test]
    fn starting_replica_is_waited_for_although_all_others_answer() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let (one, answers) = (undecided(&[], &[3], Some(1)), testing::ends(&[(1, 5, 100), (2, 5, 90)]));
        let mut leader = |seconds| elected(&mut waits, &one, &answers, began + Duration::from_secs(seconds));
        assert_eq!([0, 19].map(&mut leader), [None; 2], "3 may have more");
        assert_eq!(leader(20), Some(BrokerId(1)));
    }

    #[test]
    fn every_partition_is_queried_more_than_once_where_one_round_does_not_take_all() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let of = |name: &str| UndecidedPartition { topic: name.into(), ..undecided(&[], &[], Some(1)) };
        let (all, answers) = ([of("t"), of("u"), of("v")], testing::ends(&[(1, 5, 10)]));
        let mut queried: BTreeMap<Key, u64> = BTreeMap::new();
        let mut elected: BTreeSet<Key> = BTreeSet::new();
        for seconds in 0..100 {
            let still = all.iter().filter(|one| !elected.contains(&key(one))).cloned().collect();
            for (one, waiting) in waits.select(still, began + Duration::from_secs(seconds), 1) {
                let first = *queried.entry(key(&one)).or_insert(seconds);
                if choose(&one, &answers, &waiting).is_some() {
                    assert!(seconds >= first + 30, "{} at {seconds}, queried first at {first}", one.topic);
                    elected.insert(key(&one));
                }
            }
        }
        assert_eq!(elected.len(), 3);
    }
}
