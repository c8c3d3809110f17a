//! The messages of a topic: read, searched, shown. Works on any cluster that speaks Kafka's protocol, as a client.
//!
//! - [`Query`] says what to look at and for; [`Search`] runs it and streams [`Event`]s: matches, progress, waits, the end.
//! - [`Filter`] is the condition, its cheap parts first; its expression is that of streams ([`thalweg_stream::expression`]).
//! - [`Masking`] hides keys, values, fields and headers by rule, before a condition or a person sees them.
//! - [`Message`] is a match with the facts of its batch; [`show`] renders it as JSON, text or hex.
//! - [`Registry`] knows schemas, by which a [`Decoder`] turns Avro and Protobuf to JSON.
//! - [`produce`] sends one message.
//! - [`Capacity`] is what all searches of a process take together, and [`Share`] what one principal takes of it.
//!
//! Everything is bounded where it runs: matches, bytes per message and of all messages, time, threads. A search ends when it is
//! dropped, within the scan of one record.

mod capacity;
mod filter;
mod json;
mod masking;
mod message;
mod places;
mod produce;
mod query;
mod registry;
mod scan;
mod search;
pub mod show;

pub use capacity::{Capacity, Share};
pub use filter::{Candidate, Filter, HeaderTest, MaskedHeader, Outcome, Scratch, TextTest};
pub use masking::{InvalidRule, Masking, TopicMasks};
pub use message::{BatchFacts, Content, ControlKind, Message, MessageHeader, SchemaNote};
pub use places::{NoSuchPlace, PlaceError};
pub use produce::{NewMessage, ProduceError, Produced, produce};
pub use query::{End, InvalidQuery, Limits, Query, Start};
pub use registry::{Decoded, Decoder, InvalidRegistry, Registry};
pub use search::{Ended, Event, PartitionProgress, Progress, Search, SearchError, Why};
