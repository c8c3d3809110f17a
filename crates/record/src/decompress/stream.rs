//! Streaming decompression of a batch's records, for the walk over a producer's batch: each piece overwrites the one
//! before, so that records of any size need the memory of one piece.
//!
//! Owns: the memory that is reused between batches ([`RecordScratch`]), and the limit of the decompressed size. A
//! piece is 64 KiB of gzip and zstd, and a block of LZ4 and snappy: at most 4 MiB, and 22 times the compressed block.
//! Accepts and refuses the same streams as [`super::DecompressBuffer`].

use std::fmt;

use flate2::{Crc, Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective, get_error_name};

use super::lz4::{self, Lz4Blocks};
use super::snappy::SnappyBlocks;
use super::{CorruptPayload, DecompressError, DecompressedTooLarge, gzip};
use crate::attributes::Compression;

/// Size of a piece of a codec without blocks.
const PIECE_BYTES: usize = 64 << 10;
/// The window that is kept from batch to batch.
const WINDOW_BYTES_KEPT: usize = 1 << 20;
/// Maximum size of a zstd context that is kept. Windows of levels up to 19 fit.
const ZSTD_BYTES_KEPT: usize = 10 << 20;

/// The memory of [`crate::validate_records`]: a window and the tables of the codecs used so far. Keeps at most about
/// ten megabytes between batches, usually less than one.
#[derive(Default)]
pub struct RecordScratch {
    window: Window,
    inflate: Option<Decompress>,
    zstd: Option<DCtx<'static>>,
}

impl RecordScratch {
    /// Scratch without memory yet.
    pub fn new() -> RecordScratch {
        RecordScratch::default()
    }

    /// The records of `payload`, which may become `limit_bytes`.
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
                Decoder::Gzip(Gzip { rest: payload, inflate, crc: Crc::new(), member: Member::Before })
            }
            Compression::Snappy => Decoder::Snappy(SnappyBlocks::new(payload)),
            Compression::Lz4 => Decoder::Lz4(Lz4Blocks::new(payload).map_err(corrupt)?),
            Compression::Zstd => {
                let context = zstd.get_or_insert_with(DCtx::create);
                let reset = context.reset(ResetDirective::SessionOnly);
                reset.map_err(|code| corrupt(get_error_name(code)))?;
                Decoder::Zstd(Zstd { input: InBuffer::around(payload), context, between_frames: false })
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

/// The decompressed bytes that were not walked over yet, and before them those that a codec still refers to.
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

    /// The last bytes, up to `history`, and room for `wanted` more behind them.
    fn room(&mut self, wanted: usize, history: usize) -> (&[u8], &mut [u8]) {
        if self.bytes.len() - self.end < wanted {
            let keep_from = self.start.min(self.end.saturating_sub(history));
            self.bytes.copy_within(keep_from..self.end, 0);
            self.start -= keep_from;
            self.end -= keep_from;
        }
        if self.bytes.len() - self.end < wanted {
            // Twice the room, so that most pieces find theirs without a move.
            self.bytes.resize(self.end + wanted.max(wanted.min(PIECE_BYTES) * 2), 0);
        }
        let (before, room) = self.bytes.split_at_mut(self.end);
        (&before[before.len().saturating_sub(history)..], &mut room[..wanted])
    }
}

/// The records of a compressed batch, as far as they are decompressed.
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
    /// Decompressed bytes that are not consumed yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.window.bytes[self.window.start..self.window.end]
    }

    /// Consumes `bytes` of the unread ones.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.window.start += bytes;
    }

    /// Bytes that were decompressed so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decompresses the next piece; false at the end of the stream.
    pub(crate) fn read_more(&mut self) -> Result<bool, DecompressError> {
        let allowed = self.limit_bytes - self.bytes;
        let Self { decoder, window, compression, .. } = self;
        let read = match decoder {
            Decoder::Gzip(gzip) => gzip.read(window),
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

/// The next nonempty block; 0 bytes at the end. Its bytes are behind the window's end.
fn read_snappy(blocks: &mut SnappyBlocks<'_>, window: &mut Window, allowed: usize) -> Result<usize, Fault> {
    while let Some(block) = blocks.next().map_err(corrupt)? {
        if block.decompressed_bytes > allowed {
            return Err(Fault::TooLarge);
        }
        let (_, room) = window.room(block.decompressed_bytes, 0);
        snap::raw::Decoder::new().decompress(block.bytes, room).map_err(corrupt)?;
        if block.decompressed_bytes > 0 {
            return Ok(block.decompressed_bytes);
        }
    }
    Ok(0)
}

/// As [`read_snappy`].
fn read_lz4(blocks: &mut Lz4Blocks<'_>, window: &mut Window) -> Result<usize, Fault> {
    while let Some(block) = blocks.next().map_err(corrupt)? {
        let (before, room) = window.room(block.decompressed_bytes_max, blocks.history_bytes());
        let read = if block.is_stored {
            room.copy_from_slice(block.bytes);
            block.bytes.len()
        } else {
            lz4::decompress_block(block.bytes, before, room).map_err(corrupt)?
        };
        if read > 0 {
            return Ok(read);
        }
    }
    Ok(0)
}

/// A gzip stream: one member or more.
struct Gzip<'p, 's> {
    rest: &'p [u8],
    inflate: &'s mut Decompress,
    crc: Crc,
    member: Member,
}

/// The state of a gzip stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// Before the first.
    Before,
    Within,
    /// Behind one that is complete.
    Behind,
}

impl Gzip<'_, '_> {
    fn read(&mut self, window: &mut Window) -> Result<usize, Fault> {
        loop {
            if self.member != Member::Within {
                if self.rest.is_empty() && self.member == Member::Behind {
                    return Ok(0);
                }
                self.rest = gzip::after_head(self.rest).map_err(corrupt)?;
                self.inflate.reset(false);
                self.crc.reset();
                self.member = Member::Within;
            }
            let (_, room) = window.room(PIECE_BYTES, 0);
            let (consumed, produced) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(self.rest, room, FlushDecompress::None).map_err(corrupt)?;
            let consumed = within_piece(self.inflate.total_in() - consumed);
            let produced = within_piece(self.inflate.total_out() - produced);
            self.rest = &self.rest[consumed..];
            self.crc.update(&room[..produced]);
            if status == Status::StreamEnd {
                self.rest = gzip::after_trailer(self.rest, &self.crc).map_err(corrupt)?;
                self.member = Member::Behind;
            } else if produced == 0 && consumed == 0 {
                return Err(corrupt("the deflate stream ends early"));
            }
            if produced > 0 {
                return Ok(produced);
            }
        }
    }
}

fn within_piece(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no more than the slices that were given")
}

/// Consecutive frames. The window of a frame is the library's own memory, at most 128 MiB, of which only the filled
/// part is touched.
struct Zstd<'p, 's> {
    input: InBuffer<'p>,
    context: &'s mut DCtx<'static>,
    between_frames: bool,
}

impl Zstd<'_, '_> {
    fn read(&mut self, window: &mut Window) -> Result<usize, Fault> {
        loop {
            let all_read = self.input.pos() == self.input.src.len();
            if all_read && self.between_frames {
                return Ok(0);
            }
            let (_, room) = window.room(PIECE_BYTES, 0);
            let mut output = OutBuffer::around(room);
            let decompressed = self.context.decompress_stream(&mut output, &mut self.input);
            let expected = decompressed.map_err(|code| corrupt(get_error_name(code)))?;
            self.between_frames = expected == 0;
            let read = output.pos();
            if read > 0 {
                return Ok(read);
            }
            if self.input.pos() == self.input.src.len() && !self.between_frames {
                return Err(corrupt("the last frame is incomplete"));
            }
        }
    }
}
