//! A schema registry: keys and values that begin with a zero and a schema's id (Confluent's wire format) are decoded to JSON.
//!
//! Avro is decoded, JSON Schema is JSON already. Protobuf is named, and its bytes are left as they are. Schemas are fetched once
//! and kept, up to a limit; a failure is remembered for a while, so that a registry that is down is not asked for each message.

mod avro;
mod http;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::message::SchemaNote;
use http::Http;

/// The most schemas that are kept.
const SCHEMAS_MAX: usize = 1000;
/// How long a failure is remembered.
const FAILED_FOR: Duration = Duration::from_secs(10);
/// The most schemas that one refers to, directly and indirectly.
const REFERENCES_MAX: usize = 32;
/// A zero and the id.
const PREFIX_BYTES: usize = 5;

/// A registry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schema registry {url:?}: {reason}")]
pub struct InvalidRegistry {
    /// The address as given, without a password.
    pub url: String,
    /// The fault, and how to correct it.
    pub reason: String,
}

/// A registry.
#[derive(Debug)]
pub struct Registry {
    http: Http,
    schemas: Mutex<BTreeMap<u32, Entry>>,
}

#[derive(Clone, Debug)]
enum Entry {
    Known(Arc<Schema>),
    Failed(String, Instant),
}

#[derive(Debug)]
struct Schema {
    kind: String,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Avro(avro::Schema),
    Json,
    /// Why its messages are not decoded.
    Other(String),
}

/// A decoder for the threads of a search.
pub struct Decoder {
    registry: Arc<Registry>,
    runtime: Handle,
}

/// Memory for a decoded value.
#[derive(Debug, Default)]
pub struct Decoded {
    pub json: Vec<u8>,
}

impl Registry {
    /// The registry at an address, such as `http://localhost:8081`, or `https://user:password@host`.
    pub fn new(url: &str) -> Result<Registry, InvalidRegistry> {
        Ok(Registry { http: Http::new(url)?, schemas: Mutex::default() })
    }

    async fn schema(&self, id: u32) -> Result<Arc<Schema>, String> {
        match self.schemas.lock().get(&id) {
            Some(Entry::Known(schema)) => return Ok(Arc::clone(schema)),
            Some(Entry::Failed(why, until)) if *until > Instant::now() => return Err(why.clone()),
            _ => {}
        }
        let fetched = self.fetch(id).await;
        let mut schemas = self.schemas.lock();
        if schemas.len() >= SCHEMAS_MAX {
            // Which one does not matter: it can be fetched again.
            schemas.pop_first();
        }
        let entry = match &fetched {
            Ok(schema) => Entry::Known(Arc::clone(schema)),
            Err(why) => Entry::Failed(why.clone(), Instant::now() + FAILED_FOR),
        };
        schemas.insert(id, entry);
        fetched
    }

    async fn fetch(&self, id: u32) -> Result<Arc<Schema>, String> {
        let answer = self.http.get(&format!("/schemas/ids/{id}")).await?;
        let kind = answer["schemaType"].as_str().unwrap_or("AVRO").to_owned();
        let form = match kind.as_str() {
            "AVRO" => {
                let mut texts = self.referred(&answer).await?;
                texts.push(text_of(&answer)?);
                Form::Avro(
                    avro::Schema::parse(&texts)
                        .map_err(|reason| format!("its schema is unreadable: {reason}"))?,
                )
            }
            "JSON" => Form::Json,
            other => Form::Other(format!("{other} is not decoded; Avro and JSON are")),
        };
        Ok(Arc::new(Schema { kind, form }))
    }

    /// The schemas that one refers to, each after those that it refers to itself.
    async fn referred(&self, answer: &Value) -> Result<Vec<String>, String> {
        let mut texts = Vec::new();
        let mut known: Vec<(String, i64)> = Vec::new();
        // Answers whose references are still to be followed, and the next of them.
        let mut open: Vec<(Value, usize)> = vec![(answer.clone(), 0)];
        while let Some((answer, next)) = open.pop() {
            let Some(reference) = answer["references"].get(next) else {
                if !open.is_empty() {
                    texts.push(text_of(&answer)?);
                }
                continue;
            };
            let subject = reference["subject"].as_str().unwrap_or_default().to_owned();
            let version = reference["version"].as_i64().unwrap_or(-1);
            open.push((answer.clone(), next + 1));
            if known.contains(&(subject.clone(), version)) {
                continue;
            }
            if known.len() == REFERENCES_MAX {
                return Err(format!("its schema refers to more than {REFERENCES_MAX} others"));
            }
            let path = format!("/subjects/{}/versions/{version}", http::escaped(&subject));
            known.push((subject, version));
            open.push((self.http.get(&path).await?, 0));
        }
        Ok(texts)
    }
}

fn text_of(answer: &Value) -> Result<String, String> {
    answer["schema"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| "the registry's answer has no schema".to_owned())
}

impl Decoder {
    /// A decoder of a registry, for threads outside the runtime.
    pub fn new(registry: Arc<Registry>, runtime: Handle) -> Decoder {
        Decoder { registry, runtime }
    }

    /// Decodes bytes that name a schema to `out`; none if they name none. A note with a problem leaves them undecoded.
    pub fn decode(&self, bytes: &[u8], out: &mut Decoded) -> Option<SchemaNote> {
        let (prefix, body) = bytes.split_at_checked(PREFIX_BYTES)?;
        let [0, id @ ..] = *prefix.first_chunk::<PREFIX_BYTES>()? else { return None };
        let id = u32::from_be_bytes(id);
        out.json.clear();
        let schema = match self.runtime.block_on(self.registry.schema(id)) {
            Ok(schema) => schema,
            Err(why) => return Some(SchemaNote { id, kind: String::new(), problem: Some(why) }),
        };
        let problem = match &schema.form {
            Form::Avro(schema) => schema.decode(body, &mut out.json).err(),
            Form::Json => {
                out.json.extend_from_slice(body);
                None
            }
            Form::Other(why) => Some(why.clone()),
        };
        Some(SchemaNote { id, kind: schema.kind.clone(), problem })
    }
}
