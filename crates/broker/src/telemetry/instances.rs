//! The clients that ask for subscriptions and push metrics, with what they pushed last.

use super::Refusal;
use super::otlp::{self, Point};
use super::subscriptions::{Client, Subscriptions, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use thalweg_hash::HashMap;
use thalweg_net::Holder;
use thalweg_net::Peer;
use thalweg_places::Counts;
use thalweg_record::{Compression, DecompressBuffer};
use thalweg_wire::{ErrorCode, Uuid};

/// As many clients as Kafka's broker knows. The one that was silent longest makes room for another, of the principal with
/// most clients.
const INSTANCES_MAX: usize = 16_384;
/// The values of all clients together. A principal with more than another makes room for it.
const VALUES_MAX: usize = 10_000;
/// The points of one push that are looked at.
const POINTS_MAX: usize = 1_000;
/// A push has at most this size once decompressed.
const DECOMPRESSED_BYTES_MAX: usize = 4 << 20;
/// A client that is silent for three intervals is forgotten, after this time at the earliest.
const SILENCE_MS_MIN: i64 = 60_000;
/// Longer names of clients are cut in metrics.
const NAME_CHARS_MAX: usize = 128;

/// A push of a client.
#[derive(Clone, Copy, Debug)]
pub struct Push<'a> {
    /// The subscription that it answers.
    pub subscription_id: i32,
    /// Whether it is the client's last.
    pub is_terminating: bool,
    /// The codec, by its number.
    pub compression: i8,
    /// OTLP's `MetricsData`, compressed.
    pub metrics: &'a [u8],
    /// `telemetry.max.bytes`.
    pub bytes_max: usize,
}

/// What a client is to push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// Changes with what is wanted.
    pub subscription_id: i32,
    /// The interval of pushes.
    pub interval_ms: i32,
    /// Prefixes of names; `*` for all; empty for nothing.
    pub metrics: Vec<String>,
}

/// The latest value of a client's metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The client instance.
    pub instance_id: Uuid,
    /// Its `client.id`, cut.
    pub client_id: String,
    /// The metric's name.
    pub metric: String,
    /// Its attributes, as `key=value` separated by commas.
    pub attributes: String,
    /// The value.
    pub value: f64,
}

/// Figures for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryFigures {
    /// Clients that asked or pushed lately.
    pub instances: usize,
    /// Their latest values.
    pub values: Vec<Value>,
    /// Pushes that were taken.
    pub pushes: u64,
    /// Requests that came too early.
    pub throttled: u64,
    /// Pushes for a subscription that has changed.
    pub unknown_subscriptions: u64,
    /// Pushes that could not be read, or were too large.
    pub malformed: u64,
    /// Points that were left out.
    pub dropped_points: u64,
}

#[derive(Debug)]
struct Instance {
    /// The principal of the client.
    holder: Holder,
    client_id: String,
    wanted: Wanted,
    subscription_id: i32,
    /// That of the subscriptions that `wanted` follows from.
    version: u64,
    last_get_ms: i64,
    last_push_ms: i64,
    /// That on which it was new.
    connection: Weak<Peer>,
    /// When it was here last.
    seen_ms: i64,
    is_terminating: bool,
    /// The last push failed so that the client has to ask again at once.
    asks_again: bool,
    values: BTreeMap<(String, String), f64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Instances {
    by_id: HashMap<Uuid, Instance>,
    /// By the time when they are forgotten.
    by_expiry: BTreeSet<(i64, Uuid)>,
    /// The same of each holder.
    of_holders: BTreeMap<Holder, BTreeSet<(i64, Uuid)>>,
    /// The number of clients, and that of values, of each holder.
    clients: Counts<Holder>,
    holder_values: Counts<Holder>,
    values: usize,
    figures: TelemetryFigures,
}

/// The points of a push, and how many were left out.
pub(super) type Read = Result<(Vec<Point>, usize), String>;

impl Push<'_> {
    /// Decompresses and reads the metrics.
    pub(super) fn read(&self) -> Read {
        let codec =
            u8::try_from(self.compression).ok().and_then(Compression::from_id).expect("it was checked");
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX);
        let bytes = buffer.decompress(codec, self.metrics).map_err(|error| error.to_string())?;
        otlp::points(bytes, POINTS_MAX).map_err(|error| error.to_string())
    }
}

fn refuse<T>(code: ErrorCode, client: &Client<'_>, reason: &str) -> Result<T, Refusal> {
    Err(Refusal { code, reason: format!("client {}: {reason}", client.instance_id) })
}

impl Instances {
    /// The subscription of a client, which it may ask for once in an interval, unless its last push was refused for its
    /// subscription or codec.
    pub(super) fn subscription(
        &mut self,
        subscriptions: &Subscriptions,
        client: &Client<'_>,
        now_ms: i64,
    ) -> Result<Subscribed, Refusal> {
        let instance = self.instance(subscriptions, client, now_ms);
        let elapsed = now_ms - instance.last_get_ms.max(instance.last_push_ms);
        let is_early = elapsed < i64::from(instance.wanted.interval_ms);
        if is_early && !instance.asks_again {
            self.figures.throttled += 1;
            return refuse(
                ErrorCode::ThrottlingQuotaExceeded,
                client,
                "asked before its interval has passed",
            );
        }
        if !is_early {
            instance.last_get_ms = now_ms;
        }
        instance.asks_again = false;
        Ok(Subscribed {
            subscription_id: instance.subscription_id,
            interval_ms: instance.wanted.interval_ms,
            metrics: instance.wanted.metrics.iter().cloned().collect(),
        })
    }

    /// Whether a push may be read, in Kafka's order.
    pub(super) fn check(
        &mut self,
        subscriptions: &Subscriptions,
        push: &Push<'_>,
        client: &Client<'_>,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let instance = self.instance(subscriptions, client, now_ms);
        let has_ended = std::mem::replace(&mut instance.is_terminating, push.is_terminating);
        if has_ended {
            return refuse(ErrorCode::InvalidRequest, client, "pushed after its last push");
        }
        // At once after a question: clients spread their first pushes over an interval.
        let elapsed = now_ms - instance.last_push_ms;
        let may_push =
            instance.last_get_ms > instance.last_push_ms || elapsed >= i64::from(instance.wanted.interval_ms);
        if may_push {
            instance.last_push_ms = now_ms;
        } else if !push.is_terminating {
            self.figures.throttled += 1;
            return refuse(
                ErrorCode::ThrottlingQuotaExceeded,
                client,
                "pushed before its interval has passed",
            );
        }
        if push.subscription_id != instance.subscription_id {
            instance.asks_again = true;
            self.figures.unknown_subscriptions += 1;
            return refuse(ErrorCode::UnknownSubscriptionId, client, "its subscription has changed");
        }
        if u8::try_from(push.compression).ok().and_then(Compression::from_id).is_none() {
            instance.asks_again = true;
            return refuse(ErrorCode::UnsupportedCompressionType, client, "no such codec");
        }
        if push.metrics.len() > push.bytes_max {
            self.figures.malformed += 1;
            return refuse(ErrorCode::TelemetryTooLarge, client, "more than telemetry.max.bytes");
        }
        Ok(())
    }

    /// Keeps what a push holds.
    pub(super) fn store(&mut self, id: Uuid, read: Read) -> Result<(), Refusal> {
        let (points, dropped) = read.map_err(|reason| {
            self.figures.malformed += 1;
            Refusal { code: ErrorCode::InvalidRecord, reason: format!("client {id}: {reason}") }
        })?;
        self.figures.pushes += 1;
        self.figures.dropped_points += dropped as u64;
        if self.values + points.len() > VALUES_MAX {
            self.make_room(id, points.len());
        }
        // Another client may have taken its place meanwhile.
        let Some(instance) = self.by_id.get_mut(&id) else { return Ok(()) };
        for Point { name, attributes, value, is_delta } in points {
            let room = VALUES_MAX > self.values;
            match instance.values.entry((name, attributes)) {
                std::collections::btree_map::Entry::Occupied(mut known) => {
                    *known.get_mut() = if is_delta { *known.get() + value } else { value };
                }
                std::collections::btree_map::Entry::Vacant(new) if room => {
                    new.insert(value);
                    self.values += 1;
                    self.holder_values.add(&instance.holder, 1);
                }
                std::collections::btree_map::Entry::Vacant(_) => self.figures.dropped_points += 1,
            }
        }
        Ok(())
    }

    pub(super) fn figures(&mut self, now_ms: i64) -> TelemetryFigures {
        self.forget_silent(now_ms);
        let mut ids: Vec<&Uuid> = self.by_id.keys().collect();
        ids.sort_unstable();
        let values = ids.into_iter().flat_map(|id| {
            let instance = &self.by_id[id];
            instance.values.iter().map(|((metric, attributes), value)| Value {
                instance_id: *id,
                client_id: instance.client_id.clone(),
                metric: metric.clone(),
                attributes: attributes.clone(),
                value: *value,
            })
        });
        let values = values.collect();
        TelemetryFigures { instances: self.by_id.len(), values, ..self.figures.clone() }
    }

    /// The client, known from now on, with what is wanted of it now.
    fn instance(&mut self, subscriptions: &Subscriptions, client: &Client<'_>, now_ms: i64) -> &mut Instance {
        self.forget_silent(now_ms);
        let id = client.instance_id;
        let holder = Holder::of(client.principal, client.address.ip());
        if let Some(known) = self.by_id.get(&id).filter(|known| known.holder != holder) {
            // Only a client knows its id: with another principal it is a new one.
            tracing::debug!(%id, before = ?known.holder, "A client instance changed its principal");
            self.forget(id);
        }
        match self.by_id.get(&id) {
            Some(known) => {
                let place = (known.expires_ms(), id);
                self.by_expiry.remove(&place);
                self.of_holders.get_mut(&holder).map(|own| own.remove(&place));
            }
            None => {
                if self.by_id.len() >= INSTANCES_MAX {
                    self.displace(&holder);
                }
                self.clients.add(&holder, 1);
            }
        }
        let instance = self.by_id.entry(id).or_insert_with(|| Instance::new(client, holder));
        let is_gone = instance.connection.strong_count() == 0;
        if is_gone || instance.version != subscriptions.version + 1 {
            // As in Kafka, a client is new where its subscription may be, and after the end of the connection on which
            // it was new: it may ask and push at once.
            let values = std::mem::take(&mut instance.values);
            *instance = Instance { values, ..Instance::new(client, instance.holder.clone()) };
            instance.wanted = subscriptions.wanted(client);
            instance.subscription_id = subscription_id(&instance.wanted, id);
            instance.version = subscriptions.version + 1;
        }
        instance.seen_ms = now_ms;
        let place = (instance.expires_ms(), id);
        self.by_expiry.insert(place);
        match self.of_holders.get_mut(&instance.holder) {
            Some(own) => drop(own.insert(place)),
            None => drop(self.of_holders.insert(instance.holder.clone(), [place].into())),
        }
        instance
    }

    /// Forgets the client that was silent longest: of the holder with most, or of the new one's own if none has more.
    fn displace(&mut self, new: &Holder) {
        let holder = self.clients.larger(new).unwrap_or(new);
        let of_holder = self.of_holders.get(holder).and_then(BTreeSet::first);
        let first = of_holder.or_else(|| self.by_expiry.first()).copied();
        first.into_iter().for_each(|(_, silent)| self.forget(silent));
    }

    /// Makes room for so many values of a client, at most up to half of what its holder and one with more have together: values
    /// of the other are forgotten, those first whose clients were silent longest.
    fn make_room(&mut self, id: Uuid, values: usize) {
        let Some(holder) = self.by_id.get(&id).map(|instance| instance.holder.clone()) else { return };
        let own = self.holder_values.of(&holder);
        let Some(larger) = self.holder_values.larger(&holder).cloned() else { return };
        let mut spare = values.min((self.holder_values.of(&larger) - own) / 2);
        for (_, silent) in self.of_holders.get(&larger).into_iter().flatten() {
            let Some(instance) = self.by_id.get_mut(silent).filter(|_| spare > 0) else { break };
            while spare > 0 && instance.values.pop_last().is_some() {
                spare -= 1;
                self.values -= 1;
                self.holder_values.remove(&larger, 1);
                self.figures.dropped_points += 1;
            }
        }
    }

    fn forget_silent(&mut self, now_ms: i64) {
        while let Some((_, id)) =
            self.by_expiry.first().copied().filter(|(expiry_ms, _)| *expiry_ms <= now_ms)
        {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: Uuid) {
        let Some(instance) = self.by_id.remove(&id) else { return };
        let place = (instance.expires_ms(), id);
        self.by_expiry.remove(&place);
        self.values -= instance.values.len();
        self.holder_values.remove(&instance.holder, instance.values.len());
        self.clients.remove(&instance.holder, 1);
        if let Some(own) = self.of_holders.get_mut(&instance.holder) {
            own.remove(&place);
            if own.is_empty() {
                self.of_holders.remove(&instance.holder);
            }
        }
    }
}

impl Instance {
    fn new(client: &Client<'_>, holder: Holder) -> Instance {
        Instance {
            holder,
            client_id: client.client_id.chars().take(NAME_CHARS_MAX).collect(),
            wanted: Wanted { metrics: BTreeSet::new(), interval_ms: 0 },
            subscription_id: 0,
            version: 0,
            // Long before any other moment, and far enough from the end of numbers.
            last_get_ms: i64::MIN / 2,
            last_push_ms: i64::MIN / 2,
            connection: Arc::downgrade(client.connection),
            seen_ms: 0,
            is_terminating: false,
            asks_again: false,
            values: BTreeMap::new(),
        }
    }

    fn expires_ms(&self) -> i64 {
        self.seen_ms + (3 * i64::from(self.wanted.interval_ms)).max(SILENCE_MS_MIN)
    }
}

/// The same on every broker: FNV-1a of what is wanted and of the client's id.
fn subscription_id(wanted: &Wanted, id: Uuid) -> i32 {
    let text = wanted.metrics.iter().flat_map(|name| name.bytes().chain([0]));
    let bytes = text.chain(wanted.interval_ms.to_be_bytes()).chain(id.0.to_be_bytes());
    bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)).cast_signed()
}
