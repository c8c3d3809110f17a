//! Verdicts on the state of a cluster: faults, and gaps in the evidence, each with a severity and a sentence.
//!
//! `thalweg cluster status` and the console's overview gather [`Evidence`] in their own ways. The judgement
//! is made here alone, so that the two agree. A gap in the evidence is a verdict, too: a login without rights
//! sees a cluster of unknown health, never a healthy one. The alerts in `deploy/prometheus` have the same
//! severities. The readiness of a single broker is its own judgement: `PartitionRegistration::is_behind`.

mod controllers;
mod evidence;
mod hidden;
mod lag;
mod partitions;

pub use controllers::{ControllerFailure, answer_of_controllers};
pub use evidence::{
    Absence, BrokerEvidence, Cause, DirectoryEvidence, Evidence, LagEvidence, QuorumEvidence, Reach,
};
pub use hidden::{StoredTopics, directory_gap, gap, hidden_topics, partial_view, unknown_directories};
pub use lag::{GrowingLag, LAG_WINDOW};
pub use partitions::{PartitionCounts, PartitionState};

/// The health of a cluster, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Every broker answers, no replica is missing, and a controller is active.
    Healthy,
    /// No fault is visible, but the login may not see everything.
    Unknown,
    /// Every partition can be written and read, with less safety than it should have.
    Degraded,
    /// Some partition cannot be written with acks=all, or has no leader that answers.
    Unavailable,
    /// No broker answers.
    Unreachable,
}

impl Health {
    /// The name in texts and documents.
    pub fn name(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::Unknown => "unknown",
            Health::Degraded => "degraded",
            Health::Unavailable => "unavailable",
            Health::Unreachable => "unreachable",
        }
    }

    /// The health that remains after all these verdicts.
    pub fn of(verdicts: &[Verdict]) -> Health {
        verdicts.iter().map(|verdict| verdict.fault.health()).max().unwrap_or(Health::Healthy)
    }
}

/// The severity of a verdict, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Records are refused or may be lost: act now.
    Critical,
    /// Everything is served, with less safety or more slowly: act today.
    Warning,
    /// The evidence is not visible, or did not arrive.
    Unknown,
}

impl Severity {
    /// The name in texts and documents.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Unknown => "unknown",
        }
    }
}

/// The subject of a verdict: a fault of the cluster, or a gap in the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Partitions without a leader that answers.
    PartitionsOffline,
    /// Partitions that refuse acks=all.
    PartitionsUnderMinIsr,
    /// Registered brokers that do not answer.
    BrokersSilent,
    /// Brokers with replicas that are not registered, or that the login cannot see as registered.
    BrokersUnregistered,
    /// There is no active controller, or it does not answer.
    ControllerMissing,
    DirectoryFailed,
    /// Less than 3 % of a file system is free.
    DiskFull,
    /// Under-replicated partitions that the next failure puts below `min.insync.replicas`.
    PartitionsAtMinIsr,
    PartitionsUnderReplicated,
    /// Registered brokers that the controller has fenced.
    BrokersFenced,
    /// A bootstrap address that belongs to no known broker and does not answer.
    AddressSilent,
    /// A broker with other metadata than the others.
    MetadataDiffers,
    /// A controller or broker without a recent fetch of metadata.
    QuorumNodeBehind,
    /// Less than 10 % of a file system is free.
    DiskNearlyFull,
    /// A limit of replication on brokers, although no partition is being reassigned.
    ThrottleRemains,
    LagGrows,
    TopicsHidden,
    /// The login lacks DESCRIBE on the cluster.
    ClusterHidden,
    /// `min.insync.replicas` of under-replicated partitions is unknown.
    MinIsrUnknown,
    DirectoriesUnknown,
    /// The broker that was asked for the quorum does not answer.
    QuorumUnknown,
    ReassignmentsUnknown,
    ThrottlesUnknown,
    LagsUnknown,
}

impl Fault {
    /// The name in documents, the severity, and the effect on the health of the cluster. `Healthy` stands for
    /// no effect: the exit code of `cluster status` judges brokers, replicas and controllers.
    fn rule(self) -> (&'static str, Severity, Health) {
        use Severity::{Critical, Unknown, Warning};
        match self {
            Fault::PartitionsOffline => ("partitions-offline", Critical, Health::Unavailable),
            Fault::PartitionsUnderMinIsr => ("partitions-under-min-isr", Critical, Health::Unavailable),
            Fault::BrokersSilent => ("brokers-silent", Critical, Health::Degraded),
            Fault::BrokersUnregistered => ("brokers-unregistered", Critical, Health::Degraded),
            Fault::ControllerMissing => ("controller-missing", Critical, Health::Degraded),
            Fault::DirectoryFailed => ("directory-failed", Critical, Health::Degraded),
            Fault::DiskFull => ("disk-full", Critical, Health::Degraded),
            Fault::PartitionsAtMinIsr => ("partitions-at-min-isr", Warning, Health::Degraded),
            Fault::PartitionsUnderReplicated => ("partitions-under-replicated", Warning, Health::Degraded),
            Fault::BrokersFenced => ("brokers-fenced", Warning, Health::Degraded),
            Fault::AddressSilent => ("address-silent", Warning, Health::Degraded),
            Fault::MetadataDiffers => ("metadata-differs", Warning, Health::Degraded),
            Fault::QuorumNodeBehind => ("quorum-node-behind", Warning, Health::Degraded),
            Fault::DiskNearlyFull => ("disk-nearly-full", Warning, Health::Healthy),
            Fault::ThrottleRemains => ("throttle-remains", Warning, Health::Healthy),
            Fault::LagGrows => ("lag-grows", Warning, Health::Healthy),
            Fault::TopicsHidden => ("topics-hidden", Unknown, Health::Unknown),
            Fault::ClusterHidden => ("cluster-hidden", Unknown, Health::Unknown),
            Fault::MinIsrUnknown => ("min-isr-unknown", Unknown, Health::Unknown),
            Fault::DirectoriesUnknown => ("directories-unknown", Unknown, Health::Unknown),
            Fault::QuorumUnknown => ("quorum-unknown", Unknown, Health::Unknown),
            Fault::ReassignmentsUnknown => ("reassignments-unknown", Unknown, Health::Healthy),
            Fault::ThrottlesUnknown => ("throttles-unknown", Unknown, Health::Healthy),
            Fault::LagsUnknown => ("lags-unknown", Unknown, Health::Healthy),
        }
    }

    /// The name in documents.
    pub fn name(self) -> &'static str {
        self.rule().0
    }

    /// The urgency of the fault.
    pub fn severity(self) -> Severity {
        self.rule().1
    }

    /// The best health of a cluster with the fault.
    pub fn health(self) -> Health {
        self.rule().2
    }
}

/// A judgement on one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub fault: Fault,
    /// One sentence for people: the fact and its consequence.
    pub text: String,
}

/// A number and its noun: 1 topic, 2 topics.
pub fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A list of ids: 1, 2, 3.
pub(crate) fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
