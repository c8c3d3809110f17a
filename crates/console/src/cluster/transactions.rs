//! Transactions that coordinators know, and the producers of partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_client::{ClientError, CoordinatorKind, Refused};
use thalweg_wire::request::describe_producers_request::TopicRequest;
use thalweg_wire::request::{DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest};
use utoipa::{IntoParams, ToSchema};

use super::topics::page_of;
use super::{View, ask_each};
use crate::problem::Problem;

/// Which transactions are asked for.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct TransactionQuery {
    /// A part of the transactional id.
    #[param(required = false)]
    pub filter: String,
    /// Only those in a state, such as `Ongoing`.
    #[param(required = false)]
    pub state: String,
    /// The page, from 1.
    #[param(required = false)]
    pub page: usize,
}

/// A page of transactions.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionList {
    /// The transactions of this page.
    pub transactions: Vec<TransactionLine>,
    /// How many match.
    pub matched: usize,
    /// This page, from 1.
    pub page: usize,
    /// How many pages there are.
    pub pages: usize,
    /// Brokers that did not answer.
    pub missing: Vec<String>,
}

/// A transactional id.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransactionLine {
    /// Its name.
    pub transactional_id: String,
    /// The producer that has it.
    pub producer_id: i64,
    /// Such as `Ongoing`, `CompleteCommit` or `Empty`.
    pub state: String,
}

/// A transaction.
#[derive(Debug, Serialize, ToSchema)]
pub struct Transaction {
    /// Its transactional id.
    pub transactional_id: String,
    /// Such as `Ongoing`, `CompleteCommit` or `Empty`.
    pub state: String,
    /// The producer that has it.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// After how long it is aborted.
    pub timeout_ms: i32,
    /// When it began, in milliseconds since 1970; none if none is open.
    pub started_ms: Option<i64>,
    /// The partitions that it has written to.
    pub partitions: BTreeMap<String, Vec<i32>>,
}

/// A producer of a partition.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProducerLine {
    /// The partition.
    pub partition: i32,
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// The sequence number of its last record.
    pub last_sequence: i32,
    /// The time of its last record, in milliseconds since 1970.
    pub last_timestamp_ms: i64,
    /// Where its open transaction begins; none without one.
    pub transaction_start: Option<i64>,
}

/// Reads a page of transactions.
pub async fn list(view: &Arc<View>, query: &TransactionQuery) -> Result<TransactionList, ClientError> {
    let catalog = view.catalog().await?;
    let requests = catalog.brokers.keys().map(|id| {
        let state_filters = Some(query.state.clone()).filter(|state| !state.is_empty()).into_iter().collect();
        (
            *id,
            ListTransactionsRequest {
                state_filters,
                duration_filter: -1,
                ..ListTransactionsRequest::default()
            },
        )
    });
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (id, answer) in ask_each(view.cluster(), requests).await {
        let answer = answer.and_then(|answer| {
            Refused::check(answer.error_code, None, || format!("Transactions of broker {id}"))?;
            Ok(answer.transaction_states)
        });
        match answer {
            Ok(states) => found.extend(states.into_iter().map(|state| TransactionLine {
                transactional_id: state.transactional_id,
                producer_id: state.producer_id,
                state: state.transaction_state,
            })),
            Err(error) => missing.push(error.to_string()),
        }
    }
    let filter = query.filter.trim().to_lowercase();
    found.retain(|line| line.transactional_id.to_lowercase().contains(&filter));
    found.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
    let (page, pages, range) = page_of(found.len(), query.page, 0);
    let matched = found.len();
    let transactions = found.drain(range).collect();
    Ok(TransactionList { transactions, matched, page, pages, missing })
}

/// Reads a transaction.
pub async fn read(view: &View, id: &str) -> Result<Transaction, Problem> {
    view.cluster().refresh(&[], false).await?;
    let coordinator = view.cluster().coordinator(CoordinatorKind::Transaction, id).await?;
    let request = DescribeTransactionsRequest { transactional_ids: vec![id.to_owned()] };
    let state = coordinator.send(&request).await?.transaction_states.into_iter().next();
    let state = state.ok_or_else(|| Problem::missing(format!("There is no transactional id {id}")))?;
    Refused::check(state.error_code, None, || format!("Transactional id {id}")).map_err(ClientError::from)?;
    Ok(Transaction {
        transactional_id: state.transactional_id,
        state: state.transaction_state,
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        timeout_ms: state.transaction_timeout_ms,
        started_ms: (state.transaction_start_time_ms >= 0).then_some(state.transaction_start_time_ms),
        partitions: state.topics.into_iter().map(|topic| (topic.topic, topic.partitions)).collect(),
    })
}

/// Reads the producers of all partitions of a topic, from their leaders.
pub async fn producers(view: &View, topic: &str) -> Result<Vec<ProducerLine>, Problem> {
    let metadata = view.cluster().refresh(&[topic.to_owned()], false).await?;
    let found = metadata.topics.get(topic).filter(|found| found.error.is_none());
    let found = found.ok_or_else(|| Problem::missing(format!("There is no topic {topic}")))?;
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for partition in &found.partitions {
        if let Some(leader) = partition.leader {
            by_leader.entry(leader).or_default().push(partition.index);
        }
    }
    let requests = by_leader.into_iter().map(|(leader, partition_indexes)| {
        let topics = vec![TopicRequest { name: topic.to_owned(), partition_indexes }];
        (leader, DescribeProducersRequest { topics })
    });
    let requests: Vec<_> = requests.collect();
    let mut lines = Vec::new();
    for (_, answer) in ask_each(view.cluster(), requests).await {
        for partition in answer?.topics.into_iter().flat_map(|topic| topic.partitions) {
            let what = || format!("Producers of {topic}-{}", partition.partition_index);
            Refused::check(partition.error_code, partition.error_message.as_deref(), what)
                .map_err(ClientError::from)?;
            lines.extend(partition.active_producers.into_iter().map(|producer| ProducerLine {
                partition: partition.partition_index,
                producer_id: producer.producer_id,
                epoch: producer.producer_epoch,
                last_sequence: producer.last_sequence,
                last_timestamp_ms: producer.last_timestamp,
                transaction_start:
                    (producer.current_txn_start_offset >= 0).then_some(producer.current_txn_start_offset),
            }));
        }
    }
    lines.sort_by_key(|line| (line.partition, line.producer_id));
    Ok(lines)
}
