//! Replicas that are known to be damaged leave the in-sync replicas, then fetch the damaged range again. A leader hands
//! over that way.
//!
//! The controller learns of it as of a missing log (`directories`): by a directory that is not online. It elects another leader,
//! and the replica cannot be elected until the broker reports its directory, which it does when the image shows the other
//! ([`crate::partition::DamageStep`] has the conditions).

use super::Replication;
use super::answer::backoff;
use super::directories::{Places, give_up};
use crate::isr_changes::PartitionKey;
use crate::partition::{DamageStep, Partition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
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
    // Attempts are kept while their replica is whole again for a while: a disk may damage it again and again.
    let now = Instant::now();
    watched.attempts.retain(|key, (_, until)| keys.contains(key) || *until > now);
    let mut leaving = Places::new();
    for partition in damaged {
        let key = (partition.topic_id, partition.index);
        let Some((damage, step)) = partition.damage_step(&replication.image.get()) else { continue };
        match step {
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
            DamageStep::FetchAgain => {
                let disk = replication.log_dirs.disk().clone();
                if disk.spawn(move || partition.fetch_damage_again()).await.is_err() {
                    tracing::error!("Truncating a damaged log panicked");
                }
            }
            DamageStep::Leave if watched.may_try(key, now) => {
                tracing::error!(
                    ?partition,
                    ?damage,
                    "Records are damaged, and others have them: the replica leaves the in-sync replicas to fetch them again"
                );
                leaving.insert(key, DIRECTORY_LOST);
            }
            DamageStep::Leave => {}
        }
    }
    if !leaving.is_empty()
        && let Err(reason) = give_up(replication, leaving, Instant::now()).await
    {
        tracing::warn!(reason, "Failed to take damaged replicas out of the in-sync replicas, retrying");
    }
}

impl Watched {
    /// Whether a replica may try to leave now; notes that it does.
    fn may_try(&mut self, key: PartitionKey, now: Instant) -> bool {
        let (attempts, until) = self.attempts.entry(key).or_insert((0, now));
        if *until > now {
            return false;
        }
        *until = now + backoff(ATTEMPT_MIN_FAILURES + *attempts, ATTEMPT_MAX);
        *attempts = attempts.saturating_add(1);
        true
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
            assert!(watched.may_try(key, now));
            assert!(!watched.may_try(key, now), "the one before has just been made");
            let until = watched.attempts[&key].1;
            pauses.push(until - now);
            now = until;
        }
        assert!(pauses[0] >= Duration::from_secs(2), "{pauses:?}");
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&ATTEMPT_MAX));
    }
}
