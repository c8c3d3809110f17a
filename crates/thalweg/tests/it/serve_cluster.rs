//! `thalweg serve` as a controller and as a broker that joins it, each in a separate process.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A node, killed when dropped.
struct Node {
    child: Child,
    log: std::io::Lines<BufReader<ChildStderr>>,
    /// The address of its first listener.
    address: String,
}

impl Node {
    fn start(dir: &Path, properties: &[&str]) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("serve").arg("--data-dir").arg(dir).env_remove("RUST_LOG");
        for property in properties {
            command.args(["--set", property]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let mut seen = String::new();
        let address = loop {
            let Some(line) = log.next() else { panic!("it ended: {seen}") };
            let line = line.expect("text");
            if let Some((_, rest)) = line.split_once("listens on ") {
                let listener = rest.split([',', ' ']).next().expect("a listener");
                break listener.split_once("://").expect("a name before it").1.to_owned();
            }
            seen.push_str(&line);
            seen.push('\n');
        };
        Node { child, log, address }
    }

    /// Stops it with SIGTERM, and returns its later log.
    fn stop(mut self) -> String {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        let status = self.child.wait().expect("it ends");
        let log: Vec<String> = self.log.by_ref().map(|line| line.expect("text")).collect();
        assert!(status.success(), "{status}: {log:?}");
        log.join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn thalweg(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_thalweg")).args(arguments).output().expect("the binary runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn a_broker_joins_a_controller_that_is_another_process_and_both_stop_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let controller = Node::start(
        &dir.path().join("controller"),
        &["process.roles=controller", "node.id=100", "listeners=CONTROLLER://127.0.0.1:0"],
    );
    let servers = format!("controller.quorum.bootstrap.servers={}", controller.address);
    let broker = Node::start(
        &dir.path().join("broker"),
        &["process.roles=broker", "node.id=7", "listeners=PLAINTEXT://127.0.0.1:0", &servers],
    );
    let to = ["--bootstrap-server", broker.address.as_str()];
    thalweg(&[&["topic", "create", "t", "--partitions", "2"], &to[..]].concat());
    let described = thalweg(&[&["topic", "describe", "t"], &to[..]].concat());
    assert_eq!(described.matches("Leader: 7").count(), 2, "{described}");
    for node in [broker, controller] {
        let log = node.stop();
        assert!(log.contains("Stopped cleanly"), "{log}");
    }
}
