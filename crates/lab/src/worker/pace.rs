//! The pace of a client: sends at intended times, or as soon as possible.
//!
//! In an open loop the intended times are fixed before the run: a delayed client sends overdue records at
//! once, each with its original intended time.

use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::pacer::Pacer;

/// Without a rate, the clock is read once per this many records: an error of a microsecond at ten million per
/// second.
pub(super) const RECORDS_PER_CLOCK: u64 = 16;
/// The minimum pause of a client: records due within it are sent together.
const PAUSE_MIN: Duration = Duration::from_micros(50);
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

/// A timer with a precision of some microseconds. The runtime's own timers tick once per millisecond, which
/// would dominate short latencies.
#[derive(Debug)]
pub(super) struct Timer(Option<AsyncFd<rustix::fd::OwnedFd>>);

impl Timer {
    /// A kernel timer; the runtime's timer if there is none, or if the runtime's time is simulated.
    fn new() -> Timer {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let made = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).ok();
        #[expect(
            deprecated,
            reason = "it is unsound for what may change its descriptor; an OwnedFd does not, and the successor is unsafe"
        )]
        let registered = made.and_then(|fd| AsyncFd::new(fd).ok());
        Timer(registered)
    }

    async fn wait(&mut self, until: Instant) {
        let Some(fd) = &self.0 else { return tokio::time::sleep_until(until).await };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let value = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            if rustix::time::timerfd_settime(fd, TimerfdTimerFlags::empty(), &once).is_err() {
                return tokio::time::sleep_until(until).await;
            }
            let Ok(mut ready) = fd.readable().await else { return tokio::time::sleep_until(until).await };
            let mut expirations = [0; 8];
            // Fired or spurious: the loop checks the clock.
            let _ = rustix::io::read(fd, &mut expirations);
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pace with the runtime's clock, which tests can pause.
    fn open_loop(rate: f64, start: Instant) -> Pace {
        Pace::OpenLoop { pacer: Pacer::new(rate, start), timer: Timer(None), pause_min: PAUSE_MIN }
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

    #[tokio::test]
    async fn the_kernels_timer_is_finer_than_a_millisecond() {
        let mut timer = Timer::new();
        assert!(timer.0.is_some(), "timerfd is there on Linux");
        // A busy machine delays single timers, and sometimes most of them.
        let mut medians = Vec::new();
        for _ in 0..20 {
            let mut late = Vec::new();
            for _ in 0..20 {
                let until = Instant::now() + Duration::from_micros(300);
                timer.wait(until).await;
                late.push(Instant::now().duration_since(until));
            }
            late.sort_unstable();
            if late[10] < Duration::from_micros(700) {
                return;
            }
            medians.push(late[10]);
        }
        panic!("{medians:?}");
    }
}
