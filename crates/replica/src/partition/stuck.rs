//! Readers that do not advance beyond an offset although records are sent.
//!
//! Owns: the check of these records. If they are damaged, no reader can read them from this replica, which
//! leaves the ISR. Refuses: diagnosis of a reader whose records are sound.

use super::refetches::StuckConsumer;
use super::{Partition, State};
use crate::followers::StuckFollower;
use std::fmt::Display;
use thalweg_log::{BatchCheck, PartitionLog, ReadError};
use thalweg_metadata::BrokerId;
use thalweg_record::Offset;
use tokio::time::Instant;

impl State {
    /// Notes records sent to a follower. Reports the partition if the same records are sent repeatedly.
    pub(super) fn note_sent_to_follower(
        &mut self,
        partition: &Partition,
        id: BrokerId,
        offset: Offset,
        sent_bytes: usize,
    ) {
        let followers = self.leader_mut().and_then(|leader| leader.followers.as_mut());
        if followers.is_some_and(|followers| followers.on_records_sent(id, offset, sent_bytes)) {
            partition.report_stuck_reader();
        }
    }

    /// Notes records sent to a consumer. Reports the partition if the same records are sent repeatedly.
    pub(super) fn note_sent_to_consumer(&mut self, partition: &Partition, offset: Offset, sent_bytes: usize) {
        if self.refetches.on_records_sent(offset, sent_bytes, Instant::now()) {
            partition.report_stuck_reader();
        }
    }

    fn take_stuck_follower(&mut self) -> Option<StuckFollower> {
        self.leader_mut().and_then(|leader| leader.followers.as_mut())?.take_stuck()
    }
}

impl Partition {
    fn report_stuck_reader(&self) {
        self.context.stuck_readers.report((self.topic_id, self.index));
    }

    /// Checks the records that a stuck reader fetches, if there is one. Damage is handled as usual. Blocks
    /// while reading the records, without the lock.
    pub fn check_for_stuck_readers(&self) {
        let (follower, consumer) = {
            let mut state = self.state.lock();
            (state.take_stuck_follower(), state.refetches.take_stuck())
        };
        if let Some(StuckFollower { id, offset, sent_bytes, is_new }) = follower {
            let find = PartitionLog::doubt_batches;
            let is_sound = self.check_sent(find, offset, sent_bytes, is_new, &format_args!("broker {id}"));
            // A lost connection, or a gap that the follower finally accepts, needs no attention.
            if is_sound && !is_new {
                tracing::warn!(
                    partition = ?self, follower = %id, offset = offset.0,
                    "Follower fetches the same records again and again, and they are sound here: its log has the reason"
                );
            }
        }
        if let Some(StuckConsumer { offset, sent_bytes, is_new }) = consumer {
            // Consumers may fetch again for other reasons; a second check, of headers, would slow down other
            // requests.
            self.check_sent(PartitionLog::batches_read, offset, sent_bytes, is_new, &"a consumer");
        }
    }

    /// Checks the records sent to a reader; returns true if they are sound.
    fn check_sent(
        &self,
        find: impl FnOnce(&mut PartitionLog, Offset, usize) -> Result<Option<BatchCheck>, ReadError>,
        offset: Offset,
        sent_bytes: usize,
        is_new: bool,
        reader: &dyn Display,
    ) -> bool {
        let was_damaged = self.is_damaged();
        let found = find(&mut self.state.lock().log, offset, sent_bytes);
        let checked = match found {
            Ok(Some(check)) => match check.run() {
                Err(_) if self.state.lock().log.has_outrun_check(&check) => return false,
                checked => checked,
            },
            Err(ReadError::Log(error)) => Err(error),
            Ok(None) | Err(ReadError::OutOfRange(_)) => return false,
        };
        let Err(error) = checked else { return true };
        if is_new || !was_damaged {
            tracing::error!(
                partition = ?self, %reader, offset = offset.0, %error,
                "Records from this offset on cannot be taken by their reader: they cannot be read here, or are damaged"
            );
        }
        self.note_error(&error);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing;
    use crate::partition::{FetchParameters, Isolation, Reader};
    use std::sync::Arc;
    use std::time::Duration;
    use thalweg_log::{Clock, Damage, Home, LogConfig, TopicPartition, disk::Disk};
    use thalweg_metadata::PartitionRegistration;
    use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch};

    const OTHER: BrokerId = BrokerId(2);
    const END: Offset = Offset(20);

    /// A partition with several segments, led here, and another replica.
    fn partition(dir: &std::path::Path) -> Partition {
        let config = Arc::new(LogConfig { segment_bytes: 500, ..LogConfig::default() });
        let (name, clock) = (TopicPartition::new("t", 0), Clock::manual(1_700_000_000_000));
        let home = Home::new(Disk::real(), dir.join("t-0"));
        let mut log = PartitionLog::create(home, name, None, config, clock).expect("creates");
        for _ in 0..END.0 {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, None, Some(&[b'v'; 100]), &[]).expect("fits");
            log.append_as_leader(&builder.build(), LeaderEpoch(0), Default::default()).expect("accepted");
        }
        log.set_high_watermark(END);
        let registration = PartitionRegistration {
            replicas: vec![testing::NODE, OTHER],
            ..testing::registration(testing::NODE, 1)
        };
        testing::partition_as(log, &registration)
    }

    /// Damages a record in the second batch of this segment: a follower that appends all or nothing stops
    /// before the first.
    fn damage(dir: &std::path::Path, segment: Offset) {
        let path = dir.join(format!("t-0/{:020}.log", segment.0));
        let mut bytes = std::fs::read(&path).expect("it is there");
        let at = bytes.len() * 3 / 4;
        bytes[at] ^= 4;
        std::fs::write(&path, bytes).expect("writes");
    }

    /// Fetches from an offset until the replica checks the records.
    async fn fetch(partition: &Partition, reader: Reader, offset: Offset) {
        let from = FetchParameters {
            offset,
            max_bytes: 400,
            at_least_one: true,
            current_leader_epoch: Some(LeaderEpoch(1)),
            last_fetched_epoch: None,
            reader,
            isolation: Isolation::ReadUncommitted,
            from_any_replica: false,
            reader_start: Offset::ZERO,
            first_pass: true,
        };
        for _ in 0..4 {
            let read = partition.fetch(&from).expect("headers are whole");
            assert!(read.slice.is_some_and(|slice| slice.len > 300), "two batches");
            if reader == Reader::Client {
                tokio::time::advance(Duration::from_millis(500)).await;
            }
        }
        partition.check_for_stuck_readers();
    }

    async fn check_after_fetches_of(reader: Reader) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let partition = partition(dir.path());
        let second = partition.with_log(|log| log.segment_offsets())[1];
        damage(dir.path(), second);
        fetch(&partition, reader, Offset::ZERO).await;
        assert!(!partition.is_damaged(), "the first segment is sound");
        fetch(&partition, reader, second).await;
        let damage = partition.with_log(|log| log.damage());
        assert_eq!(damage, Some(Damage::Unreadable(second)));
        let notified =
            tokio::time::timeout(Duration::from_secs(5), partition.context.damage_found.notified()).await;
        assert!(notified.is_ok(), "the broker is to deal with it at once");
    }

    #[tokio::test]
    async fn leader_checks_the_records_that_a_follower_does_not_take() {
        check_after_fetches_of(Reader::Follower { id: OTHER, broker_epoch: -1 }).await;
    }

    #[tokio::test(start_paused = true)]
    async fn replica_checks_the_records_that_a_consumer_does_not_take() {
        check_after_fetches_of(Reader::Client).await;
    }
}
