//! An unmodified Apache Kafka broker joins our controller, as it would join its own. It needs Kafka's jars:
//! set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_controller::Controller;
use thalweg_metadata::{BrokerId, Endpoint, Image};
use thalweg_ports::free_port;
use thalweg_wire::Uuid;
use thalweg_wire::request::CreateTopicsRequest;
use thalweg_wire::request::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::support::*;

/// The id of the log directory of Kafka's broker.
const KAFKAS_DIRECTORY: Uuid = Uuid(0x7777_0000_0000_4000_8000_0000_0000_0001);

/// Serves the controller on a socket, one request of a connection after the other.
async fn serve(listener: TcpListener, controller: Arc<Controller>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { return };
        tokio::spawn(connection(socket, controller.clone()));
    }
}

async fn connection(mut socket: TcpStream, controller: Arc<Controller>) {
    while let Ok(length) = socket.read_u32().await {
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        if socket.read_exact(&mut frame).await.is_err() {
            return;
        }
        let Ok(answer) =
            controller.handle(Bytes::from(frame), &thalweg_controller::Requester::ThisProcess).await
        else {
            return;
        };
        let length = u32::try_from(answer.len()).unwrap();
        if socket.write_u32(length).await.is_err() || socket.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// A JVM that is ended with the test.
struct Broker(Child);

impl Broker {
    #[expect(clippy::disallowed_types, reason = "the output of a foreign process is no file of ours")]
    fn start(class_path: &str, dir: &std::path::Path, controller_port: u16) -> Broker {
        let port = free_port();
        let data = dir.join("kafka");
        std::fs::create_dir_all(&data).unwrap();
        let meta =
            format!("version=1\ncluster.id={CLUSTER_ID}\nnode.id=2\ndirectory.id={}\n", KAFKAS_DIRECTORY);
        std::fs::write(data.join("meta.properties"), meta).unwrap();
        let properties = format!(
            "process.roles=broker\nnode.id=2\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller_port}\n\
             listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n",
            data.display()
        );
        let file = dir.join("server.properties");
        std::fs::write(&file, properties).unwrap();
        let log = std::fs::File::create(dir.join("kafka.log")).unwrap();
        let child = Command::new("java")
            .args([
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                class_path,
                "kafka.Kafka",
            ])
            .arg(&file)
            .stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log))
            .spawn()
            .expect("java is installed");
        Broker(child)
    }

    fn terminate(&self) {
        Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(bench: &Bench, what: &str, holds: impl Fn(&Image) -> bool) -> Arc<Image> {
    for _ in 0..600 {
        let image = bench.image().await;
        if holds(&image) {
            return image;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let log = std::fs::read_to_string(bench.dir.path().join("kafka.log")).unwrap_or_default();
    panic!("{what} does not come to be: {log}");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
async fn a_kafka_broker_joins_leads_and_leaves() {
    let Ok(class_path) = std::env::var("KAFKA_CLASSPATH") else {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let bench = Bench::with(|options| {
        options.listeners = vec![Endpoint {
            listener: "CONTROLLER".to_owned(),
            host: "127.0.0.1".to_owned(),
            port,
            security_protocol: 0,
        }];
    })
    .await;
    let serving = tokio::spawn(serve(listener, bench.controller.clone()));
    bench.join(1).await;
    let broker = Broker::start(&class_path, bench.dir.path(), port);
    let image = until(&bench, "an unfenced broker", |image| image.is_alive(BrokerId(2))).await;
    let registration = image.broker(BrokerId(2)).unwrap();
    assert_eq!(registration.directories, [KAFKAS_DIRECTORY]);
    assert!(registration.endpoint("PLAINTEXT").is_some());

    // It leads its partition, and keeps doing so.
    let topic = CreatableTopic {
        name: "kept".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![2] }],
        ..Default::default()
    };
    let created = bench.send(CreateTopicsRequest { topics: vec![topic], ..Default::default() }).await;
    assert_eq!(created.topics[0].error_code, 0);
    let data = bench.dir.path().join("kafka/kept-0");
    for _ in 0..100 {
        if data.is_dir() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(data.is_dir(), "the broker follows the metadata log and creates the partition");

    // It observes under its own name, and catches up with what it makes the controller write.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let quorum = bench.send(describe_quorum()).await;
        let partition = &quorum.topics[0].partitions[0];
        let observer = partition.observers.iter().find(|observer| observer.replica_id == 2).unwrap();
        assert_eq!(observer.replica_directory_id, KAFKAS_DIRECTORY);
        if observer.log_end_offset == partition.high_watermark {
            break;
        }
        assert!(Instant::now() < deadline, "{observer:?} is behind {}", partition.high_watermark);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    broker.terminate();
    let image = until(&bench, "a broker that has left", |image| !image.is_alive(BrokerId(2))).await;
    assert!(image.broker(BrokerId(2)).unwrap().in_controlled_shutdown, "it left in order");
    serving.abort();
}
