//! Keys and values that name a schema of a registry, decoded to JSON.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use thalweg_browse::{DecodeBuffer, Decoder, Registry};
use thalweg_client::ChunkError;
use thalweg_record::Record;
use tokio::task::JoinSet;

/// Time limit for the schemas of one chunk of records: far below `max.poll.interval.ms` and the time for
/// which a share group's records are locked.
const SCHEMAS_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of schemas fetched at the same time.
const FETCHES_MAX: usize = 8;

/// The decoder of a command, and the count of its failures.
pub(crate) struct RecordDecoder {
    registry: Arc<Registry>,
    decoder: Decoder,
    key: DecodeBuffer,
    value: DecodeBuffer,
    failed: u64,
    /// The reason for the first failure.
    reason: Option<String>,
}

impl RecordDecoder {
    pub fn new(registry: Arc<Registry>) -> RecordDecoder {
        RecordDecoder {
            decoder: Decoder::of_known(Arc::clone(&registry)),
            registry,
            key: DecodeBuffer::default(),
            value: DecodeBuffer::default(),
            failed: 0,
            reason: None,
        }
    }

    /// Fetches the schemas that the records visited by `walk` name.
    pub async fn prepare(
        &self,
        walk: impl FnOnce(&mut dyn FnMut(&Record<'_>)) -> Result<(), ChunkError>,
    ) -> Result<(), ChunkError> {
        let mut ids = BTreeSet::new();
        walk(&mut |record| {
            let parts = [record.key, record.value].into_iter().flatten();
            ids.extend(parts.filter_map(Decoder::schema_id));
        })?;
        // Schemas that do not come in time are missing for their records alone.
        let _ = tokio::time::timeout(SCHEMAS_WITHIN, self.fetch(ids)).await;
        Ok(())
    }

    async fn fetch(&self, ids: BTreeSet<u32>) {
        let mut ids = ids.into_iter();
        let mut fetching = JoinSet::new();
        loop {
            while fetching.len() < FETCHES_MAX
                && let Some(id) = ids.next()
            {
                let registry = Arc::clone(&self.registry);
                fetching.spawn(async move { registry.prepare(id).await });
            }
            if fetching.join_next().await.is_none() {
                return;
            }
        }
    }

    /// A record with its key and value decoded. A key or value stays unchanged if it names no schema, or does
    /// not fit the schema.
    pub fn decode<'a>(&'a mut self, record: &Record<'a>) -> Record<'a> {
        let mut note = |problem: Option<String>| {
            self.failed += u64::from(problem.is_some());
            self.reason = self.reason.take().or(problem);
        };
        let mut decoded = |bytes: Option<&'a [u8]>, out: &'a mut DecodeBuffer| {
            let whole = bytes?;
            match self.decoder.decode(whole, out) {
                None => Some(whole),
                Some(schema) => {
                    let is_decoded = schema.problem.is_none();
                    note(schema.problem.map(|problem| format!("schema {}: {problem}", schema.id)));
                    Some(if is_decoded { &out.json[..] } else { whole })
                }
            }
        };
        let key = decoded(record.key, &mut self.key);
        let value = decoded(record.value, &mut self.value);
        Record { key, value, ..*record }
    }

    /// Reports the number of keys and values that were not decoded.
    pub fn report(&self) {
        if let Some(reason) = &self.reason {
            // Standard error may be closed.
            let _ = writeln!(
                std::io::stderr(),
                "thalweg: {} keys and values were not decoded: {reason}",
                self.failed
            );
        }
    }
}
