//! The state of one instance of a stream: which partitions the stages have, and their changes since the last
//! transaction. Owns the transactions, unless the sink's output is part of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{Cluster, CommittedOffset, ConsumerConfig, TopicPartition};
use thalweg_record::Offset;
use tokio::time::{Instant, sleep};

use super::{Checkpoint, ReadState, record_key};
use crate::declaration::Settings;
use crate::kafka::{self, ClientSettings, Transactions};
use crate::message::{Provenance, SourceId};
use crate::retry::Retry;
use crate::stage::{GroupOffsets, StageError};
use crate::state::{Change, Entries, State, StateRecord};
use crate::topics;

/// Time without an answer of the cluster after which the stream fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// The parameters of a store.
pub struct StoreSettings<'a> {
    /// The options of the source.
    pub source: &'a Settings,
    pub source_id: SourceId,
    /// The topics of the stages with state, in the order of the stream.
    pub topics: Vec<Arc<str>>,
    /// The transactional id, unless the sink has the transactions.
    pub transactional_id: Option<Arc<str>>,
}

/// The state of an instance.
pub struct StateStore {
    cluster: Cluster,
    config: ConsumerConfig,
    source_id: SourceId,
    /// The source's topics.
    sources: Vec<String>,
    /// The topics of the stages' state.
    topics: Vec<Arc<str>>,
    /// The partitions whose state the stages have, by their numbers in the source.
    added: BTreeMap<u32, TopicPartition>,
    /// The committed offsets of these partitions.
    positions: BTreeMap<TopicPartition, CommittedOffset>,
    /// Entries that belong to no position of the source, to be removed with the next transaction.
    stale: BTreeMap<u32, Vec<StateRecord>>,
    transactions: Option<Box<OwnTransactions>>,
}

/// The transactions of a store, before and after their first use.
struct OwnTransactions {
    settings: Settings,
    id: Arc<str>,
    open: Option<Transactions>,
}

/// A partition with its number in the source.
type NumberedPartition = (u32, TopicPartition);

impl StateStore {
    /// A store without partitions. Call on a runtime.
    pub fn new(settings: StoreSettings<'_>) -> Result<StateStore, StageError> {
        let StoreSettings { source, source_id, topics: of_stages, transactional_id } = settings;
        let group = source.optional_text("group").unwrap_or_default();
        let fixed = [("isolation.level", "read_committed")];
        let needed = [("group.id", group), ("allow.auto.create.topics", "false")];
        let client: ClientSettings<ConsumerConfig> = kafka::consumer(source, &fixed, &needed, &[])?;
        let of_source = kafka::Cluster {
            bootstrap: source.text("bootstrap").to_owned(),
            properties: source.optional_text("properties").map(str::to_owned),
        };
        let first = of_stages.first().expect("a stage has state");
        let transactions = transactional_id.map(|id| {
            let settings = of_source.settings(&crate::sink::kafka::MODULE, &[("topic", first)]);
            Box::new(OwnTransactions { settings, id, open: None })
        });
        Ok(StateStore {
            cluster: client.cluster(),
            config: client.config,
            source_id,
            sources: topics::names(source.text("topics")),
            topics: of_stages,
            added: BTreeMap::new(),
            positions: BTreeMap::new(),
            stale: BTreeMap::new(),
            transactions,
        })
    }

    /// Creates the topics, and takes over the transactional id: the offsets of an earlier producer's open
    /// transaction would keep the source from starting.
    pub async fn open(&mut self) -> Result<(), StageError> {
        let mut retry = Retry::within(PATIENCE);
        while let Err(error) = super::create(&self.cluster, &self.topics, &self.sources).await {
            let Some(pause) = retry.failed(Instant::now()) else { return Err(error) };
            tracing::warn!(%error, "Failed to find the topics of state, retrying");
            sleep(pause).await;
        }
        if let Some(own) = &mut self.transactions {
            own.open = Some(Transactions::new(&own.settings, &own.id)?);
        }
        Ok(())
    }

    /// The partitions of a batch whose state the stages lack.
    pub fn missing(&self, provenance: &Provenance) -> Vec<NumberedPartition> {
        let assigned =
            provenance.assigned.iter().filter(|assigned| !self.added.contains_key(&assigned.partition));
        assigned.filter_map(|assigned| Some((assigned.partition, assigned.at.clone()?))).collect()
    }

    /// Reads back the state of partitions. Cancel safe.
    pub async fn read(&self, partitions: &[NumberedPartition]) -> Result<ReadState, StageError> {
        let of: Vec<TopicPartition> = partitions.iter().map(|(_, at)| at.clone()).collect();
        let mut retry = Retry::within(PATIENCE);
        loop {
            let read = super::read(self.cluster.clone(), self.config.clone(), &self.topics, &of);
            let error = match read.await {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            let pause = retry.failed(Instant::now()).filter(|_| error.is_retriable());
            let Some(pause) = pause else { return Err(kafka::failed("Reading back state", error)) };
            tracing::warn!(%error, "Failed to read back state, retrying");
            // The source's topic may have more partitions than at the start.
            if let Err(error) = super::create(&self.cluster, &self.topics, &self.sources).await {
                tracing::debug!(%error, "Failed to find the topics of state");
            }
            sleep(pause).await;
        }
    }

    /// Adds partitions to the stages.
    pub fn add(
        &mut self,
        partitions: Vec<NumberedPartition>,
        mut read: ReadState,
        mut states: Vec<&mut dyn State>,
    ) -> Result<(), StageError> {
        for (number, at) in partitions {
            let committed = read.committed.get(&at).copied();
            for (topic, state) in self.topics.iter().zip(&mut states) {
                let mut entries = read.entries.remove(&(Arc::clone(topic), at.clone())).unwrap_or_default();
                let failed = |reason: String| {
                    kafka::failed(format!("Reading back the state of {at} in {topic}"), reason)
                };
                let checkpoint = Checkpoint::take(&mut entries).map_err(failed)?;
                let position = checkpoint.as_ref().and_then(|checkpoint| checkpoint.position).map(Offset);
                if position != committed && !(checkpoint.is_none() && entries.is_empty()) {
                    tracing::warn!(
                        topic = &**topic,
                        partition = %at,
                        committed = committed.map(|offset| offset.0),
                        state = position.map(|offset| offset.0),
                        "The group's offset is not that of the state, which is dropped"
                    );
                    let removed = entries.into_keys().map(|key| StateRecord {
                        topic: Arc::clone(topic),
                        partition: at.partition,
                        key: record_key(&at.topic, &key),
                        value: None,
                    });
                    self.stale.entry(number).or_default().extend(removed);
                    entries = Entries::new();
                } else if let Some(checkpoint) = checkpoint
                    && checkpoint.options != state.options()
                {
                    return Err(failed(format!(
                        "it was written with the options {}, and the stage has {}: give the stage another label or the \
                         source another group, or delete the topic {topic}, to begin without state",
                        checkpoint.options,
                        state.options()
                    )));
                }
                state.add((self.source_id, number), entries).map_err(|error| failed(error.to_string()))?;
            }
            if let Some(committed) = committed {
                self.positions.insert(at.clone(), CommittedOffset::new(committed));
            }
            self.added.insert(number, at);
        }
        Ok(())
    }

    /// Removes partitions from the stages: those with these numbers, or all.
    pub fn remove(&mut self, numbers: Option<&[u32]>, states: Vec<&mut dyn State>) {
        let is_removed = |number: &u32| numbers.is_none_or(|numbers| numbers.contains(number));
        for state in states {
            state.remove(&|(source, number)| source == self.source_id && is_removed(&number));
        }
        for (_, at) in self.added.extract_if(.., |number, _| is_removed(number)) {
            self.positions.remove(&at);
        }
        self.stale.retain(|number, _| !is_removed(number));
    }

    /// True if there are changes for a transaction.
    pub fn has_changed(&self, states: Vec<&mut dyn State>) -> bool {
        !self.stale.is_empty() || states.iter().any(|state| state.has_changed())
    }

    /// Adds the changes of the stages to the offsets of a transaction. Each partition with a change has its
    /// offset in the transaction, even an unchanged one: the group refuses it from a member that has lost the
    /// partition.
    pub fn collect(&mut self, progress: &mut GroupOffsets, states: Vec<&mut dyn State>) {
        let GroupOffsets { offsets, state: records, .. } = progress;
        self.positions.extend(offsets.clone());
        let mut touched: BTreeSet<u32> = self.stale.keys().copied().collect();
        touched
            .extend(self.added.iter().filter(|(_, at)| offsets.contains_key(at)).map(|(number, _)| *number));
        records.extend(std::mem::take(&mut self.stale).into_values().flatten());
        let mut options = Vec::new();
        for (topic, state) in self.topics.iter().zip(states) {
            for Change { of: (_, number), key, value } in state.take_changes() {
                let Some(at) = self.added.get(&number) else { continue };
                touched.insert(number);
                let key = record_key(&at.topic, &key);
                records.push(StateRecord { topic: Arc::clone(topic), partition: at.partition, key, value });
            }
            options.push((topic, state.options()));
        }
        for at in touched.iter().filter_map(|number| self.added.get(number)) {
            let position = self.positions.get(at);
            if let Some(position) = position {
                offsets.entry(at.clone()).or_insert_with(|| position.clone());
            }
            for (topic, options) in &options {
                let position = position.map(|position| position.offset.0);
                records.push(StateRecord {
                    topic: Arc::clone(topic),
                    partition: at.partition,
                    key: record_key(&at.topic, &[]),
                    value: Some(Checkpoint::new(position, options.clone()).to_value()),
                });
            }
        }
    }

    /// The transactions of the store. `None` if the sink has them.
    pub fn transactions(&mut self) -> Option<&mut Transactions> {
        self.transactions.as_mut()?.open.as_mut()
    }
}
