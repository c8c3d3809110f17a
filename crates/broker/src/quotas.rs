//! Client quotas as this broker enforces them (KIP-13, KIP-55, KIP-124, KIP-219): bytes produced, bytes
//! fetched, and time of requests.
//!
//! The limits come from the image, and `thalweg_security::quota` interprets them. A client above a limit is
//! answered immediately with its throttle time, and its connection is not read meanwhile. Without a limit of
//! a kind, a request costs one atomic load.
//!
//! Departures from Kafka: a fetch counts its records, not the message around them; the time of a request
//! excludes sending and receiving; a batch larger than a consumer's whole window is delivered if it is the
//! first in the window, so that no consumer stalls; a client that was throttled for bytes is held to its
//! limit beyond the window of its rate (`thalweg_security::quota::Backlog`), where Kafka allows one burst per
//! window.

mod clients;
pub mod throttle_time;

use bytes::{Bytes, BytesMut};
use clients::{ClientCounters, Clients, Counter};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use thalweg_histogram::{Histogram, Snapshot};
use thalweg_metadata::Quotas;
use thalweg_net::Peer;
use thalweg_security::quota::Window;
use thalweg_wire::{ApiKey, Response};
use tokio::time::Instant;

pub use clients::Usage;

/// The kind of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaType {
    /// `producer_byte_rate`: bytes of Produce requests.
    Produce,
    /// `consumer_byte_rate`: bytes of records in answers to Fetch.
    Fetch,
    /// `request_percentage`: time of requests, in percent of one thread.
    Request,
}

pub const QUOTA_TYPES: [QuotaType; 3] = [QuotaType::Produce, QuotaType::Fetch, QuotaType::Request];

impl QuotaType {
    /// The configuration key of the quota.
    fn key(self) -> &'static str {
        match self {
            QuotaType::Produce => "producer_byte_rate",
            QuotaType::Fetch => "consumer_byte_rate",
            QuotaType::Request => "request_percentage",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The parts of a request that quotas use.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The name of the client's principal.
    pub user: &'a str,
    /// The client id; empty without one.
    pub client_id: &'a str,
    pub key: ApiKey,
    /// The length of the request.
    pub frame_len: usize,
    /// The client's connection.
    pub peer: &'a Peer,
}

/// The limits of clients, and their use.
#[derive(Debug)]
pub struct ClientQuotas {
    /// The kinds with limits, as bits.
    limited: AtomicU8,
    window: Window,
    began: Instant,
    clients: RwLock<Clients>,
    /// The throttle times of each kind.
    pauses: [Histogram; QUOTA_TYPES.len()],
}

impl ClientQuotas {
    /// Quotas without limits, over a window of `samples` samples.
    pub fn new(samples: usize, sample: Duration) -> ClientQuotas {
        let window = Window::new(samples, sample);
        ClientQuotas {
            limited: AtomicU8::new(0),
            window,
            began: Instant::now(),
            clients: RwLock::new(Clients::new(window)),
            pauses: [const { Histogram::of_times() }; QUOTA_TYPES.len()],
        }
    }

    /// Applies the image's limits. Use measured so far still counts.
    pub fn set(&self, quotas: &Quotas) {
        let mut clients = self.clients.write();
        let kinds = clients.set(quotas);
        self.limited.store(kinds.iter().fold(0, |bits, kind| bits | kind.bit()), Ordering::Release);
    }

    /// The use of at most `max` limited clients: the most recently active of each user.
    pub fn usage(&self, kind: QuotaType, max: usize) -> Vec<Usage> {
        self.clients.read().usage(kind, max, self.now_ms())
    }

    /// The throttle times of a kind since the start, in microseconds.
    pub fn pauses(&self, kind: QuotaType) -> Snapshot {
        self.pauses[kind as usize].snapshot()
    }

    /// Counts a pause.
    fn paused(&self, kind: QuotaType, pause_ms: i64) -> i64 {
        if pause_ms > 0 {
            self.pauses[kind as usize].record_time(Duration::from_millis(pause_ms.unsigned_abs()));
        }
        pause_ms
    }

    fn is_limited(&self, kind: QuotaType) -> bool {
        self.limited.load(Ordering::Relaxed) & kind.bit() != 0
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn client(&self, call: &Caller<'_>) -> Arc<ClientCounters> {
        let (user, client_id) = (call.user, call.client_id);
        if let Some(client) = self.clients.read().find(user, client_id) {
            return client;
        }
        self.clients.write().add(user, client_id, self.now_ms())
    }

    fn counter(&self, call: &Caller<'_>, kind: QuotaType) -> Option<Arc<Counter>> {
        if !self.is_limited(kind) {
            return None;
        }
        self.client(call).counters[kind as usize].clone()
    }

    /// Counts a Produce request after its appends. Throttles the connection, and returns the throttle time in
    /// milliseconds.
    pub fn charge_produce(&self, call: &Caller<'_>, acks: i16, spent: impl FnOnce() -> Duration) -> i32 {
        let bytes = self.counter(call, QuotaType::Produce);
        // A request without an answer cannot report a throttle time, so only bytes count.
        let time = if acks == 0 { None } else { self.counter(call, QuotaType::Request) };
        if bytes.is_none() && time.is_none() {
            return 0;
        }
        let now_ms = self.now_ms();
        let charge = |counter: Arc<Counter>| counter.charge(number(call.frame_len), now_ms);
        let bytes = self.paused(QuotaType::Produce, bytes.map_or(0, charge));
        let time = time.map_or(0, |counter| self.time(&counter, spent(), now_ms));
        pause(call, bytes.max(time))
    }

    /// Maximum bytes of a fetch by the client; `None` without a limit.
    pub fn fetch_max(&self, call: &Caller<'_>) -> Option<usize> {
        let burst = self.window.burst(self.counter(call, QuotaType::Fetch)?.limit());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturating: a large limit is none"
        )]
        Some(burst as usize)
    }

    /// Counts a client's Fetch before its answer. Throttles the connection, and returns the throttle time in
    /// milliseconds. With a throttle time, the answer must be sent without records, and its bytes do not
    /// count.
    pub fn charge_fetch(&self, call: &Caller<'_>, bytes: usize, spent: Duration) -> i32 {
        let (of_bytes, of_time) =
            (self.counter(call, QuotaType::Fetch), self.counter(call, QuotaType::Request));
        if of_bytes.is_none() && of_time.is_none() {
            return 0;
        }
        let now_ms = self.now_ms();
        let by_time = of_time.map_or(0, |counter| self.time(&counter, spent, now_ms));
        let charge = |counter: Arc<Counter>| counter.charge_fetch(number(bytes), by_time > 0, now_ms);
        let by_bytes = self.paused(QuotaType::Fetch, of_bytes.map_or(0, charge));
        pause(call, by_bytes.max(by_time))
    }

    /// Counts the time of a request, and sets the throttle time in its answer. Returns the throttle time in
    /// milliseconds.
    pub fn charge_time(
        &self,
        call: &Caller<'_>,
        spent: impl FnOnce() -> Duration,
        response: &mut impl Response,
    ) -> i32 {
        // Brokers send WriteTxnMarkers to each other.
        if call.key == ApiKey::WriteTxnMarkers {
            return 0;
        }
        let Some(counter) = self.counter(call, QuotaType::Request) else { return 0 };
        let throttle_time_ms = pause(call, self.time(&counter, spent(), self.now_ms()));
        if throttle_time_ms > 0
            && let Some(place) = response.throttle_time_ms()
        {
            *place = throttle_time_ms;
        }
        throttle_time_ms
    }

    /// Counts the time of a forwarded request, and throttles for the longer of this broker's and the
    /// controller's time. The controller has its own quotas and relies on the broker to throttle. Returns the
    /// answer with the throttle time.
    pub fn charge_forwarded(&self, call: &Caller<'_>, version: i16, spent: Duration, answer: Bytes) -> Bytes {
        let requested = throttle_time::of_answer(call.key, version, &answer);
        requested.into_iter().for_each(|pause| call.peer.mute.pause(pause));
        let Some(counter) = self.counter(call, QuotaType::Request) else { return answer };
        let own_ms = pause(call, self.time(&counter, spent, self.now_ms()));
        match throttle_time::place(call.key, version, &answer) {
            Some(place) if Some(Duration::from_millis(u64::from(own_ms.unsigned_abs()))) > requested => {
                let mut changed = BytesMut::from(answer);
                changed[place].copy_from_slice(&own_ms.to_be_bytes());
                changed.freeze()
            }
            _ => answer,
        }
    }

    /// Counts time in percent of a second. The throttle time is at most one sample.
    fn time(&self, counter: &Counter, spent: Duration, now_ms: i64) -> i64 {
        self.paused(
            QuotaType::Request,
            counter.charge(spent.as_secs_f64() * 100.0, now_ms).min(self.window.sample_ms),
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of messages are below 2^53")]
fn number(bytes: usize) -> f64 {
    bytes as f64
}

/// Throttles the call's connection, and returns the throttle time for the answer.
fn pause(call: &Caller<'_>, throttle_ms: i64) -> i32 {
    let throttle_ms = i32::try_from(throttle_ms.max(0)).unwrap_or(i32::MAX);
    if throttle_ms > 0 {
        call.peer.mute.pause(Duration::from_millis(u64::from(throttle_ms.unsigned_abs())));
    }
    throttle_ms
}
