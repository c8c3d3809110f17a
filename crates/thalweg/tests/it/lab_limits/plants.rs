//! What a test plants: a slow device, two network namespaces with a link between them, and busy processors.
//! All of it is removed when it is dropped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The limit of writes by device in control groups of version 1; in the root group, it is that of all writes.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// Runs a program, and returns its output, or why it failed.
fn run(line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Runs each line, in order, as far as they succeed.
fn run_all(lines: &[String]) -> Result<(), String> {
    lines.iter().try_for_each(|line| run(line).map(drop))
}

/// A file system on a loop device, whose file is on another loop device with a limit: requests of the first
/// take as long as the limit of the second demands. A limit alone would be no slow device, because the kernel
/// holds requests back before the device counts them.
pub(super) struct SlowDevice {
    /// The mounted file system.
    pub directory: PathBuf,
    /// Undo the steps that were made, in order.
    undo: Vec<String>,
    /// The loop device with the limit, and the one with the data: `/dev/loop1`.
    limited: String,
    device: String,
}

impl SlowDevice {
    /// Mounts the file system below a directory on a disk, without a limit.
    pub(super) fn mount(dir: &Path) -> Result<SlowDevice, String> {
        if !Path::new(THROTTLE).exists() {
            return Err(format!("there is no {THROTTLE}, of control groups of version 1"));
        }
        let dir = dir.display();
        let mut slow = SlowDevice {
            directory: PathBuf::from(format!("{dir}/data")),
            undo: Vec::new(),
            limited: String::new(),
            device: String::new(),
        };
        slow.limited = slow.attach(&format!("{dir}/outer"), 700, &format!("{dir}/disk"))?;
        slow.device = slow.attach(&format!("{dir}/disk/inner"), 500, &format!("{dir}/data"))?;
        Ok(slow)
    }

    /// Mounts a new file of so many MB.
    fn attach(&mut self, file: &str, mb: u32, mount: &str) -> Result<String, String> {
        run_all(&[format!("fallocate -l {mb}M {file}"), format!("mkdir {mount}")])?;
        let device = run(&format!("losetup --show --direct-io=on -f {file}"))?;
        self.undo.insert(0, format!("losetup -d {device}"));
        run_all(&[format!("mkfs.ext4 -q {device}"), format!("mount {device} {mount}")])?;
        self.undo.insert(0, format!("umount {mount}"));
        Ok(device)
    }

    /// The kernel's name of the device of the data.
    pub(super) fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    /// Limits what is written in a second.
    pub(super) fn set_limit(&self, bytes_per_s: Option<u64>) {
        let name = self.limited.trim_start_matches("/dev/");
        let numbers = std::fs::read_to_string(format!("/sys/block/{name}/dev")).expect("a block device");
        let limit = format!("{} {}", numbers.trim(), bytes_per_s.unwrap_or_default());
        std::fs::write(THROTTLE, limit).expect("a limit");
    }
}

impl Drop for SlowDevice {
    fn drop(&mut self) {
        if !self.limited.is_empty() {
            self.set_limit(None);
        }
        for line in &self.undo {
            if let Err(error) = run(line) {
                eprintln!("{error}");
            }
        }
    }
}

/// Two network namespaces with a link between them: clients in one, a broker in the other.
pub(super) struct NamespacePair {
    clients: String,
    brokers: String,
}

const CLIENTS_ADDRESS: &str = "10.77.0.1";
const BROKERS_ADDRESS: &str = "10.77.0.2";

impl NamespacePair {
    pub(super) fn make() -> Result<NamespacePair, String> {
        let id = std::process::id();
        let pair = NamespacePair { clients: format!("lab-c-{id}"), brokers: format!("lab-b-{id}") };
        let NamespacePair { clients, brokers } = &pair;
        let link = pair.interface();
        run_all(&[
            format!("ip netns add {clients}"),
            format!("ip netns add {brokers}"),
            format!("ip link add {link} netns {clients} type veth peer name {link} netns {brokers}"),
            format!("ip -n {clients} address add {CLIENTS_ADDRESS}/24 dev {link}"),
            format!("ip -n {brokers} address add {BROKERS_ADDRESS}/24 dev {link}"),
            format!("ip -n {clients} link set {link} up"),
            format!("ip -n {brokers} link set {link} up"),
            format!("ip -n {clients} link set lo up"),
            format!("ip -n {brokers} link set lo up"),
            "tc -V".to_owned(),
        ])?;
        Ok(pair)
    }

    /// The name of the link at both ends.
    pub(super) fn interface(&self) -> &'static str {
        "planted0"
    }

    /// Limits what the clients send, by a discipline.
    pub(super) fn limit(&self, discipline: &str, mbit_per_s: u32) {
        let (clients, link) = (&self.clients, self.interface());
        let of_root = format!("tc -n {clients} qdisc replace dev {link} root handle 1:");
        let lines = match discipline {
            "tbf" => vec![format!("{of_root} tbf rate {mbit_per_s}mbit burst 64kb latency 50ms")],
            _ => vec![
                format!("tc -n {clients} qdisc del dev {link} root"),
                format!("{of_root} htb default 1"),
                format!(
                    "tc -n {clients} class add dev {link} parent 1: classid 1:1 htb rate {mbit_per_s}mbit"
                ),
            ],
        };
        run_all(&lines).expect("the kernel limits traffic");
    }

    /// A command in the namespace of the clients.
    pub(super) fn of_clients(&self, command: &Command) -> Command {
        within(&self.clients, command)
    }

    /// A broker in its namespace.
    pub(super) fn broker(&self, data: &Path) -> DistantBroker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        let address = format!("{BROKERS_ADDRESS}:9092");
        command.args(["serve", "--listen", &address, "--data-dir"]).arg(data);
        let mut command = within(&self.brokers, &command);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("ip runs it");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let is_ready = lines.any(|line| line.contains("listens on "));
        std::thread::spawn(move || lines.for_each(drop));
        assert!(is_ready, "the broker ended");
        DistantBroker { child, address }
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for name in [&self.clients, &self.brokers] {
            let _ = run(&format!("ip netns delete {name}"));
        }
    }
}

/// A command within a network namespace.
fn within(namespace: &str, command: &Command) -> Command {
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", namespace]).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        inside.current_dir(dir);
    }
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inside
}

/// A broker in another network namespace.
pub(super) struct DistantBroker {
    child: Child,
    pub address: String,
}

impl Drop for DistantBroker {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Processes that use all processors.
pub(crate) struct Spinning(Vec<Child>);

impl Spinning {
    pub(crate) fn start() -> Spinning {
        let count = 2 * std::thread::available_parallelism().map_or(1, |count| count.get());
        let spin = || Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        Spinning((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
