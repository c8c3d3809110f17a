//! A heartbeat of a streams group's member: the member joins, changes, or moves towards its target.

use super::configure::{ConfiguredTopology, Status, configure};
use super::error::StreamsGroupError;
use super::member::StreamsGroupMember;
use super::reconcile::Reconciliation;
use super::tasks::{ReportedTasks, TargetTasks, active_ids, ids};
use super::topology::{Topology, value};
use super::{STANDBY_REPLICAS, StreamsContext, StreamsGroup, StreamsGroupRecord};
use crate::client::ClientInfo;
use crate::deadlines::DeadlineChange;
use crate::member_epoch;
use crate::record::CoordinatorRecord;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::group::StreamsGroupTopologyKey;
use thalweg_wire::group::streams_group_member_metadata_value::Endpoint;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::streams_group_heartbeat_response::{Status as StatusAnswer, TaskIds};
use thalweg_wire::request::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};

/// A heartbeat of a member that is not leaving.
pub(in super::super) struct StreamsHeartbeat<'a> {
    pub(in super::super) client: &'a ClientInfo,
    pub(in super::super) request: &'a StreamsGroupHeartbeatRequest,
    /// True if the group exists, so that its endpoint epoch is kept.
    pub(in super::super) is_there: bool,
}

/// The outcome of a heartbeat.
pub(in super::super) struct StreamsDecision {
    pub(in super::super) records: Vec<CoordinatorRecord>,
    pub(in super::super) response: StreamsGroupHeartbeatResponse,
    /// The changes of deadlines, once the records are written.
    pub(in super::super) changes: Vec<(Arc<str>, DeadlineChange)>,
    /// Initial delay of a new group, counted from the write of the records.
    pub(in super::super) delay_ms: Option<i32>,
    /// Internal topics to create.
    pub(in super::super) topics: Vec<CreatableTopic>,
}

/// Statuses in an answer, besides the tasks.
#[derive(Default)]
struct Statuses(Vec<StatusAnswer>);

impl Statuses {
    fn add(&mut self, status: Status, detail: impl Into<String>) {
        self.0.push(StatusAnswer { status_code: status as i8, status_detail: detail.into() });
    }
}

/// The topology fitted to the topics, and the hash of the topics.
struct FittedTopology<'a> {
    topology: Cow<'a, Arc<Topology>>,
    configured: Arc<ConfiguredTopology>,
    hash: i64,
}

impl StreamsGroup {
    /// Handles a heartbeat of a member or of a joining member.
    pub(in super::super) fn heartbeat(
        &self,
        cx: &mut StreamsContext<'_>,
        beat: &StreamsHeartbeat<'_>,
    ) -> Result<StreamsDecision, StreamsGroupError> {
        let request = beat.request;
        let max = cx.config.streams.group_size_max;
        if request.member_epoch == 0 && self.modern.members.len() >= max {
            return Err(StreamsGroupError::Full { max });
        }
        let reported = ReportedTasks::of(request);
        let before = self.known_or_new(request, reported)?;
        let after = updated(&before, beat).map_or(Cow::Borrowed(&*before), Cow::Owned);
        let (mut records, mut statuses) = (Vec::new(), Statuses::default());
        let mut bumps = !std::ptr::eq(&*before, &*after);
        if bumps {
            records.push(after.to_record(&self.modern.id));
        }
        let topology = self.topology_of(request, &mut records)?;
        if let Some(own) = &self.topology
            && after.topology_epoch < own.epoch
        {
            let (sent, epoch) = (after.topology_epoch, own.epoch);
            statuses.add(
                Status::StaleTopology,
                format!("The member's topology epoch {sent} is behind the group's topology epoch {epoch}."),
            );
        }
        let topics = self.fit(cx, topology, &mut bumps)?;
        let configured = &*topics.configured;
        if configured.is_ready() {
            validate_tasks(configured, reported)?;
        }
        let epoch = self.raise_epoch_if(cx, &topics, bumps, &mut records);
        let delay_ms = cx.times.initial_rebalance_delay_ms;
        let begins_delay = self.modern.members.is_empty() && delay_ms > 0 && !self.delay.is_set();
        let delay_ms = begins_delay.then_some(delay_ms);
        let (target_epoch, target) =
            self.target(cx, epoch, configured, &after, delay_ms.is_some(), &mut statuses, &mut records);
        let mut changes = vec![(after.id.clone(), DeadlineChange::Session(cx.times.session_timeout_ms))];
        let mut member = after;
        if !member.is_reconciled_to(target_epoch) {
            let owners = &self.owners;
            let step = Reconciliation { target_epoch, target: &target, owners, reported }.step(&member)?;
            if let Some(next) = step {
                records.push(next.to_current_record(&self.modern.id));
                changes.push((next.id.clone(), DeadlineChange::of_revocation(&next)));
                member = Cow::Owned(next);
            }
        }
        if request.shutdown_application {
            self.shutdown.borrow_mut().get_or_insert_with(|| member.id.clone());
        }
        let mut response = self.answer(cx, beat, &topics.topology, &before, &member);
        if let Some((status, detail)) = &configured.problem {
            statuses.add(*status, detail.as_str());
        }
        if let Some(member) = &*self.shutdown.borrow() {
            statuses.add(
                Status::ShutdownApplication,
                format!("Streams group member {member} encountered a fatal error and requested a shutdown for the entire application."),
            );
        }
        response.status = Some(statuses.0);
        let topics = configured.missing.clone();
        Ok(StreamsDecision { records, response, changes, delay_ms, topics })
    }

    fn known_or_new(
        &self,
        request: &StreamsGroupHeartbeatRequest,
        reported: Option<ReportedTasks<'_>>,
    ) -> Result<Cow<'_, StreamsGroupMember>, StreamsGroupError> {
        let (id, received) = (request.member_id.as_str(), request.member_epoch);
        if received == 0 {
            tracing::info!(group = %self.modern.id, member = id, "Member joins the streams group");
            let known = self.modern.members.get(id).map(Cow::Borrowed);
            return Ok(known.unwrap_or_else(|| Cow::Owned(StreamsGroupMember::new(id.into()))));
        }
        let member = self.member(id)?;
        let reports_assigned = || reported.is_some_and(|reported| reported.are_all_in(&member.assigned));
        if member_epoch::is_valid(received, member.epoch, member.previous_epoch, reports_assigned) {
            Ok(Cow::Borrowed(member))
        } else {
            Err(StreamsGroupError::FencedEpoch { received, actual: member.epoch })
        }
    }

    /// The group's topology, or the topology of the first member, which is recorded.
    fn topology_of(
        &self,
        request: &StreamsGroupHeartbeatRequest,
        records: &mut Vec<CoordinatorRecord>,
    ) -> Result<Cow<'_, Arc<Topology>>, StreamsGroupError> {
        let sent = request.topology.as_ref().map(Topology::of_request).transpose()?;
        match (&self.topology, sent) {
            (Some(own), None) => Ok(Cow::Borrowed(own)),
            (Some(own), Some(sent)) if sent.epoch < own.epoch || sent == **own => Ok(Cow::Borrowed(own)),
            (Some(_), Some(_)) => {
                Err(StreamsGroupError::Invalid("Topology updates are not supported yet.".to_owned()))
            }
            (None, Some(sent)) => {
                let key = StreamsGroupTopologyKey { group_id: self.modern.id.to_string() };
                let value = request.topology.as_ref().map(value);
                records.push(StreamsGroupRecord::Topology(key, value).into());
                Ok(Cow::Owned(Arc::new(sent)))
            }
            (None, None) => {
                Err(StreamsGroupError::Unexpected(format!("Group {} has no topology", self.modern.id)))
            }
        }
    }

    /// Fits the topology to the topics again, if the topics may have changed.
    fn fit<'a>(
        &'a self,
        cx: &mut StreamsContext<'_>,
        topology: Cow<'a, Arc<Topology>>,
        bumps: &mut bool,
    ) -> Result<FittedTopology<'a>, StreamsGroupError> {
        let known = self.configured.borrow().clone().filter(|_| self.topology.is_some());
        let mut hash = self.modern.metadata_hash;
        let are_stale = self.hashed.get() != Some(self.modern.metadata_hash);
        if known.is_none() || are_stale {
            hash = cx.hashes.of_group(topology.required().into_iter(), cx.topics);
            self.hashed.set(Some(hash));
        }
        *bumps |= hash != self.modern.metadata_hash;
        // If a change of the topics could not be written, the fitted topology differs from the recorded hash.
        let configured = match known {
            Some((at, known)) if at == hash => known,
            _ => {
                let configured = Arc::new(configure(&topology, cx.topics)?);
                *self.configured.borrow_mut() = Some((hash, configured.clone()));
                configured
            }
        };
        Ok(FittedTopology { topology, configured, hash })
    }

    /// Raises the group epoch if something changed. Returns the effective epoch.
    fn raise_epoch_if(
        &self,
        cx: &StreamsContext<'_>,
        topics: &FittedTopology<'_>,
        mut bumps: bool,
        records: &mut Vec<CoordinatorRecord>,
    ) -> i32 {
        let validated = if topics.configured.is_ready() { topics.topology.epoch } else { NOT_VALIDATED };
        let standbys = cx.times.standby_replicas;
        bumps |= validated != self.validated_epoch || !self.has_followed(standbys);
        if !bumps {
            return self.modern.epoch;
        }
        let configs = [(STANDBY_REPLICAS.to_owned(), standbys.to_string())].into();
        self.raise_epoch(topics.hash, validated, &configs, records)
    }

    /// The member's target, and its epoch.
    #[expect(clippy::too_many_arguments, reason = "the parts of one decision")]
    fn target(
        &self,
        cx: &StreamsContext<'_>,
        epoch: i32,
        configured: &ConfiguredTopology,
        member: &StreamsGroupMember,
        begins_delay: bool,
        statuses: &mut Statuses,
        records: &mut Vec<CoordinatorRecord>,
    ) -> (i32, Arc<TargetTasks>) {
        if begins_delay || self.delay.is_set() {
            let detail = "Assignment delayed due to the configured initial rebalance delay.";
            statuses.add(Status::AssignmentDelayed, detail);
            return (self.modern.target_epoch, Arc::default());
        }
        if self.modern.target_epoch >= epoch {
            return (self.modern.target_epoch, self.modern.target_of(&member.id));
        }
        if !self.is_target_due(cx) {
            let detail = "Assignment delayed due to the configured assignment interval.";
            statuses.add(Status::AssignmentDelayed, detail);
            return (self.modern.target_epoch, self.modern.target_of(&member.id));
        }
        let standbys = cx.times.standby_replicas;
        let mut targets = self.compute(cx, epoch, configured, standbys, Some(member), records);
        (epoch, Arc::new(targets.remove(&member.id).unwrap_or_default()))
    }

    fn answer(
        &self,
        cx: &StreamsContext<'_>,
        beat: &StreamsHeartbeat<'_>,
        topology: &Topology,
        before: &StreamsGroupMember,
        member: &StreamsGroupMember,
    ) -> StreamsGroupHeartbeatResponse {
        let mut response = StreamsGroupHeartbeatResponse {
            member_id: member.id.to_string(),
            member_epoch: member.epoch,
            heartbeat_interval_ms: cx.times.heartbeat_interval_ms,
            ..StreamsGroupHeartbeatResponse::default()
        };
        let is_news = beat.request.member_epoch == 0 || member.assigned != before.assigned;
        let is_behind =
            ReportedTasks::of(beat.request).is_some_and(|tasks| !tasks.are_those_of(&member.assigned));
        if is_news || is_behind {
            let make = |subtopology_id, partitions| TaskIds { subtopology_id, partitions };
            response.active_tasks = Some(active_ids(&member.assigned.active, make));
            response.standby_tasks = Some(ids(&member.assigned.standby, make));
            response.warmup_tasks = Some(ids(&member.assigned.warmup, make));
        }
        if is_news && member.endpoint.is_some() {
            self.endpoint_epoch.set(self.endpoint_epoch.get().wrapping_add(1));
        }
        let endpoint_epoch = self.endpoint_epoch.get();
        if endpoint_epoch != beat.request.endpoint_information_epoch {
            response.partitions_by_user_endpoint = Some(self.endpoints(member, topology, cx.topics));
        }
        if beat.is_there {
            response.endpoint_information_epoch = endpoint_epoch;
        }
        response
    }
}

/// Validated epoch of a topology that does not fit its topics.
const NOT_VALIDATED: i32 = -1;

/// The member as described by the request; `None` if nothing changed.
fn updated(member: &StreamsGroupMember, beat: &StreamsHeartbeat<'_>) -> Option<StreamsGroupMember> {
    let request = beat.request;
    let timeout_ms = Some(request.rebalance_timeout_ms).filter(|&ms| ms != -1);
    let topology_epoch = request.topology.as_ref().map(|topology| topology.epoch);
    let endpoint = request.user_endpoint.as_ref();
    let endpoint = endpoint.map(|endpoint| Endpoint { host: endpoint.host.clone(), port: endpoint.port });
    let tags = request.client_tags.as_ref().map(|tags| -> BTreeMap<String, String> {
        tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect()
    });
    let is_same = (request.rack_id.is_none() || request.rack_id == member.rack_id)
        && timeout_ms.is_none_or(|ms| ms == member.rebalance_timeout_ms)
        && topology_epoch.is_none_or(|epoch| epoch == member.topology_epoch)
        && request.process_id.as_deref().is_none_or(|id| *id == *member.process_id)
        && (endpoint.is_none() || endpoint == member.endpoint)
        && tags.as_ref().is_none_or(|tags| *tags == member.client_tags)
        && *beat.client == member.client;
    if is_same {
        return None;
    }
    let mut member = member.clone();
    if request.rack_id.is_some() {
        member.rack_id.clone_from(&request.rack_id);
    }
    if let Some(process_id) = &request.process_id {
        member.process_id = process_id.as_str().into();
    }
    member.rebalance_timeout_ms = timeout_ms.unwrap_or(member.rebalance_timeout_ms);
    member.topology_epoch = topology_epoch.unwrap_or(member.topology_epoch);
    member.endpoint = endpoint.or(member.endpoint);
    member.client_tags = tags.unwrap_or(member.client_tags);
    member.client = beat.client.clone();
    Some(member)
}

fn validate_tasks(
    configured: &ConfiguredTopology,
    reported: Option<ReportedTasks<'_>>,
) -> Result<(), StreamsGroupError> {
    for ids in reported.into_iter().flat_map(ReportedTasks::all) {
        let id = &ids.subtopology_id;
        let Some(subtopology) = configured.subtopologies.get(id.as_str()) else {
            let reason = format!("Subtopology {id} does not exist in the topology.");
            return Err(StreamsGroupError::Invalid(reason));
        };
        let tasks = subtopology.tasks;
        if let Some(wrong) = ids.partitions.iter().find(|partition| !(0..tasks).contains(*partition)) {
            return Err(StreamsGroupError::Invalid(format!(
                "Task {wrong} for subtopology {id} is invalid. Number of tasks for this subtopology: {tasks}"
            )));
        }
    }
    Ok(())
}
