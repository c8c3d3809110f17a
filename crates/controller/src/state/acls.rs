//! CreateAcls and DeleteAcls (Kafka's `AclControlManager`).
//!
//! Departures: an ACL with ANY, or a pattern for filters, is refused alone, with INVALID_REQUEST; Kafka
//! refuses the whole request, with UNKNOWN_SERVER_ERROR. A filter that matches more ACLs than one request may
//! delete is refused with POLICY_VIOLATION and deletes nothing; Kafka returns UNKNOWN_SERVER_ERROR. The work
//! for one request is bounded.

use std::collections::BTreeSet;

use thalweg_metadata::{AccessControlEntry, VersionedRecord};
use thalweg_security::acl::Operation::Alter;
use thalweg_security::acl::{Acl, AclFilter, Authorizer, RawAcl, RawFilter};
use thalweg_wire::metadata::{AccessControlEntryRecord, RemoveAccessControlEntryRecord};
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_acls_response::AclCreationResult;
use thalweg_wire::request::delete_acls_request::DeleteAclsFilter;
use thalweg_wire::request::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl};
use thalweg_wire::request::{CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse};
use thalweg_wire::{ErrorCode, MetadataRecord, Uuid};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_MAX};
use super::{ApiError, Moment, Outcome, RECORDS_PER_REQUEST_MAX, State, too_many_records};

pub(super) const APIS: &[Api] = &[
    Api::new::<CreateAclsRequest>(Cluster(Alter)).anywhere(ELEMENTS_MAX).forwarded(),
    Api::new::<DeleteAclsRequest>(Cluster(Alter)).anywhere(ELEMENTS_MAX).forwarded(),
];

impl Decide for CreateAclsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.create_acls(self)
    }
}

impl Decide for DeleteAclsRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.delete_acls(self)
    }
}

/// Maximum number of comparisons of a filter with an ACL in one request.
const COMPARISONS_MAX: usize = 100_000_000;
/// Maximum number of ACLs in an answer. Overlapping filters list an ACL repeatedly.
const LISTED_MAX: usize = 10 * RECORDS_PER_REQUEST_MAX;

impl State {
    /// CreateAcls. An existing ACL is no error.
    pub fn create_acls(&self, request: &CreateAclsRequest) -> Result<Outcome<CreateAclsResponse>, ApiError> {
        let authorizer = self.authorizer_or_refusal()?;
        let mut new: BTreeSet<AclKey> = BTreeSet::new();
        let (mut records, mut results) = (Vec::new(), Vec::new());
        for creation in &request.creations {
            let (error_code, error_message) = match Acl::to_create(raw(creation)) {
                Ok(acl) => {
                    if !authorizer.contains(&acl) && new.insert(key(&acl)) {
                        records.push(record(acl));
                    }
                    // As in Kafka, the message of a success is empty, not null.
                    (0, Some(String::new()))
                }
                Err(error) => (ErrorCode::InvalidRequest.code(), Some(error.to_string())),
            };
            if records.len() > RECORDS_PER_REQUEST_MAX {
                return Err(too_many_records());
            }
            results.push(AclCreationResult { error_code, error_message });
        }
        Ok(Outcome::new(records, CreateAclsResponse { results, ..Default::default() }))
    }

    /// DeleteAcls: all ACLs that any filter matches.
    pub fn delete_acls(&self, request: &DeleteAclsRequest) -> Result<Outcome<DeleteAclsResponse>, ApiError> {
        self.authorizer_or_refusal()?;
        if request.filters.len().saturating_mul(self.image.acls().len()) > COMPARISONS_MAX {
            return Err(too_many_records());
        }
        let mut deleted: BTreeSet<Uuid> = BTreeSet::new();
        let (mut listed, mut filter_results) = (0, Vec::new());
        for filter in &request.filters {
            let result = match self.matching(filter, &deleted, LISTED_MAX - listed) {
                Ok(matching) => {
                    listed += matching.len();
                    deleted.extend(matching.iter().map(|(id, _)| *id));
                    let matching_acls = matching.into_iter().map(|(_, acl)| described(acl)).collect();
                    DeleteAclsFilterResult { matching_acls, error_message: None, ..Default::default() }
                }
                Err(error) => DeleteAclsFilterResult {
                    error_code: error.code.code(),
                    error_message: error.message,
                    ..Default::default()
                },
            };
            filter_results.push(result);
        }
        let records = deleted.into_iter().map(|id| {
            let record = RemoveAccessControlEntryRecord { id };
            VersionedRecord::new(MetadataRecord::RemoveAccessControlEntry(record), 0)
        });
        let response = DeleteAclsResponse { filter_results, ..Default::default() };
        Ok(Outcome::new(records.collect(), response))
    }

    fn authorizer_or_refusal(&self) -> Result<&Authorizer, ApiError> {
        let refusal = || ApiError::new(ErrorCode::SecurityDisabled, "No Authorizer is configured.");
        self.authorizer.as_ref().ok_or_else(refusal)
    }

    /// The ACLs of a filter, unless there are too many in total.
    fn matching(
        &self,
        filter: &DeleteAclsFilter,
        deleted: &BTreeSet<Uuid>,
        listed_max: usize,
    ) -> Result<Vec<(Uuid, &AccessControlEntry)>, ApiError> {
        let raw = RawFilter {
            resource_type: filter.resource_type_filter,
            resource_name: filter.resource_name_filter.as_deref(),
            pattern_type: filter.pattern_type_filter,
            principal: filter.principal_filter.as_deref(),
            host: filter.host_filter.as_deref(),
            operation: filter.operation,
            permission: filter.permission_type,
        };
        let filter = AclFilter::try_from(raw)
            .map_err(|error| ApiError::new(ErrorCode::InvalidRequest, error.to_string()))?;
        let (mut matching, mut new) = (Vec::new(), 0);
        for (id, entry) in self.image.acls().iter() {
            if !entry.to_acl().is_ok_and(|acl| filter.matches(&acl)) {
                continue;
            }
            new += usize::from(!deleted.contains(&id));
            if deleted.len() + new > RECORDS_PER_REQUEST_MAX || matching.len() >= listed_max {
                let message = format!(
                    "Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation."
                );
                return Err(ApiError::new(ErrorCode::PolicyViolation, message));
            }
            matching.push((id, &**entry));
        }
        Ok(matching)
    }
}

/// The fields that identify an ACL.
type AclKey = (i8, String, i8, String, String, i8, i8);

fn key(acl: &Acl) -> AclKey {
    (
        acl.resource_type.code(),
        acl.resource_name.clone(),
        acl.pattern_type.code(),
        acl.principal.clone(),
        acl.host.clone(),
        acl.operation.code(),
        acl.permission.code(),
    )
}

fn raw(creation: &AclCreation) -> RawAcl<'_> {
    RawAcl {
        resource_type: creation.resource_type,
        resource_name: &creation.resource_name,
        pattern_type: creation.resource_pattern_type,
        principal: &creation.principal,
        host: &creation.host,
        operation: creation.operation,
        permission: creation.permission_type,
    }
}

fn record(acl: Acl) -> VersionedRecord {
    let record = AccessControlEntryRecord {
        id: Uuid::random(),
        resource_type: acl.resource_type.code(),
        resource_name: acl.resource_name,
        pattern_type: acl.pattern_type.code(),
        principal: acl.principal,
        host: acl.host,
        operation: acl.operation.code(),
        permission_type: acl.permission.code(),
    };
    VersionedRecord::new(MetadataRecord::AccessControlEntry(record), 0)
}

fn described(entry: &AccessControlEntry) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl {
        resource_type: entry.resource_type,
        resource_name: entry.resource_name.clone(),
        pattern_type: entry.pattern_type,
        principal: entry.principal.clone(),
        host: entry.host.clone(),
        operation: entry.operation,
        permission_type: entry.permission_type,
        error_message: None,
        ..Default::default()
    }
}
