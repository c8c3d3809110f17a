//! Temporary topics beside the load: each is created, gets leaders, and is deleted.
//!
//! Temporary topics are created at their intended times regardless of the cluster, like records at a fixed
//! rate, so that the times show if a cluster falls behind. Each topic has one partition, with as many
//! replicas as the topics of the load.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::Cluster;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::clock::now_us;
use super::error::Failure;
use super::topics;
use crate::result::Figures;
use crate::workload::Topics;

/// Maximum number of temporary topics at a time; further topics wait.
const PRESENT_MAX: usize = 1000;

/// The creation and deletion of temporary topics, until finished or dropped.
#[derive(Debug)]
pub(super) struct TopicChurn {
    stop: watch::Sender<bool>,
    task: JoinHandle<ChurnOutcome>,
}

/// A created topic, or one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Topic {
    /// The intended time of the creation.
    due_us: u64,
    /// Time from the intended creation until the topic had leaders, or was given up.
    waited_us: u64,
    is_ready: bool,
}

/// The result of the task of a topic.
type TopicOutcome = Result<(Topic, Option<Failure>), JoinError>;

/// The outcome of the temporary topics.
#[derive(Debug, Default)]
pub(super) struct ChurnOutcome {
    topics: Vec<Topic>,
    /// Number of due topics that were not created, because too many others existed.
    not_begun: u64,
    failed: u64,
    first_failure: Option<String>,
}

impl TopicChurn {
    /// Begins at a time, in microseconds since the Unix epoch. Names begin with `prefix`. Must be called on a
    /// runtime.
    pub(super) fn start(cluster: Cluster, prefix: String, beside: &Topics, at_us: u64) -> TopicChurn {
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
        TopicChurn { stop, task }
    }

    /// Stops creating topics, and waits until the last is deleted.
    pub(super) async fn finish(mut self) -> ChurnOutcome {
        self.stop.send_replace(true);
        match (&mut self.task).await {
            Ok(passed) => passed,
            Err(failure) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Err(_) => ChurnOutcome::default(),
        }
    }
}

impl Drop for TopicChurn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ChurnOutcome {
    /// Number of topics that became ready within an interval, per second.
    pub(super) fn ready_per_s(&self, (from_us, to_us): (u64, u64)) -> f64 {
        let within = |topic: &&Topic| (from_us..to_us).contains(&(topic.due_us + topic.waited_us));
        let ready = self.topics.iter().filter(|topic| topic.is_ready).filter(within).count();
        ready as f64 * 1e6 / to_us.saturating_sub(from_us).max(1) as f64
    }

    /// Quantiles, at these shares, of the time that topics with intended creation in an interval took to get
    /// leaders. Topics that never got leaders count as slower than all others, with at least the time waited
    /// for them.
    pub(super) fn quantiles_us<const N: usize>(
        &self,
        (from_us, to_us): (u64, u64),
        shares: [f64; N],
    ) -> Option<[f64; N]> {
        let within = self.topics.iter().filter(|topic| (from_us..to_us).contains(&topic.due_us));
        let (ready, never): (Vec<Topic>, Vec<Topic>) = within.partition(|topic| topic.is_ready);
        let mut times: Vec<u64> = ready.iter().map(|topic| topic.waited_us).collect();
        times.sort_unstable();
        let slowest = times.iter().copied().chain(never.iter().map(|topic| topic.waited_us)).max()?;
        times.extend(never.iter().map(|_| slowest));
        let last = times.len() - 1;
        Some(shares.map(|share| times[((times.len() as f64 * share) as usize).min(last)] as f64))
    }

    /// Sets the figures of the topics of an interval.
    pub(super) fn set_figures(&self, figures: &mut Figures, span: (u64, u64)) {
        figures.topics_ready_per_s = Some(self.ready_per_s(span));
        let ready = self.quantiles_us(span, [0.5, 0.99]);
        (figures.topic_ready_p50_us, figures.topic_ready_p99_us) = ready.map(|[p50, p99]| (p50, p99)).unzip();
    }

    /// A note for readers of the result.
    pub(super) fn note(&self) -> Option<String> {
        let all = self.topics.len();
        let failed = self.first_failure.as_deref().map(|why| {
            format!("{} of {all} topics that were to be created and deleted failed: {why}", self.failed)
        });
        let not_begun = (self.not_begun > 0).then(|| {
            format!(
                "{} of {all} topics that were due were not begun: {PRESENT_MAX} others waited",
                self.not_begun
            )
        });
        let notes: Vec<String> = failed.into_iter().chain(not_begun).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    fn take(&mut self, ended: Option<TopicOutcome>) {
        match ended {
            Some(Ok((topic, failure))) => {
                self.topics.push(topic);
                if let Some(failure) = failure {
                    self.failed += 1;
                    self.first_failure.get_or_insert_with(|| failure.to_string());
                }
            }
            Some(Err(failure)) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
            Some(Err(_)) | None => {}
        }
    }
}

/// Begins each topic when it is due, until stopped, and waits for all.
async fn pass<F>(
    mut stopped: watch::Receiver<bool>,
    due: impl Fn(u64) -> u64,
    begin: impl Fn(u64, u64) -> F,
) -> ChurnOutcome
where
    F: Future<Output = (Topic, Option<Failure>)> + Send + 'static,
{
    let mut passed = ChurnOutcome::default();
    let mut present = JoinSet::new();
    let mut number = 0;
    loop {
        let due_us = due(number);
        let wait = Duration::from_micros(due_us.saturating_sub(now_us()));
        let has_room = present.len() < PRESENT_MAX;
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            ended = present.join_next(), if !has_room => passed.take(ended),
            // The shortest sleep takes a millisecond, in which several topics may become due.
            () = tokio::time::sleep(wait), if !wait.is_zero() => {}
            () = std::future::ready(()), if has_room && wait.is_zero() => {
                present.spawn(begin(number, due_us));
                number += 1;
            }
        }
        while let Some(ended) = present.try_join_next() {
            passed.take(Some(ended));
        }
    }
    let now_us = now_us();
    let late = (number..).map(due).take_while(|due_us| *due_us < now_us);
    let late = late.map(|due_us| Topic { due_us, waited_us: now_us - due_us, is_ready: false });
    let late: Vec<Topic> = late.collect();
    // The last topic may just have become due.
    if present.len() >= PRESENT_MAX {
        passed.not_begun = late.len() as u64;
        passed.topics.extend(late);
    }
    while let Some(ended) = present.join_next().await {
        passed.take(Some(ended));
    }
    passed
}

async fn one(cluster: Cluster, name: String, shape: Topics, due_us: u64) -> (Topic, Option<Failure>) {
    let names = [name];
    let created = topics::create(&cluster, &names, &shape).await;
    let topic = Topic { due_us, waited_us: now_us().saturating_sub(due_us), is_ready: created.is_ok() };
    let ended = match created {
        Ok(()) => topics::delete(&cluster, &names).await,
        Err(failure) => Err(failure),
    };
    (topic, ended.err())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(due_us: u64, waited_us: u64, is_ready: bool) -> Topic {
        Topic { due_us, waited_us, is_ready }
    }

    #[tokio::test]
    async fn each_begins_when_it_is_due_and_counts_from_then() {
        let (stop, stopped) = watch::channel(false);
        let at_us = now_us();
        let passing = tokio::spawn(pass(
            stopped,
            move |number| at_us + number * 20_000,
            |number, due_us| async move {
                match number {
                    2 => (topic(due_us, 3, false), Some(Failure::BrokerDied("it is gone".to_owned()))),
                    _ => (topic(due_us, 7 + number, true), None),
                }
            },
        ));
        tokio::time::sleep(Duration::from_millis(150)).await;
        stop.send_replace(true);
        let passed = passing.await.expect("no panic");
        assert!((5..=10).contains(&passed.topics.len()), "{passed:?}");
        assert_eq!(passed.topics[0], topic(at_us, 7, true));
        assert!(passed.note().expect("one failed").contains("1 of"), "{passed:?}");
        assert_eq!(passed.quantiles_us((at_us, at_us + 40_000), [0.0, 0.5, 1.0]), Some([7.0, 8.0, 8.0]));
        assert_eq!(passed.quantiles_us((0, at_us), [0.5]), None);
    }

    #[tokio::test]
    async fn those_that_are_due_and_not_begun_count() {
        let (stop, stopped) = watch::channel(false);
        let at_us = now_us();
        let (free, freed) = watch::channel(false);
        let passing = tokio::spawn(pass(
            stopped,
            move |number| at_us + number * 10,
            move |_, due_us| {
                let mut freed = freed.clone();
                async move {
                    let _ = freed.wait_for(|freed| *freed).await;
                    (topic(due_us, 50, true), None)
                }
            },
        ));
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.send_replace(true);
        tokio::time::sleep(Duration::from_millis(20)).await;
        free.send_replace(true);
        let passed = passing.await.expect("no panic");
        let ready = passed.topics.iter().filter(|topic| topic.is_ready).count();
        assert_eq!(ready, PRESENT_MAX);
        assert_eq!(passed.topics.len(), ready + passed.not_begun as usize);
        assert!(passed.not_begun > 1000, "{}", passed.not_begun);
        assert!(passed.note().expect("a note").contains("not begun"));
    }

    #[test]
    fn what_was_never_ready_is_slower_than_all_others() {
        let topics = vec![topic(0, 100, true), topic(10, 5, false), topic(20, 80, true), topic(30, 90, true)];
        let passed = ChurnOutcome { topics, ..ChurnOutcome::default() };
        assert_eq!(passed.quantiles_us((0, 40), [0.0, 0.5, 0.99]), Some([80.0, 100.0, 100.0]));
        assert_eq!(passed.ready_per_s((0, 110)), 2.0 * 1e6 / 110.0);
    }
}
