//! The encoding of a metadata record in the value of a record of `__cluster_metadata` (Kafka's
//! `MetadataRecordSerde`): frame version, record type and record version, each a variable-length integer,
//! then the body.

use crate::{DecodeError, Decoder, EncodeError, Encoder, MetadataRecord};
use bytes::Bytes;

const FRAME_VERSION: u32 = 1;

/// A metadata record could not be read. The node must stop, because a node that skips a record diverges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataValueError {
    #[error("frame version {version}; only 1 is supported")]
    FrameVersion { version: u32 },
    #[error("unknown metadata record of type {key} at version {version}")]
    Unknown { key: u32, version: u32 },
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Reads the value of a record of the metadata log.
pub fn decode_metadata_value(value: Bytes) -> Result<MetadataRecord, MetadataValueError> {
    let mut d = Decoder::new(value);
    let frame = d.uvarint()?;
    if frame != FRAME_VERSION {
        return Err(MetadataValueError::FrameVersion { version: frame });
    }
    let (key, version) = (d.uvarint()?, d.uvarint()?);
    let known = match (i16::try_from(key), i16::try_from(version)) {
        (Ok(key), Ok(version)) => MetadataRecord::decode_body(key, version, &mut d)?,
        _ => None,
    };
    let record = known.ok_or(MetadataValueError::Unknown { key, version })?;
    d.finish()?;
    Ok(record)
}

/// Writes the value of a record of the metadata log.
pub fn encode_metadata_value(record: &MetadataRecord, version: i16) -> Result<Bytes, EncodeError> {
    let mut e = Encoder::with_capacity(64);
    e.uvarint(FRAME_VERSION);
    e.uvarint(u32::from(record.api_key().unsigned_abs()));
    e.uvarint(u32::from(version.unsigned_abs()));
    record.encode_body(version, &mut e)?;
    Ok(e.into_bytes())
}
