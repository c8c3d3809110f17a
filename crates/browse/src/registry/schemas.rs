//! The schemas of a registry in memory: a bounded number, in fair shares of the principals that asked first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_places::gives_way;
use tokio::time::Instant;

use super::Schema;

/// Maximum number of cached schemas and failures.
const SCHEMAS_MAX: usize = 1000;
/// Time for which a failure is cached, at first and at most. Each further failure doubles the time.
const FAILED_FOR: Duration = Duration::from_secs(10);
const FAILED_FOR_MAX: Duration = Duration::from_secs(160);

/// Cached schemas, and the reasons for failures.
#[derive(Debug, Default)]
pub struct Schemas {
    entries: BTreeMap<u32, Entry>,
    /// The number of uses, which orders the entries by their last use.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    outcome: Result<Arc<Schema>, Failure>,
    /// The principal whose message had the id first.
    principal: Arc<str>,
    used: u64,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    until: Instant,
    pause: Duration,
}

impl Schemas {
    /// A cached schema, or the reason for a failure that need not be repeated yet.
    pub fn get(&mut self, id: u32) -> Option<Result<Arc<Schema>, String>> {
        self.uses += 1;
        let entry = self.entries.get_mut(&id)?;
        entry.used = self.uses;
        match &entry.outcome {
            Ok(schema) => Some(Ok(Arc::clone(schema))),
            Err(failure) if failure.until > Instant::now() => Some(Err(failure.reason.clone())),
            Err(_) => None,
        }
    }

    /// Keeps the answer of the registry. In a full table, an entry of the principal with the most gives way.
    pub fn put(&mut self, id: u32, principal: &Arc<str>, answer: Result<Arc<Schema>, String>) {
        let before = self.entries.remove(&id);
        let pause = match before.as_ref().map(|entry| &entry.outcome) {
            Some(Err(failure)) => (failure.pause * 2).min(FAILED_FOR_MAX),
            _ => FAILED_FOR,
        };
        if self.entries.len() >= SCHEMAS_MAX {
            let entries = self.entries.iter();
            let evicted =
                gives_way(entries, principal, |(_, entry)| &entry.principal, |(_, entry)| entry.used);
            if let Some(id) = evicted.map(|(id, _)| *id) {
                self.entries.remove(&id);
            }
        }
        let outcome = answer.map_err(|reason| Failure { reason, until: Instant::now() + pause, pause });
        let principal = before.map_or_else(|| Arc::clone(principal), |entry| entry.principal);
        self.uses += 1;
        self.entries.insert(id, Entry { outcome, principal, used: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Form;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_repeated_after_growing_times() {
        let (mut schemas, ann) = (Schemas::default(), Arc::from("ann"));
        for seconds in [10, 20, 40, 80, 160, 160] {
            schemas.put(7, &ann, Err("404".to_owned()));
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert!(matches!(schemas.get(7), Some(Err(_))), "{seconds} s");
            tokio::time::advance(Duration::from_millis(2)).await;
            assert!(schemas.get(7).is_none(), "{seconds} s");
        }
    }

    #[test]
    fn unknown_ids_of_one_principal_displace_no_schemas_of_others() {
        let (mut schemas, [ann, eve]) = (Schemas::default(), ["ann", "eve"].map(Arc::from));
        for id in 0..100 {
            schemas.put(id, &ann, Ok(Arc::new(Schema { kind: "JSON".to_owned(), form: Form::Json })));
        }
        for id in 1000..5000 {
            schemas.put(id, &eve, Err("404".to_owned()));
        }
        assert!((0..100).all(|id| matches!(schemas.get(id), Some(Ok(_)))));
        assert_eq!(schemas.entries.len(), SCHEMAS_MAX);
        assert!(schemas.get(4999).is_some() && schemas.get(1000).is_none());
    }
}
