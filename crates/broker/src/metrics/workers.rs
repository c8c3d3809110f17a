//! The load of the threads that serve requests (Kafka's `KafkaRequestHandlerPool`).

use parking_lot::Mutex;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The idle share covers at least this time, and at most twice that plus one scrape interval.
const WINDOW: Duration = Duration::from_secs(30);

/// Earlier readings, for the idle share; used only by scrapes.
#[derive(Debug, Default)]
pub(super) struct WorkerReadings(Mutex<[Option<(Instant, Duration)>; 2]>);

/// The workers at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerFigures {
    /// Busy time of each worker since the start.
    pub busy: Vec<Duration>,
    /// Tasks in the global queue.
    pub queued: usize,
    /// Recent share of idle time of the workers; `None` before the second reading.
    pub idle: Option<f64>,
}

impl WorkerReadings {
    /// The workers of this runtime; empty without a runtime.
    pub fn figures(&self, now: Instant) -> WorkerFigures {
        let Ok(runtime) = Handle::try_current() else { return WorkerFigures::default() };
        let metrics = runtime.metrics();
        let busy: Vec<_> =
            (0..metrics.num_workers()).map(|at| metrics.worker_total_busy_duration(at)).collect();
        let all = busy.iter().sum();
        let idle = self.idle(now, all, busy.len());
        WorkerFigures { busy, queued: metrics.global_queue_depth(), idle }
    }

    fn idle(&self, now: Instant, busy: Duration, workers: usize) -> Option<f64> {
        let mut readings = self.0.lock();
        let begin = readings[0];
        match readings[1] {
            Some((at, _)) if now.saturating_duration_since(at) >= WINDOW => {
                *readings = [readings[1], Some((now, busy))];
            }
            Some(_) => {}
            None => *readings = [begin.or(Some((now, busy))), Some((now, busy))],
        }
        let (at, before) = begin?;
        let time =
            now.saturating_duration_since(at).as_secs_f64() * u32::try_from(workers).map_or(1.0, f64::from);
        (time > 0.0).then(|| (1.0 - busy.saturating_sub(before).as_secs_f64() / time).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_share_is_that_of_the_last_minute() {
        let (workers, start) = (WorkerReadings::default(), Instant::now());
        let at =
            |seconds, busy| workers.idle(start + Duration::from_secs(seconds), Duration::from_secs(busy), 2);
        assert_eq!(at(0, 0), None);
        // Half of the time of two workers.
        assert_eq!(at(10, 10), Some(0.5));
        assert_eq!(at(30, 30), Some(0.5));
        // Busy from now on.
        let idle = [at(40, 50), at(60, 90), at(90, 150), at(120, 210)].map(|idle| idle.expect("a share"));
        assert!(idle[0] > idle[1] && idle[3] < 0.01, "{idle:?}");
    }
}
