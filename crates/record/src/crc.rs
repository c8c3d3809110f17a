//! The checksum of a batch.

use crc_fast::CrcAlgorithm;

use crate::error::CrcMismatch;
use crate::header::{ATTRIBUTES_AT, BatchHeader};

/// The CRC-32C of a batch's bytes: all bytes after the CRC field.
///
/// # Panics
/// If `bytes` are shorter than a header.
pub fn crc(bytes: &[u8]) -> u32 {
    crc_of(&[&bytes[ATTRIBUTES_AT..]])
}

pub(crate) fn crc_of(parts: &[&[u8]]) -> u32 {
    let crc = if let [whole] = parts {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, whole)
    } else {
        let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
        for part in parts {
            digest.update(part);
        }
        digest.finalize()
    };
    u32::try_from(crc).expect("a CRC-32C has 32 bits")
}

/// Checks that a batch's bytes match its CRC.
pub(crate) fn verify_crc(header: &BatchHeader, bytes: &[u8]) -> Result<(), CrcMismatch> {
    let computed = crc(bytes);
    if computed == header.crc { Ok(()) } else { Err(CrcMismatch { stored: header.crc, computed }) }
}
