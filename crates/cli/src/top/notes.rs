//! The reasons for figures that are not known, in a line each.

use std::collections::BTreeMap;

use thalweg_client::verdict::{Reach, counted};

use super::figures::{Figures, HIDDEN, NO_COMMIT, NOT_READ, Sum};
use super::reading::Reading;

/// Brokers that are named with their own reason.
const NAMED_MAX: usize = 3;

/// The mark of a sum without some of its parts.
pub(super) const MARK: char = '+';

/// The notes on the figures of a reading.
pub(super) fn of(now: &Reading, figures: &Figures) -> Vec<String> {
    let mut notes = Vec::new();
    if figures.interval.is_none() {
        notes.push("Rates are known from the second reading on.".to_owned());
    }
    notes.extend(silent_brokers(now));
    notes.extend(directories(now));
    notes.extend(ends(now));
    if let Err(absence) = &now.facts.quorum {
        notes.push(format!("Controller: {}.", absence.reason()));
    }
    notes.extend(groups(now, figures));
    if has_partial_sums(figures) {
        notes.push(format!(
            "{MARK} marks sums without parts that are unknown, such as new partitions, deleted segments and topics, \
             failed log directories, brokers that do not answer, and what this login may not see."
        ));
    }
    notes
}

fn silent_brokers(now: &Reading) -> Vec<String> {
    let silent = now.brokers.iter().filter(|(_, broker)| broker.reach == Reach::Silent);
    let why = silent.filter_map(|(id, broker)| Some((id, broker.directories.as_ref().err()?)));
    let mut notes: Vec<String> =
        why.map(|(id, absence)| format!("Broker {id}: {}.", absence.why.trim_end_matches('.'))).collect();
    let more = notes.len().saturating_sub(NAMED_MAX);
    notes.truncate(NAMED_MAX);
    if more > 0 {
        notes.push(format!("{} more do not answer.", counted(more, "broker")));
    }
    notes
}

/// Log directories that brokers which answer do not report.
fn directories(now: &Reading) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (id, broker) in now.brokers.iter().filter(|(_, broker)| broker.answers()) {
        if let Err(absence) = &broker.directories {
            by_reason.entry(absence.reason()).or_default().push(id.to_string());
        }
    }
    let note = |(reason, ids): (&str, Vec<String>)| {
        let noun = if ids.len() == 1 { "broker" } else { "brokers" };
        format!("Log directories of {noun} {}: {reason}.", ids.join(", "))
    };
    by_reason.into_iter().map(note).collect()
}

/// Partitions without a known end.
fn ends(now: &Reading) -> Option<String> {
    let all = now.partitions().count();
    let unknown = now.partitions().filter(|(_, partition)| partition.end.is_none()).count();
    (unknown > 0).then(|| {
        format!("The ends of {unknown} of {all} partitions are unknown: no leader, or no answer of it.")
    })
}

fn groups(now: &Reading, figures: &Figures) -> Vec<String> {
    let read = match &now.groups {
        Ok(read) => read,
        Err(absence) => return vec![format!("Groups: {}.", absence.reason())],
    };
    let mut notes: Vec<String> = read.gaps.iter().map(|gap| format!("{gap}.")).collect();
    let count = |problem| {
        let all = figures.groups.iter().flatten();
        all.filter(|group| group.problem == Some(problem)).count()
    };
    let unread = count(NOT_READ);
    if unread > 0 {
        let groups = counted(unread, "group");
        notes.push(format!(
            "The offsets of {groups} were not read: no answer of the coordinator, not visible to this login, or \
             beyond the limits of a reading."
        ));
    }
    for why in [NO_COMMIT, HIDDEN].into_iter().filter(|why| count(why) > 0) {
        notes.push(format!("A group without a lag: {why}."));
    }
    notes
}

fn has_partial_sums(figures: &Figures) -> bool {
    let is_partial = |sum: Option<Sum>| sum.is_some_and(|sum| !sum.is_whole);
    let cluster = &figures.cluster;
    if cluster.topics.is_some() && !cluster.has_all_topics
        || figures.groups.is_some() && !cluster.has_all_groups
    {
        return true;
    }
    let topics = figures.topics.iter();
    let of_topic = topics.flat_map(|topic| [topic.messages_per_s, topic.bytes_per_s, topic.log_bytes]);
    let groups = figures.groups.iter().flatten();
    let of_broker = figures.brokers.iter().flat_map(|broker| [broker.log_bytes, broker.log_bytes_per_s]);
    of_topic
        .chain(of_broker)
        .chain(groups.flat_map(|group| [group.lag, group.consumed_per_s]))
        .chain([cluster.messages_per_s, cluster.bytes_per_s])
        .any(is_partial)
}
