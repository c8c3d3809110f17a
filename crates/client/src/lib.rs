//! A client for Apache Kafka and compatible systems: producers with transactions, consumers and their groups,
//! administrative requests, and below them connections with typed requests. The client is independent of the
//! broker's code.
//!
//! - [`Producer`] sends records at a cost per record of varints and a copy, idempotently, and in transactions
//!   by both of Kafka's protocols.
//! - [`Consumer`] reads partitions, or a share of a group's, one fetch ahead of the caller; as a member of a
//!   classic group, eagerly or cooperatively, or of a consumer group, whose coordinator assigns the
//!   partitions (KIP-848).
//! - [`ShareConsumer`] takes records from a share group, a queue whose members acknowledge each record
//!   (KIP-932).
//! - [`Admin`] has the operations of Kafka's Admin: topics, configurations, groups, offsets, reassignments,
//!   transactions, quotas and more, with an error for each object.
//! - [`Cluster`] knows the brokers, the leaders and the coordinators, and keeps connections that its users
//!   share.
//! - [`Connection`] sends typed requests over any byte stream, many at a time, at the newest version both
//!   sides speak.
//! - [`verdict`] judges the state of a cluster by the answers of its brokers.
//! - [`Security`] is TLS and SASL, by Kafka's settings; [`Properties`] are those settings as text.
//! - [`Connector`] is the network seam: TCP, or a replacement by a test or simulation.
//!
//! The client runs on a tokio runtime, without its own threads. Settings have Kafka's names and defaults
//! ([`ProducerConfig`], [`ConsumerConfig`]). [`ClientError::is_retriable`] is true if a retry may succeed;
//! [`TransactionError`] distinguishes transactions to abort from fatal errors.
//!
//! # A consumer group
//!
//! [`Consumer::poll`] returns records in chunks, and events of the member. Revoked partitions belong to the
//! member until the next poll, so their offsets can be committed before. A commit after the loss of the
//! membership fails ([`CommitFailed`]); the next poll reports the loss, and joins again.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use std::time::Duration;
//!
//! use thalweg_client::{Consumer, ConsumerConfig, ConsumerError, OffsetReset, PollEvent};
//! use thalweg_record::DecompressBuffer;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ConsumerConfig {
//!     group: Some("billing".to_owned()),
//!     offset_reset: OffsetReset::Earliest,
//!     auto_commit: None,
//!     ..ConsumerConfig::default()
//! };
//! let mut consumer = Consumer::connect(&["localhost:9092".to_owned()], config).await?;
//! consumer.subscribe(vec!["orders".to_owned()])?;
//! let mut buffer = DecompressBuffer::default();
//! loop {
//!     match consumer.poll(Duration::from_secs(1)).await? {
//!         PollEvent::Chunk(chunk) => {
//!             chunk.for_each(&mut buffer, |record| {
//!                 println!("{}@{}: {:?}", chunk.at, record.offset, record.value);
//!                 ControlFlow::Continue(())
//!             })?;
//!             match consumer.commit().await {
//!                 // Others read the partitions; the next poll says so.
//!                 Err(ConsumerError::CommitFailed(failed)) => println!("{failed}"),
//!                 committed => committed?,
//!             }
//!         }
//!         PollEvent::Assigned(partitions) => println!("reads {partitions:?}"),
//!         PollEvent::Revoked(partitions) => {
//!             consumer.commit().await?;
//!             println!("gives up {partitions:?}");
//!         }
//!         PollEvent::Lost(partitions) => println!("others read {partitions:?} already"),
//!         PollEvent::Nothing => {}
//!     }
//! }
//! # }
//! ```
//!
//! # From topic to topic, exactly once
//!
//! A transaction commits both the written records and the read offsets, or neither. With the group's
//! metadata, the coordinator refuses a member that has lost its partitions meanwhile.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::ops::ControlFlow;
//! use std::time::Duration;
//!
//! use thalweg_client::{
//!     CommittedOffset, Consumer, ConsumerConfig, PollEvent, Producer, ProducerConfig, ProducerRecord,
//!     StartAt, TransactionError,
//! };
//! use thalweg_record::DecompressBuffer;
//! use tokio::time::Instant;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let bootstrap = ["localhost:9092".to_owned()];
//! let config = ConsumerConfig {
//!     group: Some("upper-case".to_owned()),
//!     read_committed: true,
//!     auto_commit: None,
//!     ..ConsumerConfig::default()
//! };
//! let mut consumer = Consumer::connect(&bootstrap, config).await?;
//! consumer.subscribe(vec!["words".to_owned()])?;
//! // Each instance has its own transactional id, and keeps it after a restart.
//! let config =
//!     ProducerConfig { transactional_id: Some("upper-case-1".to_owned()), ..ProducerConfig::default() };
//! let mut producer = Producer::connect(&bootstrap, config, |_| {}).await?;
//! let upper = producer.topic("upper-case-words").await?;
//! producer.init_transactions().await?;
//! let mut buffer = DecompressBuffer::default();
//! loop {
//!     let PollEvent::Chunk(chunk) = consumer.poll(Duration::from_secs(1)).await? else { continue };
//!     let mut words = Vec::new();
//!     chunk.for_each(&mut buffer, |record| {
//!         words.push(record.value.unwrap_or_default().to_ascii_uppercase());
//!         ControlFlow::Continue(())
//!     })?;
//!     producer.begin_transaction()?;
//!     let written = async {
//!         for (number, word) in (0..).zip(&words) {
//!             let record = ProducerRecord {
//!                 topic: upper,
//!                 partition: None,
//!                 timestamp: 0,
//!                 key: None,
//!                 value: Some(word),
//!                 headers: &[],
//!                 sent_at: Instant::now(),
//!                 number,
//!             };
//!             producer.send(&record).await?;
//!         }
//!         let offsets = BTreeMap::from([(chunk.at.clone(), CommittedOffset::new(chunk.next))]);
//!         producer.send_offsets_to_transaction(&offsets, &consumer.group_metadata()?).await?;
//!         producer.commit_transaction().await?;
//!         Ok::<(), Box<dyn std::error::Error>>(())
//!     };
//!     if let Err(error) = written.await {
//!         match error.downcast_ref::<TransactionError>() {
//!             // The outcome is unknown until the same call succeeds.
//!             Some(undecided) if undecided.is_retriable() => producer.commit_transaction().await?,
//!             Some(fatal) if fatal.is_fatal() => return Err(error),
//!             _ => {
//!                 producer.abort_transaction().await?;
//!                 consumer.seek_to(&chunk.at, StartAt::Committed);
//!             }
//!         }
//!     }
//! }
//! # }
//! ```

mod admin;
mod cluster;
mod consumer;
mod coordinator;
mod metadata;
mod offsets;
mod parallel;
mod partitioner;
mod producer;
mod share;
pub mod verdict;

pub use admin::{
    AbortTransaction, ActiveGroup, ActiveProducer, Admin, ClusterDescription, ConfigChange, ConfigEntry,
    ConfigOperation, ConfigResource, ConfigResourceKind, ConfigSource, ControllerEndpoint, CreatedTopic,
    DelegationToken, DescribeConfigs, Election, Feature, FeatureChange, FeatureUpdate, Features,
    FencedProducer, GroupAssignment, GroupDescription, GroupFilter, GroupKind, GroupLag, GroupListing,
    GroupMember, GroupPosition, GroupPositions, HangingTransactions, ListedGroups, LogDir, LogDirReplica,
    MemberToRemove, NewDelegationToken, NewTopic, OpenTransaction, Outcomes, PartitionReassignment,
    PlannedMove, PlannedMoves, QuorumDescription, QuorumReplica, QuotaChanges, QuotaEntity, QuotaEntityKind,
    QuotaFilter, QuotaMatch, Quotas, Replica, ReplicaAssignment, ReplicaBytes, SCRAM_ITERATIONS, ShareOffset,
    StreamsTask, StreamsTaskRole, Subtopology, TooFewBrokers, TopicGroup, TopicGroupPartition, TopicGroups,
    TransactionDescription, TransactionFilter, TransactionListing, UnseenGroups, UsableBroker,
    UserCredentials, is_without_members, planned_moves, replica_bytes, spread, throttle_rates,
};
pub use cluster::{Cluster, CoordinatorKind, WeakCluster};
pub use consumer::{
    AssignmentStrategy, Chunk, ChunkError, CommitFailed, CommitInFlight, Consumer, ConsumerConfig,
    ConsumerError, GroupProtocol, InvalidPattern, LogTruncated, NoGroup, NoOffset, OffsetReset, PollEvent,
    StartAt, read_assignment,
};
pub use metadata::{BrokerAddress, Metadata, NO_LEADER, PartitionMetadata, TopicMetadata};
pub use offsets::{
    CommittedOffset, GroupMetadata, LeaderAnswer, ListedOffset, OffsetSpec, TopicPartition, commit, committed,
};
pub use parallel::{in_parallel, in_parallel_with_patience};
pub use partitioner::key_partition;
pub use producer::{
    Acks, AppendOutcome, BatchRefused, BufferFull, Delivery, DeliveryError, DeliveryTimedOut,
    InvalidTransactionState, LockedProducer, NoProducerId, NoSuchPartition, Producer, ProducerClosed,
    ProducerConfig, ProducerRecord, RecordTooLarge, SendError, SentRun, TopicRef, TransactionAborted,
    TransactionCause, TransactionError,
};
pub use share::{
    AcknowledgeType, AcknowledgementMode, AcknowledgementOutcomes, AcquireMode, AcquiredRange, NotAcquired,
    ShareChunk, ShareConfig, ShareConsumer, SharePollEvent,
};
pub use thalweg_dial::{
    AnswerBudget, AnswerPlace, AnswerPlaceFuture, ApiVersions, AuthenticationFailed, AuthenticationFault,
    BootstrapError, BrokerUnknown, ByteStream, ClientError, CloseReason, ConnectFailed, ConnectTimedOut,
    Connection, ConnectionClosed, ConnectionOptions, Connector, FrameReader, HIDDEN, HandshakeFailed,
    HandshakeFault, InvalidAddress, InvalidProperty, InvalidSetting, NoBootstrapServer, Properties,
    RefusedRequest, RequestOptions, RequestTimedOut, ScramFault, Security, TlsFailed, TlsFault, TlsSession,
    UnencodableRequest, UnreadableResponse, UnresolvedSetting, VersionMismatch, WaitReport, Waits,
    bootstrap_servers, host_and_port, is_provider_setting, is_secret, resolve, write_all_vectored,
};
