//! `cluster up` and `cluster status`, with real processes.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use thalweg_browse::{EndReason, Event, Masking, Order, Query, Search};
use thalweg_client::{Cluster, ConnectionOptions};

use crate::binary::{run, run_with_input, thalweg, until};
use crate::console::start;
use crate::node::ask;

/// A generous timeout for busy machines.
const PATIENCE: Duration = Duration::from_secs(90);

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("not zero");
    kill_process(pid, signal).expect("it is ours");
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A row of the table that `cluster up` prints.
#[derive(Debug)]
pub struct Node {
    name: String,
    pub clients: String,
    controller: String,
    pub pid: u32,
}

/// A running cluster, which ends with the test: its processes have a guard.
pub struct ClusterProcess {
    process: Child,
    out: BufReader<ChildStdout>,
    nodes: Vec<Node>,
    /// The address of the console.
    console: String,
}

impl ClusterProcess {
    /// Starts it; retries if another program takes a port first.
    pub fn start(dir: &Path, line: &str) -> ClusterProcess {
        let is_new = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        for _ in 0..4 {
            match ClusterProcess::start_once(dir, line) {
                Err(why) if is_new && why.contains("Address already in use") => {
                    // The chosen ports are stored with the cluster.
                    std::fs::remove_dir_all(dir)
                        .and_then(|()| std::fs::create_dir(dir))
                        .expect("ours to empty");
                }
                started => return started.unwrap_or_else(|why| panic!("it did not start: {why}")),
            }
        }
        panic!("ports were taken again and again");
    }

    fn start_once(dir: &Path, line: &str) -> Result<ClusterProcess, String> {
        let mut command = thalweg(&format!("cluster up --port 0 {line} --dir"));
        command.arg(dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let mut out = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let (mut table, mut line) = (Vec::new(), String::new());
        while !line.starts_with("Ctrl-C") {
            line.clear();
            if out.read_line(&mut line).expect("text") == 0 {
                let mut why = String::new();
                let _ = process.stderr.take().expect("it is a pipe").read_to_string(&mut why);
                process.wait().expect("it has ended, or is about to");
                return Err(why);
            }
            table.push(line.trim_end().to_owned());
        }
        let rows = table.iter().skip(1).take_while(|row| !row.is_empty());
        let nodes = rows.map(|row| {
            let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            assert_eq!(cells.len(), 6, "{row}");
            let pid = cells[4].parse().expect("a process id");
            let [name, _, clients, controller] = [0, 1, 2, 3].map(|cell| cells[cell].to_owned());
            Node { name, clients, controller, pid }
        });
        let console =
            table.iter().find_map(|line| line.strip_prefix("The console is at http")).expect("it has one");
        let console = console.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(ClusterProcess { nodes: nodes.collect(), console, process, out })
    }

    pub fn brokers(&self) -> Vec<&Node> {
        self.nodes.iter().filter(|node| node.clients != "-").collect()
    }

    /// Runs a command against the first broker; returns its output.
    pub fn run(&self, line: &str) -> String {
        let mut command = thalweg(line);
        command.env("THALWEG_BOOTSTRAP_SERVER", &self.brokers()[0].clients);
        let (code, out, error) = run(&mut command);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
        out
    }

    fn status(&self) -> Value {
        self.judged(0).1
    }

    /// The exit code and the status, with the broker at this index as bootstrap server.
    fn judged(&self, broker: usize) -> (Option<i32>, Value) {
        let mut command = thalweg("cluster status --json");
        command.env("THALWEG_BOOTSTRAP_SERVER", &self.brokers()[broker].clients);
        let (code, out, error) = run(&mut command);
        let status = serde_json::from_str(&out).unwrap_or_else(|wrong| panic!("{wrong}: {out} {error}"));
        (code, status)
    }

    /// Waits until the status meets a condition.
    pub fn status_where(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let started = now();
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "{what} does not come to be: {status:#}");
            pause();
        }
    }

    /// Ctrl-C: all nodes stop, and the output reports it.
    fn stop(mut self) {
        signal(self.process.id(), Signal::INT);
        let mut said = String::new();
        self.out.read_to_string(&mut said).expect("text");
        let status = self.process.wait().expect("ours to wait for");
        assert!(status.success() && said.contains("Stopped cleanly"), "{status}: {said}");
        assert!(self.nodes.iter().all(|node| !is_alive(node.pid)), "{:?}", self.nodes);
    }
}

impl Drop for ClusterProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "processes are waited for in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "processes are waited for in real time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

pub fn is_whole(status: &Value) -> bool {
    let brokers = status["brokers"].as_array().expect("a list");
    brokers.iter().all(|broker| broker["fenced"] == false) && status["offline"] == Value::Array(Vec::new())
}

#[test]
fn three_brokers_start_keep_their_data_and_end_at_ctrl_c() {
    let dir = tempfile::tempdir().expect("a directory");
    let up = ClusterProcess::start(dir.path(), "--brokers 3 --racks a,b");
    let names: Vec<&str> = up.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["broker-1", "broker-2", "broker-3"]);
    up.run("topic create orders --partitions 6");
    let status = up.status_where("a leader of each partition", is_whole);
    let racks: Vec<&str> =
        status["brokers"].as_array().expect("a list").iter().filter_map(|b| b["rack"].as_str()).collect();
    assert_eq!(racks, ["a", "b", "a"]);
    assert_eq!((&status["topics"], &status["partitions"]), (&Value::from(1), &Value::from(6)));
    let replicas = status["brokers"].as_array().expect("a list").iter().map(|b| b["replicas"].as_u64());
    assert_eq!(replicas.flatten().sum::<u64>(), 18, "three replicas of each, unasked");
    let quorum = &status["quorum"];
    assert_eq!(quorum["leader"], 1);
    assert_eq!(quorum["nodes"].as_array().map(Vec::len), Some(3), "{quorum}");
    let overview = ask(&up.console, "GET", "/", "", "");
    assert_eq!(overview.status, 200, "{}", overview.body);
    let text = up.run("cluster status");
    assert!(text.contains("Controller quorum: node 1 leads in epoch 1"), "{text}");
    up.stop();

    let up = ClusterProcess::start(dir.path(), "--brokers 3");
    up.status_where("a leader of each partition", is_whole);
    assert_eq!(up.run("topic list -q"), "orders\n");
    up.stop();
}

#[test]
fn a_killed_broker_is_reported_and_its_partitions_get_other_leaders() {
    let dir = tempfile::tempdir().expect("a directory");
    let soon = "--set broker.session.timeout.ms=3000 --set broker.heartbeat.interval.ms=200";
    let up = ClusterProcess::start(dir.path(), &format!("--brokers 2 {soon}"));
    up.run("topic create orders --replica-assignment 2:1");
    up.status_where("a leader of each partition", is_whole);
    assert_eq!(up.judged(0).0, Some(0));
    signal(up.nodes[1].pid, Signal::KILL);
    let status = up.status_where("another leader", |status| status["brokers"][0]["leaders"] == 1);
    let dead = &status["brokers"][1];
    assert_eq!((&dead["fenced"], &dead["reached"]), (&true.into(), &false.into()));
    assert_eq!(up.judged(0).0, Some(3), "served, with a replica less");
    let lacking = &status["under_replicated"];
    assert_eq!((&lacking[0]["topic"], &lacking[0]["leader"]), (&Value::from("orders"), &Value::from(1)));
    assert_eq!(status["under_min_isr"], Value::Array(Vec::new()), "one of two is enough here");
    up.stop();
}

#[test]
fn a_partition_without_a_leader_does_not_hide_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let soon = "--set broker.session.timeout.ms=3000 --set broker.heartbeat.interval.ms=200";
    let up = ClusterProcess::start(dir.path(), &format!("--brokers 2 {soon}"));
    up.run("topic create orders --replica-assignment 2,1");
    up.status_where("a leader of each partition", is_whole);
    let with = |line: &str| {
        let mut command = thalweg(line);
        command.env("THALWEG_BOOTSTRAP_SERVER", &up.brokers()[0].clients);
        command
    };
    for partition in 0..2 {
        let line = format!("produce orders --partition {partition}");
        let (code, _, error) = run_with_input(&mut with(&line), b"a\nb\n");
        assert_eq!(code, Some(0), "{error}");
    }
    // The topic of groups gets its replicas while both brokers run.
    let (code, _, error) = run(&mut with("consume orders --group before --until-end"));
    assert_eq!(code, Some(0), "{error}");
    signal(up.nodes[1].pid, Signal::KILL);
    up.status_where("no leader of partition 0", |status| status["brokers"][1]["fenced"] == true);

    let all = "consume orders --from-beginning --until-end --json";
    let (code, out, error) = run(&mut with(all));
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("orders-0 (it has no leader)"), "{error}");
    assert_eq!((&lines[0]["value"], &lines[1]["value"]), (&"a".into(), &"b".into()), "{out}");
    let expected = serde_json::json!({"topic": "orders", "partition": 0, "error": "it has no leader"});
    assert_eq!(lines[2..], [expected], "{out}");
    let (code, out, error) = run(&mut with("consume orders --from-beginning --timeout-ms 2000"));
    assert_eq!((code, out.as_str()), (Some(1), "a\nb\n"), "{error}");
    let (code, out, error) = run(&mut with("consume orders --from-beginning --max-messages 2"));
    assert_eq!((code, out.as_str()), (Some(0), "a\nb\n"), "{error}");
    assert!(error.starts_with("thalweg: Partition orders-0 cannot be read: it has no leader"), "{error}");
    for protocol in ["classic", "consumer"] {
        let member =
            format!("consume orders --group {protocol} --group-protocol {protocol} --from-beginning");
        let (code, out, error) = run(&mut with(&format!("{member} --max-messages 1")));
        assert_eq!((code, out.as_str()), (Some(0), "a\n"), "{error}");
        assert!(error.contains("Partition orders-0 cannot be read: it has no leader"), "{error}");
        let (code, out, error) = run(&mut with(&format!("{member} --until-end")));
        assert_eq!((code, out.as_str()), (Some(1), "b\n"), "{error}");
        assert!(error.contains("orders-0 (it has no leader)"), "{error}");
    }

    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let bootstrap = [up.brokers()[0].clients.clone()];
        let cluster = Cluster::connect(&bootstrap, &ConnectionOptions::default()).await.expect("it runs");
        for order in [Order::NewestFirst, Order::OldestFirst, Order::Unordered] {
            let query = Query { order, ..Query::new("orders") };
            let mut search =
                Search::start(cluster.clone(), query, &Masking::default(), None).expect("a query");
            let (mut found, began) = (Vec::new(), now());
            let ended = loop {
                match search.next().await.expect("the last event is the end") {
                    Event::Matches(matches) => found.extend(matches),
                    Event::Ended(ended) => break ended,
                    Event::Progress(_) | Event::Waiting(_) => {}
                }
            };
            assert!(began.elapsed() < Duration::from_secs(5), "{order:?}: {:?}", began.elapsed());
            assert!(matches!(ended.why, EndReason::Complete), "{order:?}: {:?}", ended.why);
            assert_eq!(found.len(), 2, "{order:?}");
            let [unreadable] = &ended.progress.unreadable[..] else { panic!("{:?}", ended.progress) };
            assert_eq!((unreadable.partition, unreadable.reason.as_str()), (0, "it has no leader"));
        }
    });
    up.stop();
}

fn named(status: &Value, key: &str) -> Vec<i64> {
    let partitions = status[key].as_array().expect("a list").iter();
    partitions.map(|partition| partition["partition"].as_i64().expect("a number")).collect()
}

#[test]
fn dead_brokers_are_seen_at_once_and_the_exit_code_is_the_health() {
    let dir = tempfile::tempdir().expect("a directory");
    // The controller must not expire a session during this test.
    let up = ClusterProcess::start(dir.path(), "--brokers 3 --set broker.session.timeout.ms=600000");
    up.run("topic create orders --replica-assignment 1:2,2:3,3:1");
    up.status_where("a leader of each partition", is_whole);
    let describe = |broker: usize| {
        let mut command = thalweg("topic describe orders");
        run(command.env("THALWEG_BOOTSTRAP_SERVER", &up.brokers()[broker].clients))
    };
    assert_eq!(describe(0).2, "");

    signal(up.nodes[2].pid, Signal::KILL);
    let (code, status) = up.judged(0);
    assert_eq!((code, &status["health"]), (Some(4), &"unavailable".into()), "{status:#}");
    assert_eq!((named(&status, "offline"), named(&status, "under_replicated")), (vec![2], vec![1, 2]));
    let dead = &status["brokers"][2];
    assert_eq!((&dead["state"], &dead["fenced"]), (&"not reached".into(), &false.into()));
    assert!(dead["error"].as_str().is_some_and(|why| why.contains(&up.nodes[2].clients)), "{dead}");
    let (code, out, error) = describe(0);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("Leader: 3") && error.contains("Broker 3 does not answer: "), "{out} {error}");

    let mut listing = thalweg("group list");
    let (code, _, error) = run(listing.env("THALWEG_BOOTSTRAP_SERVER", &up.brokers()[0].clients));
    let missing = "thalweg: The groups of these brokers are missing: 3 (Cannot connect to ";
    assert!(code == Some(1) && error.starts_with(missing), "{code:?} {error}");
    // A document says so too: the groups and transactional ids of the broker are missing in it.
    for (line, name) in [
        ("group list --json", "group"),
        ("group describe --all --json", "group"),
        ("transaction list --json", "transactional_id"),
    ] {
        let mut command = thalweg(line);
        let (code, out, error) = run(command.env("THALWEG_BOOTSTRAP_SERVER", &up.brokers()[0].clients));
        let rows: Value = serde_json::from_str(&out).unwrap_or_else(|wrong| panic!("{wrong}: {out} {error}"));
        let gap = rows.as_array().and_then(|rows| rows.last()).unwrap_or_else(|| panic!("{line}: {error}"));
        assert!(code != Some(0) && gap[name].is_null(), "{line}: {gap}");
        assert!(
            gap["problem"]
                .as_str()
                .is_some_and(|why| why.contains("3 (Cannot connect to ") || why.contains("Broker 3")),
            "{gap}"
        );
    }

    // The controller is in the first broker: the second's view does not change.
    signal(up.nodes[0].pid, Signal::KILL);
    let (code, status) = up.judged(1);
    assert_eq!((code, named(&status, "offline")), (Some(4), vec![0, 2]), "{status:#}");
    assert!(status["quorum"]["error"].is_string(), "{status:#}");
    let of_quorum = |list: &Value, fault: &str| -> Vec<(String, String)> {
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let found =
            list.as_array().expect("verdicts").iter().map(|one| (text(one, fault), text(one, "text")));
        found
            .filter(|(fault, _)| ["controller-missing", "quorum-unknown"].contains(&fault.as_str()))
            .collect()
    };
    let mut command =
        thalweg(&format!("console --bootstrap-server {} --listen 127.0.0.1:0", up.brokers()[1].clients));
    let (mut console, mut lines) = start(&mut command);
    let line = lines.find(|line| line.contains("console is at")).expect("it listens");
    let (_, address) = line.split_once("http://").expect("an address");
    let overview: Value =
        serde_json::from_str(&ask(address, "GET", "/api/v1/cluster", "", "").body).expect("JSON");
    let ours = of_quorum(&status["problems"], "fault");
    assert_eq!(of_quorum(&overview["alerts"], "fault"), ours, "{overview:#}");
    assert_eq!(ours.len(), 1, "{status:#}");
    console.interrupt();
    assert_eq!(console.exit_code(), Some(0));
    let mut text = thalweg("cluster status");
    let (code, out, error) = run(text.env("THALWEG_BOOTSTRAP_SERVER", &up.brokers()[1].clients));
    assert_eq!(code, Some(4), "{error}");
    assert!(error.contains("thalweg: The cluster is unavailable: 2 of 3 partitions"), "{error}");
    assert!(out.contains("Not reached:\n  broker 1: Cannot connect to "), "{out}");

    signal(up.nodes[1].pid, Signal::KILL);
    let (code, status) = up.judged(1);
    assert_eq!((code, &status["health"]), (Some(5), &"unreachable".into()), "{status:#}");
}

#[test]
fn partitions_move_and_a_broker_leaves() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cluster = ClusterProcess::start(dir.path(), "--brokers 3");
    let address = cluster.brokers()[0].clients.clone();
    let ended = |line: &str| run(thalweg(line).env("THALWEG_BOOTSTRAP_SERVER", &address));
    let says = |line: &str| {
        let (code, out, error) = ended(line);
        assert_eq!(code, Some(0), "{line}: {error}");
        (out, error)
    };
    let document = |line: &str| -> Value { serde_json::from_str(&says(line).0).expect("JSON") };
    let registered = || -> Vec<i64> {
        let brokers = document("broker list --json");
        brokers.as_array().expect("a list").iter().filter_map(|broker| broker["id"].as_i64()).collect()
    };
    let ids = registered();
    let [a, b, c] = ids[..] else { panic!("three brokers: {ids:?}") };
    says(&format!("topic create orders --replica-assignment {a}:{b},{b}:{a},{a}:{b}"));
    let perf = "producer-perf-test --topic orders --num-records 20000 --record-size 1000 --throughput -1";
    says(&format!("{perf} --bootstrap-server {address}"));
    let replicas = || {
        let topics = document("topic describe orders --json");
        let partitions = topics[0]["partitions"].as_array().expect("partitions").clone();
        let ids = |partition: &Value| -> Vec<i64> {
            partition["replicas"].as_array().expect("ids").iter().filter_map(Value::as_i64).collect()
        };
        partitions.iter().map(ids).collect::<Vec<_>>()
    };
    // A plan changes nothing.
    let to = format!("topic move orders --to-brokers {a},{b},{c}");
    let plan = document(&format!("{to} --json"));
    assert_eq!(plan.as_array().map(Vec::len), Some(2), "the third broker gets its share: {plan}");
    assert_eq!(replicas(), [[a, b], [b, a], [a, b]]);
    let (_, error) = says(&format!("{to} --execute --throttle 50000000 --wait"));
    assert!(error.ends_with("The moves are done.\n"), "{error}");
    let moved = replicas();
    assert_eq!(moved.iter().flatten().filter(|id| **id == c).count(), 2, "{moved:?}");
    let settings = says("topic describe orders").0;
    assert!(!settings.contains("throttled"), "the throttle is gone: {settings}");
    // A cancelled move leaves the partition where it was.
    let (code, _, error) = ended(&format!("topic move orders:0 --replicas {a},77 --execute"));
    assert_eq!(code, Some(7), "{error}");
    // A broker leaves. Internal topics have replicas on it, too.
    let leaves = format!("broker decommission {c} --execute --wait");
    says(&leaves);
    assert!(replicas().iter().flatten().all(|id| *id != c), "{:?}", replicas());
    let (code, _, error) = ended(&format!("broker unregister {c}"));
    assert_eq!(code, Some(1));
    assert!(error.contains("runs: stop it first"), "{error}");
    says("topic elect orders:0 orders:1 --json");
    let pid = cluster.nodes.iter().find(|node| node.name.ends_with(&c.to_string())).map(|node| node.pid);
    let pid = pid.unwrap_or_else(|| panic!("broker {c}: {:?}", cluster.nodes));
    signal(pid, Signal::TERM);
    let deadline = now() + PATIENCE;
    while ended(&format!("broker unregister {c}")).0 != Some(0) {
        assert!(now() < deadline, "its registration stays");
        pause();
    }
    assert_eq!(registered(), [a, b]);
}

#[test]
fn nodes_do_not_outlive_a_cluster_that_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut up = ClusterProcess::start(dir.path(), "--brokers 2");
    signal(up.process.id(), Signal::KILL);
    up.process.wait().expect("ours to wait for");
    let started = now();
    while up.nodes.iter().any(|node| is_alive(node.pid)) {
        assert!(started.elapsed() < PATIENCE, "{:?}", up.nodes);
        pause();
    }
}

#[test]
fn a_port_that_is_taken_is_named_before_anything_starts() {
    let taken = (40_000..65_000).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let port = taken.as_ref().expect("a port").local_addr().expect("bound").port();
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = thalweg(&format!("cluster up --brokers 1 --port {port} --dir"));
    let (code, _, error) = run(command.arg(dir.path()));
    assert!(code == Some(1) && error.contains(&format!("Port {port} of 127.0.0.1")), "{code:?} {error}");
}

#[test]
fn a_port_conflict_names_the_other_cluster_and_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let up = ClusterProcess::start(&dir.path().join("first"), "--brokers 1");
    let node = &up.nodes[0];
    let id = up.status()["cluster_id"].as_str().expect("an id").to_owned();
    for (address, expected) in [
        (
            &node.controller,
            "by a controller of another cluster, or of this one. Use another first port".to_owned(),
        ),
        (&node.clients, format!("by a broker of the cluster {id}. Use another first port")),
    ] {
        let (_, port) = address.rsplit_once(':').expect("a port");
        let second = dir.path().join("second");
        let mut command = thalweg(&format!("cluster up --brokers 1 --port {port} --dir"));
        let (code, _, error) = run(command.arg(&second));
        let named = format!("Port {port} of 127.0.0.1, which broker-1 needs, is not available: ");
        assert!(code == Some(1) && error.contains(&named) && error.contains(&expected), "{code:?} {error}");
        assert!(!second.exists(), "nothing is written");
    }
    up.stop();
}

#[test]
fn per_node_properties_cannot_be_set_for_all() {
    for setting in ["node.id=7", "listeners=PLAINTEXT://:9092", "log.dirs=/tmp"] {
        let (code, _, error) = run(&mut thalweg(&format!("cluster up --set {setting}")));
        assert!(code == Some(2) && error.contains("remove it"), "{code:?} {error}");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn brokers_join_controllers_of_apache_kafka_and_outlive_one_of_them() {
    if std::env::var_os("KAFKA_CLASSPATH").is_none() {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let up = ClusterProcess::start(dir.path(), "--brokers 2 --controllers apache");
    let names: Vec<&str> = up.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "controller-101 (Apache Kafka)",
            "controller-102 (Apache Kafka)",
            "controller-103 (Apache Kafka)",
            "broker-1",
            "broker-2"
        ]
    );
    up.run("topic create orders --partitions 4");
    let status = up.status_where("a leader of each partition", is_whole);
    let replicas = status["brokers"].as_array().expect("a list").iter().map(|b| b["replicas"].as_u64());
    assert_eq!(replicas.flatten().sum::<u64>(), 8, "two replicas of each, unasked");
    let mut command = thalweg("topic list");
    let (code, _, error) = run(command.env("THALWEG_BOOTSTRAP_SERVER", &up.nodes[0].controller));
    assert!(code == Some(1) && error.contains("is the port of a controller"), "{code:?} {error}");
    let leader = status["quorum"]["leader"].as_u64().expect("there is one");
    let active = &up.nodes[usize::try_from(leader - 101).expect("a controller")];
    signal(active.pid, Signal::KILL);
    up.status_where("another controller", |status| {
        status["quorum"]["leader"].as_u64().is_some_and(|id| id != leader) && is_whole(status)
    });
    up.run("topic create more --partitions 2");
    up.stop();
}

#[test]
fn a_stopped_broker_gets_no_moves_and_fails_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let up = ClusterProcess::start(dir.path(), "--brokers 3");
    up.run("topic create moved --replica-assignment 1:2");
    let ask = |line: &str| {
        let mut command = thalweg(line);
        run(command.env("THALWEG_BOOTSTRAP_SERVER", &up.brokers()[0].clients))
    };
    signal(up.brokers()[2].pid, Signal::KILL);
    let is_fenced = || ask("topic move moved --to-brokers 3").2.contains("Broker 3 is not running");
    until("the broker is fenced", is_fenced);
    let (code, _, error) = ask("topic move moved --replicas 3,1 --execute");
    assert!(code == Some(1) && error.contains("moved-0: broker 3 is not running"), "{code:?} {error}");
    let (code, _, error) = ask("topic move moved --replicas 2,1 --throttle 5000000 --execute --wait");
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("Broker 3 does not run, and keeps its throttle if it has one"), "{error}");

    up.run("config set broker:1 leader.replication.throttled.rate=500");
    let (_, _, error) = ask("topic moves");
    assert!(error.contains("500 on broker 1") && error.contains("--end-throttle"), "{error}");
    assert_eq!(ask("topic moves --end-throttle").0, Some(0));
    assert_eq!(ask("topic moves").2, "");
    up.stop();
}

#[test]
fn a_secured_cluster_stays_secured() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = dir.path().join("security/client.properties");
    let ask = |line: &str| {
        let mut command = thalweg(line);
        let (code, out, error) = run(command.arg("--command-config").arg(&settings));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
        out
    };
    let up = ClusterProcess::start(dir.path(), "--brokers 2 --secure");
    // The addresses are in the file.
    ask("topic create orders --replication-factor 2");
    let (code, _, error) = run(thalweg("topic list --bootstrap-server").arg(&up.brokers()[0].clients));
    assert_eq!(code, Some(5));
    assert!(error.contains("TLS listener"), "{error}");
    a_throttle_ends_where_no_move_begins(&settings);
    up.stop();
    let up = ClusterProcess::start(dir.path(), "--brokers 2");
    assert_eq!(ask("topic list -q"), "moved\norders\n");
    assert!(ask("cluster status").contains("Health: healthy"));
    up.stop();
}

/// By a user who may throttle moves, and may not begin any.
fn a_throttle_ends_where_no_move_begins(admin: &Path) {
    let ask = |settings: &Path, line: &str| run(thalweg(line).arg("--command-config").arg(settings));
    let succeeds = |line: &str| {
        let (code, out, error) = ask(admin, line);
        assert_eq!(code, Some(0), "{line}: {error}");
        out
    };
    let password = succeeds("security user add ann");
    succeeds("security acl add User:ann --cluster --allow describe,alter-configs,describe-configs");
    succeeds("security acl add User:ann --topic moved --allow describe,alter-configs,describe-configs");
    let brokers: Value = serde_json::from_str(&succeeds("broker list --json")).expect("JSON");
    let [from, to] = [0, 1].map(|at| brokers[at]["id"].as_i64().expect("an id"));
    succeeds(&format!("topic create moved --replica-assignment {from}"));

    let settings = std::fs::read_to_string(admin).expect("they were written");
    let others = settings.lines().filter(|line| !line.starts_with("sasl.jaas.config"));
    let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
    let login =
        format!("sasl.jaas.config={module} required username=\"ann\" password=\"{}\";", password.trim());
    let ann = admin.with_file_name("ann.properties");
    std::fs::write(&ann, others.chain([&*login]).collect::<Vec<_>>().join("\n")).expect("written");
    let (code, _, error) =
        ask(&ann, &format!("topic move moved --replicas {to} --execute --throttle 1000 --wait"));
    assert_eq!(code, Some(6), "{error}");
    assert!(error.starts_with("Nothing moves: the throttle is removed.\n"), "{error}");
    for line in ["topic describe moved".to_owned(), format!("broker config describe {from} {to}")] {
        let settings = succeeds(&line);
        assert!(!settings.contains("throttled"), "{line}: {settings}");
    }
}
