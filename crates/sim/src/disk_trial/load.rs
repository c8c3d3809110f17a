//! The load of a life: records to every topic, deletions, moves between directories, created and deleted
//! topics, transactions. Every request is tried a few times; a topic that accepts none is skipped for the
//! rest of the life.

use super::books::{Books, RECORDS, Visibility};
use super::node::{DIRS, LEDGER, Retention, TOPICS, topic};
use super::producer::{Producer, Refusal, produce};
use super::transactions::Transactions;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_client::{Admin, Cluster, ConnectionOptions, Connector, NewTopic, Replica, TopicPartition};
use thalweg_record::Offset;
use thalweg_wire::request::InitProducerIdRequest;
use tokio::time::Instant;

/// Rounds per life.
const ROUNDS: usize = 12;
/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(120);
/// Timeout of a request.
const REQUEST: Duration = Duration::from_millis(1_500);
/// Pause before a retry.
const AGAIN: Duration = Duration::from_millis(100);
/// Attempts per request.
const TRIES: usize = 4;
/// Time after a failure within which a partition must take records again: the broker retries opening it every
/// few seconds.
const PATIENCE: Duration = Duration::from_secs(7);
/// The client of a life.
pub(super) struct Load {
    pub(super) connector: Connector,
    pub(super) books: Arc<Mutex<Books>>,
    pub(super) seed: u64,
    pub(super) life: usize,
}

impl Load {
    pub(super) fn new(connector: Connector, books: Arc<Mutex<Books>>, seed: u64, life: usize) -> Load {
        Load { connector, books, seed, life }
    }

    /// Runs the load once.
    pub(super) async fn run(self) {
        let cluster = connect(&self.connector).await;
        let admin = Admin::new(cluster.clone()).with_timeout(REQUEST);
        if self.life == 0 {
            let all: Vec<_> = TOPICS.iter().map(|(name, keeps)| topic(name, *keeps)).collect();
            create(&admin, &all).await;
        }
        let brief = format!("brief-{}", self.life);
        self.create_brief(&admin, &brief).await;
        let mut producers = BTreeMap::new();
        let mut transactions = Transactions::begin(&cluster, Arc::clone(&self.books)).await;
        let mut silent = BTreeSet::new();
        for round in 0..ROUNDS {
            for (name, _) in TOPICS.iter().filter(|(name, _)| *name != LEDGER) {
                if silent.contains(name) {
                    continue;
                }
                let producer = producers.entry(*name).or_insert(None);
                if let Err(refusal) = self.append(&cluster, name, producer).await {
                    if !matches!(*name, "moved" | "compacted") {
                        self.books.lock().refused.push(((*name).to_owned(), refusal.to_string()));
                    }
                    silent.insert(*name);
                }
            }
            transactions.round(round).await;
            if round % 6 == 5 {
                self.delete_records(&admin).await;
            }
            if round == ROUNDS / 2 {
                self.move_logs(&admin).await;
                self.delete_brief(&admin, &brief).await;
            }
            tokio::time::sleep(ROUND).await;
        }
    }

    /// Checks that every partition takes records again.
    pub(super) async fn probe(self) {
        let cluster = connect(&self.connector).await;
        for (name, _) in TOPICS {
            let fate = if name == LEDGER { Visibility::Committed } else { Visibility::Unknown };
            let mut refusal = None;
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until {
                let batch = self.books.lock().send(name, fate);
                match self.send(&cluster, name, batch, None).await {
                    Ok(()) => {
                        refusal = None;
                        break;
                    }
                    Err(error) => refusal = Some(error),
                }
                tokio::time::sleep(3 * AGAIN).await;
            }
            match refusal {
                None | Some(Refusal::NoLeader) => {}
                Some(refusal) => {
                    self.books.lock().stuck.push(format!("{name}-0 has a leader that refuses: {refusal}"));
                }
            }
        }
    }

    /// Appends a batch of an idempotent producer. The producer is replaced after it had to give up a batch.
    async fn append(
        &self,
        cluster: &Cluster,
        name: &str,
        producer: &mut Option<Producer>,
    ) -> Result<(), Refusal> {
        if producer.is_none() {
            *producer = new_producer(cluster).await;
        }
        // A batch without a producer id could not be retried.
        let mut last = Refusal::Unanswered("there is no producer id".to_owned());
        if producer.is_none() {
            return Err(last);
        }
        let number = self.books.lock().send(name, Visibility::Committed);
        for _ in 0..TRIES {
            match self.send(cluster, name, number, *producer).await {
                Ok(()) => {
                    if let Some(producer) = producer {
                        producer.sequence += i32::try_from(RECORDS).unwrap_or(0);
                    }
                    return Ok(());
                }
                Err(refusal) => last = refusal,
            }
            tokio::time::sleep(AGAIN).await;
        }
        *producer = None;
        Err(last)
    }

    async fn send(
        &self,
        cluster: &Cluster,
        name: &str,
        number: u64,
        producer: Option<Producer>,
    ) -> Result<(), Refusal> {
        let offset = produce(cluster, name, number, producer, None).await?;
        self.books.lock().sheet(name).sent[usize::try_from(number).unwrap_or(0)].offset = Some(offset);
        Ok(())
    }

    async fn delete_records(&self, admin: &Admin) {
        let before = {
            let mut books = self.books.lock();
            let sheet = books.sheet("cut");
            let last = sheet.sent.iter().rev().filter_map(|sent| sent.offset).nth(2);
            let Some(before) = last else { return };
            sheet.delete_requested = sheet.delete_requested.max(before);
            before
        };
        let at = TopicPartition::new("cut", 0);
        let request = BTreeMap::from([(at.clone(), Offset(before))]);
        if let Ok(outcomes) = admin.delete_records(&request).await
            && let Some(Ok(_)) = outcomes.get(&at)
        {
            let mut books = self.books.lock();
            let sheet = books.sheet("cut");
            sheet.delete_answered = sheet.delete_answered.max(before);
        }
    }

    /// Moves logs to the other directory in every life.
    async fn move_logs(&self, admin: &Admin) {
        for (place, name) in [(0, "moved"), (1, LEDGER), (1, "compacted")] {
            let dir = DIRS[(self.life + place + usize::try_from(self.seed % 2).unwrap_or(0)) % 2];
            let replica = Replica { broker: 1, at: TopicPartition::new(name, 0) };
            let _ = admin.alter_replica_log_dirs(&BTreeMap::from([(replica, dir.to_owned())])).await;
        }
    }

    async fn create_brief(&self, admin: &Admin, name: &str) {
        if create(admin, &[topic(name, Retention::All)]).await {
            self.books.lock().created.push(name.to_owned());
            let mut producer = None;
            let _ = self.append(admin.cluster(), name, &mut producer).await;
        }
    }

    async fn delete_brief(&self, admin: &Admin, name: &str) {
        self.books.lock().created.retain(|created| created != name);
        let names = [name.to_owned()];
        for _ in 0..TRIES {
            if let Ok(outcomes) = admin.delete_topics(&names).await {
                if outcomes.values().all(Result::is_ok) {
                    self.books.lock().deleted.push(name.to_owned());
                }
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Connects, with unlimited retries.
pub(super) async fn connect(connector: &Connector) -> Cluster {
    let options = ConnectionOptions {
        connect_timeout: Duration::from_secs(1),
        request_timeout: REQUEST,
        ..ConnectionOptions::default()
    };
    let bootstrap = [format!("{}:9092", super::NAMES[super::NODE])];
    loop {
        if let Ok(cluster) = Cluster::connect_by(connector.clone(), &bootstrap, &options).await {
            return cluster;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Creates topics. Returns true if all creations were acknowledged.
async fn create(admin: &Admin, topics: &[NewTopic]) -> bool {
    for _ in 0..TRIES {
        if let Ok(outcomes) = admin.create_topics(topics, false).await {
            return outcomes.values().all(Result::is_ok);
        }
        tokio::time::sleep(AGAIN).await;
    }
    false
}

async fn new_producer(cluster: &Cluster) -> Option<Producer> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 10_000,
        ..InitProducerIdRequest::default()
    };
    for _ in 0..TRIES {
        if let Ok(answer) = cluster.send_any(&request).await
            && answer.error_code == 0
        {
            return Some(Producer { id: answer.producer_id, epoch: answer.producer_epoch, sequence: 0 });
        }
        tokio::time::sleep(AGAIN).await;
    }
    None
}
