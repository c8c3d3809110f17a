//! The keys of control records: the kind of marker or message in a control batch. Values belong to the crates
//! with their schemas.

/// The kind of a control record (Kafka's `ControlRecordType`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ControlRecordType {
    /// The end of an aborted transaction.
    Abort,
    /// The end of a committed transaction.
    Commit,
    /// KRaft: a new leader starts its epoch.
    LeaderChange,
    /// KRaft: the first record of a snapshot.
    SnapshotHeader,
    /// KRaft: the last record of a snapshot.
    SnapshotFooter,
    /// KRaft: the level of `kraft.version`.
    KRaftVersion,
    /// KRaft: the set of voters.
    KRaftVoters,
}

impl ControlRecordType {
    /// The id in the key.
    pub fn id(self) -> i16 {
        match self {
            ControlRecordType::Abort => 0,
            ControlRecordType::Commit => 1,
            ControlRecordType::LeaderChange => 2,
            ControlRecordType::SnapshotHeader => 3,
            ControlRecordType::SnapshotFooter => 4,
            ControlRecordType::KRaftVersion => 5,
            ControlRecordType::KRaftVoters => 6,
        }
    }

    /// The kind with this id; `None` if unknown.
    pub fn from_id(id: i16) -> Option<ControlRecordType> {
        match id {
            0 => Some(ControlRecordType::Abort),
            1 => Some(ControlRecordType::Commit),
            2 => Some(ControlRecordType::LeaderChange),
            3 => Some(ControlRecordType::SnapshotHeader),
            4 => Some(ControlRecordType::SnapshotFooter),
            5 => Some(ControlRecordType::KRaftVersion),
            6 => Some(ControlRecordType::KRaftVoters),
            _ => None,
        }
    }

    /// The record's key: version 0 and the id.
    pub fn key(self) -> [u8; 4] {
        let [high, low] = self.id().to_be_bytes();
        [0, 0, high, low]
    }

    /// The kind in a key; `None` if unknown, which readers skip. Keys of later versions start like those of
    /// version 0.
    pub fn parse_key(key: &[u8]) -> Result<Option<ControlRecordType>, InvalidControlKey> {
        match key {
            &[high, low, type_high, type_low, ..] if i16::from_be_bytes([high, low]) >= 0 => {
                Ok(ControlRecordType::from_id(i16::from_be_bytes([type_high, type_low])))
            }
            _ => Err(InvalidControlKey { key_bytes: key.len() }),
        }
    }
}

/// A control record's key is shorter than version and type, or its version is negative. Kafka:
/// INVALID_RECORD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Control record has an invalid key of {key_bytes} bytes")]
pub struct InvalidControlKey {
    /// Size of the key.
    pub key_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_their_kind() {
        for id in 0..=6 {
            let kind = ControlRecordType::from_id(id).expect("ids 0 to 6 are known");
            assert_eq!(kind.id(), id);
            assert_eq!(ControlRecordType::parse_key(&kind.key()), Ok(Some(kind)));
        }
        assert_eq!(ControlRecordType::parse_key(&[0, 9, 0, 1, 77]), Ok(Some(ControlRecordType::Commit)));
        assert_eq!(ControlRecordType::parse_key(&[0, 0, 0, 7]), Ok(None));
        assert_eq!(ControlRecordType::parse_key(&[0, 0, 0]), Err(InvalidControlKey { key_bytes: 3 }));
        assert_eq!(ControlRecordType::parse_key(&[0xff, 0, 0, 1]), Err(InvalidControlKey { key_bytes: 4 }));
    }
}
