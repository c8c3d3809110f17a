//! The messages of a topic: reads, searches, displays. Works as a client, on any cluster that speaks Kafka's
//! protocol.
//!
//! - [`Query`] describes the range, the order and the filter; [`Search`] runs a query and streams
//!   [`Event`]s: matches, progress, waits, the end.
//! - [`Filter`] tests messages, cheap tests first; the expression language is that of streams
//!   ([`thalweg_stream::expression`]).
//! - [`Masking`] hides keys, values, fields and headers by rule, before a filter or a person sees them.
//! - [`Message`] is a match with the facts of its batch; [`show`] renders a message as JSON, text or hex.
//! - [`JsonText`] finds fields of JSON by their paths.
//! - [`Registry`] holds schemas, by which a [`Decoder`] converts Avro and Protobuf to JSON.
//! - [`produce`] sends one message.
//! - [`Capacity`] limits all searches of a process together, and [`PrincipalCapacity`] is the part of one
//!   principal.
//!
//! All resources are bounded: matches, bytes per message and in total, time, threads; within a
//! [`PrincipalCapacity`] also the processors and the fetched bytes of all searches together. A dropped search
//! ends within the scan of one record.

mod capacity;
mod filter;
mod json;
mod masking;
mod merge;
mod message;
mod produce;
mod query;
mod ranges;
mod registry;
mod scan;
mod search;
pub mod show;

pub use capacity::{Capacity, PrincipalCapacity};
pub use filter::{Candidate, Filter, HeaderTest, MaskedHeader, Outcome, Scratch, TextTest};
pub use json::fields::{FieldText, JsonText};
pub use masking::{InvalidRule, Masking, TopicMasks};
pub use message::{BatchFacts, Content, ControlKind, Message, MessageHeader, SchemaNote};
pub use produce::{MessagePosition, NewMessage, ProduceError, produce};
pub use query::{End, InvalidQuery, Limits, Order, Query, Start};
pub use ranges::{NoSuchPartition, RangeError};
pub use registry::{DecodeBuffer, Decoder, InvalidRegistry, Registry};
pub use search::{
    EndReason, Event, PartitionProgress, Progress, Search, SearchEnd, SearchError, UnreadablePartition,
};
