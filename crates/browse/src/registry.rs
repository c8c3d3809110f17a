//! A schema registry: keys and values that begin with a zero byte and a schema id (Confluent's wire format)
//! are decoded to JSON.
//!
//! Avro and Protobuf are decoded; JSON Schema data is already JSON. Schemas are fetched once and cached, up
//! to a limit. A failure is cached for a while, and a registry that does not answer is left alone for a
//! growing time, so that it is asked neither for each message nor for each id.
//!
//! A [`Decoder`] of a search waits for the registry for a limited time per minute, and for a limited number
//! of schemas. Fetches in progress are limited, in total and per principal.

mod avro;
mod http;
mod protobuf;
mod schemas;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use thalweg_places::FairSemaphore;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::message::SchemaNote;
use http::Http;
use schemas::Schemas;

/// Concurrent fetches, in total and per principal.
const FETCHES_MAX: usize = 16;
const FETCHES_OF_PRINCIPAL_MAX: usize = 4;
/// Maximum time to fetch a schema with its references.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Maximum number of schemas that a search fetches per minute, and the time that it waits for them.
const SEARCH_FETCHES_MAX: usize = 100;
const SEARCH_WAIT_MAX: Duration = Duration::from_secs(3);
const MINUTE: Duration = Duration::from_secs(60);
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
    schemas: Mutex<Schemas>,
    fetches: FairSemaphore<Arc<str>>,
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

/// Decodes keys and values by cached schemas.
#[derive(Debug)]
pub struct Decoder {
    registry: Arc<Registry>,
    /// The fetches of unknown schemas; none for a decoder that fetches no schemas.
    fetching: Option<SchemaFetches>,
}

/// The fetches of a search.
#[derive(Debug)]
struct SchemaFetches {
    runtime: Handle,
    /// The principal; none in a process without other work, where the fetches have no limits.
    principal: Option<Arc<str>>,
    left: Mutex<FetchesLeft>,
}

/// What a search may still ask for in this minute.
#[derive(Debug)]
struct FetchesLeft {
    since: Instant,
    fetches: usize,
    time: Duration,
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
        Ok(Registry {
            http: Http::new(url, login)?,
            schemas: Mutex::default(),
            fetches: FairSemaphore::new(FETCHES_MAX, FETCHES_OF_PRINCIPAL_MAX),
        })
    }

    /// Fetches a schema unless cached, for use by a [`Decoder::of_known`].
    pub async fn prepare(&self, id: u32) {
        self.ask(id, &Arc::default()).await;
    }

    fn known(&self, id: u32) -> Option<Result<Arc<Schema>, String>> {
        self.schemas.lock().get(id)
    }

    /// Fetches a schema unless cached. The decoder reports a failure.
    async fn ask(&self, id: u32, principal: &Arc<str>) {
        if self.known(id).is_some() || !self.http.try_begin() {
            return;
        }
        let fetched = tokio::time::timeout(FETCH_MAX, self.fetch(id)).await;
        let fetched = fetched
            .unwrap_or_else(|_| Err(format!("its schema was not fetched within {} s", FETCH_MAX.as_secs())));
        // The failure of a registry that does not answer is not one of this id.
        if fetched.is_ok() || self.http.outage().is_none() {
            self.schemas.lock().put(id, principal, fetched);
        }
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
            let path = format!("/subjects/{}/versions/{version}", thalweg_stream::percent_encoded(&subject));
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
    /// A decoder that fetches schemas, for threads outside the runtime. A principal has a limited share.
    pub fn new(registry: Arc<Registry>, runtime: Handle, principal: Option<Arc<str>>) -> Decoder {
        let left = Mutex::new(FetchesLeft::at(Instant::now()));
        Decoder { registry, fetching: Some(SchemaFetches { runtime, principal, left }) }
    }

    /// A decoder that does not wait. Schemas must be fetched first, by [`Registry::prepare`].
    pub fn of_known(registry: Arc<Registry>) -> Decoder {
        Decoder { registry, fetching: None }
    }

    /// The id of the bytes, if its schema is unknown and may be fetched.
    pub fn unknown(&self, bytes: &[u8]) -> Option<u32> {
        let id = Decoder::schema_id(bytes)?;
        let is_unknown = self.fetching.is_some() && self.registry.known(id).is_none();
        (is_unknown && !self.registry.http.is_left_alone()).then_some(id)
    }

    /// Fetches a schema, and waits within the limits of the search. The fetch goes on after a longer wait.
    pub fn fetch(&self, id: u32) {
        let Some(fetching) = &self.fetching else { return };
        let Some(principal) = fetching.principal.clone() else {
            fetching.runtime.block_on(self.registry.ask(id, &Arc::default()));
            return;
        };
        let began = Instant::now();
        let Some(patience) = fetching.left.lock().take(began) else { return };
        let registry = Arc::clone(&self.registry);
        let fetched = async {
            let place = registry.fetches.take(&principal).await;
            let registry = Arc::clone(&registry);
            let task = tokio::spawn(async move {
                registry.ask(id, &principal).await;
                drop(place);
            });
            // The task neither panics nor is aborted.
            let _ = task.await;
        };
        // The timeout is created within the runtime.
        let _ = fetching.runtime.block_on(async { tokio::time::timeout(patience, fetched).await });
        fetching.left.lock().spend(began.elapsed());
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
        let schema = match self.registry.known(id) {
            Some(Ok(schema)) => schema,
            None => {
                let problem = Some(self.unfetched());
                return Some(SchemaNote { id, kind: String::new(), problem });
            }
            Some(Err(why)) => return Some(SchemaNote { id, kind: String::new(), problem: Some(why) }),
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

    /// The reason why an unknown schema was not fetched.
    fn unfetched(&self) -> String {
        let limits = || match &self.fetching {
            Some(_) => format!(
                "its schema was not fetched: a search asks the registry for {SEARCH_FETCHES_MAX} schemas, and \
                 waits {} s for them",
                SEARCH_WAIT_MAX.as_secs()
            ),
            None => "its schema was not fetched".to_owned(),
        };
        self.registry.http.outage().unwrap_or_else(limits)
    }
}

impl FetchesLeft {
    fn at(since: Instant) -> FetchesLeft {
        FetchesLeft { since, fetches: SEARCH_FETCHES_MAX, time: SEARCH_WAIT_MAX }
    }

    /// Takes a fetch. Returns the time to wait for it; none if the limits of this minute are reached.
    fn take(&mut self, now: Instant) -> Option<Duration> {
        if now >= self.since + MINUTE {
            *self = FetchesLeft::at(now);
        }
        self.fetches = self.fetches.checked_sub(1)?;
        Some(self.time).filter(|time| !time.is_zero())
    }

    fn spend(&mut self, time: Duration) {
        self.time = self.time.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_waits_a_limited_time_for_a_limited_number_of_schemas() {
        let began = Instant::now();
        let mut left = FetchesLeft::at(began);
        assert_eq!(left.take(began), Some(SEARCH_WAIT_MAX));
        left.spend(Duration::from_secs(1));
        assert_eq!(left.take(began), Some(Duration::from_secs(2)));
        left.spend(Duration::from_secs(9));
        assert_eq!((left.take(began), left.take(began + MINUTE)), (None, Some(SEARCH_WAIT_MAX)));
        let asked = (1..200).filter(|_| left.take(began + MINUTE).is_some()).count();
        assert_eq!(asked + 1, SEARCH_FETCHES_MAX);
    }
}
