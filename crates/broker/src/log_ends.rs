//! Compares the ends of logs where the controller of this process knows no complete replica, so that the best one leads.
//!
//! Every replica that is up is asked for its last leader epoch and its log end: ListOffsets as a debugging client, which any
//! replica answers. The highest epoch has what was acknowledged last; in one epoch, the longest log has all. Apache Kafka's
//! brokers answer with the epoch of the registration in place of the log's: with them, it is the last leader that leads.
//!
//! Owns: the patience. The election waits for remembered replicas up to `unclean.leader.election.interval.ms`; then the last
//! leader leads, or a better one of those that answer. Refuses: deciding which partitions need that: the controller does
//! (`thalweg_controller::Undecided`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::Connector;
use thalweg_config::BrokerConfig;
use thalweg_controller::{ComparedElection, Controller, HandleError, Undecided};
use thalweg_membership::{PeerOptions, Peers};
use thalweg_metadata::{BrokerId, Image, ImageCell, PartitionIndex};
use thalweg_watch as watch;
use thalweg_wire::request::ListOffsetsRequest;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tokio::time::Instant;

/// How often logs are compared while a partition needs it.
const AGAIN: Duration = Duration::from_millis(500);
/// The shortest time between two looks at a changing cluster.
const REST: Duration = Duration::from_millis(100);
/// Partitions of one request, and of one round.
const PARTITIONS_MAX: usize = 1000;
/// How long replicas that are starting are waited for, if they were not complete.
const STARTING_MAX: Duration = Duration::from_secs(20);
/// How long a replica may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The replica id of a debugging client, and the time that asks for the log end.
const DEBUGGING: i32 = -2;
const LATEST: i64 = -1;

type Key = (Arc<str>, PartitionIndex);

/// The end of a replica's log. In this order the last one is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogEnd {
    epoch: i32,
    offset: i64,
}

/// The answers of the replicas of each partition.
type Answers = BTreeMap<Key, BTreeMap<BrokerId, LogEnd>>;

/// Compares logs for a controller.
pub(crate) struct LogEnds {
    controller: Arc<Controller>,
    peers: Peers,
    image: Arc<ImageCell>,
    patience: Duration,
    /// Since when each partition has been undecided, and whether it was logged that replicas are waited for.
    since: BTreeMap<Key, (Instant, bool)>,
    /// Brokers that have not answered, and of which that was logged.
    silent: BTreeSet<BrokerId>,
}

impl LogEnds {
    /// For a controller with this configuration.
    pub fn new(controller: Arc<Controller>, config: &BrokerConfig, connector: Connector) -> LogEnds {
        let options = PeerOptions {
            node_id: BrokerId(config.node.id),
            listener: config.listeners.inter_broker.clone(),
            security: config.towards_brokers(),
            request_timeout: config.network.request_timeout,
        };
        let image = ImageCell::new();
        let peers = Peers::new(options, connector, Arc::clone(&image));
        let patience = config.controller.unclean_election_interval;
        LogEnds { controller, peers, image, patience, since: BTreeMap::new(), silent: BTreeSet::new() }
    }

    /// Runs until the controller stops.
    pub async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let controller = Arc::clone(&self.controller);
        while !*stopping.borrow() {
            let changed = controller.image_changed();
            let image = controller.image();
            let needs = needs_leaders(&image);
            self.image.set(image);
            let round = async {
                if !needs {
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
                () = changed, if !needs => tokio::time::sleep(REST).await,
            }
        }
    }

    /// Compares what can be compared now.
    async fn round(&mut self) -> Result<(), HandleError> {
        let undecided = self.controller.undecided().await?;
        let now = Instant::now();
        let keys: BTreeSet<Key> = undecided.iter().map(key).collect();
        self.since.retain(|key, _| keys.contains(key));
        let (mut ready, mut waiting) = (Vec::new(), Vec::new());
        for one in undecided.into_iter().filter(|one| !one.candidates.is_empty()) {
            let (since, said) = self.since.entry(key(&one)).or_insert((now, false));
            let waited = now.saturating_duration_since(*since);
            let are_there = one.awaited.is_empty() && (one.starting.is_empty() || waited >= STARTING_MAX);
            if are_there || (waited >= self.patience && one.last_leader.is_some()) {
                ready.push((one, waited));
            } else if !std::mem::replace(said, true) {
                waiting.push(one);
            }
        }
        if let Some(first) = waiting.first() {
            tracing::warn!(
                partitions = waiting.len(),
                first = format!("{}-{}", first.topic, first.partition),
                candidates = ?BrokerId::numbers(&first.candidates),
                awaited = ?BrokerId::numbers(&first.awaited),
                starting = ?BrokerId::numbers(&first.starting),
                "No replica is known to have all acknowledged records: waiting for others, to compare their logs"
            );
        }
        ready.truncate(PARTITIONS_MAX);
        let answers = self.ask(ready.iter().map(|(one, _)| one)).await;
        let nothing = BTreeMap::new();
        let elections: Vec<ComparedElection> = ready
            .iter()
            .filter_map(|(one, waited)| {
                let ends = answers.get(&key(one)).unwrap_or(&nothing);
                let leader = choose(one, ends, *waited >= self.patience)?;
                Some(ComparedElection {
                    topic_id: one.topic_id,
                    partition: one.partition,
                    partition_epoch: one.partition_epoch,
                    leader,
                })
            })
            .collect();
        if elections.is_empty() {
            return Ok(());
        }
        // A full disk: the next round tries again.
        let made = match self.controller.elect_compared(elections).await {
            Err(HandleError::DiskFull) => return Ok(()),
            made => made?,
        };
        for election in made {
            let known = ready
                .iter()
                .find(|(one, _)| one.topic_id == election.topic_id && one.partition == election.partition);
            if let Some((one, _)) = known {
                say(one, election.leader, answers.get(&key(one)).unwrap_or(&nothing));
            }
        }
        Ok(())
    }

    /// Asks every candidate for its log ends.
    async fn ask(&mut self, undecided: impl Iterator<Item = &Undecided>) -> Answers {
        let mut by_broker: BTreeMap<BrokerId, Vec<Key>> = BTreeMap::new();
        for one in undecided {
            for candidate in &one.candidates {
                by_broker.entry(*candidate).or_default().push(key(one));
            }
        }
        let this = &*self;
        let asked = by_broker.iter().map(|(broker, keys)| async move {
            let answer = this.ask_broker(*broker, keys).await;
            (*broker, answer)
        });
        let asked = futures_util::future::join_all(asked).await;
        let mut answers = Answers::new();
        for (broker, answer) in asked {
            match answer {
                Ok(ends) => {
                    self.silent.remove(&broker);
                    for (key, end) in ends {
                        answers.entry(key).or_default().insert(broker, end);
                    }
                }
                Err(error) if self.silent.insert(broker) => {
                    tracing::warn!(%broker, error, "A broker did not return the log ends of its replicas, retrying");
                }
                Err(_) => {}
            }
        }
        answers
    }

    async fn ask_broker(&self, broker: BrokerId, keys: &[Key]) -> Result<Vec<(Key, LogEnd)>, String> {
        let connection = self.peers.connect(broker, "log-ends", ANSWER_MAX).await;
        let connection = connection.map_err(|error| error.to_string())?;
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for (topic, partition) in keys {
            topics.entry(topic).or_default().push(ListOffsetsPartition {
                partition_index: partition.0,
                current_leader_epoch: -1,
                timestamp: LATEST,
            });
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic { name: name.to_owned(), partitions });
        let request =
            ListOffsetsRequest { replica_id: DEBUGGING, topics: topics.collect(), ..Default::default() };
        let answer = connection.send(&request).await.map_err(|error| error.to_string());
        connection.close();
        let found = answer?.topics.into_iter().flat_map(|topic| {
            let name: Arc<str> = topic.name.into();
            topic.partitions.into_iter().map(move |found| (Arc::clone(&name), found))
        });
        let found = found.filter(|(_, found)| found.error_code == 0 && found.offset >= 0);
        Ok(found
            .map(|(name, found)| {
                let end = LogEnd { epoch: found.leader_epoch, offset: found.offset };
                ((name, PartitionIndex(found.partition_index)), end)
            })
            .collect())
    }
}

fn key(one: &Undecided) -> Key {
    (Arc::clone(&one.topic), one.partition)
}

fn needs_leaders(image: &Image) -> bool {
    let mut partitions = image.topics().iter().flat_map(|topic| topic.partitions.values());
    partitions.any(|partition| !partition.has_leader() && partition.replicas.len() > 1)
}

/// The replica with the best log, once all that can be known is; of equal ones the last leader. When the wait is over, it is the
/// last leader unless another has shown to be better.
fn choose(one: &Undecided, ends: &BTreeMap<BrokerId, LogEnd>, is_over: bool) -> Option<BrokerId> {
    // The epoch of the registration is in no log: the answer does not say which epoch the log ends with.
    let ends: BTreeMap<BrokerId, LogEnd> =
        ends.iter().map(|(id, end)| (*id, *end)).filter(|(_, end)| end.epoch != one.leader_epoch).collect();
    let is_complete = one.awaited.is_empty() && one.candidates.iter().all(|id| ends.contains_key(id));
    if !is_complete && !is_over {
        return None;
    }
    if !is_complete && one.last_leader.is_none_or(|last| !ends.contains_key(&last)) {
        return one.last_leader;
    }
    let preferred = |id: BrokerId| {
        (Some(id) == one.last_leader, std::cmp::Reverse(one.candidates.iter().position(|known| *known == id)))
    };
    ends.into_iter().max_by_key(|(id, end)| (*end, preferred(*id))).map(|(id, _)| id)
}

fn say(one: &Undecided, leader: BrokerId, ends: &BTreeMap<BrokerId, LogEnd>) {
    let compared: Vec<String> = ends
        .iter()
        .map(|(id, end)| format!("broker {id}: epoch {}, log end {}", end.epoch, end.offset))
        .collect();
    let (topic, partition, compared) = (&*one.topic, one.partition, compared.join("; "));
    if one.awaited.is_empty() && one.candidates.iter().all(|id| ends.contains_key(id)) {
        tracing::info!(
            topic, %partition, %leader, compared,
            "Elected the replica with the best log: all that were in sync have been compared"
        );
        return;
    }
    tracing::warn!(
        topic, %partition, %leader, compared, absent = ?BrokerId::numbers(&one.awaited),
        "Elected the replica with the best log: none was known to have all acknowledged records"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::PartitionEpoch;

    fn undecided(candidates: &[i32], awaited: &[i32], last_leader: Option<i32>) -> Undecided {
        Undecided {
            topic: "t".into(),
            topic_id: thalweg_wire::Uuid(7),
            partition: PartitionIndex(0),
            partition_epoch: PartitionEpoch(1),
            leader_epoch: 9,
            candidates: BrokerId::list(candidates),
            awaited: BrokerId::list(awaited),
            starting: Vec::new(),
            last_leader: last_leader.map(BrokerId),
        }
    }

    fn ends(ends: &[(i32, i32, i64)]) -> BTreeMap<BrokerId, LogEnd> {
        ends.iter()
            .map(|(id, epoch, offset)| (BrokerId(*id), LogEnd { epoch: *epoch, offset: *offset }))
            .collect()
    }

    #[test]
    fn highest_epoch_wins_then_the_longest_log_then_the_last_leader() {
        let all = undecided(&[1, 2, 3], &[], Some(3));
        let of = |found: &[(i32, i32, i64)]| choose(&all, &ends(found), false).map(|id| id.0);
        assert_eq!(of(&[(1, 4, 402), (2, 5, 100), (3, 4, 900)]), Some(2));
        assert_eq!(of(&[(1, 5, 804), (2, 5, 803), (3, 5, 402)]), Some(1));
        assert_eq!(of(&[(1, 5, 804), (2, 5, 804), (3, 5, 804)]), Some(3));
        assert_eq!(of(&[(1, 5, 804), (2, 5, 804), (3, 5, 1)]), Some(1), "the preferred one");
        assert_eq!(of(&[(1, 5, 804), (3, 5, 1)]), None, "not all have answered");
    }

    #[test]
    fn log_whose_last_epoch_is_not_known_does_not_win() {
        let all = undecided(&[1, 2], &[], Some(1));
        let found = ends(&[(1, 5, 1000), (2, 9, 400)]);
        assert_eq!(choose(&all, &found, false), None);
        assert_eq!(choose(&all, &found, true), Some(BrokerId(1)));
        let found = ends(&[(1, 9, 400), (2, 5, 1000)]);
        assert_eq!(choose(&all, &found, true), Some(BrokerId(1)), "the last leader, as in Apache Kafka");
    }

    #[test]
    fn last_leader_leads_after_the_wait_unless_another_is_better() {
        let some = undecided(&[1, 2], &[3], Some(1));
        assert_eq!(choose(&some, &ends(&[(1, 5, 10), (2, 5, 20)]), false), None);
        assert_eq!(choose(&some, &ends(&[(1, 5, 10), (2, 5, 20)]), true), Some(BrokerId(2)));
        assert_eq!(choose(&some, &ends(&[(1, 5, 10)]), true), Some(BrokerId(1)));
        assert_eq!(choose(&some, &ends(&[(2, 5, 20)]), true), Some(BrokerId(1)), "its log is not known");
        assert_eq!(choose(&some, &ends(&[]), true), Some(BrokerId(1)));
        let without = undecided(&[2], &[1, 3], None);
        assert_eq!(choose(&without, &ends(&[(2, 5, 20)]), true), None);
    }
}
