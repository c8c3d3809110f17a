//! A cluster on this machine for trials: its directory is kept, its ports are known, and its controller is
//! either in the first broker or a quorum of Apache Kafka's controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::apache_kafka::{self, FormatOptions, Jvm};
use chrono::Utc;
use thalweg_authority::{AuthorityError, Directory, NODE, Settings};
use thalweg_client::{Connection, ConnectionOptions};
use thalweg_ports::Port;
use thalweg_wire::request::MetadataRequest;

use super::error::{DirectoryFailed, PortTaken, TargetError};
use super::jars::KafkaOptions;
use super::plan::{CONTROLLER_LISTENER, Controllers, Node, Plan, Software};
use super::process::Brokers;
use super::{check_brokers, embedded, properties, readiness};
use crate::workload::SecurityProtocol;

/// Number of Apache Kafka's controllers: they tolerate the loss of one.
const APACHE_CONTROLLERS: usize = 3;
/// The heap of each Apache Kafka controller, in MiB.
const CONTROLLER_HEAP_MB: u32 = 256;

/// The setting of the HTTP listener, which serves the console.
pub(super) const HTTP_LISTENER: &str = "http.listener";
/// The distance of the console's port below the first broker's, if the first port is given: 9090 for 9092.
const CONSOLE_PORT_BELOW: u16 = 2;

/// The controllers of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// One controller, in the first broker.
    Embedded,
    /// Three controllers of Apache Kafka, in JVMs.
    ApacheKafka,
}

/// Options of a local cluster.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Number of brokers.
    pub brokers: u32,
    /// Kind of controllers.
    pub controllers: ControllerKind,
    /// The parent of the nodes' directories, which are kept for the next start.
    pub dir: PathBuf,
    /// The port of the first broker, followed by the others; `None` for free ports.
    pub first_port: Option<u16>,
    /// Racks, assigned to the brokers in rotation.
    pub racks: Vec<String>,
    /// True if the first broker serves the console, unless the properties of all nodes decide about it.
    pub has_console: bool,
    /// Properties of every node.
    pub properties: BTreeMap<String, String>,
    /// Certificates and passwords of a secured cluster.
    pub secured: Option<Arc<Directory>>,
    /// The brokers' binary; `None` for the current program.
    pub binary: Option<PathBuf>,
    /// Maximum time for brokers to become ready.
    pub start_timeout: Duration,
    /// Maximum time of a clean stop before the nodes are killed.
    pub stop_timeout: Duration,
}

impl LocalOptions {
    /// Options with this number of brokers in a directory, and defaults.
    pub fn new(brokers: u32, dir: impl Into<PathBuf>) -> LocalOptions {
        LocalOptions {
            brokers,
            controllers: ControllerKind::Embedded,
            dir: dir.into(),
            first_port: None,
            racks: Vec::new(),
            has_console: false,
            properties: BTreeMap::new(),
            secured: None,
            binary: None,
            start_timeout: Duration::from_secs(120),
            stop_timeout: Duration::from_secs(60),
        }
    }

    /// True if a property is set per node, so that it cannot be set for all.
    pub fn is_owned(key: &str) -> bool {
        key == properties::LOG_DIRS || properties::is_owned(key)
    }

    /// The port of the console: near the brokers' ports, or a free one.
    fn console_port(&self) -> Option<Port> {
        let is_off = self.properties.get("thalweg.console.enabled").is_some_and(|enabled| enabled == "false");
        if !self.has_console || is_off || self.properties.contains_key(HTTP_LISTENER) {
            return None;
        }
        let near = self.first_port.and_then(|first| first.checked_sub(CONSOLE_PORT_BELOW));
        let near = near.filter(|port| *port > 0).and_then(|port| Port::reserve_number(port).ok());
        // Without a free port, the cluster is worth more than its console.
        near.or_else(|| Port::reserve().ok())
    }

    fn settings(&self, node: &Node) -> BTreeMap<String, String> {
        let replicas = self.brokers.min(3);
        let in_sync = if replicas >= 3 { "2" } else { "1" };
        let mut settings = BTreeMap::from(
            [
                ("default.replication.factor", replicas.to_string()),
                ("min.insync.replicas", in_sync.to_owned()),
                ("offsets.topic.replication.factor", replicas.to_string()),
                ("transaction.state.log.min.isr", in_sync.to_owned()),
                ("transaction.state.log.replication.factor", replicas.to_string()),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        // Controllers need all these properties, too: they apply the default partitions and replicas, session
        // timeouts, and with eligible leader replicas the minimum in sync.
        if node.broker.is_some() && !self.racks.is_empty() {
            let turn = (node.id as usize - 1) % self.racks.len();
            settings.insert("broker.rack".to_owned(), self.racks[turn].clone());
        }
        settings.extend(self.properties.clone());
        settings
    }
}

/// A node of a local cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNode {
    /// The node's name, such as `broker-1`.
    pub name: String,
    /// `node.id`.
    pub id: u32,
    /// The node's software.
    pub software: Software,
    /// The address for clients, if the node is a broker.
    pub broker: Option<String>,
    /// The address for brokers, if the node is a controller.
    pub controller: Option<String>,
    /// The node's process id.
    pub pid: u32,
    /// The node's directory, with its properties file and its log.
    pub dir: PathBuf,
}

/// A running local cluster. Dropping it kills its nodes; their directories are kept.
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Vec<LocalNode>,
    /// The address of the console, as a URL.
    console: Option<String>,
    /// The console's port, reserved while its broker is down.
    _console_port: Option<Port>,
    processes: Brokers,
    stop_timeout: Duration,
}

impl LocalCluster {
    /// Starts the nodes and returns when all brokers are ready.
    pub async fn start(options: &LocalOptions) -> Result<LocalCluster, TargetError> {
        check_brokers(options.brokers)?;
        let program = embedded::program(options.binary.as_deref())?;
        let controllers = match options.controllers {
            ControllerKind::Embedded => Controllers::Brokers(1),
            ControllerKind::ApacheKafka => Controllers::Apart(APACHE_CONTROLLERS),
        };
        let brokers = options.brokers as usize;
        // Absolute, because it is passed to processes with other working directories.
        let dir = std::path::absolute(&options.dir)
            .map_err(|source| DirectoryFailed { path: options.dir.clone(), source })?;
        // Before anything is written, because a port may be taken.
        let mut plan = match Plan::new(brokers, Software::Thalweg, controllers, options.first_port, &dir) {
            Err(TargetError::PortTaken(taken)) => return Err(with_listener(taken).await.into()),
            plan => plan?,
        };
        let secured = options.secured.as_deref().map(|directory| secure(&mut plan, directory)).transpose()?;
        let secured = secured.unwrap_or_default();
        let console_port = options.console_port();
        let console = console_port.as_ref().map(|port| format!("127.0.0.1:{}", port.number()));
        let console_node = plan.nodes.iter().find(|node| node.broker.is_some()).map(|node| node.id);
        let mut processes = Brokers::kept(&dir)?;
        let settings = |node: &Node| {
            let own = secured.nodes.get(&node.id).into_iter().flatten();
            let own = own.map(|(key, value)| (key.clone(), value.clone()));
            let console = console.iter().filter(|_| Some(node.id) == console_node);
            let console = console.map(|address| (HTTP_LISTENER.to_owned(), address.clone()));
            options.settings(node).into_iter().chain(own).chain(console).collect()
        };
        plan.write(settings, |node| vec![data(node)])?;
        start_controllers(&mut processes, &plan, options.start_timeout).await?;
        for node in plan.nodes.iter().filter(|node| node.software == Software::Thalweg) {
            let mut command = Command::new(&program);
            command.arg("serve").arg(node.properties_file()).current_dir(&node.dir);
            if let Some(directory) = &options.secured {
                command.arg(format!("--secure={}", directory.path().display()));
            }
            processes.spawn(&node.name(), command, &log(node))?;
        }
        processes.set_controllers(plan.controllers());
        readiness::wait(&processes, &plan, &secured.client, options.start_timeout).await?;
        let nodes = plan.nodes.iter().zip(processes.processes()).map(|(node, (name, pid))| LocalNode {
            name,
            id: node.id,
            software: node.software,
            broker: node.broker.clone(),
            controller: node.controller.clone(),
            pid,
            dir: node.dir.clone(),
        });
        let scheme = if options.secured.is_some() { "https" } else { "http" };
        Ok(LocalCluster {
            nodes: nodes.collect(),
            console: console.map(|address| format!("{scheme}://{address}")),
            _console_port: console_port,
            processes,
            stop_timeout: options.stop_timeout,
        })
    }

    /// The nodes, in start order.
    pub fn nodes(&self) -> &[LocalNode] {
        &self.nodes
    }

    /// The URL of the console, if the cluster serves one by [`LocalOptions::has_console`].
    pub fn console(&self) -> Option<&str> {
        self.console.as_deref()
    }

    /// The bootstrap servers.
    pub fn bootstrap(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| node.broker.clone()).collect()
    }

    /// The nodes that have exited unexpectedly, with their exit status.
    pub fn ended(&self) -> Vec<(String, String)> {
        self.processes.ended()
    }

    /// Stops all running nodes cleanly: brokers before controllers. Returns deviations, as text.
    pub async fn stop(mut self) -> Vec<String> {
        self.processes.forget_ended();
        self.processes.stop(self.stop_timeout).await
    }
}

/// Additional settings of a secured cluster, besides `serve --secure`.
#[derive(Debug, Default)]
struct SecureSettings {
    /// Settings of Apache Kafka's nodes, by `node.id`. Thalweg's nodes find their own.
    nodes: BTreeMap<u32, Settings>,
    /// Settings of this process: it connects as a node, since the administrator's password may have been
    /// changed.
    client: Settings,
}

/// Enables security in a plan.
fn secure(plan: &mut Plan, directory: &Directory) -> Result<SecureSettings, AuthorityError> {
    (plan.protocol, plan.controller_protocol) = (SecurityProtocol::SaslSsl, SecurityProtocol::SaslSsl);
    let mut nodes = BTreeMap::new();
    for node in plan.nodes.iter().filter(|node| node.software == Software::ApacheKafka) {
        // Plans have loopback addresses, which every certificate includes.
        let certificate = directory.node_certificate(node.id, &[], Utc::now())?;
        nodes.insert(node.id, directory.node_settings(&certificate.file, CONTROLLER_LISTENER)?);
    }
    Ok(SecureSettings { nodes, client: directory.client_settings(NODE)? })
}

/// Timeout for identifying the listener on a taken port.
const ASK_LISTENER: Duration = Duration::from_secs(1);

/// Describes the listener on a port, if it speaks Kafka's protocol.
async fn with_listener(mut taken: PortTaken) -> PortTaken {
    let options = ConnectionOptions {
        client_id: "thalweg-lab".to_owned(),
        connect_timeout: ASK_LISTENER,
        request_timeout: ASK_LISTENER,
        ..ConnectionOptions::default()
    };
    let address = format!("127.0.0.1:{}", taken.port);
    if let Ok(connection) = Connection::connect(&address, &options).await {
        let what = if connection.versions().is_controller() { "a controller" } else { "a broker" };
        let described = match connection.send(&MetadataRequest::default()).await {
            Ok(answer) => answer.cluster_id,
            Err(_) => None,
        };
        taken.listener = Some(match described {
            Some(id) => format!("{what} of the cluster {id}"),
            None => format!("{what} of another cluster, or of this one"),
        });
    }
    taken
}

fn data(node: &Node) -> PathBuf {
    node.dir.join("data")
}

fn log(node: &Node) -> PathBuf {
    node.dir.join(format!("{}.log", if node.broker.is_some() { "broker" } else { "controller" }))
}

/// Formats unformatted controllers of Apache Kafka, for the cluster of the formatted ones, and starts all.
async fn start_controllers(
    processes: &mut Brokers,
    plan: &Plan,
    timeout: Duration,
) -> Result<(), TargetError> {
    let nodes: Vec<Node> =
        plan.nodes.iter().filter(|node| node.software == Software::ApacheKafka).cloned().collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let jars = apache_kafka::find_jars(&KafkaOptions::default()).await?;
    let jvm = Jvm::new(&jars, CONTROLLER_HEAP_MB, processes.dir())?;
    let mut cluster_id = None;
    let mut bare = Vec::new();
    for node in &nodes {
        match recorded_cluster_id(&data(node))? {
            Some(id) => cluster_id = Some(id),
            None => bare.push(node.clone()),
        }
    }
    let options = FormatOptions { id: cluster_id, first_user: None };
    apache_kafka::format(processes, &bare, options, &jars, timeout).await?;
    for node in &nodes {
        processes.spawn(&node.name(), jvm.command(node), &log(node))?;
    }
    Ok(())
}

/// The cluster id of a formatted directory; `None` if unformatted.
fn recorded_cluster_id(dir: &Path) -> Result<Option<String>, DirectoryFailed> {
    let path = dir.join("meta.properties");
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| DirectoryFailed { path, source })?,
    };
    Ok(text.lines().find_map(|line| line.strip_prefix("cluster.id=")).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_as_safe_as_their_number_allows_and_spread_over_racks() {
        for (brokers, replicas, in_sync) in [(1, "1", "1"), (2, "2", "1"), (5, "3", "2")] {
            let mut options = LocalOptions::new(brokers, "/c");
            options.racks = vec!["a".to_owned(), "b".to_owned()];
            let plan = Plan::new(
                brokers as usize,
                Software::Thalweg,
                Controllers::Brokers(1),
                None,
                Path::new("/c"),
            );
            let plan = plan.expect("free ports");
            let settings: Vec<_> = plan.nodes.iter().map(|node| options.settings(node)).collect();
            assert_eq!(settings[0]["default.replication.factor"], replicas);
            assert_eq!(settings[0]["min.insync.replicas"], in_sync);
            let racks: Vec<&str> = settings.iter().map(|settings| settings["broker.rack"].as_str()).collect();
            assert_eq!(racks, ["a", "b", "a", "b", "a"][..brokers as usize]);
        }
    }

    #[test]
    fn the_console_is_near_the_brokers_unless_the_properties_decide() {
        let mut options = LocalOptions { has_console: true, ..LocalOptions::new(1, "/c") };
        let near = Port::reserve().expect("a free port").number();
        options.first_port = Some(near + CONSOLE_PORT_BELOW);
        let port = |options: &LocalOptions| options.console_port().map(|port| port.number());
        assert_eq!(port(&options), Some(near));
        let taken = std::net::TcpListener::bind(("127.0.0.1", near)).expect("it is free again");
        assert!(port(&options).is_some_and(|other| other != near), "another one");
        drop(taken);
        options.first_port = Some(CONSOLE_PORT_BELOW);
        assert!(port(&options).is_some_and(|port| port > 0));
        for (key, value) in [("thalweg.console.enabled", "false"), (HTTP_LISTENER, "127.0.0.1:0")] {
            let properties = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            assert_eq!(port(&LocalOptions { properties, ..options.clone() }), None, "{key}");
        }
    }

    #[test]
    fn a_formatted_directory_names_its_cluster() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(recorded_cluster_id(dir.path()).expect("nothing is there"), None);
        let text = "#\n#Sun\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=101\nversion=1\n";
        std::fs::write(dir.path().join("meta.properties"), text).expect("a file");
        let found = recorded_cluster_id(dir.path()).expect("it is there");
        assert_eq!(found.as_deref(), Some("4L6g3nShT-eMCtK--X86sw"));
    }

    #[test]
    fn explicit_properties_win() {
        let mut options = LocalOptions::new(3, "/c");
        options.properties.insert("min.insync.replicas".to_owned(), "1".to_owned());
        let node = |broker: Option<&str>| Node {
            id: 1,
            software: Software::Thalweg,
            broker: broker.map(str::to_owned),
            controller: None,
            dir: PathBuf::new(),
        };
        assert_eq!(options.settings(&node(Some("h:1")))["min.insync.replicas"], "1");
        let of_controllers = options.settings(&node(None));
        assert_eq!(of_controllers["min.insync.replicas"], "1", "they keep it for the whole cluster");
        assert_eq!(of_controllers["default.replication.factor"], "3", "they place what asks for no number");
    }
}
