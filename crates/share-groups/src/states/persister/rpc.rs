//! Requests to remote share coordinators: InitializeShareGroupState (83), ReadShareGroupState (84),
//! WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87).

use super::Outcome;
use crate::states::error::PersistError;
use crate::states::request::{StateReply, StateRequest};
use crate::states::runs::StateRun;
use std::sync::Arc;
use thalweg_dial::Connection;
use thalweg_hash::{HashMap, HashSet};
use thalweg_membership::{Letter, PeerError};
use thalweg_metadata::{BrokerId, TopicIdPartition};
use thalweg_share::{SharePartitionKey, StateSummary};
use thalweg_wire::request::*;
use thalweg_wire::request::{
    delete_share_group_state_request as delete, initialize_share_group_state_request as initialize,
    read_share_group_state_request as read, read_share_group_state_summary_request as summary,
    write_share_group_state_request as write,
};
use thalweg_wire::{ErrorCode, Uuid};

/// Maximum number of share partitions per request.
const QUESTIONS_AT_ONCE: usize = 1_000;

/// The request for one share partition.
pub(super) struct Question {
    pub(super) key: SharePartitionKey,
    pub(super) request: StateRequest,
}

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Initialize,
    Read,
    Write,
    Delete,
    Summarize,
}

impl Kind {
    pub(super) fn of(request: &StateRequest) -> Kind {
        match request {
            StateRequest::Initialize { .. } => Kind::Initialize,
            StateRequest::Read { .. } => Kind::Read,
            StateRequest::Write(_) => Kind::Write,
            StateRequest::Delete => Kind::Delete,
            StateRequest::Summarize { .. } => Kind::Summarize,
        }
    }
}

type Outcomes = HashMap<(Uuid, i32), Outcome>;

/// The share partitions of a request, all of one group.
#[derive(Default)]
pub(super) struct Load {
    group: Option<Arc<str>>,
    share_partitions: HashSet<TopicIdPartition>,
}

impl Letter for Question {
    const PURPOSE: &'static str = "share-state";
    const FAILURE: &'static str = "Failed to reach a share coordinator";
    type Kind = Kind;
    type Load = Load;
    type Answer = Outcome;

    fn kind(&self) -> Kind {
        Kind::of(&self.request)
    }

    fn join(&self, load: &mut Load) -> bool {
        let group = load.group.get_or_insert_with(|| Arc::clone(&self.key.group));
        *group == self.key.group
            && load.share_partitions.len() < QUESTIONS_AT_ONCE
            && load.share_partitions.insert((self.key.topic, self.key.partition))
    }

    async fn send(
        connection: &Connection,
        _broker: BrokerId,
        questions: &[Question],
    ) -> Result<Vec<Outcome>, PeerError> {
        let Some(first) = questions.first() else { return Ok(Vec::new()) };
        let group_id = first.key.group.to_string();
        // Requests and responses of all APIs have the same form, with types of their own.
        macro_rules! exchange {
            ($request:ident, $module:ident::$topic:ident, $partition:ident, $reply:ident) => {{
                let topic = |topic_id, partitions| $module::$topic { topic_id, partitions };
                let topics = by_topic(questions, $partition, topic);
                let response = connection.send(&$request { group_id, topics }).await?;
                let mut outcomes = Outcomes::default();
                for topic in response.results {
                    for one in topic.partitions {
                        let outcome = outcome(one.error_code, || $reply(&one));
                        outcomes.insert((topic.topic_id, one.partition), outcome);
                    }
                }
                outcomes
            }};
        }
        let mut outcomes = match first.kind() {
            Kind::Initialize => exchange!(
                InitializeShareGroupStateRequest,
                initialize::InitializeStateData,
                initialize_partition,
                changed
            ),
            Kind::Read => {
                exchange!(ReadShareGroupStateRequest, read::ReadStateData, read_partition, state)
            }
            Kind::Write => {
                exchange!(WriteShareGroupStateRequest, write::WriteStateData, write_partition, changed)
            }
            Kind::Delete => {
                exchange!(DeleteShareGroupStateRequest, delete::DeleteStateData, delete_partition, changed)
            }
            Kind::Summarize => exchange!(
                ReadShareGroupStateSummaryRequest,
                summary::ReadStateSummaryData,
                summary_partition,
                state_summary
            ),
        };
        let missing = PersistError::Refused(ErrorCode::UnknownServerError);
        let mut outcome =
            |key: &SharePartitionKey| outcomes.remove(&(key.topic, key.partition.0)).unwrap_or(Err(missing));
        Ok(questions.iter().map(|question| outcome(&question.key)).collect())
    }
}

/// The share partitions of a request by topic. `topic` builds an element from a topic id and its partitions.
fn by_topic<P, T>(
    questions: &[Question],
    partition: fn(i32, &StateRequest) -> Option<P>,
    topic: fn(Uuid, Vec<P>) -> T,
) -> Vec<T> {
    let mut topics: Vec<(Uuid, Vec<P>)> = Vec::new();
    let mut places: HashMap<Uuid, usize> = HashMap::default();
    for Question { key, request, .. } in questions {
        let Some(one) = partition(key.partition.0, request) else { continue };
        let place = *places.entry(key.topic).or_insert_with(|| {
            topics.push((key.topic, Vec::new()));
            topics.len() - 1
        });
        topics[place].1.push(one);
    }
    topics.into_iter().map(|(id, partitions)| topic(id, partitions)).collect()
}

fn initialize_partition(partition: i32, request: &StateRequest) -> Option<initialize::PartitionData> {
    match *request {
        StateRequest::Initialize { state_epoch, start_offset } => {
            Some(initialize::PartitionData { partition, state_epoch, start_offset })
        }
        _ => None,
    }
}

fn read_partition(partition: i32, request: &StateRequest) -> Option<read::PartitionData> {
    match *request {
        StateRequest::Read { leader_epoch } => Some(read::PartitionData { partition, leader_epoch }),
        _ => None,
    }
}

fn write_partition(partition: i32, request: &StateRequest) -> Option<write::PartitionData> {
    let StateRequest::Write(update) = request else { return None };
    let batch = |run: &StateRun| write::StateBatch {
        first_offset: run.first_offset,
        last_offset: run.last_offset,
        delivery_state: run.delivery_state,
        delivery_count: run.delivery_count,
    };
    Some(write::PartitionData {
        partition,
        state_epoch: update.state_epoch,
        leader_epoch: update.leader_epoch,
        start_offset: update.start_offset,
        delivery_complete_count: update.delivery_complete_count,
        state_batches: update.runs.iter().map(batch).collect(),
    })
}

fn delete_partition(partition: i32, _: &StateRequest) -> Option<delete::PartitionData> {
    Some(delete::PartitionData { partition })
}

fn summary_partition(partition: i32, request: &StateRequest) -> Option<summary::PartitionData> {
    match *request {
        StateRequest::Summarize { leader_epoch } => Some(summary::PartitionData { partition, leader_epoch }),
        _ => None,
    }
}

/// The outcome for one share partition.
fn outcome(code: i16, done: impl FnOnce() -> StateReply) -> Outcome {
    match ErrorCode::from_i16(code) {
        Some(ErrorCode::None) => Ok(done()),
        Some(error) => Err(PersistError::of(error)),
        None => Err(PersistError::Refused(ErrorCode::UnknownServerError)),
    }
}

fn changed<P>(_: &P) -> StateReply {
    StateReply::Changed
}

fn state(one: &read_share_group_state_response::PartitionResult) -> StateReply {
    let run = |batch: &read_share_group_state_response::StateBatch| StateRun {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_count: batch.delivery_count,
        delivery_state: batch.delivery_state,
    };
    StateReply::State {
        state_epoch: one.state_epoch,
        start_offset: one.start_offset,
        runs: one.state_batches.iter().map(run).collect(),
    }
}

fn state_summary(one: &read_share_group_state_summary_response::PartitionResult) -> StateReply {
    StateReply::Summary(StateSummary {
        state_epoch: one.state_epoch,
        leader_epoch: one.leader_epoch,
        start_offset: one.start_offset,
        delivery_complete_count: one.delivery_complete_count,
    })
}
