//! The HTTP server of a node: off by default, its metrics, and its errors.

use crate::binary::{run, thalweg};
use crate::node::{Answer, Node, ask};
use rustix::process::Signal;
use std::net::TcpListener;

fn produce(address: &str, topic: &str, records: usize) {
    let mut command = thalweg(&format!("produce {topic} --bootstrap-server {address}"));
    let (code, _, error) = crate::binary::run_with_input(&mut command, &b"0123456789\n".repeat(records));
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn metrics_show_a_topics_traffic_and_consumer_lag() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &["group.initial.rebalance.delay.ms=0"]);
    produce(&node.address, "orders", 7);
    let consume = "consume orders --from-beginning --max-messages 5 --group readers --bootstrap-server";
    let (code, _, error) = run(&mut thalweg(&format!("{consume} {}", node.address)));
    assert_eq!(code, Some(0), "{error}");

    let Answer { head, body: page, .. } = node.get("/metrics");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(page.contains("# TYPE kafka_server_brokertopicmetrics_messagesin_total counter\n"), "{page}");

    let metrics = node.metrics();
    let of = |name: &str| metrics.get(name).unwrap_or_else(|| panic!("{name} is missing: {page}")).as_str();
    let number = |name: &str| of(name).parse::<f64>().unwrap_or_else(|_| panic!("{name}: {}", of(name)));
    assert_eq!(of("kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"}"), "7");
    assert_eq!(of("kafka_log_log_logendoffset{topic=\"orders\",partition=\"0\"}"), "7");
    assert!(number("kafka_server_brokertopicmetrics_bytesin_total{topic=\"orders\"}") > 70.0);
    assert!(number("kafka_server_brokertopicmetrics_bytesout_total") > 70.0);
    assert!(number("kafka_network_requestmetrics_totaltimems_count{request=\"Produce\"}") >= 1.0);
    assert!(number("kafka_network_requestmetrics_totaltimems{request=\"Produce\",quantile=\"0.99\"}") > 0.0);
    assert_eq!(
        of("kafka_consumergroup_lag{consumergroup=\"readers\",topic=\"orders\",partition=\"0\"}"),
        "2"
    );
    assert!(number("thalweg_group_lag_seconds{consumergroup=\"readers\"}") > 0.0);
    assert_eq!(of("kafka_server_replicamanager_underreplicatedpartitions"), "0");
    assert_eq!(of("kafka_server_replicamanager_offlinereplicacount"), "0");
    assert_eq!(of("kafka_controller_kafkacontroller_activebrokercount"), "1");
    assert!(number("process_open_fds") > 3.0);

    // A deleted topic loses its sample; the sample for all topics never falls.
    let all = number("kafka_server_brokertopicmetrics_messagesin_total");
    let (code, _, error) =
        run(&mut thalweg(&format!("topic delete orders --bootstrap-server {}", node.address)));
    assert_eq!(code, Some(0), "{error}");
    let metrics = node.metrics();
    assert!(!metrics.contains_key("kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"}"));
    let now: f64 = metrics["kafka_server_brokertopicmetrics_messagesin_total"].parse().expect("a number");
    assert!(now >= all, "{now} after {all}");
    assert_eq!(node.get("/elsewhere").status, 404);
}

#[test]
fn clients_get_openmetrics_if_they_prefer_it_and_large_pages_in_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let node =
        Node::start(dir.path(), &["listeners=PLAINTEXT://127.0.0.1:0", "thalweg.metrics.series.max=100000"]);
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let answer = ask(&node.http, "GET", "/metrics", accept, "");
    assert!(
        answer.head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{}",
        answer.head
    );
    assert!(answer.body.contains("# UNIT process_cpu_seconds seconds\n") && answer.body.ends_with("# EOF\n"));
    assert!(answer.head.contains("content-length: "), "a small page is sent whole: {}", answer.head);

    let create = format!("topic create wide --partitions 800 --bootstrap-server {}", node.address);
    let (code, _, error) = run(&mut thalweg(&create));
    assert_eq!(code, Some(0), "{error}");
    // The broker opens them after the answer.
    let last = "kafka_log_log_logendoffset{topic=\"wide\",partition=\"799\"}";
    crate::binary::until("all partitions", || node.metrics().contains_key(last));
    let answer = ask(&node.http, "GET", "/metrics", accept, "");
    assert!(answer.head.contains("transfer-encoding: chunked"), "{}", answer.head);
    assert!(answer.body.ends_with("# EOF\n"), "the whole page");
    for partition in 0..800 {
        let sample = format!("kafka_log_log_logendoffset{{topic=\"wide\",partition=\"{partition}\"}} 0\n");
        assert!(answer.body.contains(&sample), "{sample}");
    }
}

#[test]
fn a_controller_alone_reports_its_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let properties = ["process.roles=controller", "node.id=100", "listeners=CONTROLLER://127.0.0.1:0"];
    let mut node = Node::start(dir.path(), &properties);
    let metrics = node.metrics();
    assert_eq!(metrics["kafka_controller_kafkacontroller_activecontrollercount"], "1");
    assert_eq!(metrics["kafka_controller_kafkacontroller_activebrokercount"], "0");
    assert_eq!(metrics["thalweg_listener_connections{listener=\"CONTROLLER\"}"], "0");
    assert!(!metrics.contains_key("kafka_server_replicamanager_leadercount"));
    node.end(Signal::TERM);
}

#[test]
fn port_conflicts_and_invalid_values_are_reported_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port();
    for (listener, said) in [
        (format!("127.0.0.1:{port}"), format!("http.listener: cannot listen on 127.0.0.1:{port}: ")),
        (
            "9090".to_owned(),
            "Invalid value 9090 for configuration http.listener: Expected HOST:PORT".to_owned(),
        ),
    ] {
        let mut command = thalweg("serve --listen 127.0.0.1:0");
        command.arg("--data-dir").arg(&data).args(["--set", &format!("http.listener={listener}")]);
        let (code, _, error) = run(&mut command);
        assert_ne!(code, Some(0));
        assert!(error.contains(&said), "{error}");
        assert!(!data.exists(), "nothing was opened");
    }
}

#[test]
fn a_consumer_of_librdkafka_reads_from_the_follower_in_its_rack() {
    const RACK_AWARE: &str =
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let dir = tempfile::tempdir().expect("a directory");
    let listeners = "listeners=CONTROLLER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0";
    let leads = ["process.roles=broker,controller", "node.id=1", "broker.rack=rack-1", listeners, RACK_AWARE];
    let first = Node::start(&dir.path().join("1"), &leads);
    let (controller, broker) = (first.listener("CONTROLLER"), first.listener("PLAINTEXT"));
    let quorum = format!("controller.quorum.bootstrap.servers={controller}");
    let joins = ["process.roles=broker", "node.id=2", "broker.rack=rack-2", &quorum, RACK_AWARE];
    let second =
        Node::start(&dir.path().join("2"), &[&joins[..], &["listeners=PLAINTEXT://127.0.0.1:0"]].concat());
    let create = format!("topic create near --replication-factor 2 --bootstrap-server {broker}");
    let (code, _, error) = run(&mut thalweg(&create));
    assert_eq!(code, Some(0), "{error}");
    let near = "{topic=\"near\",partition=\"0\"}";
    let follower = format!("kafka_cluster_partition_insyncreplicascount{near}");
    let leader_is = |node: &Node| node.metrics().get(&follower).is_some_and(|count| count == "2");
    crate::binary::until("a leader with both replicas in sync", || leader_is(&first) || leader_is(&second));
    let (leader, follower, rack) =
        if leader_is(&first) { (&first, &second, "rack-2") } else { (&second, &first, "rack-1") };
    produce(&broker, "near", 20);

    let properties = dir.path().join("consumer.properties");
    std::fs::write(&properties, format!("client.rack={rack}\n")).expect("the directory can be written");
    let source = format!(
        "kafka --topics=near --untilEnd=true --bootstrap={broker} --properties={}",
        properties.display()
    );
    let mut command = thalweg("stream run");
    let (code, printed, error) = run(command.arg(format!("{source} | counter")));
    assert_eq!(code, Some(0), "{error}");
    assert!(printed.contains("20") || error.contains("20"), "{printed}{error}");
    let sent = |node: &Node| {
        let metrics = node.metrics();
        metrics["kafka_server_brokertopicmetrics_bytesout_total{topic=\"near\"}"]
            .parse::<u64>()
            .expect("a number")
    };
    assert!(sent(follower) > 0, "the follower has sent nothing");
    assert_eq!(sent(leader), 0, "the leader has sent records too");
    assert_eq!(leader.metrics()["kafka_server_replicamanager_underreplicatedpartitions"], "0");
}
