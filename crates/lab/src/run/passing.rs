//! Topics that come and go beside the load: each is created, has leaders, and is deleted.
//!
//! They are created at their intended times whatever the cluster does, as records are at a fixed rate, so that a cluster that falls
//! behind shows it in the times. Each has one partition, with as many replicas as the topics of the load.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::Cluster;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::clock::now_us;
use super::error::Failure;
use super::topics;
use crate::workload::Topics;

/// Topics that exist at the same time; further ones wait.
const PRESENT_MAX: usize = 1000;

/// Topics that come and go, until this is finished or dropped.
#[derive(Debug)]
pub(super) struct Passing {
    stop: watch::Sender<bool>,
    task: JoinHandle<Passed>,
}

/// A topic that came and went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ready {
    /// When it should have been created.
    due_us: u64,
    /// How long it took from then until it had leaders.
    took_us: u64,
}

/// How the task of a topic ended.
type Ended = Result<Result<Ready, Failure>, JoinError>;

/// What became of them.
#[derive(Debug, Default)]
pub(super) struct Passed {
    ready: Vec<Ready>,
    failed: u64,
    first_failure: Option<String>,
}

impl Passing {
    /// Begins at a time, in microseconds since the Unix epoch. Names begin with `prefix`. Must be called on a runtime.
    pub(super) fn start(cluster: Cluster, prefix: String, beside: &Topics, at_us: u64) -> Passing {
        let (stop, stopped) = watch::channel(false);
        let interval_us = 1_000_000 / u64::from(beside.created_per_s.max(1));
        let shape = Topics {
            count: 1,
            partitions: 1,
            replication_factor: beside.replication_factor,
            created_per_s: 0,
            properties: BTreeMap::new(),
        };
        let task = tokio::spawn(async move {
            let due = |number: u64| at_us + number * interval_us;
            pass(stopped, due, move |number, due_us| {
                one(cluster.clone(), format!("{prefix}{number}"), shape.clone(), due_us)
            })
            .await
        });
        Passing { stop, task }
    }

    /// Creates no more, and waits until the last is deleted.
    pub(super) async fn finish(mut self) -> Passed {
        self.stop.send_replace(true);
        match (&mut self.task).await {
            Ok(passed) => passed,
            Err(failure) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Err(_) => Passed::default(),
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Passed {
    /// How long topics took that should have been created within an interval: these shares of them at most.
    pub(super) fn quantiles_us<const N: usize>(
        &self,
        (from_us, to_us): (u64, u64),
        shares: [f64; N],
    ) -> Option<[f64; N]> {
        let within = self.ready.iter().filter(|ready| (from_us..to_us).contains(&ready.due_us));
        let mut times: Vec<u64> = within.map(|ready| ready.took_us).collect();
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        Some(shares.map(|share| times[((times.len() as f64 * share) as usize).min(last)] as f64))
    }

    /// What readers of the result must know.
    pub(super) fn note(&self) -> Option<String> {
        let all = self.ready.len() as u64 + self.failed;
        let why = self.first_failure.as_deref()?;
        Some(format!("{} of {all} topics that were to be created and deleted failed: {why}", self.failed))
    }

    fn take(&mut self, ended: Option<Ended>) {
        match ended {
            Some(Ok(Ok(ready))) => self.ready.push(ready),
            Some(Ok(Err(failure))) => {
                self.failed += 1;
                self.first_failure.get_or_insert_with(|| failure.to_string());
            }
            Some(Err(failure)) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Some(Err(_)) | None => {}
        }
    }
}

/// Begins one after the other when each is due, until told to stop, and waits for all.
async fn pass<F>(
    mut stopped: watch::Receiver<bool>,
    due: impl Fn(u64) -> u64,
    begin: impl Fn(u64, u64) -> F,
) -> Passed
where
    F: Future<Output = Result<Ready, Failure>> + Send + 'static,
{
    let mut passed = Passed::default();
    let mut present = JoinSet::new();
    for number in 0.. {
        let due_us = due(number);
        let wait = Duration::from_micros(due_us.saturating_sub(now_us()));
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            () = tokio::time::sleep(wait) => {}
        }
        while let Some(ended) = present.try_join_next() {
            passed.take(Some(ended));
        }
        if present.len() >= PRESENT_MAX {
            passed.take(present.join_next().await);
        }
        present.spawn(begin(number, due_us));
    }
    while let Some(ended) = present.join_next().await {
        passed.take(Some(ended));
    }
    passed
}

async fn one(cluster: Cluster, name: String, shape: Topics, due_us: u64) -> Result<Ready, Failure> {
    let names = [name];
    topics::create(&cluster, &names, &shape).await?;
    let took_us = now_us().saturating_sub(due_us);
    topics::delete(&cluster, &names).await?;
    Ok(Ready { due_us, took_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_begins_when_it_is_due_and_counts_from_then() {
        let (stop, stopped) = watch::channel(false);
        let at_us = now_us();
        let passing = tokio::spawn(pass(
            stopped,
            move |number| at_us + number * 20_000,
            |number, due_us| async move {
                match number {
                    2 => Err(Failure::BrokerDied("it is gone".to_owned())),
                    _ => Ok(Ready { due_us, took_us: 7 + number }),
                }
            },
        ));
        tokio::time::sleep(Duration::from_millis(150)).await;
        stop.send_replace(true);
        let passed = passing.await.expect("no panic");
        assert!((4..=9).contains(&passed.ready.len()), "{passed:?}");
        assert_eq!(passed.ready[0], Ready { due_us: at_us, took_us: 7 });
        assert!(passed.note().expect("one failed").contains("1 of"), "{passed:?}");
        assert_eq!(passed.quantiles_us((at_us, at_us + 40_000), [0.0, 0.5, 1.0]), Some([7.0, 8.0, 8.0]));
        assert_eq!(passed.quantiles_us((0, at_us), [0.5]), None);
    }
}
