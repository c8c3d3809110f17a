//! The pace of a client: sends at intended times, or as soon as possible.
//!
//! In an open loop the intended times are fixed before the run: a delayed client sends overdue records at
//! once, each with its original intended time.

use std::time::Duration;

use thalweg_timer::Timer;
use tokio::time::Instant;

use crate::pacer::{PAUSE_MIN, Pacer};

/// Without a rate, the clock is read once per this many records: an error of a microsecond at ten million per
/// second.
pub(super) const RECORDS_PER_CLOCK: u64 = 16;
/// Maximum wake-ups per second of a thread for its clients. If more records are due, its clients pause
/// longer: each then sends several together.
const WAKES_PER_S_MAX: f64 = 50_000.0;

/// The pace of a client.
#[derive(Debug)]
pub(super) enum Pace {
    /// As fast as possible.
    Maximum,
    /// At intended times.
    OpenLoop { pacer: Pacer, timer: Timer, pause_min: Duration },
}

/// The action for the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceAction {
    /// Send the record with this intended time.
    Send(Instant),
    /// Wait until this time.
    Wait(Instant),
}

impl Pace {
    /// The pace of a client among several of a thread. `records_per_s` is the client's own rate. Clients of
    /// equal rate are staggered by `phase`, a fraction of the record interval.
    pub(super) fn new(records_per_s: Option<f64>, start: Instant, phase: f64, of_thread: u32) -> Pace {
        match records_per_s {
            None => Pace::Maximum,
            Some(rate) => {
                let start = start + Duration::from_secs_f64((phase / rate).clamp(0.0, 3600.0));
                let clients = f64::from(of_thread.max(1));
                let is_too_much = rate * clients > WAKES_PER_S_MAX;
                let shared = if is_too_much { clients / WAKES_PER_S_MAX } else { 0.0 };
                let pause_min = PAUSE_MIN.max(Duration::from_secs_f64(shared));
                Pace::OpenLoop { pacer: Pacer::new(rate, start), timer: Timer::new(), pause_min }
            }
        }
    }

    /// The action for record `n`. `now` is the last reading of the clock, which is refreshed if necessary.
    #[inline]
    pub(super) fn next(&self, n: u64, now: &mut Instant) -> PaceAction {
        match self {
            Pace::Maximum => {
                if n.is_multiple_of(RECORDS_PER_CLOCK) {
                    *now = Instant::now();
                }
                PaceAction::Send(*now)
            }
            Pace::OpenLoop { pacer, pause_min, .. } => {
                let due = pacer.due(n);
                if due <= *now {
                    return PaceAction::Send(due);
                }
                *now = Instant::now();
                if due <= *now { PaceAction::Send(due) } else { PaceAction::Wait(due.max(*now + *pause_min)) }
            }
        }
    }

    /// Waits until this time.
    pub(super) async fn wait(&mut self, until: Instant) {
        match self {
            Pace::Maximum => {}
            Pace::OpenLoop { timer, .. } => timer.wait(until).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pace with the runtime's clock, which tests can pause.
    fn open_loop(rate: f64, start: Instant) -> Pace {
        Pace::OpenLoop { pacer: Pacer::new(rate, start), timer: Timer::new(), pause_min: PAUSE_MIN }
    }

    /// Sends until `end`; the client is delayed by `hold` before record `held`. Returns intended and actual
    /// times.
    async fn run(mut pace: Pace, end: Instant, held: u64, hold: Duration) -> Vec<(Instant, Instant)> {
        let (mut n, mut now) = (0, Instant::now());
        let mut sent = Vec::new();
        loop {
            match pace.next(n, &mut now) {
                PaceAction::Wait(until) => pace.wait(until).await,
                PaceAction::Send(intended) if intended >= end => return sent,
                PaceAction::Send(intended) => {
                    if n == held {
                        tokio::time::sleep(hold).await;
                    }
                    sent.push((intended, Instant::now()));
                    n += 1;
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_held_up_moves_no_intended_time() {
        let start = Instant::now();
        let end = start + Duration::from_secs(2);
        let sent = run(open_loop(100.0, start), end, 50, Duration::from_millis(700)).await;
        assert_eq!(sent.len(), 200);
        for (n, (intended, at)) in sent.iter().enumerate() {
            let due = start + Duration::from_millis(10 * n as u64);
            assert_eq!(*intended, due, "record {n}");
            let late = at.duration_since(due);
            match n {
                // Records after the delayed one are late by the rest of the 700 ms.
                50..120 => assert_eq!(late, Duration::from_millis(700 - 10 * (n as u64 - 50)), "record {n}"),
                _ => assert!(late <= Duration::from_millis(1), "record {n}: {late:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn records_closer_than_the_least_pause_go_together_at_their_own_times() {
        let start = Instant::now();
        let sent =
            run(open_loop(1e6, start), start + Duration::from_millis(5), u64::MAX, Duration::ZERO).await;
        assert_eq!(sent.len(), 5000);
        assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 == Duration::from_micros(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_of_a_thread_pause_longer_only_where_it_would_wake_too_often() {
        let pause = |rate, of_thread| match Pace::new(Some(rate), Instant::now(), 0.0, of_thread) {
            Pace::OpenLoop { pause_min, .. } => pause_min,
            Pace::Maximum => unreachable!("a rate was given"),
        };
        assert_eq!(pause(1e6, 1), PAUSE_MIN);
        // 20,000 and 50,000 records per second in total: each at its own time.
        assert_eq!(pause(40.0, 500), PAUSE_MIN);
        assert_eq!(pause(1000.0, 50), PAUSE_MIN);
        // A million: 20 for each wake-up of a client.
        assert_eq!(pause(20_000.0, 50), Duration::from_millis(1));
    }
}
