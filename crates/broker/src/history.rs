//! The samples of the last hour, for the console: one task reads counters that exist already, and records
//! them (`thalweg_history`). Requests do nothing for it.
//!
//! A broker samples what it knows itself: the traffic of partitions here, its request times, the groups that
//! it coordinates and its disks; and from the image, the state of all partitions of the cluster. The samples
//! take at most 1/[`SHARE`] of the time, so that a larger broker has fewer.

mod changes;
mod lags;
mod times;
mod traffic;

use crate::broker::Broker;
use crate::metrics::LagSources;
use changes::Changes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thalweg_history::{EventKind, Figure, Figures, GroupSample, History, Round, SharedHistory};
use times::RequestTimes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use traffic::TopicTraffic;

/// Samples take at most one part in this many of the time.
const SHARE: u32 = 200;
/// A sample that is late by more than half of the interval and this time is after a gap: until then, the
/// machine may just be busy.
const LATE: Duration = Duration::from_secs(1);

/// Starts the samples of a broker with a console. The task ends when the set is dropped.
pub(crate) fn start(
    broker: &Arc<Broker>,
    lag_sources: &Arc<LagSources>,
    tasks: &mut JoinSet<()>,
) -> Option<SharedHistory> {
    let config = broker.config();
    let interval = config.console.history_interval;
    if interval.is_zero() || !config.console.enabled || config.http.as_listener().is_none() {
        return None;
    }
    let history = Arc::new(Mutex::new(History::new(interval)));
    let sampler = Sampler {
        broker: Arc::clone(broker),
        lag_sources: Arc::clone(lag_sources),
        history: Arc::clone(&history),
        interval,
        pause: interval,
        last: None,
        traffic: TopicTraffic::default(),
        times: RequestTimes::of(&broker.requests),
        changes: Changes::default(),
    };
    tasks.spawn(run(sampler));
    Some(history)
}

/// The task of the samples, with what the sample before has left.
struct Sampler {
    broker: Arc<Broker>,
    lag_sources: Arc<LagSources>,
    history: SharedHistory,
    interval: Duration,
    /// The time until the next sample.
    pause: Duration,
    /// The time of the last sample, and the clock at that time.
    last: Option<(Instant, i64)>,
    traffic: TopicTraffic,
    times: RequestTimes,
    changes: Changes,
}

async fn run(mut sampler: Sampler) {
    loop {
        let disk = sampler.broker.log_dirs.disk().clone();
        // Thousands of partitions take milliseconds, and a volume that does not answer blocks.
        let sampled = disk.spawn(move || {
            sampler.sample();
            sampler
        });
        match sampled.await {
            Ok(next) => sampler = next,
            Err(error) => {
                tracing::error!(%error, "Stopped the samples for the console's last hour");
                return;
            }
        }
        tokio::time::sleep(sampler.pause).await;
    }
}

/// The time from one sample to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// There was no sample before.
    First,
    /// So much time passed.
    Regular(Duration),
    /// More time passed than planned.
    Gap(Duration),
}

impl Span {
    /// `pause` is the planned time. The monotonic clock stands still while the machine is suspended, so that
    /// the wall clock counts, too.
    fn between(last: Option<(Instant, i64)>, now: (Instant, i64), pause: Duration) -> Span {
        let Some((at, at_ms)) = last else { return Span::First };
        let elapsed = now.0.saturating_duration_since(at);
        let by_wall_clock = Duration::from_millis(u64::try_from(now.1.saturating_sub(at_ms)).unwrap_or(0));
        let longest = elapsed.max(by_wall_clock);
        if longest > pause + pause / 2 + LATE { Span::Gap(longest) } else { Span::Regular(elapsed) }
    }

    fn regular_ms(self) -> Option<u32> {
        match self {
            Span::Regular(span) => u32::try_from(span.as_millis()).ok().filter(|ms| *ms > 0),
            Span::First | Span::Gap(_) => None,
        }
    }
}

impl Sampler {
    fn sample(&mut self) {
        let (begun, at_ms) = (Instant::now(), self.broker.clock.now_ms());
        let span = Span::between(self.last.replace((begun, at_ms)), (begun, at_ms), self.pause);
        let (broker, image) = (Arc::clone(&self.broker), self.broker.image());
        let mut events = Vec::new();
        match span {
            Span::First => events.push(EventKind::Started(broker.node_id.0)),
            Span::Gap(time) => {
                events.push(EventKind::NotSampled(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
            }
            Span::Regular(_) => {}
        }
        let mut figures = Figures::default();
        self.times.read(&broker.requests, &mut figures);
        self.changes.read(&broker, &image, &mut figures, &mut events);
        let log_bytes = self.traffic.read(&broker.partitions);
        figures.set(Figure::LogBytes, Some(log_bytes));
        let lags = lags::read(&broker, &self.lag_sources, &image);
        figures.set(Figure::UnknownLags, Some(lags.iter().filter(|(_, lag)| lag.is_none()).count() as u64));
        let groups: Vec<GroupSample<'_>> =
            lags.iter().map(|(group, lag)| GroupSample { group: group.as_deref(), lag: *lag }).collect();
        let topics = self.traffic.samples(&self.changes.leader_changes);
        let cost = begun.elapsed();
        self.pause = self.interval.max(cost * SHARE);
        let span_ms = span.regular_ms();
        let mut history = self.history.lock();
        history.record(&Round { at_ms, span_ms, cost, topics: &topics, groups: &groups, figures });
        events.into_iter().for_each(|event| history.note(at_ms, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_late_sample_is_after_a_gap() {
        let begun = Instant::now();
        let after = |ms: u64, wall_ms: i64| {
            let now = (begun + Duration::from_millis(ms), 1_000 + wall_ms);
            Span::between(Some((begun, 1_000)), now, PAUSE)
        };
        let ms = Duration::from_millis;
        assert_eq!(Span::between(None, (begun, 0), PAUSE), Span::First);
        assert_eq!(after(10_020, 10_020), Span::Regular(ms(10_020)));
        assert_eq!(after(15_900, 15_900), Span::Regular(ms(15_900)), "the machine is busy");
        assert_eq!(after(17_000, 17_000), Span::Gap(ms(17_000)), "the process was stopped");
        assert_eq!(after(10_020, 3_610_020), Span::Gap(ms(3_610_020)), "the machine was suspended");
        assert_eq!(after(10_020, -50_000), Span::Regular(ms(10_020)), "the clock was set back");
        assert_eq!((after(10_020, 10_020).regular_ms(), Span::First.regular_ms()), (Some(10_020), None));
    }
}
