//! A disk that is full and stays full: the node starts, and takes the changes that free the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_controller::{Controller, ControllerOptions, HandleError};
use thalweg_log::Clock;
use thalweg_log::disk::{Disk, MemoryDisk};
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest};
use thalweg_wire::{Message, Uuid};
use tokio::time::Instant;

use crate::support::{Bench, NODE, Rules, options, registration};

const NEIGHBOUR: &str = "neighbour";
/// Kafka's code of topics among the resources.
const TOPIC: i8 = 2;

/// A bench whose disk fills, and a file beside the metadata log that grows into all room there is.
struct FullBench {
    memory: Arc<MemoryDisk>,
    disk: Disk,
    bench: Bench,
}

impl FullBench {
    async fn new() -> FullBench {
        let memory = MemoryDisk::new(Clock::manual(0));
        let disk = Disk::in_memory(Arc::clone(&memory));
        let bench = Bench::with(|options| options.disk = disk.clone()).await;
        disk.open_or_create(&bench.dir.path().join(NEIGHBOUR)).expect("creates");
        FullBench { memory, disk, bench }
    }

    fn dir(&self) -> &Path {
        self.bench.dir.path()
    }

    fn options(&self) -> ControllerOptions {
        ControllerOptions { disk: self.disk.clone(), ..options(self.dir()) }
    }

    fn fill(&self) {
        self.memory.set_capacity(self.dir(), Some(self.memory.used_bytes(self.dir())));
        self.grow_neighbour();
    }

    fn grow_neighbour(&self) {
        let neighbour = self.disk.open(&self.dir().join(NEIGHBOUR)).expect("is there");
        while neighbour.write_all_at(&[7; 512], neighbour.len().expect("is open")).is_ok() {}
        assert_eq!(self.disk.space(self.dir()).expect("is known").1, 0);
    }

    async fn restart(&mut self) {
        self.bench.controller.shutdown().await;
        let started = Controller::start(self.options(), Arc::new(Rules)).await;
        self.bench.controller = Arc::new(started.expect("it starts"));
    }

    /// Registers and unfences the broker of the node, which keeps its incarnation.
    async fn join(&self) {
        let registered = self.bench.send(registration(NODE, Uuid(5))).await;
        assert_eq!(registered.error_code, 0);
        let beat = self.bench.beat(NODE, registered.broker_epoch, i64::MAX, false, false).await;
        assert!(beat.error_code == 0 && !beat.is_fenced, "{beat:?}");
    }

    async fn create(&self, name: &str) -> Result<i16, HandleError> {
        let name = name.to_owned();
        let topic = CreatableTopic { name, num_partitions: 3, replication_factor: 1, ..Default::default() };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let answer = self.bench.send_version(request, CreateTopicsRequest::MAX_VERSION).await?;
        Ok(answer.topics[0].error_code)
    }

    async fn delete(&self, name: &str) -> i16 {
        let topic_names = vec![name.to_owned()];
        let request = DeleteTopicsRequest { topic_names, ..Default::default() };
        let answer = self.bench.send_version(request, 5).await.expect("an answer");
        answer.responses[0].error_code
    }

    async fn shorten_retention(&self, topic: &str) -> i16 {
        self.alter(topic, "retention.ms", "1000".to_owned()).await.expect("an answer")
    }

    async fn alter(&self, topic: &str, name: &str, value: String) -> Result<i16, HandleError> {
        let config = AlterableConfig { name: name.to_owned(), value: Some(value), ..Default::default() };
        let resources = vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: topic.to_owned(),
            configs: vec![config],
        }];
        let request = IncrementalAlterConfigsRequest { resources, ..Default::default() };
        let version = IncrementalAlterConfigsRequest::MAX_VERSION;
        Ok(self.bench.send_version(request, version).await?.responses[0].error_code)
    }
}

#[tokio::test]
async fn node_starts_on_a_full_disk_and_deletes_topics() {
    let mut full = FullBench::new().await;
    full.join().await;
    for name in ["one", "two"] {
        assert_eq!(full.create(name).await.expect("there is room"), 0);
    }
    full.fill();
    full.restart().await;
    full.grow_neighbour();
    full.join().await;
    full.grow_neighbour();
    // Until the last block of the log is full.
    let mut refused = None;
    for index in 0..1000 {
        if let Err(error) = full.create(&format!("more-{index}")).await {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(refused, Some(HandleError::DiskFull)), "{refused:?}");
    assert_eq!(full.shorten_retention("two").await, 0);
    full.grow_neighbour();
    assert_eq!(full.delete("one").await, 0);
    let image = full.bench.image().await;
    assert!(image.topic("one").is_none() && image.topic("two").is_some());
}

#[tokio::test]
async fn reserve_lasts_for_many_starts_on_a_full_disk_and_comes_back_with_room() {
    let mut full = FullBench::new().await;
    full.fill();
    for _ in 0..100 {
        full.restart().await;
        full.join().await;
        full.grow_neighbour();
    }
    let reserve = full.dir().join("__cluster_metadata-0/reserve");
    let len = || full.disk.facts(&reserve).expect("is there").len;
    let used = len();
    assert!(used < 1024 * 1024, "{used}");
    full.memory.set_capacity(full.dir(), None);
    let deadline = Instant::now() + Duration::from_secs(20);
    while len() < 1024 * 1024 {
        assert!(Instant::now() < deadline, "the reserve is not filled again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A client that may alter a topic could otherwise keep the disk from being freed.
#[tokio::test]
async fn settings_leave_half_of_the_reserve_to_deletions() {
    let full = FullBench::new().await;
    full.join().await;
    assert_eq!(full.create("one").await.expect("there is room"), 0);
    full.fill();
    let mut altered = 0_usize;
    let refused = loop {
        // Each one differs from the one before.
        let list = vec!["compact"; 2000 + altered % 2].join(",");
        match full.alter("one", "cleanup.policy", list).await {
            Ok(code) => assert_eq!(code, 0),
            Err(error) => break error,
        }
        full.grow_neighbour();
        altered += 1;
        assert!(altered < 100, "a megabyte is not so much");
    };
    assert!(altered > 0 && matches!(refused, HandleError::DiskFull), "{altered} {refused:?}");
    assert_eq!(full.delete("one").await, 0);
}
