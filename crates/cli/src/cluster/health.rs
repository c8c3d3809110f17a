//! The health of a cluster: the evidence for its verdicts, and the exit code.

use thalweg_client::verdict::{
    BrokerEvidence, Evidence, Health, PartitionCounts, QuorumEvidence, Severity, Verdict,
};

use crate::failure::{self, CommandExit};
use crate::output::Style;

use super::state::{BrokerStatus, Quorum, Status};

/// The exit code of `cluster status`. Codes 1 and 2 belong to all commands: failure, and invalid arguments.
pub(super) fn exit_code(health: Health) -> u8 {
    match health {
        Health::Healthy => 0,
        Health::Unknown => failure::REFUSED,
        Health::Degraded => 3,
        Health::Unavailable => 4,
        Health::Unreachable => failure::UNREACHABLE,
    }
}

/// The name, coloured on a terminal.
pub(super) fn shown_health(health: Health, style: Style) -> String {
    match health {
        Health::Healthy => style.good(health.name()),
        Health::Unknown | Health::Degraded => style.doubtful(health.name()),
        Health::Unavailable | Health::Unreachable => style.bad(health.name()),
    }
}

/// The name, coloured on a terminal.
pub(super) fn shown_severity(severity: Severity, style: Style) -> String {
    match severity {
        Severity::Critical => style.bad(severity.name()),
        Severity::Warning | Severity::Unknown => style.doubtful(severity.name()),
    }
}

impl Status {
    /// The verdicts, the most severe first.
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.evidence().judge()
    }

    /// Fails with the exit code of the health, unless the cluster is healthy.
    pub fn judge(&self) -> Result<(), CommandExit> {
        let verdicts = self.verdicts();
        let health = Health::of(&verdicts);
        if health == Health::Healthy {
            return Ok(());
        }
        let texts: Vec<&str> = verdicts.iter().map(|verdict| &*verdict.text).collect();
        let what = if health == Health::Unknown { "The health of the cluster" } else { "The cluster" };
        let why = format!("{what} is {}: {}", health.name(), texts.join(" "));
        Err(CommandExit { code: exit_code(health), why })
    }

    /// The failure in a few words, if the terminal shows the verdicts.
    pub fn without_verdicts(exit: CommandExit) -> CommandExit {
        let why = exit.why.split_once(": ").map_or(&*exit.why, |(what, _)| what).to_owned();
        CommandExit { why, ..exit }
    }

    fn evidence(&self) -> Evidence {
        let mut partitions = PartitionCounts::default();
        self.partitions.iter().for_each(|partition| partitions.add(&partition.state()));
        Evidence {
            partitions,
            hidden_topics: self.hidden_topics.clone(),
            brokers: self.brokers.iter().map(BrokerStatus::evidence).collect(),
            silent_addresses: self.not_reached.iter().map(|(address, _)| address.clone()).collect(),
            differing: self.differing.iter().map(|differing| differing.broker).collect(),
            quorum: self.quorum.as_ref().map(Quorum::evidence).map_err(Clone::clone),
            reassignments: self.reassignments.as_ref().map(Vec::len).map_err(Clone::clone),
            throttled: self.throttled.clone(),
            // A single look at a lag shows no growth.
            lags: None,
        }
    }
}

impl BrokerStatus {
    fn evidence(&self) -> BrokerEvidence {
        BrokerEvidence {
            id: self.id,
            reach: self.probe.as_evidence(),
            is_fenced: self.is_fenced,
            directories: self.directories.clone(),
        }
    }
}

impl Quorum {
    pub(crate) fn evidence(&self) -> QuorumEvidence {
        let silent = self.nodes.iter().filter(|node| self.is_silent(node));
        QuorumEvidence {
            leader: (self.leader >= 0).then_some(self.leader),
            silent: silent.map(|node| node.id).collect(),
        }
    }
}
