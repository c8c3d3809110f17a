//! `cluster status`: asks every broker of a cluster for its state.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use thalweg_client::verdict::{Absence, Health, answer_of_controllers};
use thalweg_client::{ClientError, Connection, ConnectionOptions, RefusedRequest};
use thalweg_config::EffectiveTopicConfig;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_quorum_request::{PartitionData, TopicData};
use thalweg_wire::request::describe_quorum_response::ReplicaState;
use thalweg_wire::request::{
    DescribeConfigsRequest, DescribeQuorumRequest, ListPartitionReassignmentsRequest,
};

use super::health::exit_code;
use super::nodes::NodeAnswers;
use super::state::{PartitionStatus, Quorum, QuorumNode, Reassignment, Role, Status};
use super::views::Views;
use crate::connect::Connect;
use crate::failure::{CommandExit, CommandFailure, LoginFailure};
use crate::output::CommandOutput;
use crate::probe::{Answers, NoAnswer, probe};

/// Topics per DescribeConfigs request.
const TOPICS_PER_REQUEST: usize = 200;
/// Kafka's number of the resource type "topic".
const TOPIC_RESOURCE: i8 = 2;
const MIN_INSYNC_REPLICAS: &str = EffectiveTopicConfig::min_insync_replicas.name();
const METADATA_TOPIC: &str = "__cluster_metadata";
/// Time limit for the controllers. Without a majority, brokers search for an active controller much longer,
/// and the user wants to see the rest of the status.
const CONTROLLERS_WAIT: Duration = Duration::from_secs(5);

/// Pause before a second look, if the answers of brokers differ: a change may have happened between two
/// answers.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Show the health of a cluster: brokers, partitions, quorum. The exit code is the health.
///
/// Shows brokers that answer, partitions without a leader or with missing or out-of-sync replicas, failed and
/// full log directories, reassignments and throttles that remain of them, and the controller quorum.
///
/// Asks every broker on its own listener; a broker counts only if it answers. Works with every cluster that
/// speaks Kafka's protocol.
///
/// Exit codes: 0 healthy; 3 degraded: all partitions are served, but brokers, replicas, log directories or
/// controllers are missing, a disk is full, or brokers have different metadata; 4 unavailable: a partition
/// has no answering leader, or too few replicas for acks=all; 5 unreachable: no broker answers; 6 the login
/// is refused, or has no rights to see whether the cluster is healthy (it needs DESCRIBE on the cluster and
/// on all topics). 1 and 2 are errors of the command itself. Nearly full disks and throttles are warnings,
/// which do not change the exit code.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg cluster status
  thalweg cluster status --bootstrap-server broker-1:9092,broker-2:9092 --json | jq .under_replicated
  thalweg cluster status > /dev/null || echo 'look at the cluster'")]
pub struct Show {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: CommandOutput,
    /// Time limit for the answer of each broker, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout_ms: u64,
}

impl Show {
    /// Gathers and prints the status; fails unless the cluster is healthy.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let (bootstrap, options) = self.connect.addresses()?;
        let within = Duration::from_millis(self.timeout_ms);
        let status = match request_status(&bootstrap, &options, within).await? {
            Ok(status) => status,
            Err(missing) => {
                let health = Health::Unreachable;
                let not_reached: BTreeMap<_, _> =
                    missing.iter().map(|(address, missing)| (address.clone(), &missing.why)).collect();
                let document = json!({ "health": health.name(), "brokers": [], "not_reached": not_reached });
                self.output.show(&document, |_| Ok(String::new()))?;
                if let Some((_, refused)) = missing.iter().find(|(_, missing)| missing.is_login) {
                    return Err(LoginFailure(refused.why.clone()).into());
                }
                return Err(CommandExit { code: exit_code(health), why: unreachable(&missing) }.into());
            }
        };
        self.output.show(&status.to_json(), |style| Ok(status.to_text(style)))?;
        let is_shown = self.output.is_table() && std::io::stdout().is_terminal();
        let judged = status.judge();
        Ok(if is_shown { judged.map_err(Status::without_verdicts) } else { judged }?)
    }
}

/// The state of a cluster as a document; fails if no broker answers.
pub(crate) async fn state(
    bootstrap: &[String],
    options: &ConnectionOptions,
    within: Duration,
) -> anyhow::Result<Value> {
    match request_status(bootstrap, options, within).await? {
        Ok(status) => Ok(status.to_json()),
        Err(missing) => Err(CommandFailure(unreachable(&missing)).into()),
    }
}

fn unreachable(missing: &NotReached) -> String {
    let texts: Vec<&str> = missing.iter().map(|(_, missing)| &*missing.why).collect();
    format!("No broker answers: {}", texts.join("; "))
}

/// The addresses that did not answer, each with the reason.
type NotReached = Vec<(String, NoAnswer)>;

fn not_reached(answers: &Answers) -> NotReached {
    let failed = answers.iter().filter_map(|(address, answer)| {
        let missing = answer.as_ref().err()?;
        Some((address.clone(), missing.clone()))
    });
    failed.collect()
}

/// Gathers everything for a status; if no broker answers, returns the reason.
async fn request_status(
    bootstrap: &[String],
    options: &ConnectionOptions,
    within: Duration,
) -> anyhow::Result<Result<Status, NotReached>> {
    let mut answers = probe(bootstrap, options, within).await;
    let Some(mut views) = Views::of(&answers) else { return Ok(Err(not_reached(&answers))) };
    let mut differing = views.differing();
    if !differing.is_empty() {
        tokio::time::sleep(LOOK_AGAIN).await;
        answers = probe(bootstrap, options, within).await;
        let Some(again) = Views::of(&answers) else { return Ok(Err(not_reached(&answers))) };
        views = again;
        let still = views.differing();
        // Keep only brokers that differed in both looks, in the same way or another.
        let before: Vec<i32> = differing.iter().map(|one| one.broker).collect();
        differing = still.into_iter().filter(|one| before.contains(&one.broker)).collect();
    }
    let view = views.newest();
    let min_isr = min_isr(&view.connection, view.metadata.topics.keys()).await?;
    // Without an active controller, brokers hold these requests, and answer later ones of the same connection
    // no earlier.
    let held = Connection::connect(view.connection.peer(), options).await?;
    let (reassignments, quorum, nodes) = tokio::join!(
        answer_of_controllers(CONTROLLERS_WAIT, reassignments(&held)),
        answer_of_controllers(CONTROLLERS_WAIT, quorum(&held)),
        NodeAnswers::request(&views, within)
    );
    let mut partitions = views.partitions(&min_isr);
    for going in reassignments.iter().flatten() {
        let is_it = |p: &&mut PartitionStatus| p.topic == going.topic && p.partition == going.partition;
        if let Some(partition) = partitions.iter_mut().find(is_it) {
            partition.adding = going.adding.len();
        }
    }
    let brokers = views.brokers(&partitions, &nodes);
    let ids = brokers.iter().map(|broker| broker.id);
    let hidden_topics = nodes.hidden_topics(&view.connection, &view.metadata, ids).await;
    let mut others = not_reached(&answers);
    others.retain(|(address, _)| brokers.iter().all(|broker| broker.address.as_ref() != Some(address)));
    Ok(Ok(Status {
        cluster_id: view.metadata.cluster_id.clone().unwrap_or_default(),
        brokers,
        not_reached: others.into_iter().map(|(address, missing)| (address, missing.why)).collect(),
        differing,
        topics: view.metadata.topics.len(),
        partitions,
        hidden_topics,
        throttled: nodes.throttled,
        // Missing information must not hide the rest.
        reassignments: reassignments.map_err(Absence::from),
        quorum: quorum.map_err(Absence::from),
    }))
}

/// `min.insync.replicas` of each topic; none of a topic whose configuration the login may not see.
pub(crate) async fn min_isr(
    broker: &Connection,
    topics: impl Iterator<Item = &String>,
) -> Result<BTreeMap<String, usize>, ClientError> {
    let names: Vec<&String> = topics.collect();
    let mut found = BTreeMap::new();
    for names in names.chunks(TOPICS_PER_REQUEST) {
        let resources = names.iter().map(|name| DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: (*name).clone(),
            configuration_keys: Some(vec![MIN_INSYNC_REPLICAS.to_owned()]),
        });
        let request =
            DescribeConfigsRequest { resources: resources.collect(), ..DescribeConfigsRequest::default() };
        for result in broker.send(&request).await?.results {
            // A topic may have been deleted since its listing, or the login may not describe it.
            let config = result.configs.iter().find(|config| config.name == MIN_INSYNC_REPLICAS);
            if let Some(value) = config.and_then(|config| config.value.as_ref()?.parse().ok()) {
                found.insert(result.resource_name, value);
            }
        }
    }
    Ok(found)
}

/// The reassignments in progress, by this broker.
pub(crate) async fn reassignments(broker: &Connection) -> Result<Vec<Reassignment>, ClientError> {
    let timeout_ms = i32::try_from(CONTROLLERS_WAIT.as_millis()).expect("a few seconds");
    let request = ListPartitionReassignmentsRequest { timeout_ms, topics: None };
    let answer = broker.send(&request).await?;
    let what = || "The list of reassignments".to_owned();
    RefusedRequest::check(answer.error_code, answer.error_message.as_deref(), what)?;
    let topics = answer.topics.into_iter();
    Ok(topics
        .flat_map(|topic| {
            let name = topic.name;
            topic.partitions.into_iter().map(move |partition| Reassignment {
                topic: name.clone(),
                partition: partition.partition_index,
                replicas: partition.replicas,
                adding: partition.adding_replicas,
                removing: partition.removing_replicas,
            })
        })
        .collect())
}

/// The controllers' quorum, by this broker.
pub(crate) async fn quorum(broker: &Connection) -> Result<Quorum, ClientError> {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: METADATA_TOPIC.to_owned(),
            partitions: vec![PartitionData { partition_index: 0 }],
        }],
    };
    let answer = broker.send(&request).await?;
    let what = || "The description of the quorum".to_owned();
    RefusedRequest::check(answer.error_code, answer.error_message.as_deref(), what)?;
    let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let Some(partition) = partition else {
        let empty = Some("the answer is empty".to_owned());
        return Err(RefusedRequest {
            what: what(),
            error_code: ErrorCode::UnknownServerError,
            message: empty,
        }
        .into());
    };
    RefusedRequest::check(partition.error_code, partition.error_message.as_deref(), what)?;
    let addresses: BTreeMap<i32, String> = answer
        .nodes
        .iter()
        .filter_map(|node| {
            let listener = node.listeners.first()?;
            Some((node.node_id, thalweg_client::host_and_port(&listener.host, listener.port)))
        })
        .collect();
    let leader = partition.leader_id;
    let voters = partition
        .current_voters
        .iter()
        .map(|voter| (voter, if voter.replica_id == leader { Role::Leader } else { Role::Voter }));
    let observers = partition.observers.iter().map(|observer| (observer, Role::Observer));
    let known =
        |replica: &ReplicaState| (replica.last_fetch_timestamp >= 0).then_some(replica.last_fetch_timestamp);
    // The leader's own timestamp is the time of the answer, by the leader's clock.
    let now = partition.current_voters.iter().find(|voter| voter.replica_id == leader).and_then(known);
    let nodes = voters.chain(observers).map(|(replica, role)| QuorumNode {
        id: replica.replica_id,
        role,
        address: addresses.get(&replica.replica_id).cloned(),
        log_end_offset: replica.log_end_offset,
        silent_ms: now.zip(known(replica)).map(|(now, last)| (now - last).max(0)),
    });
    let mut nodes: Vec<QuorumNode> = nodes.collect();
    nodes.sort_by_key(|node| (node.role == Role::Observer, node.id));
    let (epoch, high_watermark) = (partition.leader_epoch, partition.high_watermark);
    Ok(Quorum { leader, epoch, high_watermark, nodes })
}
