//! Kafka's own tools against brokers of ours, under one Apache controller with every feature that Kafka formats by itself.

use super::controllers::{Controllers, JVM_OPTIONS, Quorum};
use super::{jars, join, until};
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs one of Kafka's tools and gives what it prints.
async fn tool(classpath: &str, class: &str, arguments: &[&str], input: &str) -> String {
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
