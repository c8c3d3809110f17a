//! The offsets and the members of many groups, read within limits of number and time. A coordinator that does
//! not answer uses up no time of the other groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_dial::ClientError;
use thalweg_record::Offset;
use tokio::time::{Instant, timeout_at};

use super::{Admin, BACKOFF, GroupDescription, GroupKind, GroupListing, Outcomes, is_without_members};
use crate::offsets::TopicPartition;

/// Maximum number of groups whose offsets are requested.
const GROUPS_MAX: usize = 5_000;
/// Maximum number of share groups whose offsets are requested: each group needs a separate request.
const SHARE_GROUPS_MAX: usize = 200;
/// Maximum number of offsets. Later groups are omitted.
const OFFSETS_MAX: usize = 500_000;
/// Maximum number of groups that are described for their assignments.
const DESCRIBED_MAX: usize = 500;
/// Groups and offsets per request.
const GROUPS_AT_ONCE: usize = 100;
const OFFSETS_AT_ONCE: usize = 50_000;
/// Groups per request for their offsets in all topics, whose number is unknown.
const WHOLE_GROUPS_AT_ONCE: usize = 20;
/// Time for further attempts at coordinators that refuse, and time limit for the answer of each.
const COORDINATOR_RETRY: Duration = Duration::from_secs(1);
const COORDINATOR_WAIT: Duration = Duration::from_secs(5);
/// Time limit for a whole reading. Groups that are not read by then are omitted.
const READING_MAX: Duration = Duration::from_secs(15);

/// The position of a group in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// The committed offset, or the share group's start offset.
    pub offset: Offset,
    /// Number of unfinished records after the start offset, if the share group reports it.
    pub share_lag: Option<i64>,
}

/// The positions of a group.
pub type GroupPositions = BTreeMap<TopicPartition, GroupPosition>;

impl Admin {
    /// The positions of the listed groups in all topics, within limits of number and time. `take` gets the
    /// groups that have a position. Returns the groups that were not read: beyond a limit, without an answer
    /// of their coordinator, or hidden from the login.
    pub async fn positions_of_groups<'a>(
        &self,
        listed: &'a [GroupListing],
        take: impl FnMut(&'a GroupListing, GroupPositions),
    ) -> BTreeSet<&'a str> {
        GroupReading::new(self).positions(None, listed, take).await
    }

    /// The descriptions of the listed groups that may have members, within limits of number and time, those
    /// with offsets first. The second part has the groups that were not described for the same reasons as
    /// those of [`Admin::positions_of_groups`].
    pub async fn descriptions_of_groups<'a>(
        &self,
        listed: &'a [GroupListing],
        has_offsets: impl Fn(&str) -> bool,
    ) -> (BTreeMap<&'a str, GroupDescription>, BTreeSet<&'a str>) {
        GroupReading::new(self).assignments(has_offsets, listed).await
    }
}

/// Requests to the coordinators of many groups, with a common time limit.
pub(super) struct GroupReading {
    admin: Admin,
    deadline: Instant,
}

impl GroupReading {
    pub(super) fn new(admin: &Admin) -> GroupReading {
        let retry = COORDINATOR_RETRY.min(admin.timeout);
        let limit = admin.answer_limit.map_or(COORDINATOR_WAIT, |limit| limit.min(COORDINATOR_WAIT));
        GroupReading {
            admin: admin.clone().with_timeout(retry).with_answer_limit(limit),
            deadline: Instant::now() + admin.groups_limit.map_or(READING_MAX, |limit| limit.min(READING_MAX)),
        }
    }

    /// The outcomes of a request; none after the deadline. Once a coordinator has used up the time for
    /// further attempts, later requests make no more of them, so that the other groups are read.
    async fn in_time<T>(
        &mut self,
        outcomes: impl Future<Output = Outcomes<String, T>>,
    ) -> Outcomes<String, T> {
        if Instant::now() >= self.deadline {
            return Outcomes::new();
        }
        let outcomes = timeout_at(self.deadline, outcomes).await.unwrap_or_default();
        if outcomes.values().any(|outcome| outcome.as_ref().is_err_and(ClientError::is_retriable)) {
            self.admin.timeout = self.admin.timeout.min(BACKOFF);
        }
        outcomes
    }

    /// Reads the positions of groups in these partitions of a topic, or in all topics. Returns the groups
    /// that were not read.
    pub(super) async fn positions<'a>(
        &mut self,
        partitions: Option<&[TopicPartition]>,
        listed: &'a [GroupListing],
        mut take: impl FnMut(&'a GroupListing, GroupPositions),
    ) -> BTreeSet<&'a str> {
        let (share, others): (Vec<&GroupListing>, Vec<&GroupListing>) =
            listed.iter().partition(|group| kind(group) == GroupKind::Share);
        let mut omitted = BTreeSet::new();
        let mut left = OFFSETS_MAX;
        // The time limits even the first request for a share group, so that no failure may shorten it.
        let of_share_groups = self.admin.clone();
        omitted.extend(others.iter().skip(GROUPS_MAX).map(|group| group.group.as_str()));
        omitted.extend(share.iter().skip(SHARE_GROUPS_MAX).map(|group| group.group.as_str()));
        let at_once =
            partitions.map_or(WHOLE_GROUPS_AT_ONCE, |partitions| OFFSETS_AT_ONCE / partitions.len().max(1));
        for groups in others[..others.len().min(GROUPS_MAX)].chunks(at_once.clamp(1, GROUPS_AT_ONCE)) {
            let mut outcomes = Outcomes::new();
            if left > 0 {
                let names: Vec<String> = groups.iter().map(|group| group.group.clone()).collect();
                let admin = self.admin.clone();
                outcomes = self.in_time(admin.list_offsets_of_groups(&names, partitions)).await;
            }
            for group in groups {
                match outcomes.remove(&group.group) {
                    Some(Ok(found)) if found.is_empty() => {}
                    Some(Ok(found)) => {
                        left = left.saturating_sub(found.len());
                        let position = |offset| GroupPosition { offset, share_lag: None };
                        let found = found.into_iter().map(|(at, found)| (at, position(found.offset)));
                        take(group, found.collect());
                    }
                    _ => drop(omitted.insert(group.group.as_str())),
                }
            }
        }
        let topic = partitions.map(|partitions| partitions.first().map(|one| &one.topic));
        for group in share.into_iter().take(SHARE_GROUPS_MAX) {
            let read = of_share_groups.list_share_group_offsets(&group.group);
            let Ok(Ok(found)) = timeout_at(self.deadline, read).await else {
                omitted.insert(group.group.as_str());
                continue;
            };
            let wanted = found.into_iter().filter(|(at, _)| topic.is_none_or(|one| one == Some(&at.topic)));
            let found: GroupPositions = wanted
                .filter_map(|(at, found)| {
                    let found = found.ok()?;
                    Some((at, GroupPosition { offset: found.start, share_lag: found.lag }))
                })
                .collect();
            if !found.is_empty() {
                take(group, found);
            }
        }
        omitted
    }

    /// The descriptions of groups that may have members, those with offsets first, and the
    /// groups that were not described.
    pub(super) async fn assignments<'a>(
        &mut self,
        has_offsets: impl Fn(&str) -> bool,
        listed: &'a [GroupListing],
    ) -> (BTreeMap<&'a str, GroupDescription>, BTreeSet<&'a str>) {
        let mut active: Vec<&GroupListing> =
            listed.iter().filter(|group| !is_without_members(&group.state)).collect();
        active.sort_by_key(|group| !has_offsets(&group.group));
        let mut omitted: BTreeSet<&str> =
            active.iter().skip(DESCRIBED_MAX).map(|group| group.group.as_str()).collect();
        active.truncate(DESCRIBED_MAX);
        let mut described = BTreeMap::new();
        for of_kind in GroupKind::ALL {
            let groups: Vec<_> = active.iter().filter(|group| kind(group) == of_kind).collect();
            for groups in groups.chunks(GROUPS_AT_ONCE) {
                let names: Vec<String> = groups.iter().map(|group| group.group.clone()).collect();
                let admin = self.admin.clone();
                let mut outcomes = self.in_time(admin.describe_groups_as(of_kind, &names)).await;
                for group in groups {
                    match outcomes.remove(&group.group) {
                        Some(Ok(found)) => drop(described.insert(group.group.as_str(), found)),
                        _ => drop(omitted.insert(group.group.as_str())),
                    }
                }
            }
        }
        (described, omitted)
    }
}

/// The type of a listed group. Brokers before group types list classic groups only.
pub(super) fn kind(group: &GroupListing) -> GroupKind {
    GroupKind::from_name(&group.kind).unwrap_or(GroupKind::Classic)
}

#[cfg(test)]
mod tests {
    use thalweg_dial::{BrokerUnknown, ConnectionOptions};

    use super::*;
    use crate::cluster::Cluster;

    #[tokio::test(start_paused = true)]
    async fn groups_are_left_out_after_the_deadline_of_a_reading() {
        let cluster = Cluster::unconnected(&[], &ConnectionOptions::default());
        let mut reading = GroupReading::new(&Admin::new(cluster));
        let begun = Instant::now();
        let failed = || -> Outcomes<String> {
            Outcomes::from([("billing".to_owned(), Err(BrokerUnknown { id: 2 }.into()))])
        };
        assert_eq!(reading.in_time(std::future::ready(failed())).await.len(), 1);
        assert_eq!(reading.admin.timeout, BACKOFF, "later requests do not wait for the coordinator again");
        let silent = std::future::pending::<Outcomes<String>>();
        assert!(reading.in_time(silent).await.is_empty());
        assert!(begun.elapsed() >= READING_MAX);
        assert!(reading.in_time(std::future::ready(failed())).await.is_empty(), "it is too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_may_have_less_time() {
        let cluster = Cluster::unconnected(&[], &ConnectionOptions::default());
        let limit = Duration::from_secs(2);
        let mut reading = GroupReading::new(&Admin::new(cluster).with_groups_limit(limit));
        let begun = Instant::now();
        assert!(reading.in_time(std::future::pending::<Outcomes<String>>()).await.is_empty());
        assert_eq!(begun.elapsed(), limit);
    }
}
