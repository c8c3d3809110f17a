//! Compares with Apache Kafka's controller: the same steps must give the same answers and partitions. Needs
//! Kafka's jars: set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use thalweg_ports::free_port;
use thalweg_record::{DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer};
use thalweg_wire::Records;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use thalweg_wire::request::fetch_response::PartitionData as Fetched;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;
use thalweg_wire::request::{FetchRequest, UpdateFeaturesRequest};

use super::steps::{Cluster, Performer, Step, Steps, view};
use super::*;

const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";
const BROKERS: i32 = 5;
const STEPS: usize = 600;
/// Timeout of Kafka's start, and of an answer.
const PATIENCE: Duration = Duration::from_secs(90);

/// A controller of Kafka in a separate process, which ends with the test.
struct Kafka {
    child: Child,
    socket: TcpStream,
    loader: Loader,
    offset: i64,
    fetched_epoch: i32,
    leader_epoch: i32,
    _dir: tempfile::TempDir,
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn java(class_path: &str) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn properties(dir: &Path, port: u16) -> String {
    format!(
        "process.roles=controller\nnode.id=9\ncontroller.quorum.bootstrap.servers=127.0.0.1:{port}\n\
         listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
         broker.session.timeout.ms=3600000\nauto.leader.rebalance.enable=false\n\
         unclean.leader.election.interval.ms=3600000\nmetadata.max.idle.interval.ms=0\n",
        dir.join("data").display()
    )
}

impl Kafka {
    #[expect(clippy::disallowed_methods, reason = "a foreign process is waited for in real time")]
    fn start(class_path: &str, elr: i16) -> Kafka {
        let dir = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let file = dir.path().join("controller.properties");
        std::fs::write(&file, properties(dir.path(), port)).expect("written");
        let format = java(class_path)
            .args(["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID])
            .arg("--feature")
            .arg(format!("eligible.leader.replicas.version={elr}"))
            .arg("-c")
            .arg(&file)
            .status();
        assert!(format.expect("java is installed").success(), "the directory is formatted");
        let child = java(class_path).arg("kafka.Kafka").arg(&file).spawn().expect("java is installed");
        let started = std::time::Instant::now();
        let socket = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(socket) => break socket,
                Err(error) => assert!(started.elapsed() < PATIENCE, "Kafka does not listen: {error}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let loader = Loader::new(Arc::new(Image::empty()));
        let mut kafka =
            Kafka { child, socket, loader, offset: 0, fetched_epoch: 0, leader_epoch: 0, _dir: dir };
        while kafka.image().features().metadata_version().is_none() {
            assert!(started.elapsed() < PATIENCE, "Kafka does not lead its quorum");
            std::thread::sleep(Duration::from_millis(100));
        }
        kafka
    }

    fn fetch(&mut self) -> Fetched {
        let partition = FetchPartition {
            current_leader_epoch: self.leader_epoch,
            fetch_offset: self.offset,
            last_fetched_epoch: self.fetched_epoch,
            replica_directory_id: Uuid(77_777),
            ..Default::default()
        };
        let request = FetchRequest {
            replica_state: ReplicaState { replica_id: 100, replica_epoch: -1 },
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic_id: Uuid::METADATA_TOPIC,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        };
        self.call(request).responses[0].partitions[0].clone()
    }
}

impl Cluster for Kafka {
    fn cluster_id(&self) -> String {
        CLUSTER_ID.to_owned()
    }

    /// The committed image.
    fn image(&mut self) -> Arc<Image> {
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
        loop {
            let fetched = self.fetch();
            if fetched.current_leader.leader_epoch > self.leader_epoch {
                self.leader_epoch = fetched.current_leader.leader_epoch;
                continue;
            }
            if let Some(Records::Inline(bytes)) = &fetched.records {
                for batch in thalweg_record::batches(bytes) {
                    let batch = thalweg_metadata::batches::decode(&batch.expect("a batch"), &mut buffer)
                        .expect("records");
                    if batch.last.offset >= fetched.high_watermark {
                        break;
                    }
                    self.loader.load(batch.last, &batch.records).expect("Kafka's records fit");
                    (self.offset, self.fetched_epoch) = (batch.last.offset + 1, batch.last.epoch);
                }
            }
            if fetched.error_code != 0 || self.offset >= fetched.high_watermark {
                self.loader.publish();
                return self.loader.image().clone();
            }
        }
    }

    fn call<R: Request>(&mut self, request: R) -> R::Response {
        let version = R::MAX_VERSION;
        let frame = frame::encode_request(&request, version, 7, None).expect("a request can be written");
        self.socket.write_all(&frame).expect("Kafka takes a request");
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).expect("Kafka answers");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut answer).expect("Kafka answers");
        frame::decode_response::<R>(Bytes::from(answer), version).expect("a response can be read").1
    }
}

/// Steps with intended differences from Kafka's controller.
fn is_left_out(step: &Step, image: &Image) -> bool {
    match step {
        // In Kafka, a partition stays leaderless after its replica moves into an online directory, until the
        // next event.
        Step::Assign { topic, partition, .. } => {
            image.partition(topic, PartitionIndex(*partition)).is_none_or(|partition| !partition.has_leader())
        }
        // Kafka waits forever for a replica that is removed before it was added.
        Step::Reassign { topic, partition, replicas: Some(replicas), .. } => {
            image.partition(topic, PartitionIndex(*partition)).is_some_and(|partition| {
                let adds_more = replicas.iter().any(|id| !partition.replicas.contains(&BrokerId(*id)));
                !adds_more && partition.adding_replicas.iter().any(|id| !replicas.contains(&id.0))
            })
        }
        // Kafka drops eligible replicas although there is no leader.
        Step::Configure { key: "min.insync.replicas", .. } => {
            let mut partitions = image.topics().iter().flat_map(|topic| topic.partitions.values());
            partitions.any(|partition| {
                let is_known =
                    !partition.eligible_leader_replicas.is_empty() || !partition.last_known_elr.is_empty();
                is_known && !partition.has_leader()
            })
        }
        // Kafka adds a replica in an offline directory to the ISR.
        Step::Propose(proposal) => proposal.adds_offline_replica(image),
        _ => false,
    }
}

/// The state in Kafka's terms: without in-sync or eligible replicas, Kafka keeps only the first candidate.
fn view_of_kafka(image: &Image) -> Vec<String> {
    view(image, 1)
}

fn compare(class_path: &str, seed: u64, elr: i16) {
    let mut kafka = Performer::new(Kafka::start(class_path, elr));
    let mut ours = Performer::new(Bench::new());
    if elr > 0 {
        let update = FeatureUpdateKey {
            feature: feature::ELIGIBLE_LEADER_REPLICAS_VERSION.to_owned(),
            max_version_level: elr,
            upgrade_type: 1,
            ..Default::default()
        };
        let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
        assert_eq!(ours.cluster.call(request).error_code, 0);
    }
    let mut steps = Steps::new(seed, BROKERS);
    let mut history = Vec::new();
    for number in 0..STEPS {
        let image = ours.cluster.image();
        let step = steps.next(&image);
        if is_left_out(&step, &image) {
            continue;
        }
        let before = view_of_kafka(&image);
        let (our_answer, kafkas_answer) = (ours.perform(&step), kafka.perform(&step));
        history.push(step.clone());
        let (our_view, kafkas_view) =
            (view_of_kafka(&ours.cluster.image()), view_of_kafka(&kafka.cluster.image()));
        let last = &history[history.len().saturating_sub(6)..];
        assert!(
            our_answer == kafkas_answer && our_view == kafkas_view,
            "seed {seed}, step {number}: after {last:#?}\nfrom {before:#?}\nour answer {our_answer:?} and \
             {our_view:#?}\nKafka's answer {kafkas_answer:?} and {kafkas_view:#?}"
        );
    }
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn with_kafka(seed: u64, elr: i16) {
    match std::env::var("KAFKA_CLASSPATH") {
        Ok(class_path) => compare(&class_path, seed, elr),
        Err(_) => eprintln!("skipped: KAFKA_CLASSPATH is not set"),
    }
}

#[test]
fn kafkas_controller_comes_to_the_same() {
    with_kafka(1, 0);
}

#[test]
fn kafkas_controller_comes_to_the_same_with_eligible_leader_replicas() {
    with_kafka(2, 1);
}
