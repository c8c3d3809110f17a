//! The messages of Pulsar's binary protocol that this client sends and understands, as Protobuf: commands,
//! and the metadata in front of payloads.
//!
//! Field numbers are those of `PulsarApi.proto` (Pulsar 4.0, protocol version 21). Fields without a use
//! here are left out: Protobuf skips them. There is no generated code, and no schema to compile.

mod command;
mod metadata;

pub(crate) use command::{
    Ack, AckKind, AckResponse, BaseCommand, CloseConsumer, CloseProducer, Command, Connect, EntryCommand,
    Flow, GetLastMessageId, KeySharedMeta, LookupResponse, LookupResult, LookupTopic, MessageIdData,
    PartitionsRequest, PartitionsResponse, PartitionsResult, Ping, Pong, Redeliver, RegisterProducer, Seek,
    SendCommand, SendError, SendReceiptCommand, Subscribe, Unsubscribe,
};
#[cfg(test)]
pub(crate) use command::{
    ActiveConsumerChange, ConnectedResponse, EndOfTopic, ErrorResponse, LastMessageIdResponse,
    ProducerSuccess, Success,
};
pub(crate) use metadata::{CompressionCode, KeyValue, MessageMetadata, SingleMessageMetadata};
