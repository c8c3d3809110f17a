//! The rights of the principals of streams, by the ACLs of the broker's cluster.

use std::net::{IpAddr, Ipv4Addr};

use thalweg_broker::ClusterRights;
use thalweg_security::Principal;
use thalweg_security::acl::{CLUSTER_NAME, Operation, ResourceType};
use thalweg_stream::host::rights::{Act, Resource, Right, Rights};

/// The host of a stream's connections, for ACLs with hosts.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Asks the authorizer of the broker. Without an authorizer, everything is allowed.
pub struct AclRights(pub ClusterRights);

impl Rights for AclRights {
    fn allow(&self, principal: &str, right: &Right) -> bool {
        // An invalid principal has the rights of the anonymous one.
        let principal = principal.parse().unwrap_or_else(|_| Principal::anonymous());
        let operation = match right.act {
            Act::Alter => Operation::Alter,
            Act::Read => Operation::Read,
            Act::Write => Operation::Write,
        };
        let (resource_type, name) = match &right.resource {
            Resource::Cluster => (ResourceType::Cluster, CLUSTER_NAME),
            Resource::Topic(name) => (ResourceType::Topic, name.as_str()),
            Resource::Group(name) => (ResourceType::Group, name.as_str()),
            Resource::TransactionalId(name) => (ResourceType::TransactionalId, name.as_str()),
        };
        self.0.permits(&principal, ADDRESS, operation, resource_type, name)
    }
}
