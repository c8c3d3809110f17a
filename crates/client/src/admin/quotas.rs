//! Quotas of users, client ids and addresses (KIP-546, KIP-612).

use std::collections::BTreeMap;
use std::fmt;

use thalweg_dial::ClientError;
use thalweg_wire::request::alter_client_quotas_request::{EntityData, EntryData, OpData};
use thalweg_wire::request::describe_client_quotas_request::ComponentData;
use thalweg_wire::request::{AlterClientQuotasRequest, DescribeClientQuotasRequest};

use super::{Admin, Outcomes, refused};

/// The type of a quota entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaEntityKind {
    User,
    ClientId,
    /// A client's IP address.
    Ip,
}

impl QuotaEntityKind {
    const ALL: [QuotaEntityKind; 3] = [QuotaEntityKind::User, QuotaEntityKind::ClientId, QuotaEntityKind::Ip];

    /// Kafka's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            QuotaEntityKind::User => "user",
            QuotaEntityKind::ClientId => "client-id",
            QuotaEntityKind::Ip => "ip",
        }
    }

    /// The type with this Kafka name.
    pub fn from_name(name: &str) -> Option<QuotaEntityKind> {
        QuotaEntityKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The entity of a quota: a name for each type, or `None` for the default of that type. A user and a client
/// id can be combined.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaEntity(pub BTreeMap<QuotaEntityKind, Option<String>>);

impl fmt::Display for QuotaEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (kind, name)) in self.0.iter().enumerate() {
            let space = if index > 0 { ", " } else { "" };
            match name {
                Some(name) => write!(f, "{space}{} {name}", kind.name())?,
                None => write!(f, "{space}default {}", kind.name())?,
            }
        }
        Ok(())
    }
}

/// A filter of the entities of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaMatch {
    /// The entity with this name.
    Exact(String),
    /// The default entity.
    Default,
    /// All entities, including the default.
    Any,
}

/// A filter of quotas, whose entities must match every part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaFilter {
    /// The filter for each type; empty for all quotas.
    pub parts: BTreeMap<QuotaEntityKind, QuotaMatch>,
    /// True if entities with further types are left out.
    pub strict: bool,
}

/// The quotas of an entity: `producer_byte_rate`, `consumer_byte_rate`, `request_percentage`,
/// `controller_mutation_rate` or `connection_creation_rate`, by name.
pub type Quotas = BTreeMap<String, f64>;

/// Changes of quotas: a value, or `None` to remove the quota.
pub type QuotaChanges = BTreeMap<String, Option<f64>>;

impl Admin {
    /// The quotas that match a filter. Entities of types unknown to this release are left out.
    pub async fn describe_quotas(
        &self,
        filter: &QuotaFilter,
    ) -> Result<BTreeMap<QuotaEntity, Quotas>, ClientError> {
        let components = filter.parts.iter().map(|(kind, wanted)| {
            let (match_type, name) = match wanted {
                QuotaMatch::Exact(name) => (0, Some(name.clone())),
                QuotaMatch::Default => (1, None),
                QuotaMatch::Any => (2, None),
            };
            ComponentData { entity_type: kind.name().to_owned(), match_type, r#match: name }
        });
        let request = DescribeClientQuotasRequest { components: components.collect(), strict: filter.strict };
        let response = self.cluster.send_any(&request).await?;
        refused(response.error_code, response.error_message.as_deref(), || "Describing quotas".to_owned())?;
        let found = response.entries.unwrap_or_default().into_iter().filter_map(|entry| {
            let parts = entry.entity.into_iter();
            let entity = entity(parts.map(|part| (part.entity_type, part.entity_name)))?;
            Some((entity, entry.values.into_iter().map(|value| (value.key, value.value)).collect()))
        });
        Ok(found.collect())
    }

    /// Changes quotas; with `validate_only`, only checks the change. Other quotas of an entity do not change.
    pub async fn alter_quotas(
        &self,
        changes: &BTreeMap<QuotaEntity, QuotaChanges>,
        validate_only: bool,
    ) -> Result<Outcomes<QuotaEntity>, ClientError> {
        let entries = changes.iter().map(|(entity, changes)| {
            let parts = entity.0.iter().map(|(kind, name)| EntityData {
                entity_type: kind.name().to_owned(),
                entity_name: name.clone(),
            });
            let ops = changes.iter().map(|(key, value)| OpData {
                key: key.clone(),
                value: value.unwrap_or_default(),
                remove: value.is_none(),
            });
            EntryData { entity: parts.collect(), ops: ops.collect() }
        });
        let request = AlterClientQuotasRequest { entries: entries.collect(), validate_only };
        let response = self.change(&request, |_| Ok(())).await?;
        let mut outcomes = Outcomes::new();
        for entry in response.entries {
            let parts = entry.entity.into_iter();
            let Some(entity) = entity(parts.map(|part| (part.entity_type, part.entity_name))) else {
                continue;
            };
            let what = || format!("Changing the quotas of {entity}");
            let outcome = refused(entry.error_code, entry.error_message.as_deref(), what);
            outcomes.insert(entity, outcome);
        }
        Ok(outcomes)
    }
}

fn entity(parts: impl Iterator<Item = (String, Option<String>)>) -> Option<QuotaEntity> {
    let parts = parts.map(|(kind, name)| Some((QuotaEntityKind::from_name(&kind)?, name)));
    Some(QuotaEntity(parts.collect::<Option<_>>()?))
}
