//! The producer's third task: handles metadata, the producer id and delivery timeouts, and owns the senders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::InitProducerIdRequest;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::accumulator::Accumulator;
use super::delivery::NoProducerId;
use super::partition::Identity;
use super::report::{drop_waiting, fail};
use super::{ProducerState, sender};
use crate::metadata::Metadata;

/// Interval of the timeout check, while batches exist.
const TICK: Duration = Duration::from_millis(100);

/// Runs until dropped, together with its senders.
pub(super) async fn run(shared: Arc<ProducerState>) {
    let mut senders: JoinSet<()> = JoinSet::new();
    let mut sending: BTreeMap<i32, tokio::task::AbortHandle> = BTreeMap::new();
    let mut refreshed = Instant::now();
    let mut next_try = Instant::now();
    loop {
        let wanted = tokio::select! {
            biased;
            () = shared.housekeeper.notified() => true,
            () = pause(&shared, refreshed) => false,
        };
        let now = Instant::now();
        expire(&shared, now);
        start_senders(&shared, &mut senders, &mut sending);
        let stale = shared.accumulator.lock().misses_leader();
        let aged = refreshed + shared.config.metadata_max_age <= now;
        if !(wanted || stale || aged || wants_identity(&shared)) {
            continue;
        }
        if next_try > now {
            tokio::time::sleep_until(next_try).await;
        }
        next_try = Instant::now() + shared.config.retry_backoff;
        if wants_identity(&shared) {
            match init_producer_id(&shared).await {
                Ok(identity) => {
                    let mut accumulator = shared.accumulator.lock();
                    accumulator.identity = Some(identity);
                    accumulator.wake_all();
                }
                Err(error) if error.is_retriable() => {
                    tracing::debug!(%error, "Failed to get a producer id, retrying");
                    shared.config.connection.failed("producer id", &error);
                    shared.accumulator.lock().trouble = Some(error.to_string());
                }
                // Waiting batches will never get an id; later ones may.
                Err(error) => {
                    let waiting = shared.accumulator.lock().give_up_waiting();
                    fail(&shared, waiting, &NoProducerId { reason: error }.into());
                }
            }
        }
        match refresh(&shared).await {
            Ok(_) => {
                refreshed = Instant::now();
                let mut accumulator = shared.accumulator.lock();
                if let Some(why) = accumulator.without_leader() {
                    shared.config.connection.failed("leaders", &why);
                    accumulator.trouble = Some(why);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "Failed to get metadata, retrying");
                shared.config.connection.failed("metadata", &error);
                shared.accumulator.lock().trouble = Some(error.to_string());
            }
        }
        start_senders(&shared, &mut senders, &mut sending);
    }
}

/// Pauses until there is work. A producer without batches sleeps until its metadata is old: a process may
/// hold thousands of producers.
async fn pause(shared: &ProducerState, refreshed: Instant) {
    let begun = {
        let accumulator = shared.accumulator.lock();
        let idle = accumulator.incomplete == 0 && !lacks_identity(shared, &accumulator);
        idle.then(|| Arc::clone(&accumulator.begun))
    };
    let Some(begun) = begun else { return tokio::time::sleep(TICK).await };
    tokio::select! {
        biased;
        () = begun.notified() => {}
        () = tokio::time::sleep_until(refreshed + shared.config.metadata_max_age) => {}
    }
}

/// Starts a sender for each broker without a live sender.
fn start_senders(
    shared: &Arc<ProducerState>,
    senders: &mut JoinSet<()>,
    sending: &mut BTreeMap<i32, tokio::task::AbortHandle>,
) {
    while senders.try_join_next().is_some() {}
    let accumulator = shared.accumulator.lock();
    for (&id, broker) in &accumulator.brokers {
        if sending.get(&id).is_none_or(|task| task.is_finished()) {
            let task = senders.spawn(sender::run(Arc::clone(shared), id, Arc::clone(&broker.wake)));
            sending.insert(id, task);
        }
    }
}

fn expire(shared: &ProducerState, now: Instant) {
    let expired = shared.accumulator.lock().take_expired(&shared.config, now);
    let any = !expired.is_empty();
    for (taken, error) in expired {
        fail(shared, vec![taken], &error);
    }
    if any {
        drop_waiting(shared);
    }
}

fn wants_identity(shared: &ProducerState) -> bool {
    lacks_identity(shared, &shared.accumulator.lock())
}

/// A transactional producer gets its identity from its coordinator.
fn lacks_identity(shared: &ProducerState, accumulator: &Accumulator) -> bool {
    let config = &shared.config;
    config.idempotence && config.transactional_id.is_none() && accumulator.identity.is_none()
}

async fn init_producer_id(shared: &ProducerState) -> Result<Identity, ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        producer_id: ProducerId::NONE.0,
        producer_epoch: ProducerEpoch::NONE.0,
        ..InitProducerIdRequest::default()
    };
    let response = shared.cluster.send_any(&request).await?;
    RefusedRequest::check(response.error_code, None, || "A producer id".to_owned())?;
    Ok(Identity { id: ProducerId(response.producer_id), epoch: ProducerEpoch(response.producer_epoch) })
}

async fn refresh(shared: &ProducerState) -> Result<Arc<Metadata>, ClientError> {
    let topics: Vec<String> = {
        let accumulator = shared.accumulator.lock();
        accumulator.topics.iter().map(|topic| topic.name.to_string()).collect()
    };
    let metadata = shared.cluster.refresh(&topics, true).await?;
    shared.accumulator.lock().apply(&metadata);
    Ok(metadata)
}

/// Waits until a topic's partitions are known.
pub(super) async fn find_topic(shared: &ProducerState, name: &str) -> Result<(), ClientError> {
    let deadline = Instant::now() + shared.config.max_block;
    loop {
        let problem = match refresh(shared).await {
            Ok(metadata) => match metadata.topics.get(name) {
                Some(topic) if topic.error.is_none() && !topic.partitions.is_empty() => {
                    // Starts the senders, and requests the producer id, while the caller continues.
                    shared.housekeeper.notify_one();
                    return Ok(());
                }
                Some(topic) => topic.error.unwrap_or(ErrorCode::UnknownTopicOrPartition),
                None => ErrorCode::UnknownTopicOrPartition,
            },
            Err(error) if error.is_retriable() && Instant::now() < deadline => {
                tokio::time::sleep(shared.config.retry_backoff).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        if !problem.is_retriable() || Instant::now() >= deadline {
            let what = format!("Metadata of topic {name}");
            return Err(RefusedRequest { what, error_code: problem, message: None }.into());
        }
        tokio::time::sleep(shared.config.retry_backoff).await;
    }
}
