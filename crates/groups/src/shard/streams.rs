//! Streams groups: heartbeats, deadlines, and records.

use super::GroupShard;
use super::follow_up::FollowUp;
use crate::answer::GroupAnswer;
use crate::classic::GroupState;
use crate::client::ClientInfo;
use crate::kind::Group;
use crate::member_epoch::LEAVING;
use crate::record::{CoordinatorRecord, StreamsGroupRecord};
use crate::streams::{
    StreamsAnswer, StreamsContext, StreamsDecision, StreamsGroup, StreamsGroupError, StreamsHeartbeat,
};
use crate::timed::TimelineObject;
use crate::timers::{Timer, Timers};
use std::sync::Arc;
use thalweg_shard::{Moment, Ticket};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::StreamsGroupHeartbeatRequest;
use thalweg_wire::request::streams_group_describe_response::DescribedGroup;

impl GroupShard {
    /// Handles a StreamsGroupHeartbeat request.
    pub(in super::super) fn streams_heartbeat(
        &mut self,
        client: &ClientInfo,
        request: &StreamsGroupHeartbeatRequest,
        ticket: Ticket,
        now: Moment,
    ) {
        let decided = if request.member_epoch <= LEAVING {
            self.streams_leaves(request)
        } else {
            self.streams_beats(client, request, now)
        };
        match decided {
            Ok((records, after, answer)) => {
                self.write_group(records, after, vec![(ticket, GroupAnswer::Streams(answer))], now);
            }
            Err(error) => {
                let answers = vec![(ticket, GroupAnswer::Streams(StreamsAnswer::refused(&error)))];
                self.release_after_writes(answers);
            }
        }
    }

    fn streams_beats(
        &mut self,
        client: &ClientInfo,
        request: &StreamsGroupHeartbeatRequest,
        now: Moment,
    ) -> Result<HeartbeatDecision, StreamsGroupError> {
        let id = request.group_id.as_str();
        let shared = Arc::clone(&self.shared);
        let cx = &mut StreamsContext {
            now,
            config: &shared.config,
            times: shared.streams_times(id),
            topics: &*shared.topics,
            hashes: &mut self.hashes,
        };
        let slot = self.groups.get_key_value(id).and_then(|(id, slot)| Some((id, slot.latest()?)));
        let is_there = matches!(slot, Some((_, Group::Streams(_))));
        let beat = StreamsHeartbeat { client, request, is_there };
        let (id, records, decision) = match slot {
            Some((id, Group::Streams(group))) => (id.clone(), Vec::new(), group.heartbeat(cx, &beat)?),
            None if request.member_epoch == 0 => {
                let id: Arc<str> = id.into();
                let decision = StreamsGroup::new(id.clone()).heartbeat(cx, &beat)?;
                (id, Vec::new(), decision)
            }
            // A classic group without members is replaced by the new group.
            Some((id, Group::Classic(classic)))
                if request.member_epoch == 0 && classic.state() == GroupState::Empty =>
            {
                let decision = StreamsGroup::new(id.clone()).heartbeat(cx, &beat)?;
                (id.clone(), vec![CoordinatorRecord::group_tombstone(id)], decision)
            }
            None => return Err(StreamsGroupError::NoGroup(id.to_owned())),
            Some(_) => return Err(StreamsGroupError::OtherKind(id.to_owned())),
        };
        let StreamsDecision { records: decided, response, changes, delay_ms, topics } = decision;
        let after = match delay_ms {
            Some(delay_ms) => FollowUp::InitialDelay { group: id, changes, delay_ms },
            None => FollowUp::DeadlineChanges { group: id, changes },
        };
        let records = records.into_iter().chain(decided).collect();
        Ok((records, after, StreamsAnswer::Heartbeat(Box::new(response), topics)))
    }

    fn streams_leaves(
        &mut self,
        request: &StreamsGroupHeartbeatRequest,
    ) -> Result<HeartbeatDecision, StreamsGroupError> {
        let id = request.group_id.as_str();
        let group = self.group(id).ok_or_else(|| StreamsGroupError::NoGroup(id.to_owned()))?;
        let group = group.streams().ok_or_else(|| StreamsGroupError::OtherKind(id.to_owned()))?;
        let (records, response) = group.leave(request)?;
        let answer = StreamsAnswer::Heartbeat(Box::new(response), Vec::new());
        let after = FollowUp::DeadlineChanges { group: id.into(), changes: Vec::new() };
        Ok((records, after, answer))
    }

    /// True if the name belongs to a streams group.
    pub(super) fn is_streams_group(&self, id: &str) -> bool {
        self.group(id).is_some_and(|group| group.streams().is_some())
    }

    /// The whole state that follows from a streams group's records.
    #[cfg(test)]
    pub(in super::super) fn streams_picture(&self, id: &str) -> Option<String> {
        self.group(id).and_then(Group::streams).map(StreamsGroup::picture)
    }

    /// Starts the initial delay of a new group.
    pub(super) fn begin_delay(&mut self, id: &str, delay_ms: i32, now: Moment) {
        let at_ms = now.monotonic_ms.saturating_add(i64::from(delay_ms));
        let group = self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::streams_mut);
        if let Some(group) = group {
            group.begin_delay(&mut self.timers, at_ms);
        }
    }

    /// Handles the deadline of a member.
    pub(super) fn streams_deadline_over(&mut self, id: &str, timer: Timer, now: Moment) {
        self.streams_due(id, now, |group, cx, timers| group.deadline_over(cx, timers, timer));
    }

    /// Ends the initial delay of a new group.
    pub(super) fn streams_delay_over(&mut self, id: &str, timer: Timer, now: Moment) {
        self.streams_due(id, now, |group, cx, timers| Some(group.delay_over(cx, timers, timer)));
    }

    fn streams_due(
        &mut self,
        id: &str,
        now: Moment,
        decide: impl FnOnce(&mut StreamsGroup, &StreamsContext<'_>, &mut Timers) -> Option<Vec<CoordinatorRecord>>,
    ) {
        let shared = Arc::clone(&self.shared);
        let cx = StreamsContext {
            now,
            config: &shared.config,
            times: shared.streams_times(id),
            topics: &*shared.topics,
            hashes: &mut self.hashes,
        };
        let group = self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::streams_mut);
        let records = group.and_then(|group| decide(group, &cx, &mut self.timers));
        self.write(records.unwrap_or_default(), None, Vec::new());
    }

    /// Starts deadlines after the replay of the log: members have a whole session and the whole time to
    /// revoke tasks.
    pub(super) fn start_streams_deadlines(&mut self, id: &str, now: Moment) {
        let session_timeout_ms = self.shared.streams_times(id).session_timeout_ms;
        let timeout_ms = if self.has_lost_records { 0 } else { session_timeout_ms };
        if let Some(group) = self.group(id).and_then(Group::streams) {
            let changes = group.deadlines_at_start(timeout_ms);
            self.change_deadlines(id, changes, now);
        }
    }

    /// Applies a record of a streams group. `at` is the offset whose acknowledgement readers must wait for,
    /// if any.
    pub(super) fn apply_streams(&mut self, record: StreamsGroupRecord, at: Option<i64>) {
        let id = record.group().to_owned();
        if !self.is_streams_group(&id) {
            if record.is_tombstone() {
                return;
            }
            // Another group with this name has only offsets, or is a leftover of a compacted log.
            if self.group(&id).is_some() {
                self.remove_group(&id, at);
            }
            self.place_group(&id, at, |id| StreamsGroup::new(id).into());
        }
        let slot = self.groups.get_mut(id.as_str()).expect("it is there, or was just made");
        let group = slot.latest_mut().and_then(Group::streams_mut).expect("it is a streams group");
        if !group.apply(record, &mut self.timers) {
            self.remove_group(&id, at);
        }
    }

    /// Describes streams groups after the acknowledgement of all decisions so far.
    pub(in super::super) fn describe_streams_groups(&mut self, ids: &[String], ticket: Ticket) {
        let not_found = |id: &String, what| DescribedGroup {
            group_id: id.clone(),
            error_code: ErrorCode::GroupIdNotFound.code(),
            error_message: Some(format!("Group {id} {what}.")),
            ..DescribedGroup::default()
        };
        let describe = |id: &String| match self.group(id) {
            Some(Group::Streams(group)) => group.describe(),
            Some(_) => not_found(id, "is not a streams group"),
            None => not_found(id, "not found"),
        };
        let described = StreamsAnswer::Described(ids.iter().map(describe).collect());
        self.release_after_writes(vec![(ticket, GroupAnswer::Streams(described))]);
    }
}

type HeartbeatDecision = (Vec<CoordinatorRecord>, FollowUp, StreamsAnswer);
