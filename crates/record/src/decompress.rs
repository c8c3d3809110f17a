//! Decompression of a batch's records into a reused buffer, never beyond its limit.
//!
//! A hostile batch of a megabyte can claim, or even hold, terabytes. So no size in a frame is trusted: the
//! output grows with the data, and a batch that exceeds the limit is refused. Memory is bounded by the limit,
//! and by the largest possible output of the compressed bytes.
//!
//! The accepted streams are exactly those that Kafka's Java clients can read, because an unreadable batch
//! stops such a client permanently. The differential suite compares with Apache Kafka for each framing of
//! each codec.

mod gzip;
mod lz4;
mod snappy;
mod stream;

use flate2::Decompress;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

use crate::attributes::Compression;

use gzip::Gzip;
pub use stream::RecordScratch;
pub(crate) use stream::RecordStream;

/// The default limit of a [`DecompressBuffer`]: 128 MiB, 128 times Kafka's default `message.max.bytes`.
///
/// One limit applies to all readers of stored batches. With a higher limit for produce than for compaction, a
/// compacted topic could contain keys that compaction never sees.
pub const DECOMPRESSED_BYTES_MAX_DEFAULT: usize = 128 << 20;

/// Growth of the output unless the stream is known to be longer.
const CHUNK_BYTES: usize = 16 << 10;

/// Errors of decompression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecompressError {
    /// The records are larger than the limit.
    #[error(transparent)]
    TooLarge(#[from] DecompressedTooLarge),
    /// The bytes are invalid for the codec.
    #[error(transparent)]
    Corrupt(#[from] CorruptPayload),
}

/// The decompressed records exceed the limit. Kafka has no such limit; RECORD_LIST_TOO_LARGE is the nearest
/// code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Records compressed with {compression} exceed {limit_bytes} bytes when decompressed")]
pub struct DecompressedTooLarge {
    pub compression: Compression,
    pub limit_bytes: usize,
}

/// The bytes are invalid for the codec. Kafka: INVALID_RECORD.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Records compressed with {compression} are corrupt: {reason}")]
pub struct CorruptPayload {
    pub compression: Compression,
    /// The decoder's message.
    pub reason: String,
}

/// A buffer for decompressed records. Keeps its memory between batches, at most its limit.
#[derive(Debug)]
pub struct DecompressBuffer {
    bytes: Vec<u8>,
    limit_bytes: usize,
}

impl Default for DecompressBuffer {
    fn default() -> DecompressBuffer {
        DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT)
    }
}

impl DecompressBuffer {
    /// An empty buffer without memory, with a limit of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> DecompressBuffer {
        DecompressBuffer { bytes: Vec::new(), limit_bytes }
    }

    /// Allocated bytes of the buffer.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Releases memory beyond `bytes`, for a buffer that waits for its next batch.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(bytes);
    }

    /// The decompressed form of `payload`: `payload` itself for [`Compression::None`].
    pub fn decompress<'b>(
        &'b mut self,
        compression: Compression,
        payload: &'b [u8],
    ) -> Result<&'b [u8], DecompressError> {
        self.bytes.clear();
        let mut output = BoundedOutput { bytes: &mut self.bytes, limit_bytes: self.limit_bytes, compression };
        match compression {
            Compression::None => return Ok(payload),
            Compression::Gzip => inflate(payload, &mut output)?,
            Compression::Snappy => snappy::decompress(payload, &mut output)?,
            Compression::Lz4 => lz4::decompress(payload, &mut output)?,
            Compression::Zstd => zstd(payload, &mut output)?,
        }
        Ok(&self.bytes)
    }
}

/// The decompressed bytes so far, and their maximum.
struct BoundedOutput<'b> {
    bytes: &'b mut Vec<u8>,
    limit_bytes: usize,
    compression: Compression,
}

impl BoundedOutput<'_> {
    fn too_large(&self) -> DecompressError {
        DecompressedTooLarge { compression: self.compression, limit_bytes: self.limit_bytes }.into()
    }

    fn corrupt(&self, reason: impl ToString) -> DecompressError {
        CorruptPayload { compression: self.compression, reason: reason.to_string() }.into()
    }

    /// Number of bytes left up to the limit.
    fn allowed(&self) -> usize {
        self.limit_bytes - self.bytes.len()
    }

    /// Makes the memory ready for `wanted` more bytes, or as many as are allowed: doubling, so that many
    /// small steps stay cheap, but never past the limit.
    fn reserve(&mut self, wanted: usize) {
        let wanted = wanted.min(self.allowed());
        if self.bytes.capacity() - self.bytes.len() < wanted {
            let doubled = self.bytes.capacity().saturating_mul(2).min(self.limit_bytes);
            let capacity = doubled.max(self.bytes.len() + wanted);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), DecompressError> {
        if bytes.len() > self.allowed() {
            return Err(self.too_large());
        }
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends the bytes that `fill` writes, at most `room`; `fill` returns their number.
    fn fill<E>(&mut self, room: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        let room = room.min(self.allowed());
        self.reserve(room);
        let start = self.bytes.len();
        self.bytes.resize(start + room, 0);
        let filled = fill(&mut self.bytes[start..]);
        self.bytes.truncate(start + filled.as_ref().map_or(0, |&written| written));
        filled
    }
}

fn inflate(payload: &[u8], output: &mut BoundedOutput<'_>) -> Result<(), DecompressError> {
    let mut inflate = Decompress::new(false);
    let mut gzip = Gzip::new(payload, &mut inflate);
    loop {
        if output.allowed() == 0 {
            return match gzip.read(&mut [0]) {
                Ok(0) => Ok(()),
                Ok(_) => Err(output.too_large()),
                Err(error) => Err(output.corrupt(error)),
            };
        }
        let room = output.bytes.len().clamp(CHUNK_BYTES, CHUNK_BYTES * 16);
        match output.fill(room, |space| gzip.read(space)) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(output.corrupt(error)),
        }
    }
}

const INCOMPLETE_FRAME: &str = "the frame is incomplete";

/// Consecutive frames. The window of a frame is the library's own memory, at most 128 MiB (the limit of
/// Kafka's reader, and the window of level 22); only the filled part is touched.
fn zstd(payload: &[u8], output: &mut BoundedOutput<'_>) -> Result<(), DecompressError> {
    let mut context = DCtx::create();
    let mut input = InBuffer::around(payload);
    let mut is_complete = false;
    loop {
        output.reserve(CHUNK_BYTES);
        let start = output.bytes.len();
        let (result, full) = if output.allowed() == 0 {
            let mut beyond = [0; 1];
            let mut space = OutBuffer::around(&mut beyond[..]);
            let result = context.decompress_stream(&mut space, &mut input);
            if space.pos() > 0 {
                return Err(output.too_large());
            }
            (result, false)
        } else {
            let mut space = OutBuffer::around_pos(output.bytes, start);
            let result = context.decompress_stream(&mut space, &mut input);
            (result, output.bytes.len() == output.bytes.capacity())
        };
        // The allocator may reserve more than requested, and the decoder fills all of it.
        if output.bytes.len() > output.limit_bytes {
            return Err(output.too_large());
        }
        let expected = result.map_err(|code| output.corrupt(get_error_name(code)))?;
        is_complete |= expected == 0 && !payload.is_empty();
        if input.pos() == payload.len() && (expected == 0 || !full) {
            // As in `zstd-jni`, an incomplete frame after a complete one is ignored.
            return if is_complete { Ok(()) } else { Err(output.corrupt(INCOMPLETE_FRAME)) };
        }
    }
}
