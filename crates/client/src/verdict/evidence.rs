//! The evidence for verdicts, and the judgement on it.

use thalweg_dial::ClientError;
use thalweg_wire::ErrorCode;

use crate::admin::{QuorumDescription, QuorumReplica};

use super::{Fault, GrowingLag, PartitionCounts, Verdict, counted, lag, listed};

/// A node of the quorum without a fetch for this long counts as dead. Voters fetch at least every half
/// second.
const SILENT_MS: i64 = 10_000;
/// Free shares of a file system, in percent, below which it is full, and nearly full.
const FULL_PERCENT: u64 = 3;
const NEARLY_FULL_PERCENT: u64 = 10;

/// The evidence for a judgement on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The partitions that the login may see.
    pub partitions: PartitionCounts,
    /// Number of topics that the login may not describe.
    pub hidden_topics: Result<usize, Absence>,
    pub brokers: Vec<BrokerEvidence>,
    /// Bootstrap addresses without an answer that belong to no known broker.
    pub silent_addresses: Vec<String>,
    /// Brokers with other metadata than the others.
    pub differing: Vec<i32>,
    pub quorum: Result<QuorumEvidence, Absence>,
    /// Number of partitions that are being reassigned.
    pub reassignments: Result<usize, Absence>,
    /// Brokers with a replication throttle.
    pub throttled: Result<Vec<i32>, Absence>,
    /// None if lags are not watched, or not yet.
    pub lags: Option<Result<LagEvidence, Absence>>,
}

/// A broker, by its own answers and those of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerEvidence {
    pub id: i32,
    pub reach: Reach,
    /// True if the controller has fenced the broker.
    pub is_fenced: bool,
    /// The broker's log directories; empty for a broker that was not asked.
    pub directories: Result<Vec<DirectoryEvidence>, Absence>,
}

/// The outcome of requests to a broker's own listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Answers,
    Silent,
    /// The broker is known by its replicas only.
    Unregistered,
    /// The broker is known by its replicas only, and may be registered and fenced.
    Unknown,
}

/// A log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEvidence {
    pub path: String,
    pub has_failed: bool,
    /// Total and usable bytes of the file system, if reported.
    pub space: Option<(u64, u64)>,
}

/// The controller quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumEvidence {
    /// The active controller.
    pub leader: Option<i32>,
    /// Nodes without a recent fetch of metadata; see [`QuorumEvidence::is_silent`].
    pub silent: Vec<i32>,
}

/// The lags of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LagEvidence {
    pub growing: Vec<GrowingLag>,
    /// Number of watched groups without a known lag.
    pub unknown: usize,
    /// Number of groups that are not watched, because there are too many.
    pub unwatched: usize,
}

/// The reason for missing evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    pub cause: Cause,
    /// The error of the request.
    pub why: String,
}

/// The cause of missing evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The login lacks a right.
    Denied,
    /// The cluster does not serve the request, which is no fault.
    NotServed,
    /// No answer arrived.
    Silent,
    /// The answer is another error.
    Failed,
}

impl Absence {
    /// The absence of an answer, by the error of its request.
    pub fn of(error: &ClientError) -> Absence {
        let cause = match (error, error.error_code()) {
            (
                _,
                Some(
                    ErrorCode::ClusterAuthorizationFailed
                    | ErrorCode::TopicAuthorizationFailed
                    | ErrorCode::GroupAuthorizationFailed,
                ),
            ) => Cause::Denied,
            (ClientError::VersionMismatch(_) | ClientError::Unencodable(_), _)
            | (_, Some(ErrorCode::UnsupportedVersion | ErrorCode::InvalidRequest)) => Cause::NotServed,
            (
                ClientError::ConnectFailed(_)
                | ClientError::ConnectTimedOut(_)
                | ClientError::Handshake(_)
                | ClientError::Closed(_)
                | ClientError::RequestTimedOut(_)
                | ClientError::BrokerUnknown(_),
                _,
            ) => Cause::Silent,
            _ => Cause::Failed,
        };
        Absence { cause, why: error.to_string() }
    }

    /// No answer within a time limit.
    pub fn silent(why: impl Into<String>) -> Absence {
        Absence { cause: Cause::Silent, why: why.into() }
    }

    /// The reason in few words, to stand beside a dash.
    pub fn reason(&self) -> &str {
        match self.cause {
            Cause::Denied => "not visible to this login",
            Cause::NotServed => "not reported by this cluster",
            Cause::Silent => "no answer",
            Cause::Failed => &self.why,
        }
    }
}

impl Reach {
    /// The state of a broker in words. A fenced broker may still answer: its heartbeats fail, or it cannot
    /// serve, for example with full disks.
    pub fn state(self, is_fenced: bool) -> &'static str {
        match (self, is_fenced) {
            (Reach::Unregistered, _) => "unregistered",
            (Reach::Unknown, _) => "not reached, or unregistered",
            (Reach::Silent, true) => "fenced, not reached",
            (Reach::Silent, false) => "not reached",
            (Reach::Answers, true) => "fenced",
            (Reach::Answers, false) => "up",
        }
    }
}

impl QuorumEvidence {
    /// The evidence in a description of the quorum. The leader's own time is the time of the answer.
    pub fn of(quorum: &QuorumDescription) -> QuorumEvidence {
        let leader = quorum.voters.iter().find(|node| Some(node.id) == quorum.leader_id);
        let now_ms = leader.and_then(|leader| leader.last_fetch_ms);
        let is_silent = |node: &&QuorumReplica| {
            now_ms.zip(node.last_fetch_ms).is_some_and(|(now, last)| QuorumEvidence::is_silent(now - last))
        };
        let silent = quorum.voters.iter().chain(&quorum.observers).filter(is_silent);
        QuorumEvidence { leader: quorum.leader_id, silent: silent.map(|node| node.id).collect() }
    }

    /// True if the last fetch of a node, by the clock of the active controller, is older than any live
    /// node's.
    pub fn is_silent(since_fetch_ms: i64) -> bool {
        since_fetch_ms > SILENT_MS
    }
}

impl Evidence {
    /// The verdicts, the most severe first.
    pub fn judge(&self) -> Vec<Verdict> {
        let mut verdicts = self.partitions.judge();
        verdicts.extend(self.brokers());
        verdicts.extend(self.directories());
        verdicts.extend(self.quorum());
        verdicts.extend(self.reassignments());
        verdicts.extend(self.throttles());
        verdicts.extend(self.lags.iter().flat_map(lags));
        verdicts.extend(self.hidden());
        verdicts.sort_by_key(|verdict| (verdict.fault.severity(), verdict.fault));
        verdicts
    }

    fn brokers(&self) -> Vec<Verdict> {
        let all = self.brokers.len();
        // The fact and its consequence, of one broker and of several.
        let found = |fault, is_it: &dyn Fn(&BrokerEvidence) -> bool, one: [&str; 2], several: [&str; 2]| {
            let ids: Vec<i32> = self.brokers.iter().filter(|broker| is_it(broker)).map(|b| b.id).collect();
            let [fact, effect] = if ids.len() == 1 { one } else { several };
            let text = format!("{} of {all} brokers {fact} ({}): {effect}.", ids.len(), listed(&ids));
            (!ids.is_empty()).then_some(Verdict { fault, text })
        };
        let of_brokers = [
            found(
                Fault::BrokersSilent,
                &|broker| broker.reach == Reach::Silent,
                ["does not answer", "its replicas do not count"],
                ["do not answer", "their replicas do not count"],
            ),
            found(
                Fault::BrokersUnregistered,
                &|broker| broker.reach == Reach::Unregistered,
                ["is not in the cluster", "replicas are assigned to it"],
                ["are not in the cluster", "replicas are assigned to them"],
            ),
            found(
                Fault::BrokersUnregistered,
                &|broker| broker.reach == Reach::Unknown,
                ["is not reached, or not registered", "replicas are assigned to it"],
                ["are not reached, or not registered", "replicas are assigned to them"],
            ),
            found(
                Fault::BrokersFenced,
                &|broker| broker.is_fenced && broker.reach == Reach::Answers,
                ["is fenced", "it leads nothing, and clients do not see it"],
                ["are fenced", "they lead nothing, and clients do not see them"],
            ),
        ];
        let addresses = self.silent_addresses.iter().map(|address| Verdict {
            fault: Fault::AddressSilent,
            text: format!(
                "{address} of the bootstrap servers does not answer, and belongs to no known broker."
            ),
        });
        let differing = self.differing.iter().map(|id| Verdict {
            fault: Fault::MetadataDiffers,
            text: format!("Broker {id} has other metadata than the other brokers."),
        });
        of_brokers.into_iter().flatten().chain(addresses).chain(differing).collect()
    }

    fn directories(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for broker in &self.brokers {
            match &broker.directories {
                Ok(directories) => {
                    verdicts.extend(directories.iter().filter_map(|directory| directory.judge(broker.id)));
                }
                // Verdicts on silent brokers and missing rights have these.
                Err(Absence { cause: Cause::Silent | Cause::Denied | Cause::NotServed, .. }) => {}
                Err(absence) => verdicts.push(Verdict {
                    fault: Fault::DirectoriesUnknown,
                    text: format!(
                        "The log directories of broker {} are unknown: {}.",
                        broker.id, absence.why
                    ),
                }),
            }
        }
        verdicts
    }

    fn quorum(&self) -> Vec<Verdict> {
        let quorum = match &self.quorum {
            Ok(quorum) => quorum,
            Err(Absence { cause: Cause::Denied | Cause::NotServed, .. }) => return Vec::new(),
            // The broker that was asked may be silent, not the controllers.
            Err(Absence { cause: Cause::Silent, why }) => {
                let text = format!("The controller quorum is unknown: {why}.");
                return vec![Verdict { fault: Fault::QuorumUnknown, text }];
            }
            Err(_) => return vec![no_controller("No active controller answers")],
        };
        if quorum.leader.is_none() {
            return vec![no_controller("There is no active controller")];
        }
        let role = |id: &i32| {
            let is_broker = self.brokers.iter().any(|broker| broker.id == *id);
            if is_broker { "Broker" } else { "Controller" }
        };
        let behind = quorum.silent.iter().map(|id| Verdict {
            fault: Fault::QuorumNodeBehind,
            text: format!("{} {id} does not follow the metadata.", role(id)),
        });
        behind.collect()
    }

    /// A gap in the list of reassignments that does not come from missing rights.
    fn reassignments(&self) -> Option<Verdict> {
        let absence = self.reassignments.as_ref().err()?;
        if !matches!(absence.cause, Cause::Silent | Cause::Failed) {
            return None;
        }
        let mut text = format!("Reassignments are unknown: {}.", absence.why);
        if self.partitions.under_replicated > 0 {
            text.push_str(" Replicas that they add count as missing.");
        }
        Some(Verdict { fault: Fault::ReassignmentsUnknown, text })
    }

    fn throttles(&self) -> Vec<Verdict> {
        match (&self.throttled, &self.reassignments) {
            (Ok(brokers), Ok(0)) if !brokers.is_empty() => vec![Verdict {
                fault: Fault::ThrottleRemains,
                text: format!(
                    "A replication throttle remains on {} ({}), although no partition is being reassigned: \
                     throttled replicas catch up no faster.",
                    counted(brokers.len(), "broker"),
                    listed(brokers)
                ),
            }],
            (Err(Absence { cause: Cause::Denied, .. }), _) => vec![Verdict {
                fault: Fault::ThrottlesUnknown,
                text: "Replication throttles are not visible to this login, which lacks DESCRIBE_CONFIGS on the \
                       cluster."
                    .to_owned(),
            }],
            (Err(absence), _) if matches!(absence.cause, Cause::Silent | Cause::Failed) => vec![Verdict {
                fault: Fault::ThrottlesUnknown,
                text: format!("Replication throttles are unknown: {}.", absence.why),
            }],
            _ => Vec::new(),
        }
    }

    /// Gaps that come from missing rights.
    fn hidden(&self) -> Vec<Verdict> {
        let is_denied = |absence: Option<&Absence>| absence.is_some_and(|one| one.cause == Cause::Denied);
        let directories = self.brokers.iter().any(|broker| is_denied(broker.directories.as_ref().err()));
        let is_cluster_denied = is_denied(self.quorum.as_ref().err());
        let parts = [
            (is_cluster_denied, "the controller quorum"),
            (is_denied(self.reassignments.as_ref().err()), "reassignments"),
            (directories, "log directories"),
            (is_cluster_denied && self.lags.is_some(), "groups that it may not describe"),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|(is_hidden, _)| *is_hidden).map(|it| it.1).collect();
        let mut verdicts = Vec::new();
        if !parts.is_empty() {
            verdicts.push(Verdict {
                fault: Fault::ClusterHidden,
                text: format!(
                    "Not visible to this login, which lacks DESCRIBE on the cluster: {}.",
                    parts.join(", ")
                ),
            });
        }
        let topics = match &self.hidden_topics {
            Ok(0) => None,
            Ok(1) => Some("1 topic is not visible to this login, and not counted.".to_owned()),
            Ok(hidden) => Some(format!("{hidden} topics are not visible to this login, and not counted.")),
            Err(absence) if absence.cause == Cause::Denied => {
                Some("Topics that this login may not describe are not counted.".to_owned())
            }
            Err(absence) if absence.cause == Cause::NotServed => None,
            Err(absence) => {
                Some(format!("Topics that this login may not describe are not known: {}.", absence.why))
            }
        };
        verdicts.extend(topics.map(|text| Verdict { fault: Fault::TopicsHidden, text }));
        verdicts
    }
}

fn lags(lags: &Result<LagEvidence, Absence>) -> Vec<Verdict> {
    let unknown = |text| Verdict { fault: Fault::LagsUnknown, text };
    match lags {
        Err(absence) => vec![unknown(format!("The lags of groups are unknown: {}.", absence.why))],
        Ok(LagEvidence { growing, unknown: groups, unwatched }) => {
            let mut verdicts = lag::judge(growing);
            if *groups > 0 {
                let groups = counted(*groups, "group");
                let text =
                    format!("The lag of {groups} is unknown: no answer, or not visible to this login.");
                verdicts.push(unknown(text));
            }
            if *unwatched > 0 {
                let groups = counted(*unwatched, "group");
                verdicts.push(unknown(format!("The lag of {groups} is not watched: there are too many.")));
            }
            verdicts
        }
    }
}

fn no_controller(fact: &str) -> Verdict {
    Verdict {
        fault: Fault::ControllerMissing,
        text: format!("{fact}: leaders do not change, and topics cannot be created."),
    }
}

impl DirectoryEvidence {
    fn judge(&self, broker: i32) -> Option<Verdict> {
        let place = format!("{} of broker {broker}", self.path);
        if self.has_failed {
            let text = format!("Log directory {place} has failed: its replicas are offline.");
            return Some(Verdict { fault: Fault::DirectoryFailed, text });
        }
        let (total, usable) = self.space.filter(|(total, _)| *total > 0)?;
        let percent = u64::try_from(u128::from(usable) * 100 / u128::from(total)).unwrap_or(u64::MAX);
        let fault = match percent {
            0..FULL_PERCENT => Fault::DiskFull,
            FULL_PERCENT..NEARLY_FULL_PERCENT => Fault::DiskNearlyFull,
            _ => return None,
        };
        let text =
            format!("{percent} % of the disk of log directory {place} are free: a full disk stops writes.");
        Some(Verdict { fault, text })
    }
}
