//! The topics of a repetition: created, awaited, and deleted with their files, so that repetitions do not
//! affect each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_client::{ClientError, Cluster, RefusedRequest};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::{CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest};
use tokio::time::Instant;

use super::error::Failure;
use crate::workload::Topics;

/// Number of idle partitions per topic.
const IDLE_PER_TOPIC: u32 = 1000;
/// Number of requests for the metadata of all topics.
const METADATA_ASKED: usize = 9;

/// The prefix of all topics of the lab.
const PREFIX: &str = "thalweg-lab-";
/// Timeout of the controller for a request.
const ADMIN_TIMEOUT_MS: i32 = 30_000;
/// Timeout for all partitions to have leaders, and the addition per partition: some file systems take
/// milliseconds to create the files of a partition.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(30);
const LEADER_TIMEOUT: Duration = Duration::from_millis(10);
/// Timeout for the files of deleted topics to disappear.
const FILES_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Poll interval for the leaders of few partitions: the wait for them may be the measured figure.
const POLL_OF_FEW: Duration = Duration::from_millis(2);
const FEW: usize = 100;

/// The topic names of a repetition. `run` distinguishes runs, `serial` repetitions.
pub(super) fn names(run: &str, serial: u32, topics: &Topics) -> Vec<String> {
    (0..topics.count.max(1)).map(|number| format!("{PREFIX}{run}-{serial}-{number}")).collect()
}

/// The prefix of the names of temporary topics in a repetition with these topics. The prefix begins with the
/// name of one of these, like a partition's directory.
pub(super) fn passing_prefix(names: &[String]) -> String {
    format!("{}-t", names.first().map_or(PREFIX, String::as_str))
}

/// A number in base 36, for names.
pub(super) fn base_36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
        number /= 36;
    }
    digits.into_iter().rev().collect()
}

/// Creates topics and waits until all their partitions have leaders.
pub(super) async fn create(cluster: &Cluster, names: &[String], topics: &Topics) -> Result<(), Failure> {
    let configs = topics
        .properties
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: name.clone(), value: Some(value.clone()) });
    let configs: Vec<_> = configs.collect();
    let refused = |source: ClientError| Failure::Refused {
        what: format!(
            "Creating {} topics with {} partitions and replication factor {}",
            names.len(),
            topics.partitions,
            topics.replication_factor
        ),
        source,
    };
    let creatable = names.iter().map(|name| CreatableTopic {
        name: name.clone(),
        num_partitions: i32::try_from(topics.partitions).unwrap_or(i32::MAX),
        replication_factor: i16::try_from(topics.replication_factor).unwrap_or(i16::MAX),
        configs: configs.clone(),
        ..CreatableTopic::default()
    });
    let request = CreateTopicsRequest {
        topics: creatable.collect(),
        timeout_ms: ADMIN_TIMEOUT_MS,
        validate_only: false,
    };
    let response = cluster.send_controller(&request).await.map_err(refused)?;
    for created in response.topics {
        let name = created.name;
        RefusedRequest::check(created.error_code, created.error_message.as_deref(), || {
            format!("Creating topic {name}")
        })
        .map_err(|error| refused(error.into()))?;
    }
    await_leaders(cluster, names, topics).await
}

async fn await_leaders(cluster: &Cluster, names: &[String], topics: &Topics) -> Result<(), Failure> {
    let began = Instant::now();
    let partitions = names.len() * topics.partitions as usize;
    let timeout = LEADERS_TIMEOUT + LEADER_TIMEOUT * u32::try_from(partitions).unwrap_or(u32::MAX);
    loop {
        let metadata = cluster
            .refresh(names, false)
            .await
            .map_err(|source| Failure::Refused { what: "Metadata of the run's topics".to_owned(), source })?;
        let led = names
            .iter()
            .filter_map(|name| metadata.topics.get(name))
            .flat_map(|topic| &topic.partitions)
            .filter(|partition| {
                partition.leader.is_some() && partition.isr.len() >= usize::from(topics.replication_factor)
            })
            .count();
        if led == partitions {
            return Ok(());
        }
        if began.elapsed() > timeout {
            return Err(Failure::NoLeaders { led, partitions, waited: timeout });
        }
        tokio::time::sleep(if partitions <= FEW { POLL_OF_FEW } else { POLL }).await;
    }
}

/// Creates idle partitions, with one replica each. `run` distinguishes runs.
pub(super) async fn create_idle(cluster: &Cluster, run: &str, partitions: u32) -> Result<(), Failure> {
    for (number, first) in (0..partitions).step_by(IDLE_PER_TOPIC as usize).enumerate() {
        let topics = Topics {
            count: 1,
            partitions: IDLE_PER_TOPIC.min(partitions - first),
            replication_factor: 1,
            created_per_s: 0,
            properties: BTreeMap::new(),
        };
        create(cluster, &[format!("{PREFIX}{run}-idle-{number}")], &topics).await?;
    }
    Ok(())
}

/// The time of an answer with the metadata of all topics, in microseconds: the median of several. Includes
/// decoding by the client.
pub(super) async fn metadata_us(cluster: &Cluster) -> Result<f64, Failure> {
    let refused = |source| Failure::Refused { what: "Metadata of all topics".to_owned(), source };
    let any = cluster.any().await.map_err(refused)?;
    let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
    let mut times = Vec::with_capacity(METADATA_ASKED);
    for _ in 0..METADATA_ASKED {
        let began = Instant::now();
        any.send(&request).await.map_err(refused)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[METADATA_ASKED / 2].as_secs_f64() * 1e6)
}

/// Deletes temporary topics that still exist.
pub(super) async fn delete_passing(cluster: &Cluster, names: &[String]) -> Result<(), Failure> {
    let refused = |source| Failure::Refused { what: "Metadata of all topics".to_owned(), source };
    let prefix = passing_prefix(names);
    let mut looks_without = 0;
    // A creation requested earlier may be served after the first check.
    while looks_without < 2 {
        let metadata = cluster.refresh_all().await.map_err(refused)?;
        let left = metadata.topics.keys().filter(|name| name.starts_with(&prefix));
        let left: Vec<String> = left.map(ToString::to_string).collect();
        looks_without = if left.is_empty() { looks_without + 1 } else { 0 };
        if !left.is_empty() {
            delete(cluster, &left).await?;
        }
        tokio::time::sleep(POLL * 5).await;
    }
    Ok(())
}

/// Deletes topics. Missing topics are not an error: a failed repetition may not have created all.
pub(super) async fn delete(cluster: &Cluster, names: &[String]) -> Result<(), Failure> {
    let refused =
        |source: ClientError| Failure::Refused { what: "Deleting the run's topics".to_owned(), source };
    let any = cluster.any().await.map_err(refused)?;
    let version = any.version_of::<DeleteTopicsRequest>().map_err(|error| refused(error.into()))?;
    let mut request = DeleteTopicsRequest { timeout_ms: ADMIN_TIMEOUT_MS, ..DeleteTopicsRequest::default() };
    // From version 6 on, topics are named in a struct that can contain an id instead.
    if version >= 6 {
        let states = names
            .iter()
            .map(|name| DeleteTopicState { name: Some(name.clone()), ..DeleteTopicState::default() });
        request.topics = states.collect();
    } else {
        request.topic_names = names.to_vec();
    }
    let response = cluster.send_controller(&request).await.map_err(refused)?;
    for deleted in response.responses {
        if deleted.error_code == ErrorCode::UnknownTopicOrPartition.code() {
            continue;
        }
        let name = deleted.name.unwrap_or_default();
        RefusedRequest::check(deleted.error_code, deleted.error_message.as_deref(), || {
            format!("Deleting topic {name}")
        })
        .map_err(|error| refused(error.into()))?;
    }
    Ok(())
}

/// Waits until no files of these topics are left below a directory on this machine.
pub(super) async fn await_files_gone(dir: &Path, names: &[String]) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let (below, looked_for) = (dir.to_owned(), names.to_vec());
        let left =
            tokio::task::spawn_blocking(move || find(&below, &looked_for, 3)).await.unwrap_or_default();
        let Some(left) = left else { return Ok(()) };
        if began.elapsed() > FILES_TIMEOUT {
            return Err(Failure::FilesLeft { example: left.display().to_string(), waited: FILES_TIMEOUT });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// A directory of a partition of these topics, within a limited depth.
fn find(dir: &Path, names: &[String], levels: u32) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // `topic-0`, or `topic-0.<id>-delete` during deletion.
        let is_one =
            names.iter().any(|topic| name.strip_prefix(&**topic).is_some_and(|rest| rest.starts_with('-')));
        if is_one {
            return Some(entry.path());
        }
        if levels > 1
            && !name.starts_with(PREFIX)
            && let Some(found) = find(&entry.path(), names, levels - 1)
        {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_distinguish_runs_repetitions_and_topics() {
        let topics = Topics {
            count: 2,
            partitions: 1,
            replication_factor: 1,
            created_per_s: 0,
            properties: Default::default(),
        };
        assert_eq!(names("k3", 7, &topics), ["thalweg-lab-k3-7-0", "thalweg-lab-k3-7-1"]);
    }

    #[test]
    fn names_hold_digits_and_letters() {
        assert_eq!(base_36(36 * 36 + 35), "10z");
    }

    #[tokio::test]
    async fn files_are_found_until_they_are_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let names = ["thalweg-lab-a-1-0".to_owned()];
        let data = dir.path().join("broker-1/data");
        std::fs::create_dir_all(data.join("thalweg-lab-a-1-0-0.77-delete")).expect("made");
        std::fs::create_dir_all(data.join("thalweg-lab-a-1-00-0")).expect("made");
        assert!(find(dir.path(), &names, 3).is_some());
        std::fs::remove_dir(data.join("thalweg-lab-a-1-0-0.77-delete")).expect("removed");
        assert_eq!(find(dir.path(), &names, 3), None);
        await_files_gone(dir.path(), &names).await.expect("gone");
    }
}
