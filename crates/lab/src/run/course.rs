//! The course of one repetition, from the start of its workers to the last word of each: when it is over, when the workers
//! are told to stop, and what ends it early.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::clock::now_us;
use super::error::Failure;
use super::fleet::Listening;
use crate::evidence::Watch;
use crate::terminal::Progress;
use crate::workload::Measure;

/// Without a single record for so long, nothing goes on.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// After so long without one, the room for more is looked at.
const FULL_TIMEOUT: Duration = Duration::from_secs(3);
/// A broker needs a new segment's first megabyte at least.
const ROOM_MIN_BYTES: u64 = 1 << 20;
/// Consumers that get nothing more for so long have all there is, or will not get it: the evidence tells.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a backlog to go away.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(900);
/// How often brokers and progress are looked after.
const TICK: Duration = Duration::from_millis(100);
/// A backlog of less than this part of what it was is gone: what is left is on its way.
const DRAINED: f64 = 0.005;

/// One repetition that runs.
pub(super) struct Course<'a> {
    pub(super) measure: Measure,
    pub(super) producers: Listening,
    pub(super) consumers: Listening,
    /// Who looks at the replicas meanwhile.
    pub(super) watch: Option<&'a Watch>,
    /// What was seen of them: the least number in sync, from each moment on.
    pub(super) in_sync: Vec<(u64, u32)>,
    /// Where brokers of the lab have their data.
    pub(super) data_dir: Option<&'a Path>,
    /// Records that were there before.
    pub(super) backlog: u64,
    /// Consumers of a backlog are stopped then, gone or not.
    pub(super) consume_s_max: Option<f64>,
    /// Tells which broker ended.
    pub(super) died: &'a (dyn Fn() -> Option<String> + Sync),
    pub(super) progress: &'a Progress,
}

/// What the watch over a course remembers.
struct Seen {
    produced: u64,
    consumed: u64,
    /// When the last record was seen.
    at: Instant,
    /// When the consumers had their last record.
    consumed_at: Instant,
    /// The backlog that was left, and when, since the start.
    left: (f64, f64),
}

impl Course<'_> {
    /// Goes through it. Gives the seconds until a backlog was gone, where one was drained.
    pub(super) async fn run(&mut self) -> Result<Option<f64>, Failure> {
        let began = Instant::now();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let backlog = self.backlog as f64;
        let mut seen = Seen { produced: 0, consumed: 0, at: began, consumed_at: began, left: (backlog, 0.0) };
        let mut drained = None;
        while !(self.producers.is_done() && self.consumers.is_done()) {
            let ticked = self.listen(&mut tick).await;
            // What a worker says of a broker that ended is worth less than the broker's own last words.
            if let Some(reason) = (self.died)() {
                return Err(Failure::BrokerDied(reason));
            }
            let ticked = match ticked {
                Ok(ticked) => ticked,
                Err(failure) => return Err(self.explained(failure).await),
            };
            let since_s = began.elapsed().as_secs_f64();
            let news = self.look(&mut seen);
            match self.measure {
                Measure::Produce => self.steer_produce(&seen),
                Measure::Consume => self.steer_consume(&seen, since_s),
                Measure::Drain if drained.is_none() && news => {
                    drained = self.steer_drain(&mut seen, since_s)?;
                }
                Measure::Drain => {}
            }
            if ticked {
                self.look_at_replicas();
            }
            if ticked && seen.at.elapsed() > FULL_TIMEOUT {
                self.has_room()?;
            }
            if ticked && seen.at.elapsed() > STALL_TIMEOUT {
                return Err(self.stalled(&seen));
            }
        }
        Ok(drained)
    }

    /// Waits for a word or the next tick; whether it was the tick.
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

    /// A worker may fail a moment before its broker is seen to have ended.
    async fn explained(&self, failure: Failure) -> Failure {
        for _ in 0..10 {
            if let Some(reason) = (self.died)() {
                return Failure::BrokerDied(reason);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        failure
    }

    /// Takes notice of what was done; whether there is anything new.
    fn look(&self, seen: &mut Seen) -> bool {
        let (produced, consumed) = (self.producers.records(), self.consumers.records());
        let news = (produced, consumed) != (seen.produced, seen.consumed);
        if news {
            seen.at = Instant::now();
        }
        if consumed != seen.consumed {
            seen.consumed_at = seen.at;
        }
        (seen.produced, seen.consumed) = (produced, consumed);
        news
    }

    fn look_at_replicas(&mut self) {
        if let Some(least) = self.watch.and_then(Watch::latest)
            && self.in_sync.last().is_none_or(|(_, before)| *before != least)
        {
            self.in_sync.push((now_us(), least));
        }
    }

    fn steer_produce(&self, seen: &Seen) {
        if self.producers.is_done() && !self.consumers.is_done() {
            let has_all = seen.consumed >= self.backlog + seen.produced;
            if has_all
                || (seen.consumed_at.elapsed() > SILENCE_TIMEOUT && seen.at.elapsed() > SILENCE_TIMEOUT)
            {
                self.consumers.stop();
            }
        }
    }

    fn steer_consume(&self, seen: &Seen, since_s: f64) {
        let has_all = seen.consumed >= self.backlog;
        let silent = seen.consumed > 0 && seen.consumed_at.elapsed() > SILENCE_TIMEOUT;
        if has_all || silent || self.consume_s_max.is_some_and(|most| since_s > most) {
            self.consumers.stop();
        }
    }

    /// Looks at the backlog, and stops all when it is gone. Gives the moment, between two looks by a straight line.
    fn steer_drain(&self, seen: &mut Seen, since_s: f64) -> Result<Option<f64>, Failure> {
        let left = (self.backlog + seen.produced).saturating_sub(seen.consumed);
        let gone = self.backlog as f64 * DRAINED;
        let (before, before_s) = std::mem::replace(&mut seen.left, (left as f64, since_s));
        if seen.consumed > 0 && left as f64 <= gone {
            self.producers.stop();
            self.consumers.stop();
            let part = (before - gone) / (before - left as f64).max(1.0);
            return Ok(Some(before_s + (since_s - before_s) * part.clamp(0.0, 1.0)));
        }
        if since_s > DRAIN_TIMEOUT.as_secs_f64() || self.producers.is_done() && self.consumers.is_done() {
            return Err(Failure::NotDrained {
                backlog: self.backlog,
                left,
                waited: Duration::from_secs_f64(since_s.round()),
            });
        }
        Ok(None)
    }

    /// A broker whose disk is full may take no more, and say nothing.
    fn has_room(&self) -> Result<(), Failure> {
        let Some(dir) = self.data_dir else { return Ok(()) };
        let Ok(space) = rustix::fs::statvfs(dir) else { return Ok(()) };
        let (free_bytes, all_bytes) = (space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize);
        match free_bytes < ROOM_MIN_BYTES {
            true => Err(Failure::DiskFull { dir: dir.to_owned(), free_bytes, all_bytes }),
            false => Ok(()),
        }
    }

    fn stalled(&self, seen: &Seen) -> Failure {
        let (what, so_far) = match self.producers.is_done() {
            false => ("acknowledged", seen.produced),
            true => ("consumed", seen.consumed),
        };
        Failure::Stalled { what, so_far, waited: STALL_TIMEOUT }
    }
}
