//! Access control lists.

use thalweg_dial::ClientError;
use thalweg_security::acl::{Acl, AclFilter, Operation, PatternType, Permission, ResourceType};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::delete_acls_request::DeleteAclsFilter;
use thalweg_wire::request::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};

use super::{Admin, refused};

impl Admin {
    /// The ACLs that a filter matches. ACLs with terms unknown to this release are left out.
    pub async fn describe_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, ClientError> {
        let request = DescribeAclsRequest {
            resource_type_filter: filter.resource_type.code(),
            resource_name_filter: filter.resource_name.clone(),
            pattern_type_filter: filter.pattern_type.code(),
            principal_filter: filter.principal.clone(),
            host_filter: filter.host.clone(),
            operation: filter.operation.code(),
            permission_type: filter.permission.code(),
        };
        let response = self.cluster.send_any(&request).await?;
        refused(response.error_code, response.error_message.as_deref(), || "Listing ACLs".to_owned())?;
        let acls = response.resources.into_iter().flat_map(|resource| {
            let (kind, pattern, name) =
                (resource.resource_type, resource.pattern_type, resource.resource_name);
            resource.acls.into_iter().filter_map(move |entry| {
                let terms = (kind, pattern, entry.operation, entry.permission_type);
                acl(terms, name.clone(), entry.principal, entry.host)
            })
        });
        Ok(acls.collect())
    }

    /// Creates ACLs; existing ACLs stay unchanged.
    pub async fn create_acls(&self, acls: &[Acl]) -> Result<(), ClientError> {
        let creations = acls.iter().map(|acl| AclCreation {
            resource_type: acl.resource_type.code(),
            resource_name: acl.resource_name.clone(),
            resource_pattern_type: acl.pattern_type.code(),
            principal: acl.principal.clone(),
            host: acl.host.clone(),
            operation: acl.operation.code(),
            permission_type: acl.permission.code(),
        });
        let request = CreateAclsRequest { creations: creations.collect() };
        let response = self.change(&request, |_| Ok(())).await?;
        for (result, acl) in response.results.iter().zip(acls) {
            let what = || format!("Creating the ACL {acl}");
            refused(result.error_code, result.error_message.as_deref(), what)?;
        }
        Ok(())
    }

    /// Deletes the ACLs that a filter matches, and returns them.
    pub async fn delete_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, ClientError> {
        let wanted = DeleteAclsFilter {
            resource_type_filter: filter.resource_type.code(),
            resource_name_filter: filter.resource_name.clone(),
            pattern_type_filter: filter.pattern_type.code(),
            principal_filter: filter.principal.clone(),
            host_filter: filter.host.clone(),
            operation: filter.operation.code(),
            permission_type: filter.permission.code(),
        };
        let request = DeleteAclsRequest { filters: vec![wanted] };
        let response = self.change(&request, |_| Ok(())).await?;
        let what = || "Deleting ACLs".to_owned();
        let mut deleted = Vec::new();
        for result in response.filter_results {
            refused(result.error_code, result.error_message.as_deref(), what)?;
            for entry in result.matching_acls {
                refused(entry.error_code, entry.error_message.as_deref(), what)?;
                let terms = (entry.resource_type, entry.pattern_type, entry.operation, entry.permission_type);
                deleted.extend(acl(terms, entry.resource_name, entry.principal, entry.host));
            }
        }
        Ok(deleted)
    }
}

fn acl(
    (kind, pattern, operation, permission): (i8, i8, i8, i8),
    resource_name: String,
    principal: String,
    host: String,
) -> Option<Acl> {
    Some(Acl {
        resource_type: ResourceType::from_code(kind)?,
        resource_name,
        pattern_type: PatternType::from_code(pattern)?,
        principal,
        host,
        operation: Operation::from_code(operation)?,
        permission: Permission::from_code(permission)?,
    })
}
