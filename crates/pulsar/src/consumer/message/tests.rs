use prost::Message as _;

use super::*;
use crate::compression::{Compression, Compressor};
use crate::frame::FrameFault;
use crate::protocol::{Command, MessageIdData};
use crate::scripted_peer::batch_frame;

const LIMIT: usize = 1 << 20;

/// Command and entry of a frame.
fn parts(frame: Bytes) -> (EntryCommand, Bytes) {
    let (base, rest) = frame::decode(frame.slice(4..)).expect("a frame");
    let Some(Command::Message(command)) = base.command else { panic!("an entry") };
    (command, rest)
}

fn batch(payloads: &[&[u8]]) -> (EntryCommand, Bytes) {
    parts(batch_frame(1, 5, payloads))
}

/// An entry with this metadata and payload.
fn entry(metadata: &MessageMetadata, payload: Bytes) -> (EntryCommand, Bytes) {
    let frame = frame::encode_entry(Command::Message(EntryCommand::default()), metadata, payload);
    parts([frame.head, frame.payload].concat().into())
}

/// The messages of an entry, and how many others the broker counts against the permits.
fn read(cursor: &mut EntryCursor) -> Result<(Vec<Message>, usize), EntryFault> {
    let (mut messages, mut skipped) = (Vec::new(), 0);
    loop {
        match cursor.next()? {
            CursorStep::Message(message) => messages.push(message),
            CursorStep::Skipped { is_permitted } => skipped += usize::from(is_permitted),
            CursorStep::End => return Ok((messages, skipped)),
        }
    }
}

fn payloads(messages: &[Message]) -> Vec<&[u8]> {
    messages.iter().map(|message| &message.payload()[..]).collect()
}

#[test]
fn a_batch_is_taken_apart_without_copies() {
    let (command, bytes) = batch(&[b"one", b"", b"three"]);
    let range = bytes.as_ptr_range();
    let mut cursor = EntryCursor::open(command, bytes.clone(), 3, 0, LIMIT).expect("an entry");
    assert_eq!(cursor.remaining(), 3);
    let (messages, skipped) = read(&mut cursor).expect("messages");
    assert_eq!((payloads(&messages), skipped), (vec![&b"one"[..], b"", b"three"], 0));
    assert!(range.contains(&messages[2].payload().as_ptr()));
    let ids: Vec<String> = messages.iter().map(|message| message.id().to_string()).collect();
    assert_eq!(ids, ["7:5:3:0", "7:5:3:1", "7:5:3:2"]);
    let sequences: Vec<u64> = messages.iter().map(Message::sequence_id).collect();
    assert_eq!(sequences, [50, 51, 52]);
    assert_eq!(
        (messages[0].publish_time_ms(), messages[0].producer_name()),
        (1_700_000_000_000, "scripted-0")
    );
    assert_eq!((messages[0].key(), messages[0].properties().count()), (None, 0));
    assert_eq!((cursor.remaining(), message_count(&bytes)), (0, 3));
}

#[test]
fn an_entry_is_acknowledged_with_its_last_message_once() {
    let (command, bytes) = batch(&[&b"a"[..]; 70]);
    let mut cursor = EntryCursor::open(command, bytes, -1, 0, LIMIT).expect("an entry");
    let (messages, _) = read(&mut cursor).expect("messages");
    let outcomes: Vec<bool> =
        messages.iter().rev().chain(&messages).map(|message| message.entry().acknowledge(message)).collect();
    assert_eq!(outcomes.iter().position(|is_last| *is_last), Some(69));
    assert_eq!(outcomes.iter().filter(|is_last| **is_last).count(), 1);
}

#[test]
fn a_message_sent_alone_has_the_properties_of_its_entry() {
    let metadata = MessageMetadata {
        producer_name: "p".to_owned(),
        sequence_id: 9,
        properties: vec![KeyValue { key: "a".to_owned(), value: "b".to_owned() }],
        partition_key: Some("k".to_owned()),
        event_time: Some(5),
        ..MessageMetadata::default()
    };
    let (command, bytes) = entry(&metadata, Bytes::from_static(b"x"));
    assert_eq!(message_count(&bytes), 1);
    let mut cursor = EntryCursor::open(command, bytes, -1, 0, LIMIT).expect("an entry");
    let (messages, _) = read(&mut cursor).expect("a message");
    let [message] = &messages[..] else { panic!("one message") };
    assert_eq!((message.id().batch_index, message.key(), message.event_time_ms()), (-1, Some("k"), Some(5)));
    assert_eq!(message.properties().collect::<Vec<_>>(), [("a", "b")]);
    assert_eq!(message.sequence_id(), 9);
    assert!(message.is_last_of_entry() && message.entry().acknowledge(message));
}

#[test]
fn messages_that_are_not_wanted_are_skipped() {
    let (mut command, bytes) = batch(&[b"0", b"1", b"2", b"3"]);
    let mut cursor = EntryCursor::open(command.clone(), bytes.clone(), -1, 2, LIMIT).expect("an entry");
    let (messages, skipped) = read(&mut cursor).expect("messages");
    assert_eq!((payloads(&messages), skipped), (vec![&b"2"[..], b"3"], 2));
    // Acknowledged messages are not counted against the permits.
    command.ack_set = vec![0b1001];
    let mut cursor = EntryCursor::open(command, bytes, -1, 0, LIMIT).expect("an entry");
    let (messages, skipped) = read(&mut cursor).expect("messages");
    assert_eq!((payloads(&messages), skipped), (vec![&b"0"[..], b"3"], 0));
    assert!(!messages[0].entry().acknowledge(&messages[0]));
    assert!(messages[1].entry().acknowledge(&messages[1]));
}

#[test]
fn compressed_batches_are_bounded() {
    let (_, plain) = batch(&[&b"to and fro, to and fro, to and fro"[..]; 20]);
    let (metadata, payload) = frame::decode_entry(plain).expect("an entry");
    for compression in [Compression::Lz4, Compression::Zstd] {
        let compressed = Compressor::new(compression).compress(&payload).expect("a codec");
        let metadata = MessageMetadata {
            compression: Some(compression.code().into()),
            uncompressed_size: u32::try_from(payload.len()).ok(),
            ..metadata.clone()
        };
        let (command, bytes) = entry(&metadata, compressed);
        let mut cursor =
            EntryCursor::open(command.clone(), bytes.clone(), -1, 0, payload.len()).expect("an entry");
        assert_eq!(read(&mut cursor).expect("messages").0.len(), 20);
        let error = EntryCursor::open(command, bytes, -1, 0, payload.len() - 1).expect_err("too large");
        assert!(matches!(error, EntryFault::Compression(_)), "{error}");
    }
}

#[test]
fn damage_is_named() {
    let (command, bytes) = batch(&[b"one", b"two"]);
    let mut damaged = bytes.to_vec();
    *damaged.last_mut().expect("not empty") ^= 1;
    let error = EntryCursor::open(command.clone(), damaged.into(), -1, 0, LIMIT).expect_err("damage");
    assert!(matches!(error, EntryFault::Frame(FrameFault::Checksum { .. })), "{error}");

    let (metadata, payload) = frame::decode_entry(bytes).expect("an entry");
    // The batch ends within its second message.
    let (_, cut) = entry(&metadata, payload.slice(..payload.len() - 1));
    let mut cursor = EntryCursor::open(command.clone(), cut, -1, 0, LIMIT).expect("an entry");
    let error = read(&mut cursor).expect_err("cut");
    assert_eq!(error, EntryFault::Batch { index: 1, length: 3, available: 2 });
    assert!(matches!(cursor.next(), Ok(CursorStep::End)));

    // More messages than fit, and a negative size.
    let many = MessageMetadata { num_messages_in_batch: Some(i32::MAX), ..metadata.clone() };
    let error = EntryCursor::open(command.clone(), entry(&many, payload.clone()).1, -1, 0, LIMIT);
    assert!(matches!(error.expect_err("too many"), EntryFault::Batch { index: 0, .. }));
    let negative = SingleMessageMetadata { payload_size: -1, ..SingleMessageMetadata::default() };
    let mut batch = u32::try_from(negative.encoded_len()).expect("small").to_be_bytes().to_vec();
    batch.extend(negative.encode_to_vec());
    let single = MessageMetadata { num_messages_in_batch: Some(1), ..metadata };
    let mut cursor =
        EntryCursor::open(command, entry(&single, batch.into()).1, -1, 0, LIMIT).expect("an entry");
    assert_eq!(
        read(&mut cursor).expect_err("negative"),
        EntryFault::Batch { index: 0, length: -1, available: 0 }
    );
}

#[test]
fn forms_that_are_not_served_are_named() {
    let chunked = MessageMetadata { num_chunks_from_msg: Some(2), ..MessageMetadata::default() };
    let encrypted =
        MessageMetadata { encryption_algo: Some("ECDSA".to_owned()), ..MessageMetadata::default() };
    let open = |metadata| {
        let (command, bytes) = entry(metadata, Bytes::from_static(b"x"));
        EntryCursor::open(command, bytes, -1, 0, LIMIT).expect_err("refused")
    };
    assert_eq!(open(&chunked), EntryFault::Chunked(2));
    assert_eq!(open(&encrypted), EntryFault::Encrypted("ECDSA".to_owned()));
}

#[test]
fn random_bytes_never_panic() {
    use rand::{Rng, SeedableRng};
    let seed = 7;
    let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
    let (command, bytes) = batch(&[b"one", b"two", b"three"]);
    let (metadata, payload) = frame::decode_entry(bytes).expect("an entry");
    for _ in 0..20_000 {
        let mut payload = payload.to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..payload.len());
            payload[at] = random.random();
        }
        payload.truncate(random.random_range(0..=payload.len()));
        let (_, bytes) = entry(&metadata, payload.into());
        if let Ok(mut cursor) = EntryCursor::open(command.clone(), bytes, -1, 0, LIMIT) {
            let _ = read(&mut cursor);
        }
    }
    // A message id that is no entry.
    assert_eq!(MessageId::of_entry(&MessageIdData::default(), -1).to_string(), "0:0:-1");
}
