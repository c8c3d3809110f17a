//! The mutation quota, `controller_mutation_rate` (Kafka's `ControllerMutationQuotaManager`, KIP-599): each
//! partition that a client creates or deletes takes a token from the bucket of the clients that share the
//! limit.
//!
//! A decision works on a copy of the bucket, because it may be made on a copy of the state, and more than
//! once. The taken tokens, [`QuotaUse`], are taken from the bucket itself when the decision is carried out.

use std::sync::Arc;

use thalweg_hash::HashMap;
use thalweg_metadata::Quotas;
use thalweg_security::quota::{
    Enforcement, Limits, MutationQuota, QuotaExceeded, Sharers, TokenBucket, Window,
};
use thalweg_wire::{ApiKey, ErrorCode};

use super::{ApiError, Moment, State};
use crate::requester::Requester;

/// The configuration key of the quota.
const KEY: &str = "controller_mutation_rate";

/// Maximum number of buckets. A client with a new id in each request creates a bucket each time. Full buckets
/// are dropped first, then the least recently used ones.
const BUCKETS_MAX: usize = 10_000;

/// The buckets of clients with a limit.
#[derive(Clone, Debug)]
pub(super) struct Mutations {
    window: Window,
    limits: Arc<Limits>,
    /// Shared with copies of the state until one is used.
    buckets: Arc<HashMap<Sharers, Bucket>>,
}

#[derive(Clone, Debug)]
struct Bucket {
    tokens: TokenBucket,
    limit: f64,
    used_ms: i64,
}

/// A request that changes partitions: API, version and sender.
pub(crate) struct MutationCall<'a> {
    pub api: ApiKey,
    pub version: i16,
    pub requester: &'a Requester,
    pub client_id: &'a str,
}

/// The use of a limit by a request.
#[derive(Clone, Debug)]
pub(crate) struct QuotaUse {
    pub sharers: Sharers,
    /// Tokens per second.
    pub limit: f64,
    pub quota: MutationQuota,
}

impl MutationCall<'_> {
    /// The enforcement by version: older clients do not know THROTTLING_QUOTA_EXCEEDED.
    fn enforcement(&self) -> Enforcement {
        let strict_since = match self.api {
            ApiKey::CreateTopics => 6,
            ApiKey::DeleteTopics => 5,
            _ => 3,
        };
        if self.version >= strict_since { Enforcement::Strict } else { Enforcement::Permissive }
    }
}

impl Mutations {
    /// Quotas without limits.
    pub fn new(window: Window) -> Mutations {
        Mutations { window, limits: Arc::default(), buckets: Arc::default() }
    }

    /// Applies the image's limits. Buckets keep their tokens.
    pub fn set(&mut self, quotas: &Quotas) {
        let limits = quotas.limits(KEY);
        if limits.is_empty() {
            self.buckets = Arc::default();
        }
        self.limits = Arc::new(limits);
    }

    fn bucket(&self, sharers: &Sharers) -> TokenBucket {
        let found = self.buckets.get(sharers).map(|bucket| bucket.tokens.clone());
        found.unwrap_or_else(|| TokenBucket::new(self.window))
    }

    /// Takes a request's tokens from its bucket, and returns the remaining tokens.
    fn spend(&mut self, spent: &QuotaUse, now_ms: i64) -> f64 {
        let mut bucket = Bucket { tokens: self.bucket(&spent.sharers), limit: spent.limit, used_ms: now_ms };
        spent.quota.clone().spend(&mut bucket.tokens, now_ms);
        let left = bucket.tokens.tokens(spent.limit, now_ms);
        let buckets = Arc::make_mut(&mut self.buckets);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(&spent.sharers) {
            make_room(buckets, now_ms);
        }
        buckets.insert(spent.sharers.clone(), bucket);
        left
    }
}

fn make_room(buckets: &mut HashMap<Sharers, Bucket>, now_ms: i64) {
    buckets.retain(|_, bucket| !bucket.tokens.is_idle(bucket.limit, now_ms));
    if buckets.len() > BUCKETS_MAX / 2 {
        let mut used_ms: Vec<_> = buckets.values().map(|bucket| bucket.used_ms).collect();
        let (_, median, _) = used_ms.select_nth_unstable(BUCKETS_MAX / 2);
        let median = *median;
        buckets.retain(|_, bucket| bucket.used_ms > median);
    }
}

impl State {
    /// The quota of a request, and the clients that share it. This process's own requests are not limited.
    pub fn mutation_quota(
        &self,
        call: &MutationCall<'_>,
        now: Moment,
    ) -> (MutationQuota, Option<(Sharers, f64)>) {
        let Requester::Peer { principal, .. } = call.requester else {
            return (MutationQuota::unlimited(), None);
        };
        let Some(limit) = self.mutations.limits.resolve(principal.name(), call.client_id) else {
            return (MutationQuota::unlimited(), None);
        };
        let sharers = limit.sharers(principal.name(), call.client_id);
        let (bucket, now_ms) = (self.mutations.bucket(&sharers), now.monotonic_ms);
        let quota = MutationQuota::limited(bucket, limit.per_second, call.enforcement(), now_ms);
        (quota, Some((sharers, limit.per_second)))
    }

    /// Takes a request's tokens, and returns the remaining tokens.
    pub fn spend(&mut self, spent: &QuotaUse, now: Moment) -> f64 {
        self.mutations.spend(spent, now.monotonic_ms)
    }
}

/// As in Kafka, the message omits the default message of the code.
impl From<QuotaExceeded> for ApiError {
    fn from(_: QuotaExceeded) -> ApiError {
        ApiError { code: ErrorCode::ThrottlingQuotaExceeded, message: None }
    }
}
