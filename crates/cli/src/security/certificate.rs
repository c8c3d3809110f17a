//! `security certificate`: sign certificates.

use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::Utc;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use thalweg_authority::{Authority, Directory, Founding, NODE, Purpose, STREAMS};

use crate::failure::Usage;
use crate::output::CommandOutput;

/// The prefix of certificate names for nodes of a secured cluster: `node-2` for `node.id=2`.
const NODE_PREFIX: &str = "node-";

/// Certificates of nodes and clients, signed by an authority of your own.
#[derive(Subcommand, Debug)]
pub enum Certificate {
    Node(SignNode),
    Client(Sign),
}

/// Sign a certificate for a client, whose principal becomes User:CN=NAME.
///
/// The certificate is written to DIR/NAME.pem, with its key: a keystore of type PEM. For clients that want a
/// file each, such as librdkafka, DIR/NAME.crt and DIR/NAME.key have the two alone. The authority is that of
/// the directory, and is made if it is missing. The key is kept when a certificate is signed again.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  thalweg security certificate client alice")]
pub struct Sign {
    /// The name in the certificate (CN), and of the file.
    name: String,
    /// The authority's directory.
    #[arg(long, value_name = "DIR", default_value = "thalweg-data-security")]
    dir: PathBuf,
    #[command(flatten)]
    output: CommandOutput,
}

/// Sign a certificate for a node: it serves, and connects to other nodes.
///
/// The certificate is written to DIR/NAME.pem, with its key: a keystore of type PEM. The authority is that of
/// the directory, and is made if it is missing. The key is kept when a certificate is signed again. With
/// --export, the files that a new node of a secured cluster needs are written to a directory: copy it to the
/// node's machine.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security certificate node broker-1 --host broker-1.example.org --host 10.0.0.1
  thalweg security certificate node node-2 --host box-2.example.org --export box-2-security")]
pub struct SignNode {
    #[command(flatten)]
    sign: Sign,
    /// Host name or address of the node for other machines; can be repeated.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Write the files that a node of a cluster with --secure needs to this directory. NAME is node- with the
    /// node.id, as in node-2
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

impl Certificate {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Certificate::Node(node) => node.run(),
            Certificate::Client(client) => client.run(Purpose::Client, &[]),
        }
    }
}

impl Sign {
    fn run(&self, purpose: Purpose, hosts: &[String]) -> anyhow::Result<()> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(is_name) {
            let right = "expected letters, digits, '-', '_' and '.', since it becomes the name of a file";
            return Err(Usage(format!("the name {}: {right}", self.name)).into());
        }
        if matches!(self.name.as_str(), "ca") {
            return Err(Usage("the name ca: its files are those of the authority".to_owned()).into());
        }
        let authority = Authority::open_or_create(&self.dir)
            .with_context(|| format!("The authority in {}", self.dir.display()))?;
        let pem = authority.sign(&self.name, purpose, hosts)?;
        let (certificate, key) = (pem.with_extension("crt"), pem.with_extension("key"));
        let (pem, ca) = (pem.display(), authority.certificate_file().display().to_string());
        let java = format!(
            "ssl.keystore.type=PEM\nssl.keystore.location={pem}\nssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
        );
        let librdkafka = format!(
            "ssl.certificate.location={}\nssl.key.location={}\nssl.ca.location={ca}\n",
            certificate.display(),
            key.display()
        );
        let document = |settings: &str| -> Map<String, Value> {
            let pairs = settings.lines().filter_map(|line| line.split_once('='));
            pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect()
        };
        let mut settings = document(&java);
        if matches!(purpose, Purpose::Client) {
            settings.insert("librdkafka".to_owned(), Value::Object(document(&librdkafka)));
        }
        self.output.show(&settings, |_| {
            let mut text = java.clone();
            if matches!(purpose, Purpose::Client) {
                text += "# For librdkafka:\n";
                text.extend(librdkafka.lines().map(|line| format!("# {line}\n")));
            }
            Ok(text)
        })
    }
}

impl SignNode {
    fn run(&self) -> anyhow::Result<()> {
        if self.hosts.is_empty() {
            let why = "clients compare the host that they connect to with the certificate's";
            return Err(Usage(format!("--host is missing: {why}")).into());
        }
        match &self.export {
            None => self.sign.run(Purpose::Node, &self.hosts),
            Some(to) => self.export(to),
        }
    }

    fn export(&self, to: &Path) -> anyhow::Result<()> {
        let name = &self.sign.name;
        let id = name.strip_prefix(NODE_PREFIX).and_then(|id| id.parse::<u32>().ok());
        let wrong =
            || Usage(format!("--export: the name {name} has no node.id: expected node-2 for node.id=2"));
        let id = id.ok_or_else(wrong)?;
        let dir = &self.sign.dir;
        if !dir.join("ca.key").exists() {
            let right =
                "run this where the cluster's authority is, with --dir if it is not in thalweg-data-security";
            return Err(Usage(format!("--export: {} has no ca.key: {right}", dir.display())).into());
        }
        let directory = Directory::open(dir, Founding::Refused, id)?;
        directory.export(id, &self.hosts, to, Utc::now())?;
        let document = json!({ "node": id, "directory": to });
        let to = to.display();
        let text = format!(
            "{to} has what node {id} needs: its certificate, ca.crt, and the passwords of {NODE} and {STREAMS}. Keep it secret. \
             Copy it to the node's machine, and start the node there:\n\n  \
             thalweg serve --secure={to} --set node.id={id} --listen {host}:9092 \\\n    \
             --set process.roles=broker --set controller.quorum.bootstrap.servers=HOST:9093\n\n",
            host = self.hosts[0],
        );
        self.sign.output.show(&document, |_| Ok(text))
    }
}
