//! The LZ4 frame format, read block by block, without an intermediate buffer.
//!
//! As Kafka's `Lz4BlockInputStream`: one frame with an end mark, following bytes ignored; the checksums of
//! the head and of blocks are verified, that of the content is not (the batch has its own CRC); reserved
//! bits, dictionaries and blocks that may refer to earlier ones are refused.

use twox_hash::XxHash32;

use super::{BoundedOutput, DecompressError};

const MAGIC: u32 = 0x184d_2204;
/// The high bit of a block's length marks an uncompressed block.
const STORED: u32 = 1 << 31;
/// Maximum expansion of a byte in a block (a continued length), and an allowance for the smallest blocks.
const EXPANSION_MAX: usize = 255;
const EXPANSION_EXTRA: usize = 64;

/// The block properties in the head of a frame.
struct Frame {
    block_checksums: bool,
    content_checksum: bool,
    block_bytes_max: usize,
}

/// The blocks of a frame, one after another.
pub(super) struct Lz4Blocks<'p> {
    frame: Frame,
    rest: &'p [u8],
    ended: bool,
}

/// A block of a frame.
pub(super) struct Lz4Block<'p> {
    pub(super) bytes: &'p [u8],
    /// True if the block is not compressed.
    pub(super) is_stored: bool,
    /// The maximum decompressed size; the exact size of an uncompressed block.
    pub(super) decompressed_bytes_max: usize,
}

impl<'p> Lz4Blocks<'p> {
    pub(super) fn new(payload: &'p [u8]) -> Result<Lz4Blocks<'p>, &'static str> {
        let (frame, rest) = read_head(payload)?;
        Ok(Lz4Blocks { frame, rest, ended: false })
    }

    /// The next block; `None` after the end mark.
    pub(super) fn next(&mut self) -> Result<Option<Lz4Block<'p>>, &'static str> {
        if self.ended {
            return Ok(None);
        }
        let field = take_u32(&mut self.rest)?;
        if field & !STORED == 0 {
            if self.frame.content_checksum {
                take_u32(&mut self.rest)?;
            }
            self.ended = true;
            return Ok(None);
        }
        let bytes = take_block(field, &self.frame, &mut self.rest)?;
        let is_stored = field & STORED != 0;
        let decompressed_bytes_max = match is_stored {
            true => bytes.len(),
            false => self.frame.block_bytes_max.min(bytes.len() * EXPANSION_MAX + EXPANSION_EXTRA),
        };
        Ok(Some(Lz4Block { bytes, is_stored, decompressed_bytes_max }))
    }
}

pub(super) fn decompress(payload: &[u8], output: &mut BoundedOutput<'_>) -> Result<(), DecompressError> {
    let mut blocks = Lz4Blocks::new(payload).map_err(|reason| output.corrupt(reason))?;
    while let Some(block) = blocks.next().map_err(|reason| output.corrupt(reason))? {
        if block.is_stored {
            output.extend(block.bytes)?;
            continue;
        }
        let room = block.decompressed_bytes_max;
        let limited = output.allowed() < room;
        match output.fill(room, |space| lz4_flex::block::decompress_into(block.bytes, space)) {
            Ok(_) => {}
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if limited => {
                return Err(output.too_large());
            }
            Err(error) => return Err(output.corrupt(error)),
        }
    }
    Ok(())
}

fn read_head(payload: &[u8]) -> Result<(Frame, &[u8]), &'static str> {
    const ENDS_EARLY: &str = "the frame's head ends early";
    let mut rest = payload;
    if take_u32(&mut rest)? != MAGIC {
        return Err("the magic is not that of an LZ4 frame");
    }
    let described = rest;
    let &[flags, sizes, ..] = described else {
        return Err(ENDS_EARLY);
    };
    if flags >> 6 != 1 || flags & 0x03 != 0 || sizes & 0x8f != 0 {
        return Err("the frame has an unknown version, reserved bits or a dictionary");
    }
    if flags & 0x20 == 0 {
        return Err(
            "the frame's blocks are linked; no Java client reads such frames: set block independence",
        );
    }
    let content_size_bytes = if flags & 0x08 == 0 { 0 } else { 8 };
    let (described, rest) = described.split_at_checked(2 + content_size_bytes).ok_or(ENDS_EARLY)?;
    let (checksum, rest) = rest.split_first().ok_or(ENDS_EARLY)?;
    if XxHash32::oneshot(0, described).to_be_bytes()[2] != *checksum {
        return Err("the checksum of the frame's head does not match");
    }
    let block_bytes_max = match sizes >> 4 {
        4 => 64 << 10,
        5 => 256 << 10,
        6 => 1 << 20,
        7 => 4 << 20,
        _ => return Err("the frame has an unknown block size"),
    };
    let frame =
        Frame { block_checksums: flags & 0x10 != 0, content_checksum: flags & 0x04 != 0, block_bytes_max };
    Ok((frame, rest))
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, &'static str> {
    let (field, after) = rest.split_first_chunk().ok_or("the frame ends early")?;
    *rest = after;
    Ok(u32::from_le_bytes(*field))
}

fn take_block<'p>(field: u32, frame: &Frame, rest: &mut &'p [u8]) -> Result<&'p [u8], &'static str> {
    let len = usize::try_from(field & !STORED).map_err(|_| "a block is too large for this machine")?;
    if len > frame.block_bytes_max {
        return Err("a block is larger than the frame's head allows");
    }
    let (block, after) = rest.split_at_checked(len).ok_or("a block ends early")?;
    *rest = after;
    if frame.block_checksums && take_u32(rest)? != XxHash32::oneshot(0, block) {
        return Err("the checksum of a block does not match");
    }
    Ok(block)
}
