//! Tasks at the same time, one for each broker or request, within a limit.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

/// Maximum number of tasks at the same time: a large cluster must not cost hundreds of connections at once.
const AT_ONCE: usize = 16;

/// Runs tasks, at most `AT_ONCE` of them at the same time. Returns the results in the order of the tasks.
pub async fn in_parallel<F>(tasks: Vec<F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let (mut waiting, mut running) = (tasks.into_iter().enumerate(), JoinSet::new());
    let mut results = BTreeMap::new();
    loop {
        while running.len() < AT_ONCE
            && let Some((number, task)) = waiting.next()
        {
            running.spawn(async move { (number, task.await) });
        }
        match running.join_next().await {
            Some(ended) => {
                let (number, result) = ended.expect("a task ends without a panic");
                results.insert(number, result);
            }
            None => return results.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
