//! Identities of messages: the ledger and entry of a batch in BookKeeper, and the place in that batch.

use std::fmt;

use crate::protocol::MessageIdData;

/// The place of a message in a topic. Ids of a partition are ordered as its messages are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId {
    /// The ledger; `-1` if the broker found a duplicate and stored nothing (deduplication is off by default).
    pub ledger: i64,
    /// The entry in the ledger.
    pub entry: i64,
    /// The message's place in its batch; `-1` for a message that was sent alone.
    pub batch_index: i32,
    /// Number of messages in the batch; 0 for a message that was sent alone.
    pub batch_size: i32,
    /// The partition; `-1` for a topic without partitions.
    pub partition: i32,
}

impl MessageId {
    /// Seeks to the oldest message of a topic; Pulsar's `MessageId.earliest`.
    pub const EARLIEST: MessageId =
        MessageId { ledger: -1, entry: -1, batch_index: -1, batch_size: 0, partition: -1 };
    /// Seeks to the end of a topic; Pulsar's `MessageId.latest`.
    pub const LATEST: MessageId =
        MessageId { ledger: i64::MAX, entry: i64::MAX, batch_index: -1, batch_size: 0, partition: -1 };

    /// The id of an entry, without a place in it.
    pub(crate) fn of_entry(id: &MessageIdData, partition: i32) -> MessageId {
        let partition = id.partition.filter(|partition| *partition >= 0).unwrap_or(partition);
        MessageId {
            ledger: id.ledger_id.cast_signed(),
            entry: id.entry_id.cast_signed(),
            batch_index: id.batch_index.unwrap_or(-1),
            batch_size: id.batch_size.unwrap_or(0),
            partition,
        }
    }

    /// The message at `index` of a batch with this id's entry.
    pub(crate) fn in_batch(self, index: i32, batch_size: i32) -> MessageId {
        MessageId { batch_index: index, batch_size, ..self }
    }

    /// True if both messages are in one entry.
    pub(crate) fn is_in_entry_of(&self, other: &MessageId) -> bool {
        (self.ledger, self.entry) == (other.ledger, other.entry)
    }

    /// The form for the protocol, of the whole entry.
    pub(crate) fn entry_data(&self) -> MessageIdData {
        MessageIdData {
            ledger_id: self.ledger.cast_unsigned(),
            entry_id: self.entry.cast_unsigned(),
            partition: (self.partition >= 0).then_some(self.partition),
            ..MessageIdData::default()
        }
    }
}

/// The id as Pulsar's tools print it: `ledger:entry:partition[:batch index]`.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.ledger, self.entry, self.partition)?;
        if self.batch_index >= 0 { write!(f, ":{}", self.batch_index) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_as_messages_are() {
        let id = |ledger, entry, batch_index| MessageId {
            ledger,
            entry,
            batch_index,
            batch_size: 10,
            partition: 3,
        };
        let ids =
            [MessageId::EARLIEST, id(1, 9, 0), id(1, 9, 1), id(1, 10, 0), id(2, 0, 0), MessageId::LATEST];
        assert!(ids.is_sorted());
        assert_eq!(ids[2].to_string(), "1:9:3:1");
        assert_eq!(MessageId::EARLIEST.to_string(), "-1:-1:-1");
        assert!(ids[1].is_in_entry_of(&ids[2]) && !ids[2].is_in_entry_of(&ids[3]));
    }

    #[test]
    fn duplicates_have_no_ledger() {
        let data = MessageIdData { ledger_id: u64::MAX, entry_id: u64::MAX, ..MessageIdData::default() };
        let id = MessageId::of_entry(&data, 4);
        assert_eq!((id.ledger, id.entry, id.partition), (-1, -1, 4));
        assert_eq!(id.entry_data().ledger_id, u64::MAX);
    }
}
