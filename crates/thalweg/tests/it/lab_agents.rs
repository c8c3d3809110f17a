//! `thalweg lab run --agents`: producers and consumers on agents, which are processes of this machine here.
#![allow(
    clippy::disallowed_methods,
    reason = "processes run in the world's time, and their tests wait in it"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thalweg_lab::result::{PointResult, State};

use crate::lab::{LabDirectory, alone, assert_ends_with, end, ran, text, workload};

/// Maximum time for an agent to answer, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent.
pub(crate) struct Agent {
    child: Child,
    pub(crate) address: String,
}

impl Agent {
    pub(crate) fn start(lab: &LabDirectory, arguments: &[&str]) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["lab", "agent", "--listen", "127.0.0.1:0"]).args(arguments).current_dir(lab.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.split(" listens on ").nth(1).and_then(|rest| rest.split(',').next());
        Agent { address: address.expect("its address").to_owned(), child }
    }

    /// An agent in plain text.
    pub(crate) fn insecure(lab: &LabDirectory) -> Agent {
        Agent::start(lab, &["--insecure"])
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("ours to end");
        self.child.wait().expect("ours to wait for");
    }

    /// The first line that the agent answers to a line.
    fn answer(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(format!("{line}\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

pub(crate) fn list(agents: &[&Agent]) -> String {
    agents.iter().map(|agent| agent.address.as_str()).collect::<Vec<_>>().join(",")
}

/// The delay of a slow path, one way.
const DELAY: Duration = Duration::from_millis(5);

/// The address of a path that delays every line to an agent, and every line from it.
pub(crate) fn slow_path(agent: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let agent = agent.to_owned();
    let relay = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                std::thread::sleep(DELAY);
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    };
    std::thread::spawn(move || {
        for lab in listener.incoming().map_while(Result::ok) {
            let Ok(agent) = TcpStream::connect(&agent) else { return };
            for stream in [&lab, &agent] {
                stream.set_nodelay(true).expect("a socket");
            }
            relay(lab.try_clone().expect("a socket"), agent.try_clone().expect("a socket"));
            relay(agent, lab);
        }
    });
    address
}

/// The medians until acknowledged, and end to end, in milliseconds.
fn medians_ms(point: &PointResult) -> (f64, f64) {
    let of = |latency: &Option<thalweg_lab::result::Histogram>| {
        latency.as_ref().expect("latencies were measured").p50_us as f64 / 1e3
    };
    (of(&point.summary.acknowledge_latency), of(&point.summary.end_to_end_latency))
}

fn at_a_rate() -> String {
    workload(2.0, "consumers.count = 1\nload = { kind = \"rate\", records_per_s = 500 }")
        .replace("repetitions = 2", "repetitions = 1")
}

#[test]
fn offsets_of_clocks_are_measured_and_leave_no_trace_in_latencies() {
    let _alone = alone();
    let lab = LabDirectory::with(&at_a_rate());
    let output = ran(lab.command(&["agent-certificates", "certs"]));
    assert_ends_with(&output, 0);
    // The producers' clock is right, the consumers' ahead by 50 ms: an ignored offset would be in every
    // latency end to end, and in none until acknowledged.
    let right = Agent::start(&lab, &["--certificates", "certs"]);
    let ahead = Agent::start(&lab, &["--certificates", "certs", "--clock-offset-ms", "50"]);
    let agents = list(&[&right, &ahead]);
    let output =
        ran(lab.run(&["--agents", &agents, "--agent-certificates", "certs", "--agents-place", "apart"]));
    assert_ends_with(&output, 0);
    let result = lab.result();
    assert_eq!(result.state, State::Complete);
    let point = lab.point();
    let (acknowledged_ms, end_to_end_ms) = medians_ms(&point);
    assert!(
        (end_to_end_ms - acknowledged_ms).abs() < 25.0 && end_to_end_ms > 0.05,
        "{acknowledged_ms} {end_to_end_ms}"
    );
    let repetition = &point.repetitions[0];
    let offsets: Vec<f64> =
        repetition.agents.iter().map(|used| used.clock_before.offset_us as f64 / 1e3).collect();
    assert!(offsets[0].abs() < 5.0 && (offsets[1] - 50.0).abs() < 5.0, "{offsets:?}");
    // Each role was on its agent, and its processes were sampled there.
    let on = |role: &str| {
        let of_role = repetition.processes.iter().filter(|used| used.name.starts_with(role));
        of_role.filter_map(|used| used.agent.as_deref()).collect::<Vec<_>>()
    };
    assert_eq!(on("producer"), [right.address.as_str()]);
    assert_eq!(on("consumer"), [ahead.address.as_str()]);
    assert_eq!(on("broker"), [""; 0]);
    assert_eq!(repetition.evidence.faults, [""; 0]);
    assert_eq!(result.agents.len(), 2);
    for agent in &result.agents {
        assert!(agent.machine.cpus > 0 && !agent.brokers.is_empty() && agent.path.is_some(), "{agent:?}");
        assert!(agent.brokers[0].round_trip_us.is_some(), "{agent:?}");
    }
    let loopback = repetition.agents[0].host.interfaces.iter().find(|one| one.name == "lo");
    assert!(loopback.is_some_and(|one| one.sent_bytes > 0), "{:?}", repetition.agents[0]);
    let report = std::fs::read_to_string(lab.out().join("report.html")).expect("a report");
    assert!(report.contains("Client machines") && report.contains(&ahead.address));
    drop((right, ahead));
    lab.assert_nothing_is_left();
}

#[test]
fn a_lost_agent_ends_the_point_with_its_name() {
    let _alone = alone();
    let lab = LabDirectory::with(
        &workload(60.0, "consumers.count = 1").replace("repetitions = 2", "repetitions = 1"),
    );
    let (staying, mut lost) = (Agent::insecure(&lab), Agent::insecure(&lab));
    // A single producer and a single consumer are on the first agent.
    let agents = list(&[&lost, &staying]);
    let mut command = lab.run(&["--agents", &agents, "--agents-insecure"]);
    let run = command.spawn().expect("the binary starts");
    let began = Instant::now();
    // The workers are children of their agent.
    while children(lost.child.id()) < 2 {
        assert!(began.elapsed() < PATIENCE, "no workers were started");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    lost.kill();
    let output = end(run);
    assert_ends_with(&output, 1);
    let result = lab.result();
    assert!(matches!(&result.state, State::Partial { .. }), "{:?}", result.state);
    let point = &result.workloads[0].points[0];
    let failure = point.failure.as_deref().expect("it failed");
    assert!(failure.contains(&lost.address) && failure.contains("was lost"), "{failure}");
    assert!(point.repetitions.is_empty() && !point.verdict.no_headline.is_empty(), "{point:?}");
    drop(staying);
    lab.assert_nothing_is_left();
}

/// The number of children of a process.
pub(crate) fn children(of: u32) -> usize {
    let path = format!("/proc/{of}/task/{of}/children");
    let direct = std::fs::read_to_string(path).unwrap_or_default();
    // A worker may be started by any thread.
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let all: usize = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .map(|list| list.split_whitespace().count())
        .sum();
    all.max(direct.split_whitespace().count())
}

#[test]
fn another_version_is_refused_by_name_on_both_sides() {
    let lab = LabDirectory::with(&at_a_rate());
    let agent = Agent::insecure(&lab);
    let hello = r#"{"service":"thalweg-lab-agent","protocol":1,"version":"thalweg 9.9.9"}"#;
    let answer = agent.answer(hello);
    assert!(answer.contains("refused") && answer.contains("the lab is thalweg 9.9.9"), "{answer}");
    let answer = agent.answer("GET / HTTP/1.1");
    assert!(answer.contains("not that of a lab"), "{answer}");

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a lab");
        let mut first = [0; 1];
        stream.read_exact(&mut first).expect("a line begins");
        stream.write_all(format!("{hello}\n").as_bytes()).expect("sent");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let output = ran(lab.run(&["--agents", &address, "--agents-insecure"]));
    assert_ends_with(&output, 1);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("The agent {address} is thalweg 9.9.9")), "{said}");
    other.join().expect("the other version ends");
    assert!(!lab.out().exists(), "nothing was begun");
}

#[test]
fn strangers_are_refused() {
    let lab = LabDirectory::with(&at_a_rate());
    for dir in ["certs", "others"] {
        assert_ends_with(&ran(lab.command(&["agent-certificates", dir])), 0);
    }
    let agent = Agent::start(&lab, &["--certificates", "certs"]);
    let run = |arguments: &[&str]| {
        let output = ran(lab.run(&[&["--agents", &agent.address], arguments].concat()));
        assert!(!output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = run(&[]);
    assert!(said.contains("agent-certificates DIR"), "{said}");
    let said = run(&["--agents-insecure"]);
    assert!(said.contains(&agent.address), "{said}");
    let said = run(&["--agent-certificates", "others"]);
    assert!(said.contains(&agent.address) && said.contains("certificate"), "{said}");
    // A stolen certificate of an agent does not make a lab.
    let thief = lab.dir.path().join("thief");
    std::fs::create_dir(&thief).expect("made");
    for (from, to) in [("ca.crt", "ca.crt"), ("agent.pem", "lab.pem")] {
        std::fs::copy(lab.dir.path().join("certs").join(from), thief.join(to)).expect("copied");
    }
    let said = run(&["--agent-certificates", "thief"]);
    assert!(said.contains("the certificate is not that of the lab"), "{said}");
    assert!(!lab.out().exists(), "nothing was begun");
    let output = ran(lab.command(&["agent", "--listen", "127.0.0.1:0"]));
    assert!(text(&output.stderr).contains("--certificates DIR"), "{}", text(&output.stderr));
    let output = ran(lab.command(&["agent", "--listen", "0.0.0.0:0", "--insecure"]));
    assert!(text(&output.stderr).contains("--insecure=anywhere"), "{}", text(&output.stderr));
}

#[test]
fn agents_that_cannot_be_used_are_named_before_anything_begins() {
    let lab = LabDirectory::with(&at_a_rate());
    let agent = Agent::insecure(&lab);
    for (agents, more, said) in [
        ("127.0.0.1:1".to_owned(), &[][..], "The agent 127.0.0.1:1 cannot be reached"),
        (format!("{0},{0}", agent.address), &[], "is named twice"),
        (agent.address.clone(), &["--agents-place", "apart"], "two agents"),
    ] {
        let output = ran(lab.run(&[&["--agents", &agents, "--agents-insecure"], more].concat()));
        assert!(!output.status.success() && text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    assert!(!lab.out().exists(), "nothing was begun");
}
