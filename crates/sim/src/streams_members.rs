//! Members of a streams group (KIP-1071), implemented without the client: they join with a topology whose
//! internal topics the broker creates, own tasks, commit, and give tasks up. Some leave and join again, some
//! die without leaving, and some are paused for longer than their session and then commit as if nothing had
//! happened. `streams_ledger` has the invariants.

use crate::chance::Chance;
use crate::clients::{AGAIN, Clients};
use crate::history::TOPIC;
use crate::streams_ledger::{StreamsLedger, Task, TaskOwner, member_id};
use crate::streams_topology::{COUNTS, Shape, description, ids, source, tasks};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_client::{Cluster, Connection, CoordinatorKind};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use thalweg_wire::request::streams_group_heartbeat_response::TaskIds;
use thalweg_wire::request::{
    OffsetCommitRequest, OffsetFetchRequest, StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
};
use tokio::time::{Instant, timeout_at};

/// `group.streams.session.timeout.ms` of the brokers.
pub(crate) const SESSION: Duration = Duration::from_secs(6);
/// `group.streams.num.standby.replicas` of the brokers.
pub(crate) const STANDBYS: usize = 1;
/// Longer than a member takes to give tasks up, which happens at the latest when its session ends.
const REBALANCE_TIMEOUT_MS: i32 = 20_000;
/// Maximum time until a member gives a task up.
const REVOKES_WITHIN: Duration = Duration::from_secs(3);
/// Maximum pause of a process.
const PAUSE_MS_MAX: u64 = 12_000;
/// The newest versions that identify topics by name.
const COMMIT_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 9;
const LEAVES: i32 = -1;
/// An epoch that no group reaches here.
const FAR_EPOCH: i32 = 1_000_000;

/// The member is no longer in the group, or does not know: it starts again under another id.
struct LostMembership;

/// The life of a member under one id.
struct Member<'a> {
    clients: &'a Clients,
    cluster: Cluster,
    owner: TaskOwner,
    shape: Shape,
    epoch: i32,
    /// The highest epoch of any member before this one joined.
    joined_after: i32,
    /// Active tasks assigned by the coordinator, each with the highest epoch at which the member did not have
    /// it.
    assigned: BTreeMap<Task, i32>,
    /// Standby tasks assigned by the coordinator.
    assigned_standby: BTreeSet<Task>,
    /// Owned active tasks with their positions.
    owned: BTreeMap<Task, i64>,
    /// Standby tasks that are not given up.
    standby: BTreeSet<Task>,
    /// Time of the coordinator's request to revoke tasks.
    asked_to_revoke: Option<Instant>,
    /// True if the next heartbeat has all fields.
    is_full: bool,
    /// True if the coordinator knows the owned tasks.
    is_reported: bool,
    /// True if a heartbeat without an answer may still arrive.
    is_in_doubt: bool,
    /// Time at which the session may end while tasks are owned.
    ends: Instant,
}

impl Clients {
    /// Joins, owns tasks and leaves repeatedly, as long as the future is polled.
    pub(crate) async fn be_streams_member(self, id: u32, shape: Shape) {
        let mut chance = Chance::new(self.seed, 7000 + u64::from(id));
        for life in 0.. {
            let mut member = Member {
                clients: &self,
                cluster: self.cluster(&format!("streams-member-{id}")).await,
                owner: (id, life),
                shape,
                epoch: 0,
                joined_after: self.history.with(|known| known.streams.epoch()),
                assigned: BTreeMap::new(),
                assigned_standby: BTreeSet::new(),
                owned: BTreeMap::new(),
                standby: BTreeSet::new(),
                asked_to_revoke: None,
                is_full: true,
                is_reported: false,
                is_in_doubt: false,
                ends: Instant::now() + SESSION,
            };
            let ended = member.live(&mut chance).await;
            member.give_up(|_| true);
            // A killed member sends nothing.
            if ended.is_ok() && !chance.one_in(3) {
                member.leave().await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Describes the group repeatedly.
    pub(crate) async fn watch_streams(self) {
        let cluster = self.cluster("streams-administrator").await;
        loop {
            tokio::time::sleep(AGAIN).await;
            let Ok(connection) = cluster.coordinator(CoordinatorKind::Group, COUNTS).await else { continue };
            let request = StreamsGroupDescribeRequest {
                group_ids: vec![COUNTS.to_owned()],
                ..StreamsGroupDescribeRequest::default()
            };
            let Ok(answer) = connection.send(&request).await else { continue };
            let described = answer.groups.into_iter().find(|group| group.error_code == 0);
            if let Some(group) = described.map(description) {
                let wrong = self.history.with(|known| known.streams.describes(group));
                wrong.iter().for_each(|what| self.history.violation(format!("streams group: {what}")));
            }
        }
    }
}

impl Member<'_> {
    fn violation(&self, what: &str) {
        self.clients.history.violation(format!("streams group: {what}"));
    }

    fn ledger<T>(&self, work: impl FnOnce(&mut StreamsLedger) -> T) -> T {
        self.clients.history.with(|known| work(&mut known.streams))
    }

    /// Runs from joining until the member wants to leave.
    async fn live(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        loop {
            match timeout_at(self.ends, self.round(chance)).await {
                Ok(outcome) => outcome?,
                // The session may be over, which does not matter without tasks.
                Err(_) if self.owned.is_empty() => {
                    (self.is_full, self.is_in_doubt) = (true, true);
                    self.ends = Instant::now() + SESSION;
                }
                Err(_) => return Err(LostMembership),
            }
            if self.epoch == 0 || self.clients.ending.load(Ordering::SeqCst) {
                continue;
            }
            match chance.below(150) {
                0 => return Ok(()),
                1 | 2 => self.pause(chance).await?,
                3 => self.leave_and_return(chance).await?,
                _ => {}
            }
        }
    }

    /// Sends a heartbeat, and acts on the answer.
    async fn round(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        tokio::time::sleep(Duration::from_millis(chance.between(100, 400))).await;
        self.revoke(chance);
        let Some(connection) = self.coordinator().await else { return Ok(()) };
        let sent = Instant::now();
        let least = if self.epoch == 0 { self.ledger(|ledger| ledger.epoch()) } else { self.epoch };
        let answer = match connection.send(&self.heartbeat()).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::info!(owner = ?self.owner, %error, "Heartbeat was not answered");
                (self.is_full, self.is_in_doubt) = (true, true);
                return Ok(());
            }
        };
        if self.handle_answer(least, answer)? {
            self.work(&connection, sent, chance).await?;
        }
        Ok(())
    }

    async fn coordinator(&self) -> Option<Connection> {
        self.cluster.coordinator(CoordinatorKind::Group, COUNTS).await.ok()
    }

    fn heartbeat(&self) -> StreamsGroupHeartbeatRequest {
        let (joins, says_all) = (self.epoch == 0, self.is_full || self.epoch == 0);
        let reports = says_all || !self.is_reported;
        // Members of the same process share a disk.
        let process = format!("process-{}", self.owner.0 / 2);
        StreamsGroupHeartbeatRequest {
            rebalance_timeout_ms: if says_all { REBALANCE_TIMEOUT_MS } else { -1 },
            topology: joins.then(|| self.shape.topology()),
            process_id: says_all.then_some(process),
            active_tasks: reports.then(|| ids(self.owned.keys().copied())),
            standby_tasks: reports.then(|| ids(self.standby.iter().copied())),
            warmup_tasks: reports.then(Vec::new),
            ..self.farewell(self.epoch)
        }
    }

    fn farewell(&self, member_epoch: i32) -> StreamsGroupHeartbeatRequest {
        StreamsGroupHeartbeatRequest {
            group_id: COUNTS.to_owned(),
            member_id: member_id(self.owner),
            member_epoch,
            rebalance_timeout_ms: -1,
            ..StreamsGroupHeartbeatRequest::default()
        }
    }

    /// Handles an answer. Returns true if the member is at an epoch of the group.
    fn handle_answer(
        &mut self,
        least: i32,
        answer: StreamsGroupHeartbeatResponse,
    ) -> Result<bool, LostMembership> {
        let code = ErrorCode::from_i16(answer.error_code).unwrap_or(ErrorCode::UnknownServerError);
        tracing::debug!(owner = ?self.owner, ?answer, "Heartbeat");
        match code {
            ErrorCode::None => {}
            ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::RequestTimedOut => {
                (self.is_full, self.is_in_doubt) = (true, true);
                return Ok(false);
            }
            // The member joins again under its id, unless an earlier heartbeat may still arrive.
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId if !self.is_in_doubt => {
                tracing::info!(owner = ?self.owner, ?code, "Member was fenced");
                self.begin_again();
                return Ok(false);
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound
            // A starting broker does not know `streams.version` yet.
            | ErrorCode::UnsupportedVersion => return Err(LostMembership),
            _ => {
                let (owner, message) = (self.owner, &answer.error_message);
                self.violation(&format!("member {owner:?} got {code:?}: {message:?}"));
                return Err(LostMembership);
            }
        }
        let before = std::mem::replace(&mut self.epoch, answer.member_epoch);
        let wrong = self.ledger(|ledger| ledger.note_heartbeat(self.owner, least, answer.member_epoch));
        wrong.iter().for_each(|what| self.violation(what));
        (self.is_full, self.is_reported) = (false, true);
        let all = |ids: Vec<TaskIds>| tasks(ids.into_iter().map(|ids| (ids.subtopology_id, ids.partitions)));
        if let Some(active) = answer.active_tasks {
            let (had, not_at) = (std::mem::take(&mut self.assigned), before.max(self.joined_after));
            let at = |task: Task| (task, had.get(&task).copied().unwrap_or(not_at));
            self.assigned = all(active).into_iter().map(at).collect();
        }
        if let Some(standby) = answer.standby_tasks {
            self.assigned_standby = all(standby);
        }
        if answer.warmup_tasks.is_some_and(|warmup| !warmup.is_empty()) {
            self.violation(&format!("member {:?} got warm-up tasks", self.owner));
        }
        self.check_roles();
        let new = self.assigned_standby.difference(&self.standby).copied();
        let new: Vec<Task> = new.filter(|task| !self.owned.contains_key(task)).collect();
        self.is_reported &= new.is_empty();
        self.standby.extend(new);
        let is_asked = self.owned.keys().any(|task| !self.assigned.contains_key(task))
            || !self.standby.is_subset(&self.assigned_standby);
        self.asked_to_revoke = is_asked.then(|| self.asked_to_revoke.unwrap_or_else(Instant::now));
        Ok(true)
    }

    /// Checks that all assigned tasks exist, each in one role.
    fn check_roles(&self) {
        let known: BTreeMap<Task, bool> = self.shape.tasks().collect();
        for task in self.assigned.keys().chain(&self.assigned_standby) {
            if !known.contains_key(task) {
                self.violation(&format!("member {:?} got {task}, which does not exist", self.owner));
            }
        }
        for task in &self.assigned_standby {
            if self.assigned.contains_key(task) || known.get(task) == Some(&false) {
                self.violation(&format!("member {:?} got a standby of {task}", self.owner));
            }
        }
    }

    /// Gives up the requested tasks, some time later.
    fn revoke(&mut self, chance: &mut Chance) {
        let Some(asked) = self.asked_to_revoke else { return };
        if chance.one_in(3) || asked.elapsed() > REVOKES_WITHIN {
            let assigned: BTreeSet<Task> = self.assigned.keys().copied().collect();
            self.give_up(|task| !assigned.contains(&task));
            self.standby.retain(|task| self.assigned_standby.contains(task));
            self.asked_to_revoke = None;
        }
    }

    /// Gives up active tasks.
    fn give_up(&mut self, which: impl Fn(Task) -> bool) {
        let (owner, history) = (self.owner, &self.clients.history);
        self.is_reported = false;
        self.owned.retain(|&task, _| {
            if which(task) {
                history.with(|known| known.streams.gives_up(owner, task));
            }
            !which(task)
        });
    }

    /// Drops all tasks, and joins again under the same id.
    fn begin_again(&mut self) {
        self.give_up(|_| true);
        self.standby.clear();
        self.assigned_standby.clear();
        self.assigned.clear();
        self.asked_to_revoke = None;
        (self.epoch, self.is_full) = (0, true);
    }

    /// Leaves for good. Returns true if the request was answered.
    async fn leave(&self) -> bool {
        let Some(connection) = self.coordinator().await else { return false };
        match connection.send(&self.farewell(LEAVES)).await {
            Ok(answer) => answer.error_code == 0,
            Err(error) => {
                tracing::info!(owner = ?self.owner, %error, "Farewell was not answered: the session ends in time");
                false
            }
        }
    }

    /// Leaves, and joins under the same id. In between, commits of the member must be refused.
    async fn leave_and_return(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        let (had, epoch) = (self.owned.clone(), self.epoch);
        self.give_up(|_| true);
        if self.is_in_doubt || !self.leave().await {
            return Err(LostMembership);
        }
        if !had.is_empty()
            && let Some(connection) = self.coordinator().await
            && self.commit(&connection, epoch, &had).await?
        {
            self.violation(&format!("member {:?} has committed after it left", self.owner));
        }
        tokio::time::sleep(Duration::from_millis(chance.below(2_000))).await;
        self.begin_again();
        self.joined_after = self.ledger(|ledger| ledger.epoch());
        Ok(())
    }

    /// Pauses the process. When its session may be over, other members may have its tasks. The member learns
    /// this only later, and first commits its old positions.
    async fn pause(&mut self, chance: &mut Chance) -> Result<(), LostMembership> {
        let until = Instant::now() + Duration::from_millis(chance.between(1_000, PAUSE_MS_MAX));
        let had = self.owned.clone();
        tokio::time::sleep_until(until.min(self.ends)).await;
        if until < self.ends || had.is_empty() {
            return Ok(());
        }
        self.give_up(|_| true);
        tokio::time::sleep_until(until).await;
        (self.is_full, self.ends) = (true, Instant::now() + SESSION);
        let Some(connection) = self.coordinator().await else { return Ok(()) };
        for (task, position) in had {
            let last = self.ledger(|ledger| ledger.last());
            let position = BTreeMap::from([(task, position)]);
            if self.commit(&connection, self.epoch, &position).await?
                && let Some(wrong) = StreamsLedger::late_commit(self.owner, task, &last)
            {
                self.violation(&wrong);
            }
        }
        self.ends = Instant::now() + SESSION;
        Ok(())
    }

    /// Advances and commits positions, and starts new tasks.
    async fn work(
        &mut self,
        connection: &Connection,
        sent: Instant,
        chance: &mut Chance,
    ) -> Result<(), LostMembership> {
        let before = self.ledger(|ledger| ledger.committed());
        let mut positions = self.owned.clone();
        let new: Vec<Task> =
            self.assigned.keys().copied().filter(|task| !self.owned.contains_key(task)).collect();
        if !new.is_empty() {
            let Some(found) = self.fetch(connection, &new).await else { return Ok(()) };
            positions.extend(found);
        }
        if positions.is_empty() {
            self.ends = sent + SESSION;
            return Ok(());
        }
        for (&task, position) in &mut positions {
            if self.owned.contains_key(&task) {
                *position += self.advance(task, *position, chance);
            }
        }
        if !self.commit(connection, self.epoch, &positions).await? {
            return Ok(());
        }
        // The session of the previous heartbeat belongs to this coordinator.
        self.ends = sent + SESSION;
        if Instant::now() >= self.ends {
            return Err(LostMembership);
        }
        for (task, position) in positions {
            let wrong = self.ledger(|ledger| ledger.owns(self.owner, task, position, &before));
            wrong.iter().for_each(|what| self.violation(what));
            if self.owned.insert(task, position).is_none() {
                self.is_reported = false;
            }
        }
        if chance.one_in(10) { self.commit_wrongly(connection, chance).await } else { Ok(()) }
    }

    /// The next position of a task. The repartition topic has no records, so any offset is valid.
    fn advance(&self, task: Task, position: i64, chance: &mut Chance) -> i64 {
        if source(task) != TOPIC {
            return i64::try_from(chance.below(50)).unwrap_or(0);
        }
        let end = self.clients.history.with(|known| {
            let last = known.read.get(&task.partition).and_then(|read| read.last_key_value());
            last.map_or(0, |(at, _)| at + 1)
        });
        let most = u64::try_from(end - position).unwrap_or(0);
        if most == 0 { 0 } else { i64::try_from(chance.between(1, most)).unwrap_or(0) }
    }

    /// Commits the position of a task at an epoch at which the member did not have the task, or at a future
    /// epoch.
    async fn commit_wrongly(
        &self,
        connection: &Connection,
        chance: &mut Chance,
    ) -> Result<(), LostMembership> {
        let owned: Vec<(Task, i64)> = self.owned.iter().map(|(&task, &position)| (task, position)).collect();
        if owned.is_empty() {
            return Ok(());
        }
        let (task, position) = *chance.pick(&owned);
        // The member may have got the task at that epoch, one heartbeat later.
        let not_at = self.assigned.get(&task).map_or(0, |not_at| not_at - 1);
        let epoch = if not_at < 1 || chance.one_in(4) { FAR_EPOCH } else { not_at };
        if self.commit(connection, epoch, &BTreeMap::from([(task, position)])).await? {
            let (owner, own) = (self.owner, self.epoch);
            self.violation(&format!("{task}: member {owner:?} has committed at epoch {epoch}, not {own}"));
        }
        Ok(())
    }

    /// The committed offsets of tasks, if the coordinator returns them to this member.
    async fn fetch(&self, connection: &Connection, tasks: &[Task]) -> Option<BTreeMap<Task, i64>> {
        let topic = |of_one: &[Task]| OffsetFetchRequestTopics {
            name: source(of_one[0]).to_owned(),
            partition_indexes: of_one.iter().map(|task| task.partition).collect(),
            ..OffsetFetchRequestTopics::default()
        };
        let group = OffsetFetchRequestGroup {
            group_id: COUNTS.to_owned(),
            member_id: Some(member_id(self.owner)),
            member_epoch: self.epoch,
            topics: Some(tasks.chunk_by(are_of_one).map(topic).collect()),
        };
        let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
        let answer = connection.send_at(&request, FETCH_VERSION).await.ok()?;
        let group = answer.groups.into_iter().next().filter(|group| group.error_code == 0)?;
        let mut found = BTreeMap::new();
        for topic in group.topics {
            for at in topic.partitions.iter().filter(|at| at.error_code == 0) {
                let is_it =
                    |task: &&Task| source(**task) == topic.name && task.partition == at.partition_index;
                found.extend(tasks.iter().find(is_it).map(|task| (*task, at.committed_offset.max(0))));
            }
        }
        Some(found)
    }

    /// Commits positions. Returns true if all are committed. A commit without an answer may still arrive as
    /// long as a member with this id and epoch exists, so the member starts again under another id.
    async fn commit(
        &self,
        connection: &Connection,
        epoch: i32,
        positions: &BTreeMap<Task, i64>,
    ) -> Result<bool, LostMembership> {
        let tasks: Vec<Task> = positions.keys().copied().collect();
        let partition = |task: &Task| OffsetCommitRequestPartition {
            partition_index: task.partition,
            committed_offset: positions[task],
            ..OffsetCommitRequestPartition::default()
        };
        let topic = |of_one: &[Task]| OffsetCommitRequestTopic {
            name: source(of_one[0]).to_owned(),
            partitions: of_one.iter().map(partition).collect(),
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: COUNTS.to_owned(),
            generation_id_or_member_epoch: epoch,
            member_id: member_id(self.owner),
            topics: tasks.chunk_by(are_of_one).map(topic).collect(),
            ..OffsetCommitRequest::default()
        };
        let answer = connection.send_at(&request, COMMIT_VERSION).await.map_err(|_| LostMembership)?;
        let mut codes =
            answer.topics.iter().flat_map(|topic| &topic.partitions).map(|found| found.error_code);
        // After an error of the log, the records may be written all the same.
        let certain = [
            ErrorCode::None,
            ErrorCode::StaleMemberEpoch,
            ErrorCode::UnknownMemberId,
            ErrorCode::NotCoordinator,
            // A starting broker does not know all topics yet.
            ErrorCode::UnknownTopicOrPartition,
        ];
        let is_certain = |code| certain.iter().any(|known| known.code() == code);
        if codes.clone().any(|code| !is_certain(code)) {
            return Err(LostMembership);
        }
        Ok(codes.all(|code| code == 0))
    }
}

/// True if both tasks read the same topic.
fn are_of_one(one: &Task, other: &Task) -> bool {
    one.subtopology == other.subtopology
}
