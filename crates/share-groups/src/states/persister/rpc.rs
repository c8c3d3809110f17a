//! Requests to remote share coordinators: InitializeShareGroupState (83), ReadShareGroupState (84),
//! WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87).

use super::super::error::PersistError;
use super::super::request::{StateReply, StateRequest};
use super::super::runs::Run;
use super::Outcome;
use std::sync::Arc;
use thalweg_dial::Connection;
use thalweg_hash::{HashMap, HashSet};
use thalweg_membership::{Letter, PeerError};
use thalweg_metadata::{BrokerId, PartitionIndex};
use thalweg_share::{ShareKey, StateSummary};
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
    pub(super) key: ShareKey,
    pub(super) ask: StateRequest,
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
    pub(super) fn of(ask: &StateRequest) -> Kind {
        match ask {
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
    share_partitions: HashSet<(Uuid, PartitionIndex)>,
}

impl Letter for Question {
    const PURPOSE: &'static str = "share-state";
    const FAILURE: &'static str = "Failed to reach a share coordinator";
    type Kind = Kind;
    type Load = Load;
    type Answer = Outcome;

    fn kind(&self) -> Kind {
        Kind::of(&self.ask)
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
        let mut outcomes = match first.kind() {
            Kind::Initialize => {
                let topics = by_topic(questions, initialize_partition);
                let topics = topics
                    .into_iter()
                    .map(|(topic_id, partitions)| initialize::InitializeStateData { topic_id, partitions });
                let topics = topics.collect();
                initialized(connection.send(&InitializeShareGroupStateRequest { group_id, topics }).await?)
            }
            Kind::Read => {
                let topics = by_topic(questions, read_partition).into_iter();
                let topics =
                    topics.map(|(topic_id, partitions)| read::ReadStateData { topic_id, partitions });
                let topics = topics.collect();
                states(connection.send(&ReadShareGroupStateRequest { group_id, topics }).await?)
            }
            Kind::Write => {
                let topics = by_topic(questions, write_partition).into_iter();
                let topics =
                    topics.map(|(topic_id, partitions)| write::WriteStateData { topic_id, partitions });
                let topics = topics.collect();
                written(connection.send(&WriteShareGroupStateRequest { group_id, topics }).await?)
            }
            Kind::Delete => {
                let topics = by_topic(questions, delete_partition).into_iter();
                let topics =
                    topics.map(|(topic_id, partitions)| delete::DeleteStateData { topic_id, partitions });
                let topics = topics.collect();
                deleted(connection.send(&DeleteShareGroupStateRequest { group_id, topics }).await?)
            }
            Kind::Summarize => {
                let topics = by_topic(questions, summary_partition).into_iter();
                let topics = topics
                    .map(|(topic_id, partitions)| summary::ReadStateSummaryData { topic_id, partitions });
                let topics = topics.collect();
                summaries(connection.send(&ReadShareGroupStateSummaryRequest { group_id, topics }).await?)
            }
        };
        let missing = PersistError::Refused(ErrorCode::UnknownServerError);
        let mut outcome =
            |key: &ShareKey| outcomes.remove(&(key.topic, key.partition.0)).unwrap_or(Err(missing));
        Ok(questions.iter().map(|question| outcome(&question.key)).collect())
    }
}

fn by_topic<P>(
    questions: &[Question],
    partition: fn(i32, &StateRequest) -> Option<P>,
) -> Vec<(Uuid, Vec<P>)> {
    let mut topics: Vec<(Uuid, Vec<P>)> = Vec::new();
    let mut places: HashMap<Uuid, usize> = HashMap::default();
    for Question { key, ask, .. } in questions {
        let Some(one) = partition(key.partition.0, ask) else { continue };
        let place = *places.entry(key.topic).or_insert_with(|| {
            topics.push((key.topic, Vec::new()));
            topics.len() - 1
        });
        topics[place].1.push(one);
    }
    topics
}

fn initialize_partition(partition: i32, ask: &StateRequest) -> Option<initialize::PartitionData> {
    match *ask {
        StateRequest::Initialize { state_epoch, start_offset } => {
            Some(initialize::PartitionData { partition, state_epoch, start_offset })
        }
        _ => None,
    }
}

fn read_partition(partition: i32, ask: &StateRequest) -> Option<read::PartitionData> {
    match *ask {
        StateRequest::Read { leader_epoch } => Some(read::PartitionData { partition, leader_epoch }),
        _ => None,
    }
}

fn write_partition(partition: i32, ask: &StateRequest) -> Option<write::PartitionData> {
    let StateRequest::Write(update) = ask else { return None };
    let batch = |run: &Run| write::StateBatch {
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

fn summary_partition(partition: i32, ask: &StateRequest) -> Option<summary::PartitionData> {
    match *ask {
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

fn initialized(response: InitializeShareGroupStateResponse) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for topic in response.results {
        for one in topic.partitions {
            outcomes.insert((topic.topic_id, one.partition), outcome(one.error_code, || StateReply::Changed));
        }
    }
    outcomes
}

fn written(response: WriteShareGroupStateResponse) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for topic in response.results {
        for one in topic.partitions {
            outcomes.insert((topic.topic_id, one.partition), outcome(one.error_code, || StateReply::Changed));
        }
    }
    outcomes
}

fn deleted(response: DeleteShareGroupStateResponse) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for topic in response.results {
        for one in topic.partitions {
            outcomes.insert((topic.topic_id, one.partition), outcome(one.error_code, || StateReply::Changed));
        }
    }
    outcomes
}

fn states(response: ReadShareGroupStateResponse) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for topic in response.results {
        for one in topic.partitions {
            let run = |batch: &read_share_group_state_response::StateBatch| Run {
                first_offset: batch.first_offset,
                last_offset: batch.last_offset,
                delivery_count: batch.delivery_count,
                delivery_state: batch.delivery_state,
            };
            let done = || StateReply::State {
                state_epoch: one.state_epoch,
                start_offset: one.start_offset,
                runs: one.state_batches.iter().map(run).collect(),
            };
            outcomes.insert((topic.topic_id, one.partition), outcome(one.error_code, done));
        }
    }
    outcomes
}

fn summaries(response: ReadShareGroupStateSummaryResponse) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for topic in response.results {
        for one in topic.partitions {
            let done = || {
                StateReply::Summary(StateSummary {
                    state_epoch: one.state_epoch,
                    leader_epoch: one.leader_epoch,
                    start_offset: one.start_offset,
                    delivery_complete_count: one.delivery_complete_count,
                })
            };
            outcomes.insert((topic.topic_id, one.partition), outcome(one.error_code, done));
        }
    }
    outcomes
}
