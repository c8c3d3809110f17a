//! Rights on the resources in a request (Kafka's `ControllerApis`): the file of each API refuses resources
//! without a right, and decides the rest. Rights on the cluster are in the entries of the APIs.

use thalweg_hash::HashMap;
use thalweg_security::acl::{CLUSTER_NAME, LoggedOutcomes, Operation, ResourceType};

use super::State;
use crate::request_context::RequestContext;
use crate::requester::Requester;

impl State {
    /// Returns true if the requester may do an operation on the cluster.
    pub fn may_on_cluster(&self, by: &RequestContext, operation: Operation) -> bool {
        self.may(by, LoggedOutcomes::Both, operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    pub(super) fn may(
        &self,
        by: &RequestContext,
        logged: LoggedOutcomes,
        operation: Operation,
        kind: ResourceType,
        name: &str,
    ) -> bool {
        match &self.authorizer {
            None => true,
            Some(authorizer) => by.may(authorizer, logged, operation, kind, name),
        }
    }

    /// True if nothing needs to be checked.
    pub(super) fn is_open_to(&self, by: &RequestContext) -> bool {
        self.authorizer.is_none() || *by.requester() == Requester::ThisProcess
    }

    /// As [`State::may_on_cluster`], if a right on the topics suffices as well.
    pub(super) fn may_on_all_topics(&self, by: &RequestContext, operation: Operation) -> bool {
        self.may(by, LoggedOutcomes::IfAllowed, operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    pub(super) fn may_on_topic(&self, by: &RequestContext, operation: Operation, name: &str) -> bool {
        self.may(by, LoggedOutcomes::Both, operation, ResourceType::Topic, name)
    }
}

/// Number of occurrences of each name.
pub(super) fn counted<T: std::hash::Hash + Eq>(names: impl Iterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::default();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
