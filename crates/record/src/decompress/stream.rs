//! Streaming decompression of a batch's records, for the walk over a producer's batch: each piece overwrites
//! the previous one, so that records of any size need the memory of one piece.
//!
//! Owns: the memory that is reused between batches ([`RecordScratch`]), and the limit of the decompressed
//! size. A piece is 64 KiB of gzip and zstd, and a block of LZ4 and snappy: at most 4 MiB, and 22 times the
//! compressed block. Accepts and refuses the same streams as [`super::DecompressBuffer`].

use std::fmt;

use flate2::Decompress;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective, get_error_name};

use super::gzip::Gzip;
use super::lz4::Lz4Blocks;
use super::snappy::SnappyBlocks;
use super::{CorruptPayload, DecompressError, DecompressedTooLarge, INCOMPLETE_FRAME};
use crate::attributes::Compression;

/// Size of a piece of a codec without blocks.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum size of the window kept between batches.
const WINDOW_BYTES_KEPT: usize = 1 << 20;
/// Maximum size of a zstd context kept between batches. Windows of levels up to 19 fit.
const ZSTD_BYTES_KEPT: usize = 10 << 20;

/// The memory of [`crate::validate_records`]: a window and the tables of the codecs used so far. Keeps at
/// most about ten megabytes between batches, usually less than one.
#[derive(Default)]
pub struct RecordScratch {
    window: Window,
    inflate: Option<Decompress>,
    zstd: Option<DCtx<'static>>,
}

impl RecordScratch {
    /// Scratch without allocated memory.
    pub fn new() -> RecordScratch {
        RecordScratch::default()
    }

    /// The records of `payload`, at most `limit_bytes` decompressed.
    pub(crate) fn stream<'p>(
        &mut self,
        compression: Compression,
        payload: &'p [u8],
        limit_bytes: usize,
    ) -> Result<RecordStream<'p, '_>, DecompressError> {
        let RecordScratch { window, inflate, zstd } = self;
        window.clear();
        let corrupt = |reason: &str| CorruptPayload { compression, reason: reason.to_owned() };
        let decoder = match compression {
            Compression::None => return Err(corrupt("they are not compressed").into()),
            Compression::Gzip => {
                let inflate = inflate.get_or_insert_with(|| Decompress::new(false));
                Decoder::Gzip(Gzip::new(payload, inflate))
            }
            Compression::Snappy => Decoder::Snappy(SnappyBlocks::new(payload)),
            Compression::Lz4 => Decoder::Lz4(Lz4Blocks::new(payload).map_err(corrupt)?),
            Compression::Zstd => {
                let context = zstd.get_or_insert_with(DCtx::create);
                let reset = context.reset(ResetDirective::SessionOnly);
                reset.map_err(|code| corrupt(get_error_name(code)))?;
                Decoder::Zstd(Zstd {
                    input: InBuffer::around(payload),
                    context,
                    between_frames: false,
                    is_complete: false,
                })
            }
        };
        Ok(RecordStream { decoder, window, compression, limit_bytes, bytes: 0 })
    }

    /// Releases memory that only an unusual batch needed.
    pub(crate) fn trim(&mut self) {
        self.window.trim();
        if self.zstd.as_ref().is_some_and(|context| context.sizeof() > ZSTD_BYTES_KEPT) {
            self.zstd = None;
        }
    }
}

impl fmt::Debug for RecordScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordScratch")
            .field("window_bytes", &self.window.bytes.len())
            .finish_non_exhaustive()
    }
}

/// The decompressed bytes not walked over yet.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Window {
    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    fn trim(&mut self) {
        self.clear();
        if self.bytes.len() > WINDOW_BYTES_KEPT {
            self.bytes.truncate(WINDOW_BYTES_KEPT);
            self.bytes.shrink_to_fit();
        }
    }

    /// Room for `wanted` more bytes.
    fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < wanted {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.bytes.len() - self.end < wanted {
            // Twice the room, so that most pieces fit without moving bytes.
            self.bytes.resize(self.end + wanted.max(wanted.min(PIECE_BYTES) * 2), 0);
        }
        &mut self.bytes[self.end..][..wanted]
    }
}

/// The records of a compressed batch, decompressed step by step.
pub(crate) struct RecordStream<'p, 's> {
    decoder: Decoder<'p, 's>,
    window: &'s mut Window,
    compression: Compression,
    limit_bytes: usize,
    bytes: usize,
}

enum Decoder<'p, 's> {
    Gzip(Gzip<'p, 's>),
    Snappy(SnappyBlocks<'p>),
    Lz4(Lz4Blocks<'p>),
    Zstd(Zstd<'p, 's>),
}

impl RecordStream<'_, '_> {
    /// Decompressed bytes not consumed yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.window.bytes[self.window.start..self.window.end]
    }

    /// Consumes this many unread bytes.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.window.start += bytes;
    }

    /// Number of bytes decompressed so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decompresses the next piece; false at the end of the stream.
    pub(crate) fn read_more(&mut self) -> Result<bool, DecompressError> {
        let allowed = self.limit_bytes - self.bytes;
        let Self { decoder, window, compression, .. } = self;
        let read = match decoder {
            Decoder::Gzip(gzip) => gzip.read(window.room(PIECE_BYTES)).map_err(corrupt),
            Decoder::Snappy(blocks) => read_snappy(blocks, window, allowed),
            Decoder::Lz4(blocks) => read_lz4(blocks, window),
            Decoder::Zstd(zstd) => zstd.read(window),
        };
        let read = match read {
            Ok(read) if read <= allowed => read,
            Ok(_) | Err(Fault::TooLarge) => {
                let (compression, limit_bytes) = (*compression, self.limit_bytes);
                return Err(DecompressedTooLarge { compression, limit_bytes }.into());
            }
            Err(Fault::Corrupt(reason)) => {
                return Err(CorruptPayload { compression: *compression, reason }.into());
            }
        };
        self.window.end += read;
        self.bytes += read;
        Ok(read > 0)
    }
}

/// Why a piece could not be decompressed.
enum Fault {
    TooLarge,
    Corrupt(String),
}

fn corrupt(reason: impl ToString) -> Fault {
    Fault::Corrupt(reason.to_string())
}

/// The next nonempty block; 0 bytes at the end. Its bytes are after the window's end.
fn read_snappy(blocks: &mut SnappyBlocks<'_>, window: &mut Window, allowed: usize) -> Result<usize, Fault> {
    while let Some(block) = blocks.next().map_err(corrupt)? {
        if block.decompressed_bytes > allowed {
            return Err(Fault::TooLarge);
        }
        let room = window.room(block.decompressed_bytes);
        snap::raw::Decoder::new().decompress(block.bytes, room).map_err(corrupt)?;
        if block.decompressed_bytes > 0 {
            return Ok(block.decompressed_bytes);
        }
    }
    Ok(0)
}

/// The next block, as in [`read_snappy`].
fn read_lz4(blocks: &mut Lz4Blocks<'_>, window: &mut Window) -> Result<usize, Fault> {
    while let Some(block) = blocks.next().map_err(corrupt)? {
        let room = window.room(block.decompressed_bytes_max);
        let read = if block.is_stored {
            room.copy_from_slice(block.bytes);
            block.bytes.len()
        } else {
            lz4_flex::block::decompress_into(block.bytes, room).map_err(corrupt)?
        };
        if read > 0 {
            return Ok(read);
        }
    }
    Ok(0)
}

/// Consecutive frames. The window of a frame is the library's own memory, at most 128 MiB, of which only the
/// filled part is touched.
struct Zstd<'p, 's> {
    input: InBuffer<'p>,
    context: &'s mut DCtx<'static>,
    between_frames: bool,
    /// True if a frame has ended.
    is_complete: bool,
}

impl Zstd<'_, '_> {
    fn read(&mut self, window: &mut Window) -> Result<usize, Fault> {
        loop {
            let all_read = self.input.pos() == self.input.src.len();
            if all_read && self.between_frames {
                return Ok(0);
            }
            let room = window.room(PIECE_BYTES);
            let mut output = OutBuffer::around(room);
            let decompressed = self.context.decompress_stream(&mut output, &mut self.input);
            let expected = decompressed.map_err(|code| corrupt(get_error_name(code)))?;
            self.between_frames = expected == 0;
            self.is_complete |= self.between_frames;
            let read = output.pos();
            if read > 0 {
                return Ok(read);
            }
            if self.input.pos() == self.input.src.len() && !self.between_frames {
                return if self.is_complete { Ok(0) } else { Err(corrupt(INCOMPLETE_FRAME)) };
            }
        }
    }
}
