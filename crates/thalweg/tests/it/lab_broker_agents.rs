//! `thalweg lab run --broker-agents`: the machines of a running cluster's brokers are watched by agents,
//! which are processes of this machine here.
#![allow(
    clippy::disallowed_methods,
    reason = "processes run in the world's time, and their tests wait in it"
)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use thalweg_lab::result::{PointResult, Repetition, State};

use crate::lab::{LabDirectory, alone, assert_ends_with, end, place, ran, text, workload};
use crate::lab_agents::{Agent, children};
use crate::lab_limits::Spinning;
use crate::node::Node;

/// Maximum time for a run to start its workers.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker that the lab has not started, and a directory of the lab.
struct Foreign {
    node: Node,
    data: tempfile::TempDir,
    lab: LabDirectory,
}

impl Foreign {
    fn start(seconds: f64) -> Foreign {
        let data = tempfile::tempdir().expect("a directory");
        let node = Node::start(data.path(), &[]);
        let lab = LabDirectory::with(&workload(seconds, "").replace("repetitions = 2", "repetitions = 1"));
        Foreign { node, data, lab }
    }

    /// A run on the broker, watched by these agents.
    fn command(&self, agents: &str, more: &[&str]) -> Command {
        let mut command = self.lab.run(&["--bootstrap", &self.node.address, "--broker-agents", agents]);
        command.arg("--agents-insecure").args(more);
        command
    }

    fn run(&self, agents: &str, more: &[&str]) -> Output {
        let output = ran(self.command(agents, more));
        assert_ends_with(&output, 0);
        output
    }

    fn point(&self) -> (PointResult, Repetition) {
        let point = self.lab.point();
        assert_eq!((point.failure.as_ref(), point.repetitions.len()), (None, 1));
        let repetition = point.repetitions[0].clone();
        (point, repetition)
    }

    fn data_dir(&self) -> String {
        self.data.path().canonicalize().expect("it exists").display().to_string()
    }
}

#[test]
fn the_machine_of_a_watched_broker_is_in_the_result_and_on_the_page() {
    let _place = place();
    let foreign = Foreign::start(1.0);
    let dir = foreign.data_dir();
    let agent = Agent::start(&foreign.lab, &["--insecure", "--data-dir", &dir]);
    let output = foreign.run(&agent.address, &[]);
    assert!(text(&output.stderr).contains(&format!("Broker agent {}", agent.address)));
    let result = foreign.lab.result();
    assert_eq!((&result.state, result.agents.len(), result.broker_machines.len()), (&State::Complete, 0, 1));
    let machine = &result.broker_machines[0];
    assert!(
        machine.machine.cpus > 0 && machine.path.is_some() && machine.address == agent.address,
        "{machine:?}"
    );
    assert_eq!(machine.data[0].directory, dir);

    let (_, repetition) = foreign.point();
    let [used] = &repetition.broker_machines[..] else { panic!("{:?}", repetition.broker_machines) };
    assert!(used.is_on_lab_machine && used.lost.is_none() && used.cpus > 0, "{used:?}");
    assert!(used.host.interfaces.iter().any(|link| link.name == "lo" && link.sent_bytes > 0), "{used:?}");
    assert!(used.host.cpu_busy > 0.0 && used.host.storage[0].directory == dir, "{used:?}");
    let [broker] = &used.brokers[..] else { panic!("{used:?}") };
    let pid = foreign.node.pid().as_raw_nonzero().get().unsigned_abs();
    assert_eq!((broker.pid, broker.process_unknown.as_ref()), (Some(pid), None), "{broker:?}");
    assert_eq!(broker.program.as_deref(), Some("thalweg"));
    let name = format!("{} on {}", broker.name, agent.address);
    let process = repetition.processes.iter().find(|used| used.name == name).expect("it was sampled");
    assert!(process.user_s + process.system_s > 0.0 && process.memory_bytes_max > 1 << 20, "{process:?}");
    assert_eq!((process.agent.as_ref(), process.pid), (Some(&agent.address), pid));
    let figures = &repetition.figures;
    assert!(figures.broker_cpu_us_per_record.is_some_and(|us| us > 0.0), "{figures:?}");
    assert!(figures.records_per_batch.is_some_and(|records| records >= 1.0), "{figures:?}");
    assert_eq!(figures.broker_memory_bytes_max, Some(process.memory_bytes_max));
    assert_eq!(repetition.unwatched_brokers, [""; 0]);
    assert_eq!(repetition.evidence.faults, [""; 0]);
    for replica in repetition.evidence.partitions.iter().flat_map(|partition| &partition.replicas) {
        assert_eq!(replica.file_bytes, Some(replica.bytes), "the files have what the broker reports");
    }

    let page = std::fs::read_to_string(foreign.lab.out().join("report.html")).expect("a report");
    for shown in
        ["Brokers' machines", &agent.address, "data directory", &dir, "most traffic of lo", &broker.name]
    {
        assert!(page.contains(shown), "{shown}");
    }

    std::fs::remove_dir_all(foreign.lab.out()).expect("removed");
    let clients = ran(foreign.command(&agent.address, &["--agents", &agent.address]));
    assert!(!clients.status.success(), "an agent with a data directory runs no clients");
    assert!(text(&clients.stderr).contains("refused: it only watches brokers"), "{}", text(&clients.stderr));
    drop(agent);
    foreign.lab.assert_nothing_is_left();
}

#[test]
fn a_busy_machine_is_named_and_a_machine_without_a_broker_is_no_limit() {
    let _alone = alone();
    let foreign = Foreign::start(2.0);
    let measure = |more: &[&str]| {
        let agent = Agent::start(&foreign.lab, &[&["--insecure"], more].concat());
        foreign.run(&agent.address, &[]);
        let (point, repetition) = foreign.point();
        let machine = repetition.broker_machines[0].clone();
        assert!(machine.lost.is_none(), "{machine:?}");
        let busy = machine.host.cpu_busy + machine.host.cpu_steal;
        let named = format!("processors of the broker's machine {} were busy", agent.address);
        let is_named = point.verdict.reasons.iter().any(|reason| reason.contains(&named));
        let _ = std::fs::remove_dir_all(foreign.lab.out());
        (busy, is_named, point.verdict, repetition)
    };
    let spinning = Spinning::start();
    let (busy, is_named, verdict, _) = measure(&[]);
    assert!(busy > 0.92 && is_named && verdict.limit == "machine CPU", "{busy} {verdict:?}");
    // The broker advertises the loopback address of this machine, which is not that of another one.
    let (busy, is_named, verdict, repetition) = measure(&["--boot-id", "another-machine"]);
    drop(spinning);
    assert!(busy > 0.92 && !is_named, "{busy} {verdict:?}");
    let machine = &repetition.broker_machines[0];
    assert!(!machine.is_on_lab_machine && machine.brokers.is_empty(), "{machine:?}");
    assert!(repetition.notes.iter().any(|note| note.contains("No broker advertises an address")));
    assert_eq!(repetition.figures.broker_cpu_us_per_record, None);
    assert_eq!(repetition.unwatched_brokers.len(), 1, "{:?}", repetition.unwatched_brokers);
    // Others may use this machine, too.
    let (busy, is_named, verdict, _) = measure(&[]);
    assert_eq!(is_named, busy >= 0.92, "{busy} {verdict:?}");
}

#[test]
fn a_lost_agent_of_a_broker_leaves_the_rates_and_an_objection() {
    let _place = place();
    let foreign = Foreign::start(8.0);
    let mut agent = Agent::insecure(&foreign.lab);
    let run = foreign.command(&agent.address, &[]).spawn().expect("the binary starts");
    let began = Instant::now();
    // The warm-up has a worker, too, and then the measurement.
    while children(run.id()) < 1 || !text_of_topics(&foreign).contains("thalweg-lab-") {
        assert!(began.elapsed() < PATIENCE, "no worker was started");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(6));
    agent.kill();
    assert_ends_with(&end(run), 0);
    let (point, repetition) = foreign.point();
    let machine = &repetition.broker_machines[0];
    assert!(machine.lost.is_some() && machine.host.is_unknown(), "{machine:?}");
    let objection = format!("the broker's machine {} was not watched to the end", agent.address);
    assert!(point.verdict.no_headline.iter().any(|why| why.contains(&objection)), "{:?}", point.verdict);
    let figures = &repetition.figures;
    assert_eq!((figures.broker_cpu_us_per_record, figures.broker_memory_bytes_max), (None, None));
    assert!(figures.produced_records_per_s.is_some_and(|rate| rate > 0.0), "{figures:?}");
    assert!(repetition.processes.iter().all(|used| !used.name.starts_with("broker")), "{repetition:?}");
    foreign.lab.assert_nothing_is_left();
}

fn text_of_topics(foreign: &Foreign) -> String {
    foreign.node.tool("topic list -q", "")
}

#[test]
fn an_agent_may_run_clients_and_watch_a_broker() {
    let _place = place();
    let foreign = Foreign::start(1.0);
    let agent = Agent::insecure(&foreign.lab);
    foreign.run(&agent.address, &["--agents", &agent.address]);
    let result = foreign.lab.result();
    assert_eq!((result.agents.len(), result.broker_machines.len()), (1, 1));
    let (_, repetition) = foreign.point();
    assert_eq!((repetition.agents.len(), repetition.broker_machines.len()), (1, 1));
    let of = |prefix: &str| repetition.processes.iter().filter(|used| used.name.starts_with(prefix)).count();
    assert_eq!((of("broker"), of("producer")), (1, 1), "{:?}", repetition.processes);
    assert!(repetition.figures.broker_cpu_us_per_record.is_some_and(|us| us > 0.0));
    let page = std::fs::read_to_string(foreign.lab.out().join("report.html")).expect("a report");
    assert!(page.contains("Brokers' machines") && page.contains("Client machines"));
    drop(agent);
    foreign.lab.assert_nothing_is_left();
}

#[test]
fn agents_of_brokers_that_cannot_be_used_are_refused_before_anything_begins() {
    let lab = LabDirectory::with(&workload(1.0, ""));
    let refused = |arguments: &[&str], code: i32, said: &str| {
        let output = ran(lab.run(arguments));
        assert_ends_with(&output, code);
        assert!(text(&output.stderr).contains(said), "{said}: {}", text(&output.stderr));
        assert!(!lab.out().exists(), "nothing was begun");
    };
    let agent = "127.0.0.1:1";
    refused(&["--broker-agents", agent], 2, "for the brokers of a running cluster, --bootstrap");
    refused(&["--broker-agents", agent, "--target", "embedded"], 2, "which it watches already");
    refused(&["--agents-insecure"], 2, "--agents-insecure has no effect without --agents or --broker-agents");
    let data = tempfile::tempdir().expect("a directory");
    let node = Node::start(data.path(), &[]);
    let bootstrap = ["--bootstrap", node.address.as_str(), "--broker-agents"];
    let with = |more: &[&'static str]| [&bootstrap[..], more].concat();
    refused(&with(&[agent]), 1, "name their directory by --agent-certificates DIR");
    refused(&with(&[agent, "--agents-insecure"]), 1, "The agent 127.0.0.1:1 cannot be reached");

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a lab");
        stream.read_exact(&mut [0; 1]).expect("a line begins");
        let hello = r#"{"service":"thalweg-lab-agent","protocol":2,"version":"thalweg 9.9.9"}"#;
        stream.write_all(format!("{hello}\n").as_bytes()).expect("sent");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let arguments = [&bootstrap[..], &[address.as_str(), "--agents-insecure"]].concat();
    refused(&arguments, 1, &format!("The agent {address} is thalweg 9.9.9, protocol 2; this lab is"));
    other.join().expect("the other version ends");

    let mut command =
        lab.command(&["agent", "--listen", "127.0.0.1:0", "--insecure", "--data-dir", "missing"]);
    command.stdin(Stdio::null());
    let output = ran(command);
    assert_ends_with(&output, 2);
    assert!(text(&output.stderr).contains("--data-dir missing: "), "{}", text(&output.stderr));
}
