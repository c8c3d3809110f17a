//! ListGroups, DescribeGroups, DeleteGroups, and the effects of deleted topics.

use super::GroupShard;
use crate::answer::GroupAnswer;
use crate::kind::Group;
use crate::record::CoordinatorRecord;
use crate::timed::TimelineObject;
use crate::topics::DeletedTopic;
use thalweg_hash::HashSet;
use thalweg_shard::Ticket;
use thalweg_wire::request::delete_groups_response::DeletableGroupResult;
use thalweg_wire::request::describe_groups_response::DescribedGroup;
use thalweg_wire::request::list_groups_response::ListedGroup;
use thalweg_wire::{ErrorCode, Uuid};

/// Maximum number of tombstones per batch in bulk deletions.
const TOMBSTONES_PER_BATCH: usize = 1_000;
/// Maximum size of their keys and values. A batch beyond the topic's limit is divided further.
const TOMBSTONE_BATCH_BYTES: usize = 512 * 1024;

/// Group state names, for filters.
const STATES: [&str; 7] =
    ["Empty", "PreparingRebalance", "CompletingRebalance", "NotReady", "Assigning", "Reconciling", "Stable"];
/// Group type names, for filters.
const KINDS: [&str; 4] = ["classic", "consumer", "share", "streams"];

impl GroupShard {
    /// The groups in one of these states and of one of these types. An empty list matches all.
    pub fn list_groups(&self, states: &[String], types: &[String]) -> Vec<ListedGroup> {
        // The number of known names is small; a request may have any number of names.
        let named = |names: &[&'static str], wanted: &[String]| -> Vec<&'static str> {
            // Kafka's clients send NotReady, while its coordinator uses not_ready.
            let wanted: Vec<String> = wanted.iter().map(|name| name.trim().replace('_', "")).collect();
            let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
            names.iter().copied().filter(|name| wanted.is_empty() || is_wanted(name)).collect()
        };
        let (states, kinds) = (named(&STATES, states), named(&KINDS, types));
        let is_wanted =
            |group: &Group| states.contains(&group.state_name()) && kinds.contains(&group.kind_name());
        let groups = self.acknowledged_groups().into_iter().filter(|(_, group)| is_wanted(group));
        groups.map(|(_, group)| group.list()).collect()
    }

    /// The details of a group. A missing group is `Dead`, and from version 6 an error too.
    pub fn describe_group(&self, id: &str, version: i16) -> DescribedGroup {
        let what = match self.groups.get(id).and_then(TimelineObject::acknowledged) {
            Some(Group::Classic(group)) => return group.describe(),
            Some(_) => "is not a classic group",
            None => "not found",
        };
        let dead = DescribedGroup {
            group_id: id.to_owned(),
            group_state: "Dead".to_owned(),
            ..DescribedGroup::default()
        };
        if version < 6 {
            return dead;
        }
        let error_message = Some(format!("Group {id} {what}."));
        DescribedGroup { error_code: ErrorCode::GroupIdNotFound.code(), error_message, ..dead }
    }

    /// Handles DeleteGroups for groups of this shard. A group without members is deleted, with its offsets.
    pub fn delete_groups(&mut self, ids: &[String], ticket: Ticket) {
        let mut records = Vec::new();
        let mut results = Vec::with_capacity(ids.len());
        for id in ids {
            let error = match self.group(id) {
                None => ErrorCode::GroupIdNotFound,
                Some(group) if !group.is_empty() => ErrorCode::NonEmptyGroup,
                Some(group) => {
                    records.extend(self.offsets.tombstones_of(id));
                    group.push_tombstones(id, &mut records);
                    ErrorCode::None
                }
            };
            results.push(DeletableGroupResult { group_id: id.clone(), error_code: error.code() });
        }
        self.write(records, None, vec![(ticket, GroupAnswer::DeleteGroups(results))]);
    }

    /// Deletes the committed offsets of deleted topics.
    pub fn topics_deleted(&mut self, topics: &[DeletedTopic]) {
        let records =
            topics.iter().flat_map(|topic| self.offsets.tombstones_of_topic(&topic.name, topic.id)).collect();
        self.write_tombstones(records);
        let gone: HashSet<Uuid> = topics.iter().map(|topic| topic.id).collect();
        let states = self.share_states_of_deleted(|topic| gone.contains(&topic));
        self.write_tombstones(states);
    }

    /// Writes tombstones without a waiting request, in batches of bounded size. Each record is independent: a
    /// record that cannot be written does not affect the other records, and is tried again when offsets
    /// expire.
    pub(super) fn write_tombstones(&mut self, records: Vec<CoordinatorRecord>) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for record in records {
            let size = record.size();
            if batch.len() == TOMBSTONES_PER_BATCH || bytes + size > TOMBSTONE_BATCH_BYTES {
                self.write_divisible(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += size;
            batch.push(record);
        }
        self.write_divisible(batch);
    }

    fn write_divisible(&mut self, batch: Vec<CoordinatorRecord>) {
        if !batch.is_empty() {
            self.write(batch, None, Vec::new());
            self.writes.back_mut().expect("it was just added").is_divisible = true;
        }
    }
}
