//! `cluster up`: a local cluster as child processes, until Ctrl-C.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use thalweg_authority::{ADMIN, Directory, Founding, STREAMS};
use thalweg_lab::target::{ControllerKind, LocalCluster, LocalNode, LocalOptions, Software};

use crate::failure::{CommandFailure, Usage};
use crate::output::{Column, CommandOutput};
use crate::secure::quick_start;
use crate::secure::users::{self, Users};
use crate::signals::EndSignals;

/// The directory of certificates and passwords, inside the cluster's directory.
const SECURITY_DIR: &str = "security";
/// `node.id` of the first broker.
const FIRST_BROKER: u32 = 1;
/// Interval of checking the processes.
const POLL: Duration = Duration::from_millis(500);

/// Start a cluster of brokers on this machine, until Ctrl-C.
///
/// Each broker is a separate process on 127.0.0.1; the first one serves the console. The data stays in --dir
/// for the next start. With --controllers embedded the first broker is also the only controller: while it is
/// down, leaders do not change and topics cannot be created. With --controllers apache three of Apache
/// Kafka's controllers run beside the brokers (this needs Java 17), and the cluster survives the loss of any
/// one of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg cluster up --brokers 3
  thalweg cluster up --brokers 3 --controllers apache --dir ./try --racks a,b,c
  thalweg cluster up --brokers 3 --secure
  thalweg cluster status                     in another terminal")]
pub struct UpCommand {
    /// Number of brokers.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    brokers: u32,
    /// Kind of controllers.
    #[arg(long, value_enum, default_value_t = Controllers::Embedded)]
    controllers: Controllers,
    /// Directory for the nodes' properties files, logs and data.
    #[arg(long, value_name = "DIR", default_value = "./thalweg-cluster")]
    dir: PathBuf,
    /// Port of the first broker; the others follow, controllers are 100 above, and the console is 2 below if
    /// that port is free. 0 selects free ports.
    #[arg(long, value_name = "PORT", default_value_t = 9092, value_parser = clap::value_parser!(u16).range(..=65_000))]
    port: u16,
    /// Racks, assigned to the brokers in rotation.
    #[arg(long, value_name = "RACK,...", value_delimiter = ',')]
    racks: Vec<String>,
    /// Serve over TLS only, to users with passwords, with ACLs. Certificates, an administrator and settings
    /// for clients are made in DIR/security. A secured cluster stays so: the next start needs no --secure.
    #[arg(long)]
    secure: bool,
    /// Set a property of every node, for example num.partitions=6; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    output: CommandOutput,
}

/// The controllers of a local cluster.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Controllers {
    /// One, in the first broker: a single point of failure.
    Embedded,
    /// Three of Apache Kafka, each in a JVM: one of them may fail.
    Apache,
}

impl UpCommand {
    /// Starts the cluster, waits for a signal, stops cleanly.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut options = self.options()?;
        let security = self.dir.join(SECURITY_DIR);
        let secured =
            (self.secure || security.join("ca.crt").exists()).then(|| ClusterCredentials::open(&security));
        let secured = secured.transpose()?;
        options.secured = secured.as_ref().map(|secured| Arc::clone(&secured.directory));
        // A signal during the start drops the cluster, which stops the started processes.
        let mut signals = EndSignals::listen()?;
        let cluster = tokio::select! {
            started = LocalCluster::start(&options) => started?,
            () = signals.next() => return Ok(()),
        };
        let here = std::env::current_dir().unwrap_or_default();
        let bootstrap = cluster.bootstrap();
        let connect = match &secured {
            Some(secured) => secured.connect(&bootstrap, &here).await?,
            None => connect(&bootstrap),
        };
        let console = cluster.console().map(|url| format!("The console is at {url}\n")).unwrap_or_default();
        let nodes: Vec<Value> = cluster.nodes().iter().map(|node| document(node, &here)).collect();
        let document =
            json!({ "bootstrap_servers": bootstrap, "console": cluster.console(), "nodes": nodes });
        self.output.show(&document, |style| {
            let nodes = style.rows(&COLUMNS, &nodes)?;
            Ok(format!("{nodes}\n{connect}\n{console}Ctrl-C stops all nodes cleanly.\n"))
        })?;
        let mut out = std::io::stdout();
        tokio::select! {
            () = signals.next() => {}
            () = all_ended(&cluster) => return Err(CommandFailure("all nodes have ended".to_owned()).into()),
        }
        if self.output.is_table() {
            writeln!(out, "Stopping")?;
        }
        let odd = tokio::select! {
            odd = cluster.stop() => odd,
            // Dropping the cluster kills running processes.
            () = signals.next() => vec!["killed by a second signal".to_owned()],
        };
        if odd.is_empty() {
            if !self.output.is_table() {
                return Ok(());
            }
            writeln!(out, "Stopped cleanly; the data is in {}", self.dir.display())?;
            return Ok(());
        }
        Err(CommandFailure(odd.join("; ")).into())
    }

    fn options(&self) -> Result<LocalOptions, Usage> {
        let mut properties = BTreeMap::new();
        for setting in &self.settings {
            match setting.split_once('=') {
                Some((key, _)) if LocalOptions::is_owned(key.trim()) => {
                    let problem = "is set for each node by cluster up; remove it";
                    return Err(Usage(format!("--set {setting}: {key} {problem}")));
                }
                Some((key, value)) if !key.is_empty() => {
                    properties.insert(key.trim().to_owned(), value.trim().to_owned());
                }
                _ => {
                    let problem = "expected KEY=VALUE, for example num.partitions=6";
                    return Err(Usage(format!("--set {setting} is not a setting: {problem}")));
                }
            }
        }
        Ok(LocalOptions {
            controllers: match self.controllers {
                Controllers::Embedded => ControllerKind::Embedded,
                Controllers::Apache => ControllerKind::ApacheKafka,
            },
            first_port: (self.port != 0).then_some(self.port),
            racks: self.racks.clone(),
            has_console: true,
            properties,
            ..LocalOptions::new(self.brokers, &self.dir)
        })
    }
}

/// Logs nodes that exit, as in experiments; returns once all nodes have exited.
async fn all_ended(cluster: &LocalCluster) {
    let mut logged = BTreeSet::new();
    loop {
        for (name, how) in cluster.ended() {
            if !logged.contains(&name) {
                tracing::warn!("{name} exited: {how}");
                logged.insert(name);
            }
        }
        if logged.len() == cluster.nodes().len() {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The certificates and passwords of a secured cluster.
struct ClusterCredentials {
    directory: Arc<Directory>,
    users: Users,
}

impl ClusterCredentials {
    /// Opens the directory, which all nodes share, each with its own certificate.
    fn open(dir: &Path) -> anyhow::Result<ClusterCredentials> {
        let directory = Directory::open(dir, Founding::Allowed, FIRST_BROKER)?;
        let users = users::of(&directory, &[ADMIN, STREAMS])?;
        Ok(ClusterCredentials { directory: Arc::new(directory), users })
    }

    /// Instructions to connect. Adds missing users to the cluster first.
    async fn connect(&self, bootstrap: &[String], here: &Path) -> anyhow::Result<String> {
        users::ensure(&self.directory, &bootstrap[0], &self.users).await;
        let bootstrap = bootstrap.join(",");
        let files = self.directory.write_admin_settings(&bootstrap)?;
        Ok(quick_start::text(self.directory.path(), &files, &bootstrap, here))
    }
}

const COLUMNS: [Column<'_>; 6] = [
    ("NODE", "name"),
    ("ID", "id"),
    ("CLIENTS", "broker"),
    ("CONTROLLER", "controller"),
    ("PROCESS", "pid"),
    ("DIRECTORY", "directory"),
];

/// Instructions to connect to a cluster without security.
fn connect(bootstrap: &[String]) -> String {
    format!(
        "Connect to {}, for example:\n  thalweg topic create orders --partitions 6 -b {first}\n  \
         thalweg cluster status -b {first}\n",
        bootstrap.join(","),
        first = bootstrap[0],
    )
}

fn document(node: &LocalNode, here: &Path) -> Value {
    let software = match node.software {
        Software::Thalweg => "",
        Software::ApacheKafka => " (Apache Kafka)",
        Software::ZooKeeper => " (ZooKeeper)",
    };
    json!({
        "name": format!("{}{software}", node.name),
        "id": node.id,
        "broker": node.broker,
        "controller": node.controller,
        "pid": node.pid,
        "directory": node.dir.strip_prefix(here).unwrap_or(&node.dir),
    })
}
