//! Users with SCRAM credentials, and quotas of clients.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use thalweg_client::{ClientError, Refused, SCRAM_ITERATIONS};
use thalweg_security::sasl::scram::Hash;
use thalweg_wire::request::alter_client_quotas_request::{EntityData, EntryData, OpData};
use thalweg_wire::request::{AlterClientQuotasRequest, DescribeClientQuotasRequest};
use utoipa::ToSchema;

use super::View;
use crate::problem::Problem;

/// A user.
#[derive(Debug, Serialize, ToSchema)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its mechanisms, with how often the password was hashed for each.
    pub mechanisms: BTreeMap<String, i32>,
}

/// A password to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// The user.
    pub name: String,
    /// The password. It does not leave the console: the cluster gets its salted hash.
    pub password: String,
    /// `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    #[serde(default = "strongest")]
    pub mechanism: String,
}

fn strongest() -> String {
    "SCRAM-SHA-512".to_owned()
}

fn name(hash: Hash) -> String {
    thalweg_security::sasl::Mechanism::Scram(hash).name().to_owned()
}

fn hash(mechanism: &str) -> Result<Hash, Problem> {
    let found =
        [Hash::Sha256, Hash::Sha512].into_iter().find(|hash| name(*hash).eq_ignore_ascii_case(mechanism));
    found.ok_or_else(|| {
        Problem::wrong(format!("{mechanism:?} keeps no password: use SCRAM-SHA-256 or SCRAM-SHA-512"))
    })
}

/// Reads all users.
pub async fn list(view: &View) -> Result<Vec<User>, ClientError> {
    let users = view.admin().describe_users(None).await?;
    let users = users.into_iter().map(|(user, credentials)| User {
        name: user,
        mechanisms: credentials.into_iter().map(|(hash, iterations)| (name(hash), iterations)).collect(),
    });
    Ok(users.collect())
}

/// Sets a password, for a user that may be new.
pub async fn set_password(view: &View, new: &NewPassword) -> Result<(), Problem> {
    if new.name.trim().is_empty() || new.password.is_empty() {
        return Err(Problem::wrong("A user needs a name and a password"));
    }
    let iterations: NonZeroU32 = SCRAM_ITERATIONS;
    let hash = hash(&new.mechanism)?;
    Ok(view.admin().set_password(new.name.trim(), hash, &new.password, iterations).await?)
}

/// Removes a credential; a user without any cannot log in.
pub async fn remove(view: &View, user: &str, mechanism: &str) -> Result<(), Problem> {
    Ok(view.admin().remove_credential(user, hash(mechanism)?).await?)
}

/// The quotas of an entity.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuotaLine {
    /// `user`, `client-id` and `ip` with their names; null for the default of all.
    pub entity: BTreeMap<String, Option<String>>,
    /// The limits by name, such as `producer_byte_rate`.
    pub limits: BTreeMap<String, f64>,
}

/// A change of a quota.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaChange {
    /// `user`, `client-id` and `ip` with their names; null for the default of all.
    pub entity: BTreeMap<String, Option<String>>,
    /// The limit, such as `producer_byte_rate`.
    pub limit: String,
    /// Its value; removed if it is left out.
    #[serde(default)]
    pub value: Option<f64>,
}

/// Reads all quotas.
pub async fn quotas(view: &View) -> Result<Vec<QuotaLine>, ClientError> {
    let request = DescribeClientQuotasRequest { components: Vec::new(), strict: false };
    let response = view.cluster().send_any(&request).await?;
    Refused::check(response.error_code, response.error_message.as_deref(), || {
        "Describing quotas".to_owned()
    })?;
    let lines = response.entries.unwrap_or_default().into_iter().map(|entry| QuotaLine {
        entity: entry.entity.into_iter().map(|part| (part.entity_type, part.entity_name)).collect(),
        limits: entry.values.into_iter().map(|value| (value.key, value.value)).collect(),
    });
    let mut lines: Vec<QuotaLine> = lines.collect();
    lines.sort_by(|a, b| a.entity.cmp(&b.entity));
    Ok(lines)
}

/// Sets or removes a quota.
pub async fn set_quota(view: &View, change: &QuotaChange) -> Result<(), Problem> {
    if change.entity.is_empty() {
        return Err(Problem::wrong("A quota needs a user, a client id or an address"));
    }
    if change.value.is_some_and(|value| !value.is_finite() || value <= 0.0) {
        return Err(Problem::wrong("A limit is a number above zero"));
    }
    let entity = change.entity.iter().map(|(entity_type, entity_name)| EntityData {
        entity_type: entity_type.clone(),
        entity_name: entity_name.clone(),
    });
    let op = OpData {
        key: change.limit.trim().to_owned(),
        value: change.value.unwrap_or(0.0),
        remove: change.value.is_none(),
    };
    let entry = EntryData { entity: entity.collect(), ops: vec![op] };
    let request = AlterClientQuotasRequest { entries: vec![entry], validate_only: false };
    let response = view.cluster().send_controller(&request).await?;
    for entry in response.entries {
        let what = || format!("Changing the quota {}", change.limit);
        Refused::check(entry.error_code, entry.error_message.as_deref(), what).map_err(ClientError::from)?;
    }
    Ok(())
}
