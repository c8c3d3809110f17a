//! The client side of Kafka's protocol: connections with typed requests, the cluster behind bootstrap addresses, and a
//! lean producer and consumer. Used between brokers, by the lab and by the command line; it knows no broker from inside.
//!
//! - [`Connection`] sends typed requests over any byte stream, many at a time, at the newest version both sides speak.
//! - [`Cluster`] knows the brokers, the leaders and the coordinators, and keeps a connection to each.
//! - [`Producer`] sends records at a cost per record of varints and a copy.
//! - [`Consumer`] reads partitions, or a share of a group's, one fetch ahead of the caller.
//! - [`Security`] is TLS and SASL, by Kafka's settings.
//! - [`Connector`] is where the network enters: TCP, or whatever a test or simulation puts in its place.

mod cluster;
mod connection;
mod consumer;
mod coordinator;
mod error;
mod frames;
mod handshake;
mod metadata;
mod offsets;
mod partitioner;
mod producer;
mod properties;
mod security;
mod stream;
mod versions;

pub use cluster::{Cluster, CoordinatorKind};
pub use connection::{Connection, ConnectionOptions, RequestOptions};
pub use consumer::{
    Chunk, ChunkError, Consumer, ConsumerConfig, ConsumerError, NoGroup, NoOffset, OffsetReset, Polled,
    StartAt, read_assignment,
};
pub use error::{
    BootstrapError, BrokerUnknown, ClientError, CloseReason, ConnectFailed, ConnectTimedOut,
    ConnectionClosed, HandshakeFailed, HandshakeFault, InvalidAddress, NoBootstrapServer, Refused,
    RequestTimedOut, UnencodableRequest, UnreadableResponse, VersionMismatch,
};
pub use frames::FrameReader;
pub use metadata::{BrokerAddress, Metadata, PartitionMetadata, TopicMetadata};
pub use offsets::{
    CommittedOffset, GroupMetadata, ListedOffset, OffsetSpec, TopicPartition, commit, committed,
};
pub use partitioner::key_partition;
pub use producer::{
    Acks, BatchRefused, BufferFull, Delivery, DeliveryError, DeliveryTimedOut, InvalidTransactionState,
    NoSuchPartition, Producer, ProducerClosed, ProducerConfig, ProducerRecord, RecordTooLarge, SendError,
    Sending, SentRun, Taken, TopicRef, TransactionAborted, TransactionCause, TransactionError,
};
pub use properties::{InvalidProperty, InvalidSetting, Properties};
pub use security::sasl::{AuthenticationFailed, AuthenticationFault};
pub use security::tls::{TlsFailed, TlsFault};
pub use security::{HIDDEN, ScramFault, Security, is_secret};
pub use stream::{ByteStream, Connector, bootstrap_servers, write_all_vectored};
pub use versions::ApiVersions;
