//! The answers of each broker about itself: its log directories, and its limit of replication.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_client::verdict::{Absence, Cause, DirectoryEvidence, directory_gap, gap, hidden_topics};
use thalweg_client::{
    ClientError, Connection, LogDir, Metadata, RefusedRequest, in_parallel, throttle_rates,
};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::{DescribeConfigsRequest, DescribeLogDirsRequest};

use super::views::Views;

/// Kafka's number of the resource type "broker".
const BROKER_RESOURCE: i8 = 4;
/// Kafka's number of the source "set for this broker at run time".
const SOURCE_BROKER: i8 = 2;

/// The answers of all brokers that were reached.
pub(crate) struct NodeAnswers {
    directories: BTreeMap<i32, Result<Vec<DirectoryEvidence>, Absence>>,
    /// Topics with a replica in one of the directories.
    topics: BTreeSet<String>,
    /// Brokers with a replication throttle.
    pub throttled: Result<Vec<i32>, Absence>,
}

struct NodeAnswer {
    directories: Result<(Vec<DirectoryEvidence>, BTreeSet<String>), ClientError>,
    is_throttled: Result<bool, ClientError>,
}

impl NodeAnswers {
    /// Asks all brokers, many at the same time.
    pub async fn request(views: &Views<'_>, within: Duration) -> NodeAnswers {
        let requests = views.nodes().map(|(id, view)| {
            let connection = view.connection.clone();
            async move {
                let both =
                    async { tokio::join!(directories(&connection, id), is_throttled(&connection, id)) };
                let answer = tokio::time::timeout(within, both).await.ok();
                (id, answer.map(|(directories, is_throttled)| NodeAnswer { directories, is_throttled }))
            }
        });
        let requests = requests.collect();
        let mut answers =
            NodeAnswers { directories: BTreeMap::new(), topics: BTreeSet::new(), throttled: Ok(Vec::new()) };
        for (id, answer) in in_parallel(requests).await {
            answers.add(id, answer, within);
        }
        answers
    }

    fn add(&mut self, id: i32, answer: Option<NodeAnswer>, within: Duration) {
        let late = || Absence::silent(format!("broker {id} did not answer within {} ms", within.as_millis()));
        let (directories, is_throttled) = match answer {
            Some(answer) => (
                answer.directories.map_err(|error| Absence::of(&error)),
                answer.is_throttled.map_err(|error| Absence::of(&error)),
            ),
            None => {
                // The broker has answered before.
                let failed = Absence { cause: Cause::Failed, ..late() };
                (Err(failed.clone()), Err(failed))
            }
        };
        let directories = directories.map(|(directories, topics)| {
            self.topics.extend(topics);
            directories
        });
        self.directories.insert(id, directories);
        match (&mut self.throttled, is_throttled) {
            (Ok(throttled), Ok(true)) => throttled.push(id),
            (Ok(_), Err(absence)) => self.throttled = Err(absence),
            _ => {}
        }
    }

    /// The log directories of a broker; none if the broker was not reached.
    pub fn directories(&self, id: i32) -> Result<Vec<DirectoryEvidence>, Absence> {
        self.directories.get(&id).cloned().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// The number of topics that exist and that the login may not describe; unknown if the directories of one
    /// of the cluster's brokers are, unless the login may describe topics of any name.
    pub async fn hidden_topics(
        &self,
        broker: &Connection,
        seen: &Metadata,
        brokers: impl IntoIterator<Item = i32>,
    ) -> Result<usize, Absence> {
        let names = self.topics.iter().filter(|name| !seen.topics.contains_key(*name));
        let gap = gap(brokers.into_iter().filter_map(|id| directory_gap(id, self.directories.get(&id))));
        hidden_topics(names.cloned().collect(), gap, |request| async move { broker.send(&request).await })
            .await
    }
}

async fn directories(
    broker: &Connection,
    id: i32,
) -> Result<(Vec<DirectoryEvidence>, BTreeSet<String>), ClientError> {
    let answer = broker.send(&DescribeLogDirsRequest { topics: None }).await?;
    let (mut directories, mut topics) = (Vec::new(), BTreeSet::new());
    for (path, found) in LogDir::from_response(id, answer)? {
        let space = found.as_ref().ok().and_then(LogDir::space);
        directories.push(DirectoryEvidence { path, has_failed: found.is_err(), space });
        topics.extend(found.iter().flat_map(|dir| dir.replicas.keys()).map(|at| at.topic.to_string()));
    }
    Ok((directories, topics))
}

/// True if a limit of replication was set for this broker at run time.
pub(crate) async fn is_throttled(broker: &Connection, id: i32) -> Result<bool, ClientError> {
    let resources = vec![DescribeConfigsResource {
        resource_type: BROKER_RESOURCE,
        resource_name: id.to_string(),
        configuration_keys: Some(throttle_rates()),
    }];
    let request = DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() };
    let mut is_throttled = false;
    for result in broker.send(&request).await?.results {
        let what = || format!("The configuration of broker {id}");
        RefusedRequest::check(result.error_code, result.error_message.as_deref(), what)?;
        is_throttled |= result.configs.iter().any(|config| config.config_source == SOURCE_BROKER);
    }
    Ok(is_throttled)
}
