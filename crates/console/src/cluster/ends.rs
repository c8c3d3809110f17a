//! The end offsets of many partitions, by requests to the leaders in the catalog: the client's memory would
//! keep the full metadata of every topic.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{Cluster, in_parallel};
use thalweg_wire::list_offsets::LATEST_TIMESTAMP;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::{ListOffsetsRequest, ListOffsetsResponse};

use super::View;
use super::catalog::{Catalog, TopicLine};

/// Partitions per request.
const PARTITIONS_MAX: usize = 4000;
/// Time limit for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Reads the ends of these partitions, without those of leaders that do not answer. `take` gets the topic,
/// the partition and its end.
pub async fn read(
    view: &View,
    catalog: &Catalog,
    is_wanted: impl Fn(&TopicLine, i32) -> bool,
    mut take: impl FnMut(&str, i32, i64),
) {
    let sending = requests(catalog, is_wanted).into_iter().map(|(leader, request)| {
        let cluster = view.cluster().clone();
        async move { tokio::time::timeout(ANSWER_WAIT, send(&cluster, leader, request)).await.ok()? }
    });
    for answer in in_parallel(sending.collect()).await.into_iter().flatten() {
        for topic in &answer.topics {
            for found in topic.partitions.iter().filter(|found| found.error_code == 0) {
                take(&topic.name, found.partition_index, found.offset);
            }
        }
    }
}

async fn send(cluster: &Cluster, leader: i32, request: ListOffsetsRequest) -> Option<ListOffsetsResponse> {
    let connection = cluster.broker(leader).await.ok()?;
    connection.send(&request).await.ok()
}

/// Requests for the ends of these partitions, by leader.
fn requests(
    catalog: &Catalog,
    is_wanted: impl Fn(&TopicLine, i32) -> bool,
) -> Vec<(i32, ListOffsetsRequest)> {
    let mut open: BTreeMap<i32, (usize, Vec<ListOffsetsTopic>)> = BTreeMap::new();
    let mut requests = Vec::new();
    let request = |topics| ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    for topic in &catalog.topics {
        for (index, leader) in (0..).zip(&topic.leaders) {
            if !catalog.brokers.contains_key(leader) || !is_wanted(topic, index) {
                continue;
            }
            let (count, topics) = open.entry(*leader).or_default();
            if *count >= PARTITIONS_MAX {
                requests.push((*leader, request(std::mem::take(topics))));
                *count = 0;
            }
            *count += 1;
            let latest = ListOffsetsPartition {
                partition_index: index,
                timestamp: LATEST_TIMESTAMP,
                ..ListOffsetsPartition::default()
            };
            match topics.last_mut().filter(|last| last.name == *topic.name) {
                Some(last) => last.partitions.push(latest),
                None => {
                    topics.push(ListOffsetsTopic { name: topic.name.to_string(), partitions: vec![latest] })
                }
            }
        }
    }
    requests.extend(open.into_iter().map(|(leader, (_, topics))| (leader, request(topics))));
    requests
}
