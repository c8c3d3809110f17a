//! A scripted broker for unit tests, behind a [`Connector`] of duplex streams.
//!
//! The test accepts each connection and decides every answer, so that it controls order, faults and ends.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::connector::{ByteStream, Connector};
use crate::error::CloseReason;
use crate::frame;
use crate::frame_reader::FrameReader;
use crate::options::ClientOptions;
use crate::protocol::{
    Command, ConnectedResponse, EntryCommand, LookupResponse, LookupResult, MessageIdData, MessageMetadata,
    ProducerSuccess, SendCommand, SendReceiptCommand, SingleMessageMetadata, Success,
};

/// The service URL that a test's client connects to.
pub(crate) const SERVICE_URL: &str = "pulsar://broker:6650";
/// Time after which a test fails instead of waiting.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections of a client, in their order.
pub(crate) struct ScriptedBrokers {
    accepted: mpsc::Receiver<(String, DuplexStream)>,
}

/// The broker's end of a connection.
pub(crate) struct ScriptedPeer {
    /// `host:port` that the client connects to.
    pub address: String,
    frames: FrameReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

/// Options whose pauses are short, and whose failures do not take long.
pub(crate) fn quick_options() -> ClientOptions {
    ClientOptions {
        connect_timeout: Duration::from_secs(1),
        operation_timeout: Duration::from_secs(2),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        reconnect_timeout: Duration::from_secs(1),
        ..ClientOptions::default()
    }
}

/// A connector, and the brokers that it reaches.
pub(crate) fn brokers() -> (Connector, ScriptedBrokers) {
    let (sender, accepted) = mpsc::channel(16);
    let connector = Connector::new(move |address| {
        let sender = sender.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            sender.send((address, theirs)).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(ours) as Box<dyn ByteStream>)
        }
    });
    (connector, ScriptedBrokers { accepted })
}

impl ScriptedBrokers {
    /// The next connection, before its handshake.
    pub(crate) async fn accept_silently(&mut self) -> ScriptedPeer {
        let accepted = tokio::time::timeout(PATIENCE, self.accepted.recv()).await;
        let (address, stream) = accepted.expect("a connection in time").expect("a client");
        let (reader, writer) = tokio::io::split(stream);
        ScriptedPeer { address, frames: FrameReader::new(reader, 10 << 20), writer }
    }

    /// The next connection, after its handshake. Messages are limited to `message_bytes_max`.
    pub(crate) async fn accept_with(&mut self, message_bytes_max: i32) -> ScriptedPeer {
        let mut peer = self.accept_silently().await;
        let Command::Connect(_) = peer.receive().await else { panic!("CONNECT is first") };
        peer.send(Command::Connected(ConnectedResponse {
            server_version: "scripted".to_owned(),
            max_message_size: Some(message_bytes_max),
            ..ConnectedResponse::default()
        }))
        .await;
        peer
    }

    /// The next connection, after its handshake.
    pub(crate) async fn accept(&mut self) -> ScriptedPeer {
        self.accept_with(5 << 20).await
    }
}

impl ScriptedPeer {
    pub(crate) async fn receive(&mut self) -> Command {
        self.receive_frame().await.0
    }

    /// The next command, and the bytes behind it.
    pub(crate) async fn receive_frame(&mut self) -> (Command, Bytes) {
        self.try_receive().await.expect("a frame")
    }

    /// The next command, for a test whose clock is paused and passes over the time of the usual patience.
    pub(crate) async fn receive_within(&mut self, patience: Duration) -> Command {
        let frame = tokio::time::timeout(patience, self.frames.next()).await.expect("a frame in time");
        let (base, _) = frame::decode(frame.expect("a frame")).expect("a command");
        base.command.expect("a known command")
    }

    pub(crate) async fn try_receive(&mut self) -> Result<(Command, Bytes), CloseReason> {
        let frame = tokio::time::timeout(PATIENCE, self.frames.next()).await.expect("a frame in time")?;
        let (base, rest) = frame::decode(frame)?;
        Ok((base.command.expect("a known command"), rest))
    }

    /// True if the client closes the connection without another command.
    pub(crate) async fn is_closed(&mut self) -> bool {
        matches!(self.try_receive().await, Err(CloseReason::ByPeer))
    }

    pub(crate) async fn send(&mut self, command: Command) {
        self.send_bytes(&frame::encode(command)).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.expect("the client reads");
    }

    /// Answers a lookup with `broker`, `host:port`.
    pub(crate) async fn answer_lookup(&mut self, result: LookupResult, broker: &str) {
        let Command::Lookup(lookup) = self.receive().await else { panic!("a lookup is next") };
        self.send(Command::LookupResponse(LookupResponse {
            broker_service_url: Some(format!("pulsar://{broker}")),
            response: Some(result.into()),
            request_id: lookup.request_id,
            authoritative: Some(true),
            ..LookupResponse::default()
        }))
        .await;
    }

    /// Opens a producer whose topic this broker owns. Returns its id.
    pub(crate) async fn open_producer(&mut self) -> u64 {
        self.answer_lookup(LookupResult::Connect, "broker:6650").await;
        let Command::RegisterProducer(producer) = self.receive().await else { panic!("a producer is next") };
        self.send(Command::ProducerSuccess(ProducerSuccess {
            request_id: producer.request_id,
            producer_name: producer.producer_name.unwrap_or_else(|| "scripted-0".to_owned()),
            last_sequence_id: Some(-1),
        }))
        .await;
        producer.producer_id
    }

    /// Opens a consumer whose topic this broker owns, and takes its first permits. Returns its id.
    pub(crate) async fn open_consumer(&mut self) -> u64 {
        self.answer_lookup(LookupResult::Connect, "broker:6650").await;
        let Command::Subscribe(subscribe) = self.receive().await else { panic!("a consumer is next") };
        self.send(Command::Success(Success { request_id: subscribe.request_id })).await;
        let Command::Flow(_) = self.receive().await else { panic!("permits are next") };
        subscribe.consumer_id
    }

    /// The next batch: its command, metadata and payload.
    pub(crate) async fn receive_batch(&mut self) -> (SendCommand, MessageMetadata, Bytes) {
        let (command, rest) = self.receive_frame().await;
        let Command::Send(send) = command else { panic!("a batch is next: {command:?}") };
        let (metadata, payload) = frame::decode_entry(rest).expect("a right checksum");
        (send, metadata, payload)
    }

    /// Acknowledges a batch as an entry of ledger 7.
    pub(crate) async fn send_receipt(&mut self, producer_id: u64, sequence_id: u64, entry_id: u64) {
        let message_id = Some(MessageIdData { ledger_id: 7, entry_id, ..MessageIdData::default() });
        self.send(Command::SendReceipt(SendReceiptCommand { producer_id, sequence_id, message_id })).await;
    }

    /// Sends an entry of ledger 7 with a message for each payload, to a consumer.
    pub(crate) async fn send_batch(&mut self, consumer_id: u64, entry_id: u64, payloads: &[&[u8]]) {
        let frame = batch_frame(consumer_id, entry_id, payloads);
        self.send_bytes(&frame).await;
    }
}

/// The frame of an entry of ledger 7.
pub(crate) fn batch_frame(consumer_id: u64, entry_id: u64, payloads: &[&[u8]]) -> Bytes {
    let mut batch = BytesMut::new();
    for payload in payloads {
        let payload_size = i32::try_from(payload.len()).expect("small");
        let single = SingleMessageMetadata { payload_size, ..SingleMessageMetadata::default() };
        batch.put_u32(u32::try_from(single.encoded_len()).expect("small"));
        single.encode(&mut batch).expect("memory");
        batch.put_slice(payload);
    }
    let metadata = MessageMetadata {
        producer_name: "scripted-0".to_owned(),
        sequence_id: 10 * entry_id,
        publish_time: 1_700_000_000_000,
        num_messages_in_batch: i32::try_from(payloads.len()).ok(),
        ..MessageMetadata::default()
    };
    let message_id = MessageIdData { ledger_id: 7, entry_id, ..MessageIdData::default() };
    let command = Command::Message(EntryCommand { consumer_id, message_id, ..EntryCommand::default() });
    let frame = frame::encode_entry(command, &metadata, batch.freeze());
    [frame.head, frame.payload].concat().into()
}
