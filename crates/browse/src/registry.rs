//! A schema registry: keys and values that begin with a zero byte and a schema id (Confluent's wire format)
//! are decoded to JSON.
//!
//! Avro and Protobuf are decoded; JSON Schema data is already JSON. Schemas are fetched once and cached, up
//! to a limit. Failures are cached for a short time, so that a registry that is down is not asked for each
//! message.

mod avro;
mod http;
mod protobuf;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::message::SchemaNote;
use http::Http;

/// Maximum number of cached schemas.
const SCHEMAS_MAX: usize = 1000;
/// Time for which a failure is cached.
const FAILED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of direct and indirect references of a schema.
const REFERENCES_MAX: usize = 32;
/// A zero byte and the id.
const PREFIX_BYTES: usize = 5;

/// An unusable registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schema registry {url:?}: {reason}")]
pub struct InvalidRegistry {
    /// The address as configured, without a password.
    pub url: String,
    /// The fault, and how to correct it.
    pub reason: String,
}

/// A schema registry with a cache.
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
    Protobuf(protobuf::Schema),
    Json,
    /// The reason why messages are not decoded.
    Other(String),
}

/// A schema referenced by another schema.
struct Reference {
    /// The name in the reference.
    name: String,
    text: String,
}

/// Decodes keys and values.
#[derive(Debug)]
pub struct Decoder {
    registry: Arc<Registry>,
    /// The runtime for fetching unknown schemas. Without a runtime, only cached schemas are used.
    runtime: Option<Handle>,
}

/// The buffer of a decoded value.
#[derive(Debug, Default)]
pub struct DecodeBuffer {
    /// The value as JSON.
    pub json: Vec<u8>,
}

impl Registry {
    /// The registry at an address such as `http://localhost:8081` or `https://user:password@host`.
    pub fn new(url: &str) -> Result<Registry, InvalidRegistry> {
        Registry::with_login(url, None)
    }

    /// The registry at an address, with a login in the form `user:password`.
    pub fn with_login(url: &str, login: Option<&str>) -> Result<Registry, InvalidRegistry> {
        Ok(Registry { http: Http::new(url, login)?, schemas: Mutex::default() })
    }

    /// Fetches a schema unless cached, for use by a [`Decoder::of_known`].
    pub async fn prepare(&self, id: u32) {
        // The failure is cached, and the decoder reports it.
        let _ = self.schema(id).await;
    }

    fn known(&self, id: u32) -> Option<Result<Arc<Schema>, String>> {
        match self.schemas.lock().get(&id)? {
            Entry::Known(schema) => Some(Ok(Arc::clone(schema))),
            Entry::Failed(why, until) if *until > Instant::now() => Some(Err(why.clone())),
            Entry::Failed(..) => None,
        }
    }

    async fn schema(&self, id: u32) -> Result<Arc<Schema>, String> {
        if let Some(known) = self.known(id) {
            return known;
        }
        let fetched = self.fetch(id).await;
        let mut schemas = self.schemas.lock();
        if schemas.len() >= SCHEMAS_MAX {
            // Any entry may be evicted, because a schema can be fetched again.
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
                let referred = self.referred(&answer).await?;
                let mut texts: Vec<String> = referred.into_iter().map(|reference| reference.text).collect();
                texts.push(text_of(&answer)?);
                Form::Avro(
                    avro::Schema::parse(&texts)
                        .map_err(|reason| format!("its schema is unreadable: {reason}"))?,
                )
            }
            "PROTOBUF" => {
                let referred = self.referred(&answer).await?;
                let files = referred.into_iter().map(|reference| (reference.name, reference.text)).collect();
                Form::Protobuf(
                    protobuf::Schema::parse(text_of(&answer)?, files)
                        .map_err(|reason| format!("its schema is unreadable: {reason}"))?,
                )
            }
            "JSON" => Form::Json,
            other => Form::Other(format!("{other} is not decoded; Avro, Protobuf and JSON are")),
        };
        Ok(Arc::new(Schema { kind, form }))
    }

    /// The references of a schema, in dependency order.
    async fn referred(&self, answer: &Value) -> Result<Vec<Reference>, String> {
        let mut found = Vec::new();
        let mut known: Vec<(String, i64)> = Vec::new();
        // Schemas with unresolved references: name, answer, and index of the next reference.
        let mut open: Vec<(String, Value, usize)> = vec![(String::new(), answer.clone(), 0)];
        while let Some((name, answer, next)) = open.pop() {
            let Some(reference) = answer["references"].get(next) else {
                if !open.is_empty() {
                    found.push(Reference { name, text: text_of(&answer)? });
                }
                continue;
            };
            let refers_to = reference["name"].as_str().unwrap_or_default().to_owned();
            let subject = reference["subject"].as_str().unwrap_or_default().to_owned();
            let version = reference["version"].as_i64().unwrap_or(-1);
            open.push((name, answer.clone(), next + 1));
            if known.contains(&(subject.clone(), version)) {
                continue;
            }
            if known.len() == REFERENCES_MAX {
                return Err(format!("its schema refers to more than {REFERENCES_MAX} others"));
            }
            let path = format!("/subjects/{}/versions/{version}", http::escaped(&subject));
            known.push((subject, version));
            open.push((refers_to, self.http.get(&path).await?, 0));
        }
        Ok(found)
    }
}

fn text_of(answer: &Value) -> Result<String, String> {
    answer["schema"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| "the registry's answer has no schema".to_owned())
}

impl Decoder {
    /// A decoder that fetches schemas, for threads outside the runtime.
    pub fn new(registry: Arc<Registry>, runtime: Handle) -> Decoder {
        Decoder { registry, runtime: Some(runtime) }
    }

    /// A decoder that does not wait. Schemas must be fetched first, by [`Registry::prepare`].
    pub fn of_known(registry: Arc<Registry>) -> Decoder {
        Decoder { registry, runtime: None }
    }

    /// The schema id at the start of the bytes.
    pub fn schema_id(bytes: &[u8]) -> Option<u32> {
        match bytes.first_chunk::<PREFIX_BYTES>()? {
            [0, id @ ..] => Some(u32::from_be_bytes(*id)),
            _ => None,
        }
    }

    /// Decodes bytes with a schema id to `out`; none without a schema id. If the note has a problem, the
    /// bytes are not decoded.
    pub fn decode(&self, bytes: &[u8], out: &mut DecodeBuffer) -> Option<SchemaNote> {
        let id = Decoder::schema_id(bytes)?;
        let body = &bytes[PREFIX_BYTES..];
        out.json.clear();
        let schema = match &self.runtime {
            Some(runtime) => runtime.block_on(self.registry.schema(id)),
            None => self.registry.known(id).unwrap_or_else(|| Err("its schema was not fetched".to_owned())),
        };
        let schema = match schema {
            Ok(schema) => schema,
            Err(why) => return Some(SchemaNote { id, kind: String::new(), problem: Some(why) }),
        };
        let problem = match &schema.form {
            Form::Avro(schema) => schema.decode(body, &mut out.json).err(),
            Form::Protobuf(schema) => schema.decode(body, &mut out.json).err(),
            Form::Json => {
                out.json.extend_from_slice(body);
                None
            }
            Form::Other(why) => Some(why.clone()),
        };
        Some(SchemaNote { id, kind: schema.kind.clone(), problem })
    }
}
