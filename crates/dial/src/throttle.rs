//! Throttling by quotas (KIP-219): an answer may carry the time for which the broker will not read from the
//! connection. The timeout of a request during this time begins after it. Otherwise a throttled client would
//! close its connection and send again requests that the broker already has.

use std::any::Any;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_wire::request::{FetchResponse, ProduceResponse};
use tokio::time::{Instant, timeout_at};

/// The first versions whose throttled answers are sent at once; in earlier versions the broker delays the
/// answer itself.
const PRODUCE_FROM: i16 = 6;
const FETCH_FROM: i16 = 8;

/// Time until which a broker does not read from a connection.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Records the throttle time in an answer of this version.
    pub fn note(&self, response: &dyn Any, version: i16) {
        let ms = if let Some(produced) = response.downcast_ref::<ProduceResponse>() {
            if version >= PRODUCE_FROM { produced.throttle_time_ms } else { 0 }
        } else if let Some(fetched) = response.downcast_ref::<FetchResponse>() {
            if version >= FETCH_FROM { fetched.throttle_time_ms } else { 0 }
        } else {
            0
        };
        if let Ok(ms @ 1..) = u64::try_from(ms) {
            let until = Instant::now() + Duration::from_millis(ms);
            let mut latest = self.0.lock();
            *latest = (*latest).max(Some(until));
        }
    }

    /// The end of the throttling; `None` if the connection is not throttled now.
    pub fn until(&self) -> Option<Instant> {
        self.0.lock().filter(|until| *until > Instant::now())
    }

    /// The time from which the timeout of a request sent at `sent_at` counts.
    pub fn counts_from(&self, sent_at: Instant) -> Instant {
        self.0.lock().map_or(sent_at, |until| until.max(sent_at))
    }

    /// The answer; `None` if it takes longer than `timeout` plus the throttle time.
    pub async fn within<T>(&self, timeout: Duration, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = std::pin::pin!(answer);
        let mut deadline = Instant::now() + timeout;
        loop {
            if let Ok(answer) = timeout_at(deadline, answer.as_mut()).await {
                return Some(answer);
            }
            let throttled = (*self.0.lock()).map(|until| until + timeout);
            deadline = throttled.filter(|throttled| *throttled > deadline)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_timeout_begins_after_the_throttle() {
        let throttle = Throttle::default();
        let waits = async |seconds: u32| {
            let answer = throttle.within(SECOND, tokio::time::sleep(seconds * SECOND * 9 / 10));
            answer.await.is_some()
        };
        assert_eq!((waits(1).await, waits(2).await), (true, false));
        let throttled = ProduceResponse { throttle_time_ms: 2000, ..ProduceResponse::default() };
        throttle.note(&throttled, PRODUCE_FROM - 1);
        assert!(!waits(2).await, "the broker has waited itself");
        throttle.note(&throttled, PRODUCE_FROM);
        assert!(waits(3).await);
        assert!(!waits(2).await, "it is over");
        throttle.note(&FetchResponse { throttle_time_ms: 2000, ..FetchResponse::default() }, FETCH_FROM);
        assert!(!waits(4).await);
        // An answer that arrives meanwhile may extend the throttling.
        let late = async {
            tokio::time::sleep(SECOND / 2).await;
            throttle.note(&throttled, PRODUCE_FROM);
        };
        assert!(tokio::join!(waits(3), late).0);
    }
}
