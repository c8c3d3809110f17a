//! Operations supported by each resource type, for the authorized operations in Metadata and Describe
//! responses.

use super::terms::Operation::{self, *};
use super::terms::ResourceType;

/// The operations of a resource type (`AclEntry.supportedOperations`).
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
