//! Consumer groups: heartbeats, requests of classic members, deadlines, and records.

use super::GroupShard;
use super::follow_up::FollowUp;
use crate::answer::{GroupAnswer, join_error, sync_error};
use crate::assignor::ServerAssignor;
use crate::classic::{GroupState, PendingJoin};
use crate::client::ClientInfo;
use crate::consumer::{
    ConsumerContext, ConsumerGroup, ConsumerGroupError, ConsumerHeartbeat, Matches, Removal, Resolution,
};
use crate::error::MembershipError;
use crate::kind::Group;
use crate::member_epoch::LEAVING;
use crate::record::{ConsumerRecord, CoordinatorRecord};
use crate::timed::TimelineObject;
use crate::timers::Timer;
use crate::topic_filter::TopicFilter;
use std::sync::Arc;
use thalweg_shard::{Moment, Ticket};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, HeartbeatResponse,
    LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest,
};

impl GroupShard {
    /// Handles a ConsumerGroupHeartbeat request, in which a joining member has an id.
    pub fn consumer_heartbeat(
        &mut self,
        client: &ClientInfo,
        request: &ConsumerGroupHeartbeatRequest,
        filter: &TopicFilter,
        ticket: Ticket,
        now: Moment,
    ) {
        let leaves = request.member_epoch <= LEAVING;
        let decided = if leaves {
            self.consumer_leaves(request, now)
        } else {
            self.consumer_beats(client, request, filter, now)
        };
        match decided {
            Ok((records, after, response)) => {
                let after = match after {
                    FollowUp::DeadlineChanges { group, changes } if !leaves => {
                        FollowUp::Heartbeat { group, changes, filter: filter.clone() }
                    }
                    after => after,
                };
                let answers = vec![(ticket, GroupAnswer::ConsumerHeartbeat(response))];
                self.write_group(records, after, answers, now);
            }
            Err(error) => {
                let answers = vec![(ticket, GroupAnswer::ConsumerHeartbeat(error.response()))];
                self.release_after_writes(answers);
            }
        }
    }

    fn consumer_beats(
        &mut self,
        client: &ClientInfo,
        request: &ConsumerGroupHeartbeatRequest,
        filter: &TopicFilter,
        now: Moment,
    ) -> Result<HeartbeatDecision, ConsumerGroupError> {
        let beat = ConsumerHeartbeat { client, request };
        let shared = Arc::clone(&self.shared);
        let cx = &mut ConsumerContext {
            now,
            config: &shared.config,
            times: shared.consumer_times(&request.group_id),
            topics: &*shared.topics,
            hashes: &mut self.hashes,
        };
        let id = request.group_id.as_str();
        let slot = self.groups.get_key_value(id).and_then(|(id, slot)| Some((id, slot.latest()?)));
        if let Some((id, Group::Consumer(group))) = slot {
            let decision = group.heartbeat(cx, &beat)?;
            let after = FollowUp::DeadlineChanges { group: id.clone(), changes: decision.changes };
            return Ok((decision.records, after, decision.response));
        }
        let not_found = || ConsumerGroupError::NoGroup(id.to_owned());
        if request.member_epoch != 0 {
            return Err(not_found());
        }
        let mut records = Vec::new();
        let (mut changes, mut upgrades) = (Vec::new(), false);
        let group_id: Arc<str> = slot.map_or_else(|| id.into(), |(id, _)| id.clone());
        let group = match slot {
            Some((_, Group::Classic(classic))) if classic.state() != GroupState::Empty => {
                let group = ConsumerGroup::of_classic(classic, &group_id, &request.member_id, cx)?;
                records.push(CoordinatorRecord::group_tombstone(id));
                group.to_records(&mut records);
                (changes, upgrades) = (group.classic_sessions(), true);
                group
            }
            Some((_, Group::Share(_) | Group::Streams(_))) => return Err(not_found()),
            Some(_) => {
                records.push(CoordinatorRecord::group_tombstone(id));
                ConsumerGroup::new(group_id.clone())
            }
            None => ConsumerGroup::new(group_id.clone()),
        };
        let decision = group.heartbeat(cx, &beat)?;
        records.extend(decision.records);
        changes.extend(decision.changes);
        let after = match upgrades {
            true => {
                let (filter, member) = (filter.clone(), request.member_id.clone());
                FollowUp::Upgrade { group: group_id, changes, filter, member }
            }
            false => FollowUp::DeadlineChanges { group: group_id, changes },
        };
        Ok((records, after, decision.response))
    }

    fn consumer_leaves(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest,
        now: Moment,
    ) -> Result<HeartbeatDecision, ConsumerGroupError> {
        let id = request.group_id.as_str();
        let not_found = || ConsumerGroupError::NoGroup(id.to_owned());
        let (id, group, mut cx) = self.consumer_group(id, now).ok_or_else(not_found)?;
        let (removal, response) = group.leave(&mut cx, request)?;
        let (records, after) = removed(id, removal);
        Ok((records, after, response))
    }

    /// The whole state that follows from a consumer group's records.
    #[cfg(test)]
    pub(in super::super) fn consumer_picture(&self, id: &str) -> Option<String> {
        self.group(id).and_then(Group::consumer).map(ConsumerGroup::picture)
    }

    /// True if the name belongs to a consumer group.
    pub(super) fn is_consumer_group(&self, id: &str) -> bool {
        self.group(id).is_some_and(|group| group.consumer().is_some())
    }

    /// A consumer group and the inputs of its decisions.
    fn consumer_group(
        &mut self,
        id: &str,
        now: Moment,
    ) -> Option<(Arc<str>, &ConsumerGroup, ConsumerContext<'_>)> {
        let (id, slot) = self.groups.get_key_value(id)?;
        let group = slot.latest()?.consumer()?;
        let (config, topics) = (&self.shared.config, &*self.shared.topics);
        let (times, hashes) = (self.shared.consumer_times(id), &mut self.hashes);
        Some((id.clone(), group, ConsumerContext { now, config, times, topics, hashes }))
    }

    /// Applies a record of a consumer group. `at` is the offset whose acknowledgement readers must wait for,
    /// if any.
    pub(super) fn apply_consumer(&mut self, record: ConsumerRecord, at: Option<i64>) {
        let is_there = self.is_consumer_group(record.group());
        if !is_there {
            if record.is_tombstone() {
                return;
            }
            self.make_consumer_group(record.group(), at);
        }
        let id = record.group().to_owned();
        let slot = self.groups.get_mut(id.as_str()).expect("it is there, or was just made");
        let group = slot.latest_mut().and_then(Group::consumer_mut).expect("it is a consumer group");
        if !group.apply(record, &mut self.timers) {
            self.remove_group(&id, at);
        }
    }

    /// Creates a consumer group. Another group with this name is a leftover of a compacted log.
    fn make_consumer_group(&mut self, id: &str, at: Option<i64>) {
        if self.group(id).is_some() {
            self.remove_group(id, at);
        }
        self.place_group(id, at, |id| ConsumerGroup::new(id).into());
    }

    /// Starts deadlines after the replay of the log: members have a whole session and the whole time to
    /// revoke partitions.
    pub(super) fn start_consumer_deadlines(&mut self, id: &str, now: Moment) {
        let has_lost_records = self.has_lost_records;
        let Some((id, group, cx)) = self.consumer_group(id, now) else { return };
        let timeout_ms = if has_lost_records { 0 } else { cx.times.session_timeout_ms };
        let changes = group.deadlines_at_start(timeout_ms);
        self.change_deadlines(&id, changes, now);
    }

    /// Handles the deadline of a member.
    pub(super) fn consumer_deadline_over(&mut self, id: &str, timer: Timer, now: Moment) {
        let shared = Arc::clone(&self.shared);
        let cx = &mut ConsumerContext {
            now,
            config: &shared.config,
            times: shared.consumer_times(id),
            topics: &*shared.topics,
            hashes: &mut self.hashes,
        };
        let group =
            self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::consumer_mut);
        let removal = group.and_then(|group| group.deadline_over(cx, &mut self.timers, timer));
        if let Some(removal) = removal {
            let (records, after) = removed(id.into(), removal);
            self.write_group(records, after, Vec::new(), now);
        }
    }

    /// Handles changed topics: subscribed groups read them again on their next heartbeat.
    pub fn topics_changed(&mut self, topics: &[String], are_some_new: bool) {
        if are_some_new {
            self.topics_added_at = self.shared.topics.version();
        }
        for topic in topics {
            self.hashes.forget(topic);
        }
        for group in self.groups.values_mut().filter_map(TimelineObject::latest_mut) {
            if topics.iter().any(|topic| group.depends_on(topic)) {
                group.refresh_topics();
            }
        }
    }

    /// Handles the result of resolving a group's regular expressions against the metadata of this version.
    pub(in super::super) fn regexes_resolved(
        &mut self,
        id: &str,
        matches: Matches,
        version: i64,
        now: Moment,
    ) {
        let Some((id, group, mut cx)) = self.consumer_group(id, now) else { return };
        let records = group.end_resolution(&mut cx, matches, version);
        let after = FollowUp::DeadlineChanges { group: id, changes: Vec::new() };
        self.write_group(records, after, Vec::new(), now);
    }

    /// The regular expressions to resolve.
    pub(in super::super) fn take_resolutions(&mut self) -> Vec<Resolution> {
        std::mem::take(&mut self.resolutions)
    }

    /// Describes consumer groups after the acknowledgement of all decisions so far.
    pub fn describe_consumer_groups(&mut self, ids: &[String], ticket: Ticket) {
        let (config, topics) = (&self.shared.config.consumer, &*self.shared.topics);
        let assignor = config.assignors.first().copied().unwrap_or(ServerAssignor::Uniform);
        let not_found = |id: &String, what| DescribedGroup {
            group_id: id.clone(),
            error_code: ErrorCode::GroupIdNotFound.code(),
            error_message: Some(format!("Group {id} {what}.")),
            ..DescribedGroup::default()
        };
        let describe = |id: &String| match self.group(id) {
            Some(Group::Consumer(group)) => group.describe(assignor, topics),
            Some(_) => not_found(id, "is not a consumer group"),
            None => not_found(id, "not found"),
        };
        let described = ids.iter().map(describe).collect();
        self.release_after_writes(vec![(ticket, GroupAnswer::ConsumerDescribe(described))]);
    }

    /// Handles JoinGroup to a consumer group.
    pub(super) fn join_consumer_group(&mut self, joining: &PendingJoin<'_>, now: Moment) {
        let request = joining.request;
        let (id, group, mut cx) =
            self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        match group.join_classic(&mut cx, joining, &joining.unique.to_string()) {
            Ok(joined) => {
                let after = match joined.downgrade {
                    Some(downgrade) => FollowUp::Downgrade { group: id, downgrade },
                    None => FollowUp::DeadlineChanges { group: id, changes: joined.changes },
                };
                let answers = vec![(joining.ticket, GroupAnswer::JoinGroup(joined.response))];
                self.write_group(joined.records, after, answers, now);
            }
            Err(error) => {
                let refusal = GroupAnswer::JoinGroup(join_error("", error));
                self.release_after_writes(vec![(joining.ticket, refusal)]);
            }
        }
    }

    /// Handles SyncGroup to a consumer group.
    pub(super) fn sync_consumer_group(&mut self, request: &SyncGroupRequest, ticket: Ticket, now: Moment) {
        let (id, group, cx) = self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        let (result, changes) = group.sync_classic(request, cx.topics);
        self.change_deadlines(&id, changes, now);
        let answer = GroupAnswer::SyncGroup(result.unwrap_or_else(sync_error));
        self.release_after_writes(vec![(ticket, answer)]);
    }

    /// Handles Heartbeat to a consumer group.
    pub(super) fn heartbeat_consumer_group(
        &mut self,
        request: &HeartbeatRequest,
        ticket: Ticket,
        now: Moment,
    ) {
        let (id, group, _) = self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        let (result, changes) = group.heartbeat_classic(request);
        self.change_deadlines(&id, changes, now);
        let error_code = result.err().map_or(ErrorCode::None, MembershipError::code).code();
        let response = HeartbeatResponse { error_code, ..HeartbeatResponse::default() };
        self.release_after_writes(vec![(ticket, GroupAnswer::Heartbeat(response))]);
    }

    /// Handles LeaveGroup to a consumer group.
    pub(super) fn leave_consumer_group(&mut self, request: &LeaveGroupRequest, ticket: Ticket, now: Moment) {
        let (id, group, mut cx) =
            self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        let (removal, members) = group.leave_classic(&mut cx, &request.members);
        let (records, after) = removed(id, removal);
        let response = LeaveGroupResponse { members, ..LeaveGroupResponse::default() };
        self.write_group(records, after, vec![(ticket, GroupAnswer::LeaveGroup(response))], now);
    }
}

type HeartbeatDecision = (Vec<CoordinatorRecord>, FollowUp, ConsumerGroupHeartbeatResponse);

fn removed(id: Arc<str>, removal: Removal) -> (Vec<CoordinatorRecord>, FollowUp) {
    let after = match removal.downgrade {
        Some(downgrade) => FollowUp::Downgrade { group: id, downgrade },
        None => FollowUp::DeadlineChanges { group: id, changes: Vec::new() },
    };
    (removal.records, after)
}
