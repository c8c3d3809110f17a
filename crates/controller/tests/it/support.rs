//! A controller in its own directory, queried by frames.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_config::BrokerConfig;
use thalweg_controller::{
    ConfigRefusal, ConfigRules, Controller, ControllerOptions, EffectiveConfig, HandleError,
};
use thalweg_metadata::batches::{self, MetadataBatch};
use thalweg_metadata::{ConfigMap, ConfigResource, ConfigResourceKind, Image, Loader};
use thalweg_record::{DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer};
use thalweg_wire::frame::{self, LENGTH_LEN};
use thalweg_wire::request::broker_registration_request::{Feature, Listener};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
    CreateTopicsRequest, CreateTopicsResponse, DescribeQuorumRequest, FetchRequest,
};
use thalweg_wire::{ErrorCode, Records, Request, Uuid};

pub const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";
pub const DIRECTORY: Uuid = Uuid(0x1111_2222_3333_4444_5555_6666_7777_8888);
pub const NODE: i32 = 1;

/// Rules that know four settings.
pub struct Rules;

impl ConfigRules for Rules {
    fn validate(&self, _: &ConfigResource, configs: &ConfigMap, _: &ConfigMap) -> Result<(), ConfigRefusal> {
        for (name, value) in configs {
            let bad = match name.as_str() {
                "retention.ms" => value.parse::<i64>().is_err(),
                "cleanup.policy" => !value.split(',').all(|v| v == "compact" || v == "delete"),
                "min.insync.replicas" => value.parse::<u32>().is_err(),
                "unclean.leader.election.enable" => value.parse::<bool>().is_err(),
                _ => true,
            };
            if bad {
                let message = format!("Invalid value {value} for configuration {name}");
                return Err(ConfigRefusal { code: ErrorCode::InvalidConfig, message });
            }
        }
        Ok(())
    }

    fn is_list(&self, _: ConfigResourceKind, name: &str) -> bool {
        name == "cleanup.policy"
    }

    fn default_value(&self, _: ConfigResourceKind, name: &str) -> Option<String> {
        (name == "cleanup.policy").then(|| "delete".to_owned())
    }

    fn effective_topic_configs(
        &self,
        overrides: &ConfigMap,
        _: &ConfigMap,
        _: &ConfigMap,
    ) -> Vec<EffectiveConfig> {
        let all: BTreeMap<&str, Option<&String>> =
            ["cleanup.policy", "retention.ms"].into_iter().map(|name| (name, overrides.get(name))).collect();
        all.into_iter()
            .map(|(name, value)| EffectiveConfig {
                name: name.to_owned(),
                value: value.cloned(),
                read_only: false,
                source: if value.is_some() { 1 } else { 5 },
                sensitive: false,
            })
            .collect()
    }
}

/// A directory, and the controller that lives in it.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub controller: Arc<Controller>,
}

pub fn options(dir: &Path) -> ControllerOptions {
    let options = ControllerOptions::of(&BrokerConfig::default(), CLUSTER_ID, DIRECTORY, dir.to_owned());
    ControllerOptions { node_id: NODE, ..options }
}

impl Bench {
    pub async fn new() -> Bench {
        Bench::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut ControllerOptions)) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        change(&mut options);
        let controller = Controller::start(options, Arc::new(Rules)).await.unwrap();
        Bench { dir, controller: Arc::new(controller) }
    }

    /// A clean stop and a start.
    pub async fn restart(self) -> Bench {
        self.controller.shutdown().await;
        let controller = Controller::start(options(self.dir.path()), Arc::new(Rules)).await.unwrap();
        Bench { dir: self.dir, controller: Arc::new(controller) }
    }

    pub fn log_dir(&self) -> PathBuf {
        self.dir.path().join("__cluster_metadata-0")
    }

    pub async fn send<R: Request>(&self, request: R) -> R::Response {
        self.send_version(request, R::MAX_VERSION).await.unwrap()
    }

    pub async fn send_version<R: Request>(
        &self,
        request: R,
        version: i16,
    ) -> Result<R::Response, HandleError> {
        let frame = frame::encode_request(&request, version, 7, Some("test")).unwrap();
        let answer = self
            .controller
            .handle(frame.slice(LENGTH_LEN..), &thalweg_controller::Requester::ThisProcess)
            .await?;
        let (correlation_id, response) = frame::decode_response::<R>(answer, version)?;
        assert_eq!(correlation_id, 7);
        Ok(response)
    }

    pub async fn register(&self, id: i32) -> BrokerRegistrationResponse {
        self.send(registration(id, Uuid::random())).await
    }

    pub async fn beat(
        &self,
        id: i32,
        epoch: i64,
        offset: i64,
        fence: bool,
        leave: bool,
    ) -> BrokerHeartbeatResponse {
        let request = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: epoch,
            current_metadata_offset: offset,
            want_fence: fence,
            want_shut_down: leave,
            ..Default::default()
        };
        self.send(request).await
    }

    /// A broker that is registered and unfenced; its epoch.
    pub async fn join(&self, id: i32) -> i64 {
        let registered = self.register(id).await;
        assert_eq!(registered.error_code, 0, "{:?}", ErrorCode::from_i16(registered.error_code));
        let epoch = registered.broker_epoch;
        let beat = self.beat(id, epoch, i64::MAX, false, false).await;
        assert!(beat.error_code == 0 && !beat.is_fenced && beat.is_caught_up, "{beat:?}");
        epoch
    }

    pub async fn create(&self, name: &str, partitions: i32, factor: i16) -> CreateTopicsResponse {
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: factor,
            ..Default::default()
        };
        self.send(CreateTopicsRequest { topics: vec![topic], ..Default::default() }).await
    }

    pub async fn fetch(&self, epoch: i32, offset: i64, last_epoch: i32, wait_ms: i32) -> PartitionData {
        let response = self.send(fetch_request(epoch, offset, last_epoch, wait_ms)).await;
        assert_eq!(response.error_code, 0);
        response.responses[0].partitions[0].clone()
    }

    pub async fn epoch(&self) -> i32 {
        let data = self.fetch(0, 0, 0, 0).await;
        assert_eq!(data.error_code, ErrorCode::FencedLeaderEpoch.code());
        data.current_leader.leader_epoch
    }

    /// The image of all that is committed, as an observer makes it.
    pub async fn image(&self) -> Arc<Image> {
        let epoch = self.epoch().await;
        let mut loader = Loader::new(Arc::new(Image::empty()));
        let (mut offset, mut last_epoch) = (0, 0);
        loop {
            let data = self.fetch(epoch, offset, last_epoch, 0).await;
            assert_eq!(data.error_code, 0);
            assert_eq!(data.snapshot_id.end_offset, -1, "this observer takes no snapshots");
            for batch in batches_of(&data) {
                offset = batch.last.offset + 1;
                last_epoch = batch.last.epoch;
                loader.load(batch.last, &batch.records).unwrap();
            }
            if offset >= data.high_watermark {
                loader.publish();
                return loader.image().clone();
            }
        }
    }
}

pub fn fetch_request(epoch: i32, offset: i64, last_epoch: i32, wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition {
        current_leader_epoch: epoch,
        fetch_offset: offset,
        last_fetched_epoch: last_epoch,
        replica_directory_id: Uuid(77_777),
        ..Default::default()
    };
    FetchRequest {
        cluster_id: Some(CLUSTER_ID.to_owned()),
        replica_state: ReplicaState { replica_id: 5, replica_epoch: -1 },
        max_wait_ms: wait_ms,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic_id: Uuid::METADATA_TOPIC,
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn batches_of(data: &PartitionData) -> Vec<MetadataBatch> {
    match &data.records {
        Some(Records::Inline(bytes)) => decode_all(bytes),
        _ => Vec::new(),
    }
}

pub fn decode_all(bytes: &[u8]) -> Vec<MetadataBatch> {
    let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
    thalweg_record::batches(bytes)
        .map(|batch| batches::decode(&batch.unwrap(), &mut buffer).unwrap())
        .collect()
}

pub fn registration(id: i32, incarnation_id: Uuid) -> BrokerRegistrationRequest {
    let feature = |name: &str, max| Feature {
        name: name.to_owned(),
        min_supported_version: 0,
        max_supported_version: max,
    };
    BrokerRegistrationRequest {
        broker_id: id,
        cluster_id: CLUSTER_ID.to_owned(),
        incarnation_id,
        listeners: vec![Listener {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
            security_protocol: 0,
        }],
        features: vec![feature("metadata.version", 30), feature("kraft.version", 1)],
        log_dirs: vec![Uuid(1000 + u128::from(id.unsigned_abs()))],
        ..Default::default()
    }
}

pub fn describe_quorum() -> DescribeQuorumRequest {
    DescribeQuorumRequest {
        topics: vec![thalweg_wire::request::describe_quorum_request::TopicData {
            topic_name: "__cluster_metadata".to_owned(),
            partitions: vec![Default::default()],
        }],
    }
}
