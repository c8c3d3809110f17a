//! Users with SCRAM credentials, and quotas of clients.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use thalweg_client::{ClientError, QuotaEntity, QuotaEntityKind, QuotaFilter, SCRAM_ITERATIONS};
use thalweg_security::sasl::scram::Hash;
use utoipa::ToSchema;

use super::View;
use crate::problem::Problem;

/// A user with SCRAM credentials.
#[derive(Debug, Serialize, ToSchema)]
pub struct User {
    /// The user name.
    pub name: String,
    /// SCRAM mechanisms, with the number of hash iterations.
    pub mechanisms: BTreeMap<String, i32>,
}

/// A password to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// The user name.
    pub name: String,
    /// The password, which stays in the console: the cluster gets only the salted hash.
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

/// Lists all users with SCRAM credentials.
pub async fn list(view: &View) -> Result<Vec<User>, ClientError> {
    let users = view.admin().describe_users(None).await?;
    let users = users.into_iter().map(|(user, credentials)| User {
        name: user,
        mechanisms: credentials.into_iter().map(|(hash, iterations)| (name(hash), iterations)).collect(),
    });
    Ok(users.collect())
}

/// Finds a user with a credential for this mechanism.
pub async fn find(view: &View, user: &str, mechanism: &str) -> Result<User, Problem> {
    let mechanism = name(hash(mechanism)?);
    let mut users = list(view).await?.into_iter();
    let found = users.find(|found| found.name == user && found.mechanisms.contains_key(&mechanism));
    found.ok_or_else(|| Problem::missing(format!("{user} has no password for {mechanism}")))
}

/// Sets the password of a new or existing user.
pub async fn set_password(view: &View, new: &NewPassword) -> Result<(), Problem> {
    if new.name.trim().is_empty() || new.password.is_empty() {
        return Err(Problem::wrong("A user needs a name and a password"));
    }
    let iterations: NonZeroU32 = SCRAM_ITERATIONS;
    let hash = hash(&new.mechanism)?;
    Ok(view.admin().set_password(new.name.trim(), hash, &new.password, iterations).await?)
}

/// Removes a credential. A user without credentials cannot log in.
pub async fn remove(view: &View, user: &str, mechanism: &str) -> Result<(), Problem> {
    Ok(view.admin().remove_credential(user, hash(mechanism)?).await?)
}

/// The quotas of an entity.
#[derive(Debug, Serialize, ToSchema)]
pub struct QuotaLine {
    /// Names of `user`, `client-id` and `ip`; null for the default entity.
    pub entity: BTreeMap<String, Option<String>>,
    /// Limits by quota name, such as `producer_byte_rate`.
    pub limits: BTreeMap<String, f64>,
}

/// A change of a quota.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaChange {
    /// Names of `user`, `client-id` and `ip`; null for the default entity.
    pub entity: BTreeMap<String, Option<String>>,
    /// The quota name, such as `producer_byte_rate`.
    pub limit: String,
    /// The new limit. Default: none, which removes the quota.
    #[serde(default)]
    pub value: Option<f64>,
}

/// Lists all quotas.
pub async fn quotas(view: &View) -> Result<Vec<QuotaLine>, ClientError> {
    let found = view.admin().describe_quotas(&QuotaFilter::default()).await?;
    let lines = found.into_iter().map(|(entity, limits)| QuotaLine {
        entity: entity.0.into_iter().map(|(kind, name)| (kind.name().to_owned(), name)).collect(),
        limits,
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
    let parts = change.entity.iter().map(|(kind, name)| match QuotaEntityKind::from_name(kind) {
        Some(kind) => Ok((kind, name.clone())),
        None => Err(Problem::wrong(format!("{kind:?} has no quotas: use user, client-id or ip"))),
    });
    let entity = QuotaEntity(parts.collect::<Result<_, Problem>>()?);
    let limits = BTreeMap::from([(change.limit.trim().to_owned(), change.value)]);
    let outcomes = view.admin().alter_quotas(&BTreeMap::from([(entity, limits)]), false).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    Ok(())
}
