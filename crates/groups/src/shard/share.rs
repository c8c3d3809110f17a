//! Share groups: heartbeats, sessions, offsets, and records.

use super::GroupShard;
use super::follow_up::FollowUp;
use crate::answer::GroupAnswer;
use crate::client::ClientInfo;
use crate::kind::Group;
use crate::member_epoch::LEAVING;
use crate::record::{CoordinatorRecord, ShareGroupRecord};
use crate::share::{ShareAnswer, ShareContext, ShareGroup, ShareGroupError, ShareHeartbeat, SharePartitions};
use crate::timed::TimelineObject;
use crate::timers::Timer;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_shard::{Moment, Ticket};
use thalweg_wire::request::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic;
use thalweg_wire::request::share_group_describe_response::DescribedGroup;
use thalweg_wire::request::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use thalweg_wire::{ErrorCode, Uuid};

impl GroupShard {
    /// Handles a ShareGroupHeartbeat request.
    pub(in super::super) fn share_heartbeat(
        &mut self,
        client: &ClientInfo,
        request: &ShareGroupHeartbeatRequest,
        ticket: Ticket,
        now: Moment,
    ) {
        let decided = if request.member_epoch == LEAVING {
            self.share_leaves(request, now).map(|(records, response)| (records, None, response, None))
        } else {
            self.share_beats(client, request, now)
        };
        match decided {
            Ok((records, after, response, initialization)) => {
                let answer = ShareAnswer::Heartbeat(response, initialization);
                let answers = vec![(ticket, GroupAnswer::Share(answer))];
                match after {
                    Some(after) => self.write_group(records, after, answers, now),
                    None => self.write(records, None, answers),
                }
            }
            Err(error) => self.answer_share(ShareAnswer::Heartbeat(error.response(), None), ticket),
        }
    }

    fn share_beats(
        &mut self,
        client: &ClientInfo,
        request: &ShareGroupHeartbeatRequest,
        now: Moment,
    ) -> Result<HeartbeatDecision, ShareGroupError> {
        let beat = ShareHeartbeat { client, request };
        let id = request.group_id.as_str();
        if self.group(id).is_none() && request.member_epoch == 0 {
            let group = ShareGroup::new(id.into());
            let decision = group.heartbeat(&mut self.share_context(id, now), &beat)?;
            let after = FollowUp::ShareSession { group: id.into(), member: decision.member };
            return Ok((decision.records, Some(after), decision.response, decision.initialization));
        }
        let (id, group, mut cx) = self.share_group(id, now)?;
        let decision = group.heartbeat(&mut cx, &beat)?;
        let after = FollowUp::ShareSession { group: id, member: decision.member };
        Ok((decision.records, Some(after), decision.response, decision.initialization))
    }

    fn share_leaves(
        &mut self,
        request: &ShareGroupHeartbeatRequest,
        now: Moment,
    ) -> Result<(Vec<CoordinatorRecord>, ShareGroupHeartbeatResponse), ShareGroupError> {
        let (_, group, mut cx) = self.share_group(&request.group_id, now)?;
        group.leave(&mut cx, &request.member_id)
    }

    fn share_context(&mut self, id: &str, now: Moment) -> ShareContext<'_> {
        let (config, topics) = (&self.shared.config, &*self.shared.topics);
        ShareContext { now, config, times: self.shared.share_times(id), topics, hashes: &mut self.hashes }
    }

    /// A share group and the inputs of its decisions.
    fn share_group(
        &mut self,
        id: &str,
        now: Moment,
    ) -> Result<(Arc<str>, &ShareGroup, ShareContext<'_>), ShareGroupError> {
        let slot = self.groups.get_key_value(id);
        let slot = slot.and_then(|(id, slot)| Some((id, slot.latest()?)));
        let (id, group) = slot.ok_or_else(|| ShareGroupError::NoGroup(id.to_owned()))?;
        let group = group.share().ok_or_else(|| ShareGroupError::OtherKind(id.to_string()))?;
        let (config, topics) = (&self.shared.config, &*self.shared.topics);
        let (times, hashes) = (self.shared.share_times(id), &mut self.hashes);
        Ok((id.clone(), group, ShareContext { now, config, times, topics, hashes }))
    }

    /// True if the name belongs to a share group.
    pub(in super::super) fn is_share_group(&self, id: &str) -> bool {
        self.group(id).is_some_and(|group| group.share().is_some())
    }

    /// The whole state that follows from a share group's records.
    #[cfg(test)]
    pub(in super::super) fn share_picture(&self, id: &str) -> Option<String> {
        self.group(id).and_then(Group::share).map(ShareGroup::picture)
    }

    /// The initialized share partitions of a group; none for other group types.
    pub(in super::super) fn initialized_share_partitions(&self, id: &str) -> SharePartitions {
        self.group(id).and_then(Group::share).map(ShareGroup::initialized).unwrap_or_default()
    }

    /// Answers with the initialized share partitions.
    pub(in super::super) fn show_initialized(&mut self, id: &str, ticket: Ticket) {
        let initialized = self.initialized_share_partitions(id);
        self.answer_share(ShareAnswer::Initialized(Ok(initialized)), ticket);
    }

    fn answer_share(&mut self, answer: ShareAnswer, ticket: Ticket) {
        self.release_after_writes(vec![(ticket, GroupAnswer::Share(answer))]);
    }

    fn write_share(&mut self, records: Vec<CoordinatorRecord>, answer: ShareAnswer, ticket: Ticket) {
        self.write(records, None, vec![(ticket, GroupAnswer::Share(answer))]);
    }

    /// Restarts the session of a share group's member.
    pub(super) fn restart_share_session(&mut self, id: &str, member: &Arc<str>, now: Moment) {
        let at_ms = self.share_session_end(id, now);
        let group = self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::share_mut);
        if let Some(group) = group {
            group.restart_session(&mut self.timers, member, at_ms);
        }
    }

    /// Starts sessions after the replay of the log. Members have a whole session timeout; where records were
    /// lost, their sessions end at once, and the members join again.
    pub(super) fn start_share_sessions(&mut self, id: &str, now: Moment) {
        let at_ms = if self.has_lost_records { now.monotonic_ms } else { self.share_session_end(id, now) };
        let group = self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::share_mut);
        if let Some(group) = group {
            group.start_sessions(&mut self.timers, at_ms);
        }
    }

    /// The end of a session that begins now.
    fn share_session_end(&self, id: &str, now: Moment) -> i64 {
        let timeout_ms = self.shared.share_times(id).session_timeout_ms;
        now.monotonic_ms.saturating_add(i64::from(timeout_ms.max(0)))
    }

    /// Handles the end of a member's session.
    pub(super) fn share_session_over(&mut self, id: &str, timer: Timer, now: Moment) {
        let shared = Arc::clone(&self.shared);
        let cx = &mut ShareContext {
            now,
            config: &shared.config,
            times: shared.share_times(id),
            topics: &*shared.topics,
            hashes: &mut self.hashes,
        };
        let group = self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::share_mut);
        let records = group.and_then(|group| group.session_over(cx, &mut self.timers, timer));
        self.write(records.unwrap_or_default(), None, Vec::new());
    }

    /// Applies a record of a share group. `at` is the offset whose acknowledgement readers must wait for, if
    /// any.
    pub(super) fn apply_share(&mut self, record: ShareGroupRecord, at: Option<i64>, wall_ms: i64) {
        if !self.is_share_group(record.group()) {
            if record.is_tombstone() {
                return;
            }
            self.make_share_group(record.group(), at);
        }
        let id = record.group().to_owned();
        let slot = self.groups.get_mut(id.as_str()).expect("it is there, or was just made");
        let group = slot.latest_mut().and_then(Group::share_mut).expect("it is a share group");
        if !group.apply(record, &mut self.timers, wall_ms) {
            self.remove_group(&id, at);
        }
    }

    /// Creates a share group. Another group with this name is a leftover of a compacted log.
    fn make_share_group(&mut self, id: &str, at: Option<i64>) {
        if self.group(id).is_some() {
            self.remove_group(id, None);
        }
        self.place_group(id, at, |id| ShareGroup::new(id).into());
    }

    /// Describes share groups after the acknowledgement of all decisions so far.
    pub(in super::super) fn describe_share_groups(&mut self, ids: &[String], ticket: Ticket) {
        let topics = &*self.shared.topics;
        let describe = |id: &String| match self.group(id) {
            Some(Group::Share(group)) => group.describe(topics),
            other => {
                let error = match other {
                    None => ShareGroupError::NoGroup(id.clone()),
                    Some(_) => ShareGroupError::OtherKind(id.clone()),
                };
                DescribedGroup {
                    group_id: id.clone(),
                    error_code: ErrorCode::GroupIdNotFound.code(),
                    error_message: Some(error.to_string()),
                    ..DescribedGroup::default()
                }
            }
        };
        let described = ids.iter().map(describe).collect();
        self.answer_share(ShareAnswer::Described(described), ticket);
    }

    /// Handles an AlterShareGroupOffsets request.
    pub(in super::super) fn alter_share_offsets(
        &mut self,
        id: &str,
        topics: &[AlterShareGroupOffsetsRequestTopic],
        ticket: Ticket,
        now: Moment,
    ) {
        let altered = if self.group(id).is_none() {
            let group = ShareGroup::new(id.into());
            group.alter_offsets(&self.share_context(id, now), topics)
        } else {
            self.share_group(id, now).and_then(|(_, group, cx)| group.alter_offsets(&cx, topics))
        };
        let (records, altered) = split(altered);
        self.write_share(records, ShareAnswer::Altered(altered), ticket);
    }

    /// Handles a DeleteShareGroupOffsets request.
    pub(in super::super) fn delete_share_offsets(
        &mut self,
        id: &str,
        names: &[String],
        ticket: Ticket,
        now: Moment,
    ) {
        let deleted = self.share_group(id, now).and_then(|(_, group, cx)| group.delete_offsets(&cx, names));
        let (records, deleted) = split(deleted);
        self.write_share(records, ShareAnswer::DeletedOffsets(deleted), ticket);
    }

    /// Records that the share coordinator has deleted the states of topics.
    pub(in super::super) fn share_offsets_deleted(
        &mut self,
        id: &str,
        topics: &BTreeSet<Uuid>,
        ticket: Ticket,
        now: Moment,
    ) {
        let records = match self.share_group(id, now) {
            Ok((_, group, cx)) => group.offsets_deleted(topics, cx.topics),
            Err(_) => Vec::new(),
        };
        self.write_share(records, ShareAnswer::Noted(Ok(())), ticket);
    }

    /// Prepares the deletion of a share group.
    pub(in super::super) fn delete_share_states(&mut self, id: &str, ticket: Ticket, now: Moment) {
        let deleted = self.share_group(id, now).and_then(|(_, group, cx)| group.delete_states(cx.topics));
        let (records, states) = split(deleted);
        self.write_share(records, ShareAnswer::DeletedStates(states), ticket);
    }

    /// Records that the share coordinator has initialized partitions, or failed to.
    pub(in super::super) fn share_states_answered(
        &mut self,
        id: &str,
        partitions: &SharePartitions,
        succeeded: bool,
        ticket: Ticket,
        now: Moment,
    ) {
        let records = match self.share_group(id, now) {
            Ok((_, group, cx)) => group.states_answered(partitions, succeeded, cx.topics, now.wall_ms),
            // The group was deleted meanwhile.
            Err(_) => Vec::new(),
        };
        self.write_share(records, ShareAnswer::Noted(Ok(())), ticket);
    }

    /// The records that remove the states of deleted topics from share groups.
    pub(super) fn share_states_of_deleted(&self, is_gone: impl Fn(Uuid) -> bool) -> Vec<CoordinatorRecord> {
        let mut ids: Vec<&Arc<str>> =
            self.groups.iter().filter(|(_, slot)| is_share(slot)).map(|(id, _)| id).collect();
        ids.sort_unstable();
        let groups = ids.into_iter().filter_map(|id| self.group(id)?.share());
        groups.filter_map(|group| group.topics_deleted(&is_gone, &*self.shared.topics)).collect()
    }
}

type HeartbeatDecision = (
    Vec<CoordinatorRecord>,
    Option<FollowUp>,
    ShareGroupHeartbeatResponse,
    Option<crate::share::Initialization>,
);

fn is_share(slot: &TimelineObject<Group>) -> bool {
    slot.latest().is_some_and(|group| group.share().is_some())
}

fn split<T>(
    decided: Result<(Vec<CoordinatorRecord>, T), ShareGroupError>,
) -> (Vec<CoordinatorRecord>, Result<T, ShareGroupError>) {
    match decided {
        Ok((records, answer)) => (records, Ok(answer)),
        Err(error) => (Vec::new(), Err(error)),
    }
}
