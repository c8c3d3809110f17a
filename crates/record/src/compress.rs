//! Compression of a batch's records, in the shapes that Kafka's Java clients write and every client reads:
//! one gzip member, snappy-java's framing with blocks of 32 KB, an LZ4 frame with independent blocks of 64
//! KB, one zstd frame.
//!
//! A compressor keeps its codec's tables between batches.

use std::io::Write;

use flate2::{Compress, FlushCompress, Status};
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, compress_bound, zstd_sys::ZSTD_EndDirective};

use crate::attributes::Compression;

const SNAPPY_BLOCK_BYTES: usize = 32 << 10;
const SNAPPY_HEAD: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// Magic, deflate, no flags, no time, no hint, unknown system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The codec of a builder, with its tables.
pub(crate) enum Compressor {
    None,
    Gzip(Compress),
    Snappy(Box<snap::raw::Encoder>),
    Lz4,
    Zstd(CCtx<'static>),
}

impl Compressor {
    /// The codec at a level; out-of-range levels mean the nearest one. LZ4 and snappy have one level here.
    pub(crate) fn new(compression: Compression, level: Option<i32>) -> Compressor {
        match compression {
            Compression::None => Compressor::None,
            Compression::Gzip => {
                let level = level.map_or(6, |level| level.clamp(1, 9).unsigned_abs());
                Compressor::Gzip(Compress::new(flate2::Compression::new(level), false))
            }
            Compression::Snappy => Compressor::Snappy(Box::new(snap::raw::Encoder::new())),
            Compression::Lz4 => Compressor::Lz4,
            Compression::Zstd => {
                let levels = zstd::compression_level_range();
                let level =
                    level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL).clamp(*levels.start(), *levels.end());
                let mut context = CCtx::create();
                context
                    .set_parameter(CParameter::CompressionLevel(level))
                    .expect("the level is in the library's range");
                Compressor::Zstd(context)
            }
        }
    }

    /// Appends the compressed form of `payload` to `out`. Never called for [`Compression::None`].
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        match self {
            Compressor::None => out.extend_from_slice(payload),
            Compressor::Gzip(deflate) => gzip(deflate, payload, out),
            Compressor::Snappy(encoder) => snappy(encoder, payload, out),
            Compressor::Lz4 => lz4(payload, out),
            Compressor::Zstd(context) => zstd(context, payload, out),
        }
    }
}

fn gzip(deflate: &mut Compress, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&GZIP_HEAD);
    deflate.reset();
    loop {
        let consumed = usize::try_from(deflate.total_in()).expect("no more than the payload is consumed");
        out.reserve((payload.len() - consumed) / 2 + 256);
        let status = deflate
            .compress_vec(&payload[consumed..], out, FlushCompress::Finish)
            .expect("deflate takes any bytes");
        if status == Status::StreamEnd {
            break;
        }
    }
    let mut crc = flate2::Crc::new();
    crc.update(payload);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
}

fn snappy(encoder: &mut snap::raw::Encoder, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&SNAPPY_HEAD);
    for block in payload.chunks(SNAPPY_BLOCK_BYTES) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let written = encoder
            .compress(block, &mut out[at + 4..])
            .expect("the output has the size that the encoder asked for");
        let len = u32::try_from(written).expect("a block of 32 KB stays small");
        out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        out.truncate(at + 4 + written);
    }
}

fn lz4(payload: &[u8], out: &mut Vec<u8>) {
    let frame = FrameInfo::new().block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(frame, out);
    encoder.write_all(payload).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail");
}

fn zstd(context: &mut CCtx<'static>, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(compress_bound(payload.len()));
    context
        .set_pledged_src_size(Some(u64::try_from(payload.len()).expect("a usize has at most 64 bits")))
        .expect("no frame is in progress");
    let mut space = OutBuffer::around_pos(out, start);
    let mut input = InBuffer::around(payload);
    let left = context
        .compress_stream2(&mut space, &mut input, ZSTD_EndDirective::ZSTD_e_end)
        .expect("compression into enough memory does not fail");
    assert_eq!(left, 0, "the output has the size that the library bounds it by");
}
