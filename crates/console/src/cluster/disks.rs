//! The log directories of all brokers, and the size of each topic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;
use thalweg_client::verdict::{Absence, Cause, DirectoryEvidence};
use thalweg_client::{Admin, ClientError, LogDir};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::catalog::Catalog;
use super::ms_at;
use crate::format;

/// Time for further attempts at a broker that refuses connections. People wait for the page.
const RETRY: Duration = Duration::from_secs(1);
/// Time limit for the answer of each broker.
const WAIT: Duration = Duration::from_secs(3);

/// The log directories of all brokers.
pub struct Disks {
    pub directories: Vec<LogDirectory>,
    /// Brokers that did not report their directories, with the reason.
    pub unknown: BTreeMap<i32, Absence>,
    /// Bytes of each topic, over its replicas in the directories.
    pub sizes: HashMap<String, u64>,
    /// The time of the answers.
    pub at: Instant,
}

/// A log directory of a broker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LogDirectory {
    /// Node id of the broker.
    pub broker: i32,
    /// Path of the directory.
    pub path: String,
    /// Bytes of the replicas in it; none in an unusable directory.
    pub log_bytes: Option<u64>,
    /// The number of replicas in it; none in an unusable directory.
    pub replicas: Option<usize>,
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
        let admin = admin.clone().with_timeout(RETRY).with_answer_limit(WAIT);
        let answers = admin.describe_log_dirs(Some(brokers), None).await?;
        let mut disks = Disks {
            directories: Vec::new(),
            unknown: BTreeMap::new(),
            sizes: HashMap::new(),
            at: Instant::now(),
        };
        for (broker, answer) in answers {
            match answer {
                Ok(found) => found.into_iter().for_each(|(path, found)| disks.add(broker, path, found)),
                Err(error) => drop(disks.unknown.insert(broker, Absence::of(&error))),
            }
        }
        Ok(disks)
    }

    /// True if a broker did not answer for its directories: its replicas do not count, be it fenced or not.
    pub fn is_silent(&self, broker: i32) -> bool {
        self.unknown.get(&broker).is_some_and(|absence| absence.cause == Cause::Silent)
    }

    /// The time of the answers, in milliseconds since 1970.
    pub fn read_at_ms(&self) -> i64 {
        ms_at(self.at)
    }

    /// The directories of a broker as evidence, or the reason for their absence.
    pub fn evidence(&self, broker: i32) -> Result<Vec<DirectoryEvidence>, Absence> {
        if let Some(absence) = self.unknown.get(&broker) {
            return Err(absence.clone());
        }
        let own = self.directories.iter().filter(|directory| directory.broker == broker);
        let evidence = own.map(|directory| DirectoryEvidence {
            path: directory.path.clone(),
            has_failed: directory.error.is_some(),
            space: directory.total_bytes.zip(directory.usable_bytes),
        });
        Ok(evidence.collect())
    }

    /// The brokers whose replicas are not all known: without an answer, not available, or with an unusable
    /// directory.
    pub fn incomplete(&self, catalog: &Catalog) -> BTreeSet<i32> {
        let failed = self.directories.iter().filter(|directory| directory.error.is_some());
        let failed = failed.map(|directory| directory.broker);
        self.unknown.keys().copied().chain(catalog.unavailable()).chain(failed).collect()
    }

    /// Growth of the logs since an earlier reading, in bytes per second. Topics that retention shortens, and
    /// new and deleted topics, do not count. None if the readings are not of the same brokers.
    pub fn growth_since(&self, before: &Disks) -> Option<f64> {
        let brokers = |disks: &Disks| -> BTreeSet<i32> {
            disks.directories.iter().map(|directory| directory.broker).collect()
        };
        let seconds = self.at.checked_duration_since(before.at)?.as_secs_f64();
        if seconds <= 0.0 || self.directories.is_empty() || brokers(self) != brokers(before) {
            return None;
        }
        let grown = |(name, bytes): (&String, &u64)| bytes.checked_sub(*before.sizes.get(name)?);
        let bytes: u64 = self.sizes.iter().filter_map(grown).sum();
        Some(bytes as f64 / seconds)
    }

    /// The reason why sizes of replicas are missing, if so.
    pub fn gap(&self, catalog: &Catalog) -> Option<String> {
        let of_brokers = |ids: Vec<i32>, of_one: &str, of_all: &str| match &ids[..] {
            [] => None,
            [id] => Some(format!("broker {id} {of_one}")),
            ids => Some(format!("brokers {} {of_all}", format::ids(ids))),
        };
        let silent = self.unknown.iter().filter(|(_, absence)| absence.cause == Cause::Silent);
        let silent = silent.map(|(id, _)| *id).collect();
        let failed = self.directories.iter().filter(|directory| directory.error.is_some());
        let failed: BTreeSet<i32> = failed.map(|directory| directory.broker).collect();
        of_brokers(silent, "does not answer", "do not answer")
            .or_else(|| of_brokers(catalog.unavailable().collect(), "is not available", "are not available"))
            .or_else(|| self.unknown.values().next().map(|absence| absence.reason().to_owned()))
            .or_else(|| {
                let of_one = "has an unusable log directory";
                of_brokers(failed.into_iter().collect(), of_one, "have unusable log directories")
            })
    }

    fn add(&mut self, broker: i32, path: String, found: Result<LogDir, ClientError>) {
        let mut directory = LogDirectory {
            broker,
            path,
            log_bytes: None,
            replicas: None,
            total_bytes: None,
            usable_bytes: None,
            error: found.as_ref().err().map(ToString::to_string),
        };
        if let Ok(found) = found {
            let known = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
            (directory.total_bytes, directory.usable_bytes) =
                (known(found.total_bytes), known(found.usable_bytes));
            directory.replicas = Some(found.replicas.len());
            let mut log_bytes = 0;
            for (at, replica) in found.replicas {
                let bytes = u64::try_from(replica.bytes).unwrap_or(0);
                log_bytes += bytes;
                match self.sizes.get_mut(&*at.topic) {
                    Some(sum) => *sum += bytes,
                    None => {
                        self.sizes.insert(at.topic.to_string(), bytes);
                    }
                }
            }
            directory.log_bytes = Some(log_bytes);
        }
        self.directories.push(directory);
    }
}
