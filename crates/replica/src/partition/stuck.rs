//! Followers that do not get beyond an offset although they are sent records.
//!
//! Owns: the leader's look at these records: if they are damaged, the follower cannot take them, and the leader is to hand over.
//! Refuses: consumers, which have other reasons to fetch an offset again; the reason of a follower whose leader's records are
//! sound.

use super::{Partition, State};
use crate::leadership::StuckFollower;
use thalweg_log::ReadError;
use thalweg_metadata::BrokerId;
use thalweg_record::Offset;

impl State {
    /// A follower is sent records. Reports the partition if that happens again and again.
    pub(super) fn note_sent(
        &mut self,
        partition: &Partition,
        id: BrokerId,
        offset: Offset,
        sent_bytes: usize,
    ) {
        let followers = self.leader_mut().and_then(|leader| leader.followers.as_mut());
        if followers.is_some_and(|followers| followers.on_records_sent(id, offset, sent_bytes)) {
            partition.context.stuck_followers.report((partition.topic_id, partition.index));
        }
    }
}

impl Partition {
    /// Checks the records that a follower fetches again and again, if one does. Damage is dealt with like any. Blocks while it
    /// reads the records, without the lock.
    pub fn check_for_stuck_follower(&self) {
        let was_damaged = self.is_damaged();
        let (stuck, doubted) = {
            let mut state = self.state.lock();
            let followers = state.leader_mut().and_then(|leader| leader.followers.as_mut());
            let Some(stuck) = followers.and_then(|followers| followers.take_stuck()) else { return };
            (stuck, state.log.doubt_batches(stuck.offset, stuck.sent_bytes))
        };
        let checked = match doubted {
            Ok(Some(check)) => match check.run() {
                Err(_) if self.state.lock().log.has_outrun_check(&check) => return,
                checked => checked,
            },
            Err(ReadError::Log(error)) => Err(error),
            Ok(None) | Err(ReadError::OutOfRange(_)) => return,
        };
        let StuckFollower { id, offset, is_new, .. } = stuck;
        match checked {
            // A connection that was lost, or a gap that the follower takes at last, needs no attention.
            Ok(()) if is_new => {}
            Ok(()) => tracing::warn!(
                partition = ?self, follower = %id, offset = offset.0,
                "Follower fetches the same records again and again, and they are sound here: its log has the reason"
            ),
            Err(error) => {
                if is_new || !was_damaged {
                    tracing::error!(
                        partition = ?self, follower = %id, offset = offset.0, %error,
                        "Follower cannot take the records from this offset on: they cannot be read here, or are damaged"
                    );
                }
                self.note_error(&error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing;
    use crate::partition::{FetchFrom, Isolation, Reader};
    use std::sync::Arc;
    use thalweg_log::{Clock, Damage, Home, LogConfig, PartitionLog, TopicPartition, disk::Disk};
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

    /// Fetches from an offset as often as makes a leader check the records.
    fn fetch(partition: &Partition, reader: Reader, offset: Offset) {
        let from = FetchFrom {
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
        }
        partition.check_for_stuck_follower();
    }

    #[tokio::test]
    async fn leader_checks_the_records_that_a_follower_does_not_take() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let partition = partition(dir.path());
        let second = partition.with_log(|log| log.segment_offsets())[1];
        let path = dir.path().join(format!("t-0/{:020}.log", second.0));
        let mut bytes = std::fs::read(&path).expect("it is there");
        // In a record of the second batch: a follower that takes all or nothing stops before the first.
        let at = bytes.len() * 3 / 4;
        bytes[at] ^= 4;
        std::fs::write(&path, bytes).expect("writes");
        let follower = Reader::Follower { id: OTHER, broker_epoch: -1 };
        fetch(&partition, follower, Offset::ZERO);
        fetch(&partition, Reader::Client, second);
        assert!(!partition.is_damaged(), "consumers have their own reasons, and the other segment is sound");
        fetch(&partition, follower, second);
        let damage = partition.with_log(|log| log.damage());
        assert_eq!(damage, Some(Damage::Unreadable(second)));
        let told = std::time::Duration::from_secs(5);
        let told = tokio::time::timeout(told, partition.context.damage_found.notified()).await;
        assert!(told.is_ok(), "the broker is to deal with it at once");
    }
}
