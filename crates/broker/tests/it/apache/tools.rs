//! Kafka's own tools against our brokers: under one Apache controller with all features that Kafka formats by
//! default, and under the embedded one.

use super::controllers::{Controllers, JVM_OPTIONS, Quorum};
use super::{jars, join, until};
use crate::records::{Topic, batch, produce};
use crate::running::RunningBroker;
use std::io::Write;
use std::process::{Command, Stdio};
use thalweg_metadata::PartitionIndex;

/// Runs one of Kafka's tools and returns its output.
pub(super) async fn tool(classpath: &str, class: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("java");
    command.env("CLASSPATH", classpath).args(JVM_OPTIONS).arg(class).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let called = format!("{class} {}", arguments.join(" "));
    let input = input.to_owned();
    let run = move || {
        let mut child = command.spawn().expect("java is installed");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
        child.wait_with_output().expect("it ends")
    };
    let output = tokio::task::spawn_blocking(run).await.expect("it is waited for");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{called}: {printed}{errors}");
    format!("{printed}{errors}")
}

fn assert_has(text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

/// The lines of a table of which each field is given, in any spacing.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "many starts of Apache Kafka: in the nightly form of scripts/test"]
async fn kafkas_tools_work_with_brokers_under_an_apache_controller_of_kafkas_defaults() {
    let Some(jars) = jars() else { return };
    let controllers = Controllers::start(jars.clone(), Quorum::OfKafkasDefaults, "").await;
    let servers = controllers.servers();
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let mut brokers = Vec::new();
    for (dir, (id, rack)) in dirs.iter().zip([("1", "a"), ("2", "b"), ("3", "c")]) {
        brokers.push(join(dir.path(), id, &servers, &[("broker.rack", rack)]).await);
    }
    for broker in &brokers {
        assert_eq!(
            broker.server().broker.cluster_id,
            controllers.cluster_id,
            "adopted by an empty directory"
        );
    }
    until("all brokers are in the last one's image", async || {
        brokers[2].server().broker.image().alive_brokers().count() == 3
    })
    .await;
    let to = ["--bootstrap-server", brokers[0].address()];
    topics(&jars, &to).await;
    tokio::join!(
        quorum_and_features(&jars, &to, &servers),
        configurations(&jars, &to),
        records_and_groups(&jars, &to),
    );
    for broker in brokers {
        broker.stop().await;
    }
    let log = controllers.log(0);
    assert!(log.contains("controlled shutdown"), "{log}");
}

async fn topics(jars: &str, to: &[&str; 2]) {
    const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
    let create = ["--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "1"];
    let created = tool(jars, TOPICS, &[to, &create[..]].concat(), "").await;
    assert_has(&created, &["Created topic spread."]);
    let described = tool(jars, TOPICS, &[to, &["--describe", "--topic", "spread"][..]].concat(), "").await;
    assert_has(&described, &["PartitionCount: 6", "Leader: 1", "Leader: 2", "Leader: 3"]);
    let refused = "org.apache.kafka.common.errors.InvalidReplicationFactorException";
    let too_many = ["--create", "--topic", "many", "--replication-factor", "4"];
    let output = Command::new("java")
        .env("CLASSPATH", jars)
        .args(JVM_OPTIONS)
        .arg(TOPICS)
        .args(to)
        .args(too_many)
        .output()
        .expect("java is installed");
    let errors =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_has(&errors, &[refused]);
}

async fn quorum_and_features(jars: &str, to: &[&str; 2], controllers: &str) {
    const QUORUM: &str = "org.apache.kafka.tools.MetadataQuorumCommand";
    let describe = ["describe", "--replication"];
    for to in [&to[..], &["--bootstrap-controller", controllers]] {
        let printed = tool(jars, QUORUM, &[to, &describe[..]].concat(), "").await;
        let rows = rows(&printed);
        assert!(
            rows.iter().any(|row| row.first() == Some(&"101") && row.last() == Some(&"Leader")),
            "{printed}"
        );
        for id in ["1", "2", "3"] {
            let observer = rows.iter().find(|row| row.first() == Some(&id));
            assert!(observer.is_some_and(|row| row.last() == Some(&"Observer")), "{id} in {printed}");
        }
    }
    let features =
        tool(jars, "org.apache.kafka.tools.FeatureCommand", &[to, &["describe"][..]].concat(), "").await;
    assert_has(&features, &["Feature: metadata.version", "FinalizedVersionLevel: 4.3-IV0"]);
}

async fn configurations(jars: &str, to: &[&str; 2]) {
    const CONFIGS: &str = "kafka.admin.ConfigCommand";
    let topic = ["--entity-type", "topics", "--entity-name", "spread"];
    let alter = ["--alter", "--add-config", "retention.ms=86400000"];
    let altered = tool(jars, CONFIGS, &[to, &topic[..], &alter[..]].concat(), "").await;
    assert_has(&altered, &["Completed updating config for topic spread."]);
    let described = tool(jars, CONFIGS, &[to, &topic[..], &["--describe"][..]].concat(), "").await;
    assert_has(&described, &["retention.ms=86400000"]);
    let broker = ["--entity-type", "brokers", "--entity-name", "1"];
    let alter = ["--alter", "--add-config", "log.retention.ms=90000000"];
    let altered = tool(jars, CONFIGS, &[to, &broker[..], &alter[..]].concat(), "").await;
    assert_has(&altered, &["Completed updating config for broker 1."]);
    for (kind, name, config) in [
        ("brokers", "1", "sasl.kerberos.min.time.before.relogin=1000"),
        ("groups", "readers", "consumer.session.timeout.ms=50000"),
        ("client-metrics", "all", "interval.ms=10000"),
    ] {
        let entity = ["--entity-type", kind, "--entity-name", name];
        let alter = ["--alter", "--add-config", config];
        tool(jars, CONFIGS, &[to, &entity[..], &alter[..]].concat(), "").await;
        let described = tool(jars, CONFIGS, &[to, &entity[..], &["--describe"][..]].concat(), "").await;
        assert_has(&described, &[config]);
    }
}

async fn records_and_groups(jars: &str, to: &[&str; 2]) {
    let lines: String = (0..60).map(|line| format!("key-{line}:value-{line}\n")).collect();
    let produce = ["--topic", "spread", "--property", "parse.key=true", "--property", "key.separator=:"];
    tool(jars, "org.apache.kafka.tools.ConsoleProducer", &[to, &produce[..]].concat(), &lines).await;
    let consume = [
        "--topic",
        "spread",
        "--from-beginning",
        "--max-messages",
        "60",
        "--timeout-ms",
        "60000",
        "--group",
        "readers",
    ];
    let consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    let consumed = tool(jars, consumer, &[to, &consume[..]].concat(), "").await;
    for line in 0..60 {
        let value = format!("value-{line}");
        assert_eq!(consumed.lines().filter(|found| *found == value).count(), 1, "{value} in {consumed}");
    }
    let groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let described = tool(jars, groups, &[to, &["--describe", "--group", "readers"][..]].concat(), "").await;
    let rows = rows(&described);
    let read: i64 = rows
        .iter()
        .filter(|row| row.first() == Some(&"readers"))
        .map(|row| row[3].parse::<i64>().unwrap_or(0))
        .sum();
    assert_eq!(read, 60, "{described}");
}

/// Runs one of Kafka's tools that must fail, and returns its output.
async fn refused(classpath: &str, class: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("java");
    command.env("CLASSPATH", classpath).args(JVM_OPTIONS).arg(class).args(arguments).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().expect("java is installed"));
    let output = output.await.expect("it is waited for");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// There are two brokers.
const ONE_REPLICA: (&str, &str) = ("offsets.topic.replication.factor", "1");

const RACK_AWARE: (&str, &str) =
    ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafkas_tools_work_with_the_embedded_controller() {
    let Some(jars) = jars() else { return };
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let combined = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
        ("broker.rack", "a"),
        ONE_REPLICA,
        RACK_AWARE,
    ];
    let first = RunningBroker::start(dirs[0].path(), &combined).await;
    let listener = first.server().addresses.iter().find(|(name, _)| name == "CONTROLLER");
    let controller = listener.expect("a controller listener").1[0].to_string();
    let to = ["--bootstrap-server", first.address()];
    let other = Topic::create(&first, "other", 1, &[]).await;
    let topic = Topic::create(&first, "moved", 1, &[]).await;
    let second =
        join(dirs[1].path(), "2", &controller, &[("broker.rack", "b"), ONE_REPLICA, RACK_AWARE]).await;
    for topic in std::iter::once(&other).chain([&topic; 30]) {
        let put = first.ask(&produce(13, topic, 0, -1, batch(&[&[7; 50_000]]))).await;
        assert_eq!(put.responses[0].partition_responses[0].error_code, 0);
    }
    let work = tempfile::tempdir().expect("a temporary directory");
    tokio::join!(
        throttled_reassignment(&jars, &to, work.path()),
        embedded_quorum(&jars, &to, &controller),
        embedded_features(&jars, &to),
        cluster_and_directories(&jars, &to, &first.server().broker.cluster_id),
        consumers_near_by(&jars, &to, [&first, &second]),
    );
    second.stop().await;
    first.stop().await;
}

async fn embedded_quorum(jars: &str, to: &[&str; 2], controller: &str) {
    const QUORUM: &str = "org.apache.kafka.tools.MetadataQuorumCommand";
    let status = tool(jars, QUORUM, &[to, &["describe", "--status"][..]].concat(), "").await;
    assert_has(&status, &["LeaderId:", "HighWatermark:", "CurrentVoters:", "CurrentObservers:"]);
    for to in [&to[..], &["--bootstrap-controller", controller]] {
        let remove = [
            "remove-controller",
            "--controller-id",
            "1",
            "--controller-directory-id",
            "AAAAAAAAAAAAAAAAAAAAAQ",
        ];
        let said = refused(jars, QUORUM, &[to, &remove[..]].concat()).await;
        assert_has(&said, &["The embedded controller is the only voter of its quorum"]);
    }
}

async fn embedded_features(jars: &str, to: &[&str; 2]) {
    const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";
    let upgrade = ["upgrade", "--feature", "eligible.leader.replicas.version=1"];
    let said = tool(jars, FEATURES, &[to, &upgrade[..]].concat(), "").await;
    assert_has(&said, &["eligible.leader.replicas.version was upgraded to 1."]);
    let said = tool(jars, FEATURES, &[to, &["describe"][..]].concat(), "").await;
    let rows = rows(&said);
    let elr = rows.iter().find(|row| row.get(1) == Some(&"eligible.leader.replicas.version"));
    assert!(elr.is_some_and(|row| row.contains(&"1")), "{said}");
    let down = ["downgrade", "--feature", "group.version=0"];
    let said = tool(jars, FEATURES, &[to, &down[..]].concat(), "").await;
    assert_has(&said, &["group.version was downgraded to 0."]);
    // As in a cluster that was formatted before consumer groups were served.
    let up = ["upgrade", "--feature", "group.version=1"];
    let said = tool(jars, FEATURES, &[to, &up[..]].concat(), "").await;
    assert_has(&said, &["group.version was upgraded to 1."]);
}

async fn cluster_and_directories(jars: &str, to: &[&str; 2], cluster_id: &str) {
    let id = tool(jars, "org.apache.kafka.tools.ClusterTool", &[&["cluster-id"][..], to].concat(), "").await;
    assert_has(&id, &[cluster_id]);
    let described = ["--describe", "--topic-list", "other"];
    let logs = tool(jars, "org.apache.kafka.tools.LogDirsCommand", &[to, &described[..]].concat(), "").await;
    assert_has(&logs, &["\"partition\":\"other-0\"", "\"broker\":2"]);
    let elect = ["--election-type", "preferred", "--topic", "other", "--partition", "0"];
    let elected =
        tool(jars, "org.apache.kafka.tools.LeaderElectionCommand", &[to, &elect[..]].concat(), "").await;
    assert_has(&elected, &["other-0"]);
}

/// A move under `--throttle`, which sets the limits, and its `--verify`, which takes them away.
async fn throttled_reassignment(jars: &str, to: &[&str; 2], dir: &std::path::Path) {
    const REASSIGN: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
    let plan = dir.join("plan.json");
    let text = r#"{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[2]}]}"#;
    std::fs::write(&plan, text).expect("the directory can be written");
    let file = ["--reassignment-json-file", plan.to_str().expect("UTF-8")];
    let execute = ["--execute", "--throttle", "5000000"];
    let said = tool(jars, REASSIGN, &[to, &file[..], &execute[..]].concat(), "").await;
    assert_has(&said, &["The inter-broker throttle limit was set to 5000000 B/s", "Successfully started"]);
    let done = async || {
        let said = tool(jars, REASSIGN, &[to, &file[..], &["--verify"][..]].concat(), "").await;
        said.contains("Reassignment of partition moved-0 is completed.").then_some(said)
    };
    for _ in 0..20 {
        if let Some(said) = done().await {
            assert_has(&said, &["Clearing broker-level throttles", "Clearing topic-level throttles"]);
            return;
        }
    }
    panic!("the reassignment is not completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafkas_reassignment_moves_replicas_between_data_directories() {
    const REASSIGN: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
    const LOG_DIRS: &str = "org.apache.kafka.tools.LogDirsCommand";
    let Some(jars) = jars() else { return };
    let root = tempfile::tempdir().expect("a temporary directory");
    let paths = ["a", "b"].map(|name| root.path().join(name).to_str().expect("UTF-8").to_owned());
    let broker = RunningBroker::start(root.path(), &[("node.id", "1"), ("log.dirs", &paths.join(","))]).await;
    let to = ["--bootstrap-server", broker.address()];
    let topic = Topic::create(&broker, "moved", 1, &[]).await;
    for _ in 0..30 {
        let put = broker.ask(&produce(13, &topic, 0, -1, batch(&[&[7; 50_000]]))).await;
        assert_eq!(put.responses[0].partition_responses[0].error_code, 0);
    }
    let place =
        || broker.server().broker.partitions.get("moved", PartitionIndex(0)).expect("it is here").dir();
    let target = paths.iter().find(|path| !place().starts_with(path)).expect("it lies in one of two");
    let plan = root.path().join("plan.json");
    let partition = format!(r#"{{"topic":"moved","partition":0,"replicas":[1],"log_dirs":["{target}"]}}"#);
    std::fs::write(&plan, format!(r#"{{"version":1,"partitions":[{partition}]}}"#))
        .expect("it can be written");
    let file = ["--reassignment-json-file", plan.to_str().expect("UTF-8")];
    let begun =
        format!("Successfully started moving log directory to {target} for replica moved-0 with broker 1");
    let execute = ["--execute", "--replica-alter-log-dirs-throttle", "10000"];
    let said = tool(&jars, REASSIGN, &[&to, &file[..], &execute[..]].concat(), "").await;
    assert_has(&said, &["The replica-alter-dir throttle limit was set to 10000 B/s", &begun]);
    let said = tool(&jars, REASSIGN, &[&to, &file[..], &["--verify"][..]].concat(), "").await;
    assert_has(&said, &["Reassignment of replica moved-0-1 is still in progress"]);
    let describe = ["--describe", "--topic-list", "moved"];
    let said = tool(&jars, LOG_DIRS, &[&to, &describe[..]].concat(), "").await;
    assert_has(&said, &[r#""isFuture":true"#, r#""isFuture":false"#]);
    // The same again, with another throttle, takes nothing back.
    let execute = ["--execute", "--additional", "--replica-alter-log-dirs-throttle", "100000000"];
    let said = tool(&jars, REASSIGN, &[&to, &file[..], &execute[..]].concat(), "").await;
    assert_has(&said, &[&begun]);
    until("it has moved", async || place().starts_with(target)).await;
    let said = tool(&jars, REASSIGN, &[&to, &file[..], &["--verify"][..]].concat(), "").await;
    assert_has(
        &said,
        &["Reassignment of replica moved-0-1 completed successfully", "Clearing broker-level throttles"],
    );
    assert_eq!(broker.server().broker.replication.moves.throttle.limit(), None);
    let said = tool(&jars, LOG_DIRS, &[&to, &describe[..]].concat(), "").await;
    assert!(said.contains("moved-0") && !said.contains(r#""isFuture":true"#), "{said}");
    broker.stop().await;
}

/// Kafka's consumer reads from the follower in its rack (KIP-392), and from the leader without a rack.
async fn consumers_near_by(jars: &str, to: &[&str; 2], brokers: [&RunningBroker; 2]) {
    let create = ["--create", "--topic", "near", "--replica-assignment", "1:2"];
    tool(jars, "org.apache.kafka.tools.TopicCommand", &[to, &create[..]].concat(), "").await;
    let produce = ["--topic", "near"];
    tool(jars, "org.apache.kafka.tools.ConsoleProducer", &[to, &produce[..]].concat(), "one\ntwo\n").await;
    let sent = |broker: &RunningBroker| {
        let partition =
            broker.server().broker.partitions.get("near", PartitionIndex(0)).expect("both have a replica");
        partition.traffic().bytes_out
    };
    assert_eq!(brokers.map(sent), [0, 0]);
    let consume = ["--topic", "near", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"];
    let consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    let near = ["--consumer-property", "client.rack=b"];
    let read = tool(jars, consumer, &[to, &consume[..], &near[..]].concat(), "").await;
    assert_has(&read, &["one", "two"]);
    let by_rack = brokers.map(sent);
    assert!(by_rack[0] == 0 && by_rack[1] > 0, "{by_rack:?} from the leader and the follower");
    let read = tool(jars, consumer, &[to, &consume[..]].concat(), "").await;
    assert_has(&read, &["one", "two"]);
    assert!(brokers.map(sent)[0] > 0, "a consumer without a rack reads from the leader");
}
