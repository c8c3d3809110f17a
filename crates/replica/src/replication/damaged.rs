//! Damaged replicas leave the in-sync replicas, then fetch the damaged range again. A damaged leader hands
//! over this way. From the first step on, such a replica is not fetched until its log is cut (`leaving`).
//!
//! The controller learns of the damage as of a missing log (`directories`): through a directory that is not
//! online. The controller elects another leader, and cannot elect the replica until the broker reports the
//! real directory, once the image shows the other one ([`crate::partition::DamageStep`] has the conditions).

use super::Replication;
use super::answer::backoff;
use super::directories::{ReplicaDirectories, give_up};
use super::leaving::LeaveProgress;
use crate::partition::{DamageStep, Partition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::Damage;
use thalweg_metadata::{DIRECTORY_LOST, TopicIdPartition};
use tokio::time::Instant;

/// Interval of checks of damaged replicas, unless a read finds damage.
const CHECK: Duration = Duration::from_secs(5);
/// Minimum time between two checks.
const REST: Duration = Duration::from_millis(500);
/// Maximum time between two attempts to leave: a controller that keeps counting the replica (KIP-966) puts it
/// back into the ISR each time.
const ATTEMPT_MAX: Duration = Duration::from_secs(600);
/// Failures that set the minimum pause between attempts: the image must show the effect of the previous
/// attempt.
const ATTEMPT_MIN_FAILURES: u32 = 8;

/// Attempts of damaged replicas to leave, and warnings about them.
#[derive(Debug, Default)]
struct LeaveAttempts {
    /// Number of attempts of each replica, and the time of the next.
    attempts: BTreeMap<TopicIdPartition, (u32, Instant)>,
    /// Replicas for which a warning was logged that no step is possible now.
    logged: BTreeSet<TopicIdPartition>,
}

/// Runs as long as the broker.
pub async fn run(replication: Arc<Replication>) {
    let mut watched = LeaveAttempts::default();
    loop {
        tokio::select! {
            biased;
            () = replication.context.damage_found.notified() => {}
            () = tokio::time::sleep(CHECK) => {}
        }
        check(&replication, &mut watched).await;
        tokio::time::sleep(REST).await;
    }
}

async fn check(replication: &Replication, watched: &mut LeaveAttempts) {
    let damaged: Vec<Arc<Partition>> =
        replication.partitions.all().into_iter().filter(|partition| partition.is_damaged()).collect();
    let keys: BTreeSet<TopicIdPartition> =
        damaged.iter().map(|found| (found.topic_id, found.index)).collect();
    watched.logged.retain(|key| keys.contains(key));
    replication.leaving.retain(&keys);
    // Attempts are kept for a while after a replica is whole again: a disk may damage it repeatedly.
    let now = Instant::now();
    watched.attempts.retain(|key, (_, until)| keys.contains(key) || *until > now);
    let mut leaving = ReplicaDirectories::new();
    for partition in damaged {
        let key = (partition.topic_id, partition.index);
        let Some((damage, step)) = partition.damage_step(&replication.image.get()) else { continue };
        match step {
            DamageStep::FetchAgain
                // Controllers without directory support accept no such report.
                if !partition.cuts_to_fetch_again(damage)
                    || may_cut(replication.leaving.get(&key))
                    || !replication.tracks_directories() =>
            {
                let disk = replication.log_dirs.disk().clone();
                if disk.spawn(move || partition.fetch_damage_again()).await.is_err() {
                    tracing::error!("Truncating a damaged log panicked");
                }
                replication.leaving.end(&key);
            }
            DamageStep::Leave | DamageStep::FetchAgain => {
                if watched.leaves(replication, &partition, damage, now) {
                    leaving.insert(key, DIRECTORY_LOST);
                }
            }
            DamageStep::Wait => {}
            DamageStep::OnlyReplica if watched.logged.insert(key) => {
                tracing::error!(
                    ?partition,
                    ?damage,
                    "Records of a partition with one replica are damaged or missing, and cannot be fetched again: restore them \
                     from a copy of the log directory while the broker is stopped, or, if the topic is neither internal \
                     nor compacted only, delete the records up to the end of the damage"
                );
            }
            DamageStep::OnlyInSync if watched.logged.insert(key) => {
                tracing::error!(
                    ?partition,
                    ?damage,
                    "Records are damaged, and no other replica is in sync: this one keeps leading until another is. If none gets in sync \
                     because of the damage, bring back a broker that has the records, or, if the topic is neither internal nor compacted only, \
                     delete the records up to the end of the damage"
                );
            }
            DamageStep::OnlyReplica | DamageStep::OnlyInSync => {}
        }
    }
    if !leaving.is_empty()
        && let Err(reason) = give_up(replication, leaving.clone(), Instant::now()).await
    {
        tracing::warn!(reason, "Failed to take damaged replicas out of the in-sync replicas, retrying");
        // Other replicas wait for these meanwhile.
        leaving.keys().for_each(|key| replication.leaving.end(key));
    }
}

/// The next step of a replica that should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaveStep {
    /// The fetcher leaves the replica out.
    Begin,
    /// The replica is reported as lost.
    Report,
    /// The controller still counts the replica: it is fetched, and tries again later.
    GoOn,
    Wait,
}

fn next(
    leaving: Option<LeaveProgress>,
    leads: bool,
    is_known_as_lost: bool,
    is_too_early: bool,
) -> LeaveStep {
    match leaving {
        Some(LeaveProgress { is_quiet: true, is_shown: true }) if !is_known_as_lost => LeaveStep::GoOn,
        Some(leaving) if !leaving.is_quiet && !leads => LeaveStep::Wait,
        _ if is_too_early => LeaveStep::Wait,
        None if !leads => LeaveStep::Begin,
        _ => LeaveStep::Report,
    }
}

/// True if a log may be cut: the leader cannot add the replica to the ISR for records that it had before.
fn may_cut(leaving: Option<LeaveProgress>) -> bool {
    leaving == Some(LeaveProgress { is_quiet: true, is_shown: true })
}

impl LeaveAttempts {
    /// True if a replica should be reported as lost now.
    fn leaves(
        &mut self,
        replication: &Replication,
        partition: &Partition,
        damage: Damage,
        now: Instant,
    ) -> bool {
        let key = (partition.topic_id, partition.index);
        let leads = partition.leader().0 == replication.broker.node_id;
        let is_known_as_lost = replication.known_directory(partition) == Some(DIRECTORY_LOST);
        match next(replication.leaving.get(&key), leads, is_known_as_lost, self.is_too_early(key, now)) {
            LeaveStep::Wait => false,
            LeaveStep::Begin => {
                replication.leaving.begin(key);
                false
            }
            LeaveStep::GoOn => {
                replication.leaving.end(&key);
                false
            }
            LeaveStep::Report => {
                replication.leaving.begin(key);
                self.note_attempt(key, now);
                tracing::error!(
                    ?partition,
                    ?damage,
                    "Records are damaged, and others have them: the replica leaves the in-sync replicas to fetch them again"
                );
                true
            }
        }
    }

    /// True if the last attempt of a replica to leave is too recent.
    fn is_too_early(&self, key: TopicIdPartition, now: Instant) -> bool {
        self.attempts.get(&key).is_some_and(|(_, until)| *until > now)
    }

    fn note_attempt(&mut self, key: TopicIdPartition, now: Instant) {
        let (attempts, until) = self.attempts.entry(key).or_insert((0, now));
        *until = now + backoff(ATTEMPT_MIN_FAILURES + *attempts, ATTEMPT_MAX);
        *attempts = attempts.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::PartitionIndex;
    use thalweg_wire::Uuid;

    #[test]
    fn attempts_to_leave_become_rarer() {
        let (key, mut now) = ((Uuid(7), PartitionIndex(0)), Instant::now());
        let mut watched = LeaveAttempts::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert!(!watched.is_too_early(key, now));
            watched.note_attempt(key, now);
            assert!(watched.is_too_early(key, now), "the one before has just been made");
            let until = watched.attempts[&key].1;
            pauses.push(until - now);
            now = until;
        }
        assert!(pauses[0] >= Duration::from_secs(2), "{pauses:?}");
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&ATTEMPT_MAX));
    }

    #[test]
    fn replica_is_not_fetched_before_it_is_reported_and_cut() {
        let at = |is_quiet, is_shown| Some(LeaveProgress { is_quiet, is_shown });
        let follower = |leaving, is_lost, is_too_early| next(leaving, false, is_lost, is_too_early);
        assert_eq!(follower(None, false, false), LeaveStep::Begin);
        assert_eq!(follower(None, false, true), LeaveStep::Wait, "it has just tried");
        assert_eq!(follower(at(false, false), false, false), LeaveStep::Wait, "a fetch may be under way");
        assert_eq!(follower(at(true, false), false, false), LeaveStep::Report);
        assert_eq!(follower(at(true, false), false, true), LeaveStep::Wait, "the image does not show it yet");
        assert_eq!(follower(at(true, true), true, true), LeaveStep::Wait, "it is still eligible");
        assert_eq!(follower(at(true, true), false, true), LeaveStep::GoOn, "and remains so");
        for leaving in [None, at(false, false), at(true, false), at(false, true)] {
            assert!(!may_cut(leaving), "{leaving:?}");
        }
        assert!(may_cut(at(true, true)));
        assert_eq!(next(None, true, false, false), LeaveStep::Report, "a leader fetches nothing");
        assert_eq!(next(at(false, false), true, false, true), LeaveStep::Wait);
    }
}
