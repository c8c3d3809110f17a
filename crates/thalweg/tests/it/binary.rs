//! The binary as a person runs it: a command that is run to its end, and a broker.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A command of the binary, which reads nothing.
pub fn thalweg(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(line.split_whitespace());
    command.env_remove("THALWEG_BOOTSTRAP_SERVER").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// The exit code, standard output and standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A broker, ended when it is dropped.
pub struct Broker {
    process: Child,
    pub address: String,
    _dir: tempfile::TempDir,
}

impl Broker {
    /// One that creates no topic unasked.
    pub fn start() -> Broker {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = thalweg("serve --listen 127.0.0.1:0 --data-dir");
        // A group forms at once.
        command.arg(dir.path()).args(["--set", "auto.create.topics.enable=false"]);
        command.args(["--set", "group.initial.rebalance.delay.ms=0"]);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(process.stderr.take().expect("it is a pipe")).lines();
        let said = lines.find_map(|line| {
            let line = line.expect("text");
            line.split_once("listens on PLAINTEXT://").map(|(_, rest)| rest.to_owned())
        });
        let address = said.and_then(|said| said.split(',').next().map(str::to_owned)).expect("an address");
        // What it says later is read, so that it never waits for this end.
        std::thread::spawn(move || lines.for_each(drop));
        Broker { process, address, _dir: dir }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
