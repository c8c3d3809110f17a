//! The server's assignors of partitions: who of a group's members reads what. Pure: a group in, an assignment out.
//!
//! They decide as Kafka 4.3.1's do (`org.apache.kafka.coordinator.group.assignor`). Where Kafka's result depends on the
//! order of a hash map, the order of ids takes its place, so that the same group always gets the same assignment.
//!
//! ```text
//! uniform   balance first, then as few moves as possible; two ways, by whether all members subscribe to the same topics
//! range     a contiguous range of each topic for each member, in the order of instance ids and member ids
//! simple    for share groups: several members may read one partition
//! sticky    for streams groups: tasks and the standbys of their state
//! ```
//!
//! Racks are not part of a group here: Kafka 4.3.1 collects the racks of members and replicas, and none of its assignors
//! reads them. A change of racks still makes Kafka compute the assignment again, which is up to the group.
//!
//! What a caller may rely on: every member is in the result, with an empty assignment if it gets nothing; no topic has
//! an empty set of partitions; topics that are not in [`GroupSpec::topics`] are not assigned. The current assignment may
//! be anything: unknown topics and partitions are dropped, and of several owners the first keeps a partition.

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

/// What an assignor knows of a member.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemberSpec {
    /// The instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The ids of the topics that it subscribes to.
    pub topics: Arc<BTreeSet<Uuid>>,
    /// Its current target assignment.
    pub assigned: Assignment,
}

/// What an assignor knows of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// The number of its partitions.
    pub partitions: i32,
}

/// A group whose partitions are to be assigned.
#[derive(Clone, Copy, Debug)]
pub struct GroupSpec<'a> {
    /// Its members by id.
    pub members: &'a BTreeMap<Arc<str>, MemberSpec>,
    /// Whether all members subscribe to the same topics. The caller knows it from its counts of subscribers.
    pub homogeneous: bool,
    /// The topics that exist, at least those that a member subscribes to.
    pub topics: &'a BTreeMap<Uuid, TopicSpec>,
}

impl GroupSpec<'_> {
    /// The topics of a subscription that exist, with their partition counts.
    fn existing<'t>(&'t self, subscribed: &'t BTreeSet<Uuid>) -> impl Iterator<Item = (Uuid, i32)> + 't {
        subscribed.iter().filter_map(|id| self.topics.get(id).map(|topic| (*id, topic.partitions)))
    }
}

/// An assignor that members of a consumer group may ask for by name (`group.consumer.assignors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerAssignor {
    /// Kafka's `UniformAssignor`, the default.
    Uniform,
    /// Kafka's `RangeAssignor`.
    Range,
}

impl ServerAssignor {
    /// All, the default first.
    pub const ALL: [ServerAssignor; 2] = [ServerAssignor::Uniform, ServerAssignor::Range];

    /// The name in requests, records and settings.
    pub fn name(self) -> &'static str {
        match self {
            ServerAssignor::Uniform => "uniform",
            ServerAssignor::Range => "range",
        }
    }

    /// The assignor of that name. Names are case-sensitive, as in Kafka.
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
