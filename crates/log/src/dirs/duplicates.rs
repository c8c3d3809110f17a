//! Two logs of one partition in different directories.
//!
//! Causes: a move was interrupted between its two renames; the disk of one directory failed during a move,
//! while the log continued in the other; or a directory returned after the partition was recreated elsewhere.
//!
//! Owns: the choice between the two logs. Refuses: a guess. The chosen log contains the records of the other,
//! as far as ends and leader epochs show, like for a follower and its leader. The other log is kept for an
//! operator to inspect.

use super::error::DuplicatePartition;
use super::unopened::UnopenedLog;
use crate::partition::PartitionLog;
use crate::topic_partition::TopicPartition;
use std::path::PathBuf;
use thalweg_hash::HashMap;

/// The logs to use, and the duplicates to set aside.
pub(super) fn choose(
    found: Vec<PartitionLog>,
) -> Result<(Vec<PartitionLog>, Vec<PartitionLog>), DuplicatePartition> {
    let mut logs: Vec<PartitionLog> = Vec::with_capacity(found.len());
    let mut places: HashMap<TopicPartition, usize> = HashMap::default();
    let mut duplicates = Vec::new();
    for mut log in found {
        let Some(&place) = places.get(log.name()) else {
            places.insert(log.name().clone(), logs.len());
            logs.push(log);
            continue;
        };
        let known = &mut logs[place];
        match (contains(known, &log), contains(&log, known)) {
            (true, true) if is_later(&log, known) => std::mem::swap(known, &mut log),
            (true, _) => {}
            (false, true) => std::mem::swap(known, &mut log),
            (false, false) => return Err(refusal(known, &log)),
        }
        duplicates.push(log);
    }
    Ok((logs, duplicates))
}

/// The logs that wait for room, by name. If a partition has two logs, neither can be chosen before it is
/// opened.
pub(super) fn among_unopened(
    found: Vec<UnopenedLog>,
    logs: &[PartitionLog],
) -> Result<HashMap<TopicPartition, UnopenedLog>, DuplicatePartition> {
    let mut waiting: HashMap<TopicPartition, UnopenedLog> = HashMap::default();
    for unopened in found {
        let name = unopened.name().clone();
        let opened = logs.iter().find(|log| *log.name() == name).map(parent);
        let first = opened.or_else(|| waiting.get(&name).map(|other| other.log_dir().to_owned()));
        if let Some(first) = first {
            return Err(DuplicatePartition { name, first, second: unopened.log_dir().to_owned() });
        }
        waiting.insert(name, unopened);
    }
    Ok(waiting)
}

/// True if a log has, or has had, all records of another.
fn contains(log: &PartitionLog, other: &PartitionLog) -> bool {
    let is_other_topic = log.topic_id().zip(other.topic_id()).is_some_and(|(id, other)| id != other);
    let end = other.log_end_offset();
    if is_other_topic || end > log.log_end_offset() {
        return false;
    }
    if end == other.log_start_offset() || end <= log.log_start_offset() {
        return true;
    }
    let Some(epoch) = other.latest_epoch() else { return log.latest_epoch().is_none() };
    let here = log.end_offset_for_epoch(epoch);
    here.is_some_and(|here| here.leader_epoch == epoch && here.end_offset >= end)
}

/// The preference between two logs with the same end: a usable and whole log, a log without lost records
/// before its start, a log with the later log start. The paths decide between equal logs, so that every start
/// chooses the same.
fn is_later(log: &PartitionLog, other: &PartitionLog) -> bool {
    let rank = |log: &PartitionLog| {
        (log.failure().is_none(), log.damage().is_none(), log.lost_from().is_none(), log.log_start_offset())
    };
    rank(log).cmp(&rank(other)).then_with(|| other.dir().cmp(log.dir())).is_gt()
}

fn refusal(first: &PartitionLog, second: &PartitionLog) -> DuplicatePartition {
    DuplicatePartition { name: first.name().clone(), first: parent(first), second: parent(second) }
}

fn parent(log: &PartitionLog) -> PathBuf {
    log.dir().parent().unwrap_or(log.dir()).to_owned()
}
