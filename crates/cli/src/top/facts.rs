//! Facts for the verdicts that change rarely: the quorum, reassignments, throttles, hidden topics and
//! `min.insync.replicas`. Each comes from a broker that has just answered, so that a silent broker hides
//! none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::verdict::{Absence, Cause, QuorumEvidence, answer_of_controllers, hidden_topics};
use thalweg_client::{Connection, in_parallel};
use tokio::time::{Instant, timeout};

use crate::cluster;

/// Time between two readings of the facts.
const FACTS_EVERY: Duration = Duration::from_secs(10);

/// The facts, each with the reason for its absence.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub read_at: Instant,
    pub quorum: Result<QuorumEvidence, Absence>,
    /// Number of replicas that are added, by topic and partition in a reassignment.
    pub reassignments: Result<BTreeMap<(String, i32), usize>, Absence>,
    /// Brokers with a replication throttle.
    pub throttled: Result<Vec<i32>, Absence>,
    /// Number of topics that the login may not describe.
    pub hidden_topics: Result<usize, Absence>,
    /// Topics whose `min.insync.replicas` was requested; none if it is not visible.
    pub min_isr: BTreeMap<String, Option<usize>>,
}

/// The topics in log directories that are not in the list of topics.
pub(super) struct UnlistedTopics {
    pub names: Vec<String>,
    /// Why others may be missing.
    pub gap: Option<Absence>,
}

impl Facts {
    /// Facts before the first answer.
    pub(super) fn unknown(read_at: Instant) -> Facts {
        let silent = || Absence::silent("no broker answers at its own address");
        Facts {
            read_at,
            quorum: Err(silent()),
            reassignments: Err(silent()),
            throttled: Err(silent()),
            hidden_topics: Err(silent()),
            min_isr: BTreeMap::new(),
        }
    }

    /// True if the facts are old, or no broker has answered for them.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_silent = |absence: Option<&Absence>| absence.is_some_and(|one| one.cause == Cause::Silent);
        now.saturating_duration_since(self.read_at) >= FACTS_EVERY || is_silent(self.quorum.as_ref().err())
    }

    /// Replicas of a partition that a reassignment adds.
    pub(super) fn adding(&self, topic: &Arc<str>, partition: i32) -> usize {
        let Ok(reassignments) = &self.reassignments else { return 0 };
        if reassignments.is_empty() {
            return 0;
        }
        reassignments.get(&(topic.to_string(), partition)).copied().unwrap_or_default()
    }

    /// `min.insync.replicas` of a topic, if requested and visible.
    pub(super) fn min_isr(&self, topic: &Arc<str>) -> Option<usize> {
        self.min_isr.get(&**topic).copied().flatten()
    }

    /// Reads the facts. `brokers` are those that answer.
    pub(super) async fn read(
        brokers: &BTreeMap<i32, Connection>,
        unlisted: UnlistedTopics,
        limit: Duration,
    ) -> Facts {
        let began = Instant::now();
        let Some(any) = brokers.values().next() else { return Facts::unknown(began) };
        let hidden = async {
            let ask = |request| async move { any.send(&request).await };
            match timeout(limit, hidden_topics(unlisted.names, unlisted.gap, ask)).await {
                Ok(hidden) => hidden,
                Err(_) => Err(Absence::silent(format!("no answer within {} ms", limit.as_millis()))),
            }
        };
        let (quorum, reassignments, throttled, hidden_topics) = tokio::join!(
            answer_of_controllers(limit, cluster::quorum(any)),
            answer_of_controllers(limit, cluster::reassignments(any)),
            throttled(brokers, limit),
            hidden,
        );
        let adding = |one: cluster::Reassignment| ((one.topic, one.partition), one.adding.len());
        Facts {
            read_at: Instant::now(),
            quorum: quorum.map(|quorum| quorum.evidence()).map_err(Absence::from),
            reassignments: match reassignments {
                Ok(found) => Ok(found.into_iter().map(adding).collect()),
                Err(failure) => Err(failure.into()),
            },
            throttled,
            hidden_topics,
            min_isr: BTreeMap::new(),
        }
    }

    /// Reads `min.insync.replicas` of topics that lack it. Without an answer, a later call reads it.
    pub(super) async fn read_min_isr(
        &mut self,
        broker: &Connection,
        topics: BTreeSet<String>,
        limit: Duration,
    ) {
        let missing: Vec<String> =
            topics.into_iter().filter(|topic| !self.min_isr.contains_key(topic)).collect();
        if missing.is_empty() {
            return;
        }
        if let Ok(Ok(mut found)) = timeout(limit, cluster::min_isr(broker, missing.iter())).await {
            self.min_isr.extend(missing.into_iter().map(|topic| {
                let minimum = found.remove(&topic);
                (topic, minimum)
            }));
        }
    }
}

/// The brokers with a replication throttle; unknown if none is known and a broker did not answer.
async fn throttled(brokers: &BTreeMap<i32, Connection>, limit: Duration) -> Result<Vec<i32>, Absence> {
    let asking = brokers.iter().map(|(id, connection)| {
        let (id, connection) = (*id, connection.clone());
        async move {
            let answer = timeout(limit, cluster::is_throttled(&connection, id)).await;
            (id, answer)
        }
    });
    let (mut throttled, mut absence) = (Vec::new(), None);
    for (id, answer) in in_parallel(asking.collect()).await {
        match answer {
            Ok(Ok(true)) => throttled.push(id),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => drop(absence.get_or_insert(Absence::of(&error))),
            Err(_) => {
                let why = format!("broker {id} did not answer within {} ms", limit.as_millis());
                absence.get_or_insert(Absence { cause: Cause::Failed, why });
            }
        }
    }
    match absence {
        Some(absence) if throttled.is_empty() => Err(absence),
        _ => Ok(throttled),
    }
}
