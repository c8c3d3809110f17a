//! Which ACLs are meant: the filters of DescribeAcls and DeleteAcls.

use super::terms::{Acl, Operation, PatternType, Permission, ResourceType};

/// A filter (`AclBindingFilter`). `Any` and `None` are no condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AclFilter {
    /// The kind of resource.
    pub resource_type: ResourceType,
    /// Its name. With `PatternType::Match` it is the name of a resource, and all patterns that cover it are meant.
    pub resource_name: Option<String>,
    /// How the pattern's name is meant.
    pub pattern_type: PatternType,
    /// The principal as text.
    pub principal: Option<String>,
    /// The peer's address.
    pub host: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// Allowed or denied.
    pub permission: Permission,
}

/// A filter has a number that this release does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownInFilter {
    /// For the kind of resource, or of pattern.
    Pattern,
    /// For the operation, or the permission.
    Entry,
}

impl std::fmt::Display for UnknownInFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UnknownInFilter::Pattern => "Unknown patternFilter.",
            UnknownInFilter::Entry => "Unknown entryFilter.",
        })
    }
}

impl std::error::Error for UnknownInFilter {}

/// A filter as requests have it: numbers and texts.
#[derive(Clone, Copy, Debug)]
pub struct RawFilter<'a> {
    /// As [`AclFilter::resource_type`].
    pub resource_type: i8,
    /// As [`AclFilter::resource_name`].
    pub resource_name: Option<&'a str>,
    /// As [`AclFilter::pattern_type`].
    pub pattern_type: i8,
    /// As [`AclFilter::principal`].
    pub principal: Option<&'a str>,
    /// As [`AclFilter::host`].
    pub host: Option<&'a str>,
    /// As [`AclFilter::operation`].
    pub operation: i8,
    /// As [`AclFilter::permission`].
    pub permission: i8,
}

impl TryFrom<RawFilter<'_>> for AclFilter {
    type Error = UnknownInFilter;

    fn try_from(raw: RawFilter<'_>) -> Result<AclFilter, UnknownInFilter> {
        Ok(AclFilter {
            resource_type: ResourceType::from_code(raw.resource_type).ok_or(UnknownInFilter::Pattern)?,
            resource_name: raw.resource_name.map(str::to_owned),
            pattern_type: PatternType::from_code(raw.pattern_type).ok_or(UnknownInFilter::Pattern)?,
            principal: raw.principal.map(str::to_owned),
            host: raw.host.map(str::to_owned),
            operation: Operation::from_code(raw.operation).ok_or(UnknownInFilter::Entry)?,
            permission: Permission::from_code(raw.permission).ok_or(UnknownInFilter::Entry)?,
        })
    }
}

impl AclFilter {
    /// Whether an ACL is meant.
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
