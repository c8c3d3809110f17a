//! The server's assignors, which distribute partitions over the members of a group. Pure: a group in, an
//! assignment out.
//!
//! The assignors decide as Kafka 4.3.1's do (`org.apache.kafka.coordinator.group.assignor`). Where Kafka's
//! result depends on the order of a hash map, ids are used in order, so that the same group always gets the
//! same assignment.
//!
//! ```text
//! uniform   balance first, then as few moves as possible; for equal and for different subscriptions
//! range     a contiguous range of each topic for each member, in the order of instance ids and member ids
//! simple    for share groups: several members may read one partition
//! sticky    for streams groups: tasks and the standbys of their state
//! ```
//!
//! Racks are not part of a group here: Kafka 4.3.1 collects the racks of members and replicas, but none of
//! its assignors reads them. In Kafka a change of racks still starts a new assignment; that decision is left
//! to the group.
//!
//! Guarantees for callers: every member is in the result, with an empty assignment if it gets nothing; no
//! topic has an empty set of partitions; topics outside [`GroupSpec::topics`] are not assigned. The current
//! assignment may be anything: unknown topics and partitions are dropped, and of several owners the first
//! keeps a partition.

mod heterogeneous;
mod owners;
mod range;
mod simple;
mod sticky;
#[cfg(test)]
mod tests;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_wire::Uuid;

pub use simple::{NAME as SIMPLE, assign_shared};
pub use sticky::{
    NAME as STICKY, SubtopologySpec, TaskAssignment, TaskGroupSpec, TaskMemberSpec, Tasks, assign_tasks,
};

/// Partitions by the id of their topic.
pub type Assignment = BTreeMap<Uuid, BTreeSet<i32>>;

/// Partitions in the form of a message. `make` builds an element from a topic id and its partitions.
pub(super) fn by_topic<P>(assignment: &Assignment, make: impl Fn(Uuid, Vec<i32>) -> P) -> Vec<P> {
    assignment.iter().map(|(id, partitions)| make(*id, partitions.iter().copied().collect())).collect()
}

/// An assignor's view of a member.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberSpec {
    /// The instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// Ids of the subscribed topics.
    pub topics: Arc<BTreeSet<Uuid>>,
    /// The member's current target assignment.
    pub assigned: Assignment,
}

/// An assignor's view of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Partition count of the topic.
    pub partitions: i32,
}

/// The group and topics of one assignment.
#[derive(Clone, Copy, Debug)]
pub struct GroupSpec<'a> {
    /// The group's members by id.
    pub members: &'a BTreeMap<Arc<str>, MemberSpec>,
    /// True if all members subscribe to the same topics, which the caller knows from its counts of
    /// subscribers.
    pub homogeneous: bool,
    /// Existing topics, at least those with a subscriber.
    pub topics: &'a BTreeMap<Uuid, TopicSpec>,
}

impl GroupSpec<'_> {
    /// The existing topics of a subscription, with their partition counts.
    fn existing<'t>(&'t self, subscribed: &'t BTreeSet<Uuid>) -> impl Iterator<Item = (Uuid, i32)> + 't {
        subscribed.iter().filter_map(|id| self.topics.get(id).map(|topic| (*id, topic.partitions)))
    }
}

/// An assignor that members of a consumer group may request by name (`group.consumer.assignors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerAssignor {
    /// Kafka's `UniformAssignor`, the default.
    Uniform,
    /// Kafka's `RangeAssignor`.
    Range,
}

impl ServerAssignor {
    /// All assignors, the default first.
    pub const ALL: [ServerAssignor; 2] = [ServerAssignor::Uniform, ServerAssignor::Range];

    /// The name in requests, records and settings.
    pub fn name(self) -> &'static str {
        match self {
            ServerAssignor::Uniform => "uniform",
            ServerAssignor::Range => "range",
        }
    }

    /// The assignor with this name. Names are case-sensitive, as in Kafka.
    pub fn by_name(name: &str) -> Option<ServerAssignor> {
        ServerAssignor::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// The new assignment of each member.
    pub fn assign(&self, spec: &GroupSpec<'_>) -> BTreeMap<Arc<str>, Assignment> {
        match self {
            ServerAssignor::Uniform if spec.homogeneous => uniform::assign(spec),
            ServerAssignor::Uniform => heterogeneous::assign(spec),
            ServerAssignor::Range => range::assign(spec),
        }
    }
}
