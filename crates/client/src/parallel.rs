//! Tasks at the same time, one for each broker or request, within a limit.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum number of tasks at the same time: a large cluster must not cost hundreds of connections at once.
const AT_ONCE: usize = 16;

/// Maximum number of tasks at the same time that do not end.
const OVERDUE_MAX: usize = 8 * AT_ONCE;

/// Runs tasks, at most `AT_ONCE` of them at the same time. Returns the results in the order of the tasks.
pub async fn in_parallel<F>(tasks: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    run(tasks, None).await
}

/// Runs tasks like [`in_parallel`], but when none has ended for `patience`, later ones begin beside the
/// running ones: peers that do not answer delay those that do by a small part of their time limit.
pub async fn in_parallel_with_patience<F>(tasks: Vec<F>, patience: Duration) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    run(tasks, Some(patience)).await
}

async fn run<F>(tasks: Vec<F>, patience: Option<Duration>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let (mut waiting, mut running) = (tasks.into_iter().enumerate(), JoinSet::new());
    let mut results = BTreeMap::new();
    // The tasks that no longer take a place.
    let mut overdue = 0;
    loop {
        while running.len() < AT_ONCE + overdue
            && let Some((number, task)) = waiting.next()
        {
            running.spawn(async move { (number, task.await) });
        }
        let patience = patience.filter(|_| waiting.len() > 0 && overdue < OVERDUE_MAX);
        let ended = match patience {
            Some(patience) => timeout(patience, running.join_next()).await,
            None => Ok(running.join_next().await),
        };
        match ended {
            Ok(Some(ended)) => {
                let (number, result) = ended.expect("a task ends without a panic");
                results.insert(number, result);
                overdue = overdue.min(running.len());
            }
            Ok(None) => return results.into_values().collect(),
            Err(_) => overdue = running.len().min(OVERDUE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_run_at_the_same_time_within_the_limit() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let task = |number: u64| async move {
            MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1000 - number)).await;
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            number * 2
        };
        let begun = Instant::now();
        let results = in_parallel((0..40).map(task).collect()).await;
        assert_eq!(results, (0..40).map(|number| number * 2).collect::<Vec<_>>());
        assert_eq!((MOST.load(Ordering::SeqCst), begun.elapsed().as_secs()), (16, 2));
        assert_eq!(in_parallel(Vec::<std::future::Ready<()>>::new()).await, []);
    }
    #[tokio::test(start_paused = true)]
    async fn tasks_that_do_not_end_delay_others_by_patience_only() {
        let (patience, limit) = (Duration::from_millis(500), Duration::from_secs(5));
        let begun = Instant::now();
        let task = move |number: u64| async move {
            if number < 40 {
                tokio::time::sleep(limit).await;
            }
            begun.elapsed()
        };
        let ended = in_parallel_with_patience((0..50).map(task).collect(), patience).await;
        assert!(ended[40..].iter().all(|at| *at <= Duration::from_secs(1)), "{ended:?}");
        assert_eq!(begun.elapsed(), Duration::from_secs(6), "the last silent ones began after a second");
    }
}
