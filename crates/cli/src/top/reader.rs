//! Reads a cluster over connections that stay open between readings.
//!
//! Each request has a time limit, so that a silent broker or coordinator delays a reading by a bounded time
//! and hides only its own numbers. A broker that was silent in the last reading gets little time in the next
//! ones. Numbers of partitions and groups per request, and of requests at the same time, are limited.

mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::verdict::{Absence, Cause, Reach, gap};
use thalweg_client::{
    Admin, ApiVersions, BrokerAddress, ClientError, Cluster, ClusterDescription, Connection,
    ConnectionOptions, LeaderAnswer, LogDir, Metadata, OffsetSpec, Outcomes, PartitionMetadata,
    TopicPartition, in_parallel_with_patience,
};
use thalweg_wire::request::{ApiVersionsRequest, DescribeLogDirsRequest};
use tokio::time::{Instant, timeout, timeout_at};

use self::parts::{add_directories, add_unregistered, groups, known, topics};
use super::facts::{Facts, UnlistedTopics};
use super::reading::{BrokerReading, GroupsReading, Reading};
use crate::failure::{self, REFUSED, UNREACHABLE};

/// Time limit for an answer of a broker that was silent in the last reading.
const SILENT_WAIT: Duration = Duration::from_millis(500);
/// One of so many readings gives a silent broker the whole time limit: the broker may be slow, not dead.
const WHOLE_WAIT_EVERY: u32 = 5;
/// Time limit for all groups, in time limits of an answer: two for the list, as its brokers are
/// found before, one for the positions, one for the members.
const GROUPS_LIMITS: u32 = LIST_LIMITS + 2;
const LIST_LIMITS: u32 = 2;
/// Brokers that do not answer delay the requests to others by this part of a time limit.
const PATIENCE_SHARE: u32 = 10;

/// Reads a cluster again and again.
pub(super) struct Reader {
    cluster: Cluster,
    /// Time limit for an answer.
    limit: Duration,
    /// Number of readings since the last answer of each silent broker.
    silent: BTreeMap<i32, u32>,
    facts: Option<Facts>,
}

/// A reading that failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadFailure {
    /// The error, which may contain texts of other parties.
    pub why: String,
    /// The exit code of a command that ends with it.
    pub code: u8,
}

impl From<ClientError> for ReadFailure {
    fn from(error: ClientError) -> ReadFailure {
        let why = error.to_string();
        let refused = failure::reason(&error.into()).is_some_and(|(_, code)| code == REFUSED);
        ReadFailure { why, code: if refused { REFUSED } else { UNREACHABLE } }
    }
}

/// A broker to send requests to.
struct BrokerTarget {
    address: BrokerAddress,
    is_fenced: bool,
}

/// The answer of a broker at its own address.
struct NodeAnswer {
    connection: Connection,
    directories: Result<Outcomes<String, LogDir>, Absence>,
    /// The time of the answer with the log directories.
    at: Instant,
}

/// The answers of leaders.
#[derive(Debug, Default)]
struct LogEnds {
    /// Log ends, with the times of the answers.
    ends: BTreeMap<TopicPartition, (i64, Instant)>,
    /// Log start offsets.
    starts: BTreeMap<TopicPartition, i64>,
    /// Brokers that answered.
    answered: BTreeSet<i32>,
}

impl Reader {
    /// Connects to a cluster. `limit` is the time limit for an answer.
    pub(super) async fn connect(
        bootstrap: &[String],
        options: &ConnectionOptions,
        limit: Duration,
    ) -> Result<Reader, ClientError> {
        let options = ConnectionOptions {
            connect_timeout: options.connect_timeout.min(limit),
            request_timeout: options.request_timeout.min(limit),
            // The screen shows waits; lines on standard error would disturb it.
            waits: None,
            ..options.clone()
        };
        let cluster = Cluster::connect(bootstrap, &options).await?;
        Ok(Reader { cluster, limit, silent: BTreeMap::new(), facts: None })
    }

    /// Reads everything. Fails only if no broker returns the metadata.
    pub(super) async fn read(&mut self) -> Result<Reading, ReadFailure> {
        let began = Instant::now();
        let admin = self.admin(self.limit);
        let (metadata, described) = tokio::join!(
            timeout(self.limit, self.cluster.refresh_all()),
            timeout(self.limit, admin.describe_cluster())
        );
        let metadata = match metadata {
            Ok(metadata) => metadata.map_err(ReadFailure::from)?,
            Err(_) => {
                let why = format!("No broker answered within {} ms", self.limit.as_millis());
                return Err(ReadFailure { why, code: UNREACHABLE });
            }
        };
        let described = described.ok().and_then(Result::ok);
        let targets = brokers(&metadata, described.as_ref());
        let at = Instant::now();
        // Positions are read before ends: otherwise records that arrive meanwhile would lower the lag.
        let groups_and_ends = async {
            let groups = self.groups().await;
            (groups, self.ends(&metadata).await)
        };
        let (nodes, (groups, ends)) = tokio::join!(self.nodes(&targets), groups_and_ends);
        let mut reading = Reading {
            at,
            took: Duration::ZERO,
            waited: Duration::ZERO,
            cluster_id: metadata.cluster_id.clone(),
            brokers: BTreeMap::new(),
            topics: topics(&metadata, &ends),
            groups,
            facts: self.facts.take().unwrap_or_else(|| Facts::unknown(began)),
        };
        let late = nodes.iter().filter(|(_, answer)| answer.is_err()).map(|(id, _)| self.limit_of(*id));
        reading.waited = late.max().unwrap_or_default() * (1 + GROUPS_LIMITS);
        let connections = self.add_brokers(&mut reading, &targets, nodes, &ends.answered);
        add_unregistered(&mut reading, described.as_ref());
        self.read_facts(&mut reading, &metadata, &connections).await;
        self.facts = Some(reading.facts.clone());
        reading.took = began.elapsed();
        reading.waited = reading.waited.min(reading.took);
        Ok(reading)
    }

    fn admin(&self, limit: Duration) -> Admin {
        let limits = self.silent.keys().map(|broker| (*broker, self.limit_of(*broker))).collect();
        let admin = Admin::new(self.cluster.clone()).with_timeout(limit).with_answer_limit(limit);
        admin.with_answer_limits(limits).with_groups_limit(limit)
    }

    /// The time limit for an answer of a broker.
    fn limit_of(&self, broker: i32) -> Duration {
        match self.silent.get(&broker) {
            Some(readings) if readings % WHOLE_WAIT_EVERY != 0 => SILENT_WAIT.min(self.limit),
            _ => self.limit,
        }
    }

    /// Asks all brokers for their log directories, many at the same time.
    async fn nodes(
        &self,
        targets: &BTreeMap<i32, BrokerTarget>,
    ) -> BTreeMap<i32, Result<NodeAnswer, Absence>> {
        let asking = targets.iter().map(|(id, broker)| {
            let (id, address, limit) = (*id, broker.address.address(), self.limit_of(*id));
            let cluster = self.cluster.clone();
            async move { (id, node(&cluster, id, &address, limit).await) }
        });
        let patience = self.limit / PATIENCE_SHARE;
        in_parallel_with_patience(asking.collect(), patience).await.into_iter().collect()
    }

    /// The log ends and log starts of all partitions whose leader is a broker that is not fenced.
    async fn ends(&self, metadata: &Metadata) -> LogEnds {
        let is_led = |partition: &&PartitionMetadata| {
            partition.leader.is_some_and(|leader| metadata.brokers.contains_key(&leader))
        };
        let wanted = |spec: OffsetSpec| -> Vec<(TopicPartition, OffsetSpec)> {
            let topics = metadata.topics.values();
            let led = topics.flat_map(|topic| {
                let led = topic.partitions.iter().filter(is_led);
                led.map(|one| (TopicPartition::new(Arc::clone(&topic.name), one.index), spec))
            });
            led.collect()
        };
        let (starts, ends) = (wanted(OffsetSpec::Earliest), wanted(OffsetSpec::Latest));
        let limit = |leader| self.limit_of(leader);
        let (starts, ends) = tokio::join!(
            self.cluster.answers_of_leaders(&starts, false, limit),
            self.cluster.answers_of_leaders(&ends, false, limit)
        );
        let mut found = LogEnds::default();
        let known = |answer: LeaderAnswer| {
            let (leader, at) = (answer.leader, answer.at);
            let listed = answer.found.into_iter();
            listed.filter_map(move |(of, listed)| Some((leader, of, listed.ok()?.offset.0, at)))
        };
        for (leader, of, end, at) in ends.into_iter().flat_map(known) {
            found.answered.extend(leader);
            found.ends.extend((end >= 0).then_some((of, (end, at))));
        }
        for (leader, of, start, _) in starts.into_iter().flat_map(known) {
            found.answered.extend(leader);
            found.starts.extend((start >= 0).then_some((of, start)));
        }
        found
    }

    /// All groups that are read in time.
    async fn groups(&self) -> Result<GroupsReading, Absence> {
        let admin = self.admin(self.limit);
        let limit = self.limit * LIST_LIMITS;
        match timeout(limit, admin.listed_groups(Duration::ZERO)).await {
            Ok(Ok(listed)) => Ok(groups(&admin, &listed).await),
            Ok(Err(error)) => Err(Absence::of(&error)),
            Err(_) => Err(Absence::silent(format!("no answer within {} ms", limit.as_millis()))),
        }
    }

    /// Adds the answers of brokers to a reading. Returns the connections to those that answered.
    fn add_brokers(
        &mut self,
        reading: &mut Reading,
        targets: &BTreeMap<i32, BrokerTarget>,
        mut nodes: BTreeMap<i32, Result<NodeAnswer, Absence>>,
        answered: &BTreeSet<i32>,
    ) -> BTreeMap<i32, Connection> {
        self.silent.retain(|id, _| targets.contains_key(id));
        let mut connections = BTreeMap::new();
        for (id, broker) in targets {
            let answer = nodes.remove(id).unwrap_or_else(|| Err(late(*id, self.limit)));
            let mut found = BrokerReading {
                address: Some(broker.address.address()),
                rack: broker.address.rack.clone(),
                reach: reach(answer.is_ok() || answered.contains(id)),
                is_fenced: broker.is_fenced,
                directories: Ok(Vec::new()),
                logs: None,
                sized_at: None,
            };
            match found.answers() {
                true => drop(self.silent.remove(id)),
                false => *self.silent.entry(*id).or_default() += 1,
            }
            match answer {
                Ok(answer) => {
                    found.sized_at = Some(answer.at);
                    connections.insert(*id, answer.connection);
                    match answer.directories.and_then(known) {
                        Ok(directories) => add_directories(reading, *id, &mut found, &directories),
                        Err(absence) => found.directories = Err(absence),
                    }
                }
                // The directories of a broker that has answered are unknown, the broker is not.
                Err(absence) if found.answers() => {
                    found.directories = Err(Absence { cause: Cause::Failed, ..absence });
                }
                Err(absence) => found.directories = Err(absence),
            }
            reading.brokers.insert(*id, found);
        }
        connections
    }

    async fn read_facts(
        &self,
        reading: &mut Reading,
        metadata: &Metadata,
        connections: &BTreeMap<i32, Connection>,
    ) {
        if reading.facts.is_due(Instant::now()) {
            let hidden: BTreeSet<String> = reading
                .topics
                .iter()
                .filter(|(name, _)| !metadata.topics.contains_key(&***name))
                .map(|(name, _)| name.to_string())
                .collect();
            let unlisted = UnlistedTopics {
                names: hidden.into_iter().collect(),
                gap: gap(reading.brokers.iter().filter_map(|(id, broker)| broker.gap(*id))),
            };
            reading.facts = Facts::read(connections, unlisted, self.limit).await;
        }
        // Topics that are in log directories only are no topics of the login.
        reading.topics.retain(|name, _| metadata.topics.contains_key(&**name));
        let incomplete = reading.incomplete_topics();
        if let Some(any) = connections.values().next() {
            reading.facts.read_min_isr(any, incomplete, self.limit).await;
        }
    }
}

/// The brokers to ask: those in the metadata, and the fenced ones.
fn brokers(metadata: &Metadata, described: Option<&ClusterDescription>) -> BTreeMap<i32, BrokerTarget> {
    let known = metadata.brokers.values().map(|address| (address, false));
    let fenced = described.into_iter().flat_map(|cluster| {
        let fenced = cluster.brokers.iter().filter(|broker| cluster.fenced.contains(&broker.id));
        fenced.map(|address| (address, true))
    });
    // A broker in the metadata that is fenced by now is fenced.
    let all = known.chain(fenced);
    all.map(|(address, is_fenced)| (address.id, BrokerTarget { address: address.clone(), is_fenced }))
        .collect()
}

fn reach(has_answered: bool) -> Reach {
    if has_answered { Reach::Answers } else { Reach::Silent }
}

/// Connects to a broker, and asks it for its log directories. A broker that answers anything is reached: its
/// log directories may take longer, such as on slow disks.
async fn node(cluster: &Cluster, id: i32, address: &str, limit: Duration) -> Result<NodeAnswer, Absence> {
    let until = Instant::now() + limit;
    let reached = async {
        let connection = cluster.connection_to(address).await?;
        let version = connection.version_of::<ApiVersionsRequest>()?;
        connection.send_at(&ApiVersions::request(version), version).await?;
        Ok(connection)
    };
    let reached: Result<Connection, ClientError> =
        timeout_at(until, reached).await.map_err(|_| late(id, limit))?;
    let connection = reached.map_err(|error| Absence::of(&error))?;
    let request = DescribeLogDirsRequest { topics: None };
    let answer = timeout_at(until, connection.send(&request)).await;
    let at = Instant::now();
    let directories = match answer {
        Ok(answer) => answer.and_then(|answer| LogDir::from_response(id, answer)).map_err(|error| {
            let absence = Absence::of(&error);
            match absence.cause {
                Cause::Silent => Absence { cause: Cause::Failed, ..absence },
                _ => absence,
            }
        }),
        Err(_) => {
            let why = format!("no answer for them within {} ms", limit.as_millis());
            Err(Absence { cause: Cause::Failed, why })
        }
    };
    Ok(NodeAnswer { connection, directories, at })
}

fn late(broker: i32, limit: Duration) -> Absence {
    Absence::silent(format!("broker {broker} did not answer within {} ms", limit.as_millis()))
}

#[cfg(test)]
mod tests;
