//! Compares the ends of logs if the controller of this process knows no complete replica of a partition, so
//! that the best log leads.
//!
//! Every available replica is queried for its last leader epoch and log end, by ListOffsets as a debugging
//! client, which any replica answers. `choice` interprets the answers, `waits` bounds the wait of an
//! election, and `leaderless` logs the partitions that get no leader.
//!
//! `LogEndComparison` sends the requests. The controller selects the partitions (`UndecidedPartition`).

mod choice;
mod leaderless;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::BrokerConfig;
use thalweg_controller::{ComparedElection, Controller, HandleError, UndecidedPartition};
use thalweg_dial::{ClientError, Connector};
use thalweg_membership::{PeerError, PeerOptions, Peers};
use thalweg_metadata::{BrokerId, ImageCell, PartitionIndex};
use thalweg_watch as watch;
use thalweg_wire::ErrorCode;
use thalweg_wire::list_offsets::LATEST_TIMESTAMP;
use thalweg_wire::request::ListOffsetsRequest;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tokio::time::Instant;

use choice::{Answer, Failure, LogEnd, choose};
use leaderless::Leaderless;
use waits::Waits;

/// Interval between comparisons while a partition is undecided.
const AGAIN: Duration = Duration::from_millis(500);
/// Minimum time between two rounds while the cluster changes.
const REST: Duration = Duration::from_millis(100);
/// Maximum number of partitions in a request, and in a round.
const PARTITIONS_MAX: usize = 1000;
/// Timeout of a request to a replica.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// The replica id of a debugging client.
const DEBUGGING: i32 = -2;

type Key = (Arc<str>, PartitionIndex);

/// The answers of the replicas of each partition.
type Answers = BTreeMap<Key, BTreeMap<BrokerId, Answer>>;

/// Compares logs for a controller.
pub(crate) struct LogEndComparison {
    controller: Arc<Controller>,
    peers: Peers,
    /// `inter.broker.listener.name` of this node, used to reach brokers. If the name is not configured, any
    /// listener will do.
    listener: String,
    image: Arc<ImageCell>,
    leaderless: Leaderless,
    waits: Waits,
    /// Brokers without an answer that were already logged.
    silent: BTreeSet<BrokerId>,
}

impl LogEndComparison {
    /// A comparison of logs for this controller.
    pub fn new(controller: Arc<Controller>, config: &BrokerConfig, connector: Connector) -> LogEndComparison {
        let listener = config.listeners.inter_broker.clone();
        let options = PeerOptions {
            node_id: BrokerId(config.node.id),
            listener: listener.clone(),
            or_any: !config.listeners.inter_broker_is_named,
            security: config.towards_brokers(),
            request_timeout: config.network.request_timeout,
        };
        let image = ImageCell::new();
        let peers = Peers::new(options, connector, Arc::clone(&image));
        LogEndComparison {
            controller,
            peers,
            listener,
            image,
            leaderless: Leaderless::default(),
            waits: Waits::new(config.controller.unclean_election_interval),
            silent: BTreeSet::new(),
        }
    }

    /// Runs until the controller stops.
    pub async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let controller = Arc::clone(&self.controller);
        while !*stopping.borrow() {
            let changed = controller.image_changed();
            let image = controller.image();
            self.leaderless.follow(&self.image.get(), &image, Instant::now());
            self.image.set(image);
            let is_needed = !self.leaderless.is_empty();
            let round = async {
                if !is_needed {
                    self.waits.clear();
                    return std::future::pending().await;
                }
                let done = self.round().await;
                tokio::time::sleep(AGAIN).await;
                done
            };
            tokio::select! {
                biased;
                stopped = stopping.changed() => if stopped.is_err() { return },
                done = round => if done.is_err() { return },
                () = changed, if !is_needed => tokio::time::sleep(REST).await,
            }
        }
    }

    /// Runs one round of comparisons.
    async fn round(&mut self) -> Result<(), HandleError> {
        let undecided = self.controller.undecided(self.leaderless.partitions()).await?;
        let now = Instant::now();
        self.leaderless.report(&self.image.get(), &undecided, now);
        let queried = self.waits.select(undecided, now, PARTITIONS_MAX);
        let answers = self.query(queried.iter().map(|(one, _)| one)).await;
        let nothing = BTreeMap::new();
        let mut elections = Vec::new();
        for (one, waiting) in &queried {
            let ends = answers.get(&key(one)).unwrap_or(&nothing);
            if one.last_leader.and_then(|last| ends.get(&last)).is_some_and(choice::is_known) {
                self.waits.note_last(one);
            }
            let Some(leader) = choose(one, ends, waiting) else { continue };
            elections.push(ComparedElection {
                topic_id: one.topic_id,
                partition: one.partition,
                partition_epoch: one.partition_epoch,
                leader,
            });
        }
        if elections.is_empty() {
            return Ok(());
        }
        // The disk is full. The next round retries.
        let made = match self.controller.elect_compared(elections).await {
            Err(HandleError::DiskFull) => return Ok(()),
            made => made?,
        };
        for election in made {
            let known = queried
                .iter()
                .find(|(one, _)| one.topic_id == election.topic_id && one.partition == election.partition);
            if let Some((one, _)) = known {
                log_election(
                    one,
                    election.leader,
                    answers.get(&key(one)).unwrap_or(&nothing),
                    &self.listener,
                );
            }
        }
        Ok(())
    }

    /// Queries every candidate for its log ends.
    async fn query(&mut self, undecided: impl Iterator<Item = &UndecidedPartition>) -> Answers {
        let mut by_broker: BTreeMap<BrokerId, Vec<&UndecidedPartition>> = BTreeMap::new();
        for one in undecided {
            for candidate in &one.candidates {
                by_broker.entry(*candidate).or_default().push(one);
            }
        }
        let this = &*self;
        let queries = by_broker.into_iter().map(|(broker, partitions)| async move {
            let answer = this.query_broker(broker, &partitions).await;
            (broker, partitions, answer)
        });
        let queried = futures_util::future::join_all(queries).await;
        let mut answers = Answers::new();
        for (broker, partitions, answer) in queried {
            match answer {
                Ok(found) => {
                    self.silent.remove(&broker);
                    for (key, answer) in found {
                        answers.entry(key).or_default().insert(broker, answer);
                    }
                }
                Err(failure) => {
                    if self.silent.insert(broker) {
                        tracing::warn!(
                            %broker, listener = self.listener, error = &*failure.reason,
                            "A broker did not return the log ends of its replicas"
                        );
                    }
                    for one in partitions {
                        answers.entry(key(one)).or_default().insert(broker, Err(failure.clone()));
                    }
                }
            }
        }
        answers
    }

    async fn query_broker(
        &self,
        broker: BrokerId,
        partitions: &[&UndecidedPartition],
    ) -> Result<Vec<(Key, Answer)>, Failure> {
        let connection = self.peers.connect(broker, "log-ends", REQUEST_MAX).await;
        let connection = connection.map_err(|error| self.failure(broker, &error))?;
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for one in partitions {
            topics.entry(&one.topic).or_default().push(ListOffsetsPartition {
                partition_index: one.partition.0,
                // A broker that has not seen this registration yet refuses this epoch. Without the epoch,
                // Apache Kafka's broker would answer with the epoch of an earlier registration, which looks
                // like the epoch of a log.
                current_leader_epoch: one.leader_epoch,
                timestamp: LATEST_TIMESTAMP,
            });
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions });
        let request =
            ListOffsetsRequest { replica_id: DEBUGGING, topics: topics.collect(), ..Default::default() };
        let answer = connection.send(&request).await;
        connection.close();
        let answer = answer.map_err(|error| self.failure(broker, &error.into()))?;
        let registered: BTreeMap<Key, i32> =
            partitions.iter().map(|one| (key(one), one.leader_epoch)).collect();
        let registered = &registered;
        let found = answer.topics.into_iter().flat_map(|topic| {
            let name: Arc<str> = topic.name.into();
            topic.partitions.into_iter().map(move |found| {
                let end = LogEnd { epoch: found.leader_epoch, offset: found.offset };
                let key = (Arc::clone(&name), PartitionIndex(found.partition_index));
                let answer = match ErrorCode::from_i16(found.error_code) {
                    Some(ErrorCode::None) if registered.get(&key) == Some(&end.epoch) => {
                        Err(Failure::epoch_of_registration())
                    }
                    Some(ErrorCode::None) if found.offset >= 0 => Ok(end),
                    Some(error) => Err(Failure::transient(error)),
                    None => Err(Failure::transient(format_args!("error {}", found.error_code))),
                };
                (key, answer)
            })
        });
        Ok(found.collect())
    }

    /// The failure of a request to a broker. A failure is final if there is no common version, or the broker
    /// has not registered the listener.
    fn failure(&self, broker: BrokerId, error: &PeerError) -> Failure {
        let is_final = match error {
            PeerError::NoEndpoint { .. } => {
                let image = self.image.get();
                image.broker(broker).is_some_and(|broker| !broker.fenced)
            }
            PeerError::TooOld { .. }
            | PeerError::Client(ClientError::VersionMismatch(_) | ClientError::Unencodable(_)) => true,
            PeerError::Client(_) | PeerError::Setting(_) | PeerError::NoListener { .. } => false,
        };
        Failure { is_final, reason: error.to_string().into() }
    }
}

fn key(one: &UndecidedPartition) -> Key {
    (Arc::clone(&one.topic), one.partition)
}

fn log_election(
    one: &UndecidedPartition,
    leader: BrokerId,
    answers: &BTreeMap<BrokerId, Answer>,
    listener: &str,
) {
    let (mut compared, mut not_compared) = (Vec::new(), Vec::new());
    for id in &one.candidates {
        match answers.get(id) {
            Some(Ok(end)) => {
                compared.push(format!("broker {id}: epoch {}, log end {}", end.epoch, end.offset));
            }
            Some(Err(failure)) => not_compared.push(format!("broker {id}: {}", failure.reason)),
            None => not_compared.push(format!("broker {id}: no answer")),
        }
    }
    let (topic, partition, compared) = (&*one.topic, one.partition, compared.join("; "));
    if one.awaited.is_empty() && not_compared.is_empty() {
        tracing::info!(
            topic, %partition, %leader, compared,
            "Elected the replica with the best log: all that were in sync have been compared"
        );
        return;
    }
    tracing::warn!(
        topic, %partition, %leader, compared, not_compared = not_compared.join("; "), listener,
        absent = ?BrokerId::numbers(&one.awaited),
        "Elected the last leader, or a better log of those compared: others may have acknowledged records that it lacks"
    );
}
