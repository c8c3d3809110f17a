//! A broker in a separate process, whose resources can be measured and limited.

use crate::running::configuration;
use std::io::{BufRead, BufReader, Lines, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use thalweg_dial::{Connection, ConnectionOptions};

/// The configuration of the process: the directory, then properties, one per line.
const CONFIGURATION: &str = "THALWEG_TEST_BROKER";

/// A broker that runs until this is dropped.
pub struct ChildBroker {
    process: Child,
    /// Kept open: the process may write more.
    _lines: Lines<BufReader<ChildStdout>>,
    pub address: SocketAddr,
}

impl ChildBroker {
    /// Starts a broker with its data in `dir`, these properties, and this limit of open files.
    pub fn start(dir: &Path, properties: &[(&str, &str)], open_files: Option<u32>) -> ChildBroker {
        let itself = std::env::current_exe().expect("the test runs from a file");
        let mut configuration = dir.to_str().expect("a path in UTF-8").to_owned();
        for (name, value) in properties {
            configuration.push_str(&format!("\n{name}={value}"));
        }
        let limit = open_files.map_or(String::new(), |max| format!("ulimit -n {max}; "));
        let mut process = Command::new("sh")
            .arg("-c")
            .arg(format!("{limit}exec \"$0\" --exact child::broker_for_other_tests --nocapture"))
            .arg(itself)
            .env(CONFIGURATION, configuration)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let address = lines.find_map(|line| line.ok()?.split("listens on ").nth(1)?.parse().ok());
        let address = address.expect("the broker starts");
        ChildBroker { process, _lines: lines, address }
    }

    pub async fn client(&self) -> Connection {
        let connected = Connection::connect(&self.address.to_string(), &ConnectionOptions::default()).await;
        connected.expect("the broker answers")
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("it is a child").is_none()
    }

    /// A figure of `/proc/<pid>/status` in bytes, as `VmHWM`, the most memory that the process held.
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("a size");
        kib * 1024
    }

    /// How many system calls the process has made that write, to files or sockets.
    pub fn writes(&self) -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.process.id()));
        let io = io.expect("the process runs");
        let count = io.lines().find_map(|line| line.strip_prefix("syscw: ")?.parse().ok());
        count.expect("the kernel counts them")
    }

    /// Stops the broker cleanly, and waits for its end.
    pub fn stop(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it is a child");
        assert!(status.success(), "the broker stops in order: {status}");
    }
}

impl Drop for ChildBroker {
    fn drop(&mut self) {
        // One that has stopped needs nothing.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The broker's side. Without a configuration from another test there is nothing to do.
#[test]
fn broker_for_other_tests() {
    let Ok(given) = std::env::var(CONFIGURATION) else { return };
    let (dir, properties) = given.split_once('\n').unwrap_or((&given, ""));
    let properties: Vec<_> = properties.lines().filter_map(|line| line.split_once('=')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let config = configuration(Path::new(dir), &properties);
        let server = thalweg_broker::start(config).await.expect("the broker starts");
        // Standard output is where the other test reads.
        #[expect(clippy::print_stdout, reason = "the other process reads it")]
        {
            println!("\nlistens on {}", server.addresses[0].1[0]);
        }
        // The other side closes standard input when the broker is to stop, or when it is gone.
        let until_closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            _ = until_closed => {
                server.stop().await;
                std::process::exit(0);
            }
            reason = server.failed() => panic!("the broker cannot go on: {reason}"),
        }
    });
}
