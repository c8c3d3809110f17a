//! The log directories of brokers, and the replicas in them (KIP-113).

use std::collections::BTreeMap;

use thalweg_dial::ClientError;
use thalweg_wire::request::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use thalweg_wire::request::describe_log_dirs_request::DescribableLogDirTopic;
use thalweg_wire::request::{AlterReplicaLogDirsRequest, DescribeLogDirsRequest, DescribeLogDirsResponse};

use super::{Admin, Outcomes, by_topic, refused};
use crate::offsets::TopicPartition;

/// A log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDir {
    /// Total size of the file system in bytes, if the broker reports it.
    pub total_bytes: Option<i64>,
    /// Free space of the file system in bytes, if the broker reports it.
    pub usable_bytes: Option<i64>,
    /// True if the directory accepts no new replicas.
    pub is_cordoned: bool,
    /// The replicas in the directory. A moving replica is listed in both directories.
    pub replicas: BTreeMap<TopicPartition, LogDirReplica>,
}

/// A replica in a log directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDirReplica {
    /// The replica's size in bytes.
    pub bytes: i64,
    /// Offsets behind the high watermark, or for a moving replica behind the other replica's log end.
    pub lag: i64,
    /// True if the replica is a copy that will replace a replica in another directory.
    pub is_future: bool,
}

/// The replica of a partition on a broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The broker's id.
    pub broker: i32,
    /// The replica's partition.
    pub at: TopicPartition,
}

impl LogDir {
    /// The log directories in a broker's response, by path.
    pub fn from_response(
        broker: i32,
        response: DescribeLogDirsResponse,
    ) -> Result<Outcomes<String, LogDir>, ClientError> {
        refused(response.error_code, None, || format!("Log directories of broker {broker}"))?;
        let known = |bytes: i64| (bytes >= 0).then_some(bytes);
        let dirs = response.results.into_iter().map(|dir| {
            let what = || format!("Log directory {} of broker {broker}", dir.log_dir);
            let outcome = refused(dir.error_code, None, what);
            let mut replicas = BTreeMap::new();
            for topic in dir.topics {
                for partition in topic.partitions {
                    let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                    let replica = LogDirReplica {
                        bytes: partition.partition_size,
                        lag: partition.offset_lag,
                        is_future: partition.is_future_key,
                    };
                    replicas.insert(at, replica);
                }
            }
            let described = LogDir {
                total_bytes: known(dir.total_bytes),
                usable_bytes: known(dir.usable_bytes),
                is_cordoned: dir.is_cordoned,
                replicas,
            };
            (dir.log_dir, outcome.map(|()| described))
        });
        Ok(dirs.collect())
    }

    /// Total and usable bytes of the file system, if the broker reports them.
    pub fn space(&self) -> Option<(u64, u64)> {
        Some((u64::try_from(self.total_bytes?).ok()?, u64::try_from(self.usable_bytes?).ok()?))
    }
}

impl Admin {
    /// The log directories of these brokers, or of all, by path. With partitions, only their replicas are
    /// described.
    pub async fn describe_log_dirs(
        &self,
        brokers: Option<&[i32]>,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Outcomes<i32, Outcomes<String, LogDir>>, ClientError> {
        let request = |_| DescribeLogDirsRequest {
            topics: partitions.map(|partitions| {
                let topics = by_topic(partitions.iter()).into_iter();
                let topics = topics.map(|(topic, partitions)| DescribableLogDirTopic {
                    topic: topic.to_owned(),
                    partitions,
                });
                topics.collect()
            }),
        };
        self.send_to_brokers(brokers, request, LogDir::from_response).await
    }

    /// Moves replicas to other log directories of their brokers, by absolute path.
    /// [`Admin::describe_log_dirs`] shows the progress.
    pub async fn alter_replica_log_dirs(
        &self,
        moves: &BTreeMap<Replica, String>,
    ) -> Result<Outcomes<Replica>, ClientError> {
        let mut brokers: Vec<i32> = moves.keys().map(|replica| replica.broker).collect();
        brokers.dedup();
        let request = |broker| {
            let mut dirs: BTreeMap<&str, Vec<&TopicPartition>> = BTreeMap::new();
            for (replica, path) in moves.iter().filter(|(replica, _)| replica.broker == broker) {
                dirs.entry(path).or_default().push(&replica.at);
            }
            let dirs = dirs.into_iter().map(|(path, partitions)| {
                let topics = by_topic(partitions.into_iter()).into_iter();
                let topics = topics
                    .map(|(name, partitions)| AlterReplicaLogDirTopic { name: name.to_owned(), partitions });
                AlterReplicaLogDir { path: path.to_owned(), topics: topics.collect() }
            });
            AlterReplicaLogDirsRequest { dirs: dirs.collect() }
        };
        let answers = self
            .send_to_brokers(Some(&brokers), request, |broker, response| {
                let mut outcomes = Outcomes::new();
                for topic in response.results {
                    for partition in topic.partitions {
                        let at = TopicPartition::new(topic.topic_name.as_str(), partition.partition_index);
                        let what = || format!("Moving the replica of {at} on broker {broker}");
                        let outcome = refused(partition.error_code, None, what);
                        outcomes.insert(Replica { broker, at }, outcome);
                    }
                }
                Ok(outcomes)
            })
            .await?;
        let mut outcomes = Outcomes::new();
        for (broker, answer) in answers {
            match answer {
                Ok(of_broker) => outcomes.extend(of_broker),
                Err(error) => {
                    let requested = moves.keys().filter(|replica| replica.broker == broker);
                    outcomes.extend(requested.map(|replica| (replica.clone(), Err(error.clone()))));
                }
            }
        }
        Ok(outcomes)
    }
}
