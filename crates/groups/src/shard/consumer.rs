//! Consumer groups: heartbeats, requests of classic members, deadlines, and records.

use super::super::answer::{Answer, join_error, sync_error};
use super::super::assignor::ServerAssignor;
use super::super::classic::{GroupState, PendingJoin};
use super::super::client::{ClientInfo, TopicFilter};
use super::super::consumer::{Beat, ConsumerGroup, Matches, Removal, Scene};
use super::super::deadlines::Change;
use super::super::error::MembershipError;
use super::super::heartbeat_error::HeartbeatError;
use super::super::kind::Group;
use super::super::member_epoch::LEAVING;
use super::super::record::{ConsumerRecord, CoordinatorRecord};
use super::super::regex::resolve;
use super::super::timed::TimelineObject;
use super::super::timers::Timer;
use super::super::topics::Topics;
use super::Shard;
use super::write::{FollowUp, Write};
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_shard::{Moment, Ticket, WriteError};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::consumer_group_describe_response::DescribedGroup;
use thalweg_wire::request::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatRequest, HeartbeatResponse,
    LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest,
};

/// Delay before a group whose conversion exceeded a batch is converted again.
const CONVERSION_RETRY_MS: i64 = 60_000;

impl Shard {
    /// Handles a ConsumerGroupHeartbeat request, in which a joining member has an id.
    pub fn consumer_heartbeat(
        &mut self,
        client: &ClientInfo,
        request: &ConsumerGroupHeartbeatRequest,
        filter: &TopicFilter,
        ticket: Ticket,
        now: Moment,
    ) {
        let decided = if request.member_epoch <= LEAVING {
            self.consumer_leaves(request, now)
        } else {
            self.consumer_beats(client, request, filter, now)
        };
        match decided {
            Ok((records, after, response)) => {
                let after = match after {
                    FollowUp::Changes(id, changes) => FollowUp::Beat(id, changes, filter.clone()),
                    after => after,
                };
                let answers = vec![(ticket, Answer::ConsumerHeartbeat(response))];
                self.write_group(records, after, answers, now);
            }
            Err(error) => {
                let answers = vec![(ticket, Answer::ConsumerHeartbeat(error.response()))];
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
    ) -> Result<HeartbeatDecision, HeartbeatError> {
        let beat = Beat { client, request };
        let context = Arc::clone(&self.context);
        let scene = &mut Scene {
            now,
            config: &context.config,
            times: context.times(&request.group_id),
            topics: &*context.topics,
            hashes: &mut self.hashes,
        };
        let id = request.group_id.as_str();
        let slot = self.groups.get_key_value(id).and_then(|(id, slot)| Some((id, slot.latest()?)));
        if let Some((id, Group::Consumer(group))) = slot {
            let decision = group.heartbeat(scene, &beat)?;
            return Ok((
                decision.records,
                FollowUp::Changes(id.clone(), decision.changes),
                decision.response,
            ));
        }
        let not_found = || HeartbeatError::NoGroup(id.to_owned());
        if request.member_epoch != 0 {
            return Err(not_found());
        }
        let mut records = Vec::new();
        let (mut changes, mut upgrades) = (Vec::new(), false);
        let shared: Arc<str> = slot.map_or_else(|| id.into(), |(id, _)| id.clone());
        let group = match slot {
            Some((_, Group::Classic(classic))) if classic.state() != GroupState::Empty => {
                let group = ConsumerGroup::of_classic(classic, &shared, &request.member_id, scene)?;
                records.push(CoordinatorRecord::group_tombstone(id));
                group.to_records(&mut records);
                (changes, upgrades) = (group.classic_sessions(), true);
                group
            }
            Some((_, Group::Share(_) | Group::Streams(_))) => return Err(not_found()),
            Some(_) => {
                records.push(CoordinatorRecord::group_tombstone(id));
                ConsumerGroup::new(shared.clone())
            }
            None => ConsumerGroup::new(shared.clone()),
        };
        let decision = group.heartbeat(scene, &beat)?;
        records.extend(decision.records);
        changes.extend(decision.changes);
        let after = match upgrades {
            true => FollowUp::Upgrade(shared, changes, filter.clone(), request.member_id.clone()),
            false => FollowUp::Changes(shared, changes),
        };
        Ok((records, after, decision.response))
    }

    fn consumer_leaves(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest,
        now: Moment,
    ) -> Result<HeartbeatDecision, HeartbeatError> {
        let id = request.group_id.as_str();
        let not_found = || HeartbeatError::NoGroup(id.to_owned());
        let (id, group, mut scene) = self.consumer_group(id, now).ok_or_else(not_found)?;
        let (removal, response) = group.leave(&mut scene, request)?;
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
    fn consumer_group(&mut self, id: &str, now: Moment) -> Option<(Arc<str>, &ConsumerGroup, Scene<'_>)> {
        let (id, slot) = self.groups.get_key_value(id)?;
        let group = slot.latest()?.consumer()?;
        let (config, topics) = (&self.context.config, &*self.context.topics);
        let (times, hashes) = (self.context.times(id), &mut self.hashes);
        Some((id.clone(), group, Scene { now, config, times, topics, hashes }))
    }

    /// Runs the effects of a group's records once the log and the group have them.
    pub(super) fn after_write(&mut self, after: FollowUp, now: Moment) {
        match after {
            FollowUp::Changes(id, changes) => {
                let group = self.groups.get_mut(&id).and_then(TimelineObject::latest_mut);
                let Some(deadlines) = group.and_then(Group::deadlines) else { return };
                for (member, change) in changes {
                    deadlines.change(&mut self.timers, now.monotonic_ms, &member, change);
                }
            }
            FollowUp::Beat(id, changes, filter) => {
                self.after_write(FollowUp::Changes(id.clone(), changes), now);
                let interval_ms = self.context.config.consumer.regex_refresh_interval_ms;
                let Some(Group::Consumer(group)) = self.group(&id) else { return };
                let patterns = group.start_resolution(now.wall_ms, interval_ms, self.topics_added_at);
                if let Some(patterns) = patterns {
                    self.resolutions.push(Resolution { group: id, patterns, filter });
                }
            }
            FollowUp::Upgrade(id, changes, filter, _) => {
                tracing::info!(group = %id, "Converted the classic group to a consumer group");
                self.after_write(FollowUp::Beat(id, changes, filter), now);
            }
            FollowUp::ShareSession(id, member) => self.begin_share_session(&id, &member, now),
            FollowUp::Delay(id, changes, delay_ms) => {
                self.after_write(FollowUp::Changes(id.clone(), changes), now);
                self.begin_delay(&id, delay_ms, now);
            }
            FollowUp::Downgrade(id, downgrade) => {
                tracing::info!(group = %id, "Converted the consumer group to a classic group");
                // The record has the metadata of one protocol only; the group in memory has all.
                self.groups.entry(id.clone()).or_default().set(Some(Group::Classic(downgrade.group)));
                let decided = self.with_group(&id, now, |group, cx| {
                    group.start_sessions(cx.timers, cx.now.monotonic_ms);
                    if downgrade.rebalances {
                        group.prepare_rebalance(cx);
                    }
                });
                if let Some(((), effects)) = decided {
                    self.settle(effects);
                }
            }
        }
    }

    /// Runs the effects of records that could not be written. The member did send a heartbeat, so its session
    /// continues.
    pub(super) fn after_refusal(
        &mut self,
        after: FollowUp,
        write: &mut Write,
        error: WriteError,
        batch_bytes_max: usize,
        now: Moment,
    ) {
        let compression = self.context.config.offsets_topic_compression;
        match after {
            FollowUp::Upgrade(id, _, _, member) if error == WriteError::TooLarge => {
                // The size of one member's subscription must not keep other members from converting the
                // group.
                if write.is_too_large_without(&member, batch_bytes_max, compression, now) {
                    self.put_off_conversion(&id, now);
                } else {
                    self.put_off_conversion_by(&member, &id, now);
                }
            }
            FollowUp::Downgrade(id, _) if error == WriteError::TooLarge => self.put_off_conversion(&id, now),
            FollowUp::Changes(id, changes)
            | FollowUp::Beat(id, changes, _)
            | FollowUp::Delay(id, changes, _) => {
                let is_session = |(_, change): &(_, Change)| matches!(change, Change::Session(_));
                let sessions = changes.into_iter().filter(is_session).collect();
                self.after_write(FollowUp::Changes(id, sessions), now);
            }
            FollowUp::ShareSession(id, member) => self.begin_share_session(&id, &member, now),
            FollowUp::Upgrade(..) | FollowUp::Downgrade(..) => {}
        }
    }

    /// Delays the conversion of a group whose records exceeded a batch. Clients cannot know the cause and
    /// retry at once; until the delay ends, these records are not built again.
    fn put_off_conversion(&mut self, id: &str, now: Moment) {
        let until_ms = now.monotonic_ms.saturating_add(CONVERSION_RETRY_MS);
        let (stays, members) = match self.groups.get_mut(id).and_then(TimelineObject::latest_mut) {
            Some(Group::Classic(group)) => {
                group.refused_upgrades_mut().put_off(until_ms);
                ("classic", group.size())
            }
            Some(Group::Consumer(group)) => {
                group.refuse_downgrade_until(until_ms);
                ("consumer", group.size())
            }
            _ => return,
        };
        tracing::warn!(
            group = %id, members, stays, retry_after_ms = CONVERSION_RETRY_MS,
            "The group is too large to be converted: its records exceed max.message.bytes of __consumer_offsets. \
             Raise that, or move all members to one protocol while the group is empty"
        );
    }

    /// Delays the conversion by one member whose own records made the write exceed a batch. The member
    /// retries at once; until the delay ends, its joins do not convert the group.
    fn put_off_conversion_by(&mut self, member: &str, id: &str, now: Moment) {
        let until_ms = now.monotonic_ms.saturating_add(CONVERSION_RETRY_MS);
        let Some(Group::Classic(group)) = self.groups.get_mut(id).and_then(TimelineObject::latest_mut) else {
            return;
        };
        if !group.refused_upgrades_mut().put_off_by(member, until_ms, now.monotonic_ms) {
            self.put_off_conversion(id, now);
            return;
        }
        tracing::warn!(
            group = %id, member, retry_after_ms = CONVERSION_RETRY_MS,
            "The member does not convert its group: with its subscription, the records exceed max.message.bytes of \
             __consumer_offsets. Raise that, or subscribe the member to fewer topics"
        );
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
    pub(super) fn start_consumer_sessions(&mut self, id: &str, now: Moment) {
        let has_lost_records = self.has_lost_records;
        let Some((id, group, scene)) = self.consumer_group(id, now) else { return };
        let timeout_ms = if has_lost_records { 0 } else { scene.times.session_timeout_ms };
        let changes = group.deadlines_at_start(timeout_ms);
        self.after_write(FollowUp::Changes(id, changes), now);
    }

    /// Handles the deadline of a member.
    pub(super) fn consumer_deadline_over(&mut self, id: &str, timer: Timer, now: Moment) {
        let context = Arc::clone(&self.context);
        let scene = &mut Scene {
            now,
            config: &context.config,
            times: context.times(id),
            topics: &*context.topics,
            hashes: &mut self.hashes,
        };
        let group =
            self.groups.get_mut(id).and_then(TimelineObject::latest_mut).and_then(Group::consumer_mut);
        let removal = group.and_then(|group| group.deadline_over(scene, &mut self.timers, timer));
        if let Some(removal) = removal {
            let (records, after) = removed(id.into(), removal);
            self.write_group(records, after, Vec::new(), now);
        }
    }

    /// Handles changed topics: subscribed groups read them again on their next heartbeat.
    pub fn topics_changed(&mut self, topics: &[String], are_some_new: bool) {
        if are_some_new {
            self.topics_added_at = self.context.topics.version();
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
        let Some((id, group, mut scene)) = self.consumer_group(id, now) else { return };
        let records = group.end_resolution(&mut scene, matches, version);
        self.write_group(records, FollowUp::Changes(id, Vec::new()), Vec::new(), now);
    }

    /// The regular expressions to resolve.
    pub(in super::super) fn take_resolutions(&mut self) -> Vec<Resolution> {
        std::mem::take(&mut self.resolutions)
    }

    /// Describes consumer groups after the acknowledgement of all decisions so far.
    pub fn describe_consumer_groups(&mut self, ids: &[String], ticket: Ticket) {
        let (config, topics) = (&self.context.config.consumer, &*self.context.topics);
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
        self.release_after_writes(vec![(ticket, Answer::ConsumerDescribe(described))]);
    }

    /// Handles JoinGroup to a consumer group.
    pub(super) fn join_consumer_group(&mut self, joining: &PendingJoin<'_>, now: Moment) {
        let request = joining.request;
        let (id, group, mut scene) =
            self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        match group.join_classic(&mut scene, joining, &joining.unique.to_string()) {
            Ok(joined) => {
                let after = match joined.downgrade {
                    Some(downgrade) => FollowUp::Downgrade(id, downgrade),
                    None => FollowUp::Changes(id, joined.changes),
                };
                let answers = vec![(joining.ticket, Answer::JoinGroup(joined.response))];
                self.write_group(joined.records, after, answers, now);
            }
            Err(error) => {
                let refusal = Answer::JoinGroup(join_error(&request.member_id, error));
                self.release_after_writes(vec![(joining.ticket, refusal)]);
            }
        }
    }

    /// Handles SyncGroup to a consumer group.
    pub(super) fn sync_consumer_group(&mut self, request: &SyncGroupRequest, ticket: Ticket, now: Moment) {
        let (id, group, scene) = self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        let (result, changes) = group.sync_classic(request, scene.topics);
        self.after_write(FollowUp::Changes(id, changes), now);
        let answer = Answer::SyncGroup(result.unwrap_or_else(sync_error));
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
        self.after_write(FollowUp::Changes(id, changes), now);
        let error_code = result.err().map_or(ErrorCode::None, MembershipError::code).code();
        let response = HeartbeatResponse { error_code, ..HeartbeatResponse::default() };
        self.release_after_writes(vec![(ticket, Answer::Heartbeat(response))]);
    }

    /// Handles LeaveGroup to a consumer group.
    pub(super) fn leave_consumer_group(&mut self, request: &LeaveGroupRequest, ticket: Ticket, now: Moment) {
        let (id, group, mut scene) =
            self.consumer_group(&request.group_id, now).expect("it is a consumer group");
        let (removal, members) = group.leave_classic(&mut scene, &request.members);
        let (records, after) = removed(id, removal);
        let response = LeaveGroupResponse { members, ..LeaveGroupResponse::default() };
        self.write_group(records, after, vec![(ticket, Answer::LeaveGroup(response))], now);
    }
}

/// Regular expressions of a group to resolve, with the permissions of one of its members.
#[derive(Debug)]
pub(in super::super) struct Resolution {
    pub(in super::super) group: Arc<str>,
    patterns: BTreeSet<Arc<str>>,
    filter: TopicFilter,
}

impl Resolution {
    /// Matches every topic name, so it must not run under the shard's lock. Returns the version of the
    /// metadata, too.
    pub(in super::super) fn look_up(&self, topics: &dyn Topics) -> (Matches, i64) {
        let version = topics.version();
        let names = topics.names();
        let names = names.iter().map(String::as_str);
        (resolve(&self.patterns, names, |topic, count| self.filter.may_describe(topic, count)), version)
    }
}

type HeartbeatDecision = (Vec<CoordinatorRecord>, FollowUp, ConsumerGroupHeartbeatResponse);

fn removed(id: Arc<str>, removal: Removal) -> (Vec<CoordinatorRecord>, FollowUp) {
    let after = match removal.downgrade {
        Some(downgrade) => FollowUp::Downgrade(id, downgrade),
        None => FollowUp::Changes(id, Vec::new()),
    };
    (removal.records, after)
}
