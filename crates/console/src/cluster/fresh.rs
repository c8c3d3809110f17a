//! A cached reading, refreshed by one task at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Minimum age of a reading, in multiples of its read time: reading takes at most 1/20 of the time.
const COST: u32 = 20;
/// Maximum age of a reading by its read time: a longer read is spent mostly waiting for a broker, whose
/// verdict must not outlive the fault.
const COST_AGE_MAX: Duration = Duration::from_secs(30);

/// A cached reading. Concurrent callers wait for the refresh.
pub struct CachedReading<T>(Mutex<Option<Reading<T>>>);

struct Reading<T> {
    value: Arc<T>,
    at: Instant,
    took: Duration,
}

impl<T> Default for CachedReading<T> {
    fn default() -> CachedReading<T> {
        CachedReading(Mutex::new(None))
    }
}

impl<T> CachedReading<T> {
    /// Returns the reading, refreshed if older than `age`. Failures are not cached.
    pub async fn get<E, F: Future<Output = Result<T, E>>>(
        &self,
        age: Duration,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E> {
        self.refresh(|took| age.max((took * COST).min(COST_AGE_MAX)), read).await
    }

    /// Returns the reading, refreshed if older than `age`, however long it took: of a reading whose time is
    /// spent waiting.
    pub async fn get_within<E, F: Future<Output = Result<T, E>>>(
        &self,
        age: Duration,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E> {
        self.refresh(|_| age, read).await
    }

    async fn refresh<E, F: Future<Output = Result<T, E>>>(
        &self,
        age: impl Fn(Duration) -> Duration,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<T>, E> {
        let mut kept = self.0.lock().await;
        if let Some(reading) = &*kept
            && reading.at.elapsed() < age(reading.took)
        {
            return Ok(Arc::clone(&reading.value));
        }
        let begun = Instant::now();
        let value = Arc::new(read().await?);
        let at = Instant::now();
        *kept = Some(Reading { value: Arc::clone(&value), at, took: at - begun });
        Ok(value)
    }

    /// Drops the reading.
    pub async fn clear(&self) {
        *self.0.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[tokio::test(start_paused = true)]
    async fn a_reading_is_kept_for_its_age_or_its_cost() {
        let fresh = CachedReading::default();
        let read = |value: u32, took: u64| {
            let fresh = &fresh;
            async move {
                let read = || async {
                    tokio::time::sleep(Duration::from_millis(took)).await;
                    Ok::<u32, Infallible>(value)
                };
                let Ok(value) = fresh.get(Duration::from_secs(2), read).await;
                *value
            }
        };
        assert_eq!(read(1, 10).await, 1);
        tokio::time::advance(Duration::from_millis(1999)).await;
        assert_eq!(read(2, 10).await, 1);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(read(3, 1000).await, 3);
        tokio::time::advance(Duration::from_millis(19_900)).await;
        assert_eq!(read(4, 10).await, 3, "it took a second to read");
        fresh.clear().await;
        assert_eq!(read(5, 15_000).await, 5);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(read(6, 10).await, 6, "a read of 15 s waits for a broker");
    }
}
