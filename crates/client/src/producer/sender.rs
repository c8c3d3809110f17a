//! The sender task of one broker: gathers batches into requests, writes them, and reads the answers.
//!
//! A request consists of its encoded head and tail with the batches between them, written in place. Several
//! requests are in flight (`max.in.flight.requests.per.connection`); answers arrive in request order. When
//! the connection ends, all batches in flight return to their queues.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use thalweg_dial::{
    ByteStream, ClientError, CloseReason, ConnectionClosed, FrameReader, NegotiatedState, Throttle,
    UnencodableRequest, UnreadableResponse, backoff_after, negotiate,
};
use thalweg_record::Offset;
use thalweg_wire::data::RequestHeader;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::produce_response::PartitionProduceResponse;
use thalweg_wire::request::{ProduceRequest, ProduceResponse};
use thalweg_wire::{ApiKey, EncodeError, Encoder, ErrorCode, Gap, Message, Records, frame};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::accumulator::InFlightBatch;
use super::delivery::{BatchRefused, DeliveryError, timed_out};
use super::partition::BatchEnd;
use super::report::{drop_waiting, report};
use super::{Acks, ProducerState};

const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// Interval of the check for timed-out requests.
const TICK: Duration = Duration::from_secs(1);

/// The last version of Produce that adds no partition to a transaction (KIP-890).
const EXPLICIT_UNTIL: i16 = 11;

/// A request in flight.
struct Flight {
    correlation_id: i32,
    version: i16,
    batches: Vec<InFlightBatch>,
    sent_at: Instant,
}

/// A request that is being written: the last flight.
struct OutgoingRequest {
    encoded: BytesMut,
    gaps: Vec<Gap>,
    written: usize,
}

/// The outcome of a batch in an answer.
enum Outcome {
    Stored(Offset),
    /// The batch failed and may be retried.
    Failed {
        error_code: ErrorCode,
        message: Option<String>,
    },
}

/// Sends to one broker until it is dropped.
pub(super) async fn run(shared: Arc<ProducerState>, broker: i32, wake: Arc<Notify>) {
    let mut backoff = RECONNECT_MIN;
    loop {
        let mut flights = VecDeque::new();
        let started = Instant::now();
        let failure = match session(&shared, broker, &wake, &mut flights).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        tracing::debug!(broker, error = %failure, "Connection to the broker was closed");
        let ended: Vec<InFlightBatch> =
            flights.into_iter().flat_map(|flight: Flight| flight.batches).collect();
        let message = failure.to_string();
        shared.accumulator.lock().trouble = Some(message.clone());
        let outcomes = ended.into_iter().map(|taken| {
            let outcome =
                Outcome::Failed { error_code: ErrorCode::NetworkException, message: Some(message.clone()) };
            (taken, outcome)
        });
        apply_outcomes(&shared, outcomes.collect());
        shared.housekeeper.notify_one();
        if started.elapsed() > RECONNECT_MAX {
            backoff = RECONNECT_MIN;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(RECONNECT_MAX);
    }
}

/// The session of one connection.
async fn session(
    shared: &ProducerState,
    broker: i32,
    wake: &Notify,
    flights: &mut VecDeque<Flight>,
) -> Result<std::convert::Infallible, ClientError> {
    let address = {
        let accumulator = shared.accumulator.lock();
        accumulator.brokers.get(&broker).map(|broker| broker.address.clone()).unwrap_or_default()
    };
    let options = &shared.config.connection;
    let peer: Arc<str> = address.as_str().into();
    let wait = options.waits.as_ref().map(|waits| waits.connection(&address));
    let opened = async {
        let stream = shared.cluster.connector().connect(&address, options).await?;
        let (reader, mut writer) = tokio::io::split(stream);
        let mut frames = FrameReader::new(reader, options.frame_bytes_max);
        let negotiated = negotiate(&mut frames, &mut writer, &peer, options).await?;
        Ok::<_, ClientError>((frames, writer, negotiated))
    };
    let (mut frames, mut writer, negotiated) = options.ended(&address, opened.await)?;
    drop(wait);
    let newest = negotiated.versions.pick::<ProduceRequest>(&peer)?;
    let versions = Versions { newest, explicit: newest.min(EXPLICIT_UNTIL) };
    let link = Link {
        shared,
        broker,
        peer,
        versions,
        negotiated,
        wake,
        throttle: Throttle::default(),
        next_correlation_id: 1,
    };
    link.exchange(&mut frames, &mut writer, flights).await
}

/// The versions of Produce to send.
#[derive(Clone, Copy)]
struct Versions {
    newest: i16,
    /// Version for transactions whose partitions are registered with the coordinator.
    explicit: i16,
}

struct Link<'a> {
    shared: &'a ProducerState,
    broker: i32,
    peer: Arc<str>,
    versions: Versions,
    negotiated: NegotiatedState,
    wake: &'a Notify,
    throttle: Throttle,
    next_correlation_id: i32,
}

impl Link<'_> {
    /// Writes requests and reads answers until the connection ends.
    async fn exchange<S: ByteStream>(
        mut self,
        frames: &mut FrameReader<ReadHalf<S>>,
        writer: &mut WriteHalf<S>,
        flights: &mut VecDeque<Flight>,
    ) -> Result<std::convert::Infallible, ClientError> {
        let in_flight_max = self.shared.config.in_flight_max;
        let mut outgoing: Option<OutgoingRequest> = None;
        let mut next_tick = Instant::now() + TICK;
        let mut timer = std::pin::pin!(tokio::time::sleep_until(next_tick));
        loop {
            if self.renewal_is_due() && flights.is_empty() {
                self.renew(frames, writer).await?;
            }
            let throttled_until = self.throttle.until();
            let may_send = outgoing.is_none()
                && flights.len() < in_flight_max
                && throttled_until.is_none()
                && !self.renewal_is_due();
            let mut ready_at = None;
            if may_send {
                (outgoing, ready_at) = self.gather(flights)?;
            }
            // No request can time out while none is in flight.
            let check_at = if flights.is_empty() { self.negotiated.renew_at } else { Some(next_tick) };
            let wake_at = [ready_at, check_at, throttled_until].into_iter().flatten().min();
            if let Some(at) = wake_at {
                set(timer.as_mut(), at);
            }
            tokio::select! {
                biased;
                written = write_some(writer, outgoing.as_ref(), flights), if outgoing.is_some() => {
                    let written = written.map_err(|error| self.closed(error.into()))?;
                    if advance(&mut outgoing, written) {
                        writer.flush().await.map_err(|error| self.closed(error.into()))?;
                        self.written(flights);
                    }
                }
                answer = frames.next() => {
                    let mut answer = Some(answer.map_err(|reason| self.closed(reason))?);
                    while let Some(frame) = answer {
                        // A request that is not written completely cannot be answered.
                        self.answered(frame, flights, usize::from(outgoing.is_some()))?;
                        answer = frames.take().map_err(|reason| self.closed(reason))?;
                    }
                }
                () = self.wake.notified(), if may_send && outgoing.is_none() => {}
                () = timer.as_mut(), if wake_at.is_some() => {
                    let now = Instant::now();
                    if now >= next_tick {
                        next_tick = now + TICK;
                        self.check_oldest(flights, now)?;
                    }
                }
            }
        }
    }

    /// True if requests must wait for re-authentication.
    fn renewal_is_due(&self) -> bool {
        self.negotiated.renew_at.is_some_and(|at| at <= Instant::now())
    }

    /// Re-authenticates (KIP-368), on a connection without requests in flight.
    async fn renew<S: ByteStream>(
        &mut self,
        frames: &mut FrameReader<ReadHalf<S>>,
        writer: &mut WriteHalf<S>,
    ) -> Result<(), ClientError> {
        let options = &self.shared.config.connection;
        self.negotiated.renew(frames, writer, &self.peer, options).await
    }

    fn closed(&self, reason: CloseReason) -> ClientError {
        ConnectionClosed { peer: Arc::clone(&self.peer), reason }.into()
    }

    /// Builds a request from the batches that can be sent now.
    fn gather(
        &mut self,
        flights: &mut VecDeque<Flight>,
    ) -> Result<(Option<OutgoingRequest>, Option<Instant>), ClientError> {
        let now = Instant::now();
        let (mut batches, next, version) = {
            let mut accumulator = self.shared.accumulator.lock();
            let explicit = accumulator.transaction.as_ref().is_some_and(|open| !open.is_implicit());
            let (batches, next) = accumulator.take(self.broker, &self.shared.config, now);
            (batches, next, if explicit { self.versions.explicit } else { self.versions.newest })
        };
        if batches.is_empty() {
            return Ok((None, next));
        }
        for taken in &mut batches {
            taken.batch.finish();
        }
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = self.next_correlation_id.wrapping_add(1);
        // In flight from here on, so that a failure returns the batches.
        flights.push_back(Flight { correlation_id, version, batches, sent_at: now });
        let flight = flights.back().expect("it was just added");
        let (encoded, gaps) = self.encode(flight).map_err(|source| UnencodableRequest {
            peer: Arc::clone(&self.peer),
            api: ApiKey::Produce,
            version,
            source,
        })?;
        Ok((Some(OutgoingRequest { encoded, gaps, written: 0 }), next))
    }

    /// The request without the batches. Batches are sorted, so those of a topic are adjacent, and the gaps
    /// are in the same order.
    fn encode(&self, flight: &Flight) -> Result<(BytesMut, Vec<Gap>), EncodeError> {
        let (config, version) = (&self.shared.config, flight.version);
        let mut request = ProduceRequest {
            transactional_id: config.transactional_id.clone(),
            acks: config.acks.code(),
            timeout_ms: i32::try_from(config.connection.request_timeout.as_millis()).unwrap_or(i32::MAX),
            topic_data: Vec::new(),
        };
        {
            let accumulator = self.shared.accumulator.lock();
            for taken in &flight.batches {
                let queue = &accumulator.partitions[taken.partition];
                if request.topic_data.last().is_none_or(|last| *last.name != *queue.topic) {
                    request.topic_data.push(TopicProduceData {
                        name: queue.topic.to_string(),
                        topic_id: queue.topic_id,
                        partition_data: Vec::new(),
                    });
                }
                let topic = request.topic_data.last_mut().expect("it was just added");
                topic.partition_data.push(PartitionProduceData {
                    index: queue.partition,
                    records: Some(Records::Elsewhere(taken.batch.bytes().len())),
                });
            }
        }
        let header = RequestHeader {
            request_api_key: ApiKey::Produce as i16,
            request_api_version: version,
            correlation_id: flight.correlation_id,
            client_id: Some(config.connection.client_id.clone()),
        };
        let mut e = Encoder::with_capacity(256);
        e.i32(0);
        header.encode(&mut e, frame::request_header_version(ApiKey::Produce, version))?;
        request.encode(&mut e, version)?;
        let length = e.total_len() - frame::LENGTH_LEN;
        e.patch_i32(0, i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?);
        Ok(e.into_parts())
    }

    /// Handles a written request: with `acks=0`, it is complete.
    fn written(&self, flights: &mut VecDeque<Flight>) {
        if self.shared.config.acks == Acks::None {
            let flight = flights.pop_back().expect("the written request is the last flight");
            let stored = flight.batches.into_iter().map(|taken| (taken, Outcome::Stored(Offset::NONE)));
            apply_outcomes(self.shared, stored.collect());
        }
    }

    fn answered(
        &self,
        answer: Bytes,
        flights: &mut VecDeque<Flight>,
        unwritten: usize,
    ) -> Result<(), ClientError> {
        let received = answer.first_chunk().map_or(-1, |id| i32::from_be_bytes(*id));
        let written = flights.len() - unwritten;
        let expected = flights.iter().take(written).next().map(|flight| flight.correlation_id);
        if expected != Some(received) {
            return Err(self.closed(CloseReason::Correlation { received, expected }));
        }
        let version = flights.front().expect("a request with an answer is in flight").version;
        let (_, response) = frame::decode_response::<ProduceRequest>(answer, version).map_err(|source| {
            UnreadableResponse { peer: Arc::clone(&self.peer), api: ApiKey::Produce, version, source }
        })?;
        self.throttle.note(&response, version);
        let flight = flights.pop_front().expect("the answered request is the first flight");
        apply_outcomes(self.shared, self.outcomes(flight.batches, version, response));
        Ok(())
    }

    /// The outcome of each batch in the answer, which usually lists partitions in request order.
    fn outcomes(
        &self,
        batches: Vec<InFlightBatch>,
        version: i16,
        response: ProduceResponse,
    ) -> Vec<(InFlightBatch, Outcome)> {
        let mut answers: Vec<Option<(AnswerPartition, PartitionProduceResponse)>> =
            Vec::with_capacity(batches.len());
        for topic in response.responses {
            for partition in topic.partition_responses {
                let whose = AnswerPartition {
                    name: topic.name.clone(),
                    id: topic.topic_id,
                    partition: partition.index,
                };
                answers.push(Some((whose, partition)));
            }
        }
        let accumulator = self.shared.accumulator.lock();
        let outcomes = batches.into_iter().enumerate().map(|(at, taken)| {
            let queue = &accumulator.partitions[taken.partition];
            let is_it = |answer: &Option<(AnswerPartition, PartitionProduceResponse)>| {
                answer.as_ref().is_some_and(|(whose, _)| {
                    whose.partition == queue.partition
                        && if version >= 13 {
                            whose.id == queue.topic_id
                        } else {
                            *whose.name == *queue.topic
                        }
                })
            };
            let place = match answers.get(at) {
                Some(answer) if is_it(answer) => Some(at),
                _ => answers.iter().position(is_it),
            };
            let answer = place.and_then(|place| answers[place].take());
            (taken, outcome(answer.map(|(_, answer)| answer)))
        });
        outcomes.collect()
    }

    /// Fails if the oldest request has waited longer than `request.timeout.ms`, without the broker's throttle
    /// time.
    fn check_oldest(&self, flights: &VecDeque<Flight>, now: Instant) -> Result<(), ClientError> {
        let timeout = self.shared.config.connection.request_timeout;
        match flights.front() {
            Some(flight) if self.throttle.counts_from(flight.sent_at) + timeout <= now => {
                Err(self.closed(CloseReason::RequestTimedOut { api: ApiKey::Produce, timeout }))
            }
            _ => Ok(()),
        }
    }
}

/// The partition of an answer.
struct AnswerPartition {
    name: String,
    id: thalweg_wire::Uuid,
    partition: i32,
}

fn outcome(answer: Option<PartitionProduceResponse>) -> Outcome {
    let Some(answer) = answer else {
        let message = Some("the broker's answer leaves the partition out".to_owned());
        return Outcome::Failed { error_code: ErrorCode::NetworkException, message };
    };
    match ErrorCode::from_i16(answer.error_code).unwrap_or(ErrorCode::UnknownServerError) {
        ErrorCode::None => Outcome::Stored(Offset(answer.base_offset)),
        // The broker has stored the batch, but no longer knows its offset.
        ErrorCode::DuplicateSequenceNumber => Outcome::Stored(Offset::NONE),
        error_code => {
            let of_record =
                answer.record_errors.into_iter().find_map(|record| record.batch_index_error_message);
            Outcome::Failed { error_code, message: answer.error_message.or(of_record) }
        }
    }
}

fn set(mut timer: std::pin::Pin<&mut Sleep>, at: Instant) {
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
}

/// Writes as much of a request as possible, from the end of the last write.
async fn write_some<W: tokio::io::AsyncWrite + Unpin>(
    writer: &mut W,
    outgoing: Option<&OutgoingRequest>,
    flights: &VecDeque<Flight>,
) -> io::Result<usize> {
    let (Some(outgoing), Some(flight)) = (outgoing, flights.back()) else {
        return std::future::pending().await;
    };
    let mut slices = Vec::with_capacity(2 * outgoing.gaps.len() + 1);
    let (mut skip, mut at) = (outgoing.written, 0);
    let mut push = |bytes| {
        let bytes: &[u8] = bytes;
        if skip < bytes.len() {
            slices.push(IoSlice::new(&bytes[skip..]));
            skip = 0;
        } else {
            skip -= bytes.len();
        }
    };
    for (gap, taken) in outgoing.gaps.iter().zip(&flight.batches) {
        push(&outgoing.encoded[at..gap.position]);
        push(taken.batch.bytes());
        at = gap.position;
    }
    push(&outgoing.encoded[at..]);
    match writer.write_vectored(&slices).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}

/// Notes written bytes. Returns true if the request is written completely.
fn advance(outgoing: &mut Option<OutgoingRequest>, written: usize) -> bool {
    let Some(request) = outgoing else { return false };
    request.written += written;
    let whole = request.encoded.len() + request.gaps.iter().map(|gap| gap.len).sum::<usize>();
    let done = request.written == whole;
    if done {
        *outgoing = None;
    }
    done
}

/// Completes batches, or returns them to their queues.
fn apply_outcomes(shared: &ProducerState, outcomes: Vec<(InFlightBatch, Outcome)>) {
    if outcomes.is_empty() {
        return;
    }
    let now = Instant::now();
    let mut ended: Vec<(InFlightBatch, Result<Offset, DeliveryError>)> = Vec::with_capacity(outcomes.len());
    for (taken, outcome) in outcomes {
        match outcome {
            Outcome::Stored(offset) => {
                let mut accumulator = shared.accumulator.lock();
                accumulator.trouble = None;
                accumulator.partitions[taken.partition].ended(&taken.batch, BatchEnd::Stored);
                drop(accumulator);
                ended.push((taken, Ok(offset)));
            }
            Outcome::Failed { error_code, message } => {
                let given_up = failed(shared, taken, error_code, message, now);
                ended.extend(given_up.map(|(taken, error)| (taken, Err(error))));
            }
        }
    }
    for (taken, result) in &ended {
        report(shared, taken, now, result.as_ref().copied());
    }
    let any_failed = ended.iter().any(|(_, result)| result.is_err());
    {
        let mut accumulator = shared.accumulator.lock();
        for (taken, _) in ended {
            accumulator.release(taken.batch);
        }
        accumulator.wake_all();
    }
    if any_failed {
        drop_waiting(shared);
    }
    shared.progress.notify_waiters();
}

/// Returns a failed batch, or its halves, to its queue, or reports its failure.
fn failed(
    shared: &ProducerState,
    taken: InFlightBatch,
    error_code: ErrorCode,
    message: Option<String>,
    now: Instant,
) -> Option<(InFlightBatch, DeliveryError)> {
    let config = &shared.config;
    let in_time = taken.batch.created + config.delivery_timeout > now;
    let is_divisible = error_code == ErrorCode::MessageTooLarge && taken.batch.record_count() > 1;
    let halves = is_divisible.then(|| taken.batch.halves(config));
    let mut guard = shared.accumulator.lock();
    let accumulator = &mut *guard;
    if let Some(halves) = halves.filter(|_| accumulator.may_retry()) {
        let queue = &accumulator.partitions[taken.partition];
        let (topic, partition, records) = (&queue.topic, queue.partition, taken.batch.record_count());
        tracing::debug!(%topic, partition, records, "Dividing a batch that is too large for the broker");
        accumulator.split(taken, halves);
        return None;
    }
    let may_retry = taken.batch.attempts <= config.retries && in_time && accumulator.may_retry();
    let queue = &mut accumulator.partitions[taken.partition];
    let out_of_sequence = config.idempotence && is_sequence_error(error_code);
    // After a failed batch, all later ones are out of order, without a loss.
    let lost = out_of_sequence
        && (queue.is_oldest(&taken.batch) || error_code != ErrorCode::OutOfOrderSequenceNumber);
    // Storing the other records cannot repair a transaction with lost records.
    let mendable = !(lost && config.transactional_id.is_some());
    if (out_of_sequence || error_code.is_retriable()) && may_retry && mendable {
        if lost {
            let expected = queue.sequence_lost();
            let (topic, partition, why) = (&queue.topic, queue.partition, message.as_deref());
            if expected {
                tracing::debug!(%topic, partition, %error_code, why, "Starting a new producer epoch behind a failed batch");
            } else {
                tracing::warn!(
                    %topic, partition, %error_code, why,
                    "The broker lacks earlier batches: starting a new producer epoch, records may be duplicated"
                );
            }
            if accumulator.identity.is_some_and(|identity| queue.epochs_used_up(identity)) {
                accumulator.identity = None;
            }
        }
        let why = message.as_deref().map(|message| format!(" ({message})")).unwrap_or_default();
        let why = format!("{}-{}: {error_code}{why}", queue.topic, queue.partition);
        config.connection.failed("produce", &why);
        queue.retry(taken.batch, now + backoff_after(config.retry_backoff, Some(error_code)));
        accumulator.trouble = Some(why);
        drop(guard);
        shared.housekeeper.notify_one();
        return None;
    }
    queue.ended(&taken.batch, BatchEnd::GivenUp);
    let error = if in_time || !error_code.is_retriable() {
        let (topic, partition) = (Arc::clone(&queue.topic), queue.partition);
        DeliveryError::Refused(BatchRefused { topic, partition, error_code, message })
    } else {
        let last =
            message.map_or_else(|| error_code.to_string(), |message| format!("{error_code} ({message})"));
        timed_out(config, queue, &taken.batch, Some(last))
    };
    accumulator.batch_failed(&taken.batch, &error);
    Some((taken, error))
}

fn is_sequence_error(error_code: ErrorCode) -> bool {
    matches!(
        error_code,
        ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId | ErrorCode::InvalidProducerEpoch
    )
}
