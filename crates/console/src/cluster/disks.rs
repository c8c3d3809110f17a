//! The log directories of all brokers, and how much each topic has in them.

use std::collections::HashMap;

use serde::Serialize;
use thalweg_client::{Cluster, Refused};
use thalweg_wire::request::DescribeLogDirsRequest;
use utoipa::ToSchema;

use super::ask_each;

/// The log directories of all brokers.
pub struct Disks {
    pub directories: Vec<LogDirectory>,
    /// Brokers whose directories are not known, and why.
    pub unknown: Vec<String>,
    /// Bytes of each topic, over all its replicas.
    pub sizes: HashMap<String, u64>,
}

/// A log directory of a broker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LogDirectory {
    /// The broker.
    pub broker: i32,
    /// The directory.
    pub path: String,
    /// Bytes of the replicas in it.
    pub log_bytes: u64,
    /// The number of replicas in it.
    pub replicas: usize,
    /// The size of its file system, if the broker reports it.
    pub total_bytes: Option<u64>,
    /// What is free of that.
    pub usable_bytes: Option<u64>,
    /// Why it cannot be used.
    pub error: Option<String>,
}

impl Disks {
    /// Asks these brokers.
    pub async fn read(cluster: &Cluster, brokers: impl Iterator<Item = i32>) -> Disks {
        let requests = brokers.map(|id| (id, DescribeLogDirsRequest { topics: None }));
        let mut disks = Disks { directories: Vec::new(), unknown: Vec::new(), sizes: HashMap::new() };
        for (broker, answer) in ask_each(cluster, requests).await {
            let answer = answer.and_then(|answer| {
                Refused::check(answer.error_code, None, || format!("Log directories of broker {broker}"))?;
                Ok(answer)
            });
            match answer {
                Ok(answer) => {
                    for result in answer.results {
                        disks.add(broker, result);
                    }
                }
                Err(error) => disks.unknown.push(error.to_string()),
            }
        }
        disks
    }

    fn add(
        &mut self,
        broker: i32,
        result: thalweg_wire::request::describe_log_dirs_response::DescribeLogDirsResult,
    ) {
        let error =
            Refused::check(result.error_code, None, || format!("Log directory {}", result.log_dir)).err();
        let mut directory = LogDirectory {
            broker,
            path: result.log_dir,
            log_bytes: 0,
            replicas: 0,
            total_bytes: u64::try_from(result.total_bytes).ok(),
            usable_bytes: u64::try_from(result.usable_bytes).ok(),
            error: error.map(|error| error.to_string()),
        };
        for topic in result.topics {
            let sizes =
                topic.partitions.iter().map(|partition| u64::try_from(partition.partition_size).unwrap_or(0));
            let bytes: u64 = sizes.sum();
            directory.log_bytes += bytes;
            directory.replicas += topic.partitions.len();
            *self.sizes.entry(topic.name).or_default() += bytes;
        }
        self.directories.push(directory);
    }
}
