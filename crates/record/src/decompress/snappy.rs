//! Snappy in the two forms that clients write: the framing of snappy-java (Java, and compatible clients), and
//! one raw block (librdkafka).
//!
//! ```text
//! magic 82 "SNAPPY" 00 | version i32 | compatible version i32 | ( block length i32 | raw block )*
//! ```
//! The 16 bytes of the head may repeat between blocks of concatenated streams, with a version of at least 1
//! there: Java does not check the version of the first. An incomplete length ends the stream, as in
//! `SnappyInputStream`.

use super::{BoundedOutput, DecompressError};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const FRAME_HEAD_BYTES: usize = 16;
/// Maximum consecutive heads. Java's reader recurses for each: its stack overflows at some ten thousand.
const HEADS_MAX: usize = 1000;
/// Size of the length before a block.
const LENGTH_BYTES: usize = 4;

/// Maximum expansion of a raw block: a copy with a two-byte offset yields 64 bytes out of 3. A block that
/// claims more is invalid, and must not cost memory.
const EXPANSION_MAX: usize = 22;

/// The raw blocks of a stream, one after another.
pub(super) struct SnappyBlocks<'p> {
    rest: &'p [u8],
    framed: bool,
    /// True if the first head was read.
    began: bool,
    ended: bool,
}

/// A raw block, with its claimed and verified size.
pub(super) struct SnappyBlock<'p> {
    pub(super) bytes: &'p [u8],
    pub(super) decompressed_bytes: usize,
}

impl<'p> SnappyBlocks<'p> {
    pub(super) fn new(payload: &'p [u8]) -> SnappyBlocks<'p> {
        SnappyBlocks { rest: payload, framed: payload.starts_with(&MAGIC), began: false, ended: false }
    }

    /// The next block; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<SnappyBlock<'p>>, String> {
        let mut heads = 0;
        while self.framed && self.rest.starts_with(&MAGIC) {
            let (head, rest) =
                self.rest.split_first_chunk::<FRAME_HEAD_BYTES>().ok_or("the frame's head ends early")?;
            let version = i32::from_be_bytes([head[8], head[9], head[10], head[11]]);
            if self.began && version < 1 {
                return Err(format!("a head between blocks has version {version}"));
            }
            heads += 1;
            if heads > HEADS_MAX {
                return Err("heads follow each other without a block".to_owned());
            }
            (self.rest, self.began) = (rest, true);
        }
        if self.ended || (self.framed && self.rest.len() < LENGTH_BYTES) {
            return Ok(None);
        }
        let bytes = if self.framed { take_framed(&mut self.rest)? } else { self.rest };
        self.ended = !self.framed;
        let decompressed_bytes = snap::raw::decompress_len(bytes).map_err(|error| error.to_string())?;
        if decompressed_bytes > bytes.len().saturating_mul(EXPANSION_MAX) {
            return Err("a block claims more than its bytes can hold".to_owned());
        }
        Ok(Some(SnappyBlock { bytes, decompressed_bytes }))
    }
}

fn take_framed<'p>(rest: &mut &'p [u8]) -> Result<&'p [u8], &'static str> {
    let (len, after) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or("a block length ends early")?;
    let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| "a block length is negative")?;
    let (block, after) = after.split_at_checked(len).ok_or("a block ends early")?;
    *rest = after;
    Ok(block)
}

pub(super) fn decompress(payload: &[u8], output: &mut BoundedOutput<'_>) -> Result<(), DecompressError> {
    let mut blocks = SnappyBlocks::new(payload);
    while let Some(block) = blocks.next().map_err(|reason| output.corrupt(reason))? {
        if block.decompressed_bytes > output.allowed() {
            return Err(output.too_large());
        }
        let decode = |space: &mut [u8]| snap::raw::Decoder::new().decompress(block.bytes, space);
        if let Err(error) = output.fill(block.decompressed_bytes, decode) {
            return Err(output.corrupt(error));
        }
    }
    Ok(())
}
