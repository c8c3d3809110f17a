//! A group whose members agree on an assignment among themselves (`ClassicGroup`): its state, its members,
//! and the counts used by [`join`], [`rebalance`], [`sync`] and [`leave`].
//!
//! ```text
//!            join                  all joined             leader's assignment written
//!   Empty ─────────► Preparing ─────────────► Completing ─────────────────────────────► Stable
//!     ▲              Rebalance ◄───────────── Rebalance                                   │
//!     └── no member ──┘ ▲       join, leave,                                              │
//!                       │       expiry                                                    │
//!                       └──────────────── join of a new or changed member, leave, expiry ─┘
//! ```
//!
//! Members are kept in the order in which they joined, so that the same events always lead to the same
//! decisions.

mod effects;
mod join;
mod leave;
mod member;
mod rebalance;
mod refused_upgrades;
mod sync;

pub(super) use effects::{ClassicContext, Completion, Effects};
pub(super) use join::PendingJoin;
pub(super) use member::{ClassicGroupMember, Protocol, Terms};
use refused_upgrades::RefusedUpgrades;

use super::error::MembershipError;
use super::record::CoordinatorRecord;
use super::subscription::subscribed_topics;
use super::timers::{Deadline, Timer, Timers};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use thalweg_hash::{HashMap, HashSet};
use thalweg_shard::Ticket;
use thalweg_wire::group::{GroupMetadataKey, GroupMetadataValue};
use thalweg_wire::request::describe_groups_response::DescribedGroup;
use thalweg_wire::request::list_groups_response::ListedGroup;

/// The protocol type of consumers.
const CONSUMER: &str = "consumer";

/// Maximum number of members per group that were given an id and have not rejoined with it. A join beyond
/// this limit gets GROUP_MAX_SIZE_REACHED. Kafka has no such limit.
const PENDING_MEMBERS_MAX: usize = 16_384;

/// The state of a group. A deleted group is not kept, so there is no `Dead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl GroupState {
    /// Kafka's name of the state.
    pub(super) fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The effect of the end of a join phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum JoinPhase {
    /// Removes the members that have not joined by then.
    #[default]
    Rebalance,
    /// A group that was empty checks for more members, and waits again if some arrived.
    Initial { delay_ms: i32, remaining_ms: i32 },
}

/// Waiting requests of the members of a group that is deleted or converted.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    /// Joins, with their members' ids.
    pub(super) joins: Vec<(Ticket, Arc<str>)>,
    pub(super) syncs: Vec<Ticket>,
}

/// A classic group.
#[derive(Debug)]
pub(super) struct ClassicGroup {
    id: Arc<str>,
    state: GroupState,
    /// True if the join phase began in an empty group, which waits for more members however many have joined.
    was_empty: bool,
    /// Wall-clock time of the last state change; `None` if the group's record predates this field.
    state_since_ms: Option<i64>,
    protocol_type: Option<String>,
    protocol_name: Option<String>,
    generation: i32,
    leader: Option<Arc<str>>,
    members: HashMap<Arc<str>, ClassicGroupMember>,
    next_place: u64,
    /// Ids of the static members, by their instance ids.
    static_members: HashMap<String, Arc<str>>,
    /// Generated ids without a second join yet (KIP-394), with their deadlines.
    pending_members: HashMap<Arc<str>, Deadline>,
    /// Members without a SyncGroup in this generation.
    pending_sync: HashSet<Arc<str>>,
    awaiting_join: usize,
    /// Number of members that follow each protocol.
    supported_protocols: HashMap<String, usize>,
    /// True once this generation's only assignment is being written to the log.
    is_assigned: bool,
    /// The topics that all consumers of the group subscribe to, if known.
    subscribed_topics: Option<BTreeSet<String>>,
    /// True if a member joined since the initial rebalance began or was last extended.
    new_member_added: bool,
    join_phase: JoinPhase,
    join_deadline: Deadline,
    sync_deadline: Deadline,
    refused_upgrades: RefusedUpgrades,
}

impl ClassicGroup {
    /// A group without members or history.
    pub(super) fn new(id: Arc<str>, wall_ms: i64) -> ClassicGroup {
        ClassicGroup {
            id,
            state: GroupState::Empty,
            was_empty: false,
            state_since_ms: Some(wall_ms),
            protocol_type: None,
            protocol_name: None,
            generation: 0,
            leader: None,
            members: HashMap::default(),
            next_place: 0,
            static_members: HashMap::default(),
            pending_members: HashMap::default(),
            pending_sync: HashSet::default(),
            awaiting_join: 0,
            supported_protocols: HashMap::default(),
            is_assigned: false,
            subscribed_topics: None,
            new_member_added: false,
            join_phase: JoinPhase::Rebalance,
            join_deadline: Deadline::default(),
            sync_deadline: Deadline::default(),
            refused_upgrades: RefusedUpgrades::default(),
        }
    }

    /// A group from its record.
    pub(super) fn from_record(id: Arc<str>, value: GroupMetadataValue) -> ClassicGroup {
        let mut group = ClassicGroup::new(id, 0);
        group.state = if value.members.is_empty() { GroupState::Empty } else { GroupState::Stable };
        group.state_since_ms = Some(value.current_state_timestamp).filter(|&since| since != -1);
        group.protocol_type = Some(value.protocol_type).filter(|name| !name.is_empty());
        group.protocol_name = value.protocol;
        group.generation = value.generation;
        group.leader = value.leader.map(Arc::from);
        for record in value.members {
            let member =
                ClassicGroupMember::from_record(record, group.protocol_name.as_deref(), group.next_place);
            group.insert(member);
        }
        group.subscribed_topics = group.topics_of_members();
        group
    }

    /// A stable classic group converted from a consumer group, with its members' assignments by their
    /// metadata for the group's protocol.
    pub(super) fn of_consumers(
        id: Arc<str>,
        generation: i32,
        wall_ms: i64,
        members: Vec<ClassicGroupMember>,
        assignment: impl Fn(&ClassicGroupMember, &Bytes) -> Bytes,
    ) -> ClassicGroup {
        let mut group = ClassicGroup::new(id, wall_ms);
        group.state = GroupState::Stable;
        group.protocol_type = Some(CONSUMER.to_owned());
        group.generation = generation;
        members.into_iter().for_each(|member| group.insert(member));
        group.protocol_name = group.select_protocol();
        let protocol = group.protocol_name.clone();
        for member in group.members.values_mut() {
            member.assignment = assignment(member, &member.metadata(protocol.as_deref()));
        }
        group.subscribed_topics = group.topics_of_members();
        group
    }

    /// The group's record with the assignment that its members are about to get.
    fn to_record(&self, mut assignment: impl FnMut(&ClassicGroupMember) -> Bytes) -> CoordinatorRecord {
        let protocol = self.protocol_name.as_deref();
        let members =
            self.in_order().into_iter().map(|m| m.to_record(protocol, assignment(m))).collect::<Vec<_>>();
        let value = GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol_name.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            current_state_timestamp: self.state_since_ms.unwrap_or(-1),
            members,
        };
        CoordinatorRecord::GroupMetadata(GroupMetadataKey { group: self.id.to_string() }, Some(value))
    }

    /// The group's record with the current assignment of its members.
    pub(super) fn snapshot(&self) -> CoordinatorRecord {
        self.to_record(|member| member.assignment.clone())
    }

    /// The record of a new group without a generation.
    pub(super) fn to_empty_record(&self) -> CoordinatorRecord {
        let value = GroupMetadataValue {
            protocol: None,
            leader: None,
            current_state_timestamp: self.state_since_ms.unwrap_or(-1),
            ..GroupMetadataValue::default()
        };
        CoordinatorRecord::GroupMetadata(GroupMetadataKey { group: self.id.to_string() }, Some(value))
    }

    pub(super) fn state(&self) -> GroupState {
        self.state
    }

    /// The current generation.
    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    /// The protocol of the current generation.
    pub(super) fn protocol_name(&self) -> Option<&str> {
        self.protocol_name.as_deref()
    }

    /// Number of members.
    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    /// The members in the order of joining.
    pub(super) fn in_order(&self) -> Vec<&ClassicGroupMember> {
        let mut members: Vec<&ClassicGroupMember> = self.members.values().collect();
        members.sort_unstable_by_key(|member| member.place);
        members
    }

    /// Member ids in the order of joining.
    fn ids_in_order(&self) -> Vec<Arc<str>> {
        self.in_order().into_iter().map(|member| member.id.clone()).collect()
    }

    /// True if the group can be deleted once it has no offsets: it has no members, and none are joining.
    pub(super) fn is_abandoned(&self) -> bool {
        self.state == GroupState::Empty && self.pending_members.is_empty()
    }

    /// True if the group is of consumers.
    pub(super) fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// True if members read the topic. Consumers with an unknown subscription may read any topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.is_of_consumers(),
        }
    }

    /// The time from which an offset's retention counts; `None` while offsets of the group do not expire.
    pub(super) fn retention_starts_ms(&self, commit_timestamp_ms: i64) -> Option<i64> {
        if self.protocol_type.is_none() {
            return Some(commit_timestamp_ms);
        }
        match self.state {
            GroupState::Empty => Some(self.state_since_ms.unwrap_or(commit_timestamp_ms)),
            GroupState::Stable if self.is_of_consumers() && self.subscribed_topics.is_some() => {
                Some(commit_timestamp_ms)
            }
            _ => None,
        }
    }

    /// The group's entry in ListGroups.
    pub(super) fn list(&self) -> ListedGroup {
        ListedGroup {
            group_id: self.id.to_string(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            group_state: self.state.name().to_owned(),
            group_type: "classic".to_owned(),
        }
    }

    /// The group's entry in DescribeGroups.
    pub(super) fn describe(&self) -> DescribedGroup {
        let protocol = self.protocol_name.as_deref();
        let is_stable = self.state == GroupState::Stable;
        let describe =
            |m: &ClassicGroupMember| m.describe(if is_stable { m.metadata(protocol) } else { Bytes::new() });
        DescribedGroup {
            group_id: self.id.to_string(),
            group_state: self.state.name().to_owned(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol_data: if is_stable { protocol.unwrap_or_default().to_owned() } else { String::new() },
            members: self.in_order().into_iter().map(describe).collect(),
            ..DescribedGroup::default()
        }
    }

    /// Checks that a request comes from the member it names. Otherwise the member is unknown or fenced.
    pub(super) fn validate_member(&self, id: &str, instance_id: Option<&str>) -> Result<(), MembershipError> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(MembershipError::UnknownMember),
                Some(current) if **current != *id => return Err(MembershipError::FencedInstance),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(MembershipError::UnknownMember) }
    }

    /// Checks that this member may commit offsets.
    pub(super) fn validate_commit(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        is_transactional: bool,
    ) -> Result<(), MembershipError> {
        if generation < 0 && self.state == GroupState::Empty {
            // An administrator, or a consumer that uses the group for its offsets only.
            return Ok(());
        }
        if generation >= 0 || !member_id.is_empty() || instance_id.is_some() {
            self.validate_member(member_id, instance_id)?;
            if generation != self.generation {
                return Err(MembershipError::IllegalGeneration);
            }
        } else if !is_transactional && self.state != GroupState::Empty {
            return Err(MembershipError::UnknownMember);
        }
        if !is_transactional && self.state == GroupState::CompletingRebalance {
            // The member has this generation's number and not yet its assignment.
            return Err(MembershipError::RebalanceInProgress);
        }
        Ok(())
    }

    /// Restarts the session of a member.
    pub(super) fn restart_session(&mut self, timers: &mut Timers, now_ms: i64, id: &str) {
        let group = &self.id;
        if let Some(member) = self.members.get_mut(id) {
            let at_ms = now_ms.saturating_add(i64::from(member.terms.session_timeout_ms));
            let id = &member.id;
            timers.set(&mut member.session, at_ms, || Timer::ClassicSession(group.clone(), id.clone()));
        }
    }

    /// Conversions to a consumer group whose records were larger than a batch.
    pub(super) fn refused_upgrades(&self) -> &RefusedUpgrades {
        &self.refused_upgrades
    }

    pub(super) fn refused_upgrades_mut(&mut self) -> &mut RefusedUpgrades {
        &mut self.refused_upgrades
    }

    /// Starts the session of every member of a newly loaded group, whose heartbeats went to another broker
    /// before.
    pub(super) fn start_sessions(&mut self, timers: &mut Timers, now_ms: i64) {
        for id in self.ids_in_order() {
            self.restart_session(timers, now_ms, &id);
        }
    }

    /// Ends the session of every member now.
    pub(super) fn end_sessions(&mut self, timers: &mut Timers, now_ms: i64) {
        let group = &self.id;
        for member in self.members.values_mut() {
            let id = &member.id;
            timers.set(&mut member.session, now_ms, || Timer::ClassicSession(group.clone(), id.clone()));
        }
    }

    /// Members without any deadline, which would never be removed if they fell silent.
    #[cfg(test)]
    pub(super) fn without_deadline(&self) -> Vec<Arc<str>> {
        let ends = self.join_deadline.is_set();
        let members = self.members.values().filter(|member| !ends && !member.session.is_set());
        let pending = self.pending_members.iter().filter(|(_, deadline)| !deadline.is_set());
        members.map(|member| member.id.clone()).chain(pending.map(|(id, _)| id.clone())).collect()
    }

    /// Dissolves the group: drops its deadlines, and returns waiting requests, joins first.
    pub(super) fn dissolve(&mut self, timers: &mut Timers) -> WaitingRequests {
        timers.cancel(&mut self.join_deadline);
        timers.cancel(&mut self.sync_deadline);
        for deadline in self.pending_members.values_mut() {
            timers.cancel(deadline);
        }
        for member in self.members.values_mut() {
            timers.cancel(&mut member.session);
        }
        self.awaiting_join = 0;
        let mut waiting = WaitingRequests::default();
        for id in self.ids_in_order() {
            let member = self.members.get_mut(&id).expect("it was just listed");
            waiting.joins.extend(member.awaiting_join.take().map(|ticket| (ticket, id)));
            waiting.syncs.extend(member.awaiting_sync.take());
        }
        waiting
    }

    /// Adds a member and updates the counts.
    fn insert(&mut self, member: ClassicGroupMember) {
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), member.id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        self.count_protocols(&member.terms.protocols, true);
        if member.awaiting_join.is_some() {
            self.awaiting_join += 1;
        }
        self.next_place = self.next_place.max(member.place) + 1;
        self.members.insert(member.id.clone(), member);
    }

    /// Removes a member, or a generated id. Its waiting requests get an error.
    fn remove(&mut self, cx: &mut ClassicContext<'_>, id: &str) {
        if let Some(mut deadline) = self.pending_members.remove(id) {
            cx.timers.cancel(&mut deadline);
        }
        self.pending_sync.remove(id);
        let Some(mut member) = self.members.remove(id) else { return };
        cx.timers.cancel(&mut member.session);
        self.count_protocols(&member.terms.protocols, false);
        if let Some(instance_id) = &member.instance_id {
            self.static_members.remove(instance_id);
        }
        if let Some(ticket) = member.awaiting_join {
            self.awaiting_join -= 1;
            cx.refuse_join(ticket, "", MembershipError::UnknownMember);
        }
        if let Some(ticket) = member.awaiting_sync {
            cx.refuse_sync(ticket, MembershipError::UnknownMember);
        }
        if self.is_leader(id) {
            // The following join phase chooses another leader.
            self.leader = None;
        }
    }

    fn count_protocols(&mut self, protocols: &[Protocol], add: bool) {
        for protocol in protocols {
            let count = self.supported_protocols.entry(protocol.name.clone()).or_default();
            if add {
                *count += 1;
            } else {
                *count -= 1;
                if *count == 0 {
                    self.supported_protocols.remove(&protocol.name);
                }
            }
        }
    }

    fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    fn transition_to(&mut self, state: GroupState, wall_ms: i64) {
        self.was_empty = self.state == GroupState::Empty;
        self.state = state;
        self.state_since_ms = Some(wall_ms);
    }

    /// The topics that all members together subscribe to; `None` unless all are consumers with a known
    /// subscription.
    fn topics_of_members(&self) -> Option<BTreeSet<String>> {
        if !self.is_of_consumers() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol_name.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(subscribed_topics(&member.metadata(Some(protocol)))?);
        }
        Some(topics)
    }
}
