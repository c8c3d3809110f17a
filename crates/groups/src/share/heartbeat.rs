//! A heartbeat of a share group's member: the member joins, changes, gets its partitions or leaves. Also
//! session expiry.

use super::super::client::ClientInfo;
use super::super::member_epoch::LEAVING;
use super::super::record::CoordinatorRecord;
#[cfg(test)]
use super::super::timers::Deadline;
use super::super::timers::{Timer, Timers};
use super::error::ShareGroupError;
use super::member::{Member, filtered, member_tombstones};
use super::{Initialization, ShareGroup, ShareScene};
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
pub(in super::super) struct Beat<'a> {
    pub(in super::super) client: &'a ClientInfo,
    pub(in super::super) request: &'a ShareGroupHeartbeatRequest,
}

/// The outcome of a heartbeat.
pub(in super::super) struct Decision {
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
        scene: &mut ShareScene<'_>,
        beat: &Beat<'_>,
    ) -> Result<Decision, ShareGroupError> {
        let request = beat.request;
        let max = scene.config.share.group_size_max;
        if self.modern.members.len() >= max && !self.modern.members.contains_key(request.member_id.as_str()) {
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
            bumps |= self.lacks_assignment(scene.topics);
        }
        let mut epoch = self.modern.epoch;
        if bumps || self.hashed_at.get().is_none_or(|at| self.modern.epoch < at) {
            let names = self.topics_with(is_known.then_some(&*before), Some(&*after));
            let hash = scene.hashes.of_group(names.into_iter(), scene.topics);
            if bumps || hash != self.modern.metadata_hash {
                bumps = true;
                epoch = self.raise_epoch(hash, &mut records);
            }
            self.hashed_at.set(Some(epoch));
        }
        let target = self.target(scene, epoch, &after, &mut records);
        let mut member = after;
        if bumps || !member.is_reconciled_to(target.epoch) {
            // Topic names would be ambiguous: a topic may have been deleted and created again since.
            let subscribed: BTreeSet<Uuid> =
                member.topics.iter().filter_map(|name| scene.topics.id(name)).collect();
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
            heartbeat_interval_ms: scene.times.heartbeat_interval_ms,
            assignment: shows.then(|| answer(&member)),
            ..ShareGroupHeartbeatResponse::default()
        };
        let initialization = self.initialize(scene, &before, &member, epoch, &mut records);
        Ok(Decision { records, response, member: member.id.clone(), initialization })
    }

    fn known_or_new(&self, request: &ShareGroupHeartbeatRequest) -> Result<Cow<'_, Member>, ShareGroupError> {
        let (id, received) = (request.member_id.as_str(), request.member_epoch);
        let member = match self.modern.members.get(id) {
            Some(member) => member,
            None if received == 0 => {
                tracing::info!(group = %self.modern.id, member = id, "Member joins the share group");
                return Ok(Cow::Owned(Member::new(id.into())));
            }
            None => return Err(ShareGroupError::UnknownMember(id.to_owned())),
        };
        // The previous epoch is also valid, because the answer with the new epoch may be lost.
        let is_one_back = received < member.epoch && received == member.previous_epoch;
        if received == 0 || received == member.epoch || is_one_back {
            Ok(Cow::Borrowed(member))
        } else {
            Err(ShareGroupError::FencedEpoch { received, actual: member.epoch })
        }
    }

    /// Records the partitions whose state is missing, and returns them.
    fn initialize(
        &self,
        scene: &ShareScene<'_>,
        before: &Member,
        after: &Member,
        epoch: i32,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Option<Initialization> {
        if self.is_initialized.get() && before.topics == after.topics {
            return None;
        }
        let known = self.modern.members.get(&before.id);
        let names = self.topics_with(known, Some(after));
        let retry_ms = scene.config.share.initialize_retry_ms;
        let missing = self.states.missing(names.into_iter(), scene.topics, scene.now.wall_ms, retry_ms);
        if missing.is_empty() {
            // An initialization in progress may have to be requested again.
            self.is_initialized.set(self.states.initializing.is_empty());
            return None;
        }
        records.push(self.states.initializing(&missing).to_record(&self.modern.id, scene.topics));
        let offsets = missing
            .into_iter()
            .map(|(id, topic)| (id, topic.partitions.into_iter().map(|partition| (partition, -1)).collect()));
        let (group, offsets) = (self.modern.id.clone(), offsets.collect());
        Some(Initialization { group, state_epoch: epoch, offsets })
    }

    /// Handles the heartbeat of a leaving member.
    pub(in super::super) fn leave(
        &self,
        scene: &mut ShareScene<'_>,
        member_id: &str,
    ) -> Result<(Vec<CoordinatorRecord>, ShareGroupHeartbeatResponse), ShareGroupError> {
        let member = self.member(member_id)?;
        tracing::info!(group = %self.modern.id, member = member_id, "Member left the share group");
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(member_id.to_owned()),
            member_epoch: LEAVING,
            ..ShareGroupHeartbeatResponse::default()
        };
        Ok((self.without(scene, member), response))
    }

    fn without(&self, scene: &mut ShareScene<'_>, member: &Member) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        member_tombstones(&self.modern.id, std::iter::once(&*member.id), None, &mut records);
        let hash = scene.hashes.of_group(self.topics_with(Some(member), None).into_iter(), scene.topics);
        self.raise_epoch(hash, &mut records);
        records
    }

    /// Restarts a member's session, which lasts until `at_ms`.
    pub(in super::super) fn touch(&mut self, timers: &mut Timers, id: &Arc<str>, at_ms: i64) {
        if let Some(session) = self.sessions.get_mut(id) {
            timers.set(session, at_ms, || Timer::Share(self.modern.id.clone(), id.clone()));
        }
    }

    /// Starts the sessions of all members of a newly loaded group.
    pub(in super::super) fn touch_all(&mut self, timers: &mut Timers, at_ms: i64) {
        let ids: Vec<Arc<str>> = self.modern.members.keys().cloned().collect();
        for id in ids {
            self.touch(timers, &id, at_ms);
        }
    }

    /// Handles a member's deadline: the member is removed unless the deadline has moved.
    pub(in super::super) fn session_over(
        &mut self,
        scene: &mut ShareScene<'_>,
        timers: &mut Timers,
        timer: Timer,
    ) -> Option<Vec<CoordinatorRecord>> {
        let Timer::Share(_, id) = &timer else { return None };
        let (id, now_ms) = (id.clone(), scene.now.monotonic_ms);
        if !timers.is_due(self.sessions.get_mut(&id)?, timer, now_ms) {
            return None;
        }
        // A failed write of the removal is retried.
        self.touch(timers, &id, now_ms.saturating_add(RETRY_MS));
        let member = self.modern.members.get(&id)?;
        tracing::info!(group = %self.modern.id, member = %id, epoch = member.epoch, "Member of a share group failed to send a heartbeat");
        Some(self.without(scene, member))
    }

    /// Members whose session never ends.
    #[cfg(test)]
    pub(in super::super) fn without_session(&self) -> Vec<Arc<str>> {
        let has_session = |id: &Arc<str>| self.sessions.get(id).is_some_and(Deadline::is_set);
        self.modern.members.keys().filter(|id| !has_session(id)).cloned().collect()
    }

    /// Cancels all sessions of a removed group.
    pub(in super::super) fn forget_sessions(&mut self, timers: &mut Timers) {
        for (_, mut session) in self.sessions.drain() {
            timers.cancel(&mut session);
        }
    }
}

/// The member as described by the request; `None` if nothing changed.
fn updated(member: &Member, beat: &Beat<'_>) -> Option<Member> {
    let request = beat.request;
    let topics = request.subscribed_topic_names.as_ref().filter(|names| {
        let distinct: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        !distinct.iter().copied().eq(member.topics.iter().map(String::as_str))
    });
    let rack_differs = request.rack_id.is_some() && request.rack_id != member.rack_id;
    if topics.is_none() && !rack_differs && *beat.client == member.client {
        return None;
    }
    let mut member = member.clone();
    if rack_differs {
        member.rack_id.clone_from(&request.rack_id);
    }
    if let Some(topics) = topics {
        member.topics = Arc::new(topics.iter().cloned().collect());
    }
    member.client = beat.client.clone();
    Some(member)
}

fn answer(member: &Member) -> AssignmentAnswer {
    let topic = |(topic_id, partitions): (&Uuid, &BTreeSet<i32>)| TopicPartitions {
        topic_id: *topic_id,
        partitions: partitions.iter().copied().collect(),
    };
    AssignmentAnswer { topic_partitions: member.assigned.iter().map(topic).collect() }
}
