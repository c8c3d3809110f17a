//! The health of a cluster, from the answers of its brokers: the list of problems, and the exit code.

use crate::failure::{self, CommandExit};
use crate::output::Style;

use super::report::{AbsenceReason, BrokerStatus, Cause, PartitionStatus, Reach, Status};

/// A voter without a fetch for this long counts as dead. Kafka's voters fetch at least every half second.
pub const SILENT_MS: i64 = 10_000;

/// The health of a cluster, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Every broker answers, and no replica is missing.
    Healthy,
    /// No problem is known, but the login may not see everything.
    Unknown,
    /// Every partition can be written and read, with less safety than it should have.
    Degraded,
    /// Some partition cannot be written with acks=all, or has no live leader.
    Unavailable,
    /// No broker answers.
    Unreachable,
}

impl Health {
    /// The name in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::Unknown => "unknown",
            Health::Degraded => "degraded",
            Health::Unavailable => "unavailable",
            Health::Unreachable => "unreachable",
        }
    }

    /// The name, coloured by severity on a terminal.
    pub fn shown(self, style: Style) -> String {
        match self {
            Health::Healthy => style.good(self.name()),
            Health::Unknown | Health::Degraded => style.doubtful(self.name()),
            Health::Unavailable | Health::Unreachable => style.bad(self.name()),
        }
    }

    /// The exit code of `cluster status`. Codes 1 and 2 belong to all commands: failure, and invalid
    /// arguments.
    pub fn exit_code(self) -> u8 {
        match self {
            Health::Healthy => 0,
            Health::Unknown => failure::REFUSED,
            Health::Degraded => 3,
            Health::Unavailable => 4,
            Health::Unreachable => failure::UNREACHABLE,
        }
    }
}

/// A problem of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The severity, as the health of the cluster.
    pub health: Health,
    /// A description for people.
    pub text: String,
}

impl Status {
    /// All problems, the worst first.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.partition_problems();
        problems.extend(self.broker_problems());
        problems.extend(self.quorum_problems());
        problems.extend(self.unknown());
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.health));
        problems
    }

    /// The severity of the worst problem.
    pub fn health(&self) -> Health {
        self.problems().first().map_or(Health::Healthy, |problem| problem.health)
    }

    /// Fails with the exit code of the health, unless the cluster is healthy.
    pub fn judge(&self) -> Result<(), CommandExit> {
        let (health, problems) = (self.health(), self.problems());
        if health == Health::Healthy {
            return Ok(());
        }
        let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        let what = if health == Health::Unknown { "The health of the cluster" } else { "The cluster" };
        let why = format!("{what} is {}: {}", health.name(), texts.join("; "));
        Err(CommandExit { code: health.exit_code(), why })
    }

    fn partition_problems(&self) -> Vec<Problem> {
        let all = self.partitions.len();
        let found = |health, found: &[&PartitionStatus], what: &str| {
            let text = format!("{} of {all} partitions {what}", found.len());
            (!found.is_empty()).then_some(Problem { health, text })
        };
        [
            found(Health::Unavailable, &self.offline(), "without a leader that answers"),
            found(Health::Unavailable, &self.under_min_isr(), "with too few replicas for acks=all"),
            found(Health::Degraded, &self.under_replicated(), "under-replicated"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn broker_problems(&self) -> Vec<Problem> {
        let all = self.brokers.len();
        let named = |is_it: fn(&BrokerStatus) -> bool, what: &str| {
            let ids: Vec<i32> = self.brokers.iter().filter(|broker| is_it(broker)).map(|b| b.id).collect();
            let list: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let text = format!("{} of {all} brokers {what} ({})", ids.len(), list.join(", "));
            (!ids.is_empty()).then_some(Problem { health: Health::Degraded, text })
        };
        let of_brokers = [
            named(|broker| matches!(broker.reach, Reach::NotReached(_)), "not reached"),
            named(|broker| broker.reach == Reach::Answers && broker.is_fenced, "fenced"),
            named(|broker| broker.reach == Reach::NoAddress, "with replicas and not registered"),
        ];
        let bootstrap = self.not_reached.iter().map(|(address, _)| Problem {
            health: Health::Degraded,
            text: format!("{address} of --bootstrap-server not reached"),
        });
        let views = self.differing.iter().map(|differing| Problem {
            health: Health::Degraded,
            text: format!("broker {} has different cluster metadata", differing.broker),
        });
        of_brokers.into_iter().flatten().chain(bootstrap).chain(views).collect()
    }

    /// Problems that the login may not see.
    fn unknown(&self) -> Vec<Problem> {
        let denied = |found: Option<&AbsenceReason>, what: &str| {
            let denied = found.filter(|unavailable| unavailable.cause == Cause::Denied)?;
            Some(format!("{what} ({})", denied.why))
        };
        let mut texts =
            Vec::from_iter(denied(self.reassignments.as_ref().err(), "the reassignments are unknown"));
        texts.extend(denied(self.quorum.as_ref().err(), "the controller quorum is unknown"));
        if !texts.is_empty() {
            texts.push("topics that the login may not describe are not counted".to_owned());
        }
        texts.into_iter().map(|text| Problem { health: Health::Unknown, text }).collect()
    }

    fn quorum_problems(&self) -> Vec<Problem> {
        let problem = |text: String| Problem { health: Health::Degraded, text };
        let quorum = match &self.quorum {
            Ok(quorum) => quorum,
            Err(AbsenceReason { cause: Cause::Problem, .. }) => {
                return vec![problem("no active controller answers".to_owned())];
            }
            Err(_) => return Vec::new(),
        };
        if quorum.leader < 0 {
            return vec![problem("there is no active controller".to_owned())];
        }
        let silent = quorum.nodes.iter().filter(|node| quorum.is_silent(node));
        silent
            .map(|node| problem(format!("controller or broker {} does not follow the metadata", node.id)))
            .collect()
    }
}
