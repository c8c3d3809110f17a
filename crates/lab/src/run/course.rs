//! The course of a repetition, from the start of its workers to their last message: its end, the stop of
//! workers, and reasons for an early end.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::clock::now_us;
use super::error::Failure;
use super::fleet::RunningFleet;
use crate::evidence::Watch;
use crate::target::Cluster;
use crate::terminal::Progress;
use crate::workload::Measure;

/// Time without any record after which the repetition has stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Silence of a worker after which it is the reason of a stall, and after which the repetition ends in any
/// case.
const SILENCES_MAX: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(90));
/// Time without any record after which free disk space is checked.
const FULL_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum free space: a broker needs at least a megabyte for a new segment.
const ROOM_MIN_BYTES: u64 = 1 << 20;
/// Time without new records after which consumers have read all available records: the evidence shows if any
/// are missing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for draining a backlog, in which no more than [`STALL_TIMEOUT`] passes without its records.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(900);
/// Interval of checking brokers and progress.
const TICK: Duration = Duration::from_millis(100);

/// A repetition in progress.
pub(super) struct Course<'a> {
    pub(super) measure: Measure,
    pub(super) producers: RunningFleet,
    pub(super) consumers: RunningFleet,
    /// The observer of the replicas.
    pub(super) watch: Option<&'a Watch>,
    /// The observations: the smallest number of in-sync replicas, by time.
    pub(super) in_sync: Vec<(u64, u32)>,
    /// The data directory of the lab's brokers.
    pub(super) data_dir: Option<&'a Path>,
    /// The used share of their disk beyond which the brokers take no records.
    pub(super) disk_usage_max: f64,
    /// Number of records that existed before, counted once for each group that consumes them.
    pub(super) backlog: u64,
    /// True if consumers tell the records of the backlog from later ones.
    pub(super) reports_backlog: bool,
    /// Number of groups, each of which consumes every record.
    pub(super) groups: u64,
    /// Seconds after which consumers of a backlog are stopped, drained or not.
    pub(super) consume_s_max: Option<f64>,
    /// Reports which broker has exited.
    pub(super) died: &'a (dyn Fn() -> Option<String> + Sync),
    pub(super) progress: &'a Progress,
}

/// The state of the course.
struct CourseState {
    produced: u64,
    consumed: u64,
    /// Time of the last record.
    at: Instant,
    /// Time of the consumers' last record.
    consumed_at: Instant,
    /// Consumed records of the backlog.
    drained: u64,
    /// Time of the last of them.
    drained_at: Instant,
}

impl Course<'_> {
    /// Follows the course to its end.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = CourseState {
            produced: 0,
            consumed: 0,
            at: began,
            consumed_at: began,
            drained: 0,
            drained_at: began,
        };
        while !(self.producers.is_done() && self.consumers.is_done()) {
            let ticked = self.listen(&mut tick).await;
            // The last log lines of a dead broker explain more than a worker's error.
            if let Some(reason) = (self.died)() {
                return Err(Failure::BrokerDied(reason));
            }
            let ticked = match ticked {
                Ok(ticked) => ticked,
                Err(failure) => return Err(self.explained(failure).await),
            };
            let since_s = began.elapsed().as_secs_f64();
            self.look(&mut seen);
            match self.measure {
                Measure::Produce => self.steer_produce(&seen),
                Measure::Consume => self.steer_consume(&seen, since_s),
                Measure::Drain => {
                    let steered = self.steer_drain(&seen, since_s);
                    steered.map_err(|failure| self.silent(SILENCES_MAX.0).unwrap_or(failure))?;
                }
            }
            if ticked {
                self.look_at_replicas();
            }
            if ticked && seen.at.elapsed() > FULL_TIMEOUT {
                self.has_room()?;
            }
            if let Some(silent) = self.silent(SILENCES_MAX.1).filter(|_| ticked) {
                return Err(silent);
            }
            if ticked && seen.at.elapsed() > STALL_TIMEOUT && !self.is_receiving() {
                return Err(self.silent(SILENCES_MAX.0).unwrap_or_else(|| self.stalled(&seen)));
            }
        }
        Ok(())
    }

    /// Waits for a message or the next tick; returns true for the tick.
    async fn listen(&mut self, tick: &mut tokio::time::Interval) -> Result<bool, Failure> {
        let (role, word) = tokio::select! {
            word = self.producers.next(), if !self.producers.is_done() => (self.producers.role, word?),
            word = self.consumers.next(), if !self.consumers.is_done() => (self.consumers.role, word?),
            _ = tick.tick() => return Ok(true),
        };
        if word.is_some() {
            let of = if role == self.producers.role { &self.producers } else { &self.consumers };
            self.progress.interval(role, &of.latest());
        }
        Ok(false)
    }

    /// A worker may fail shortly before its broker is seen to have exited.
    async fn explained(&self, failure: Failure) -> Failure {
        for _ in 0..10 {
            if let Some(reason) = (self.died)() {
                return Failure::BrokerDied(reason);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        failure
    }

    fn look(&self, seen: &mut CourseState) {
        let (produced, consumed) = (self.producers.records(), self.consumers.records());
        if (produced, consumed) != (seen.produced, seen.consumed) {
            seen.at = Instant::now();
        }
        let drained = if self.reports_backlog { self.consumers.drained() } else { consumed };
        if drained != seen.drained {
            (seen.drained, seen.drained_at) = (drained, Instant::now());
        }
        if consumed != seen.consumed {
            seen.consumed_at = seen.at;
        }
        (seen.produced, seen.consumed) = (produced, consumed);
    }

    fn look_at_replicas(&mut self) {
        if let Some(least) = self.watch.and_then(Watch::latest)
            && self.in_sync.last().is_none_or(|(_, before)| *before != least)
        {
            self.in_sync.push((now_us(), least));
        }
    }

    fn steer_produce(&self, seen: &CourseState) {
        if self.producers.is_done() && !self.consumers.is_done() {
            let has_all = seen.consumed >= self.backlog + self.groups * seen.produced;
            if has_all
                || (seen.consumed_at.elapsed() > SILENCE_TIMEOUT && seen.at.elapsed() > SILENCE_TIMEOUT)
            {
                self.consumers.stop();
            }
        }
    }

    fn steer_consume(&self, seen: &CourseState, since_s: f64) {
        let has_all = seen.consumed >= self.backlog;
        let silent = seen.consumed > 0 && seen.consumed_at.elapsed() > SILENCE_TIMEOUT;
        if has_all || silent || self.consume_s_max.is_some_and(|most| since_s > most) {
            self.consumers.stop();
        }
    }

    /// Stops all workers when the backlog is drained. Its end is in their reports.
    fn steer_drain(&self, seen: &CourseState, since_s: f64) -> Result<(), Failure> {
        let left = self.backlog.saturating_sub(seen.drained);
        if left == 0 {
            self.producers.stop();
            self.consumers.stop();
            return Ok(());
        }
        let is_late = since_s > DRAIN_TIMEOUT.as_secs_f64() || seen.drained_at.elapsed() > STALL_TIMEOUT;
        if is_late || self.producers.is_done() && self.consumers.is_done() {
            return Err(Failure::NotDrained {
                backlog: self.backlog,
                left,
                waited: Duration::from_secs_f64(since_s.round()),
            });
        }
        Ok(())
    }

    /// A broker with a full disk may stop accepting without an error.
    fn has_room(&self) -> Result<(), Failure> {
        let Some(dir) = self.data_dir else { return Ok(()) };
        let Ok(space) = rustix::fs::statvfs(dir) else { return Ok(()) };
        let (free_bytes, all_bytes) = (space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize);
        let usage_max = self.disk_usage_max;
        match is_full(free_bytes, all_bytes, usage_max) {
            true => Err(Failure::DiskFull { dir: dir.to_owned(), free_bytes, all_bytes, usage_max }),
            false => Ok(()),
        }
    }

    /// The failure of a worker that was not heard for longer than this.
    fn silent(&self, longer: Duration) -> Option<Failure> {
        let silent = [&self.producers, &self.consumers].into_iter().filter_map(|fleet| fleet.silent(longer));
        let (worker, silence) = silent.max_by_key(|(_, silence)| *silence)?;
        Some(Failure::WorkerSilent { worker: worker.to_owned(), silence })
    }

    fn is_receiving(&self) -> bool {
        self.producers.is_receiving() || self.consumers.is_receiving()
    }

    fn stalled(&self, seen: &CourseState) -> Failure {
        let (what, so_far) = match self.producers.is_done() {
            false => ("acknowledged", seen.produced),
            true => ("consumed", seen.consumed),
        };
        Failure::Stalled { what, so_far, waited: STALL_TIMEOUT }
    }
}

/// The used share of a disk beyond which the brokers of a cluster take no records: that of Pulsar's bookie.
pub(super) fn disk_usage_max(cluster: &Cluster) -> f64 {
    let threshold = cluster.info.facts.get("diskUsageThreshold");
    threshold.and_then(|share| share.parse().ok()).unwrap_or(1.0)
}

fn is_full(free_bytes: u64, all_bytes: u64, usage_max: f64) -> bool {
    let used_bytes = all_bytes.saturating_sub(free_bytes);
    free_bytes < ROOM_MIN_BYTES || used_bytes as f64 > all_bytes as f64 * usage_max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_where_brokers_stop() {
        let all = 1_000_000_000_000;
        assert!(!is_full(ROOM_MIN_BYTES, all, 1.0) && is_full(ROOM_MIN_BYTES - 1, all, 1.0));
        assert!(!is_full(10_000_000_000, all, 0.99) && is_full(9_000_000_000, all, 0.99), "as by a bookie");
    }
}
