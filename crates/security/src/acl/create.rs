//! Validation of new ACLs.

use std::fmt;

use super::terms::{Acl, Operation, PatternType, Permission, ResourceType};

/// The name of the only resource of the kind `Cluster`.
pub const CLUSTER_NAME: &str = "kafka-cluster";

/// An ACL in the form of requests and records, with codes and texts.
#[derive(Clone, Copy, Debug)]
pub struct RawAcl<'a> {
    pub resource_type: i8,
    pub resource_name: &'a str,
    pub pattern_type: i8,
    pub principal: &'a str,
    pub host: &'a str,
    pub operation: i8,
    pub permission: i8,
}

/// An invalid ACL, with Kafka's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidAcl {
    /// A wrong name for the cluster resource, which has only one.
    ClusterName,
    /// An empty resource name.
    EmptyName,
    /// The resource type is unknown or `ANY`.
    ResourceType(&'static str),
    /// The pattern type is unknown or only for filters.
    PatternType(&'static str),
    /// The operation is unknown or `ANY`.
    Operation(&'static str),
    /// The permission is unknown or `ANY`.
    Permission(&'static str),
    /// The principal has no type.
    Principal(String),
}

impl fmt::Display for InvalidAcl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidAcl::ClusterName => {
                write!(f, "The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
            }
            InvalidAcl::EmptyName => f.write_str("Invalid empty resource name"),
            InvalidAcl::ResourceType(name) => write!(f, "Invalid resourceType {name}"),
            InvalidAcl::PatternType(name) => write!(f, "Invalid patternType {name}"),
            InvalidAcl::Operation(name) => write!(f, "Invalid operation {name}"),
            InvalidAcl::Permission(name) => write!(f, "Invalid permissionType {name}"),
            InvalidAcl::Principal(text) => write!(
                f,
                "Could not parse principal from `{text}` (no colon is present separating the principal type from the \
                 principal name)"
            ),
        }
    }
}

impl std::error::Error for InvalidAcl {}

const UNKNOWN: &str = "UNKNOWN";

impl Acl {
    /// The ACL of a create request. As in Kafka, any operation may go with any resource type, and hosts are
    /// not validated.
    pub fn to_create(raw: RawAcl<'_>) -> Result<Acl, InvalidAcl> {
        if raw.resource_type == ResourceType::Cluster.code() && raw.resource_name != CLUSTER_NAME {
            return Err(InvalidAcl::ClusterName);
        }
        if raw.resource_name.is_empty() {
            return Err(InvalidAcl::EmptyName);
        }
        let acl = Acl::from_record(raw)?;
        match acl.principal.contains(':') {
            true => Ok(acl),
            false => Err(InvalidAcl::Principal(acl.principal)),
        }
    }

    /// The ACL of a record. Only the codes are checked.
    pub fn from_record(raw: RawAcl<'_>) -> Result<Acl, InvalidAcl> {
        let resource_type = match ResourceType::from_code(raw.resource_type) {
            Some(ResourceType::Any) => return Err(InvalidAcl::ResourceType(ResourceType::Any.name())),
            None => return Err(InvalidAcl::ResourceType(UNKNOWN)),
            Some(known) => known,
        };
        let pattern_type = match PatternType::from_code(raw.pattern_type) {
            Some(known @ (PatternType::Literal | PatternType::Prefixed)) => known,
            other => return Err(InvalidAcl::PatternType(other.map_or(UNKNOWN, PatternType::name))),
        };
        let operation = match Operation::from_code(raw.operation) {
            Some(Operation::Any) => return Err(InvalidAcl::Operation(Operation::Any.name())),
            None => return Err(InvalidAcl::Operation(UNKNOWN)),
            Some(known) => known,
        };
        let permission = match Permission::from_code(raw.permission) {
            Some(known @ (Permission::Allow | Permission::Deny)) => known,
            other => return Err(InvalidAcl::Permission(other.map_or(UNKNOWN, Permission::name))),
        };
        Ok(Acl {
            resource_type,
            resource_name: raw.resource_name.to_owned(),
            pattern_type,
            principal: raw.principal.to_owned(),
            host: raw.host.to_owned(),
            operation,
            permission,
        })
    }
}
