//! Events in the cluster and on the broker, which explain the figures.

use std::fmt;
use std::sync::Arc;

/// An event with the time of the sample that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The broker with this id, which keeps the history, started.
    Started(i32),
    /// No samples were taken for so many milliseconds: the process or the machine was suspended, or too busy.
    NotSampled(u64),
    /// The clock of the machine was set back by so many milliseconds.
    ClockSetBack(u64),
    /// A broker became available, again or for the first time.
    BrokerUp(i32),
    /// A broker became unavailable: it stopped, or the controller does not hear from it.
    BrokerDown(i32),
    /// A broker started again between two samples.
    BrokerRestarted(i32),
    /// So many partitions of the cluster got another leader, or lost theirs.
    LeadersChanged(u64),
    /// So many topics were created.
    TopicsCreated(u64),
    /// So many topics were deleted.
    TopicsDeleted(u64),
    /// The certificates of a listener of this broker were loaded again.
    CertificatesReloaded(Arc<str>),
    /// So many log directories of this broker failed.
    DirectoriesFailed(u64),
    /// A feature of the cluster has this level now.
    FeatureLevel(Arc<str>, i16),
}

impl EventKind {
    /// The name for programs.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Started(_) => "broker-started",
            EventKind::NotSampled(_) => "not-sampled",
            EventKind::ClockSetBack(_) => "clock-set-back",
            EventKind::BrokerUp(_) => "broker-up",
            EventKind::BrokerDown(_) => "broker-down",
            EventKind::BrokerRestarted(_) => "broker-restarted",
            EventKind::LeadersChanged(_) => "leaders-changed",
            EventKind::TopicsCreated(_) => "topics-created",
            EventKind::TopicsDeleted(_) => "topics-deleted",
            EventKind::CertificatesReloaded(_) => "certificates-reloaded",
            EventKind::DirectoriesFailed(_) => "directories-failed",
            EventKind::FeatureLevel(..) => "feature-level",
        }
    }

    /// True if every client of the cluster learns the same from the cluster's metadata or its connections.
    pub fn is_public(&self) -> bool {
        match self {
            EventKind::Started(_)
            | EventKind::NotSampled(_)
            | EventKind::ClockSetBack(_)
            | EventKind::BrokerUp(_)
            | EventKind::BrokerDown(_)
            | EventKind::BrokerRestarted(_)
            | EventKind::FeatureLevel(..) => true,
            EventKind::LeadersChanged(_)
            | EventKind::TopicsCreated(_)
            | EventKind::TopicsDeleted(_)
            | EventKind::CertificatesReloaded(_)
            | EventKind::DirectoriesFailed(_) => false,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, noun: &str| match count {
            1 => format!("1 {noun}"),
            count => format!("{count} {noun}s"),
        };
        match self {
            EventKind::Started(id) => write!(f, "Broker {id} started"),
            EventKind::NotSampled(ms) => write!(f, "No samples for {} s", ms / 1000),
            EventKind::ClockSetBack(ms) => write!(f, "The clock was set back by {} s", ms / 1000),
            EventKind::BrokerUp(id) => write!(f, "Broker {id} became available"),
            EventKind::BrokerDown(id) => write!(f, "Broker {id} became unavailable"),
            EventKind::BrokerRestarted(id) => write!(f, "Broker {id} restarted"),
            EventKind::LeadersChanged(count) => {
                write!(f, "{} got another leader or lost it", counted(*count, "partition"))
            }
            EventKind::TopicsCreated(count) => write!(f, "{} created", counted(*count, "topic")),
            EventKind::TopicsDeleted(count) => write!(f, "{} deleted", counted(*count, "topic")),
            EventKind::CertificatesReloaded(listener) => {
                write!(f, "Certificates of the listener {listener} reloaded")
            }
            EventKind::DirectoriesFailed(1) => f.write_str("A log directory failed"),
            EventKind::DirectoriesFailed(count) => write!(f, "{count} log directories failed"),
            EventKind::FeatureLevel(name, level) => write!(f, "{name} has level {level}"),
        }
    }
}
