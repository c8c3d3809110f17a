//! Metadata in front of payloads: of an entry, and of each message in a batch.

use prost::Message;

/// A property of a message.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, required, tag = "1")]
    pub key: String,
    #[prost(string, required, tag = "2")]
    pub value: String,
}

/// Compression codecs, by Pulsar's names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompressionCode {
    None = 0,
    Lz4 = 1,
    Zlib = 2,
    Zstd = 3,
    Snappy = 4,
}

/// Metadata of an entry: one message, or a batch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MessageMetadata {
    #[prost(string, required, tag = "1")]
    pub producer_name: String,
    /// Of the first message of a batch.
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, required, tag = "3")]
    pub publish_time: u64,
    #[prost(message, repeated, tag = "4")]
    pub properties: Vec<KeyValue>,
    /// The key of a message; in a batch, that of its first message, by which Key_Shared dispatches the batch.
    #[prost(string, optional, tag = "6")]
    pub partition_key: Option<String>,
    #[prost(enumeration = "CompressionCode", optional, tag = "8")]
    pub compression: Option<i32>,
    #[prost(uint32, optional, tag = "9")]
    pub uncompressed_size: Option<u32>,
    /// Absent for a message that was sent alone.
    #[prost(int32, optional, tag = "11")]
    pub num_messages_in_batch: Option<i32>,
    #[prost(uint64, optional, tag = "12")]
    pub event_time: Option<u64>,
    /// The name of the encryption algorithm; encrypted payloads are refused.
    #[prost(string, optional, tag = "14")]
    pub encryption_algo: Option<String>,
    /// True if the key is binary, in base 64.
    #[prost(bool, optional, tag = "17")]
    pub partition_key_b64_encoded: Option<bool>,
    /// Of the last message of a batch.
    #[prost(uint64, optional, tag = "24")]
    pub highest_sequence_id: Option<u64>,
    /// Number of entries that one message is cut into; more than one is refused.
    #[prost(int32, optional, tag = "27")]
    pub num_chunks_from_msg: Option<i32>,
}

/// Metadata of a message in a batch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SingleMessageMetadata {
    #[prost(message, repeated, tag = "1")]
    pub properties: Vec<KeyValue>,
    #[prost(string, optional, tag = "2")]
    pub partition_key: Option<String>,
    #[prost(int32, required, tag = "3")]
    pub payload_size: i32,
    /// True for a message that compaction has removed; its payload is empty.
    #[prost(bool, optional, tag = "4")]
    pub compacted_out: Option<bool>,
    #[prost(uint64, optional, tag = "5")]
    pub event_time: Option<u64>,
    #[prost(bool, optional, tag = "6")]
    pub partition_key_b64_encoded: Option<bool>,
    #[prost(uint64, optional, tag = "8")]
    pub sequence_id: Option<u64>,
}
