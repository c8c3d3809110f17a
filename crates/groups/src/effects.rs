//! The effects of a group's decision: answers, and a record with its completion.

use super::answer::{Answer, join_error, sync_error};
use super::config::GroupConfig;
use super::error::MembershipError;
use super::member::Terms;
use super::record::CoordinatorRecord;
use super::timers::Timers;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_shard::{Moment, Ticket};
use thalweg_wire::request::{JoinGroupResponse, SyncGroupResponse};

/// The context of a group's decisions, and their output.
pub(super) struct Context<'a> {
    pub(super) now: Moment,
    pub(super) config: &'a GroupConfig,
    pub(super) timers: &'a mut Timers,
    pub(super) effects: Effects,
}

/// Output of a group's decision.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) answers: Vec<(Ticket, Answer)>,
    /// A record to write. The group's state already contains it.
    pub(super) write: Option<(CoordinatorRecord, Completion)>,
}

/// Work to do when a group's record is acknowledged or fails.
#[derive(Debug)]
pub(super) enum Completion {
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
pub(super) struct StaticMember {
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
    pub(super) fn group(&self) -> &Arc<str> {
        match self {
            Completion::NewGroup { group, .. }
            | Completion::EmptyGroup { group }
            | Completion::Assignment { group, .. } => group,
            Completion::StaticMember(member) => &member.group,
        }
    }
}

impl Context<'_> {
    /// Answers a request.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.effects.answers.push((ticket, answer));
    }

    /// Answers a join.
    pub(super) fn answer_join(&mut self, ticket: Ticket, response: JoinGroupResponse) {
        self.answer(ticket, Answer::JoinGroup(response));
    }

    /// Refuses a join.
    pub(super) fn refuse_join(&mut self, ticket: Ticket, member_id: &str, error: MembershipError) {
        self.answer_join(ticket, join_error(member_id, error));
    }

    /// Answers a sync.
    pub(super) fn answer_sync(&mut self, ticket: Ticket, response: SyncGroupResponse) {
        self.answer(ticket, Answer::SyncGroup(response));
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
