//! The effects of a classic group's decision: answers, and a record with its completion.

use super::member::Terms;
use crate::answer::{GroupAnswer, join_error, sync_error};
use crate::config::GroupConfig;
use crate::error::MembershipError;
use crate::record::CoordinatorRecord;
use crate::timers::Timers;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_shard::{Moment, Ticket};
use thalweg_wire::request::{JoinGroupResponse, SyncGroupResponse};

/// The context of a classic group's decisions, and their output.
pub(in super::super) struct ClassicContext<'a> {
    pub(in super::super) now: Moment,
    pub(in super::super) config: &'a GroupConfig,
    pub(in super::super) timers: &'a mut Timers,
    pub(in super::super) effects: Effects,
}

/// Output of a classic group's decision.
#[derive(Debug, Default)]
pub(in super::super) struct Effects {
    pub(in super::super) answers: Vec<(Ticket, GroupAnswer)>,
    /// A record to write. The group's state already contains it.
    pub(in super::super) write: Option<(CoordinatorRecord, Completion)>,
}

/// Work to do when a classic group's record is acknowledged or fails.
#[derive(Debug)]
pub(in super::super) enum Completion {
    /// A new group. If its record cannot be written, the join that created the group fails.
    NewGroup { group: Arc<str>, ticket: Ticket },
    /// A group that lost its last member.
    EmptyGroup { group: Arc<str> },
    /// Sends the leader's assignment to the members, if the generation is still current.
    Assignment { group: Arc<str>, generation: i32, leader: Arc<str>, assignment: HashMap<String, Bytes> },
    /// Replaces a static member after its return under a new id.
    StaticMember(Box<StaticMember>),
}

/// A static member that returned to a stable group.
#[derive(Debug)]
pub(in super::super) struct StaticMember {
    pub(super) group: Arc<str>,
    pub(super) ticket: Ticket,
    pub(super) version: i16,
    pub(super) instance_id: String,
    pub(super) old_id: Arc<str>,
    pub(super) new_id: Arc<str>,
    /// The leader before the return.
    pub(super) leader: Option<Arc<str>>,
    /// The member's previous terms.
    pub(super) terms: Terms,
}

impl Completion {
    /// The group of the record.
    pub(in super::super) fn group(&self) -> &Arc<str> {
        match self {
            Completion::NewGroup { group, .. }
            | Completion::EmptyGroup { group }
            | Completion::Assignment { group, .. } => group,
            Completion::StaticMember(member) => &member.group,
        }
    }
}

impl ClassicContext<'_> {
    /// Answers a request.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: GroupAnswer) {
        self.effects.answers.push((ticket, answer));
    }

    /// Answers a join.
    pub(super) fn answer_join(&mut self, ticket: Ticket, response: JoinGroupResponse) {
        self.answer(ticket, GroupAnswer::JoinGroup(response));
    }

    /// Refuses a join.
    pub(super) fn refuse_join(&mut self, ticket: Ticket, member_id: &str, error: MembershipError) {
        self.answer_join(ticket, join_error(member_id, error));
    }

    /// Answers a sync.
    pub(super) fn answer_sync(&mut self, ticket: Ticket, response: SyncGroupResponse) {
        self.answer(ticket, GroupAnswer::SyncGroup(response));
    }

    /// Refuses a sync.
    pub(super) fn refuse_sync(&mut self, ticket: Ticket, error: MembershipError) {
        self.answer_sync(ticket, sync_error(error));
    }

    /// The monotonic time `timeout_ms` from now.
    pub(super) fn after(&self, timeout_ms: i32) -> i64 {
        self.now.monotonic_ms.saturating_add(i64::from(timeout_ms.max(0)))
    }
}
