//! Acknowledgements that wait to be sent together.

use tokio::time::Instant;

use crate::message_id::MessageId;
use crate::protocol::{Ack, AckKind, Command};

/// Acknowledged entries whose acknowledgement is not sent yet.
#[derive(Debug, Default)]
pub(super) struct PendingAcks {
    individual: Vec<MessageId>,
    /// The last entry of all acknowledged ones; entries before it are included.
    cumulative: Option<MessageId>,
    /// Since when the oldest acknowledgement waits.
    since: Option<Instant>,
}

impl PendingAcks {
    pub(super) fn add(&mut self, entry: MessageId) {
        self.individual.push(entry);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Acknowledges `entry` and all entries before it.
    pub(super) fn add_all_until(&mut self, entry: MessageId) {
        if self.cumulative.is_none_or(|last| last < entry) {
            self.cumulative = Some(entry);
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// Number of commands' worth of waiting entries.
    pub(super) fn len(&self) -> usize {
        self.individual.len() + usize::from(self.cumulative.is_some())
    }

    /// Since when the oldest acknowledgement waits; `None` if none does.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    pub(super) fn clear(&mut self) {
        *self = PendingAcks::default();
    }

    /// Takes the commands out: at most one of each kind.
    pub(super) fn take(&mut self, consumer_id: u64) -> Vec<Ack> {
        self.since = None;
        let cumulative = self.cumulative.take().map(|last| vec![last.entry_data()]);
        let individual = std::mem::take(&mut self.individual);
        let individual = individual.iter().map(MessageId::entry_data).collect::<Vec<_>>();
        let kinds =
            [(AckKind::Cumulative, cumulative.unwrap_or_default()), (AckKind::Individual, individual)];
        let filled = kinds.into_iter().filter(|(_, message_id)| !message_id.is_empty());
        filled
            .map(|(kind, message_id)| Ack {
                consumer_id,
                ack_type: kind.into(),
                message_id,
                request_id: None,
            })
            .collect()
    }

    /// Takes the commands out whose answer nothing waits for.
    pub(super) fn take_commands(&mut self, consumer_id: u64) -> impl Iterator<Item = Command> {
        self.take(consumer_id).into_iter().map(Command::Ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(entry: i64) -> MessageId {
        MessageId { ledger: 1, entry, ..MessageId::EARLIEST }
    }

    #[tokio::test]
    async fn acknowledgements_are_sent_together() {
        let mut acks = PendingAcks::default();
        assert!(acks.since().is_none() && acks.take(9).is_empty());
        acks.add(entry(5));
        acks.add(entry(3));
        acks.add_all_until(entry(2));
        acks.add_all_until(entry(1));
        assert_eq!(acks.len(), 3);
        assert!(acks.since().is_some());
        let [cumulative, individual] = acks.take(9).try_into().expect("two kinds");
        assert_eq!((cumulative.consumer_id, cumulative.ack_type, cumulative.message_id.len()), (9, 1, 1));
        assert_eq!(cumulative.message_id[0].entry_id, 2);
        let entries: Vec<u64> = individual.message_id.iter().map(|id| id.entry_id).collect();
        assert_eq!((individual.ack_type, entries), (0, vec![5, 3]));
        assert_eq!((acks.len(), acks.since()), (0, None));
    }
}
