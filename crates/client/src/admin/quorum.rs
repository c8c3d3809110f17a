//! The controller quorum (KIP-595, KIP-853), and the registrations of brokers.

use std::collections::BTreeMap;

use thalweg_dial::{ClientError, Connection, RefusedRequest, RequestOptions};
use thalweg_wire::request::add_raft_voter_request::Listener;
use thalweg_wire::request::describe_quorum_request::{PartitionData, TopicData};
use thalweg_wire::request::describe_quorum_response::ReplicaState;
use thalweg_wire::request::{
    AddRaftVoterRequest, DescribeQuorumRequest, DescribeQuorumResponse, RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
};
use thalweg_wire::{ErrorCode, Uuid};

use super::{Admin, refused};

const METADATA_TOPIC: &str = "__cluster_metadata";

/// The controller quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumDescription {
    /// The id of the active controller.
    pub leader_id: Option<i32>,
    /// The epoch of the active controller.
    pub leader_epoch: i32,
    /// The end offset of the committed metadata.
    pub high_watermark: i64,
    /// The voters of the quorum.
    pub voters: Vec<QuorumReplica>,
    /// The observers: brokers, and controllers that are not voters yet.
    pub observers: Vec<QuorumReplica>,
    /// The endpoints of controllers, from version 2 on.
    pub nodes: BTreeMap<i32, Vec<ControllerEndpoint>>,
}

/// A replica of the metadata log. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumReplica {
    /// The node id.
    pub id: i32,
    /// The directory id; zero if the protocol or quorum has none.
    pub directory_id: Uuid,
    /// The log end offset; -1 if unknown.
    pub log_end_offset: i64,
    /// Time of the last fetch from the leader.
    pub last_fetch_ms: Option<i64>,
    /// Time when the replica last had all records.
    pub last_caught_up_ms: Option<i64>,
}

/// An endpoint of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerEndpoint {
    /// The listener's name.
    pub listener: String,
    /// The host name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Admin {
    /// Describes the controller quorum.
    pub async fn describe_quorum(&self) -> Result<QuorumDescription, ClientError> {
        quorum(self.change(&quorum_request(), check_quorum).await?)
    }

    /// Describes the controller quorum by this broker alone, without further attempts. A broker holds the
    /// request while no controller is active.
    pub async fn describe_quorum_by(&self, broker: &Connection) -> Result<QuorumDescription, ClientError> {
        let options = RequestOptions { version: None, timeout: self.answer_limit };
        let response = broker.send_with(&quorum_request(), options).await?;
        check_quorum(&response)?;
        quorum(response)
    }

    /// Adds a running controller to the voters. The controller must have caught up as an observer.
    pub async fn add_voter(
        &self,
        id: i32,
        directory_id: Uuid,
        endpoints: &[ControllerEndpoint],
    ) -> Result<(), ClientError> {
        let listeners = endpoints.iter().map(|endpoint| Listener {
            name: endpoint.listener.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port,
        });
        let request = AddRaftVoterRequest {
            cluster_id: None,
            timeout_ms: self.timeout_ms(),
            voter_id: id,
            voter_directory_id: directory_id,
            listeners: listeners.collect(),
            ..AddRaftVoterRequest::default()
        };
        let response = self.change(&request, |_| Ok(())).await?;
        let what = || format!("Adding controller {id} to the voters");
        refused(response.error_code, response.error_message.as_deref(), what)
    }

    /// Removes a controller from the voters.
    pub async fn remove_voter(&self, id: i32, directory_id: Uuid) -> Result<(), ClientError> {
        let request =
            RemoveRaftVoterRequest { cluster_id: None, voter_id: id, voter_directory_id: directory_id };
        let response = self.change(&request, |_| Ok(())).await?;
        let what = || format!("Removing controller {id} from the voters");
        refused(response.error_code, response.error_message.as_deref(), what)
    }

    /// Removes the registration of a permanently stopped broker.
    pub async fn unregister_broker(&self, id: i32) -> Result<(), ClientError> {
        let response = self.change(&UnregisterBrokerRequest { broker_id: id }, |_| Ok(())).await?;
        let what = || format!("Removing the registration of broker {id}");
        refused(response.error_code, response.error_message.as_deref(), what)
    }
}

fn quorum_request() -> DescribeQuorumRequest {
    let partitions = vec![PartitionData { partition_index: 0 }];
    DescribeQuorumRequest { topics: vec![TopicData { topic_name: METADATA_TOPIC.to_owned(), partitions }] }
}

fn what() -> String {
    "Describing the quorum".to_owned()
}

fn check_quorum(response: &DescribeQuorumResponse) -> Result<(), RefusedRequest> {
    RefusedRequest::check(response.error_code, response.error_message.as_deref(), what)
}

fn quorum(response: DescribeQuorumResponse) -> Result<QuorumDescription, ClientError> {
    let Some(partition) = response.topics.into_iter().flat_map(|topic| topic.partitions).next() else {
        let message = Some("the answer is empty".to_owned());
        return Err(
            RefusedRequest { what: what(), error_code: ErrorCode::UnknownServerError, message }.into()
        );
    };
    refused(partition.error_code, partition.error_message.as_deref(), what)?;
    let nodes = response.nodes.into_iter().map(|node| {
        let listeners = node.listeners.into_iter().map(|listener| ControllerEndpoint {
            listener: listener.name,
            host: listener.host,
            port: listener.port,
        });
        (node.node_id, listeners.collect())
    });
    let replicas = |states: Vec<ReplicaState>| states.into_iter().map(replica).collect();
    Ok(QuorumDescription {
        leader_id: (partition.leader_id >= 0).then_some(partition.leader_id),
        leader_epoch: partition.leader_epoch,
        high_watermark: partition.high_watermark,
        voters: replicas(partition.current_voters),
        observers: replicas(partition.observers),
        nodes: nodes.collect(),
    })
}

fn replica(state: ReplicaState) -> QuorumReplica {
    let known = |ms: i64| (ms >= 0).then_some(ms);
    QuorumReplica {
        id: state.replica_id,
        directory_id: state.replica_directory_id,
        log_end_offset: state.log_end_offset,
        last_fetch_ms: known(state.last_fetch_timestamp),
        last_caught_up_ms: known(state.last_caught_up_timestamp),
    }
}
