//! Kafka's messages: primitives, frames, error codes, and generated requests, metadata and coordinator
//! records. No I/O.
//!
//! - [`request`] holds every request and response that Kafka 4.3 serves, at each of its versions,
//!   [`metadata`] the records of the metadata log, [`group`], [`share`] and [`transaction`] those of the
//!   coordinators, [`data`] headers and messages embedded in others. Each message is one struct with the
//!   fields of all its versions; a field that a version lacks has its default.
//! - [`Decoder`] and [`Encoder`] are the primitives. [`frame`] puts a header and a message together.
//! - [`Refuse`] makes the response that refuses a whole request.
//! - `schema/` describes the messages; `cargo xtask codegen` turns the schema into `src/generated/`.
//!
//! Bytes from outside are never trusted: a count is checked against the bytes at hand before anything is
//! allocated, and bad input is a [`DecodeError`], never a panic. `bytes` and `records` fields are slices of
//! the frame, not copies.

mod decoder;
mod encoder;
pub mod frame;
pub mod list_offsets;
mod message;
mod metadata_value;
mod records;
mod refusal;

#[allow(clippy::all, unused_mut, reason = "generated code is judged by its generator")]
#[rustfmt::skip]
mod generated;

pub use decoder::{DecodeError, DecodeProblem, Decoder};
pub use encoder::{EncodeError, Encoder, Gap, TaggedFields};
pub use generated::api_key::ApiKey;
pub use generated::error_code::ErrorCode;
pub use generated::metadata_record::MetadataRecord;
pub use generated::{data, group, metadata, registry, request, share, transaction};
pub use message::{FieldPosition, Message, RegistryError, Request, Response, decode_encode, encode_default};
pub use metadata_value::{MetadataValueError, decode_metadata_value, encode_metadata_value};
pub use records::Records;
pub use refusal::Refuse;
pub use thalweg_ids::{ParseUuidError, Uuid, seed_ids_of_this_thread};

impl ErrorCode {
    /// The number of the code in messages.
    pub fn code(self) -> i16 {
        self as i16
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
