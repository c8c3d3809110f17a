//! The sticky assignment of the cooperative protocol (KIP-429).
//!
//! Members keep their partitions as far as that is balanced; other partitions go to the members with the
//! fewest. Balanced means that no member has two partitions more than another member that could take a
//! partition. A moving partition is first left unassigned: the old owner releases it in this rebalance, and
//! the next rebalance assigns it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Assignments, Subscriber};
use crate::offsets::TopicPartition;

/// The index of a member in the list.
type Reader = usize;

struct Board<'a> {
    members: &'a [Subscriber],
    /// The subscribers of each topic.
    readers: BTreeMap<&'a str, Vec<Reader>>,
    holdings: Vec<BTreeSet<TopicPartition>>,
}

pub(super) fn assign(members: &[Subscriber], topics: &[(Arc<str>, i32)], assigned: &mut Assignments) {
    let owners = owners(members, topics);
    let mut board = Board::new(members, topics);
    // An owner that has unsubscribed must release the partition.
    let keeper = |at: &TopicPartition| {
        let owner = owners.get(at).copied().flatten();
        owner.filter(|owner| members[*owner].topics.contains(&*at.topic))
    };
    for at in owners.keys() {
        if let Some(reader) = keeper(at) {
            board.holdings[reader].insert(at.clone());
        }
    }
    for (topic, count) in topics {
        for partition in 0..*count {
            let at = TopicPartition::new(Arc::clone(topic), partition);
            if keeper(&at).is_none()
                && let Some(reader) = board.least_loaded(topic)
            {
                board.holdings[reader].insert(at);
            }
        }
    }
    board.balance();
    for (reader, holdings) in board.holdings.into_iter().enumerate() {
        // Partitions still read by another member must be released first.
        let free =
            holdings.into_iter().filter(|at| owners.get(at).is_none_or(|owner| *owner == Some(reader)));
        assigned.insert(members[reader].id.clone(), free.collect());
    }
}

/// The current owner of each claimed partition, which may have unsubscribed from its topic. If two members
/// claim a partition, the later generation wins. With equal generations both must release it, and the owner
/// is `None`.
fn owners(members: &[Subscriber], topics: &[(Arc<str>, i32)]) -> BTreeMap<TopicPartition, Option<Reader>> {
    let counts: BTreeMap<&str, i32> = topics.iter().map(|(topic, count)| (&**topic, *count)).collect();
    let mut claims: BTreeMap<TopicPartition, (i32, Option<Reader>)> = BTreeMap::new();
    for (reader, member) in members.iter().enumerate() {
        for at in &member.owned {
            let exists = counts.get(&*at.topic).is_some_and(|count| (0..*count).contains(&at.partition));
            if !exists {
                continue;
            }
            let claim = claims.entry(at.clone()).or_insert((member.generation, Some(reader)));
            if claim.0 < member.generation {
                *claim = (member.generation, Some(reader));
            } else if claim.0 == member.generation && claim.1 != Some(reader) {
                claim.1 = None;
            }
        }
    }
    claims.into_iter().map(|(at, (_, reader))| (at, reader)).collect()
}

impl<'a> Board<'a> {
    fn new(members: &'a [Subscriber], topics: &'a [(Arc<str>, i32)]) -> Board<'a> {
        let readers_of = |topic: &str| {
            let readers = members.iter().enumerate().filter(|(_, member)| member.topics.contains(topic));
            readers.map(|(reader, _)| reader).collect()
        };
        let readers = topics.iter().map(|(topic, _)| (&**topic, readers_of(topic))).collect();
        Board { members, readers, holdings: vec![BTreeSet::new(); members.len()] }
    }

    fn least_loaded(&self, topic: &str) -> Option<Reader> {
        self.readers.get(topic)?.iter().copied().min_by_key(|reader| self.holdings[*reader].len())
    }

    /// Moves partitions from the members with the most, one at a time. Each move decreases the sum of the
    /// squares of the loads, so this terminates.
    fn balance(&mut self) {
        let mut by_load: BTreeSet<(usize, Reader)> =
            (0..self.members.len()).map(|reader| (self.holdings[reader].len(), reader)).collect();
        // Members that cannot give a partition away until another load changes.
        let mut stuck = Vec::new();
        while let Some((load, from)) = by_load.pop_last() {
            let least = by_load.first().map_or(0, |(load, _)| *load);
            let Some((at, to)) = self.movable(from, least) else {
                stuck.push((load, from));
                continue;
            };
            by_load.remove(&(self.holdings[to].len(), to));
            stuck.retain(|(_, reader)| *reader != to);
            self.holdings[from].remove(&at);
            self.holdings[to].insert(at);
            by_load.extend([from, to].map(|reader| (self.holdings[reader].len(), reader)));
            // With different subscriptions, this move may let a stuck member give a partition to `from`.
            by_load.extend(stuck.drain(..));
        }
    }

    /// A partition that could move to a reader with at least two fewer; the last one of its topic. No reader
    /// is expected to have fewer than `least`, so a reader with that many ends the search.
    fn movable(&self, from: Reader, least: usize) -> Option<(TopicPartition, Reader)> {
        let holdings = &self.holdings[from];
        let mut best: Option<(usize, TopicPartition, Reader)> = None;
        let mut last_topic: Option<&str> = None;
        for at in holdings.iter().rev() {
            if last_topic == Some(&*at.topic) {
                continue;
            }
            last_topic = Some(&*at.topic);
            let Some(to) = self.least_loaded(&at.topic) else { continue };
            let load = self.holdings[to].len();
            if load + 2 <= holdings.len() && best.as_ref().is_none_or(|(found, _, _)| load < *found) {
                best = Some((load, at.clone(), to));
                if load <= least {
                    break;
                }
            }
        }
        best.map(|(_, at, to)| (at, to))
    }
}
