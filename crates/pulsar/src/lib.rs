//! A small client of Apache Pulsar's binary protocol, with which the lab measures Pulsar beside Kafka and
//! Thalweg. Knows nothing of the lab.
//!
//! - [`Client`] keeps one connection to each broker, finds the partitions of topics and the brokers that own
//!   them.
//! - [`Producer`] sends messages to one topic or partition in batches, many in flight; a [`SendReceipt`] is a
//!   future of a message's id.
//! - [`Consumer`] reads one topic or partition in a subscription, as slices of the received bytes, and
//!   acknowledges messages.
//! - [`Connector`] is the network seam: TCP, or a replacement by a test.
//!
//! Producers and consumers reconnect. Errors name the peer, the request and Pulsar's error code
//! ([`ServerError`]). The client runs on a tokio runtime, without its own threads.
//!
//! Missing compared with Pulsar's clients: TLS and authentication, schemas, transactions, messages in chunks,
//! encryption, readers, patterns of topics, and one consumer or producer for all partitions of a topic.
//!
//! ```no_run
//! use thalweg_pulsar::{Client, ClientOptions, Consumer, ConsumerOptions, Producer, ProducerOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("pulsar://localhost:6650", ClientOptions::default()).await?;
//! let mut consumer = Consumer::subscribe(&client, "orders", "billing", ConsumerOptions::default()).await?;
//! let producer = Producer::open(&client, "orders", ProducerOptions::default()).await?;
//! let receipt = producer.send(b"a chair").await?;
//! println!("stored as {}", receipt.await?);
//! let message = consumer.next().await?;
//! println!("{}: {} bytes", message.id(), message.payload().len());
//! consumer.ack(&message);
//! producer.close().await?;
//! consumer.close().await?;
//! # Ok(())
//! # }
//! ```

mod backoff;
mod client;
mod clock;
mod compression;
mod connection;
mod connector;
mod consumer;
mod error;
mod frame;
mod frame_reader;
mod message_id;
mod options;
mod producer;
mod protocol;
#[cfg(test)]
mod scripted_peer;
mod server_error;
mod service_url;
mod topic;

use std::pin::Pin;

pub use client::Client;
pub use compression::{Compression, CompressionFault};
pub use connector::{ByteStream, Connector};
pub use consumer::{
    ConsumeError, Consumer, ConsumerOptions, EntryFault, InitialPosition, Message, NotCumulative,
    SubscriptionType, UnreadableEntry,
};
pub use error::{
    CloseReason, ConnectFailed, ConnectTimedOut, ConnectionClosed, HandshakeFailed, HandshakeFault,
    PulsarError, RequestRefused, RequestSubject, RequestTimedOut, TooManyRedirects, TopicMoved,
    UnexpectedAnswer,
};
pub use frame::FrameFault;
pub use message_id::MessageId;
pub use options::ClientOptions;
pub use producer::{
    MessageTooLarge, OutgoingMessage, Producer, ProducerClosed, ProducerOptions, SendError, SendReceipt,
    SendRefused, SendTimedOut,
};
pub use server_error::ServerError;
pub use service_url::{BrokerAddress, InvalidServiceUrl};
pub use topic::{InvalidTopicName, TopicName};

/// A future of a large entry: its code is compiled here, and not in each crate that awaits it.
pub type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
