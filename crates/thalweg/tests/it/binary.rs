//! Runs the binary: a command to its end, and a broker.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time limit for a condition.
const LIMIT: Duration = Duration::from_secs(90);

/// A command of the binary, without input.
pub fn thalweg(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(line.split_whitespace());
    command
        .env_remove("THALWEG_BOOTSTRAP_SERVER")
        .env_remove("THALWEG_COMMAND_CONFIG")
        .env_remove("THALWEG_SERVER")
        .env_remove("THALWEG_PROFILE")
        // The profiles of the user who runs the tests are theirs.
        .env("THALWEG_CONFIG", "/nonexistent/config.toml")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

/// The exit code, standard output and standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The same, with standard input.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> (Option<i32>, String, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A process that needs no input may have exited.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A running process with piped standard input and output, killed when dropped.
pub struct RunningProcess(pub Child);

impl RunningProcess {
    pub fn start(command: &mut Command) -> RunningProcess {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        RunningProcess(command.spawn().expect("the binary runs"))
    }

    /// The lines of its standard output.
    pub fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().expect("it is a pipe")).lines().map(|line| line.expect("text"))
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("it has an id");
        kill_process(pid, signal).expect("it runs");
    }

    /// Sends SIGINT, like Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Waits for its end.
    pub fn exit_code(&mut self) -> Option<i32> {
        let mut ended = None;
        until("the end of a process", || {
            ended = self.0.try_wait().expect("ours to wait for");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "the limit is of the whole wait, with what `holds` takes")]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LIMIT, "{what} did not come about");
        pause(Duration::from_millis(20));
    }
}

#[expect(clippy::disallowed_methods, reason = "a test waits on a thread of its own")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[expect(clippy::disallowed_methods, reason = "a process is waited for in real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// A broker, killed when dropped.
pub struct Broker {
    process: Child,
    pub address: String,
    settings: Vec<String>,
    dir: tempfile::TempDir,
}

impl Broker {
    /// A broker without automatic topic creation.
    pub fn start() -> Broker {
        Broker::start_with(&[])
    }

    /// The same, with these settings.
    pub fn start_with(settings: &[&str]) -> Broker {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // No initial rebalance delay.
        let usual = ["auto.create.topics.enable=false", "group.initial.rebalance.delay.ms=0"];
        let settings: Vec<String> =
            usual.iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
        let (process, address) = Broker::run("127.0.0.1:0", &settings, &dir);
        Broker { process, address, settings, dir }
    }

    /// Kills it, and restarts it on its data.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Starts it again on its data, at its address.
    pub fn restart(&mut self) {
        (self.process, self.address) = Broker::run(&self.address, &self.settings, &self.dir);
    }

    fn run(listen: &str, settings: &[String], dir: &tempfile::TempDir) -> (Child, String) {
        let mut command = thalweg(&format!("serve --listen {listen} --data-dir"));
        command.arg(dir.path()).args(settings.iter().flat_map(|setting| ["--set", setting]));
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(process.stderr.take().expect("it is a pipe")).lines();
        let said = lines.find_map(|line| {
            let line = line.expect("text");
            line.split_once("listens on PLAINTEXT://").map(|(_, rest)| rest.to_owned())
        });
        let address = said.and_then(|said| said.split(',').next().map(str::to_owned)).expect("an address");
        // Read its later output, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        (process, address)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
