//! All APIs of the controller: the reported versions, and an answer to each of them.

use bytes::Bytes;
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, ErrorCode, Message, Request, Uuid};

use crate::support::*;

#[tokio::test]
async fn served_apis_and_features_are_reported() {
    let bench = Bench::new().await;
    let request = ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1.0".to_owned(),
    };
    let response = bench.send(request.clone()).await;
    assert_eq!(response.error_code, 0);
    let fetch = response.api_keys.iter().find(|api| api.api_key == ApiKey::Fetch as i16).unwrap();
    assert_eq!(fetch.max_version, 18);
    let finalized: Vec<_> =
        response.finalized_features.iter().map(|f| (f.name.as_str(), f.max_version_level)).collect();
    assert_eq!(finalized, [("kraft.version", 1), ("metadata.version", 30)]);
    assert!(response.finalized_features_epoch > 0);
    // A version of the future is answered in the oldest form.
    let mut frame = frame::encode_request(&request, 4, 9, None).unwrap().slice(LENGTH_LEN..).to_vec();
    frame[3] = 99;
    let answer = bench
        .controller
        .handle(Bytes::from(frame), &thalweg_controller::Requester::ThisProcess)
        .await
        .unwrap();
    let (id, response) = frame::decode_response::<ApiVersionsRequest>(answer, 0).unwrap();
    assert_eq!((id, response.error_code), (9, ErrorCode::UnsupportedVersion.code()));

    let cluster = bench.send(DescribeClusterRequest { endpoint_type: 2, ..Default::default() }).await;
    assert_eq!(
        (cluster.error_code, cluster.controller_id, cluster.cluster_id.as_str()),
        (0, NODE, CLUSTER_ID)
    );
    let brokers = bench.send(DescribeClusterRequest { endpoint_type: 1, ..Default::default() }).await;
    assert_eq!(brokers.error_code, ErrorCode::MismatchedEndpointType.code());

    let epoch = bench.epoch().await;
    bench.fetch(epoch, 0, 0, 0).await;
    let quorum = bench.send(describe_quorum()).await;
    let partition = &quorum.topics[0].partitions[0];
    assert_eq!((partition.leader_id, partition.leader_epoch), (NODE, epoch));
    assert_eq!(partition.current_voters[0].replica_directory_id, DIRECTORY);
    assert_eq!(partition.observers[0].replica_id, 5);
}

/// Asks every version of a request, as empty as it can be, expects an answer to each, and returns the API.
async fn ask_all_versions<R: Request>(bench: &Bench) -> ApiKey {
    for version in R::MIN_VERSION..=R::MAX_VERSION {
        let request = R::default();
        if let Err(error) = bench.send_version(request, version).await {
            panic!("{} {version}: {error}", R::NAME);
        }
    }
    R::KEY
}

#[tokio::test]
async fn every_version_of_every_api_is_answered() {
    let bench = Bench::new().await;
    bench.join(1).await;
    let asked = [
        ask_all_versions::<FetchRequest>(&bench).await,
        ask_all_versions::<ApiVersionsRequest>(&bench).await,
        ask_all_versions::<SaslHandshakeRequest>(&bench).await,
        ask_all_versions::<SaslAuthenticateRequest>(&bench).await,
        ask_all_versions::<CreateTopicsRequest>(&bench).await,
        ask_all_versions::<DeleteTopicsRequest>(&bench).await,
        ask_all_versions::<AlterConfigsRequest>(&bench).await,
        ask_all_versions::<CreatePartitionsRequest>(&bench).await,
        ask_all_versions::<CreateAclsRequest>(&bench).await,
        ask_all_versions::<DeleteAclsRequest>(&bench).await,
        ask_all_versions::<CreateDelegationTokenRequest>(&bench).await,
        ask_all_versions::<RenewDelegationTokenRequest>(&bench).await,
        ask_all_versions::<ExpireDelegationTokenRequest>(&bench).await,
        ask_all_versions::<ElectLeadersRequest>(&bench).await,
        ask_all_versions::<IncrementalAlterConfigsRequest>(&bench).await,
        ask_all_versions::<AlterPartitionReassignmentsRequest>(&bench).await,
        ask_all_versions::<ListPartitionReassignmentsRequest>(&bench).await,
        ask_all_versions::<AlterClientQuotasRequest>(&bench).await,
        ask_all_versions::<AlterUserScramCredentialsRequest>(&bench).await,
        ask_all_versions::<DescribeQuorumRequest>(&bench).await,
        ask_all_versions::<AlterPartitionRequest>(&bench).await,
        ask_all_versions::<UpdateFeaturesRequest>(&bench).await,
        ask_all_versions::<EnvelopeRequest>(&bench).await,
        ask_all_versions::<FetchSnapshotRequest>(&bench).await,
        ask_all_versions::<DescribeClusterRequest>(&bench).await,
        ask_all_versions::<BrokerRegistrationRequest>(&bench).await,
        ask_all_versions::<BrokerHeartbeatRequest>(&bench).await,
        ask_all_versions::<UnregisterBrokerRequest>(&bench).await,
        ask_all_versions::<AllocateProducerIdsRequest>(&bench).await,
        ask_all_versions::<AssignReplicasToDirsRequest>(&bench).await,
        ask_all_versions::<AddRaftVoterRequest>(&bench).await,
        ask_all_versions::<RemoveRaftVoterRequest>(&bench).await,
    ];
    let served = ApiKey::ALL.into_iter().filter(|key| thalweg_controller::serves(*key));
    let unasked: Vec<_> = served.filter(|key| !asked.contains(key)).collect();
    assert!(unasked.is_empty(), "add to this list: {unasked:?}");
    // Version 0 has no type of endpoint.
    for version in 1..=DescribeClusterRequest::MAX_VERSION {
        let request = DescribeClusterRequest { endpoint_type: 2, ..Default::default() };
        assert_eq!(bench.send_version(request, version).await.unwrap().error_code, 0);
    }
    for version in CreateTopicsRequest::MIN_VERSION..=CreateTopicsRequest::MAX_VERSION {
        let name = format!("v{version}");
        let topics =
            vec![CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() }];
        let request = CreateTopicsRequest { topics, ..Default::default() };
        let response = bench.send_version(request, version).await.unwrap();
        assert_eq!(response.topics[0].error_code, 0);
    }
    for version in DescribeQuorumRequest::MIN_VERSION..=DescribeQuorumRequest::MAX_VERSION {
        let response = bench.send_version(describe_quorum(), version).await.unwrap();
        assert_eq!(response.topics[0].partitions[0].leader_id, NODE);
    }
    for version in FetchRequest::MIN_VERSION..=FetchRequest::MAX_VERSION {
        let mut request = fetch_request(1, 0, 0, 0);
        if version < 15 {
            request.replica_id = 5;
            request.replica_state = Default::default();
        }
        if version < 17 {
            request.topics[0].partitions[0].replica_directory_id = Uuid::ZERO;
        }
        if version < 12 {
            request.cluster_id = None;
            request.topics[0].partitions[0].last_fetched_epoch = -1;
        }
        let response = bench.send_version(request, version).await.unwrap();
        // Before version 7 there is no room for the refusal.
        let refused = (7..13).contains(&version);
        let code = if refused { ErrorCode::InvalidRequest } else { ErrorCode::None };
        assert_eq!(response.error_code, code.code(), "{version}");
    }
    // Refusals have to fit into the oldest form too.
    let election = ElectLeadersRequest { election_type: 7, topic_partitions: None, timeout_ms: 1 };
    for version in 1..=ElectLeadersRequest::MAX_VERSION {
        let response = bench.send_version(election.clone(), version).await.unwrap();
        assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
    }
    let features = |version| UpdateFeaturesRequest {
        feature_updates: vec![FeatureUpdateKey {
            feature: "group.version".to_owned(),
            max_version_level: 1,
            allow_downgrade: version == 0,
            upgrade_type: 1,
        }],
        ..Default::default()
    };
    for version in 0..=UpdateFeaturesRequest::MAX_VERSION {
        let response = bench.send_version(features(version), version).await.unwrap();
        assert_eq!(response.error_code, ErrorCode::InvalidUpdateVersion.code());
    }
}
