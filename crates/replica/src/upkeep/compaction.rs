//! Compaction in the background (Kafka's `LogCleaner`): plans under the partition's lock, works without it,
//! and installs the result under the lock again. At most `log.cleaner.threads` logs are compacted at once,
//! and their maps of keys together stay within `log.cleaner.dedupe.buffer.size`. The total I/O of compaction
//! respects `log.cleaner.io.max.bytes.per.second`.
//!
//! The order is Kafka's: of the logs with enough to compact, the one with the largest dirty share is next.
//! Logs with records older than `max.compaction.lag.ms` come before all others, which Kafka does not promise.
//! Settings are read again before each choice and each step, so changes apply at once.

#[cfg(test)]
mod tests;
mod throttle;

use super::Upkeep;
use super::cleaner::Cleaner;
use crate::partition::Partition;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_config::CleanerSettings;
use thalweg_hash::HashMap;
use thalweg_log::{
    CompactionError, CompactionJob, CompactionOutcome, CompactionStep, LogError, PartitionLog,
};
use thalweg_metadata::TopicIdPartition;
use throttle::IoThrottle;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Reasons why a log cannot be compacted: unreadable batches, or keys that need more memory than available.
const CORRUPT: &str = "corrupt";
const TOO_MANY_KEYS: &str = "too_many_keys";

/// Compacts logs continuously, as long as it is polled.
pub async fn run(upkeep: Arc<Upkeep>) {
    if !upkeep.settings().cleaner.enable {
        return;
    }
    let throttle = Arc::new(IoThrottle::new(Instant::now()));
    let mut settings = upkeep.settings().cleaner.clone();
    let mut uncleanable = UncleanableLogs::default();
    let mut waiting = VecDeque::new();
    let mut under_way: JoinSet<CompactionEnd> = JoinSet::new();
    let mut next_survey = Instant::now() + settings.backoff;
    loop {
        let current = upkeep.settings().cleaner.clone();
        if current != settings {
            // More memory may now suffice for a log that needed it.
            uncleanable.clear();
            upkeep.cleaner.hopes_again();
            settings = current;
        }
        while under_way.len() < settings.threads.max(1)
            && let Some(partition) = waiting.pop_front()
        {
            under_way.spawn(compact(Arc::clone(&upkeep), Arc::clone(&throttle), partition));
        }
        tokio::select! {
            biased;
            Some(done) = under_way.join_next(), if !under_way.is_empty() => match done {
                Ok(CompactionEnd::Compacted) if waiting.is_empty() => next_survey = Instant::now(),
                Ok(CompactionEnd::Uncleanable(id, given_up)) => drop(uncleanable.insert(id, given_up)),
                Ok(CompactionEnd::Compacted | CompactionEnd::Nothing) => {}
                Err(error) => tracing::error!(%error, "Compaction panicked, log is unchanged"),
            },
            () = tokio::time::sleep_until(next_survey) => {
                waiting = dirtiest_first(&upkeep, &mut uncleanable).await;
                next_survey = Instant::now() + settings.backoff;
            }
        }
    }
}

/// Partitions that cannot be compacted (Kafka's uncleanable partitions): logged once, and skipped until their
/// damage is repaired, the broker restarts or the settings of compaction change.
type UncleanableLogs = HashMap<TopicIdPartition, GivenUp>;

/// A log that cannot be compacted.
#[derive(Debug, PartialEq, Eq)]
struct GivenUp {
    topic: Arc<str>,
    /// True if the reason is damage, as of the moment when it was found. The damage may be repaired right
    /// after.
    is_damaged: bool,
}

/// The outcome of a compaction.
enum CompactionEnd {
    Compacted,
    /// Nothing was left to compact, or the compaction failed and is retried.
    Nothing,
    Uncleanable(TopicIdPartition, GivenUp),
}

fn id(partition: &Partition) -> TopicIdPartition {
    (partition.topic_id, partition.index)
}

/// The partitions that need compaction, dirtiest first.
async fn dirtiest_first(upkeep: &Arc<Upkeep>, uncleanable: &mut UncleanableLogs) -> VecDeque<Arc<Partition>> {
    let (surveyed, known) = (Arc::clone(upkeep), std::mem::take(uncleanable));
    let survey = upkeep.log_dirs.disk().spawn(move || {
        let mut known = known;
        let now_ms = surveyed.clock.now_ms();
        let mut found = Vec::new();
        let all = surveyed.partitions.all();
        forget_mended(&mut known, &all, &surveyed.cleaner);
        for partition in all {
            let key = id(&partition);
            if partition.is_moving() || known.contains_key(&key) {
                continue;
            }
            match planned(&partition, |log| log.dirtiness(now_ms)) {
                Ok(Some(dirtiness)) => found.push((dirtiness, partition)),
                Ok(None) => {}
                Err(given_up) => {
                    known.insert(key, given_up);
                    surveyed.cleaner.gave_up(&partition.topic, partition.index, CORRUPT);
                }
            }
        }
        let max_ratio = found.iter().map(|(dirtiness, _)| dirtiness.ratio).fold(0.0, f64::max);
        surveyed.cleaner.surveyed(found.len(), max_ratio);
        found.sort_by_key(|(dirtiness, _)| std::cmp::Reverse(*dirtiness));
        (found.into_iter().map(|(_, partition)| partition).collect(), known)
    });
    match survey.await {
        Ok((found, known)) => {
            *uncleanable = known;
            found
        }
        Err(error) => {
            tracing::error!(%error, "Selecting logs to compact panicked");
            VecDeque::new()
        }
    }
}

/// Forgets repaired and removed logs.
fn forget_mended(known: &mut UncleanableLogs, all: &[Arc<Partition>], cleaner: &Cleaner) {
    let there: HashMap<TopicIdPartition, &Arc<Partition>> =
        all.iter().map(|partition| (id(partition), partition)).collect();
    known.retain(|key, GivenUp { topic, is_damaged }| {
        let is_left = there.get(key).is_some_and(|partition| !*is_damaged || partition.is_damaged());
        if !is_left {
            cleaner.forgets(topic, key.1);
        }
        is_left
    });
}

/// The result of a plan. Damage is noted under the same lock: the log may be repaired later. An error means
/// that the log should not be retried.
fn planned<T>(
    partition: &Partition,
    plan: impl FnOnce(&mut PartitionLog) -> Result<Option<T>, LogError>,
) -> Result<Option<T>, GivenUp> {
    let was_damaged = partition.is_damaged();
    let planned = partition.with_log(|log| {
        plan(log).map_err(|error| {
            log.note_error(&error);
            (error, log.damage().is_some())
        })
    });
    if planned.is_err() || !was_damaged {
        partition.report_damage();
    }
    let (error, is_damaged) = match planned {
        Ok(planned) => return Ok(planned),
        Err(failed) => failed,
    };
    tracing::error!(?partition, %error, "Failed to plan a compaction");
    match error {
        LogError::Corrupt { .. } => Err(GivenUp { topic: Arc::clone(&partition.topic), is_damaged }),
        _ => Ok(None),
    }
}

/// Compacts one log, then applies retention, which had to wait.
async fn compact(upkeep: Arc<Upkeep>, throttle: Arc<IoThrottle>, partition: Arc<Partition>) -> CompactionEnd {
    let done = match pass(&upkeep, &throttle, &partition).await {
        Ok(true) => CompactionEnd::Compacted,
        Ok(false) => CompactionEnd::Nothing,
        Err(given_up) => CompactionEnd::Uncleanable(id(&partition), given_up),
    };
    let (disk, now_ms) = (upkeep.log_dirs.disk().clone(), upkeep.clock.now_ms());
    let retained = disk.spawn(move || super::delete_old_segments_of(&partition, now_ms));
    if let Err(error) = retained.await {
        tracing::error!(%error, "Deleting old segments after a compaction panicked");
    }
    done
}

/// Plans a pass, runs its steps, and installs the outcome. Returns true if the outcome was installed. An
/// error means that the log should not be retried.
async fn pass(upkeep: &Upkeep, throttle: &IoThrottle, partition: &Arc<Partition>) -> Result<bool, GivenUp> {
    // A panic ends this task, and is reported at the join.
    const NO_PANIC: &str = "work on the disk does not panic";
    let disk = upkeep.log_dirs.disk();
    let (planned, settings) = (Arc::clone(partition), upkeep.settings().cleaner.clone());
    let now_ms = upkeep.clock.now_ms();
    let planned = disk.spawn(move || plan(&planned, &settings, now_ms)).await.expect(NO_PANIC);
    let planned = planned.inspect_err(|_| upkeep.gave_up(partition, CORRUPT))?;
    let Some(job) = planned else { return Ok(false) };
    let mut work = (job.begin(), job);
    let outcome = loop {
        let stepped = Arc::clone(partition);
        let step = disk.spawn(move || {
            // A cut or a move of the log makes the rest of the work useless.
            let is_current = !stepped.is_moving() && stepped.with_log(|log| log.is_current(&work.1));
            let step = is_current.then(|| work.0.step(&work.1));
            (work, step)
        });
        let (back, step) = step.await.expect(NO_PANIC);
        work = back;
        match step {
            Some(Ok(CompactionStep::Moved { bytes })) => {
                throttle.record(bytes);
                while let Some(wait) = throttle.wait(rate(upkeep), Instant::now()) {
                    tokio::time::sleep(wait).await;
                }
            }
            Some(Ok(CompactionStep::Done(outcome))) => break Some(Ok(outcome)),
            Some(Err(error)) => break Some(Err(error)),
            None => break None,
        }
    };
    let (pass, job) = work;
    drop(pass);
    let bytes = match &outcome {
        Some(Ok(outcome)) => (outcome.stats.bytes_before, outcome.stats.bytes_after),
        _ => (0, 0),
    };
    let reason = match &outcome {
        Some(Err(CompactionError::TooManyKeys { .. })) => TOO_MANY_KEYS,
        _ => CORRUPT,
    };
    let ended = Arc::clone(partition);
    let ended = disk.spawn(move || end(&ended, &job, outcome)).await.expect(NO_PANIC);
    if let Ok(true) = ended {
        upkeep.cleaner.compacted(bytes.0, bytes.1);
    }
    ended.inspect_err(|_| upkeep.gave_up(partition, reason))
}

impl Upkeep {
    fn gave_up(&self, partition: &Partition, reason: &'static str) {
        self.cleaner.gave_up(&partition.topic, partition.index, reason);
    }
}

fn rate(upkeep: &Upkeep) -> f64 {
    upkeep.settings().cleaner.io_bytes_per_second
}

fn plan(
    partition: &Partition,
    settings: &CleanerSettings,
    now_ms: i64,
) -> Result<Option<CompactionJob>, GivenUp> {
    if partition.is_moving() {
        return Ok(None);
    }
    let job = planned(partition, |log| log.plan_compaction(now_ms))?;
    Ok(job.map(|mut job| {
        job.dedupe_buffer_bytes = settings.dedupe_buffer_bytes / settings.threads.max(1);
        job
    }))
}

/// Installs the outcome of a pass, or removes its files if the log changed meanwhile.
fn end(
    partition: &Partition,
    job: &CompactionJob,
    outcome: Option<Result<CompactionOutcome, CompactionError>>,
) -> Result<bool, GivenUp> {
    match outcome {
        Some(Ok(outcome)) => return Ok(take_over(partition, job, outcome)),
        Some(Err(error @ (CompactionError::Corrupt { .. } | CompactionError::TooManyKeys { .. }))) => {
            job.discard();
            let Some(is_damaged) = note_outcome(partition, job, &error) else {
                tracing::debug!(?partition, %error, "Abandoned a compaction of a log that was truncated");
                return Ok(false);
            };
            let until = if is_damaged { "the damage is mended" } else { "the next start" };
            tracing::error!(?partition, %error, "Log cannot be compacted and is skipped until {until}");
            return Err(GivenUp { topic: Arc::clone(&partition.topic), is_damaged });
        }
        Some(Err(error)) => {
            tracing::error!(?partition, %error, "Compaction failed, log is unchanged")
        }
        None => {
            tracing::debug!(
                ?partition,
                "Abandoned a compaction of a log that was truncated, moved or deleted"
            )
        }
    }
    job.discard();
    Ok(false)
}

/// Notes why a log cannot be compacted. Returns true for damage; `None` if the log may be sound, because a
/// segment that was cut during the read looks torn.
fn note_outcome(partition: &Partition, job: &CompactionJob, error: &CompactionError) -> Option<bool> {
    let CompactionError::Corrupt { segment, fault } = error else { return Some(false) };
    let noted = partition.with_log(|log| {
        let is_current = log.is_current(job);
        is_current.then(|| {
            log.note_error(&LogError::Corrupt { segment: *segment, fault: fault.clone() });
            log.damage().is_some()
        })
    });
    partition.report_damage();
    noted
}

/// Renames under the lock, and syncs without it.
fn take_over(partition: &Partition, job: &CompactionJob, outcome: CompactionOutcome) -> bool {
    let finished = partition.with_log(|log| {
        // A copy started meanwhile would miss the removed tombstones.
        if partition.is_moving() { Ok(None) } else { log.finish_compaction(job, outcome) }
    });
    let completed = match finished {
        Ok(Some(mut swap)) => {
            let synced = swap.sync();
            let completed = partition.with_log(|log| log.complete_compaction(&mut swap, synced));
            swap.write_checkpoint();
            completed.map(|_| true)
        }
        Ok(None) => {
            job.discard();
            Ok(false)
        }
        Err(error) => Err(error),
    };
    completed.unwrap_or_else(|error| {
        tracing::error!(?partition, %error, "Failed to install the result of a compaction");
        false
    })
}
