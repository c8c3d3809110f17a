//! Filters of ACLs, for DescribeAcls and DeleteAcls.

use super::terms::{Acl, Operation, PatternType, Permission, ResourceType};

/// A filter (`AclBindingFilter`). `Any` and `None` match everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AclFilter {
    /// The resource type.
    pub resource_type: ResourceType,
    /// The resource name. With `PatternType::Match`, the filter selects all patterns that cover this name.
    pub resource_name: Option<String>,
    /// The pattern type.
    pub pattern_type: PatternType,
    /// The principal as text, such as `User:alice`.
    pub principal: Option<String>,
    /// The peer address; matched exactly.
    pub host: Option<String>,
    /// The operation; `Any` matches all.
    pub operation: Operation,
    /// Allow or deny; `Any` matches both.
    pub permission: Permission,
}

/// A filter code that this release does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFilterCode {
    /// The resource type or the pattern type.
    Pattern,
    /// The operation or the permission.
    Entry,
}

impl std::fmt::Display for UnknownFilterCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UnknownFilterCode::Pattern => "Unknown patternFilter.",
            UnknownFilterCode::Entry => "Unknown entryFilter.",
        })
    }
}

impl std::error::Error for UnknownFilterCode {}

/// A filter in the form of requests, with codes and texts.
#[derive(Clone, Copy, Debug)]
pub struct RawFilter<'a> {
    pub resource_type: i8,
    pub resource_name: Option<&'a str>,
    pub pattern_type: i8,
    pub principal: Option<&'a str>,
    pub host: Option<&'a str>,
    pub operation: i8,
    pub permission: i8,
}

impl TryFrom<RawFilter<'_>> for AclFilter {
    type Error = UnknownFilterCode;

    fn try_from(raw: RawFilter<'_>) -> Result<AclFilter, UnknownFilterCode> {
        Ok(AclFilter {
            resource_type: ResourceType::from_code(raw.resource_type).ok_or(UnknownFilterCode::Pattern)?,
            resource_name: raw.resource_name.map(str::to_owned),
            pattern_type: PatternType::from_code(raw.pattern_type).ok_or(UnknownFilterCode::Pattern)?,
            principal: raw.principal.map(str::to_owned),
            host: raw.host.map(str::to_owned),
            operation: Operation::from_code(raw.operation).ok_or(UnknownFilterCode::Entry)?,
            permission: Permission::from_code(raw.permission).ok_or(UnknownFilterCode::Entry)?,
        })
    }
}

impl AclFilter {
    /// True if the filter selects this ACL.
    pub fn matches(&self, acl: &Acl) -> bool {
        let equal = |wanted: &Option<String>, text: &String| wanted.as_ref().is_none_or(|w| w == text);
        (self.resource_type == ResourceType::Any || self.resource_type == acl.resource_type)
            && self.matches_pattern(acl)
            && equal(&self.principal, &acl.principal)
            && equal(&self.host, &acl.host)
            && (self.operation == Operation::Any || self.operation == acl.operation)
            && (self.permission == Permission::Any || self.permission == acl.permission)
    }

    fn matches_pattern(&self, acl: &Acl) -> bool {
        let Some(name) = &self.resource_name else {
            return matches!(self.pattern_type, PatternType::Any | PatternType::Match)
                || self.pattern_type == acl.pattern_type;
        };
        match self.pattern_type {
            PatternType::Any => *name == acl.resource_name,
            PatternType::Match => match acl.pattern_type {
                PatternType::Prefixed => name.starts_with(&acl.resource_name),
                _ => *name == acl.resource_name || acl.resource_name == "*",
            },
            exact => exact == acl.pattern_type && *name == acl.resource_name,
        }
    }
}
