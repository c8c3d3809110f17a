//! The watermark of messages from several partitions: the lowest time that further messages are expected to
//! have. Each partition is in order, and the partitions are not, so the watermark is the minimum over all of
//! them. Pure.
//!
//! A partition without further messages must not hold the watermark back forever. The source tells which
//! partitions it has read to the end. Such a partition is idle once no message of it has arrived for a while;
//! so is every partition once the stream has waited for its source for as long, because the source then has
//! nothing to give. Time in which the stream itself stood still does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::message::{AssignedPartition, Provenance, SourceId};

/// The time of a stage when it is called.
#[derive(Clone, Copy, Debug)]
pub struct StageTime {
    pub now: Instant,
    /// The time of day, in milliseconds since 1970.
    pub time_ms: i64,
    /// The total time that the stream has waited for its source.
    pub starved: Duration,
}

/// The watermark and the partitions that it depends on.
#[derive(Debug)]
pub struct Watermarks {
    /// Time without a message after which a partition is idle.
    idle: Duration,
    /// True if message times follow the clock, which then stands for idle partitions.
    follows_clock: bool,
    /// The partitions by source; none are known of a source that has not sent anything.
    sources: BTreeMap<SourceId, Option<Partitions>>,
    /// The total time in which the stage was called regularly.
    active: Duration,
    called: Option<Instant>,
    watermark_ms: i64,
}

#[derive(Debug)]
struct Partitions {
    assigned: std::sync::Arc<[AssignedPartition]>,
    lanes: BTreeMap<u32, Lane>,
}

/// The progress of a partition.
#[derive(Clone, Copy, Debug)]
struct Lane {
    latest_ms: i64,
    is_at_end: bool,
    /// The values of both clocks at the last message.
    active: Duration,
    starved: Duration,
}

impl Watermarks {
    /// The watermark of messages from these sources, and from others once their messages arrive.
    pub fn new(
        idle: Duration,
        follows_clock: bool,
        sources: impl IntoIterator<Item = SourceId>,
    ) -> Watermarks {
        Watermarks {
            idle,
            follows_clock,
            sources: sources.into_iter().map(|source| (source, None)).collect(),
            active: Duration::ZERO,
            called: None,
            watermark_ms: i64::MIN,
        }
    }

    /// Interval at which to call the stage while windows are open.
    pub fn interval(&self) -> Duration {
        (self.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Begins a call of the stage.
    pub fn enter(&mut self, time: StageTime) {
        let since = self.called.map_or(Duration::ZERO, |called| time.now.saturating_duration_since(called));
        // A longer pause means that the stream stood still, and the partitions with it.
        self.active += since.min(2 * self.interval());
        self.called = Some(time.now);
    }

    /// Takes the source's partitions from a batch, before its messages.
    pub fn assign(&mut self, provenance: &Provenance, time: StageTime) {
        let known = self.sources.entry(provenance.source).or_default();
        if let Some(known) = known
            && std::sync::Arc::ptr_eq(&known.assigned, &provenance.assigned)
        {
            return;
        }
        let (active, starved) = (self.active, time.starved);
        let mut lanes = known.take().map(|known| known.lanes).unwrap_or_default();
        for assigned in &*provenance.assigned {
            let lane = lanes.entry(assigned.partition).or_insert(Lane {
                latest_ms: i64::MIN,
                is_at_end: false,
                active,
                starved,
            });
            lane.is_at_end |= assigned.is_at_end;
        }
        lanes.retain(|partition, _| {
            provenance.assigned.iter().any(|assigned| assigned.partition == *partition)
                || provenance.partition == Some(*partition)
        });
        *known = Some(Partitions { assigned: provenance.assigned.clone(), lanes });
    }

    /// Takes the time of a message.
    pub fn observe(&mut self, provenance: &Provenance, message_ms: i64, time: StageTime) {
        let Some(Some(known)) = self.sources.get_mut(&provenance.source) else { return };
        let Some(lane) = provenance.partition.and_then(|partition| known.lanes.get_mut(&partition)) else {
            return;
        };
        (lane.active, lane.starved) = (self.active, time.starved);
        let before_ms = lane.latest_ms;
        lane.latest_ms = before_ms.max(message_ms);
        // Only a partition that holds the watermark can advance it.
        if message_ms > before_ms && before_ms <= self.watermark_ms {
            self.advance(time);
        }
    }

    /// Takes the end of a batch.
    pub fn leave(&mut self, provenance: &Provenance, time: StageTime) {
        if let Some(Some(known)) = self.sources.get_mut(&provenance.source)
            && let Some(partition) = provenance.partition
        {
            if let Some(lane) = known.lanes.get_mut(&partition) {
                lane.is_at_end = provenance.is_at_end;
            }
            // The last messages of a partition that is not read further.
            if known.assigned.iter().all(|assigned| assigned.partition != partition) {
                known.lanes.remove(&partition);
            }
        }
        self.advance(time);
    }

    /// Advances the watermark as far as the partitions allow.
    pub fn advance(&mut self, time: StageTime) {
        let clock_ms = time.time_ms.saturating_sub(i64::try_from(self.idle.as_millis()).unwrap_or(i64::MAX));
        let mut lowest = None;
        for known in self.sources.values() {
            let Some(known) = known else { return };
            for lane in known.lanes.values() {
                let is_starved = time.starved.saturating_sub(lane.starved) >= self.idle;
                let at_ms = if self.follows_clock {
                    match lane.is_at_end || is_starved {
                        true => lane.latest_ms.max(clock_ms),
                        false => lane.latest_ms,
                    }
                } else if is_starved
                    || (lane.is_at_end && self.active.saturating_sub(lane.active) >= self.idle)
                {
                    continue;
                } else {
                    lane.latest_ms
                };
                lowest = Some(lowest.map_or(at_ms, |lowest: i64| lowest.min(at_ms)));
            }
        }
        // Without any active partition, the watermark stays.
        self.watermark_ms = self.watermark_ms.max(lowest.unwrap_or(i64::MIN));
    }

    /// The watermark, in milliseconds since 1970.
    pub fn watermark_ms(&self) -> i64 {
        self.watermark_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const IDLE: Duration = Duration::from_secs(4);

    struct Harness {
        marks: Watermarks,
        source: SourceId,
        start: Instant,
        time: StageTime,
    }

    impl Harness {
        fn new(follows_clock: bool) -> Harness {
            let (source, start) = (SourceId::unique(), Instant::now());
            let time = StageTime { now: start, time_ms: 1_000_000, starved: Duration::ZERO };
            Harness { marks: Watermarks::new(IDLE, follows_clock, [source]), source, start, time }
        }

        fn assigned(partitions: &[(u32, bool)]) -> Arc<[AssignedPartition]> {
            let all = partitions.iter();
            all.map(|(partition, is_at_end)| AssignedPartition {
                partition: *partition,
                is_at_end: *is_at_end,
            })
            .collect()
        }

        fn batch(
            &mut self,
            assigned: &Arc<[AssignedPartition]>,
            partition: Option<u32>,
            times: &[i64],
            is_at_end: bool,
        ) -> i64 {
            let assigned = assigned.clone();
            let provenance = Provenance { source: self.source, partition, is_at_end, assigned };
            self.marks.enter(self.time);
            self.marks.assign(&provenance, self.time);
            times.iter().for_each(|time_ms| self.marks.observe(&provenance, *time_ms, self.time));
            self.marks.leave(&provenance, self.time);
            self.marks.watermark_ms()
        }

        /// Lets time pass in which the stage is called regularly.
        fn pass(&mut self, seconds: u64, is_starved: bool) -> i64 {
            for _ in 0..seconds {
                self.time.now += Duration::from_secs(1);
                self.time.time_ms += 1000;
                self.time.starved += Duration::from_secs(if is_starved { 1 } else { 0 });
                self.marks.enter(self.time);
            }
            self.marks.advance(self.time);
            self.marks.watermark_ms()
        }
    }

    #[test]
    fn the_slowest_partition_holds_the_watermark_before_its_first_message() {
        let mut harness = Harness::new(false);
        assert_eq!(harness.marks.watermark_ms(), i64::MIN);
        let all = Harness::assigned(&[(0, false), (1, false), (2, true)]);
        assert_eq!(harness.batch(&all, None, &[], false), i64::MIN);
        assert_eq!(harness.batch(&all, Some(0), &[5, 90], false), i64::MIN);
        assert_eq!(harness.batch(&all, Some(1), &[7, 20], false), i64::MIN, "partition 2 may yet send");
        assert_eq!(harness.pass(5, false), 20, "it has nothing to send");
        assert_eq!(harness.batch(&all, Some(1), &[100], false), 90);
        // A partition that is not at its end is not idle while the source has messages.
        assert_eq!(harness.batch(&all, Some(1), &[200], true), 90);
        assert_eq!(harness.pass(60, false), 90);
        assert_eq!(harness.batch(&all, Some(0), &[300], true), 300, "partition 1 is idle");
        let fewer = Harness::assigned(&[(2, true)]);
        assert_eq!(harness.batch(&fewer, Some(2), &[400], true), 400, "the others were revoked");
    }

    #[test]
    fn time_in_which_the_stream_stands_still_makes_no_partition_idle() {
        let mut harness = Harness::new(false);
        let all = Harness::assigned(&[(0, false), (1, true)]);
        assert_eq!(harness.batch(&all, Some(0), &[5], false), i64::MIN);
        harness.time.now += Duration::from_secs(3600);
        assert_eq!(harness.batch(&all, Some(0), &[6], false), i64::MIN);
        assert_eq!(harness.batch(&all, Some(1), &[3], true), 3);
        assert!(harness.time.now > harness.start);
        assert_eq!(harness.pass(4, true), 3, "all are idle");
        assert_eq!(harness.batch(&all, Some(0), &[7], false), 7);
    }

    #[test]
    fn the_clock_stands_for_partitions_that_were_read_to_the_end() {
        let mut harness = Harness::new(true);
        let all = Harness::assigned(&[(0, false), (1, false)]);
        // A backlog: the clock is far ahead.
        assert_eq!(harness.batch(&all, Some(0), &[5_000], false), i64::MIN);
        assert_eq!(harness.pass(60, false), i64::MIN);
        assert_eq!(harness.batch(&all, Some(1), &[4_000], true), 5_000);
        assert_eq!(harness.batch(&all, Some(0), &[9_000], true), harness.time.time_ms - 4_000);
    }

    #[test]
    fn a_source_without_messages_yet_is_waited_for() {
        let (first, second) = (SourceId::unique(), SourceId::unique());
        let mut marks = Watermarks::new(IDLE, false, [first, second]);
        let mut time = StageTime { now: Instant::now(), time_ms: 0, starved: Duration::ZERO };
        let mut send = |source, message_ms, starved| {
            time.starved += starved;
            let provenance = Provenance::single(source);
            marks.enter(time);
            marks.assign(&provenance, time);
            marks.observe(&provenance, message_ms, time);
            marks.leave(&provenance, time);
            marks.watermark_ms()
        };
        assert_eq!(send(first, 9, Duration::ZERO), i64::MIN);
        assert_eq!(send(first, 10, 2 * IDLE), i64::MIN);
        assert_eq!(send(second, 3, Duration::ZERO), 3);
    }
}
