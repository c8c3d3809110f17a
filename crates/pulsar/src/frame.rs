//! Frames: a command, and behind some commands an entry with its metadata and payload.
//!
//! ```text
//! total size (4) | command size (4) | command | entry
//! entry: 0x0e01 (2) | CRC-32C (4) | metadata size (4) | metadata | payload
//! ```
//!
//! Sizes are big-endian and do not count themselves. The checksum covers all bytes behind it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc_fast::CrcAlgorithm;
use prost::Message;

use crate::protocol::{BaseCommand, Command, MessageMetadata};

/// Size of a length.
pub(crate) const LENGTH_LEN: usize = 4;
/// The bytes before a checksum.
const MAGIC: u16 = 0x0e01;
const CHECKSUM_LEN: usize = 4;
const MAGIC_LEN: usize = 2;

/// Why the bytes of a frame are not what the protocol allows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FrameFault {
    /// The announced length exceeds the limit.
    #[error("the peer announced a frame of {length} bytes; the limit is {limit}")]
    Length { length: u32, limit: usize },
    /// A part ends beyond its frame.
    #[error("the {part} of a frame has {length} bytes where {available} are left")]
    Part { part: &'static str, length: u32, available: usize },
    /// A part cannot be decoded.
    #[error("the {part} of a frame cannot be decoded: {source}")]
    Undecodable { part: &'static str, source: prost::DecodeError },
    /// An entry has no checksum (magic number 0x0e01).
    #[error("an entry without a checksum")]
    NoChecksum,
    /// The bytes of an entry do not match its checksum.
    #[error("an entry with the checksum {stored:#010x} where {computed:#010x} was computed")]
    Checksum { stored: u32, computed: u32 },
}

/// A frame with a payload, in two parts, so that the payload is not copied.
#[derive(Clone, Debug)]
pub(crate) struct PayloadFrame {
    pub head: Bytes,
    pub payload: Bytes,
}

impl PayloadFrame {
    /// True if the bytes of the entry match their checksum.
    pub(crate) fn is_intact(&self) -> bool {
        let mut head = self.head.clone();
        head.advance(LENGTH_LEN);
        let entry = decode(head).ok().map(|(_, entry)| entry);
        entry.filter(|entry| entry.len() >= MAGIC_LEN + CHECKSUM_LEN).is_some_and(|mut entry| {
            entry.advance(MAGIC_LEN);
            let stored = entry.get_u32();
            stored == checksum(&entry, &self.payload)
        })
    }
}

/// A frame with only a command.
pub(crate) fn encode(command: Command) -> Bytes {
    let command = BaseCommand::from(command);
    let command_len = command.encoded_len();
    let mut frame = BytesMut::with_capacity(2 * LENGTH_LEN + command_len);
    put_len(&mut frame, LENGTH_LEN + command_len);
    put_message(&mut frame, &command, command_len);
    frame.freeze()
}

/// A frame with an entry.
pub(crate) fn encode_entry(command: Command, metadata: &MessageMetadata, payload: Bytes) -> PayloadFrame {
    let command = BaseCommand::from(command);
    let (command_len, metadata_len) = (command.encoded_len(), metadata.encoded_len());
    let entry_len = MAGIC_LEN + CHECKSUM_LEN + LENGTH_LEN + metadata_len + payload.len();
    let head_len = 2 * LENGTH_LEN + command_len + entry_len - payload.len();
    let mut head = BytesMut::with_capacity(head_len);
    put_len(&mut head, LENGTH_LEN + command_len + entry_len);
    put_message(&mut head, &command, command_len);
    head.put_u16(MAGIC);
    let checksum_at = head.len();
    head.put_u32(0);
    put_message(&mut head, metadata, metadata_len);
    let checksum = checksum(&head[checksum_at + CHECKSUM_LEN..], &payload);
    head[checksum_at..checksum_at + CHECKSUM_LEN].copy_from_slice(&checksum.to_be_bytes());
    PayloadFrame { head: head.freeze(), payload }
}

fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u32(u32::try_from(len).expect("frames are limited to a few MB"));
}

fn put_message(out: &mut BytesMut, message: &impl Message, len: usize) {
    put_len(out, len);
    message.encode(out).expect("a BytesMut grows as needed");
}

/// The command of a frame without its total size, and the bytes behind.
pub(crate) fn decode(mut frame: Bytes) -> Result<(BaseCommand, Bytes), FrameFault> {
    let command = take_part(&mut frame, "command")?;
    let command =
        BaseCommand::decode(command).map_err(|source| FrameFault::Undecodable { part: "command", source })?;
    Ok((command, frame))
}

/// Metadata and payload of an entry, whose checksum is verified. Entries of very old producers have no
/// checksum; they are refused.
pub(crate) fn decode_entry(mut entry: Bytes) -> Result<(MessageMetadata, Bytes), FrameFault> {
    if entry.len() < MAGIC_LEN + CHECKSUM_LEN || entry.get_u16() != MAGIC {
        return Err(FrameFault::NoChecksum);
    }
    let stored = entry.get_u32();
    let computed = checksum(&entry, &[]);
    if stored != computed {
        return Err(FrameFault::Checksum { stored, computed });
    }
    let metadata = take_part(&mut entry, "metadata")?;
    let metadata = MessageMetadata::decode(metadata)
        .map_err(|source| FrameFault::Undecodable { part: "metadata", source })?;
    Ok((metadata, entry))
}

/// Takes a part with its size from the front of `bytes`.
pub(crate) fn take_part(bytes: &mut Bytes, part: &'static str) -> Result<Bytes, FrameFault> {
    if bytes.len() < LENGTH_LEN {
        let length = u32::try_from(LENGTH_LEN).expect("four");
        return Err(FrameFault::Part { part, length, available: bytes.len() });
    }
    let length = bytes.get_u32();
    let available = bytes.len();
    match usize::try_from(length) {
        Ok(len) if len <= available => Ok(bytes.split_to(len)),
        _ => Err(FrameFault::Part { part, length, available }),
    }
}

/// The CRC-32C of two parts.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(payload);
    u32::try_from(digest.finalize()).expect("a CRC-32C has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{EntryCommand, Ping};

    fn entry() -> (Bytes, MessageMetadata) {
        let metadata = MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id: 300,
            publish_time: 1,
            ..MessageMetadata::default()
        };
        let command = Command::Message(EntryCommand { consumer_id: 7, ..EntryCommand::default() });
        let frame = encode_entry(command, &metadata, Bytes::from_static(b"payload"));
        ([frame.head, frame.payload].concat().into(), metadata)
    }

    /// A frame without its total size, which is checked.
    fn body(frame: &Bytes) -> Bytes {
        let mut frame = frame.clone();
        assert_eq!(frame.get_u32() as usize, frame.len());
        frame
    }

    #[test]
    fn a_command_is_a_frame_with_two_sizes() {
        let frame = encode(Command::Ping(Ping {}));
        assert_eq!(frame[..], [0, 0, 0, 9, 0, 0, 0, 5, 8, 18, 0x92, 1, 0]);
        let (command, rest) = decode(body(&frame)).expect("a command");
        assert_eq!((command.command, rest.len()), (Some(Command::Ping(Ping {})), 0));
    }

    #[test]
    fn an_entry_travels_behind_its_command() {
        let (frame, metadata) = entry();
        let (command, rest) = decode(body(&frame)).expect("a command");
        assert!(matches!(command.command, Some(Command::Message(EntryCommand { consumer_id: 7, .. }))));
        assert_eq!(rest[..2], [0x0e, 1]);
        let (read, payload) = decode_entry(rest).expect("an entry");
        assert_eq!((read, &payload[..]), (metadata, &b"payload"[..]));
    }

    #[test]
    fn the_checksum_is_crc_32c() {
        // The check value of CRC-32C.
        assert_eq!(checksum(b"1234", b"56789"), 0xe306_9283);
    }

    #[test]
    fn every_flipped_bit_behind_the_magic_is_found() {
        let (frame, _) = entry();
        let (_, rest) = decode(body(&frame)).expect("a command");
        for at in 2..rest.len() {
            for bit in 0..8 {
                let mut damaged = rest.to_vec();
                damaged[at] ^= 1 << bit;
                let error = decode_entry(damaged.into()).expect_err("damage");
                assert!(matches!(error, FrameFault::Checksum { .. }), "{error}");
            }
        }
        let unmarked = [&[0x0e, 2], &rest[2..]].concat();
        assert_eq!(decode_entry(unmarked.into()), Err(FrameFault::NoChecksum));
    }

    #[test]
    fn an_entry_in_memory_is_compared_with_its_checksum() {
        let command = Command::Message(EntryCommand { consumer_id: 7, ..EntryCommand::default() });
        let metadata = MessageMetadata { producer_name: "p".to_owned(), ..MessageMetadata::default() };
        let frame = encode_entry(command, &metadata, Bytes::from_static(b"payload"));
        assert!(frame.is_intact());
        let damaged = PayloadFrame { payload: Bytes::from_static(b"pbyload"), ..frame };
        assert!(!damaged.is_intact());
    }

    #[test]
    fn cut_frames_are_errors() {
        let (frame, _) = entry();
        let whole = body(&frame);
        for len in 0..whole.len() {
            let cut = whole.slice(..len);
            let outcome = decode(cut).and_then(|(_, rest)| decode_entry(rest));
            assert!(outcome.is_err(), "{len} bytes");
        }
        let mut giant = whole.to_vec();
        giant[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        let error = decode(giant.into()).expect_err("too long");
        assert!(matches!(error, FrameFault::Part { part: "command", length: u32::MAX, .. }), "{error}");
    }
}
