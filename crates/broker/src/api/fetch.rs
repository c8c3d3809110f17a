//! Fetch (key 1), versions 4 to 18.
//!
//! A fetch reads whole batches, as slices of log segments, that are sent by sendfile. With fewer bytes than
//! min.bytes, the fetch waits on its partitions until enough is appended or for max.wait.ms, then reads
//! again. A batch larger than the limits is returned whole if it is the first, so that no consumer stalls.
//!
//! A follower's fetch reads up to the log end, and reports the follower's log end to the leader. From version
//! 11 on, a consumer may read from followers, and is redirected to one in its rack (KIP-392).
//!
//! A consumer needs READ on each topic, a follower CLUSTER_ACTION.
//!
//! Version 7 brings incremental sessions (KIP-227), version 12 truncation by epochs (KIP-595), version 13
//! topic ids (KIP-516), version 15 the follower's broker epoch (KIP-903), version 16 the new leader's address
//! (KIP-951).

mod plan;
mod respond;

use super::Call;
use super::entry::{Api, ByResource};
use crate::broker::Broker;
use crate::request_metrics::{Purgatory, timed};
use bytes::Bytes;
use plan::{FetchEntry, FetchPlan};
use respond::FetchOutcome;
use std::sync::Arc;
use std::time::Duration;
use thalweg_net::Reply;
use thalweg_replica::partition::{FetchError, FetchParameters, FetchRead, Isolation, News, Waiter};
use thalweg_wire::request::FetchRequest;
use thalweg_wire::{ApiKey, DecodeError, Decoder, ErrorCode, Message};
use tokio::time::Instant;

pub(super) const API: Api = Api::new(ApiKey::Fetch, 4..=18, ByResource, handle).waits();

/// Upper bound of max.wait.ms.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Reads immediately, and answers immediately if there are enough bytes.
pub fn handle(broker: &Arc<Broker>, mut call: Call, mut d: Decoder) -> Result<Reply, DecodeError> {
    let request = FetchRequest::decode(&mut d, call.version)?;
    call.frame = Bytes::new();
    // Errors of the session, or of every partition, take precedence over an invalid isolation level.
    let refused = Isolation::of(request.isolation_level).is_none().then(|| request.clone());
    let mut plan = match FetchPlan::new(broker, &call, request) {
        Ok(plan) => plan,
        Err(error) => return Ok(respond::failed(&call, error)),
    };
    if let Some(request) = refused
        && plan.entries.iter().any(|entry| entry.partition.is_ok())
    {
        broker.fetch_sessions.forget(plan.session.id());
        return Ok(respond::refused(&call, &request, ErrorCode::InvalidRequest));
    }
    plan.keep_to_quota(&broker.quotas, &call);
    let outcomes = read(&plan);
    let spent = call.received_at.elapsed();
    if plan.max_wait.is_zero() || is_enough(&plan, &outcomes) {
        return Ok(respond::answer(broker, &call, plan, outcomes, spent));
    }
    let broker = Arc::clone(broker);
    Ok(Reply::Later(Box::pin(async move {
        let (outcomes, later) = {
            let _waiting = broker.requests.waits(Purgatory::Fetch);
            match plan.news.clone() {
                Some(news) => timed(wait_for_news(&broker, &call, &mut plan, outcomes, &news)).await,
                None => timed(wait(&plan, outcomes)).await,
            }
        };
        respond::answer(&broker, &call, plan, outcomes, spent + later)
    })))
}

/// Waits for enough bytes or for max.wait.ms. Only changed partitions are read again: a follower usually
/// waits on many partitions, and few of them change.
async fn wait(plan: &FetchPlan, mut outcomes: Vec<FetchOutcome>) -> Vec<FetchOutcome> {
    let deadline = Instant::now() + plan.max_wait.min(LONGEST_WAIT);
    loop {
        // Each partition is watched and compared under one hold of its lock: no append can happen in between.
        let waiter = Waiter::begin(plan.min_bytes);
        let news = |entry: &FetchEntry, outcome: &FetchOutcome| match (&entry.partition, outcome.snapshot()) {
            (Ok(partition), Some(seen)) => !partition.watch(plan.reader, seen, &waiter),
            _ => true,
        };
        if read_again(plan, &mut outcomes, news) && is_enough(plan, &outcomes) {
            return outcomes;
        }
        waiter.has(outcomes.iter().map(FetchOutcome::bytes).sum());
        let timely = tokio::time::timeout_at(deadline, waiter.woken()).await;
        drop(waiter);
        let changed =
            |entry: &FetchEntry, outcome: &FetchOutcome| match (&entry.partition, outcome.snapshot()) {
                (Ok(partition), Some(seen)) => partition.snapshot() != seen,
                _ => true,
            };
        let has_news = read_again(plan, &mut outcomes, changed);
        if timely.is_err() || (has_news && is_enough(plan, &outcomes)) {
            return outcomes;
        }
    }
}

/// As [`wait`], but on the news of a session: partitions without news cost nothing.
async fn wait_for_news(
    broker: &Broker,
    call: &Call,
    plan: &mut FetchPlan,
    mut outcomes: Vec<FetchOutcome>,
    news: &News,
) -> Vec<FetchOutcome> {
    let deadline = Instant::now() + plan.max_wait.min(LONGEST_WAIT);
    loop {
        let found: usize = outcomes.iter().map(FetchOutcome::bytes).sum();
        news.wait_for(plan.min_bytes.saturating_sub(found));
        // News that arrived before the wait count as well.
        let mut has_news = read_news(broker, call, plan, &mut outcomes);
        let mut is_late = false;
        if !has_news {
            is_late = tokio::time::timeout_at(deadline, news.woken()).await.is_err();
            has_news = read_news(broker, call, plan, &mut outcomes);
        }
        if is_late || (has_news && is_enough(plan, &outcomes)) {
            return outcomes;
        }
    }
}

/// Adds the partitions with news of the session, and reads them. Returns true if there were any.
fn read_news(broker: &Broker, call: &Call, plan: &mut FetchPlan, outcomes: &mut Vec<FetchOutcome>) -> bool {
    let news = plan.add_news(broker, call);
    outcomes.resize_with(plan.entries.len(), || FetchOutcome::failed(ErrorCode::None));
    read_those(plan, outcomes, &news);
    !news.is_empty()
}

/// Reads the partitions again that have changed by `has_news`. Returns true if there were any.
fn read_again(
    plan: &FetchPlan,
    outcomes: &mut [FetchOutcome],
    mut has_news: impl FnMut(&FetchEntry, &FetchOutcome) -> bool,
) -> bool {
    let entries = plan.entries.iter().zip(outcomes.iter());
    let news: Vec<usize> =
        (0..).zip(entries).filter(|(_, (e, o))| has_news(e, o)).map(|(at, _)| at).collect();
    read_those(plan, outcomes, &news);
    !news.is_empty()
}

/// Reads some of the partitions again, within the bytes that the other partitions leave.
fn read_those(plan: &FetchPlan, outcomes: &mut [FetchOutcome], those: &[usize]) {
    for at in those {
        outcomes[*at] = FetchOutcome::failed(ErrorCode::None);
    }
    let found: usize = outcomes.iter().map(FetchOutcome::bytes).sum();
    let (mut left, mut first) = (plan.max_bytes.saturating_sub(found), found == 0);
    for at in those {
        let outcome = read_partition(plan, &plan.entries[*at], left, first, false);
        first &= outcome.bytes() == 0;
        left = left.saturating_sub(outcome.bytes());
        outcomes[*at] = outcome;
    }
}

/// True if the answer should be sent: enough bytes, or an urgent outcome.
fn is_enough(plan: &FetchPlan, outcomes: &[FetchOutcome]) -> bool {
    let bytes: usize = outcomes.iter().map(FetchOutcome::bytes).sum();
    // A session may have no partition to read and still wait for news.
    let has_none = plan.entries.is_empty() && plan.news.is_none();
    has_none || bytes >= plan.min_bytes || outcomes.iter().any(FetchOutcome::is_urgent)
}

/// Reads every partition of a new fetch, within its limit in bytes.
fn read(plan: &FetchPlan) -> Vec<FetchOutcome> {
    let mut left = plan.max_bytes;
    let mut first = true;
    let mut outcomes = Vec::with_capacity(plan.entries.len());
    for entry in &plan.entries {
        let outcome = read_partition(plan, entry, left, first, true);
        first &= outcome.bytes() == 0;
        left = left.saturating_sub(outcome.bytes());
        outcomes.push(outcome);
    }
    outcomes
}

fn read_partition(
    plan: &FetchPlan,
    entry: &FetchEntry,
    left: usize,
    first: bool,
    first_pass: bool,
) -> FetchOutcome {
    let partition = match &entry.partition {
        Ok(partition) => partition,
        Err(error) => return FetchOutcome::failed(*error),
    };
    // Subscribe before the read, so that later appends become news.
    if let (Some(_), Some(subscription)) = (&plan.news, &entry.subscription) {
        partition.subscribe(subscription);
    }
    let from = FetchParameters {
        offset: entry.fetch_offset,
        max_bytes: entry.max_bytes.min(left),
        // After the first records, an oversized batch waits for the next fetch.
        at_least_one: first,
        current_leader_epoch: entry.current_leader_epoch,
        last_fetched_epoch: entry.last_fetched_epoch,
        reader: plan.reader,
        isolation: plan.isolation,
        from_any_replica: plan.from_any_replica,
        reader_start: entry.log_start_offset,
        first_pass,
    };
    if let Some(rack) = &plan.elsewhere
        && let Some(preferred) = partition.prefer_other(&from, rack)
    {
        return FetchOutcome::read(preferred);
    }
    match partition.fetch(&from) {
        Ok(read) => FetchOutcome::read(read),
        Err(error @ FetchError::OutOfRange { lost_from: Some(lost_from) }) => {
            FetchOutcome::beginning_lost(error.code(), lost_from)
        }
        Err(error) => FetchOutcome::failed(error.code()),
    }
}

/// The error of a fetch that fails as a whole.
type FetchFailed = ErrorCode;

/// A read without records or news.
fn is_silent(read: &FetchRead) -> bool {
    read.slice.is_none() && read.diverging.is_none() && read.preferred_read_replica.is_none()
}
