//! Codecs of payloads. LZ4 is a block without a frame, as Pulsar's clients write it: its size uncompressed is
//! in the metadata. Zstandard is one frame. Other codecs of Pulsar (zlib, snappy) are refused.

use bytes::Bytes;

use crate::protocol::CompressionCode;

/// Upper bound of the ratio of LZ4: a byte extends a copy by 255 bytes at most.
const LZ4_RATIO_MAX: usize = 255;

/// Codec of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Compression {
    #[default]
    None,
    Lz4,
    /// Zstandard at level 3, as in Pulsar's clients.
    Zstd,
}

impl Compression {
    /// The name in Pulsar's tools.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "NONE",
            Compression::Lz4 => "LZ4",
            Compression::Zstd => "ZSTD",
        }
    }

    pub(crate) fn code(self) -> CompressionCode {
        match self {
            Compression::None => CompressionCode::None,
            Compression::Lz4 => CompressionCode::Lz4,
            Compression::Zstd => CompressionCode::Zstd,
        }
    }
}

/// Why a payload cannot be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionFault {
    /// The codec is not served here.
    #[error("compressed by {0}; this client has NONE, LZ4 and ZSTD")]
    Codec(String),
    /// The announced size exceeds the limit, or cannot come from so few bytes.
    #[error("a size of {uncompressed} bytes uncompressed, from {compressed} bytes; the limit is {limit}")]
    Size { uncompressed: usize, compressed: usize, limit: usize },
    /// The bytes are not what the codec writes.
    #[error("the compressed bytes are damaged: {0}")]
    Damage(String),
}

/// The compressor of a producer, with its working memory.
pub(crate) enum Compressor {
    None,
    Lz4,
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Compressor {
        match compression {
            Compression::None => Compressor::None,
            Compression::Lz4 => Compressor::Lz4,
            Compression::Zstd => {
                let compressor = zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)
                    .expect("the default level is in the library's range");
                Compressor::Zstd(Box::new(compressor))
            }
        }
    }

    /// The compressed form of `payload`; `None` without a codec.
    pub(crate) fn compress(&mut self, payload: &[u8]) -> Option<Bytes> {
        match self {
            Compressor::None => None,
            Compressor::Lz4 => Some(lz4_flex::block::compress(payload).into()),
            Compressor::Zstd(compressor) => {
                let compressed = compressor.compress(payload);
                Some(compressed.expect("the output has the size that the library bounds it by").into())
            }
        }
    }
}

/// The payload that `code` compressed to `payload`. The result has `uncompressed` bytes, at most `limit`.
pub(crate) fn decompress(
    code: i32,
    payload: Bytes,
    uncompressed: u32,
    limit: usize,
) -> Result<Bytes, CompressionFault> {
    let codec = CompressionCode::try_from(code);
    if codec == Ok(CompressionCode::None) {
        return Ok(payload);
    }
    let (size, compressed) = (usize::try_from(uncompressed).unwrap_or(usize::MAX), payload.len());
    let is_lz4 = codec == Ok(CompressionCode::Lz4);
    if size > limit || (is_lz4 && size > compressed.saturating_mul(LZ4_RATIO_MAX)) {
        return Err(CompressionFault::Size { uncompressed: size, compressed, limit });
    }
    let damage = |error: &dyn std::fmt::Display| CompressionFault::Damage(error.to_string());
    let decompressed = match codec {
        Ok(CompressionCode::Lz4) => {
            lz4_flex::block::decompress(&payload, size).map_err(|error| damage(&error))?
        }
        Ok(CompressionCode::Zstd) => {
            zstd::bulk::decompress(&payload, size).map_err(|error| damage(&error))?
        }
        Ok(other) => return Err(CompressionFault::Codec(format!("{other:?}").to_uppercase())),
        Err(_) => return Err(CompressionFault::Codec(format!("codec {code}"))),
    };
    if decompressed.len() != size {
        return Err(damage(&format_args!("{} bytes where {size} are announced", decompressed.len())));
    }
    Ok(decompressed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn payloads_survive_each_codec() {
        let payload: Bytes = b"to and fro, ".repeat(500).into();
        for compression in [Compression::Lz4, Compression::Zstd] {
            let compressed = Compressor::new(compression).compress(&payload).expect("a codec");
            assert!(compressed.len() < payload.len() / 4, "{compression:?}");
            let code = i32::from(compression.code());
            let size = u32::try_from(payload.len()).expect("small");
            assert_eq!(decompress(code, compressed.clone(), size, LIMIT), Ok(payload.clone()));
            for wrong in [size - 1, size + 1] {
                decompress(code, compressed.clone(), wrong, LIMIT).expect_err("another size");
            }
            decompress(code, compressed.slice(1..), size, LIMIT).expect_err("damage");
        }
        assert_eq!(Compressor::new(Compression::None).compress(&payload), None);
        assert_eq!(decompress(0, payload.clone(), 0, 0), Ok(payload));
    }

    #[test]
    fn bombs_and_other_codecs_are_refused() {
        let few = Bytes::from_static(&[0; 10]);
        let over = decompress(3, few.clone(), 2 << 20, LIMIT).expect_err("over the limit");
        assert!(matches!(over, CompressionFault::Size { .. }), "{over}");
        let unlikely = decompress(1, few.clone(), 100_000, LIMIT).expect_err("over the ratio");
        assert!(matches!(unlikely, CompressionFault::Size { .. }), "{unlikely}");
        let zlib = decompress(2, few.clone(), 10, LIMIT).expect_err("zlib");
        assert_eq!(zlib, CompressionFault::Codec("ZLIB".to_owned()));
        let unknown = decompress(9, few, 10, LIMIT).expect_err("unknown");
        assert_eq!(unknown, CompressionFault::Codec("codec 9".to_owned()));
    }
}
