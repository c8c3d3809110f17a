//! The HTTP server of a node: off unless it is asked for, its metrics, and what it says when it cannot be had.

use crate::binary::{run, thalweg};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

/// A node with an HTTP server, killed when the test ends.
struct Node {
    child: Child,
    address: String,
    http: String,
}

impl Node {
    fn start(dir: &Path, properties: &[&str]) -> Node {
        let mut command = thalweg("serve --set http.listener=127.0.0.1:0");
        command.arg("--data-dir").arg(dir);
        for property in properties {
            command.args(["--set", property]);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines =
            BufReader::new(child.stderr.take().expect("a pipe")).lines().map(|line| line.expect("text"));
        let mut after = |words: &str| {
            lines.find_map(|line| line.split_once(words).map(|(_, rest)| rest.to_owned())).expect("it starts")
        };
        let listens = after("listens on ");
        let (_, listener) = listens.split_once("://").expect("a name before it");
        let address = listener.split([',', ' ']).next().expect("a listener").to_owned();
        let http = after("Metrics are at http://").trim_end_matches("/metrics").to_owned();
        // What it says later is read, so that it never waits for this end.
        std::thread::spawn(move || lines.for_each(drop));
        Node { child, address, http }
    }

    /// The status line, the head and the body of an answer.
    fn get(&self, path: &str) -> (String, String, String) {
        let mut stream = TcpStream::connect(&self.http).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http);
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let (status, head) = head.split_once("\r\n").expect("a status and headers");
        (status.to_owned(), head.to_lowercase(), body.to_owned())
    }

    /// Every sample by name and labels, as text.
    fn metrics(&self) -> BTreeMap<String, String> {
        let (status, _, body) = self.get("/metrics");
        assert_eq!(status, "HTTP/1.1 200 OK");
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn produce(address: &str, topic: &str, records: usize) {
    let mut command = thalweg(&format!("produce {topic} --bootstrap-server {address}"));
    let (code, _, error) = crate::binary::run_with_input(&mut command, &b"0123456789\n".repeat(records));
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn metrics_tell_what_went_through_a_topic_and_how_its_consumers_stand() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &["group.initial.rebalance.delay.ms=0"]);
    produce(&node.address, "orders", 7);
    let consume = "consume orders --from-beginning --max-messages 5 --group readers --bootstrap-server";
    let (code, _, error) = run(&mut thalweg(&format!("{consume} {}", node.address)));
    assert_eq!(code, Some(0), "{error}");

    let (_, head, page) = node.get("/metrics");
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
    assert_eq!(of("kafka_server_replicamanager_underreplicatedpartitions"), "0");
    assert_eq!(of("kafka_server_replicamanager_offlinereplicacount"), "0");
    assert_eq!(of("kafka_controller_kafkacontroller_activebrokercount"), "1");
    assert!(number("process_open_fds") > 3.0);

    // A topic that has gone takes its sample with it; the sample for all topics never falls.
    let all = number("kafka_server_brokertopicmetrics_messagesin_total");
    let (code, _, error) =
        run(&mut thalweg(&format!("topic delete orders --bootstrap-server {}", node.address)));
    assert_eq!(code, Some(0), "{error}");
    let metrics = node.metrics();
    assert!(!metrics.contains_key("kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"}"));
    let now: f64 = metrics["kafka_server_brokertopicmetrics_messagesin_total"].parse().expect("a number");
    assert!(now >= all, "{now} after {all}");
    assert!(node.get("/elsewhere").0.contains("404"));
}

#[test]
fn a_controller_alone_tells_of_its_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let properties = ["process.roles=controller", "node.id=100", "listeners=CONTROLLER://127.0.0.1:0"];
    let mut node = Node::start(dir.path(), &properties);
    let metrics = node.metrics();
    assert_eq!(metrics["kafka_controller_kafkacontroller_activecontrollercount"], "1");
    assert_eq!(metrics["kafka_controller_kafkacontroller_activebrokercount"], "0");
    assert!(!metrics.contains_key("kafka_server_replicamanager_leadercount"));
    kill_process(Pid::from_child(&node.child), Signal::TERM).expect("it runs");
    assert!(node.child.wait().expect("it ends").success());
}

#[test]
fn a_taken_port_and_a_bad_value_are_told_before_anything_is_opened() {
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
