//! The watermark of messages from several partitions: the lowest time that further messages are expected to
//! have. Each partition is in order, and the partitions are not, so the watermark is the minimum over all of
//! them. Pure.
//!
//! A partition without further messages must not hold the watermark back forever. The source tells which
//! partitions it has read to the end; a partition with further messages always holds the watermark. A
//! partition at its end is idle after a stretch without a message. If message times follow the clock, the
//! clock stands for the partition: the time at which the stream last found its source empty, because until
//! then all messages were taken. A source that does not tell its ends is idle after a stretch in which it was
//! found empty.
//!
//! A stretch is time in which the stream looks at its source. A pause, in which the stream or the process
//! stood still, begins a new one: the messages of the pause come first.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::ClockReading;
use crate::message::{AssignedPartition, Provenance, SourceId};
use crate::stage::SourceWatch;

/// The watermark and the partitions that it depends on.
#[derive(Debug)]
pub struct Watermarks {
    /// Time without a message after which a partition is idle.
    idle: Duration,
    /// True if message times follow the clock, which then stands for idle partitions.
    follows_clock: bool,
    /// The partitions by source; none are known of a source that has not sent anything.
    sources: BTreeMap<SourceId, Option<Partitions>>,
    attention: Attention,
    /// The lowest time over all partitions but that of the current batch, which stays the same meanwhile.
    others: Others,
    watermark_ms: i64,
    /// The times of the last messages of partitions that joined with the state of their windows.
    joined: BTreeMap<(SourceId, u32), i64>,
}

#[derive(Debug)]
struct Partitions {
    assigned: std::sync::Arc<[AssignedPartition]>,
    has_ends: bool,
    lanes: BTreeMap<u32, Lane>,
    /// The attention's time at the last message of any partition.
    heard: Duration,
}

/// The progress of a partition.
#[derive(Clone, Copy, Debug)]
struct Lane {
    latest_ms: i64,
    is_at_end: bool,
    /// The attention's time at the last message.
    heard: Duration,
}

/// The partitions beside that of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// Some hold the watermark.
    Hold,
    /// None is waited for, or the lowest time is this.
    Lowest(Option<i64>),
}

/// The time in which the stream looks at its source.
#[derive(Debug, Default)]
struct Attention {
    looked: Option<Instant>,
    /// The total time without pauses.
    total: Duration,
    pause: Option<Pause>,
    /// The last time at which the source had no messages.
    empty: Option<ClockReading>,
    /// The last time up to which all messages were taken.
    taken: Option<ClockReading>,
}

/// A time in which the stream did not look at its source; the time before the first look is one, too.
#[derive(Debug)]
struct Pause {
    from: Instant,
    until: Instant,
    /// The attention's time.
    total: Duration,
}

impl Attention {
    /// Takes the state of the source. A longer time between two looks is a pause.
    fn watch(&mut self, source: SourceWatch, pause: Duration) {
        let looked = self.looked.replace(source.looked);
        let from = looked.unwrap_or(source.looked);
        let since = source.looked.saturating_duration_since(from);
        match looked.is_some() && since < pause {
            true => self.total += since,
            false => self.pause = Some(Pause { from, until: source.looked, total: self.total }),
        }
        let (Some(last), Some(empty)) = (&self.pause, source.empty) else { return };
        // After a pause of the process, the source looks empty before it has read the messages of the pause;
        // those from before the pause have been taken.
        let is_in_pause = empty.at > last.from && empty.at < last.until;
        if is_in_pause || self.empty.is_some_and(|before| before.at >= empty.at) {
            return;
        }
        let before = self.empty.replace(empty);
        if empty.at >= last.until + pause {
            self.taken = Some(empty);
        } else if let Some(before) = before
            && before.at <= last.from
            && empty.at >= last.until
        {
            self.taken = Some(before);
        }
    }

    /// The length of the stretch since a message.
    fn stretch(&self, heard: Duration) -> Duration {
        let resumed = self.pause.as_ref().map_or(Duration::ZERO, |pause| pause.total);
        self.total.saturating_sub(heard.max(resumed))
    }

    /// True if all messages up to a recent time were taken.
    fn is_current(&self, within: Duration) -> bool {
        let since =
            |taken: ClockReading| self.looked.map(|looked| looked.saturating_duration_since(taken.at));
        self.taken.and_then(since).is_some_and(|since| since <= within)
    }
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
            attention: Attention::default(),
            others: Others::Hold,
            watermark_ms: i64::MIN,
            joined: BTreeMap::new(),
        }
    }

    /// Adds a partition before its messages, with the time of the last one that was processed. The watermark
    /// begins again, because the partition may be behind the others.
    pub fn join(&mut self, source: SourceId, partition: u32, latest_ms: i64) {
        self.joined.insert((source, partition), latest_ms);
        if let Some(Some(known)) = self.sources.get_mut(&source) {
            known.lanes.remove(&partition);
            known.assigned = std::sync::Arc::new([]);
        }
        self.watermark_ms = i64::MIN;
    }

    /// Forgets partitions, which are read elsewhere, or again.
    pub fn leave_out(&mut self, is_left: impl Fn((SourceId, u32)) -> bool) {
        self.joined.retain(|partition, _| !is_left(*partition));
        for (source, known) in &mut self.sources {
            if known.as_ref().is_some_and(|known| known.lanes.keys().all(|lane| is_left((*source, *lane)))) {
                *known = None;
            }
            known.iter_mut().for_each(|known| known.lanes.retain(|lane, _| !is_left((*source, *lane))));
        }
    }

    /// The time of the last message of a partition.
    pub fn latest_ms(&self, (source, partition): (SourceId, u32)) -> i64 {
        let lane = self.sources.get(&source).and_then(|known| known.as_ref()?.lanes.get(&partition));
        let joined = self.joined.get(&(source, partition)).copied();
        lane.map(|lane| lane.latest_ms).max(joined).unwrap_or(i64::MIN)
    }

    /// Interval at which to call the stage while windows are open.
    pub fn interval(&self) -> Duration {
        (self.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Begins a call of the stage.
    pub fn enter(&mut self, source: SourceWatch) {
        let pause = (self.idle / 2).max(2 * self.interval());
        self.attention.watch(source, pause);
    }

    /// Takes the source's partitions from a batch, before its messages.
    pub fn assign(&mut self, provenance: &Provenance) {
        let heard = self.attention.total;
        let known = self.sources.entry(provenance.source).or_default();
        if known.as_ref().is_none_or(|known| !std::sync::Arc::ptr_eq(&known.assigned, &provenance.assigned)) {
            let (mut lanes, last_heard) =
                known.take().map_or((BTreeMap::new(), heard), |known| (known.lanes, known.heard));
            for assigned in &*provenance.assigned {
                let joined = self.joined.remove(&(provenance.source, assigned.partition));
                let fresh = Lane { latest_ms: joined.unwrap_or(i64::MIN), is_at_end: false, heard };
                let lane = lanes.entry(assigned.partition).or_insert(fresh);
                lane.is_at_end = assigned.is_at_end;
            }
            lanes.retain(|partition, _| {
                provenance.assigned.iter().any(|assigned| assigned.partition == *partition)
                    || provenance.partition == Some(*partition)
            });
            let (assigned, has_ends) = (provenance.assigned.clone(), provenance.has_ends);
            *known = Some(Partitions { assigned, has_ends, lanes, heard: last_heard });
        }
        self.others = self.lowest(provenance.partition.map(|partition| (provenance.source, partition)));
    }

    /// Takes the time of a message.
    pub fn observe(&mut self, provenance: &Provenance, message_ms: i64) {
        let Some(Some(known)) = self.sources.get_mut(&provenance.source) else { return };
        let Some(lane) = provenance.partition.and_then(|partition| known.lanes.get_mut(&partition)) else {
            return;
        };
        (lane.heard, known.heard) = (self.attention.total, self.attention.total);
        lane.latest_ms = lane.latest_ms.max(message_ms);
        if let Others::Lowest(lowest) = self.others {
            let lowest = lowest.map_or(lane.latest_ms, |lowest| lowest.min(lane.latest_ms));
            self.watermark_ms = self.watermark_ms.max(lowest);
        }
    }

    /// Takes the end of a batch.
    pub fn leave(&mut self, provenance: &Provenance) {
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
        self.advance();
    }

    /// Advances the watermark as far as the partitions allow.
    pub fn advance(&mut self) {
        if let Others::Lowest(Some(lowest)) = self.lowest(None) {
            self.watermark_ms = self.watermark_ms.max(lowest);
        }
    }

    /// The lowest time over all partitions but one. Without any active partition, the watermark stays.
    fn lowest(&self, but: Option<(SourceId, u32)>) -> Others {
        let mut lowest: Option<i64> = None;
        for (source, known) in &self.sources {
            let Some(known) = known else { return Others::Hold };
            for (partition, lane) in &known.lanes {
                if but != Some((*source, *partition))
                    && let Some(at_ms) = self.time_of(known, *lane)
                {
                    lowest = Some(lowest.map_or(at_ms, |lowest| lowest.min(at_ms)));
                }
            }
        }
        Others::Lowest(lowest)
    }

    /// The lowest time that further messages of a partition are expected to have; `None` if there are none.
    fn time_of(&self, known: &Partitions, lane: Lane) -> Option<i64> {
        let is_current = self.attention.is_current(self.idle);
        let is_at_end = match known.has_ends {
            true => lane.is_at_end,
            false => is_current && self.attention.stretch(known.heard) >= self.idle,
        };
        let is_idle = is_at_end && self.attention.stretch(lane.heard) >= self.idle;
        if self.follows_clock && is_at_end && (is_current || !is_idle) {
            let idle_ms = i64::try_from(self.idle.as_millis()).unwrap_or(i64::MAX);
            let taken = self.attention.taken.map_or(i64::MIN, |taken| taken.time_ms);
            return Some(lane.latest_ms.max(taken.saturating_sub(idle_ms)));
        }
        (!is_idle).then_some(lane.latest_ms)
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
    const SECOND: Duration = Duration::from_secs(1);

    struct Harness {
        marks: Watermarks,
        source: SourceId,
        has_ends: bool,
        watch: SourceWatch,
        start: Instant,
    }

    impl Harness {
        fn new(follows_clock: bool) -> Harness {
            let (source, start) = (SourceId::unique(), Instant::now());
            let marks = Watermarks::new(IDLE, follows_clock, [source]);
            Harness { marks, source, has_ends: true, watch: SourceWatch::new(start), start }
        }

        fn assigned(partitions: &[(u32, bool)]) -> Arc<[AssignedPartition]> {
            let all = partitions.iter();
            all.map(|(partition, is_at_end)| AssignedPartition {
                partition: *partition,
                at: None,
                is_at_end: *is_at_end,
            })
            .collect()
        }

        /// The time of day: it was 1000 s at the start.
        fn time_ms(&self) -> i64 {
            1_000_000 + self.watch.looked.duration_since(self.start).as_millis() as i64
        }

        fn batch(
            &mut self,
            assigned: &Arc<[AssignedPartition]>,
            partition: Option<u32>,
            times: &[i64],
            is_at_end: bool,
        ) -> i64 {
            let assigned = assigned.clone();
            let (source, has_ends) = (self.source, self.has_ends);
            let provenance = Provenance { source, partition, is_at_end, has_ends, assigned, revoked: None };
            self.marks.enter(self.watch);
            self.marks.assign(&provenance);
            times.iter().for_each(|time_ms| self.marks.observe(&provenance, *time_ms));
            self.marks.leave(&provenance);
            self.marks.watermark_ms()
        }

        /// Lets time pass in which the stream looks at its source.
        fn pass(&mut self, seconds: u64, is_empty: bool) -> i64 {
            for _ in 0..seconds {
                self.look(SECOND, is_empty);
            }
            self.marks.watermark_ms()
        }

        fn look(&mut self, after: Duration, is_empty: bool) {
            self.watch.looked += after;
            if is_empty {
                self.watch.empty = Some(ClockReading { at: self.watch.looked, time_ms: self.time_ms() });
            }
            self.marks.enter(self.watch);
            self.marks.advance();
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
        assert_eq!(harness.batch(&all, Some(1), &[200], true), 90);
        assert_eq!(harness.pass(60, false), 90);
        assert_eq!(harness.batch(&all, Some(0), &[300], true), 300, "partition 1 is idle");
        let fewer = Harness::assigned(&[(2, true)]);
        assert_eq!(harness.batch(&fewer, Some(2), &[400], true), 400, "the others were revoked");
    }

    #[test]
    fn a_partition_with_further_messages_holds_the_watermark_while_none_arrive() {
        for follows_clock in [false, true] {
            let mut harness = Harness::new(follows_clock);
            let all = Harness::assigned(&[(0, false), (1, false)]);
            assert_eq!(harness.batch(&all, Some(0), &[90], false), i64::MIN);
            assert_eq!(harness.batch(&all, Some(1), &[20], false), 20);
            assert_eq!(harness.pass(60, true), 20, "fetches fail meanwhile");
            assert_eq!(harness.batch(&all, Some(1), &[30], false), 30);
        }
    }

    #[test]
    fn a_source_without_ends_is_idle_once_it_was_empty_for_a_stretch() {
        let mut harness = Harness::new(false);
        harness.has_ends = false;
        let all = Harness::assigned(&[(0, false), (1, false)]);
        assert_eq!(harness.batch(&all, Some(0), &[5], false), i64::MIN);
        for time_ms in 6..20 {
            // Less than a stretch, again and again.
            assert_eq!(harness.pass(3, true), i64::MIN);
            assert_eq!(harness.batch(&all, Some(0), &[time_ms], false), i64::MIN);
        }
        assert_eq!(harness.pass(60, false), i64::MIN, "it may have messages");
        assert_eq!(harness.pass(5, true), i64::MIN, "all are idle");
        assert_eq!(harness.batch(&all, Some(1), &[3], false), 3);
    }

    #[test]
    fn time_in_which_the_stream_stands_still_makes_no_partition_idle() {
        let mut harness = Harness::new(false);
        let all = Harness::assigned(&[(0, false), (1, true)]);
        assert_eq!(harness.batch(&all, Some(0), &[5], false), i64::MIN);
        assert_eq!(harness.pass(3, false), i64::MIN);
        harness.look(3600 * SECOND, false);
        assert_eq!(harness.batch(&all, Some(0), &[6], false), i64::MIN);
        assert_eq!(harness.pass(3, false), i64::MIN, "the stretch begins again");
        assert_eq!(harness.batch(&all, Some(1), &[3], true), 3);
        assert_eq!(harness.pass(4, true), 6, "only partition 0 is not idle");
    }

    #[test]
    fn the_clock_stands_for_partitions_that_were_read_to_the_end() {
        let mut harness = Harness::new(true);
        let all = Harness::assigned(&[(0, false), (1, false)]);
        // A backlog: the clock is far ahead.
        assert_eq!(harness.batch(&all, Some(0), &[5_000], false), i64::MIN);
        assert_eq!(harness.pass(60, false), i64::MIN);
        assert_eq!(harness.batch(&all, Some(1), &[4_000], true), 4_000);
        assert_eq!(harness.pass(4, false), 5_000, "partition 1 is idle");
        assert_eq!(harness.batch(&all, Some(0), &[9_000], true), 9_000);
        assert_eq!(harness.pass(1, true), harness.time_ms() - 4_000);
        assert_eq!(harness.pass(9, true), harness.time_ms() - 4_000);
    }

    #[test]
    fn after_a_pause_the_messages_of_the_pause_come_before_the_clock() {
        let mut harness = Harness::new(true);
        let all = Harness::assigned(&[(0, false), (1, false)]);
        harness.batch(&all, Some(0), &[900_000], true);
        harness.batch(&all, Some(1), &[900_000], true);
        let before = harness.pass(10, true);
        assert_eq!(before, harness.time_ms() - 4_000);
        // A timer is due before the stream looks at its source.
        harness.marks.enter(harness.watch);
        harness.marks.advance();
        assert_eq!(harness.marks.watermark_ms(), before);
        let during = harness.time_ms() + 1000;
        harness.look(100 * SECOND, false);
        let taken = harness.batch(&all, Some(0), &[during, during + 90_000], true);
        assert!(taken <= during, "{taken}");
        // The whole process was stopped: the source looks empty before it has fetched.
        harness.look(Duration::from_millis(10), true);
        assert!(harness.marks.watermark_ms() <= during);
        assert!(harness.batch(&all, Some(1), &[during], true) <= during);
        assert_eq!(harness.pass(4, true), harness.time_ms() - 4_000);
    }

    #[test]
    fn a_source_that_looks_empty_at_the_end_of_a_pause_is_not_trusted() {
        let mut harness = Harness::new(true);
        let all = Harness::assigned(&[(0, true), (1, true)]);
        harness.batch(&all, Some(0), &[900_000], true);
        let before = harness.pass(10, true);
        // The stage is not called until the first messages arrive.
        harness.watch.looked += 100 * SECOND;
        let (at, time_ms) = (harness.watch.looked, harness.time_ms());
        harness.watch.empty = Some(ClockReading { at, time_ms });
        harness.watch.looked += Duration::from_millis(5);
        assert_eq!(harness.batch(&all, Some(0), &[before + 3000], true), before);
        harness.look(Duration::from_millis(5), true);
        assert_eq!(harness.batch(&all, Some(1), &[before + 3000], true), before + 3000);
        assert_eq!(harness.pass(4, true), harness.time_ms() - 4_000);
    }

    #[test]
    fn a_stream_with_many_pauses_closes_its_windows() {
        let mut harness = Harness::new(true);
        let all = Harness::assigned(&[(0, true)]);
        harness.batch(&all, Some(0), &[900_000], true);
        for _ in 0..10 {
            harness.look(5 * SECOND, false);
            harness.look(Duration::from_millis(1), true);
        }
        assert_eq!(harness.marks.watermark_ms(), harness.time_ms() - 9_001);
    }

    #[test]
    fn a_source_without_messages_yet_is_waited_for() {
        let (first, second) = (SourceId::unique(), SourceId::unique());
        let mut marks = Watermarks::new(IDLE, false, [first, second]);
        let mut watch = SourceWatch::new(Instant::now());
        let mut send = |source, message_ms, after| {
            watch.looked += after;
            let provenance = Provenance::single(source);
            marks.enter(watch);
            marks.assign(&provenance);
            marks.observe(&provenance, message_ms);
            marks.leave(&provenance);
            marks.watermark_ms()
        };
        assert_eq!(send(first, 9, Duration::ZERO), i64::MIN);
        assert_eq!(send(first, 10, 2 * IDLE), i64::MIN);
        assert_eq!(send(second, 3, Duration::ZERO), 3);
    }
}
