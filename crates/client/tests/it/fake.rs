//! A peer that speaks the protocol over memory, with faults set by a test. It stores records like a broker:
//! it checks sequences of idempotent producers, and remembers the last five batches of each.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use thalweg_client::{ByteStream, CloseReason, Cluster, ConnectionOptions, Connector, FrameReader};
use thalweg_record::{DecompressBuffer, ProducerId, batches, check, increment_sequence};
use thalweg_wire::request::api_versions_response::ApiVersion;
use thalweg_wire::request::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use thalweg_wire::request::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use thalweg_wire::request::{
    ApiVersionsResponse, InitProducerIdRequest, InitProducerIdResponse, MetadataResponse, ProduceRequest,
    ProduceResponse,
};
use thalweg_wire::{ApiKey, Decoder, ErrorCode, Message, Records, Uuid, frame};
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use crate::coordinator::{self, Coordinator};

pub const TOPIC: &str = "t";
pub const TOPIC_ID: Uuid = Uuid(77);

/// What to do with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Store it, if its sequence is right.
    Store,
    Refuse(ErrorCode),
    /// End the connection before anything of the request is stored.
    CloseBefore,
    /// Store, and end the connection instead of answering.
    CloseAfter,
    /// Store, and do not answer.
    Silence,
    /// Neither store nor answer.
    Ignore,
    /// Store, and answer later.
    Delay(Duration),
}

/// A record as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub timestamp: i64,
}

#[derive(Debug, Default)]
pub struct Log {
    pub records: Vec<StoredRecord>,
    /// How many of the records are in transactions.
    pub transactional: usize,
    /// Producer epochs in the order of the batches.
    pub epochs: Vec<i16>,
    producers: BTreeMap<i64, ProducerEntry>,
}

#[derive(Debug, Default)]
struct ProducerEntry {
    epoch: i16,
    /// First and last sequence and base offset of the last batches.
    batches: VecDeque<(i32, i32, i64)>,
}

type Script = Box<dyn FnMut(i32) -> Act + Send>;

pub struct State {
    /// Of the transactional id.
    pub coordinator: Coordinator,
    pub logs: Vec<Log>,
    pub produce_requests: usize,
    pub request_bytes_max: usize,
    /// `max.message.bytes`: larger batches are refused.
    pub message_bytes_max: usize,
    /// Refused batches that were larger.
    pub too_large: usize,
    pub connections: usize,
    /// Requests that were read and not answered, at most, on a connection.
    pub unanswered_max: usize,
    pub max_versions: BTreeMap<i16, i16>,
    script: Script,
    next_producer_id: i64,
    /// The error of requests for producer ids.
    pub refuses_producer_ids: Option<ErrorCode>,
    metadata_requests: usize,
}

/// The peer. Clones share it.
#[derive(Clone)]
pub struct Fake(Arc<Mutex<State>>);

impl Fake {
    /// A peer with one topic, which handles the batch of a partition as `script` decides.
    pub fn new(partitions: usize, script: impl FnMut(i32) -> Act + Send + 'static) -> Fake {
        Fake(Arc::new(Mutex::new(State {
            coordinator: Coordinator::default(),
            logs: (0..partitions).map(|_| Log::default()).collect(),
            produce_requests: 0,
            request_bytes_max: 0,
            message_bytes_max: usize::MAX,
            too_large: 0,
            connections: 0,
            unanswered_max: 0,
            max_versions: BTreeMap::new(),
            script: Box::new(script),
            next_producer_id: 100,
            refuses_producer_ids: None,
            metadata_requests: 0,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What connects to it.
    pub fn connector(&self) -> Connector {
        let fake = self.clone();
        Connector::new(move |_| {
            let fake = fake.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(256 << 10);
                fake.state().connections += 1;
                tokio::spawn(fake.serve(theirs));
                Ok(Box::new(ours) as Box<dyn ByteStream>)
            }
        })
    }

    pub async fn cluster(&self) -> Cluster {
        let bootstrap = ["fake:1".to_owned()];
        Cluster::connect_by(self.connector(), &bootstrap, &ConnectionOptions::default())
            .await
            .expect("connected")
    }

    async fn serve(self, stream: DuplexStream) {
        let (reader, writer) = tokio::io::split(stream);
        // The client closes when it has enough; later answers do not matter.
        let _ = self.answer_all(FrameReader::new(reader, 64 << 20), writer).await;
    }

    async fn answer_all(
        self,
        mut frames: FrameReader<ReadHalf<DuplexStream>>,
        mut writer: WriteHalf<DuplexStream>,
    ) -> Result<(), CloseReason> {
        loop {
            let mut batch = vec![frames.next().await?];
            // Buffered requests were in flight at the same time.
            while let Some(frame) = frames.take()? {
                batch.push(frame);
            }
            {
                let mut state = self.state();
                state.unanswered_max = state.unanswered_max.max(batch.len());
            }
            for request in batch {
                match self.answer(request) {
                    Answer::Frame(answer, delay) => {
                        tokio::time::sleep(delay).await;
                        writer.write_all(&answer).await?;
                    }
                    Answer::None => {}
                    Answer::Close => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                }
            }
        }
    }

    fn answer(&self, request: Bytes) -> Answer {
        let prefix = frame::peek_request(&request).expect("a request");
        let key = ApiKey::from_i16(prefix.api_key).expect("a known API");
        let version = prefix.api_version;
        let bytes = request.len();
        let mut d = Decoder::new(request);
        frame::decode_request_header(&mut d, key, version).expect("a header");
        let mut state = self.state();
        let id = prefix.correlation_id;
        match key {
            ApiKey::ApiVersions => {
                let (answer, answered_at) = state.versions(version);
                encode(&answer, key, answered_at, id, Duration::ZERO)
            }
            ApiKey::Metadata => encode(&state.metadata(version), key, version, id, Duration::ZERO),
            ApiKey::InitProducerId => {
                let request = InitProducerIdRequest::decode(&mut d, version).expect("a request");
                if request.transactional_id.is_some() {
                    return state.coordinator.init(&request, version, id);
                }
                state.next_producer_id += 1;
                let answer = InitProducerIdResponse {
                    error_code: state.refuses_producer_ids.map_or(0, ErrorCode::code),
                    producer_id: state.next_producer_id,
                    producer_epoch: 0,
                    ..InitProducerIdResponse::default()
                };
                encode(&answer, key, version, id, Duration::ZERO)
            }
            ApiKey::Produce => {
                let request = ProduceRequest::decode(&mut d, version).expect("a request");
                d.finish().expect("nothing behind it");
                state.request_bytes_max = state.request_bytes_max.max(bytes);
                state.produce(request, version, id)
            }
            other => state.coordinator.answer(other, &mut d, version, id),
        }
    }
}

pub enum Answer {
    Frame(Bytes, Duration),
    None,
    Close,
}

pub fn encode<M: Message>(message: &M, key: ApiKey, version: i16, id: i32, delay: Duration) -> Answer {
    let (bytes, gaps) = frame::encode_response(message, key, version, id).expect("an answer");
    assert!(gaps.is_empty());
    Answer::Frame(bytes.freeze(), delay)
}

impl State {
    fn versions(&self, version: i16) -> (ApiVersionsResponse, i16) {
        let keys = [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::InitProducerId, ApiKey::Produce];
        let keys = keys.into_iter().chain(coordinator::SERVED);
        let api_keys = keys.map(|key| {
            let (min_version, max) = key.versions();
            let max_version = self.max_versions.get(&(key as i16)).copied().unwrap_or(max);
            ApiVersion { api_key: key as i16, min_version, max_version }
        });
        let known = self.max_versions.get(&(ApiKey::ApiVersions as i16)).copied().unwrap_or(i16::MAX);
        let error_code = if version > known { ErrorCode::UnsupportedVersion.code() } else { 0 };
        let api_keys = api_keys.collect();
        let finalized_features = self.coordinator.features();
        let answer = ApiVersionsResponse { error_code, api_keys, finalized_features, ..Default::default() };
        (answer, if version > known { 0 } else { version })
    }

    fn metadata(&mut self, version: i16) -> MetadataResponse {
        self.metadata_requests += 1;
        let partitions = (0..).zip(&self.logs).map(|(partition_index, _)| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..MetadataResponsePartition::default()
        });
        let topic = MetadataResponseTopic {
            name: Some(TOPIC.to_owned()),
            topic_id: if version >= 10 { TOPIC_ID } else { Uuid::ZERO },
            partitions: partitions.collect(),
            ..MetadataResponseTopic::default()
        };
        MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: 1,
                host: "fake".to_owned(),
                port: 1,
                ..MetadataResponseBroker::default()
            }],
            topics: vec![topic],
            ..MetadataResponse::default()
        }
    }

    fn produce(&mut self, request: ProduceRequest, version: i16, id: i32) -> Answer {
        self.produce_requests += 1;
        self.coordinator.check_produce(&request, version);
        let [topic] = request.topic_data.as_slice() else { panic!("one topic") };
        if version >= 13 {
            assert_eq!(topic.topic_id, TOPIC_ID)
        } else {
            assert_eq!(topic.name, TOPIC)
        }
        let mut acts: Vec<Act> = Vec::new();
        for partition in &topic.partition_data {
            acts.push((self.script)(partition.index));
        }
        if acts.contains(&Act::CloseBefore) {
            return Answer::Close;
        }
        if acts.contains(&Act::Ignore) {
            return Answer::None;
        }
        let mut delay = Duration::ZERO;
        let mut answers = Vec::new();
        for (partition, act) in topic.partition_data.iter().zip(&acts) {
            let Some(Records::Inline(records)) = &partition.records else { panic!("records") };
            let (error_code, base_offset) = match act {
                Act::Refuse(error) => (*error, -1),
                _ if records.len() > self.message_bytes_max => {
                    self.too_large += 1;
                    (ErrorCode::MessageTooLarge, -1)
                }
                _ => self.logs[usize::try_from(partition.index).expect("an index")].append(records),
            };
            if let Act::Delay(by) = act {
                delay = delay.max(*by);
            }
            let error_code = error_code.code();
            let index = partition.index;
            answers.push(PartitionProduceResponse { index, error_code, base_offset, ..Default::default() });
        }
        if acts.contains(&Act::CloseAfter) {
            return Answer::Close;
        }
        if request.acks == 0 || acts.contains(&Act::Silence) {
            return Answer::None;
        }
        let (name, topic_id) = (topic.name.clone(), topic.topic_id);
        let responses = vec![TopicProduceResponse { name, topic_id, partition_responses: answers }];
        encode(&ProduceResponse { responses, ..Default::default() }, ApiKey::Produce, version, id, delay)
    }
}

impl Log {
    fn append(&mut self, bytes: &Bytes) -> (ErrorCode, i64) {
        let header = match check(bytes) {
            Ok(header) => header,
            Err(error) => panic!("the producer sent a batch that no broker takes: {error}"),
        };
        let base = i64::try_from(self.records.len()).expect("few records");
        if header.producer_id != ProducerId::NONE {
            let known = self.producers.entry(header.producer_id.0).or_default();
            if header.producer_epoch.0 > known.epoch {
                *known = ProducerEntry { epoch: header.producer_epoch.0, batches: VecDeque::new() };
            }
            let (first, last) = (header.base_sequence, header.last_sequence());
            if let Some(&(_, _, offset)) =
                known.batches.iter().find(|batch| (batch.0, batch.1) == (first, last))
            {
                return (ErrorCode::None, offset);
            }
            let expected = known.batches.back().map_or(0, |batch| increment_sequence(batch.1, 1));
            if header.producer_epoch.0 < known.epoch {
                return (ErrorCode::InvalidProducerEpoch, -1);
            }
            if first != expected {
                return (ErrorCode::OutOfOrderSequenceNumber, -1);
            }
            known.batches.push_back((first, last, base));
            if known.batches.len() > 5 {
                known.batches.pop_front();
            }
            self.epochs.push(header.producer_epoch.0);
        }
        if header.attributes.is_transactional() {
            self.transactional += usize::try_from(header.record_count).expect("a count");
        }
        let mut buffer = DecompressBuffer::default();
        for batch in batches(bytes) {
            for record in batch.expect("checked").records(&mut buffer).expect("readable") {
                let record = record.expect("readable");
                self.records.push(StoredRecord {
                    key: record.key.map(<[u8]>::to_vec),
                    value: record.value.map(<[u8]>::to_vec),
                    headers: record.headers.map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec))).collect(),
                    timestamp: record.timestamp,
                });
            }
        }
        (ErrorCode::None, base)
    }
}
