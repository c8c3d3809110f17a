//! Commands. Each travels in a [`BaseCommand`], whose field number is also the number of its kind.

use prost::{Message, Oneof};

use super::metadata::KeyValue;

/// The first part of every frame.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BaseCommand {
    /// The kind of the command. For all commands of this client it equals the command's field number.
    #[prost(uint32, required, tag = "1")]
    pub kind: u32,
    /// `None` for a kind that this client does not know.
    #[prost(
        oneof = "Command",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 27, 28, 29, 30, 31, 38"
    )]
    pub command: Option<Command>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Command {
    #[prost(message, tag = "2")]
    Connect(Connect),
    #[prost(message, tag = "3")]
    Connected(ConnectedResponse),
    #[prost(message, boxed, tag = "4")]
    Subscribe(Box<Subscribe>),
    #[prost(message, boxed, tag = "5")]
    RegisterProducer(Box<RegisterProducer>),
    #[prost(message, tag = "6")]
    Send(SendCommand),
    #[prost(message, tag = "7")]
    SendReceipt(SendReceiptCommand),
    #[prost(message, tag = "8")]
    SendError(SendError),
    #[prost(message, tag = "9")]
    Message(EntryCommand),
    #[prost(message, tag = "10")]
    Ack(Ack),
    #[prost(message, tag = "11")]
    Flow(Flow),
    #[prost(message, tag = "12")]
    Unsubscribe(Unsubscribe),
    #[prost(message, tag = "13")]
    Success(Success),
    #[prost(message, tag = "14")]
    Error(ErrorResponse),
    #[prost(message, tag = "15")]
    CloseProducer(CloseProducer),
    #[prost(message, tag = "16")]
    CloseConsumer(CloseConsumer),
    #[prost(message, tag = "17")]
    ProducerSuccess(ProducerSuccess),
    #[prost(message, tag = "18")]
    Ping(Ping),
    #[prost(message, tag = "19")]
    Pong(Pong),
    #[prost(message, tag = "20")]
    Redeliver(Redeliver),
    #[prost(message, tag = "21")]
    Partitions(PartitionsRequest),
    #[prost(message, tag = "22")]
    PartitionsResponse(PartitionsResponse),
    #[prost(message, tag = "23")]
    Lookup(LookupTopic),
    #[prost(message, tag = "24")]
    LookupResponse(LookupResponse),
    #[prost(message, tag = "27")]
    EndOfTopic(EndOfTopic),
    #[prost(message, tag = "28")]
    Seek(Seek),
    #[prost(message, tag = "29")]
    GetLastMessageId(GetLastMessageId),
    #[prost(message, tag = "30")]
    LastMessageIdResponse(LastMessageIdResponse),
    #[prost(message, tag = "31")]
    ActiveConsumerChange(ActiveConsumerChange),
    #[prost(message, tag = "38")]
    AckResponse(AckResponse),
}

impl From<Command> for BaseCommand {
    fn from(command: Command) -> BaseCommand {
        let kind = match &command {
            Command::Connect(_) => 2,
            Command::Connected(_) => 3,
            Command::Subscribe(_) => 4,
            Command::RegisterProducer(_) => 5,
            Command::Send(_) => 6,
            Command::SendReceipt(_) => 7,
            Command::SendError(_) => 8,
            Command::Message(_) => 9,
            Command::Ack(_) => 10,
            Command::Flow(_) => 11,
            Command::Unsubscribe(_) => 12,
            Command::Success(_) => 13,
            Command::Error(_) => 14,
            Command::CloseProducer(_) => 15,
            Command::CloseConsumer(_) => 16,
            Command::ProducerSuccess(_) => 17,
            Command::Ping(_) => 18,
            Command::Pong(_) => 19,
            Command::Redeliver(_) => 20,
            Command::Partitions(_) => 21,
            Command::PartitionsResponse(_) => 22,
            Command::Lookup(_) => 23,
            Command::LookupResponse(_) => 24,
            Command::EndOfTopic(_) => 27,
            Command::Seek(_) => 28,
            Command::GetLastMessageId(_) => 29,
            Command::LastMessageIdResponse(_) => 30,
            Command::ActiveConsumerChange(_) => 31,
            Command::AckResponse(_) => 38,
        };
        BaseCommand { kind, command: Some(command) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MessageIdData {
    #[prost(uint64, required, tag = "1")]
    pub ledger_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub entry_id: u64,
    #[prost(int32, optional, tag = "3")]
    pub partition: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub batch_index: Option<i32>,
    /// A bit for each message of the batch that is not acknowledged, in words of 64.
    #[prost(int64, repeated, packed = "false", tag = "5")]
    pub ack_set: Vec<i64>,
    #[prost(int32, optional, tag = "6")]
    pub batch_size: Option<i32>,
}

/// The first command of a connection.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Connect {
    #[prost(string, required, tag = "1")]
    pub client_version: String,
    #[prost(int32, optional, tag = "4")]
    pub protocol_version: Option<i32>,
    /// `host:port` of the broker that a proxy shall connect to.
    #[prost(string, optional, tag = "6")]
    pub proxy_to_broker_url: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConnectedResponse {
    #[prost(string, required, tag = "1")]
    pub server_version: String,
    #[prost(int32, optional, tag = "2")]
    pub protocol_version: Option<i32>,
    /// `maxMessageSize` of the broker, in bytes.
    #[prost(int32, optional, tag = "3")]
    pub max_message_size: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeySharedMeta {
    /// 0: the broker splits the range of hashes among the consumers.
    #[prost(int32, required, tag = "1")]
    pub mode: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Subscribe {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(string, required, tag = "2")]
    pub subscription: String,
    /// 0 Exclusive, 1 Shared, 2 Failover, 3 Key_Shared.
    #[prost(int32, required, tag = "3")]
    pub sub_type: i32,
    #[prost(uint64, required, tag = "4")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "5")]
    pub request_id: u64,
    #[prost(string, optional, tag = "6")]
    pub consumer_name: Option<String>,
    #[prost(message, repeated, tag = "10")]
    pub metadata: Vec<KeyValue>,
    /// 0 Latest, 1 Earliest: where a new subscription starts.
    #[prost(int32, optional, tag = "13")]
    pub initial_position: Option<i32>,
    #[prost(message, optional, tag = "17")]
    pub key_shared: Option<KeySharedMeta>,
    /// Rises with each redelivery of everything; messages of a lower epoch are stale.
    #[prost(uint64, optional, tag = "19")]
    pub consumer_epoch: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartitionsRequest {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

/// The outcome of a [`PartitionsRequest`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum PartitionsResult {
    Success = 0,
    Failed = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartitionsResponse {
    /// Number of partitions; 0 for a topic without partitions.
    #[prost(uint32, optional, tag = "1")]
    pub partitions: Option<u32>,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(enumeration = "PartitionsResult", optional, tag = "3")]
    pub response: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub error: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LookupTopic {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    /// True if the last answer said that the broker asked now decides.
    #[prost(bool, optional, tag = "3")]
    pub authoritative: Option<bool>,
}

/// The outcome of a [`LookupTopic`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum LookupResult {
    Redirect = 0,
    Connect = 1,
    Failed = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LookupResponse {
    #[prost(string, optional, tag = "1")]
    pub broker_service_url: Option<String>,
    #[prost(enumeration = "LookupResult", optional, tag = "3")]
    pub response: Option<i32>,
    #[prost(uint64, required, tag = "4")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "5")]
    pub authoritative: Option<bool>,
    #[prost(int32, optional, tag = "6")]
    pub error: Option<i32>,
    #[prost(string, optional, tag = "7")]
    pub message: Option<String>,
    /// True if the broker is reached through the service URL, which is a proxy's.
    #[prost(bool, optional, tag = "8")]
    pub proxy_through_service_url: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RegisterProducer {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(uint64, required, tag = "2")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub request_id: u64,
    /// `None`: the broker chooses a name.
    #[prost(string, optional, tag = "4")]
    pub producer_name: Option<String>,
    /// Rises with each reconnection, so that the broker replaces the producer of the last connection.
    #[prost(uint64, optional, tag = "8")]
    pub epoch: Option<u64>,
    #[prost(bool, optional, tag = "9")]
    pub user_provided_producer_name: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProducerSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub producer_name: String,
    /// The last sequence id of this name; `-1` unless deduplication is on.
    #[prost(int64, optional, tag = "3")]
    pub last_sequence_id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SendCommand {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(int32, optional, tag = "3")]
    pub num_messages: Option<i32>,
    #[prost(uint64, optional, tag = "6")]
    pub highest_sequence_id: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SendReceiptCommand {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(message, optional, tag = "3")]
    pub message_id: Option<MessageIdData>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SendError {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(int32, required, tag = "3")]
    pub error: i32,
    #[prost(string, required, tag = "4")]
    pub message: String,
}

/// An entry for a consumer. Its metadata and payload follow the command.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EntryCommand {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(message, required, tag = "2")]
    pub message_id: MessageIdData,
    #[prost(uint32, optional, tag = "3")]
    pub redelivery_count: Option<u32>,
    /// A bit for each message of the batch that is not acknowledged; empty if none is.
    #[prost(int64, repeated, packed = "false", tag = "4")]
    pub ack_set: Vec<i64>,
    #[prost(uint64, optional, tag = "5")]
    pub consumer_epoch: Option<u64>,
}

/// Kinds of acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum AckKind {
    Individual = 0,
    Cumulative = 1,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ack {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(enumeration = "AckKind", required, tag = "2")]
    pub ack_type: i32,
    #[prost(message, repeated, tag = "3")]
    pub message_id: Vec<MessageIdData>,
    /// Set if an [`AckResponse`] is wanted.
    #[prost(uint64, optional, tag = "8")]
    pub request_id: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AckResponse {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(int32, optional, tag = "4")]
    pub error: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
    #[prost(uint64, optional, tag = "6")]
    pub request_id: Option<u64>,
}

/// In a Failover subscription: whether this consumer gets the messages.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ActiveConsumerChange {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(bool, optional, tag = "2")]
    pub is_active: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Flow {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    /// Number of messages that the broker may send, in addition to those that were allowed before.
    #[prost(uint32, required, tag = "2")]
    pub message_permits: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unsubscribe {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Seek {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(message, optional, tag = "3")]
    pub message_id: Option<MessageIdData>,
}

/// The topic is terminated, and this consumer has got all its messages.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndOfTopic {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseProducer {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseConsumer {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Redeliver {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    /// Empty: all messages that are not acknowledged.
    #[prost(message, repeated, tag = "2")]
    pub message_ids: Vec<MessageIdData>,
    #[prost(uint64, optional, tag = "3")]
    pub consumer_epoch: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Success {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(int32, required, tag = "2")]
    pub error: i32,
    #[prost(string, required, tag = "3")]
    pub message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ping {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Pong {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetLastMessageId {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LastMessageIdResponse {
    #[prost(message, required, tag = "1")]
    pub last_message_id: MessageIdData,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_field_number_agree() {
        let commands: [Command; 4] = [
            Command::Ping(Ping {}),
            Command::Flow(Flow { consumer_id: 1, message_permits: 2 }),
            Command::LastMessageIdResponse(LastMessageIdResponse::default()),
            Command::AckResponse(AckResponse::default()),
        ];
        for command in commands {
            let base = BaseCommand::from(command);
            let bytes = base.encode_to_vec();
            assert_eq!(bytes[0], 8, "field 1 as a number");
            assert_eq!(u32::from(bytes[1]), base.kind);
            // A field number of 16 and more takes two bytes; the low bits of the first are the wire type.
            let tag = if bytes[2] & 0x80 == 0 {
                u32::from(bytes[2])
            } else {
                u32::from(bytes[2] & 0x7f) | u32::from(bytes[3]) << 7
            };
            assert_eq!((tag >> 3, tag & 7), (base.kind, 2));
            assert_eq!(BaseCommand::decode(&bytes[..]).expect("itself"), base);
        }
    }

    #[test]
    fn unknown_commands_are_no_error() {
        // TOPIC_MIGRATED, kind and field 68, with a body of one byte.
        let bytes = [8, 68, 0xa2, 4, 2, 8, 1];
        let base = BaseCommand::decode(&bytes[..]).expect("a command");
        assert_eq!((base.kind, base.command), (68, None));
    }

    #[test]
    fn required_zeros_are_written() {
        assert_eq!(Flow { consumer_id: 0, message_permits: 0 }.encode_to_vec(), [8, 0, 16, 0]);
        assert_eq!(Ack { ack_type: 0, ..Ack::default() }.encode_to_vec(), [8, 0, 16, 0]);
    }
}
