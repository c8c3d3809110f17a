//! The transactions of a trial: three producers whose transactions overlap in one partition and commit or
//! abort.

use super::books::{Books, RECORDS, Visibility};
use super::node::LEDGER;
use super::producer::{Producer, produce};
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_client::{Cluster, CoordinatorKind};
use thalweg_wire::request::{EndTxnRequest, InitProducerIdRequest};

/// Maximum number of concurrently open transactions.
const PRODUCERS: usize = 3;
/// EndTxn version whose answer has the epoch of the next transaction.
const END_VERSION: i16 = 5;
/// Time after which the coordinator aborts open transactions.
const TIMEOUT_MS: i32 = 20_000;

/// The producers of a life.
pub(super) struct Transactions {
    cluster: Cluster,
    books: Arc<Mutex<Books>>,
    producers: Vec<TransactionalProducer>,
    /// True after a failure, which ends the transactions of this life.
    failed: bool,
}

struct TransactionalProducer {
    name: String,
    producer: Producer,
    /// Batches of the open transaction.
    open: Vec<u64>,
}

impl Transactions {
    /// Starts the producers, which aborts the open transactions of the previous life.
    pub(super) async fn begin(cluster: &Cluster, books: Arc<Mutex<Books>>) -> Transactions {
        let mut producers = Vec::new();
        for place in 0..PRODUCERS {
            let name = format!("ledger-{place}");
            if let Some(producer) = init(cluster, &name).await {
                producers.push(TransactionalProducer { name, producer, open: Vec::new() });
            }
        }
        let failed = producers.len() < PRODUCERS;
        Transactions { cluster: cluster.clone(), books, producers, failed }
    }

    /// Writes with one producer, and ends the transaction of another.
    pub(super) async fn round(&mut self, round: usize) {
        if self.failed {
            return;
        }
        let (writes, ends) = (round % PRODUCERS, (round + 1) % PRODUCERS);
        let done = self.write(writes).await
            && self.write(writes).await
            && self.end(ends, round.is_multiple_of(2)).await;
        self.failed = !done;
    }

    async fn write(&mut self, place: usize) -> bool {
        let TransactionalProducer { name, producer, open } = &mut self.producers[place];
        let number = self.books.lock().send(LEDGER, Visibility::Aborted);
        match produce(&self.cluster, LEDGER, number, Some(*producer), Some(name)).await {
            Ok(offset) => {
                producer.sequence += i32::try_from(RECORDS).unwrap_or(0);
                open.push(number);
                self.books.lock().sheet(LEDGER).sent[usize::try_from(number).unwrap_or(0)].offset =
                    Some(offset);
                true
            }
            Err(_) => false,
        }
    }

    async fn end(&mut self, place: usize, committed: bool) -> bool {
        let TransactionalProducer { name, producer, open } = &mut self.producers[place];
        if open.is_empty() {
            return true;
        }
        let books = Arc::clone(&self.books);
        let decide = |batches: &[u64], fate| {
            let mut books = books.lock();
            let sheet = books.sheet(LEDGER);
            batches.iter().for_each(|&number| sheet.sent[usize::try_from(number).unwrap_or(0)].fate = fate);
        };
        if committed {
            decide(open, Visibility::Unknown);
        }
        let request = EndTxnRequest {
            transactional_id: name.clone(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            committed,
        };
        let Ok(coordinator) = self.cluster.coordinator(CoordinatorKind::Transaction, name).await else {
            return false;
        };
        match coordinator.send_at(&request, END_VERSION).await {
            Ok(answer) if answer.error_code == 0 => {
                if committed {
                    decide(open, Visibility::Committed);
                }
                open.clear();
                *producer = Producer { id: answer.producer_id, epoch: answer.producer_epoch, sequence: 0 };
                true
            }
            _ => false,
        }
    }
}

async fn init(cluster: &Cluster, name: &str) -> Option<Producer> {
    let request = InitProducerIdRequest {
        transactional_id: Some(name.to_owned()),
        transaction_timeout_ms: TIMEOUT_MS,
        ..InitProducerIdRequest::default()
    };
    for _ in 0..40 {
        if let Ok(coordinator) = cluster.coordinator(CoordinatorKind::Transaction, name).await
            && let Ok(answer) = coordinator.send(&request).await
            && answer.error_code == 0
        {
            return Some(Producer { id: answer.producer_id, epoch: answer.producer_epoch, sequence: 0 });
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    None
}
