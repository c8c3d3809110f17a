//! A heartbeat of a share group's member: the member joins, changes, gets its partitions or leaves. Also
//! session expiry.

use super::error::ShareGroupError;
use super::member::{ShareGroupMember, filtered};
use super::{Initialization, ShareContext, ShareGroup};
use crate::assignor::by_topic;
use crate::client::ClientInfo;
use crate::member_epoch::{self, LEAVING};
use crate::modern::changed_topics;
use crate::record::{CoordinatorRecord, ShareGroupRecord};
#[cfg(test)]
use crate::timers::Deadline;
use crate::timers::{Timer, Timers};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_wire::Uuid;
use thalweg_wire::request::share_group_heartbeat_response::{
    Assignment as AssignmentAnswer, TopicPartitions,
};
use thalweg_wire::request::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};

/// Interval between attempts to remove a member.
const RETRY_MS: i64 = 500;

/// A heartbeat of a member that is not leaving.
pub(in super::super) struct ShareHeartbeat<'a> {
    pub(in super::super) client: &'a ClientInfo,
    pub(in super::super) request: &'a ShareGroupHeartbeatRequest,
}

/// The outcome of a heartbeat.
pub(in super::super) struct ShareDecision {
    pub(in super::super) records: Vec<CoordinatorRecord>,
    pub(in super::super) response: ShareGroupHeartbeatResponse,
    /// The member whose session restarts once the records are written.
    pub(in super::super) member: Arc<str>,
    /// Work for the share coordinator once the records are acknowledged.
    pub(in super::super) initialization: Option<Initialization>,
}

impl ShareGroup {
    /// Handles a heartbeat of a member or of a joining member.
    pub(in super::super) fn heartbeat(
        &self,
        cx: &mut ShareContext<'_>,
        beat: &ShareHeartbeat<'_>,
    ) -> Result<ShareDecision, ShareGroupError> {
        let request = beat.request;
        let max = cx.config.share.group_size_max;
        if !self.modern.has_room_for(&request.member_id, max) {
            return Err(ShareGroupError::Full { max });
        }
        let before = self.known_or_new(request)?;
        let after = updated(&before, beat).map_or(Cow::Borrowed(&*before), Cow::Owned);
        let mut records = Vec::new();
        let is_known = self.modern.members.contains_key(&before.id);
        let is_same = std::ptr::eq(&*before, &*after);
        if !is_known || !is_same {
            records.push(after.to_record(&self.modern.id));
        }
        let mut bumps = after.topics != before.topics;
        if self.modern.target_epoch >= self.modern.epoch {
            bumps |= self.lacks_assignment(cx.topics);
        }
        let mut epoch = self.modern.epoch;
        if bumps || self.hashed_at.get().is_none_or(|at| self.modern.epoch < at) {
            let names = self.topics_with(is_known.then_some(&*before), Some(&*after));
            let hash = cx.hashes.of_group(names.into_iter(), cx.topics);
            if bumps || hash != self.modern.metadata_hash {
                bumps = true;
                epoch = self.raise_epoch(hash, &mut records);
            }
            self.hashed_at.set(Some(epoch));
        }
        let target = self.target(cx, epoch, &after, &mut records);
        let mut member = after;
        if bumps || !member.is_reconciled_to(target.epoch) {
            // Topic names would be ambiguous: a topic may have been deleted and created again since.
            let subscribed: BTreeSet<Uuid> =
                member.topics.iter().filter_map(|name| cx.topics.id(name)).collect();
            let assigned = filtered(&target.of_member, |topic| subscribed.contains(&topic));
            let next = member.at_target(target.epoch, assigned);
            if next != *member {
                records.push(next.to_current_record(&self.modern.id));
                member = Cow::Owned(next);
            }
        }
        let shows = request.member_epoch == 0
            || request.subscribed_topic_names.is_some()
            || member.assigned != before.assigned;
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(member.id.to_string()),
            member_epoch: member.epoch,
            heartbeat_interval_ms: cx.times.heartbeat_interval_ms,
            assignment: shows.then(|| answer(&member)),
            ..ShareGroupHeartbeatResponse::default()
        };
        let initialization = self.initialize(cx, &before, &member, epoch, &mut records);
        Ok(ShareDecision { records, response, member: member.id.clone(), initialization })
    }

    fn known_or_new(
        &self,
        request: &ShareGroupHeartbeatRequest,
    ) -> Result<Cow<'_, ShareGroupMember>, ShareGroupError> {
        let (id, received) = (request.member_id.as_str(), request.member_epoch);
        let member = match self.modern.members.get(id) {
            Some(member) => member,
            None if received == 0 => {
                tracing::info!(group = %self.modern.id, member = id, "Member joins the share group");
                return Ok(Cow::Owned(ShareGroupMember::new(id.into())));
            }
            None => return Err(ShareGroupError::UnknownMember(id.to_owned())),
        };
        if member_epoch::is_valid(received, member.epoch, member.previous_epoch, || true) {
            Ok(Cow::Borrowed(member))
        } else {
            Err(ShareGroupError::FencedEpoch { received, actual: member.epoch })
        }
    }

    /// Records the partitions whose state is missing, and returns them.
    fn initialize(
        &self,
        cx: &ShareContext<'_>,
        before: &ShareGroupMember,
        after: &ShareGroupMember,
        epoch: i32,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Option<Initialization> {
        if self.is_initialized.get() && before.topics == after.topics {
            return None;
        }
        let known = self.modern.members.get(&before.id);
        let names = self.topics_with(known, Some(after));
        let retry_ms = cx.config.share.initialize_retry_ms;
        let missing = self.states.missing(names.into_iter(), cx.topics, cx.now.wall_ms, retry_ms);
        if missing.is_empty() {
            // An initialization in progress may have to be requested again. A new subscription says nothing:
            // if it cannot be written, the group keeps the topics of the old one.
            let is_initialized = before.topics == after.topics && self.states.initializing.is_empty();
            self.is_initialized.set(is_initialized);
            return None;
        }
        records.push(self.states.initializing(&missing).to_record(&self.modern.id, cx.topics));
        let offsets = missing
            .into_iter()
            .map(|(id, topic)| (id, topic.partitions.into_iter().map(|partition| (partition, -1)).collect()));
        let (group, offsets) = (self.modern.id.clone(), offsets.collect());
        Some(Initialization { group, state_epoch: epoch, offsets })
    }

    /// Handles the heartbeat of a leaving member.
    pub(in super::super) fn leave(
        &self,
        cx: &mut ShareContext<'_>,
        member_id: &str,
    ) -> Result<(Vec<CoordinatorRecord>, ShareGroupHeartbeatResponse), ShareGroupError> {
        let member = self.member(member_id)?;
        tracing::info!(group = %self.modern.id, member = member_id, "Member left the share group");
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(member_id.to_owned()),
            member_epoch: LEAVING,
            ..ShareGroupHeartbeatResponse::default()
        };
        Ok((self.without(cx, member), response))
    }

    fn without(&self, cx: &mut ShareContext<'_>, member: &ShareGroupMember) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        self.modern.push_member_tombstones::<ShareGroupRecord>(std::iter::once(&*member.id), &mut records);
        let hash = cx.hashes.of_group(self.topics_with(Some(member), None).into_iter(), cx.topics);
        self.raise_epoch(hash, &mut records);
        records
    }

    /// Restarts a member's session, which lasts until `at_ms`.
    pub(in super::super) fn restart_session(&mut self, timers: &mut Timers, id: &Arc<str>, at_ms: i64) {
        if let Some(session) = self.sessions.get_mut(id) {
            timers.set(session, at_ms, || Timer::ShareSession(self.modern.id.clone(), id.clone()));
        }
    }

    /// Starts the sessions of all members of a newly loaded group.
    pub(in super::super) fn start_sessions(&mut self, timers: &mut Timers, at_ms: i64) {
        let ids: Vec<Arc<str>> = self.modern.members.keys().cloned().collect();
        for id in ids {
            self.restart_session(timers, &id, at_ms);
        }
    }

    /// Handles a member's deadline: the member is removed unless the deadline has moved.
    pub(in super::super) fn session_over(
        &mut self,
        cx: &mut ShareContext<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Option<Vec<CoordinatorRecord>> {
        let Timer::ShareSession(_, id) = &timer else { return None };
        let (id, now_ms) = (id.clone(), cx.now.monotonic_ms);
        if !timers.is_due(self.sessions.get_mut(&id)?, timer, now_ms) {
            return None;
        }
        // A failed write of the removal is retried.
        self.restart_session(timers, &id, now_ms.saturating_add(RETRY_MS));
        let member = self.modern.members.get(&id)?;
        tracing::info!(group = %self.modern.id, member = %id, epoch = member.epoch, "Member of a share group failed to send a heartbeat");
        Some(self.without(cx, member))
    }

    /// Members whose session never ends.
    #[cfg(test)]
    pub(in super::super) fn without_session(&self) -> Vec<Arc<str>> {
        let has_session = |id: &Arc<str>| self.sessions.get(id).is_some_and(Deadline::is_set);
        self.modern.members.keys().filter(|id| !has_session(id)).cloned().collect()
    }

    /// Cancels all sessions of a removed group.
    pub(in super::super) fn cancel_sessions(&mut self, timers: &mut Timers) {
        for (_, mut session) in self.sessions.drain() {
            timers.cancel(&mut session);
        }
    }
}

/// The member as described by the request; `None` if nothing changed.
fn updated(member: &ShareGroupMember, beat: &ShareHeartbeat<'_>) -> Option<ShareGroupMember> {
    let request = beat.request;
    let topics = changed_topics(request.subscribed_topic_names.as_ref(), &member.topics);
    let rack_differs = request.rack_id.is_some() && request.rack_id != member.rack_id;
    if topics.is_none() && !rack_differs && *beat.client == member.client {
        return None;
    }
    let mut member = member.clone();
    if rack_differs {
        member.rack_id.clone_from(&request.rack_id);
    }
    if let Some(topics) = topics {
        member.topics = topics;
    }
    member.client = beat.client.clone();
    Some(member)
}

fn answer(member: &ShareGroupMember) -> AssignmentAnswer {
    let make = |topic_id, partitions| TopicPartitions { topic_id, partitions };
    AssignmentAnswer { topic_partitions: by_topic(&member.assigned, make) }
}
