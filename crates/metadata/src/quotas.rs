//! Quotas of clients.

use std::collections::BTreeMap;
use thalweg_security::quota::Limits;

/// The entity of a quota: for each relevant type (`user`, `client-id`, `ip`) a name, or `None` for the default of
/// that type.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// All quotas: the values of each entity by their keys, such as `producer_byte_rate`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Quotas {
    entities: BTreeMap<QuotaEntity, BTreeMap<String, f64>>,
}

impl Quotas {
    /// The quotas of an entity.
    pub fn get(&self, entity: &QuotaEntity) -> Option<&BTreeMap<String, f64>> {
        self.entities.get(entity)
    }

    /// All entities that have quotas.
    pub fn iter(&self) -> impl Iterator<Item = (&QuotaEntity, &BTreeMap<String, f64>)> {
        self.entities.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    /// The limits of clients under a key, such as `producer_byte_rate`. Entities of addresses have none.
    pub fn limits(&self, key: &str) -> Limits {
        let mut limits = Limits::default();
        for (entity, values) in &self.entities {
            let part = |name: &str| entity.get(name).map(Option::as_deref);
            let is_of_clients = entity.keys().all(|kind| kind == "user" || kind == "client-id");
            if let (Some(limit), true) = (values.get(key), is_of_clients) {
                limits.set(part("user"), part("client-id"), *limit);
            }
        }
        limits
    }

    pub(crate) fn set(&mut self, entity: QuotaEntity, key: &str, value: Option<f64>) {
        match value {
            Some(value) => {
                self.entities.entry(entity).or_default().insert(key.to_owned(), value);
            }
            None => {
                if let Some(values) = self.entities.get_mut(&entity) {
                    values.remove(key);
                    if values.is_empty() {
                        self.entities.remove(&entity);
                    }
                }
            }
        }
    }
}
