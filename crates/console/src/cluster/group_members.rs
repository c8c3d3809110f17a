//! The members of groups: their number, and the partitions that they read. The protocol lists groups without
//! them, so each group is described, and the answers are kept for some seconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_client::{GroupAssignment, GroupKind, is_without_members};
use tokio::time::Instant;

use super::groups::GroupLine;
use super::{View, ms_at};

/// Maximum age of an answer.
const AGE: Duration = Duration::from_secs(10);
/// Groups with a known answer; then those that are too old are dropped.
const GROUPS_MAX: usize = 10_000;
/// Time for further attempts at coordinators that refuse, and time limit for the answer of each.
const COORDINATOR_RETRY: Duration = Duration::from_secs(1);
const COORDINATOR_WAIT: Duration = Duration::from_secs(3);

/// The members by group.
#[derive(Default)]
pub struct GroupMembers(Mutex<HashMap<String, KnownMembers>>);

/// The members of a group; `None` if the group could not be described.
#[derive(Clone)]
struct KnownMembers {
    assignment: Option<Arc<GroupAssignment>>,
    at: Instant,
}

impl GroupMembers {
    /// The members of these groups, without groups that cannot be described.
    pub async fn of(&self, view: &View, groups: &[&GroupLine]) -> BTreeMap<String, Arc<GroupAssignment>> {
        let stale = self.stale(groups);
        if !stale.is_empty() {
            let mut found = read(view, &stale).await;
            self.note(stale.into_iter().map(|group| (group.group.clone(), found.remove(&group.group))));
        }
        let known = self.0.lock();
        let of_each = groups.iter().filter_map(|group| {
            let assignment = known.get(&group.group).and_then(|known| known.assignment.clone());
            let assignment = if is_without_members(&group.state) { Arc::default() } else { assignment? };
            Some((group.group.clone(), assignment))
        });
        of_each.collect()
    }

    /// The time of the oldest answer about these groups, in milliseconds since 1970; none without answers.
    pub fn read_at_ms(&self, groups: &[&GroupLine]) -> Option<i64> {
        let known = self.0.lock();
        let described = groups.iter().filter(|group| !is_without_members(&group.state));
        described.filter_map(|group| known.get(&group.group)).map(|known| ms_at(known.at)).min()
    }

    /// The groups that have to be described.
    fn stale<'a>(&self, groups: &[&'a GroupLine]) -> Vec<&'a GroupLine> {
        let known = self.0.lock();
        let is_fresh =
            |group: &GroupLine| known.get(&group.group).is_some_and(|known| known.at.elapsed() < AGE);
        groups.iter().filter(|group| !is_without_members(&group.state) && !is_fresh(group)).copied().collect()
    }

    fn note(&self, found: impl Iterator<Item = (String, Option<GroupAssignment>)>) {
        let at = Instant::now();
        let mut known = self.0.lock();
        known.extend(
            found.map(|(group, found)| (group, KnownMembers { assignment: found.map(Arc::new), at })),
        );
        if known.len() > GROUPS_MAX {
            known.retain(|_, known| known.at.elapsed() < AGE);
        }
    }

    /// Drops all answers.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

async fn read(view: &View, groups: &[&GroupLine]) -> BTreeMap<String, GroupAssignment> {
    let admin = view.admin().clone().with_timeout(COORDINATOR_RETRY).with_answer_limit(COORDINATOR_WAIT);
    let mut by_kind: BTreeMap<GroupKind, Vec<String>> = BTreeMap::new();
    for group in groups {
        if let Some(kind) = GroupKind::from_name(&group.kind) {
            by_kind.entry(kind).or_default().push(group.group.clone());
        }
    }
    admin.group_assignments(&by_kind).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::now_ms;

    fn line(group: &str, state: &str) -> GroupLine {
        GroupLine {
            group: group.to_owned(),
            kind: "classic".to_owned(),
            state: state.to_owned(),
            protocol: "consumer".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_is_described_once_in_a_while_and_an_empty_one_never() {
        let (billing, idle) = (line("billing", "Stable"), line("idle", "Empty"));
        let (groups, members) = ([&billing, &idle], GroupMembers::default());
        let stale =
            || members.stale(&groups).into_iter().map(|group| group.group.clone()).collect::<Vec<_>>();
        assert_eq!(stale(), ["billing"]);
        members.note([("billing".to_owned(), Some(GroupAssignment::default()))].into_iter());
        assert!(stale().is_empty());
        assert_eq!(members.read_at_ms(&[&idle]), None);
        tokio::time::advance(AGE).await;
        let age_ms = now_ms() - members.read_at_ms(&groups).expect("one is described");
        assert!((10_000..11_000).contains(&age_ms), "{age_ms}");
        assert_eq!(stale(), ["billing"]);
        members.note((0..=GROUPS_MAX).map(|number| (number.to_string(), None)));
        assert_eq!(members.0.lock().len(), GROUPS_MAX + 1, "the old answer is dropped");
        members.clear();
        assert!(members.0.lock().is_empty());
    }
}
