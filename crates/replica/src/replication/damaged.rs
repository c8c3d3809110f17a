//! Replicas that are known to be damaged leave the in-sync replicas, then fetch the damaged range again. A leader hands
//! over that way. From the first step on they are not fetched, until their logs are cut (`leaving`).
//!
//! The controller learns of it as of a missing log (`directories`): by a directory that is not online. It elects another leader,
//! and the replica cannot be elected until the broker reports its directory, which it does when the image shows the other
//! ([`crate::partition::DamageStep`] has the conditions).

use super::Replication;
use super::answer::backoff;
use super::directories::{Places, give_up};
use super::leaving::Leaving;
use crate::isr_changes::PartitionKey;
use crate::partition::{DamageStep, Partition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::Damage;
use thalweg_metadata::DIRECTORY_LOST;
use tokio::time::Instant;

/// How often damaged replicas are looked at, unless a read finds damage.
const CHECK: Duration = Duration::from_secs(5);
/// The shortest time between two looks.
const REST: Duration = Duration::from_millis(500);
/// The longest time between two attempts to leave: a controller that keeps counting the replica (KIP-966) takes it back into
/// the ISR each time.
const ATTEMPT_MAX: Duration = Duration::from_secs(600);
/// Attempts without this pause are too close: the image must show the effect of the one before.
const ATTEMPT_MIN_FAILURES: u32 = 8;

/// What was done about each damaged replica.
#[derive(Debug, Default)]
struct Watched {
    /// How often each replica has tried to leave, and when it may again.
    attempts: BTreeMap<PartitionKey, (u32, Instant)>,
    /// Replicas of which it was logged that nothing can be done now.
    said: BTreeSet<PartitionKey>,
}

/// Runs as long as the broker.
pub async fn run(replication: Arc<Replication>) {
    let mut watched = Watched::default();
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

async fn check(replication: &Replication, watched: &mut Watched) {
    let damaged: Vec<Arc<Partition>> =
        replication.partitions.all().into_iter().filter(|partition| partition.is_damaged()).collect();
    let keys: BTreeSet<PartitionKey> = damaged.iter().map(|found| (found.topic_id, found.index)).collect();
    watched.said.retain(|key| keys.contains(key));
    replication.leaving.retain(&keys);
    // Attempts are kept while their replica is whole again for a while: a disk may damage it again and again.
    let now = Instant::now();
    watched.attempts.retain(|key, (_, until)| keys.contains(key) || *until > now);
    let mut leaving = Places::new();
    for partition in damaged {
        let key = (partition.topic_id, partition.index);
        let Some((damage, step)) = partition.damage_step(&replication.image.get()) else { continue };
        match step {
            DamageStep::FetchAgain if may_cut(replication, &partition, damage) => {
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
            DamageStep::OnlyReplica if watched.said.insert(key) => {
                tracing::error!(
                    ?partition,
                    ?damage,
                    "Records of a partition with one replica are damaged or missing, and cannot be fetched again: restore them, \
                     or delete the records up to the end of the damage"
                );
            }
            DamageStep::OnlyInSync if watched.said.insert(key) => {
                tracing::error!(
                    ?partition,
                    ?damage,
                    "Records are damaged, and no other replica is in sync: this one keeps leading until another is"
                );
            }
            DamageStep::OnlyReplica | DamageStep::OnlyInSync => {}
        }
    }
    if !leaving.is_empty()
        && let Err(reason) = give_up(replication, leaving.clone(), Instant::now()).await
    {
        tracing::warn!(reason, "Failed to take damaged replicas out of the in-sync replicas, retrying");
        // Others wait for them meanwhile.
        leaving.keys().for_each(|key| replication.leaving.end(key));
    }
}

/// Whether a log may be cut: no leader takes the replica into the ISR for what it had before. Where records are missing from
/// the end nothing is cut. A controller that knows no directories cannot be told.
fn may_cut(replication: &Replication, partition: &Partition, damage: Damage) -> bool {
    let leaving = replication.leaving.get(&(partition.topic_id, partition.index));
    matches!(damage, Damage::Missing(_))
        || leaving.is_some_and(|leaving| leaving.is_quiet && leaving.is_shown)
        || !replication.tracks_directories()
}

impl Watched {
    /// Whether a replica is reported as lost now. Before, its fetcher has to leave it out.
    fn leaves(
        &mut self,
        replication: &Replication,
        partition: &Partition,
        damage: Damage,
        now: Instant,
    ) -> bool {
        let key = (partition.topic_id, partition.index);
        let leads = partition.leader().0 == replication.broker.node_id;
        match replication.leaving.get(&key) {
            // The controller has taken it back already: it must not stay behind.
            Some(Leaving { is_shown: true, is_quiet: true })
                if replication.known_directory(partition).is_some_and(|known| known != DIRECTORY_LOST) =>
            {
                replication.leaving.end(&key);
                return false;
            }
            Some(leaving) if !leaving.is_quiet && !leads => return false,
            Some(_) => {}
            None if self.is_too_early(key, now) => return false,
            None => {
                replication.leaving.begin(key);
                if !leads {
                    return false;
                }
            }
        }
        if self.is_too_early(key, now) {
            return false;
        }
        self.note_attempt(key, now);
        tracing::error!(
            ?partition,
            ?damage,
            "Records are damaged, and others have them: the replica leaves the in-sync replicas to fetch them again"
        );
        true
    }

    /// Whether the last attempt of a replica to leave was made just now.
    fn is_too_early(&self, key: PartitionKey, now: Instant) -> bool {
        self.attempts.get(&key).is_some_and(|(_, until)| *until > now)
    }

    fn note_attempt(&mut self, key: PartitionKey, now: Instant) {
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
        let mut watched = Watched::default();
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
}
