//! DescribeAcls (29), versions 1 to 3, answered from the image. CreateAcls and DeleteAcls are forwarded.

use super::entry::{Api, cluster, now};
use std::collections::BTreeMap;
use thalweg_metadata::Image;
use thalweg_security::acl::{AclFilter, Authorizer, Operation, RawFilter};
use thalweg_wire::request::describe_acls_response::{AclDescription, DescribeAclsResource};
use thalweg_wire::request::{DescribeAclsRequest, DescribeAclsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(
    ApiKey::DescribeAcls,
    1..=3,
    cluster::<DescribeAclsRequest>(&[Operation::Describe]),
    |b, c, d| now(b, c, d, |b, _, r| describe(b.authorizer().as_deref(), &b.image(), r)),
);

/// The ACLs that a filter matches, by their patterns.
pub fn describe(
    authorizer: Option<&Authorizer>,
    image: &Image,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    let refused = |code: ErrorCode, message: &str| DescribeAclsResponse {
        error_code: code.code(),
        error_message: Some(message.to_owned()),
        ..Default::default()
    };
    if authorizer.is_none() {
        return refused(ErrorCode::SecurityDisabled, "No Authorizer is configured on the broker");
    }
    let filter = RawFilter {
        resource_type: request.resource_type_filter,
        resource_name: request.resource_name_filter.as_deref(),
        pattern_type: request.pattern_type_filter,
        principal: request.principal_filter.as_deref(),
        host: request.host_filter.as_deref(),
        operation: request.operation,
        permission: request.permission_type,
    };
    let filter = match AclFilter::try_from(filter) {
        Ok(filter) => filter,
        Err(error) => return refused(ErrorCode::InvalidRequest, &error.to_string()),
    };
    let mut patterns: BTreeMap<(i8, String, i8), Vec<AclDescription>> = BTreeMap::new();
    for (_, entry) in image.acls().iter() {
        if !entry.to_acl().is_ok_and(|acl| filter.matches(&acl)) {
            continue;
        }
        let pattern = (entry.resource_type, entry.resource_name.clone(), entry.pattern_type);
        patterns.entry(pattern).or_default().push(AclDescription {
            principal: entry.principal.clone(),
            host: entry.host.clone(),
            operation: entry.operation,
            permission_type: entry.permission_type,
        });
    }
    let resources = patterns.into_iter().map(|((resource_type, resource_name, pattern_type), acls)| {
        DescribeAclsResource { resource_type, resource_name, pattern_type, acls }
    });
    DescribeAclsResponse { resources: resources.collect(), ..Default::default() }
}
