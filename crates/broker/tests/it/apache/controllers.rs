//! Controllers of Apache Kafka as child processes, formatted by Kafka's own tool.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_wire::request::{DescribeClusterRequest, DescribeClusterResponse};

use super::until;

/// The id of the first controller: far from those of brokers.
const FIRST_ID: i32 = 101;
/// For lives of a minute: little memory, quickly started.
pub(super) const JVM_OPTIONS: [&str; 4] =
    ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true"];
const LOGGING: &str = "\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
";

/// How the controllers are formatted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Quorum {
    /// One, with the voters in its log, and every feature of its release.
    OfKafkasDefaults,
    /// Three of a static quorum, with the metadata of Kafka 3.9 and no feature besides.
    StaticOf3_9,
}

/// A quorum that lives as long as this value.
pub struct Controllers {
    dir: TempDir,
    classpath: String,
    addresses: Vec<String>,
    nodes: Vec<Option<Child>>,
    /// How to speak to them.
    speech: ConnectionOptions,
    pub cluster_id: String,
}

impl Controllers {
    /// Formats and starts them, and returns when one of them leads. `more` are further lines of their files.
    pub async fn start(classpath: String, quorum: Quorum, more: &str) -> Controllers {
        Controllers::start_with(classpath, quorum, more, ConnectionOptions::default()).await
    }

    /// As [`Controllers::start`], where they are spoken to with these options.
    pub async fn start_with(
        classpath: String,
        quorum: Quorum,
        more: &str,
        speech: ConnectionOptions,
    ) -> Controllers {
        let count = if quorum == Quorum::OfKafkasDefaults { 1 } else { 3 };
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("log4j2.properties"), LOGGING).expect("it can be written");
        let addresses = free_addresses(count);
        let cluster_id = format!("{:0>22}", std::process::id());
        let nodes = (0..count).map(|_| None).collect();
        let mut controllers = Controllers { dir, classpath, addresses, nodes, speech, cluster_id };
        let formats: Vec<Child> = (0..count).map(|index| controllers.format(index, quorum, more)).collect();
        for format in formats {
            let output = format.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for index in 0..count {
            controllers.revive(index);
        }
        controllers.active().await;
        controllers
    }

    fn home(&self, index: usize) -> PathBuf {
        self.dir.path().join(format!("controller-{index}"))
    }

    fn format(&self, index: usize, quorum: Quorum, more: &str) -> Child {
        let home = self.home(index);
        std::fs::create_dir(&home).expect("a new directory");
        let found_by = match quorum {
            Quorum::OfKafkasDefaults => format!("controller.quorum.bootstrap.servers={}", self.addresses[0]),
            Quorum::StaticOf3_9 => format!("controller.quorum.voters={}", self.voters()),
        };
        let text = format!(
            "process.roles=controller\nnode.id={}\n{found_by}\nlisteners=CONTROLLER://{}\n\
             controller.listener.names=CONTROLLER\nlog.dirs={}\n{more}\n",
            id(index),
            self.addresses[index],
            home.join("data").display(),
        );
        std::fs::write(home.join("server.properties"), text).expect("it can be written");
        let mut command = self.java(&home);
        command.args(["kafka.tools.StorageTool", "format", "--cluster-id", &self.cluster_id, "--config"]);
        command.arg(home.join("server.properties"));
        command.args(match quorum {
            Quorum::OfKafkasDefaults => &["--standalone"][..],
            Quorum::StaticOf3_9 => &["--release-version", "3.9"],
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("java is installed")
    }

    fn java(&self, home: &Path) -> Command {
        let mut command = Command::new("java");
        let logging = self.dir.path().join("log4j2.properties");
        command.env("CLASSPATH", &self.classpath).current_dir(home).args(JVM_OPTIONS);
        command.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
        command.arg(format!("-Djava.io.tmpdir={}", home.display()));
        command
    }

    /// The addresses of all of them, for brokers.
    pub fn servers(&self) -> String {
        self.addresses.join(",")
    }

    /// The same with their ids: the voters of a static quorum.
    pub fn voters(&self) -> String {
        let voters = self.addresses.iter().enumerate();
        let voters: Vec<String> = voters.map(|(index, at)| format!("{}@{at}", id(index))).collect();
        voters.join(",")
    }

    /// Starts a controller that does not run.
    #[expect(clippy::disallowed_types, reason = "the log of a child process is no data of a broker")]
    pub fn revive(&mut self, index: usize) {
        let home = self.home(index);
        let log = std::fs::File::options().create(true).append(true).open(home.join("log"));
        let log = log.expect("a log can be opened");
        let mut command = self.java(&home);
        command.arg("kafka.Kafka").arg(home.join("server.properties"));
        command.stderr(log.try_clone().expect("a descriptor")).stdout(log);
        self.nodes[index] = Some(command.spawn().expect("java is installed"));
    }

    /// Ends a controller without any order (SIGKILL).
    pub fn kill(&mut self, index: usize) {
        let mut node = self.nodes[index].take().expect("it runs");
        node.kill().expect("it can be killed");
        node.wait().expect("it is gone");
    }

    /// The one that leads, once there is one.
    pub async fn active(&self) -> usize {
        let mut active = None;
        until("a controller leads", async || {
            for (index, address) in self.addresses.iter().enumerate() {
                if self.nodes[index].is_none() {
                    continue;
                }
                if let Some(answer) = describe(address, &self.speech).await {
                    active = usize::try_from(answer.controller_id - FIRST_ID).ok();
                    // One that is gone may be named for a while.
                    return active.is_some_and(|active| self.nodes[active].is_some());
                }
            }
            false
        })
        .await;
        active.expect("it was found")
    }

    /// Whether a controller has a snapshot of its log, which new observers then fetch.
    pub fn has_snapshot(&self, index: usize) -> bool {
        let log = self.home(index).join("data").join("__cluster_metadata-0");
        let entries = std::fs::read_dir(log).expect("it has a log").flatten();
        let names = entries.into_iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
        // A cluster may begin with one at offset 0, which is never sent.
        names
            .into_iter()
            .any(|name| name.ends_with(".checkpoint") && !name.starts_with("00000000000000000000-"))
    }

    /// The controller's log output.
    pub fn log(&self, index: usize) -> String {
        std::fs::read_to_string(self.home(index).join("log")).expect("a log")
    }
}

fn id(index: usize) -> i32 {
    FIRST_ID + i32::try_from(index).expect("few controllers")
}

impl Drop for Controllers {
    fn drop(&mut self) {
        for mut node in self.nodes.drain(..).flatten() {
            // It may have exited; the failed test gives a better reason.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

async fn describe(address: &str, speech: &ConnectionOptions) -> Option<DescribeClusterResponse> {
    let connection = Connection::connect(address, speech).await.ok()?;
    let controllers = DescribeClusterRequest { endpoint_type: 2, ..Default::default() };
    connection.send(&controllers).await.ok().filter(|answer| answer.error_code == 0)
}

/// Unused addresses, below the system's ephemeral ports, so that no connection takes one of them before the
/// controller.
fn free_addresses(count: usize) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut free = Vec::new();
    while free.len() < count {
        let tried = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(13));
        let address = format!("127.0.0.1:{}", 20_000 + tried % 10_000);
        if TcpListener::bind(&address).is_ok() {
            free.push(address);
        }
    }
    free
}
