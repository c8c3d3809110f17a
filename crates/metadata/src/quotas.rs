//! Client quotas.

use std::collections::BTreeMap;
use thalweg_security::quota::Limits;

/// The entity of a quota: names by type (`user`, `client-id`, `ip`); `None` for the default of a type.
pub type QuotaEntity = BTreeMap<String, Option<String>>;

/// All quotas: values by entity and key, such as `producer_byte_rate`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Quotas {
    entities: BTreeMap<QuotaEntity, BTreeMap<String, f64>>,
}

impl Quotas {
    /// The quotas of an entity.
    pub fn get(&self, entity: &QuotaEntity) -> Option<&BTreeMap<String, f64>> {
        self.entities.get(entity)
    }

    /// All entities with quotas.
    pub fn iter(&self) -> impl Iterator<Item = (&QuotaEntity, &BTreeMap<String, f64>)> {
        self.entities.iter()
    }

    /// True without quotas.
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    /// The client limits of a key, such as `producer_byte_rate`. Quotas of `ip` entities are not included.
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
