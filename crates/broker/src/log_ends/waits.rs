//! How long an election waits for replicas: for those that are not up and were complete, up to
//! `unclean.leader.election.interval.ms`; for the answers of those that are up, half a minute at most. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_controller::Undecided;
use tokio::time::Instant;

use super::choice::Over;
use super::leaderless::say_waiting;
use super::{Key, key};

/// How long replicas that are starting are waited for, if they were not complete.
const STARTING_MAX: Duration = Duration::from_secs(20);
/// How long replicas that are up are asked again if they do not answer. One that is gone is fenced within
/// `broker.session.timeout.ms`, and no longer up; one that can talk to the controller and not be asked may stay so.
const ANSWERS_MAX: Duration = Duration::from_secs(30);

/// The waits of all undecided partitions.
pub(super) struct Waits {
    patience: Duration,
    waits: BTreeMap<Key, Wait>,
}

struct Wait {
    since: Instant,
    /// Since when all replicas that are waited for have been up.
    complete_since: Option<Instant>,
    /// Whether it was logged that others are waited for.
    is_said: bool,
    /// Whether the last leader has answered.
    last_is_known: bool,
}

impl Waits {
    pub fn new(patience: Duration) -> Waits {
        Waits { patience, waits: BTreeMap::new() }
    }

    /// Every partition has a leader.
    pub fn clear(&mut self) {
        self.waits.clear();
    }

    /// The last leader has answered.
    pub fn note_last(&mut self, one: &Undecided) {
        if let Some(wait) = self.waits.get_mut(&key(one)) {
            wait.last_is_known = true;
        }
    }

    /// The partitions whose replicas are asked now, `max` at most, and the waits that have ended. They are those whose
    /// candidates are all there; then those whose last leader has not answered yet: if its log cannot be compared, it leads at once.
    pub fn select(&mut self, undecided: Vec<Undecided>, now: Instant, max: usize) -> Vec<(Undecided, Over)> {
        let keys: BTreeSet<Key> = undecided.iter().map(key).collect();
        self.waits.retain(|key, _| keys.contains(key));
        let (mut ready, mut early, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for one in undecided.into_iter().filter(|one| !one.candidates.is_empty()) {
            let new = Wait { since: now, complete_since: None, is_said: false, last_is_known: false };
            let wait = self.waits.entry(key(&one)).or_insert(new);
            let waited = now.saturating_duration_since(wait.since);
            let are_there = one.awaited.is_empty() && (one.starting.is_empty() || waited >= STARTING_MAX);
            wait.complete_since = are_there.then(|| wait.complete_since.unwrap_or(now));
            let asked_for = wait.complete_since.map(|since| now.saturating_duration_since(since));
            let over = Over {
                absent: waited >= self.patience,
                silent: asked_for.is_some_and(|asked_for| asked_for >= ANSWERS_MAX.min(self.patience)),
            };
            if !are_there && !over.absent && !std::mem::replace(&mut wait.is_said, true) {
                waiting.push(one.clone());
            }
            if are_there || (over.absent && one.last_leader.is_some()) {
                ready.push((one, over));
            } else if one.last_leader.is_some() && !wait.last_is_known && waited < ANSWERS_MAX {
                early.push((one, over));
            }
        }
        say_waiting(&waiting, self.patience);
        ready.extend(early);
        ready.truncate(max);
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_ends::testing;
    use thalweg_metadata::BrokerId;

    const PATIENCE: Duration = Duration::from_secs(300);

    fn undecided(awaited: &[i32], starting: &[i32], last_leader: Option<i32>) -> Undecided {
        Undecided { starting: BrokerId::list(starting), ..testing::undecided(&[1, 2], awaited, last_leader) }
    }

    /// The waits that have ended after each of these seconds; none if the replicas are not asked.
    fn select(
        waits: &mut Waits,
        one: &Undecided,
        began: Instant,
        seconds: &[u64],
    ) -> Vec<Option<(bool, bool)>> {
        let after = |seconds: &u64| {
            let now = began + Duration::from_secs(*seconds);
            let selected = waits.select(vec![one.clone()], now, 10);
            selected.first().map(|(_, over)| (over.absent, over.silent))
        };
        seconds.iter().map(after).collect()
    }

    #[test]
    fn answers_are_waited_for_half_a_minute_from_when_all_are_up() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let (open, over) = (Some((false, false)), Some((false, true)));
        let one = undecided(&[3], &[], None);
        assert_eq!(select(&mut waits, &one, began, &[0, 100]), [None, None], "the last leader is not up");
        let one = undecided(&[], &[], Some(1));
        assert_eq!(select(&mut waits, &one, began, &[110, 139, 140]), [open, open, over]);
        let mut waits = Waits::new(Duration::from_secs(5));
        assert_eq!(
            select(&mut waits, &one, began, &[0, 4, 5]),
            [open, open, Some((true, true))],
            "less is configured"
        );
    }

    #[test]
    fn absent_replicas_are_waited_for_as_configured() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let one = undecided(&[3], &[], Some(1));
        waits.select(vec![one.clone()], began, 10);
        waits.note_last(&one);
        assert_eq!(select(&mut waits, &one, began, &[1, 299, 300]), [None, None, Some((true, false))]);
        let one = undecided(&[3], &[], None);
        assert_eq!(select(&mut waits, &one, began, &[301]), [None], "nobody could lead");
    }

    #[test]
    fn last_leader_is_asked_early_until_it_answers() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let open = Some((false, false));
        let one = undecided(&[3], &[], Some(1));
        assert_eq!(select(&mut waits, &one, began, &[0, 29, 30]), [open, open, None]);
        let mut waits = Waits::new(PATIENCE);
        assert_eq!(select(&mut waits, &one, began, &[0]), [open]);
        waits.note_last(&one);
        assert_eq!(select(&mut waits, &one, began, &[1]), [None]);
    }

    #[test]
    fn starting_replicas_have_twenty_seconds() {
        let (mut waits, began) = (Waits::new(PATIENCE), Instant::now());
        let one = undecided(&[], &[2], None);
        assert_eq!(select(&mut waits, &one, began, &[0, 19, 20]), [None, None, Some((false, false))]);
    }
}
