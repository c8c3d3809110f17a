//! A timer with a precision of some microseconds. The runtime's own timers tick once per millisecond, which
//! would dominate short latencies.

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use thalweg_places::{DescriptorPart, DescriptorPermit};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// The kernel timers of the process: a quarter of its descriptors at most.
static KERNEL_TIMERS: DescriptorPart = DescriptorPart::new(4, 4096);

/// A kernel timer (timerfd); the runtime's timer if there is none, or beside many others.
#[derive(Debug)]
pub struct Timer(Option<KernelTimer>);

#[derive(Debug)]
struct KernelTimer {
    fd: AsyncFd<rustix::fd::OwnedFd>,
    _permit: DescriptorPermit,
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl Timer {
    /// Makes a timer, in a runtime with I/O.
    pub fn new() -> Timer {
        Timer(KernelTimer::new())
    }

    /// Waits until this time. May be cancelled, and called again.
    pub async fn wait(&mut self, until: Instant) {
        // The runtime's timer is late by up to a millisecond, and is the only one that knows simulated time.
        tokio::select! {
            biased;
            () = self.wait_precisely(until) => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    /// Waits for the kernel's timer; for ever without one.
    async fn wait_precisely(&self, until: Instant) {
        match &self.0 {
            Some(timer) => timer.wait(until).await,
            None => std::future::pending().await,
        }
    }
}

impl KernelTimer {
    fn new() -> Option<KernelTimer> {
        let permit = KERNEL_TIMERS.take()?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
        #[expect(
            deprecated,
            reason = "it is unsound for what may change its descriptor; an OwnedFd does not, and the successor is unsafe"
        )]
        let fd = AsyncFd::new(fd).ok()?;
        Some(KernelTimer { fd, _permit: permit })
    }

    /// Waits until this time; for ever if the timer fails.
    async fn wait(&self, until: Instant) {
        let fd = &self.fd;
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
                return std::future::pending().await;
            }
            let Ok(mut ready) = fd.readable().await else { return std::future::pending().await };
            let mut expirations = [0; 8];
            // Fired or spurious: the loop checks the clock.
            let _ = rustix::io::read(fd, &mut expirations);
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// One test, because the number of kernel timers is that of the process.
    #[tokio::test]
    async fn it_is_finer_than_a_millisecond_and_their_number_is_bounded() {
        let mut timers: Vec<Timer> = (0..KERNEL_TIMERS.permits() + 2).map(|_| Timer::new()).collect();
        let last = timers.last_mut().expect("there are some");
        assert!(last.0.is_none());
        last.wait(Instant::now() + Duration::from_millis(2)).await;
        drop(timers);
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

    #[tokio::test(start_paused = true)]
    async fn simulated_time_is_followed() {
        let (mut timer, began) = (Timer::new(), Instant::now());
        timer.wait(began + Duration::from_secs(3600)).await;
        assert!(began.elapsed() >= Duration::from_secs(3600));
    }

    #[tokio::test]
    async fn a_wait_that_was_cancelled_does_not_end_the_next() {
        let mut timer = Timer::new();
        let soon = Instant::now() + Duration::from_millis(2);
        tokio::select! {
            biased;
            () = timer.wait(soon) => unreachable!("the other is ready"),
            () = std::future::ready(()) => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let later = Instant::now() + Duration::from_millis(30);
        timer.wait(later).await;
        assert!(Instant::now() >= later);
    }
}
