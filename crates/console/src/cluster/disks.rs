//! The log directories of all brokers, and the size of each topic.

use std::collections::HashMap;

use serde::Serialize;
use thalweg_client::{Admin, ClientError, LogDir};
use utoipa::ToSchema;

/// The log directories of all brokers.
pub struct Disks {
    pub directories: Vec<LogDirectory>,
    /// Brokers that did not report their directories, with the reason.
    pub unknown: Vec<String>,
    /// Bytes of each topic, over all its replicas.
    pub sizes: HashMap<String, u64>,
}

/// A log directory of a broker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LogDirectory {
    /// Node id of the broker.
    pub broker: i32,
    /// Path of the directory.
    pub path: String,
    /// Bytes of the replicas in it.
    pub log_bytes: u64,
    /// The number of replicas in it.
    pub replicas: usize,
    /// Size of the file system, if the broker reports it.
    pub total_bytes: Option<u64>,
    /// Free bytes of the file system, if the broker reports them.
    pub usable_bytes: Option<u64>,
    /// The error of an unusable directory.
    pub error: Option<String>,
}

impl Disks {
    /// Reads the log directories of these brokers.
    pub async fn read(admin: &Admin, brokers: &[i32]) -> Result<Disks, ClientError> {
        let mut disks = Disks { directories: Vec::new(), unknown: Vec::new(), sizes: HashMap::new() };
        for (broker, answer) in admin.describe_log_dirs(Some(brokers), None).await? {
            match answer {
                Ok(found) => found.into_iter().for_each(|(path, found)| disks.add(broker, path, found)),
                Err(error) => disks.unknown.push(error.to_string()),
            }
        }
        Ok(disks)
    }

    fn add(&mut self, broker: i32, path: String, found: Result<LogDir, ClientError>) {
        let mut directory = LogDirectory {
            broker,
            path,
            log_bytes: 0,
            replicas: 0,
            total_bytes: None,
            usable_bytes: None,
            error: found.as_ref().err().map(ToString::to_string),
        };
        if let Ok(found) = found {
            let known = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
            (directory.total_bytes, directory.usable_bytes) =
                (known(found.total_bytes), known(found.usable_bytes));
            directory.replicas = found.replicas.len();
            for (at, replica) in found.replicas {
                let bytes = u64::try_from(replica.bytes).unwrap_or(0);
                directory.log_bytes += bytes;
                match self.sizes.get_mut(&*at.topic) {
                    Some(sum) => *sum += bytes,
                    None => {
                        self.sizes.insert(at.topic.to_string(), bytes);
                    }
                }
            }
        }
        self.directories.push(directory);
    }
}
