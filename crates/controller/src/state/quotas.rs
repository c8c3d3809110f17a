//! AlterClientQuotas (Kafka's `ClientQuotaControlManager`): the limits of users, clients and addresses.
//!
//! Departure: the entity `ip` must be an address; Kafka also accepts a host name that can be resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use thalweg_metadata::{QuotaEntity, VersionedRecord};
use thalweg_security::acl::Operation::AlterConfigs;
use thalweg_wire::metadata::ClientQuotaRecord;
use thalweg_wire::metadata::client_quota_record::EntityData as RecordEntity;
use thalweg_wire::request::alter_client_quotas_request::EntryData;
use thalweg_wire::request::alter_client_quotas_response::{EntityData, EntryData as EntryResult};
use thalweg_wire::request::{AlterClientQuotasRequest, AlterClientQuotasResponse};
use thalweg_wire::{ErrorCode, MetadataRecord};

use super::entry::Access::Cluster;
use super::entry::{Api, Call, Decide, ELEMENTS_MAX};
use super::{ApiError, Moment, Outcome, State};

pub(super) const APIS: &[Api] =
    &[Api::new::<AlterClientQuotasRequest>(Cluster(AlterConfigs)).anywhere(ELEMENTS_MAX).forwarded()];

impl Decide for AlterClientQuotasRequest {
    fn decide(&self, state: &mut State, _: &Call, _: Moment) -> Result<Outcome<Self::Response>, ApiError> {
        state.alter_client_quotas(self)
    }
}

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";

/// Maximum value of a quota that must fit into a 64-bit integer.
const LONG_MAX: f64 = 9_223_372_036_854_775_807.0;

/// The valid values of a quota.
#[derive(Clone, Copy)]
enum Quantity {
    Fraction,
    WholeUpTo(f64, &'static str),
}

impl State {
    /// AlterClientQuotas. Changes to an entity are atomic.
    pub fn alter_client_quotas(
        &self,
        request: &AlterClientQuotasRequest,
    ) -> Result<Outcome<AlterClientQuotasResponse>, ApiError> {
        let mut records = Vec::new();
        let mut done: BTreeSet<QuotaEntity> = BTreeSet::new();
        let mut entries = Vec::new();
        for entry in &request.entries {
            let altered = entity(entry).and_then(|entity| {
                if done.contains(&entity) {
                    return Err(invalid("Ignoring duplicate entity"));
                }
                let records = self.alter_entity(&entity, entry)?;
                done.insert(entity);
                Ok(records)
            });
            let (error_code, error_message) = super::add_records(&mut records, altered)?;
            let entity = entry.entity.iter().map(|part| EntityData {
                entity_type: part.entity_type.clone(),
                entity_name: part.entity_name.clone(),
            });
            entries.push(EntryResult { error_code, error_message, entity: entity.collect() });
        }
        if request.validate_only {
            records.clear();
        }
        Ok(Outcome::new(records, AlterClientQuotasResponse { entries, ..Default::default() }))
    }

    fn alter_entity(
        &self,
        entity: &QuotaEntity,
        entry: &EntryData,
    ) -> Result<Vec<VersionedRecord>, ApiError> {
        let nothing = BTreeMap::new();
        let current = self.image.quotas().get(entity).unwrap_or(&nothing);
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut records = Vec::new();
        for op in &entry.ops {
            if !seen.insert(&op.key) {
                return Err(invalid(format!(
                    "Duplicate quota key {} not updating quota for this entity",
                    op.key
                )));
            }
            let before = current.get(&op.key);
            if !op.remove {
                check(entity, &op.key, op.value)?;
            }
            let is_change = if op.remove { before.is_some() } else { before != Some(&op.value) };
            if is_change {
                let parts = entity.iter().map(|(entity_type, entity_name)| RecordEntity {
                    entity_type: entity_type.clone(),
                    entity_name: entity_name.clone(),
                });
                let record = ClientQuotaRecord {
                    entity: parts.collect(),
                    key: op.key.clone(),
                    value: if op.remove { 0.0 } else { op.value },
                    remove: op.remove,
                };
                records.push(VersionedRecord::new(MetadataRecord::ClientQuota(record), 0));
            }
        }
        Ok(records)
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

/// The entity, if its types can be combined.
fn entity(entry: &EntryData) -> Result<QuotaEntity, ApiError> {
    let mut entity = QuotaEntity::new();
    for part in &entry.entity {
        let kind = part.entity_type.as_str();
        if !matches!(kind, USER | CLIENT_ID | IP) {
            return Err(invalid(format!("Unhandled client quota entity type: {kind}")));
        }
        if part.entity_name.as_deref() == Some("") {
            return Err(invalid(format!("Empty {kind} not supported")));
        }
        if entity.insert(kind.to_owned(), part.entity_name.clone()).is_some() {
            return Err(invalid(format!("Invalid client quota entity, duplicate entity entry {kind}")));
        }
    }
    if entity.is_empty() {
        return Err(invalid("Invalid empty client quota entity"));
    }
    if let Some(address) = entity.get(IP) {
        if entity.len() > 1 {
            return Err(invalid(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
            ));
        }
        if let Some(address) = address
            && address.parse::<IpAddr>().is_err()
        {
            return Err(invalid(format!("{address} is not a valid IP or resolvable host.")));
        }
    }
    Ok(entity)
}

fn check(entity: &QuotaEntity, key: &str, value: f64) -> Result<(), ApiError> {
    let quantity = match (entity.contains_key(IP), key) {
        (false, "producer_byte_rate" | "consumer_byte_rate") => Quantity::WholeUpTo(LONG_MAX, "a LONG"),
        (false, "request_percentage" | "controller_mutation_rate") => Quantity::Fraction,
        (true, "connection_creation_rate") => Quantity::WholeUpTo(f64::from(i32::MAX), "an INT"),
        _ => return Err(invalid(format!("Invalid configuration key {key}"))),
    };
    // NaN is invalid as well.
    if value.is_nan() || value <= 0.0 {
        return Err(invalid(format!("Quota {key} must be greater than 0")));
    }
    match quantity {
        Quantity::WholeUpTo(max, kind) if value > max => {
            Err(invalid(format!("Proposed value for {key} is too large for {kind}.")))
        }
        Quantity::WholeUpTo(..) if value.fract() > 1e-6 => {
            Err(invalid(format!("{key} cannot be a fractional value.")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use thalweg_wire::request::alter_client_quotas_request::EntityData;

    use super::*;

    fn entry(parts: &[(&str, Option<&str>)]) -> EntryData {
        let entity = parts.iter().map(|(kind, name)| EntityData {
            entity_type: (*kind).to_owned(),
            entity_name: name.map(str::to_owned),
        });
        EntryData { entity: entity.collect(), ops: Vec::new() }
    }

    fn refusal(parts: &[(&str, Option<&str>)], key: &str, value: f64) -> Option<String> {
        let checked = entity(&entry(parts)).and_then(|entity| check(&entity, key, value));
        checked.err().map(|error| {
            assert_eq!(error.code, ErrorCode::InvalidRequest);
            error.message.expect("a message")
        })
    }

    #[test]
    fn quotas_are_refused_in_kafkas_words() {
        let message = |text: &str| Some(text.to_owned());
        let (user, ip): (&[_], &[_]) =
            (&[("user", Some("u")), ("client-id", None)], &[("ip", Some("1.2.3.4"))]);
        assert_eq!(refusal(user, "producer_byte_rate", 10.0), None);
        assert_eq!(refusal(user, "request_percentage", 50.5), None);
        assert_eq!(refusal(ip, "connection_creation_rate", 10.0), None);
        assert_eq!(refusal(&[("ip", None)], "connection_creation_rate", 10.0), None);
        assert_eq!(
            refusal(user, "producer_byte_rate", 10.5),
            message("producer_byte_rate cannot be a fractional value.")
        );
        assert_eq!(
            refusal(user, "producer_byte_rate", 0.0),
            message("Quota producer_byte_rate must be greater than 0")
        );
        assert_eq!(refusal(user, "nope", 1.0), message("Invalid configuration key nope"));
        assert_eq!(
            refusal(ip, "producer_byte_rate", 1.0),
            message("Invalid configuration key producer_byte_rate")
        );
        assert_eq!(
            refusal(ip, "connection_creation_rate", 3e9),
            message("Proposed value for connection_creation_rate is too large for an INT.")
        );
        assert_eq!(refusal(&[], "producer_byte_rate", 1.0), message("Invalid empty client quota entity"));
        assert_eq!(
            refusal(&[("ip", Some("x"))], "connection_creation_rate", 1.0),
            message("x is not a valid IP or resolvable host.")
        );
        assert_eq!(
            refusal(&[("foo", None)], "nope", 1.0),
            message("Unhandled client quota entity type: foo")
        );
        assert_eq!(refusal(&[("user", Some(""))], "nope", 1.0), message("Empty user not supported"));
        assert!(
            refusal(&[("user", None), ("ip", None)], "nope", 1.0).expect("refused").contains("combination")
        );
        assert!(refusal(user, "request_percentage", f64::NAN).is_some());
    }
}
