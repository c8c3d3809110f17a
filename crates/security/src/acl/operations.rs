//! Which operations make sense on a kind of resource: those that Metadata and the Describe APIs list as authorized.

use super::terms::Operation::{self, *};
use super::terms::ResourceType;

/// The operations of a kind of resource (`AclEntry.supportedOperations`).
pub fn supported_operations(resource_type: ResourceType) -> &'static [Operation] {
    match resource_type {
        ResourceType::Topic => &[Read, Write, Create, Describe, Delete, Alter, DescribeConfigs, AlterConfigs],
        ResourceType::Group => &[Read, Describe, Delete, DescribeConfigs, AlterConfigs],
        ResourceType::Cluster => {
            &[Create, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, Alter, Describe]
        }
        ResourceType::TransactionalId => &[Describe, Write, TwoPhaseCommit],
        ResourceType::DelegationToken => &[Describe],
        ResourceType::User => &[CreateTokens, DescribeTokens],
        ResourceType::Any => &[],
    }
}
