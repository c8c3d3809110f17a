//! `security certificate`: sign certificates.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use thalweg_authority::{Authority, Purpose};

use crate::cli::failure::Usage;

/// Certificates of nodes and clients.
#[derive(Subcommand, Debug)]
pub enum Certificate {
    /// Sign a certificate for a node: it serves, and connects to other nodes.
    Node(Sign),
    /// Sign a certificate for a client, whose principal becomes User:CN=NAME.
    Client(Sign),
}

/// Sign a certificate into DIR/NAME.pem, with its key: a keystore of type PEM.
///
/// The authority is that of the directory; without one, it is made. The key is kept when a certificate is signed again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg security certificate node broker-1 --host broker-1.example.org --host 10.0.0.1
  thalweg security certificate client alice")]
pub struct Sign {
    /// The name in the certificate (CN), and of the file.
    name: String,
    /// A host name or address that others reach the node by; can be repeated.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// The authority's directory.
    #[arg(long, value_name = "DIR", default_value = "thalweg-data-security")]
    dir: PathBuf,
}

impl Certificate {
    /// Runs the command.
    pub fn run(&self) -> anyhow::Result<()> {
        let (sign, purpose) = match self {
            Certificate::Node(sign) => (sign, Purpose::Node),
            Certificate::Client(sign) => (sign, Purpose::Client),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if sign.name.is_empty() || sign.name.starts_with('.') || !sign.name.chars().all(is_name) {
            let right = "expected letters, digits, '-', '_' and '.', since it becomes the name of a file";
            return Err(Usage(format!("the name {}: {right}", sign.name)).into());
        }
        if purpose == Purpose::Node && sign.hosts.is_empty() {
            let why = "clients compare the host that they connect to with the certificate's";
            return Err(Usage(format!("--host is missing: {why}")).into());
        }
        let authority = Authority::open_or_create(&sign.dir)
            .with_context(|| format!("The authority in {}", sign.dir.display()))?;
        let pem = authority.sign(&sign.name, purpose, &sign.hosts)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "ssl.keystore.type=PEM\nssl.keystore.location={}", pem.display())?;
        let ca = authority.certificate_file();
        writeln!(out, "ssl.truststore.type=PEM\nssl.truststore.location={}", ca.display())?;
        Ok(())
    }
}
