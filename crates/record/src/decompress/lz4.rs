//! The LZ4 frame format, read block by block into the output, without a buffer between.
//!
//! As Kafka's `Lz4BlockInputStream`: one frame with an end mark, whatever follows it ignored; the checksums
//! of the head and of blocks are verified, that of the content is not (the batch has its own CRC); reserved
//! bits and dictionaries are refused. Beyond Kafka, blocks may refer to earlier ones of the frame: python's
//! lz4 writes such frames.

use twox_hash::XxHash32;

use super::{DecompressError, Output};

const MAGIC: u32 = 0x184d_2204;
/// The high bit of a block's length: the block is stored as it is.
const STORED: u32 = 1 << 31;
/// How far back a match can reach.
const WINDOW_BYTES: usize = 64 << 10;
/// A byte of a block becomes at most 255 (of a length that goes on); the rest covers the smallest blocks.
const EXPANSION_MAX: usize = 255;
const EXPANSION_EXTRA: usize = 64;

/// What the head of a frame says about its blocks.
struct Frame {
    independent_blocks: bool,
    block_checksums: bool,
    content_checksum: bool,
    block_bytes_max: usize,
}

pub(super) fn decompress(payload: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let (frame, mut rest) = read_head(payload).map_err(|reason| output.corrupt(reason))?;
    loop {
        let field = take_u32(&mut rest).map_err(|reason| output.corrupt(reason))?;
        if field & !STORED == 0 {
            if frame.content_checksum {
                take_u32(&mut rest).map_err(|reason| output.corrupt(reason))?;
            }
            return Ok(());
        }
        let block = take_block(field, &frame, &mut rest).map_err(|reason| output.corrupt(reason))?;
        if field & STORED == 0 {
            read_block(block, &frame, output)?;
        } else {
            output.extend(block)?;
        }
    }
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
    let frame = Frame {
        independent_blocks: flags & 0x20 != 0,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        block_bytes_max,
    };
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

fn read_block(block: &[u8], frame: &Frame, output: &mut Output<'_>) -> Result<(), DecompressError> {
    let room = frame.block_bytes_max.min(block.len() * EXPANSION_MAX + EXPANSION_EXTRA);
    let limited = output.allowed() < room;
    let read = output.fill(room, |before, space| {
        if frame.independent_blocks {
            lz4_flex::block::decompress_into(block, space)
        } else {
            let window = &before[before.len().saturating_sub(WINDOW_BYTES)..];
            lz4_flex::block::decompress_into_with_dict(block, space, window)
        }
    });
    match read {
        Ok(_) => Ok(()),
        Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if limited => Err(output.too_large()),
        Err(error) => Err(output.corrupt(error)),
    }
}
