//! The attributes of a batch: codec, timestamp type and flags.

use std::fmt;

use crate::error::UnknownCompression;

const COMPRESSION_MASK: i16 = 0x07;
const TIMESTAMP_TYPE_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;
const DELETE_HORIZON_BIT: i16 = 0x40;
const USED_BITS: i16 = 0x7f;

/// The 16 attribute bits of a batch. The unused ones (7-15) are ignored by every reader and kept unchanged,
/// as in Kafka, until the broker writes the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    /// The attributes of a batch that this broker or client writes.
    pub fn new(compression: Compression, timestamp_type: TimestampType) -> Attributes {
        Attributes(i16::from(compression.id())).with_timestamp_type(timestamp_type)
    }

    /// The codec of the records. Ids 5 to 7 are undefined.
    pub fn compression(self) -> Result<Compression, UnknownCompression> {
        let id = u8::try_from(self.0 & COMPRESSION_MASK).expect("three bits fit in a byte");
        Compression::from_id(id).ok_or(UnknownCompression { id })
    }

    /// The source of the records' timestamps.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & TIMESTAMP_TYPE_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// True if the records belong to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL_BIT != 0
    }

    /// True if the records are control records (transaction markers, KRaft's control messages).
    pub fn is_control(self) -> bool {
        self.0 & CONTROL_BIT != 0
    }

    /// True if the base timestamp is the time after which the cleaner may drop tombstones and markers.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON_BIT != 0
    }

    /// These attributes with another timestamp type. Unused bits are cleared: Kafka clears them whenever it
    /// writes attributes.
    #[must_use]
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Attributes {
        let bits = self.0 & USED_BITS & !TIMESTAMP_TYPE_BIT;
        match timestamp_type {
            TimestampType::CreateTime => Attributes(bits),
            TimestampType::LogAppendTime => Attributes(bits | TIMESTAMP_TYPE_BIT),
        }
    }

    /// These attributes with the transactional flag set or cleared.
    #[must_use]
    pub fn with_transactional(self, transactional: bool) -> Attributes {
        self.with_bit(TRANSACTIONAL_BIT, transactional)
    }

    /// These attributes with the control flag set or cleared.
    #[must_use]
    pub fn with_control(self, control: bool) -> Attributes {
        self.with_bit(CONTROL_BIT, control)
    }

    /// These attributes with the delete horizon flag set or cleared.
    #[must_use]
    pub fn with_delete_horizon(self, delete_horizon: bool) -> Attributes {
        self.with_bit(DELETE_HORIZON_BIT, delete_horizon)
    }

    fn with_bit(self, bit: i16, set: bool) -> Attributes {
        Attributes(if set { self.0 | bit } else { self.0 & !bit })
    }
}

/// The codec of a batch's records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    #[default]
    None,
    /// RFC 1952, one or more members.
    Gzip,
    /// Snappy, raw or in the framing of snappy-java.
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    Zstd,
}

impl Compression {
    /// The codec of an id in the attributes; `None` for an undefined id.
    pub fn from_id(id: u8) -> Option<Compression> {
        match id {
            0 => Some(Compression::None),
            1 => Some(Compression::Gzip),
            2 => Some(Compression::Snappy),
            3 => Some(Compression::Lz4),
            4 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The id in the attributes.
    pub fn id(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// The name in Kafka's `compression.type` settings.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// The codec of a name in Kafka's `compression.type` settings. `producer` and `uncompressed`, which
    /// topics also accept, are not codecs.
    pub fn from_name(name: &str) -> Option<Compression> {
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
            .into_iter()
            .find(|codec| codec.name() == name)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The source of the timestamps of a batch's records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TimestampType {
    /// The producer sets the timestamps.
    #[default]
    CreateTime,
    /// The broker sets the timestamps at the append: every record has the batch's max timestamp.
    LogAppendTime,
}

impl TimestampType {
    /// The name in Kafka's `message.timestamp.type` setting.
    pub fn name(self) -> &'static str {
        match self {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_their_bits() {
        let attributes = Attributes(0x10 | 0x40 | 4);
        assert!(attributes.is_transactional() && attributes.has_delete_horizon() && !attributes.is_control());
        assert_eq!(attributes.compression(), Ok(Compression::Zstd));
        assert_eq!(attributes.timestamp_type(), TimestampType::CreateTime);
        assert_eq!(Attributes(5).compression(), Err(UnknownCompression { id: 5 }));
    }

    #[test]
    fn unused_bits_matter_to_no_reader_and_go_when_attributes_are_written() {
        let attributes = Attributes(-128 | 2);
        assert_eq!(attributes.compression(), Ok(Compression::Snappy));
        assert!(
            !attributes.is_transactional() && !attributes.is_control() && !attributes.has_delete_horizon()
        );
        assert_eq!(attributes.with_timestamp_type(TimestampType::LogAppendTime), Attributes(0x08 | 2));
    }
}
