//! The nodes of a cluster on this machine: their roles, addresses and properties files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_authority::replace_secret;
use thalweg_ports::Port;

use super::error::{DirectoryFailed, PortTaken, TargetError};
use super::properties;
use crate::workload::SecurityProtocol;

/// The id of the first dedicated controller; ids of further controllers follow.
const CONTROLLER_ID: u32 = 101;
/// The distance of controllers' ports from brokers', if the first port is given.
const CONTROLLER_PORTS: u16 = 100;

/// The listener of controllers.
pub(super) const CONTROLLER_LISTENER: &str = "CONTROLLER";

/// The software of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Thalweg, as this binary.
    Thalweg,
    /// Apache Kafka, in a JVM.
    ApacheKafka,
    /// ZooKeeper from Apache Kafka's jars, in a JVM, for releases before KRaft.
    ZooKeeper,
}

/// The number of controllers, and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controllers {
    /// The first brokers are also controllers, this many of them.
    Brokers(usize),
    /// This many dedicated nodes run Apache Kafka's controllers.
    Apart(usize),
    /// One node is ZooKeeper.
    ZooKeeper,
}

/// A node of a local cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub id: u32,
    pub software: Software,
    /// Address for clients, `host:port`, if the node is a broker.
    pub broker: Option<String>,
    /// Address for brokers, `host:port`, if the node is a controller.
    pub controller: Option<String>,
    /// The node's own directory.
    pub dir: PathBuf,
}

impl Node {
    /// The node's name, such as `broker-1`.
    pub fn name(&self) -> String {
        if self.software == Software::ZooKeeper {
            return "zookeeper".to_owned();
        }
        format!("{}-{}", if self.broker.is_some() { "broker" } else { "controller" }, self.id)
    }

    /// `process.roles`.
    pub fn roles(&self) -> &'static str {
        match (&self.broker, &self.controller) {
            (Some(_), Some(_)) => "broker,controller",
            (Some(_), None) => "broker",
            (None, _) => "controller",
        }
    }

    /// The path of the node's properties file.
    pub fn properties_file(&self) -> PathBuf {
        self.dir.join("server.properties")
    }
}

/// All nodes, in start order: controllers first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub nodes: Vec<Node>,
    /// The protocol of clients and brokers towards brokers.
    pub protocol: SecurityProtocol,
    /// The protocol of nodes towards controllers. The lab's controllers, which are on the same machine, use
    /// PLAINTEXT.
    pub controller_protocol: SecurityProtocol,
    /// The nodes' ports, reserved while they are down.
    ports: Arc<Vec<Port>>,
}

impl Plan {
    /// Nodes below `dir` on free ports, or on ports from `first_port` on.
    pub fn new(
        brokers: usize,
        software: Software,
        controllers: Controllers,
        first_port: Option<u16>,
        dir: &Path,
    ) -> Result<Plan, TargetError> {
        let (together, apart) = match controllers {
            Controllers::Brokers(count) => (count, 0),
            Controllers::Apart(count) => (0, count),
            Controllers::ZooKeeper => (0, 1),
        };
        let of_controllers_software = match controllers {
            Controllers::ZooKeeper => Software::ZooKeeper,
            Controllers::Brokers(_) | Controllers::Apart(_) => Software::ApacheKafka,
        };
        let of_controllers = (0..together + apart).map(|index| match apart {
            0 => format!("the controller of broker-{}", index + 1),
            _ => format!("controller-{}", CONTROLLER_ID as usize + index),
        });
        let of_brokers = (0..brokers).map(|index| format!("broker-{}", index + 1));
        let users: Vec<String> = of_brokers.chain(of_controllers).collect();
        let ports = ports(brokers, users, first_port)?;
        let addresses: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{}", port.number())).collect();
        let (for_brokers, for_controllers) = addresses.split_at(brokers);
        let mut nodes = Vec::with_capacity(brokers + apart);
        for (id, controller) in (CONTROLLER_ID..).zip(for_controllers.iter().take(apart)) {
            let (software, controller) = (of_controllers_software, Some(controller.clone()));
            nodes.push(Node { id, software, broker: None, controller, dir: PathBuf::new() });
        }
        for (index, broker) in for_brokers.iter().enumerate() {
            let id = u32::try_from(index + 1).expect("a few brokers");
            let controller = for_controllers.get(index).filter(|_| index < together).cloned();
            nodes.push(Node { id, software, broker: Some(broker.clone()), controller, dir: PathBuf::new() });
        }
        for node in &mut nodes {
            node.dir = dir.join(node.name());
        }
        let plain = SecurityProtocol::Plaintext;
        Ok(Plan { nodes, protocol: plain, controller_protocol: plain, ports: Arc::new(ports) })
    }

    /// The brokers' addresses for clients, `host:port`.
    pub fn bootstrap(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| node.broker.clone()).collect()
    }

    /// The names of the brokers, in the order of [`Plan::bootstrap`].
    pub fn broker_names(&self) -> Vec<String> {
        self.nodes.iter().filter(|node| node.broker.is_some()).map(Node::name).collect()
    }

    /// The number of controllers.
    pub fn controllers(&self) -> usize {
        self.nodes.iter().filter(|node| node.controller.is_some()).count()
    }

    /// The properties of a node. `settings` are those of all nodes.
    pub fn properties(
        &self,
        node: &Node,
        settings: &BTreeMap<String, String>,
        data: &[PathBuf],
    ) -> BTreeMap<String, String> {
        if let Some(zookeeper) = self.nodes.iter().find(|node| node.software == Software::ZooKeeper) {
            return self.before_kraft(zookeeper, node, settings, data);
        }
        let protocol = self.protocol.name();
        let listeners: Vec<String> = [(protocol, &node.broker), (CONTROLLER_LISTENER, &node.controller)]
            .into_iter()
            .filter_map(|(name, address)| Some(format!("{name}://{}", address.as_ref()?)))
            .collect();
        let data: Vec<String> = data.iter().map(|dir| dir.display().to_string()).collect();
        let own = [
            ("process.roles", node.roles().to_owned()),
            ("node.id", node.id.to_string()),
            ("controller.listener.names", CONTROLLER_LISTENER.to_owned()),
            ("listeners", listeners.join(",")),
            ("inter.broker.listener.name", protocol.to_owned()),
            (
                "listener.security.protocol.map",
                format!("{protocol}:{protocol},{CONTROLLER_LISTENER}:{}", self.controller_protocol.name()),
            ),
            ("log.dirs", data.join(",")),
        ];
        let mut all = settings.clone();
        all.extend(own.map(|(key, value)| (key.to_owned(), value)));
        let controllers = self.nodes.iter().filter_map(|node| Some((node.id, node.controller.as_ref()?)));
        match node.software {
            Software::ApacheKafka => {
                let voters: Vec<String> = controllers.map(|(id, at)| format!("{id}@{at}")).collect();
                all.insert("controller.quorum.voters".to_owned(), voters.join(","));
            }
            // An embedded controller is the only controller, and needs no address.
            Software::Thalweg if node.controller.is_some() => {}
            Software::ZooKeeper => {}
            Software::Thalweg => {
                let servers: Vec<String> = controllers.map(|(_, at)| at.clone()).collect();
                all.insert("controller.quorum.bootstrap.servers".to_owned(), servers.join(","));
            }
        }
        all
    }

    /// The properties of a broker with ZooKeeper, or those of ZooKeeper.
    fn before_kraft(
        &self,
        zookeeper: &Node,
        node: &Node,
        settings: &BTreeMap<String, String>,
        data: &[PathBuf],
    ) -> BTreeMap<String, String> {
        let data: Vec<String> = data.iter().map(|dir| dir.display().to_string()).collect();
        let address = zookeeper.controller.clone().unwrap_or_default();
        let protocol = self.protocol.name();
        let text = |pairs: Vec<(&str, String)>| -> BTreeMap<String, String> {
            pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        };
        let Some(broker) = &node.broker else {
            let (host, port) = address.rsplit_once(':').unwrap_or_default();
            return text(vec![
                ("clientPortAddress", host.to_owned()),
                ("clientPort", port.to_owned()),
                ("dataDir", data.join(",")),
                ("maxClientCnxns", "0".to_owned()),
                ("admin.enableServer", "false".to_owned()),
            ]);
        };
        let mut all = settings.clone();
        all.extend(text(vec![
            ("broker.id", node.id.to_string()),
            ("listeners", format!("{protocol}://{broker}")),
            ("inter.broker.listener.name", protocol.to_owned()),
            ("listener.security.protocol.map", format!("{protocol}:{protocol}")),
            ("log.dirs", data.join(",")),
            ("zookeeper.connect", address),
        ]));
        all
    }

    /// Writes each node's directory and properties, which may contain passwords. `data` returns a node's data
    /// directory, `settings` its settings.
    pub fn write(
        &self,
        settings: impl Fn(&Node) -> BTreeMap<String, String>,
        data: impl Fn(&Node) -> Vec<PathBuf>,
    ) -> Result<(), TargetError> {
        for node in &self.nodes {
            let failed = |source| DirectoryFailed { path: node.dir.clone(), source };
            std::fs::create_dir_all(&node.dir).map_err(failed)?;
            let text = properties::text(&self.properties(node, &settings(node), &data(node)));
            replace_secret(&node.properties_file(), &text)?;
        }
        Ok(())
    }
}

/// Free ports of this machine, held until they are used.
pub(super) fn free_ports(count: usize) -> Result<Vec<Port>, DirectoryFailed> {
    let free: io::Result<Vec<Port>> = (0..count).map(|_| Port::reserve()).collect();
    free.map_err(|source| DirectoryFailed { path: PathBuf::from("a port of 127.0.0.1"), source })
}

/// A port per user: brokers first, then controllers.
fn ports(brokers: usize, users: Vec<String>, first: Option<u16>) -> Result<Vec<Port>, TargetError> {
    let Some(first) = first else {
        return Ok(free_ports(users.len())?);
    };
    let from = |first: u16, count: usize| (0..).take(count).map(move |n: u16| first.saturating_add(n));
    from(first, brokers)
        .chain(from(first.saturating_add(CONTROLLER_PORTS), users.len() - brokers))
        .zip(users)
        .map(|(port, user)| {
            let taken = |source| PortTaken { port, user, listener: None, source }.into();
            Port::reserve_number(port).map_err(taken)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(brokers: usize, software: Software, controllers: Controllers) -> Plan {
        Plan::new(brokers, software, controllers, None, Path::new("/c")).expect("a machine with free ports")
    }

    fn roles(plan: &Plan) -> Vec<(String, &'static str)> {
        plan.nodes.iter().map(|node| (node.name(), node.roles())).collect()
    }

    #[test]
    fn the_first_brokers_are_the_controllers() {
        let plan = plan(4, Software::ApacheKafka, Controllers::Brokers(3));
        let names = ["broker-1", "broker-2", "broker-3", "broker-4"].map(str::to_owned);
        let expected = ["broker,controller", "broker,controller", "broker,controller", "broker"];
        assert_eq!(roles(&plan), names.into_iter().zip(expected).collect::<Vec<_>>());
        assert_eq!((plan.controllers(), plan.bootstrap().len()), (3, 4));
    }

    #[test]
    fn a_nodes_file_has_its_settings_and_the_controllers_addresses() {
        let settings = BTreeMap::from([("num.io.threads".to_owned(), "24".to_owned())]);
        let kafka = plan(3, Software::ApacheKafka, Controllers::Brokers(1));
        let data = [PathBuf::from("/a"), PathBuf::from("/b")];
        let properties = kafka.properties(&kafka.nodes[2], &settings, &data);
        assert_eq!((properties["node.id"].as_str(), properties["log.dirs"].as_str()), ("3", "/a,/b"));
        assert_eq!(properties["num.io.threads"], "24");
        let controller = kafka.nodes[0].controller.clone().expect("the first is one");
        assert_eq!(properties["controller.quorum.voters"], format!("1@{controller}"));

        let embedded = plan(2, Software::Thalweg, Controllers::Brokers(1));
        let first = embedded.properties(&embedded.nodes[0], &settings, &data);
        assert!(!first.contains_key("controller.quorum.bootstrap.servers"));
        assert!(first["listeners"].contains(",CONTROLLER://"), "{}", first["listeners"]);
        let second = embedded.properties(&embedded.nodes[1], &settings, &data);
        let controller = embedded.nodes[0].controller.clone().expect("the first is one");
        assert_eq!(second["controller.quorum.bootstrap.servers"], controller);
    }

    #[test]
    fn controllers_apart_start_first() {
        let plan = plan(2, Software::Thalweg, Controllers::Apart(3));
        let names: Vec<String> = plan.nodes.iter().map(Node::name).collect();
        assert_eq!(names, ["controller-101", "controller-102", "controller-103", "broker-1", "broker-2"]);
        assert!(plan.nodes[..3].iter().all(|node| node.software == Software::ApacheKafka));
        let properties = plan.properties(&plan.nodes[4], &BTreeMap::new(), &[]);
        assert_eq!(properties["process.roles"], "broker");
        assert_eq!(properties["controller.quorum.bootstrap.servers"].split(',').count(), 3);
        assert_eq!(plan.broker_names(), ["broker-1", "broker-2"]);
    }

    #[test]
    fn brokers_before_kraft_have_zookeeper() {
        let plan = plan(2, Software::ApacheKafka, Controllers::ZooKeeper);
        let names: Vec<String> = plan.nodes.iter().map(Node::name).collect();
        assert_eq!(names, ["zookeeper", "broker-1", "broker-2"]);
        let data = [PathBuf::from("/a")];
        let settings = BTreeMap::from([("num.io.threads".to_owned(), "24".to_owned())]);
        let of_zookeeper = plan.properties(&plan.nodes[0], &settings, &data);
        let of_broker = plan.properties(&plan.nodes[2], &settings, &data);
        let address = format!("{}:{}", of_zookeeper["clientPortAddress"], of_zookeeper["clientPort"]);
        assert_eq!(of_broker["zookeeper.connect"], address);
        assert_eq!((of_broker["broker.id"].as_str(), of_broker["num.io.threads"].as_str()), ("2", "24"));
        assert!(!of_broker.contains_key("process.roles") && !of_zookeeper.contains_key("num.io.threads"));
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let refused = Plan::new(1, Software::Thalweg, Controllers::Brokers(1), Some(port), Path::new("/c"));
        let error = refused.expect_err("it is taken").to_string();
        assert!(error.contains(&port.to_string()), "{error}");
    }
}
