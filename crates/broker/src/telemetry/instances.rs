//! The clients with subscriptions, and the latest metrics that each client pushed.

use super::TelemetryRefusal;
use super::otlp::{self, Point};
use super::subscriptions::{RequestedMetrics, Subscriptions, TelemetryClient};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use thalweg_hash::HashMap;
use thalweg_net::Holder;
use thalweg_net::Peer;
use thalweg_places::Counts;
use thalweg_record::{Compression, DecompressBuffer};
use thalweg_wire::{ErrorCode, Uuid};

/// Maximum number of clients, as in Kafka. The client of the principal with the most clients that was silent
/// longest makes room.
const INSTANCES_MAX: usize = 16_384;
/// Maximum number of values of all clients. A principal with more values makes room for one with fewer.
const VALUES_MAX: usize = 10_000;
/// Maximum number of points read from a push.
const POINTS_MAX: usize = 1_000;
/// Maximum size of a decompressed push, in bytes.
const DECOMPRESSED_BYTES_MAX: usize = 4 << 20;
/// A client that is silent for three intervals is forgotten, after this time at the earliest.
const SILENCE_MS_MIN: i64 = 60_000;
/// Maximum length of a client's name in metrics, in characters.
const NAME_CHARS_MAX: usize = 128;

/// A push of a client.
#[derive(Clone, Copy, Debug)]
pub struct TelemetryPush<'a> {
    /// The subscription that the push belongs to.
    pub subscription_id: i32,
    /// True for the client's last push.
    pub is_terminating: bool,
    /// The codec, by its number.
    pub compression: i8,
    /// OTLP's `MetricsData`, compressed.
    pub metrics: &'a [u8],
    /// `telemetry.max.bytes`.
    pub bytes_max: usize,
}

/// A client's subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSubscription {
    /// The id, which changes with the requested metrics.
    pub subscription_id: i32,
    /// The interval of pushes.
    pub interval_ms: i32,
    /// Prefixes of names; `*` for all; empty for nothing.
    pub metrics: Vec<String>,
}

/// The latest value of a client's metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMetricValue {
    /// The client instance.
    pub instance_id: Uuid,
    /// The client's `client.id`, truncated.
    pub client_id: String,
    /// The metric's name.
    pub metric: String,
    /// The metric's attributes, as `key=value` separated by commas.
    pub attributes: String,
    pub value: f64,
}

/// Figures for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryFigures {
    /// Number of recently active clients.
    pub instances: usize,
    /// The clients' latest values.
    pub values: Vec<ClientMetricValue>,
    /// Pushes that were accepted.
    pub pushes: u64,
    /// Requests before the end of the interval.
    pub throttled: u64,
    /// Pushes for a subscription that has changed.
    pub unknown_subscriptions: u64,
    /// Unreadable or oversized pushes.
    pub malformed: u64,
    /// Points that were left out.
    pub dropped_points: u64,
}

#[derive(Debug)]
struct Instance {
    /// The principal of the client.
    holder: Holder,
    client_id: String,
    wanted: RequestedMetrics,
    subscription_id: i32,
    /// One more than the version of the subscriptions that `wanted` is based on; 0 without any.
    version: u64,
    last_get_ms: i64,
    last_push_ms: i64,
    /// The connection of the client's first request.
    connection: Weak<Peer>,
    /// Time of the last request.
    seen_ms: i64,
    is_terminating: bool,
    /// True if the last push failed with an error after which clients ask for their subscription immediately.
    may_get_early: bool,
    values: BTreeMap<(String, String), f64>,
}

#[derive(Debug, Default)]
pub(super) struct Instances {
    by_id: HashMap<Uuid, Instance>,
    /// Clients by expiry.
    by_expiry: BTreeSet<(i64, Uuid)>,
    /// Clients of each holder by expiry.
    of_holders: BTreeMap<Holder, BTreeSet<(i64, Uuid)>>,
    /// Numbers of clients and of values of each holder.
    clients: Counts<Holder>,
    holder_values: Counts<Holder>,
    values: usize,
    figures: TelemetryFigures,
}

/// The points of a push, and the number of points left out.
pub(super) type PushedPoints = Result<(Vec<Point>, usize), String>;

impl TelemetryPush<'_> {
    /// Decompresses and reads the metrics.
    pub(super) fn read(&self) -> PushedPoints {
        let codec =
            u8::try_from(self.compression).ok().and_then(Compression::from_id).expect("it was checked");
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX);
        let bytes = buffer.decompress(codec, self.metrics).map_err(|error| error.to_string())?;
        otlp::points(bytes, POINTS_MAX).map_err(|error| error.to_string())
    }
}

fn refuse<T>(code: ErrorCode, client: &TelemetryClient<'_>, reason: &str) -> Result<T, TelemetryRefusal> {
    Err(TelemetryRefusal { code, reason: format!("client {}: {reason}", client.instance_id) })
}

impl Instances {
    /// The subscription of a client. A client may ask once per interval, or after a push that was refused for
    /// its subscription or codec.
    pub(super) fn subscription(
        &mut self,
        subscriptions: &Subscriptions,
        client: &TelemetryClient<'_>,
        now_ms: i64,
    ) -> Result<ClientSubscription, TelemetryRefusal> {
        let instance = self.instance(subscriptions, client, now_ms);
        let elapsed = now_ms - instance.last_get_ms.max(instance.last_push_ms);
        let is_early = elapsed < i64::from(instance.wanted.interval_ms);
        if is_early && !instance.may_get_early {
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
        instance.may_get_early = false;
        Ok(ClientSubscription {
            subscription_id: instance.subscription_id,
            interval_ms: instance.wanted.interval_ms,
            metrics: instance.wanted.metrics.iter().cloned().collect(),
        })
    }

    /// Checks a push before it is read, in Kafka's order.
    pub(super) fn check(
        &mut self,
        subscriptions: &Subscriptions,
        push: &TelemetryPush<'_>,
        client: &TelemetryClient<'_>,
        now_ms: i64,
    ) -> Result<(), TelemetryRefusal> {
        let instance = self.instance(subscriptions, client, now_ms);
        let has_ended = std::mem::replace(&mut instance.is_terminating, push.is_terminating);
        if has_ended {
            return refuse(ErrorCode::InvalidRequest, client, "pushed after its last push");
        }
        // The first push may follow immediately: clients spread their first pushes over an interval.
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
            instance.may_get_early = true;
            self.figures.unknown_subscriptions += 1;
            return refuse(ErrorCode::UnknownSubscriptionId, client, "its subscription has changed");
        }
        if u8::try_from(push.compression).ok().and_then(Compression::from_id).is_none() {
            instance.may_get_early = true;
            return refuse(ErrorCode::UnsupportedCompressionType, client, "no such codec");
        }
        if push.metrics.len() > push.bytes_max {
            self.figures.malformed += 1;
            return refuse(ErrorCode::TelemetryTooLarge, client, "more than telemetry.max.bytes");
        }
        Ok(())
    }

    /// Stores the values of a push.
    pub(super) fn store(&mut self, id: Uuid, read: PushedPoints) -> Result<(), TelemetryRefusal> {
        let (points, dropped) = read.map_err(|reason| {
            self.figures.malformed += 1;
            TelemetryRefusal { code: ErrorCode::InvalidRecord, reason: format!("client {id}: {reason}") }
        })?;
        self.figures.pushes += 1;
        self.figures.dropped_points += dropped as u64;
        if self.values + points.len() > VALUES_MAX {
            self.make_room(id, points.len());
        }
        // The client may have been displaced meanwhile.
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
            instance.values.iter().map(|((metric, attributes), value)| ClientMetricValue {
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

    /// The client, added if it is new, with its current subscription.
    fn instance(
        &mut self,
        subscriptions: &Subscriptions,
        client: &TelemetryClient<'_>,
        now_ms: i64,
    ) -> &mut Instance {
        self.forget_silent(now_ms);
        let id = client.instance_id;
        let holder = Holder::of(client.principal, client.address.ip());
        if let Some(known) = self.by_id.get(&id).filter(|known| known.holder != holder) {
            // Only the client knows its instance id, so another principal means a new client.
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
            // As in Kafka, a client starts over, and may ask and push immediately, after a change of
            // subscriptions and after the end of its first connection.
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

    /// Drops the client that was silent longest: of the holder with the most clients, or of the new client's
    /// holder if no holder has more.
    fn displace(&mut self, new: &Holder) {
        let holder = self.clients.larger(new).unwrap_or(new);
        let of_holder = self.of_holders.get(holder).and_then(BTreeSet::first);
        let first = of_holder.or_else(|| self.by_expiry.first()).copied();
        first.into_iter().for_each(|(_, silent)| self.forget(silent));
    }

    /// Makes room for `values` values of a client by dropping values of the holder with the most values, down
    /// to an equal share. Values of clients that were silent longest are dropped first.
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
    fn new(client: &TelemetryClient<'_>, holder: Holder) -> Instance {
        Instance {
            holder,
            client_id: client.client_id.chars().take(NAME_CHARS_MAX).collect(),
            wanted: RequestedMetrics { metrics: BTreeSet::new(), interval_ms: 0 },
            subscription_id: 0,
            version: 0,
            // Long before any other time, and safe from overflow.
            last_get_ms: i64::MIN / 2,
            last_push_ms: i64::MIN / 2,
            connection: Arc::downgrade(client.connection),
            seen_ms: 0,
            is_terminating: false,
            may_get_early: false,
            values: BTreeMap::new(),
        }
    }

    fn expires_ms(&self) -> i64 {
        self.seen_ms + (3 * i64::from(self.wanted.interval_ms)).max(SILENCE_MS_MIN)
    }
}

/// FNV-1a of the requested metrics and the client's id, the same on every broker.
fn subscription_id(wanted: &RequestedMetrics, id: Uuid) -> i32 {
    let text = wanted.metrics.iter().flat_map(|name| name.bytes().chain([0]));
    let bytes = text.chain(wanted.interval_ms.to_be_bytes()).chain(id.0.to_be_bytes());
    bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)).cast_signed()
}
