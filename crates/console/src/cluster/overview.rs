//! The cluster at a glance, with verdicts in words.
//!
//! Missing evidence is none here, never zero: the login may not see it, or a broker does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Serialize, Serializer};
use thalweg_client::ClientError;
use thalweg_client::TopicPartition;
use thalweg_client::verdict::{
    Absence, BrokerEvidence, Cause, Evidence, Fault, Health, LagEvidence, PartitionCounts, PartitionState,
    QuorumEvidence, Reach, Severity, Verdict,
};
use utoipa::ToSchema;

use super::View;
use super::catalog::{Catalog, TopicLine};
use super::controllers::{Controllers, FencedBroker};
use super::disks::{Disks, LogDirectory};
use super::min_isr::MinIsr;
use super::rates::Point;
use crate::format;

/// The cluster at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub struct Overview {
    /// The cluster id.
    pub cluster_id: Option<String>,
    /// The health as in `thalweg cluster status`: `healthy`, `unknown`, `degraded` or `unavailable`.
    pub health: &'static str,
    /// The active controller; none if the quorum cannot be read.
    pub controller: Option<Controller>,
    /// Reason if the controller is missing.
    pub controller_unknown: Option<String>,
    /// The brokers, including offline ones that hold replicas.
    pub brokers: Vec<BrokerLine>,
    /// Number of user topics; none if the login sees no topic of the cluster.
    pub topics: Option<usize>,
    /// Number of internal topics; none if the login sees no topic of the cluster.
    pub internal_topics: Option<usize>,
    /// Number of topics that the login may not see; none if that is unknown.
    pub hidden_topics: Option<usize>,
    /// True if the counts of topics and partitions are of a part of the cluster.
    pub is_partial: bool,
    /// Number of partitions of all visible topics.
    pub partitions: Option<usize>,
    /// Partitions with fewer replicas in sync than assigned.
    pub under_replicated: Option<usize>,
    /// Partitions with fewer replicas in sync than `min.insync.replicas`; none if the minimum of a partition
    /// that lacks replicas is unknown.
    pub under_min_isr: Option<usize>,
    /// Partitions without a leader that answers.
    pub leaderless: Option<usize>,
    /// Total bytes of all replicas; none if those of a broker are unknown.
    pub log_bytes: Option<u64>,
    /// Reason if `log_bytes` is missing.
    pub log_bytes_unknown: Option<String>,
    /// Reason if the last rate in `history` is missing.
    pub records_unknown: Option<String>,
    /// The log directories of all brokers.
    pub directories: Vec<LogDirectory>,
    /// Brokers that did not report their log directories, with the reason.
    pub directories_unknown: Vec<String>,
    /// Recent throughput, oldest first; empty before the second measurement.
    pub history: Vec<Point>,
    /// The time of the oldest reading of topics, log directories and controllers, in milliseconds since 1970.
    /// Readings are kept for some seconds.
    pub read_at_ms: i64,
    /// Faults of the cluster, and gaps in what the login may see, most severe first.
    pub alerts: Vec<Alert>,
}

/// The active controller.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Controller {
    /// The node id.
    pub id: i32,
    /// The controller epoch.
    pub epoch: i32,
}

/// A broker in the overview.
#[derive(Debug, Serialize, ToSchema)]
pub struct BrokerLine {
    /// The node id.
    pub id: i32,
    /// `up`, `fenced`, `not reached`, both of the latter, `unregistered`, or `not reached, or unregistered`.
    pub state: &'static str,
    /// The address; none if only replicas name the broker.
    pub address: Option<String>,
    /// The rack, if configured.
    pub rack: Option<String>,
    /// Number of visible partitions that the broker leads; none if the login sees no topic of the cluster.
    pub leaders: Option<usize>,
    /// Number of visible replicas on the broker.
    pub replicas: Option<usize>,
    /// Number of visible replicas out of sync.
    pub lagging: Option<usize>,
    /// Total bytes of the replicas; none if the broker does not report all of them.
    pub log_bytes: Option<u64>,
}

/// A fault of the cluster that needs attention, or a gap in what the login may see.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Alert {
    /// `critical`: records are refused or may be lost; `warning`: everything is served, with less safety;
    /// `unknown`: not visible to the login, or without an answer.
    #[serde(serialize_with = "severity_name")]
    #[schema(value_type = String)]
    pub severity: Severity,
    /// The name of the fault, such as `partitions-offline`.
    pub fault: &'static str,
    /// The fault and its consequence.
    pub text: String,
    /// Path of the page with details.
    pub page: Option<&'static str>,
}

fn severity_name<S: Serializer>(severity: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(severity.name())
}

/// Reads all parts of the overview.
pub async fn read(view: &Arc<View>) -> Result<Overview, ClientError> {
    Ok(Readings::gather(view).await?.overview())
}

/// The readings that an overview shows and judges.
pub(crate) struct Readings {
    pub catalog: Arc<Catalog>,
    pub disks: Arc<Disks>,
    pub controllers: Arc<Controllers>,
    pub min_isr: Arc<MinIsr>,
    pub hidden_topics: Result<usize, Absence>,
    pub lags: Option<Result<LagEvidence, Absence>>,
    pub history: Vec<Point>,
    /// Partitions whose ends are unknown in the last point.
    pub unanswered: usize,
}

impl Readings {
    async fn gather(view: &Arc<View>) -> Result<Readings, ClientError> {
        let catalog = view.catalog().await?;
        let (disks, controllers) = tokio::join!(view.disks(), view.controllers());
        let disks = disks?;
        let hidden_topics = view.hidden_topics(&catalog, &disks).await;
        let measured = view.rates();
        view.lags().watch_if_due(view);
        let mut readings = Readings {
            catalog,
            disks,
            controllers,
            min_isr: Arc::default(),
            hidden_topics,
            lags: view.lags().evidence(),
            history: measured.history.iter().copied().collect(),
            unanswered: measured.unanswered,
        };
        let incomplete = readings.incomplete_topics();
        if !incomplete.is_empty() {
            readings.min_isr = view.min_isr(incomplete).await;
        }
        Ok(readings)
    }

    /// Topics with a partition that lacks replicas in sync.
    fn incomplete_topics(&self) -> BTreeSet<String> {
        let states = self.states();
        let lacks = |at: &u32| states.get(*at as usize).is_some_and(|state| state.in_sync < state.replicas);
        let topics = self.catalog.topics.iter().filter(|topic| topic.placements.iter().any(lacks));
        topics.map(|topic| topic.name.to_string()).collect()
    }

    /// The state of each placement.
    fn states(&self) -> Vec<PartitionState> {
        self.catalog.states(|id| self.is_silent(id))
    }

    fn is_silent(&self, broker: i32) -> bool {
        self.disks.is_silent(broker)
    }

    fn partitions(&self) -> PartitionCounts {
        let (states, mut counts) = (self.states(), PartitionCounts::default());
        for topic in &self.catalog.topics {
            let min_isr = self.min_isr.get(&topic.name);
            for (index, at) in (0..).zip(&topic.placements) {
                let Some(state) = states.get(*at as usize) else { continue };
                let adding = self.adding(topic, index);
                counts.add(&PartitionState { min_isr, adding, ..*state });
            }
        }
        counts
    }

    /// Replicas of a partition that a reassignment adds.
    fn adding(&self, topic: &TopicLine, index: i32) -> usize {
        let Ok(reassignments) = &self.controllers.reassignments else { return 0 };
        if reassignments.is_empty() {
            return 0;
        }
        let at = TopicPartition::new(Arc::clone(&topic.name), index);
        reassignments.get(&at).map_or(0, |reassignment| reassignment.adding.len())
    }

    fn fenced(&self, broker: i32) -> Option<&FencedBroker> {
        self.controllers.fenced.as_ref().ok()?.get(&broker)
    }

    fn reach(&self, broker: i32) -> Reach {
        match (self.catalog.brokers.contains_key(&broker), self.fenced(broker)) {
            (true, _) if self.is_silent(broker) => Reach::Silent,
            (true, _) => Reach::Answers,
            (false, Some(fenced)) if fenced.answers => Reach::Answers,
            (false, Some(_)) => Reach::Silent,
            (false, None) if self.controllers.fenced.is_err() => Reach::Unknown,
            (false, None) => Reach::Unregistered,
        }
    }

    fn is_fenced(&self, broker: i32) -> bool {
        !self.catalog.brokers.contains_key(&broker) && self.fenced(broker).is_some()
    }

    fn broker_ids(&self) -> BTreeSet<i32> {
        let known = self.catalog.brokers.keys().chain(self.catalog.held.keys());
        known.chain(self.controllers.fenced.iter().flat_map(BTreeMap::keys)).copied().collect()
    }

    /// True if topics exist, or may exist, that the login may not see.
    fn is_partial(&self) -> bool {
        match &self.hidden_topics {
            Ok(hidden) => *hidden > 0,
            Err(absence) => absence.cause != Cause::NotServed,
        }
    }

    /// The quorum, asked of one broker. If that broker may be silent itself, the quorum is unknown; if all
    /// brokers answer, the silence is that of the controllers.
    fn quorum(&self) -> Result<QuorumEvidence, Absence> {
        let is_any_silent = self.catalog.brokers.keys().any(|id| self.is_silent(*id));
        match &self.controllers.quorum {
            Ok(quorum) => Ok(QuorumEvidence::of(quorum)),
            Err(absence) if absence.cause == Cause::Silent && !is_any_silent => {
                Err(Absence { cause: Cause::Failed, why: absence.why.clone() })
            }
            Err(absence) => Err(absence.clone()),
        }
    }

    /// The brokers with a throttle; unknown if none is known and a broker that answers did not answer this.
    fn throttled(&self) -> Result<Vec<i32>, Absence> {
        let throttled = self.controllers.throttled.clone()?;
        let mut unknown = self.controllers.throttle_unknown.iter();
        match unknown.find(|(id, _)| self.reach(**id) == Reach::Answers) {
            Some((_, absence)) if throttled.is_empty() => Err(absence.clone()),
            _ => Ok(throttled),
        }
    }

    fn evidence(&self) -> Evidence {
        let controllers = &self.controllers;
        let brokers = self.broker_ids().into_iter().map(|id| BrokerEvidence {
            id,
            reach: self.reach(id),
            is_fenced: self.is_fenced(id),
            directories: self.disks.evidence(id),
        });
        Evidence {
            partitions: self.partitions(),
            hidden_topics: self.hidden_topics.clone(),
            brokers: brokers.collect(),
            silent_addresses: Vec::new(),
            differing: Vec::new(),
            quorum: self.quorum(),
            reassignments: controllers.reassignments.as_ref().map(|found| found.len()).map_err(Clone::clone),
            throttled: self.throttled(),
            lags: self.lags.clone(),
        }
    }

    /// The overview of these readings.
    pub fn overview(&self) -> Overview {
        let evidence = self.evidence();
        let verdicts = evidence.judge();
        let counts = evidence.partitions;
        let is_partial = self.is_partial();
        let is_blind = is_partial && self.catalog.topics.is_empty();
        let seen = |number: usize| (!is_blind).then_some(number);
        let internal = self.catalog.topics.iter().filter(|topic| topic.is_internal).count();
        let (controller, controller_unknown) = self.controller();
        let directories = self.disks.directories.clone();
        let sizes: Option<u64> = directories.iter().map(|directory| directory.log_bytes).sum();
        let gap = self.disks.gap(&self.catalog);
        Overview {
            cluster_id: self.catalog.cluster_id.clone(),
            health: Health::of(&verdicts).name(),
            controller,
            controller_unknown,
            brokers: self.broker_ids().into_iter().map(|id| self.broker(id, is_blind)).collect(),
            topics: seen(self.catalog.topics.len() - internal),
            internal_topics: seen(internal),
            hidden_topics: self.hidden_topics.as_ref().ok().copied(),
            is_partial,
            partitions: seen(counts.total),
            under_replicated: seen(counts.under_replicated),
            under_min_isr: seen(counts.under_min_isr).filter(|_| counts.min_isr_unknown == 0),
            leaderless: seen(counts.offline),
            log_bytes: sizes.filter(|_| gap.is_none() && !directories.is_empty()),
            log_bytes_unknown: gap,
            records_unknown: (self.unanswered > 0)
                .then(|| format!("not known of {}", format::counted(self.unanswered, "partition"))),
            directories,
            directories_unknown: self.directories_unknown(),
            history: self.history.clone(),
            read_at_ms: self.read_at_ms(),
            alerts: verdicts.into_iter().map(|verdict| self.alert(verdict)).collect(),
        }
    }

    fn read_at_ms(&self) -> i64 {
        self.catalog.read_at_ms.min(self.disks.read_at_ms()).min(self.controllers.read_at_ms)
    }

    fn controller(&self) -> (Option<Controller>, Option<String>) {
        match &self.controllers.quorum {
            Ok(quorum) => match quorum.leader_id {
                Some(id) => (Some(Controller { id, epoch: quorum.leader_epoch }), None),
                None => (None, Some("none is active".to_owned())),
            },
            Err(absence) => (None, Some(absence.reason().to_owned())),
        }
    }

    fn broker(&self, id: i32, is_blind: bool) -> BrokerLine {
        let fenced = self.fenced(id).map(|fenced| &fenced.address);
        let address = self.catalog.brokers.get(&id).or(fenced);
        let held = self.catalog.held.get(&id).copied().unwrap_or_default();
        let seen = |number: usize| (!is_blind).then_some(number);
        let own = self.disks.directories.iter().filter(|directory| directory.broker == id);
        let own: Vec<Option<u64>> = own.map(|directory| directory.log_bytes).collect();
        BrokerLine {
            id,
            state: self.reach(id).state(self.is_fenced(id)),
            address: address.map(|address| address.address()),
            rack: address.and_then(|address| address.rack.clone()),
            leaders: seen(held.leaders),
            replicas: seen(held.replicas),
            lagging: seen(held.lagging),
            log_bytes: own.iter().copied().sum::<Option<u64>>().filter(|_| !own.is_empty()),
        }
    }

    fn directories_unknown(&self) -> Vec<String> {
        let unknown = self.disks.unknown.iter();
        let unknown = unknown.map(|(id, absence)| format!("Broker {id}: {}", absence.reason()));
        let unavailable = self.catalog.unavailable().map(|id| format!("Broker {id}: not available"));
        unknown.chain(unavailable).collect()
    }

    fn alert(&self, verdict: Verdict) -> Alert {
        // The list of topics is by the metadata alone, in which a silent broker is alive.
        let listed = |number: fn(&TopicLine) -> u32, page| {
            let is_listed = self.catalog.topics.iter().any(|topic| number(topic) > 0);
            if is_listed { page } else { "/brokers" }
        };
        let page = match verdict.fault {
            Fault::PartitionsOffline => {
                Some(listed(|topic| topic.leaderless, "/topics?state=leaderless&internal=on"))
            }
            Fault::PartitionsUnderMinIsr
            | Fault::PartitionsAtMinIsr
            | Fault::PartitionsUnderReplicated
            | Fault::MinIsrUnknown => {
                Some(listed(|topic| topic.under_replicated, "/topics?state=under-replicated&internal=on"))
            }
            Fault::BrokersSilent
            | Fault::BrokersUnregistered
            | Fault::BrokersFenced
            | Fault::DirectoryFailed
            | Fault::DirectoriesUnknown
            | Fault::DiskFull
            | Fault::DiskNearlyFull
            | Fault::ThrottleRemains => Some("/brokers"),
            Fault::ControllerMissing | Fault::QuorumNodeBehind | Fault::QuorumUnknown => Some("/quorum"),
            Fault::LagGrows | Fault::LagsUnknown => Some("/groups"),
            Fault::AddressSilent
            | Fault::MetadataDiffers
            | Fault::TopicsHidden
            | Fault::ClusterHidden
            | Fault::ReassignmentsUnknown
            | Fault::ThrottlesUnknown => None,
        };
        Alert { severity: verdict.fault.severity(), fault: verdict.fault.name(), text: verdict.text, page }
    }
}

#[cfg(test)]
pub(crate) mod tests;
