//! The target `apache-kafka` with real brokers. Needs Java and Kafka's jars; otherwise skipped, with a
//! message.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use thalweg_lab::doctor;
use thalweg_lab::target::{self, RunningCluster, StartOptions, TargetSpec};
use thalweg_lab::workload::{ClusterSecurity, ClusterSpec, SecurityProtocol};
use thalweg_wire::request::CreateTopicsRequest;
use thalweg_wire::request::create_topics_request::CreatableTopic;

/// Whether Kafka's jars are available; prints that the test is skipped if not.
fn has_kafka(what: &str) -> bool {
    if std::env::var_os("KAFKA_CLASSPATH").is_some() {
        return true;
    }
    let how = "export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\", with Java 17 or later";
    writeln!(std::io::stderr(), "SKIPPED: {what}: {how}").expect("stderr takes a line");
    false
}

async fn start(work: &Path, brokers: u32, properties: &[(&str, &str)]) -> RunningCluster {
    let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let options = StartOptions { heap_mb: 256, ..StartOptions::new(work) };
    let spec = ClusterSpec::plaintext(brokers, properties);
    match target::start(&TargetSpec::ApacheKafka, &spec, &options).await {
        Ok(running) => running,
        Err(error) => panic!("Apache Kafka did not start: {error}"),
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("the test made it").next().is_none()
}

async fn create_topic(running: &RunningCluster, replication_factor: i16) {
    let cluster = running.cluster();
    let cluster = target::connect(&cluster.bootstrap, &cluster.client_properties).await.expect("it serves");
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "events".to_owned(),
            num_partitions: 3,
            replication_factor,
            ..CreatableTopic::default()
        }],
        timeout_ms: 20_000,
        ..CreateTopicsRequest::default()
    };
    let answer = cluster.send_controller(&request).await.expect("an answer");
    assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broker_starts_with_the_settings_of_the_workload_and_stops_in_order() {
    if !has_kafka("one broker of Apache Kafka") {
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let running = start(work.path(), 1, &[("num.io.threads", "5"), ("log.dirs", "first,second")]).await;
    let cluster = running.cluster().clone();
    assert_eq!(cluster.processes.len(), 1);
    assert_eq!(cluster.info.version, "Apache Kafka 4.3.1");
    assert!(cluster.info.command.contains(&"-Xmx256m".to_owned()), "{:?}", cluster.info.command);
    assert!(cluster.info.notes[0].contains("num.io.threads=5"), "{:?}", cluster.info.notes);
    let data = cluster.data_dir.clone().expect("it is here");
    assert!(data.join("broker-1/first/meta.properties").exists());
    assert!(data.join("broker-1/second/meta.properties").exists());
    create_topic(&running, 1).await;
    assert_eq!(running.died(), None);

    assert_eq!(running.stop(), Vec::<String>::new());
    assert!(!is_alive(cluster.processes[0].1));
    assert!(is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn three_brokers_replicate_and_a_death_is_noticed() {
    if !has_kafka("three brokers of Apache Kafka") {
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let running = start(work.path(), 3, &[]).await;
    let cluster = running.cluster().clone();
    let names: Vec<&str> = cluster.processes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["broker-1", "broker-2", "broker-3"]);
    create_topic(&running, 3).await;
    let advice =
        doctor::examine(work.path(), doctor::DiskTest::short(), Some((&cluster.bootstrap, &BTreeMap::new())))
            .await;
    let fetchers = advice.iter().find(|one| one.subject == "num.replica.fetchers").expect("it is looked at");
    assert_eq!((fetchers.place.as_str(), fetchers.found.as_str()), ("brokers", "1"));
    assert!(fetchers.right.starts_with("use 3 "), "{fetchers:?}");

    let victim = i32::try_from(cluster.processes[1].1).expect("a process id");
    let pid = rustix::process::Pid::from_raw(victim).expect("not zero");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
    let mut died = None;
    for _ in 0..200 {
        died = running.died();
        if died.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let died = died.expect("the death of a broker is noticed");
    assert!(died.starts_with("broker-2 (process ") && died.contains("signal 9"), "{died}");
    drop(running);
    assert!(cluster.processes.iter().all(|(_, pid)| !is_alive(*pid)));
    assert!(is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn secured_brokers_talk_to_each_other_and_refuse_strangers() {
    if !has_kafka("secured brokers of Apache Kafka") {
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let options = StartOptions { heap_mb: 256, ..StartOptions::new(work.path()) };
    let security = ClusterSecurity::new(SecurityProtocol::SaslSsl, None);
    let spec = ClusterSpec { security, ..ClusterSpec::plaintext(2, BTreeMap::new()) };
    let running = target::start(&TargetSpec::ApacheKafka, &spec, &options).await;
    let running = running.unwrap_or_else(|error| panic!("Apache Kafka did not start: {error}"));
    let cluster = running.cluster().clone();
    let negotiated = cluster.security.as_ref().expect("it was talked to").to_string();
    assert_eq!(negotiated, "SASL_SSL, TLSv1.3, TLS_AES_256_GCM_SHA384, SCRAM-SHA-512");
    // Its replicas are in sync only if the brokers can log in at each other.
    create_topic(&running, 2).await;
    let impatient = BTreeMap::from([("request.timeout.ms".to_owned(), "2000".to_owned())]);
    assert!(target::connect(&cluster.bootstrap, &impatient).await.is_err());
    assert_eq!(running.stop(), Vec::<String>::new());
    assert!(is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_kafka_refuses_is_reported_in_its_words() {
    if !has_kafka("a refusal of Apache Kafka") {
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let properties = BTreeMap::from([("num.io.threads".to_owned(), "many".to_owned())]);
    let spec = ClusterSpec::plaintext(1, properties);
    let error = target::start(&TargetSpec::ApacheKafka, &spec, &StartOptions::new(work.path())).await;
    let error = error.map(|_| ()).expect_err("a refusal").to_string();
    assert!(error.contains("num.io.threads") && error.contains("many"), "{error}");
    assert!(is_empty(work.path()));
}
