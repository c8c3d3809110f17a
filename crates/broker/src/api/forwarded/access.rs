//! The forwarded APIs about ACLs, users and quotas. Audit events never show passwords and salts.

use super::changing;
use crate::api::Api;
use crate::api::entry::RefusalMessage;
use crate::audit::{Changes, ClusterChange, listed};
use std::collections::BTreeMap;
use thalweg_audit::Action;
use thalweg_security::acl::{Acl, AclInWords, Operation, PatternType, Permission, ResourceType};
use thalweg_security::sasl::Mechanism;
use thalweg_security::sasl::scram::Hash;
use thalweg_wire::request::alter_client_quotas_request::EntryData;
use thalweg_wire::request::*;

pub(super) const APIS: &[Api] = &[
    changing::<CreateAclsRequest>(1..=3),
    changing::<DeleteAclsRequest>(1..=3),
    changing::<AlterClientQuotasRequest>(0..=1).refusal_message(RefusalMessage::Standard),
    changing::<AlterUserScramCredentialsRequest>(0..=0),
];

const ACL: &str = "Acl";
const USER: &str = "User";

impl ClusterChange for CreateAclsRequest {
    fn describe(&self, answer: &CreateAclsResponse, changes: &mut Changes<'_>) {
        for (acl, result) in self.creations.iter().zip(&answer.results) {
            let text = in_words(
                acl.resource_type,
                &acl.resource_name,
                acl.resource_pattern_type,
                (&acl.principal, &acl.host),
                (acl.operation, acl.permission_type),
            );
            let ending = (result.error_code, result.error_message.as_deref());
            changes.note(Action::Create, ACL, &acl.principal, text, ending);
        }
    }
}

impl ClusterChange for DeleteAclsRequest {
    fn describe(&self, answer: &DeleteAclsResponse, changes: &mut Changes<'_>) {
        for (filter, result) in self.filters.iter().zip(&answer.filter_results) {
            if result.error_code != 0 {
                let principal = filter.principal_filter.as_deref().unwrap_or("*");
                changes.note(
                    Action::Delete,
                    ACL,
                    principal,
                    String::new(),
                    (result.error_code, result.error_message.as_deref()),
                );
            }
            for acl in &result.matching_acls {
                let text = in_words(
                    acl.resource_type,
                    &acl.resource_name,
                    acl.pattern_type,
                    (&acl.principal, &acl.host),
                    (acl.operation, acl.permission_type),
                );
                let ending = (acl.error_code, acl.error_message.as_deref());
                changes.note(Action::Delete, ACL, &acl.principal, text, ending);
            }
        }
    }
}

/// The ACL in Kafka's words, or its raw numbers if it is invalid.
fn in_words(
    resource_type: i8,
    resource_name: &str,
    pattern_type: i8,
    (principal, host): (&str, &str),
    (operation, permission): (i8, i8),
) -> String {
    let known = (
        ResourceType::from_code(resource_type),
        PatternType::from_code(pattern_type),
        Operation::from_code(operation),
        Permission::from_code(permission),
    );
    let (Some(resource_type), Some(pattern_type), Some(operation), Some(permission)) = known else {
        return format!(
            "resourceType={resource_type} resourceName={resource_name} patternType={pattern_type} principal={principal} \
             host={host} operation={operation} permissionType={permission}"
        );
    };
    let acl = Acl {
        resource_type,
        resource_name: resource_name.to_owned(),
        pattern_type,
        principal: principal.to_owned(),
        host: host.to_owned(),
        operation,
        permission,
    };
    AclInWords(&acl).to_string()
}

impl ClusterChange for AlterUserScramCredentialsRequest {
    fn describe(&self, answer: &AlterUserScramCredentialsResponse, changes: &mut Changes<'_>) {
        let endings: BTreeMap<&str, _> = answer
            .results
            .iter()
            .map(|result| (&*result.user, (result.error_code, result.error_message.as_deref())))
            .collect();
        let ending = |user: &str| endings.get(user).copied().unwrap_or((0, None));
        let mechanism = |code| Hash::from_code(code).map_or("unknown", |hash| Mechanism::Scram(hash).name());
        for user in &self.deletions {
            let detail = format!("mechanism={}", mechanism(user.mechanism));
            changes.note(Action::Delete, USER, &user.name, detail, ending(&user.name));
        }
        for user in &self.upsertions {
            let detail = format!("mechanism={} iterations={}", mechanism(user.mechanism), user.iterations);
            changes.note(Action::Update, USER, &user.name, detail, ending(&user.name));
        }
    }
}

impl ClusterChange for AlterClientQuotasRequest {
    fn describe(&self, answer: &AlterClientQuotasResponse, changes: &mut Changes<'_>) {
        if self.validate_only {
            return;
        }
        let of =
            |entity: &EntryData| {
                let parts = entity.entity.iter();
                listed(parts.map(|part| {
                    (&*part.entity_type, part.entity_name.clone().unwrap_or("<default>".to_owned()))
                }))
            };
        for (entry, result) in self.entries.iter().zip(&answer.entries) {
            let ops = entry.ops.iter().map(|op| match op.remove {
                true => (&*op.key, "removed".to_owned()),
                false => (&*op.key, op.value.to_string()),
            });
            let ending = (result.error_code, result.error_message.as_deref());
            changes.note(Action::Update, "ClientQuota", &of(entry), listed(ops), ending);
        }
    }
}
