//! Streams hosted by brokers: the verbs over HTTP and on the command line, restarts, taps, instances, several
//! brokers, a thousand streams, and their figures.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use thalweg_ports::free_port;

use super::binary::{self, thalweg, until};
use super::node::{self, Answer, Node};

/// A broker that hosts streams.
struct Host(Node);

impl Deref for Host {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl Host {
    /// A broker with its own controller.
    fn start(dir: &Path) -> Host {
        Host::with(dir, &["listeners=PLAINTEXT://127.0.0.1:0"])
    }

    fn with(dir: &Path, properties: &[&str]) -> Host {
        let hosts = ["streams.enabled=true", "group.initial.rebalance.delay.ms=0"];
        let host = Host(Node::start(&dir.join("data"), &[&hosts, properties].concat()));
        until("the streams are known", || host.ask("GET", "/api/v1/streams", "").0 == 200);
        host
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let Answer { status, body, .. } = node::ask(&self.http, method, path, "", body);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// A verb that must succeed.
    fn done(&self, method: &str, path: &str, body: Value) -> Value {
        let (code, answer) = self.ask(method, path, &body.to_string());
        assert!((200..300).contains(&code), "{method} {path}: {answer}");
        answer
    }

    fn create(&self, name: &str, definition: &str) -> Value {
        self.done(
            "POST",
            "/api/v1/streams",
            json!({ "name": name, "definition": definition, "deploy": true }),
        )
    }

    fn state(&self, name: &str) -> String {
        self.ask("GET", &format!("/api/v1/streams/{name}"), "").1["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The command line: exit code, standard output and standard error.
    fn stream(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = thalweg("stream");
        command.args(arguments).env("THALWEG_SERVER", format!("http://{}", self.http));
        binary::run(&mut command)
    }

    fn signal(mut self, signal: Signal) {
        self.0.end(signal);
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

fn ticks(path: &Path) -> String {
    format!("time --fixedDelay=0.01 | file --path={}", path.display())
}

fn dir_and(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    (dir, path)
}

#[test]
fn the_command_line_creates_deploys_undeploys_and_destroys() {
    let (dir, file) = dir_and("ticks.txt");
    let host = Host::start(dir.path());
    let said = |arguments: &[&str]| {
        let (code, out, error) = host.stream(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        out
    };
    assert_eq!(said(&["create", "ticks", "--definition", &ticks(&file)]), "Created stream ticks\n");
    assert!(
        said(&["list"]).contains("ticks   undeployed  -     time --fixedDelay=0.01 | file"),
        "{}",
        said(&["list"])
    );
    assert_eq!(
        said(&["deploy", "ticks", "--properties", "module.*.count=0,onError=skip"]),
        "Deployed stream ticks\n"
    );
    until("ticks", || lines(&file) > 5);
    let status = said(&["status", "ticks"]);
    for part in
        ["State       deployed", "Properties  module.*.count=0,onError=skip", "COUNT  MESSAGES  BYTES"]
    {
        assert!(status.contains(part), "{part} in {status}");
    }
    let (code, _, error) = host.stream(&["deploy", "ticks"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("is deployed already, on node 1: undeploy it first"), "{error}");
    assert_eq!(said(&["undeploy", "ticks"]), "Undeployed stream ticks\n");
    let drained = lines(&file);
    assert_eq!(host.state("ticks"), "undeployed");
    said(&["deploy", "ticks"]);
    until("more ticks", || lines(&file) > drained);
    for (verb, error) in [
        ("status", "thalweg: There is no stream tocks; did you mean ticks?\n"),
        ("undeploy", "thalweg: There is no stream tocks\n"),
        ("destroy", "thalweg: There is no stream tocks\n"),
    ] {
        assert_eq!(host.stream(&[verb, "tocks"]), (Some(7), String::new(), error.to_owned()));
    }
    let told: Value = serde_json::from_str(&said(&["destroy", "ticks", "--json"])).expect("JSON");
    assert_eq!(told["state"], "destroyed");
    let listed: Value = serde_json::from_str(&said(&["list", "--json"])).expect("JSON");
    assert_eq!(listed["streams"], json!([]));
}

#[test]
fn mistakes_are_reported_with_their_position_and_nothing_is_created() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    let caret =
        "There is no processor fliter\n    time | fliter | log\n           ^^^^^^\n  Did you mean filter?";
    let (code, out, error) = host.stream(&["create", "x", "--definition", "time | fliter | log"]);
    assert_eq!((code, out.as_str(), error), (Some(2), "", format!("thalweg: {caret}\n")));
    let (code, answer) =
        host.ask("POST", "/api/v1/streams", r#"{"name": "x", "definition": "time | fliter | log"}"#);
    assert_eq!(code, 400);
    assert_eq!(answer["error"]["message"], caret);
    assert_eq!(answer["error"]["complaints"][0]["from"], 7);
    let refused = |body: Value, expected: u16, part: &str| {
        let (code, answer) = host.ask("POST", "/api/v1/streams", &body.to_string());
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(code == expected && message.contains(part), "{body}: {code} {message}");
    };
    let definition = |text: &str| json!({ "name": "x", "definition": text });
    refused(definition("stdin | log"), 400, "Use http, file or kafka.");
    refused(definition("time | exec --command=cat | log"), 400, "exec is not allowed on this host");
    refused(definition("tap:stream:nope > log"), 400, "Create it first");
    refused(definition("time | log; time | null"), 400, "A definition is one stream");
    refused(definition("y = time | log"), 400, "The definition names the stream y, but it is created as x");
    refused(definition("tap:stream:x > log"), 400, "feeds itself");
    refused(json!({ "name": "a b", "definition": "time | log" }), 400, "cannot be the name of a stream");
    refused(json!({ "name": "x" }), 400, "definition is missing");
    refused(json!({ "name": "x", "definition": "time | log", "deply": true }), 400, "Unknown field deply");
    refused(
        json!({ "name": "x", "definition": "time | log", "deploy": true, "properties": "module.lgo.count=2" }),
        400,
        "use module.log.count",
    );
    let exactly_once = json!({ "guarantee": "exactly-once" });
    refused(
        json!({ "name": "x", "definition": "time | log", "deploy": true, "properties": exactly_once }),
        400,
        "The stream x cannot run exactly once: its source is time",
    );
    for properties in
        ["guarantee=exactly-once", "module.log.count", "module.log.count=many", "onError=ignore"]
    {
        let create = ["create", "x", "--definition", "time | log", "--deploy", "--properties", properties];
        let (code, _, error) = host.stream(&create);
        assert!(code == Some(2) && error.contains("use "), "{properties}: {code:?} {error}");
    }
    assert_eq!(host.ask("POST", "/api/v1/streams", "[").0, 400);
    assert_eq!(host.ask("GET", "/api/v1/streams/nope", "").0, 404);
    let answer = node::ask(&host.http, "POST", "/api/v1/streams", "Origin: http://evil.example\r\n", "{}");
    assert_eq!(answer.status, 403, "a web page is no operator");
    assert_eq!(host.ask("GET", "/api/v1/streams", "").1["streams"], json!([]));
    host.create("x", "time --initialDelay=1h | null");
    refused(definition("time | log"), 409, "A stream x exists already");
    let (code, answer) = host.ask("POST", "/api/v1/streams/missing/undeploy", "");
    assert_eq!((code, &answer["error"]["message"]), (404, &json!("There is no stream missing")));
    // A stream that cannot be started reports why, and can be deployed again.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let answer = host.create("web", &format!("http --port={port} | null"));
    assert_eq!(answer["state"], "failed");
    assert!(answer["reason"].as_str().is_some_and(|reason| reason.contains("Cannot listen on")), "{answer}");
    drop(taken);
    assert_eq!(host.done("POST", "/api/v1/streams/web/deploy", json!({}))["state"], "deployed");
}

#[test]
fn after_a_kill_streams_restart_and_deliver_pending_records() {
    let (dir, file) = dir_and("ticks.txt");
    let (seen, port) = (dir.path().join("seen.txt"), free_port());
    let listener = format!("listeners=PLAINTEXT://127.0.0.1:{port}");
    let host = Host::with(dir.path(), &[&listener]);
    let produce = |numbers: std::ops::Range<u32>| {
        let records: String = numbers.map(|number| format!("{number}\n")).collect();
        let mut command = thalweg(&format!("produce in -b 127.0.0.1:{port}"));
        let (code, _, error) = binary::run_with_input(&mut command, records.as_bytes());
        assert_eq!(code, Some(0), "{error}");
    };
    let topic =
        thalweg(&format!("topic create in --partitions 3 -b {}", host.address)).status().expect("it runs");
    assert!(topic.success());
    host.create("ticks", &ticks(&file));
    host.done("POST", "/api/v1/streams", json!({ "name": "idle", "definition": "time | null" }));
    // The brokers of a kafka stage are the host's, and named destinations are topics.
    host.create("copy", "kafka --topics=in --group=g --sessionTimeout=6s | topic:copied");
    host.create("shown", &format!("topic:copied > file --path={}", seen.display()));
    produce(0..500);
    let numbers = || {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect::<BTreeSet<u32>>()
    };
    until("the first numbers", || numbers().len() == 500);
    until("ticks", || lines(&file) > 3);
    host.signal(Signal::KILL);
    let before = lines(&file);
    let host = Host::with(dir.path(), &[&listener]);
    until("more ticks", || lines(&file) > before + 3);
    produce(500..1000);
    until("all numbers", || numbers().len() == 1000);
    assert_eq!((host.state("copy").as_str(), host.state("idle").as_str()), ("deployed", "undeployed"));
    host.done("POST", "/api/v1/streams/copy/undeploy", json!({}));
    host.signal(Signal::TERM);
    let host = Host::with(dir.path(), &[&listener]);
    assert_eq!(host.state("copy"), "undeployed", "what was undeployed stays so");
}

#[test]
fn a_malformed_message_goes_back_and_does_not_end_the_stream() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    let port = free_port();
    host.create(
        "orders",
        &format!("http --port={port} | filter --expression='payload.x > 0' | topic:orders"),
    );
    for (body, status) in [("no JSON", 422), ("{\"x\": 1}", 200), ("{}", 422), ("{\"x\": 2}", 200)] {
        let answer = node::ask(&format!("127.0.0.1:{port}"), "POST", "/", "", body);
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    assert_eq!(host.state("orders"), "deployed");
}

#[test]
fn passwords_in_definitions_are_not_shown() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    let text =
        format!("time --initialDelay=1h | http --url=http://ann:hidden-word@127.0.0.1:{}/", free_port());
    host.create("calls", &text);
    let shown = |arguments: &[&str]| {
        let (code, out, error) = host.stream(arguments);
        assert_eq!(code, Some(0), "{error}");
        assert!(out.contains("http://***@127.0.0.1") && !out.contains("hidden-word"), "{out}");
    };
    for arguments in
        [&["list"][..], &["list", "--json"], &["status", "calls"], &["status", "calls", "--json"]]
    {
        shown(arguments);
    }
    // The stream itself keeps its password.
    assert_eq!(host.done("POST", "/api/v1/streams/calls/undeploy", json!({}))["state"], "undeployed");
    assert_eq!(host.done("POST", "/api/v1/streams/calls/deploy", json!({}))["state"], "deployed");
}

#[test]
fn a_posted_message_is_in_its_topic_and_counted_when_it_is_answered() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    let port = free_port();
    host.create("orders", &format!("http --port={port} | topic:orders"));
    for posted in 1..=20 {
        let answer = node::ask(&format!("127.0.0.1:{port}"), "POST", "/", "", "x");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let status = host.ask("GET", "/api/v1/streams/orders", "").1;
        let stages = &status["parts"][0]["stages"];
        assert_eq!(stages[1]["found"]["acknowledged"], posted, "{status:#}");
        let counts = [0, 1].map(|stage| stages[stage]["messages_out"].as_u64());
        assert_eq!(counts, [Some(posted), Some(posted)], "{status:#}");
    }
    let mut consume = thalweg("consume orders --from-beginning --max-messages 20 -b");
    let (code, out, error) = binary::run(consume.arg(&host.address));
    assert_eq!((code, out.lines().count()), (Some(0), 20), "{error}");
    host.signal(Signal::TERM);
}

#[test]
fn a_tap_listens_to_a_stream_whenever_that_runs() {
    let (dir, file) = dir_and("tapped.txt");
    let host = Host::start(dir.path());
    host.done(
        "POST",
        "/api/v1/streams",
        json!({ "name": "t", "definition": "time --fixedDelay=0.01 | all: filter --expression=true | null" }),
    );
    host.create("tap", &format!("tap:stream:t.all > file --path={}", file.display()));
    assert_eq!(host.state("tap"), "deployed");
    assert_eq!(lines(&file), 0);
    host.done("POST", "/api/v1/streams/t/deploy", json!({ "properties": { "module.all.count": 2 } }));
    until("tapped messages of instances", || lines(&file) > 5);
    host.done("POST", "/api/v1/streams/t/undeploy", json!({}));
    let before = lines(&file);
    assert_eq!(host.done("POST", "/api/v1/streams/t/deploy", json!({}))["state"], "deployed");
    until("tapped messages of the next deployment", || lines(&file) > before + 5);
    let (code, answer) = host.ask("DELETE", "/api/v1/streams/t", "");
    assert_eq!(
        (code, &answer["error"]["message"]),
        (409, &json!("The stream t is tapped by tap: destroy the tap first"))
    );
    host.done("DELETE", "/api/v1/streams/tap", json!({}));
    host.done("DELETE", "/api/v1/streams/t", json!({}));
}

#[test]
fn a_stop_drains_and_the_next_start_resumes() {
    let (dir, file) = dir_and("drained.txt");
    let seen = dir.path().join("seen.txt");
    let host = Host::start(dir.path());
    host.create(
        "held",
        &format!(
            "time --fixedDelay=0.01 | batch --size=1000000 --timeout=1h | file --path={}",
            file.display()
        ),
    );
    host.create("seen", &format!("tap:stream:held > file --path={}", seen.display()));
    until("messages that are held", || lines(&seen) > 5);
    assert_eq!(lines(&file), 0);
    host.signal(Signal::TERM);
    assert!(lines(&file) > 0, "what the batch held has arrived");
    let before = lines(&seen);
    let host = Host::start(dir.path());
    until("the stream runs again", || lines(&seen) > before);
    assert_eq!(host.state("held"), "deployed");
}

#[test]
fn several_brokers_know_the_same_streams_and_each_runs_its_own() {
    let (dir, file) = dir_and("ticks.txt");
    let controller = free_port();
    let first = Host::with(
        &dir.path().join("1"),
        &[
            "process.roles=broker,controller",
            "node.id=1",
            &format!("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller}"),
            "controller.listener.names=CONTROLLER",
        ],
    );
    let second = Host::with(
        &dir.path().join("2"),
        &[
            "process.roles=broker",
            "node.id=2",
            "listeners=PLAINTEXT://127.0.0.1:0",
            &format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}"),
        ],
    );
    second.create("ticks", &ticks(&file));
    until("ticks", || lines(&file) > 3);
    until("the first to have heard", || first.state("ticks") == "deployed elsewhere");
    let (code, answer) =
        first.ask("POST", "/api/v1/streams", r#"{"name": "ticks", "definition": "time | log"}"#);
    assert_eq!(code, 409, "{answer}");
    let tap = json!({ "name": "tap", "definition": "tap:stream:ticks > null", "deploy": true });
    let (code, answer) = first.ask("POST", "/api/v1/streams", &tap.to_string());
    assert_eq!(code, 409);
    assert!(
        answer["error"]["message"].as_str().is_some_and(|told| told.contains("runs on node 2")),
        "{answer}"
    );
    // Any host can stop any stream, and the host of the next deployment runs it.
    first.done("POST", "/api/v1/streams/ticks/undeploy", json!({}));
    until("the second to have stopped", || second.state("ticks") == "undeployed");
    let before = lines(&file);
    assert_eq!(first.done("POST", "/api/v1/streams/ticks/deploy", json!({}))["node"], 1);
    until("ticks of the first", || lines(&file) > before);
    until("the second to have heard", || second.state("ticks") == "deployed elsewhere");
}

#[test]
fn a_thousand_streams_start_again_after_a_kill() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    // Records in the topic's format: a host follows records of others.
    let record = r#"{"version":1,"definition":"time --initialDelay=1h | filter --expression=true | null","deployed":{"node":1}}"#;
    let records: String = (0..1000).map(|number| format!("s{number}={record}\n")).collect();
    let mut produce = thalweg(&format!("produce __stream_definitions --key-separator = -b {}", host.address));
    let (code, _, error) = binary::run_with_input(&mut produce, records.as_bytes());
    assert_eq!(code, Some(0), "{error}");
    let deployed = |host: &Host| {
        let (_, answer) = host.ask("GET", "/api/v1/streams", "");
        answer["streams"]
            .as_array()
            .map_or(0, |streams| streams.iter().filter(|stream| stream["state"] == "deployed").count())
    };
    until("a thousand streams", || deployed(&host) == 1000);
    host.signal(Signal::KILL);
    let host = Host::start(dir.path());
    until("a thousand streams again", || deployed(&host) == 1000);
    assert_eq!(host.metrics()["thalweg_streams{state=\"deployed\"}"], "1000");
    host.done("DELETE", "/api/v1/streams/s999", json!({}));
    host.signal(Signal::TERM);
}

#[test]
fn top_and_metrics_show_the_stages() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    host.create("fast", "load-generator --messageCount=0 --messageSize=100 --rate=5000 | slow: rate-limit --rate=1000 --burst=10 | null");
    host.create("counted", "time --fixedDelay=0.005 | counter --name=all --by='sequence % 2'");
    let (code, out, error) = host.stream(&["top", "fast", "--json", "--updates", "2", "--interval", "0.5"]);
    assert_eq!(code, Some(0), "{error}");
    let last: Value = serde_json::from_str(out.lines().last().expect("two lines")).expect("JSON");
    let stage = |name: &str| {
        let stages = last["stages"].as_array().expect("a list");
        stages.iter().find(|stage| stage["stage"] == name).unwrap_or_else(|| panic!("{name}: {last}"))
    };
    assert!(
        stage("slow")["messages_per_s"].as_f64().is_some_and(|rate| rate > 100.0 && rate < 3000.0),
        "{last}"
    );
    assert!(stage("null")["latency_p99_us"].as_u64().is_some_and(|us| us > 0), "{last}");
    let (code, out, _) = host.stream(&["top", "--updates", "1", "--interval", "0.2"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("STREAM") && out.contains("rate-limit") || out.contains("slow"), "{out}");
    let page = || host.get("/metrics").body;
    let sample = |start: &str| {
        let page = page();
        let line = page.lines().find(|line| line.starts_with(start)).map(str::to_owned);
        line.and_then(|line| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok()))
            .unwrap_or(0.0)
    };
    until("the counter is told", || sample("thalweg_stream_counter_total{stream=\"counted\"") > 0.0);
    let (_, status, _) = host.stream(&["status", "counted"]);
    assert!(status.contains("Found       counter: count ") && status.contains(", 0: "), "{status}");
    let page = page();
    for part in [
        "thalweg_stream_counter_by_key_total{stream=\"counted\",part=\"counted\",instance=\"0\",place=\"1\",stage=\"counter\",\
         module=\"counter\",name=\"all\",key=\"1\"} ",
        "thalweg_stream_messages_out_total{stream=\"fast\",part=\"fast\",instance=\"0\",place=\"1\",stage=\"slow\",module=\"rate-limit\"} ",
        "thalweg_stream_latency_seconds_bucket{stream=\"fast\",part=\"fast\",instance=\"0\",place=\"2\",stage=\"null\",module=\"null\",le=\"+Inf\"} ",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        sample("kafka_controller_kafkacontroller_activebrokercount") > 0.0,
        "the broker's metrics are there too"
    );
}

#[test]
fn a_run_without_a_host_serves_its_figures() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut command = thalweg("stream run --name r --http");
    command.args([
        &address,
        "time --fixedDelay=0.01 | histogram --of='sequence' --name=numbers; tap:stream:r > null",
    ]);
    let mut running = binary::RunningProcess::start(&mut command);
    until("it listens", || TcpStream::connect(&address).is_ok());
    let mut top = thalweg("stream top --updates 1 --interval 0.5 --json --server");
    top.arg(format!("http://{address}"));
    let (code, out, error) = binary::run(&mut top);
    assert_eq!(code, Some(0), "{error}");
    let told: Value = serde_json::from_str(&out).expect("JSON");
    let stages: Vec<&str> =
        told["stages"].as_array().expect("a list").iter().filter_map(|s| s["stage"].as_str()).collect();
    assert_eq!(stages, ["time", "histogram", "tap", "null"]);
    until("the histogram is told", || {
        node::ask(&address, "GET", "/metrics", "", "")
            .body
            .contains("thalweg_stream_histogram{stream=\"r\",part=\"r\",instance=\"0\",place=\"1\"")
    });
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn a_controller_hosts_no_streams_and_a_host_that_is_not_there_is_named() {
    let (code, _, error) = binary::run(&mut thalweg(
        "serve --set process.roles=controller --set streams.enabled=true --set listeners=CONTROLLER://127.0.0.1:0",
    ));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("only brokers host streams"), "{error}");
    let (code, _, error) = binary::run(&mut thalweg("stream list --server http://127.0.0.1:1"));
    assert_eq!(code, Some(1));
    assert!(
        error.contains("Cannot reach http://127.0.0.1:1") && error.contains("streams.enabled=true"),
        "{error}"
    );
    let (code, _, error) = binary::run(&mut thalweg("stream list --server localhost:9090"));
    assert_eq!(
        (code, error.as_str()),
        (Some(2), "thalweg: --server localhost:9090: use http://HOST:PORT or https://HOST:PORT\n")
    );
}

#[test]
fn broken_requests_are_refused_in_json_without_harm() {
    let (dir, _) = dir_and("");
    let host = Host::start(dir.path());
    let expression = |text: String| {
        json!({ "name": "a", "definition": format!("time | filter --expression='{text}' | null") })
            .to_string()
    };
    let bodies = [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        r#"{"name": 1, "definition": "time | null"}"#.to_owned(),
        r#"{"name": "a\u0000", "definition": "time | null"}"#.to_owned(),
        r#"{"name": "a", "definition": "time | null", "deploy": "yes"}"#.to_owned(),
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        "x".repeat(5 << 20),
        json!({ "name": "a", "definition": "(".repeat(2_000_000) }).to_string(),
        expression("(".repeat(60_000)),
        expression("!".repeat(60_000)),
        expression("[".repeat(60_000)),
        expression("1+".repeat(30_000)),
        expression("a.b(".repeat(15_000)),
    ];
    for body in bodies {
        let (code, answer) = host.ask("POST", "/api/v1/streams", &body);
        let shown: String = body.chars().take(60).collect();
        assert_eq!(code, 400, "{shown}: {answer}");
        assert!(
            answer["error"]["message"].as_str().is_some_and(|told| !told.is_empty()),
            "{shown}: {answer}"
        );
    }
    let verb = |method: &str, path: &str, expected: u16| {
        let (code, answer) = host.ask(method, path, "");
        assert_eq!(code, expected, "{method} {path}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{method} {path}: {answer}");
    };
    verb("GET", "/api/v1/streams/%ff", 400);
    verb("GET", "/api/v1/streams/a", 404);
    verb("DELETE", "/api/v1/streams/a", 404);
    verb("POST", "/api/v1/streams/a/deploy", 404);
    verb("PUT", "/api/v1/streams/a", 405);
    verb("DELETE", "/api/v1/streams", 405);
    verb("GET", "/api/v1/streams/a/deploy", 405);
    assert_eq!(host.ask("GET", "/api/v1/streams", "").1["streams"], json!([]));
}

#[test]
fn verbs_at_the_same_moment_are_done_one_after_the_other() {
    let (dir, _) = dir_and("");
    let host = &Host::start(dir.path());
    let create = json!({ "name": "same", "definition": "time | null", "deploy": true }).to_string();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..8).map(|_| scope.spawn(|| host.ask("POST", "/api/v1/streams", &create).0)).collect();
        asked.into_iter().map(|asked| asked.join().expect("it is answered")).collect()
    });
    let count = |code: u16| codes.iter().filter(|found| **found == code).count();
    assert_eq!((count(201), count(409)), (1, 7), "{codes:?}");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let create = &create;
            scope.spawn(move || {
                for round in 0..12 {
                    let (code, answer) = match (thread + round) % 4 {
                        0 => host.ask("POST", "/api/v1/streams", create),
                        1 => host.ask("POST", "/api/v1/streams/same/deploy", ""),
                        2 => host.ask("POST", "/api/v1/streams/same/undeploy", ""),
                        _ => host.ask("DELETE", "/api/v1/streams/same", ""),
                    };
                    assert!(matches!(code, 200 | 201 | 404 | 409), "{code}: {answer}");
                }
            });
        }
    });
    let (code, _) = host.ask("DELETE", "/api/v1/streams/same", "");
    assert!(matches!(code, 200 | 404), "{code}");
    assert_eq!(host.create("same", "time | null")["state"], "deployed");
    assert_eq!(host.done("POST", "/api/v1/streams/same/undeploy", json!({}))["state"], "undeployed");
}

#[test]
fn definitions_survive_a_compaction_and_a_kill() {
    let (dir, _) = dir_and("");
    let compacts = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        "log.roll.ms=200",
        "log.cleaner.min.cleanable.ratio=0.01",
        "log.cleaner.backoff.ms=100",
    ];
    let host = Host::with(dir.path(), &compacts);
    let mut written = 0;
    for _ in 0..20 {
        for name in ["a", "b"] {
            host.create(name, "time --initialDelay=1h | null");
            host.done("POST", &format!("/api/v1/streams/{name}/undeploy"), json!({}));
            host.done("DELETE", &format!("/api/v1/streams/{name}"), json!({}));
            written += 3;
        }
    }
    // The next record begins a segment, also on a fast machine: only older segments are compacted.
    binary::pause(Duration::from_millis(300));
    // Created, and killed before the deployment.
    host.create("deployed", "time --initialDelay=1h | null");
    host.done(
        "POST",
        "/api/v1/streams",
        json!({ "name": "created", "definition": "time --initialDelay=1h | null" }),
    );
    until("a compaction", || {
        let read = "consume __stream_definitions --from-beginning --timeout-ms 1000 -b";
        let (_, records, _) = binary::run(&mut thalweg(&format!("{read} {}", host.address)));
        records.lines().count() < written
    });
    host.signal(Signal::KILL);
    let host = Host::with(dir.path(), &compacts);
    let (_, answer) = host.ask("GET", "/api/v1/streams", "");
    let names: Vec<&str> =
        answer["streams"].as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["created", "deployed"]);
    until("it runs again", || host.state("deployed") == "deployed");
    assert_eq!(host.state("created"), "undeployed");
    assert_eq!(host.done("POST", "/api/v1/streams/created/deploy", json!({}))["state"], "deployed");
}
