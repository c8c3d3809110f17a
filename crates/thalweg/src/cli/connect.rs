//! Arguments common to all tools: the cluster and the client settings.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use thalweg_client::{Cluster, ConnectionOptions, Properties};

/// Time limit for creating a missing topic. Shorter than `max.block.ms`, because a person waits.
pub const TOPIC_WAIT: Duration = Duration::from_secs(10);

/// The brokers of `thalweg serve`.
const BOOTSTRAP_SERVER: &str = "localhost:9092";

/// The cluster and the client settings.
#[derive(Args, Debug, Clone)]
pub struct Connect {
    /// Bootstrap brokers [default: bootstrap.servers of --command-config, or localhost:9092].
    #[arg(long, short = 'b', value_name = "HOST:PORT,...", env = "THALWEG_BOOTSTRAP_SERVER", global = false)]
    bootstrap_server: Option<String>,
    /// A properties file with client settings.
    #[arg(long, value_name = "FILE", env = "THALWEG_COMMAND_CONFIG")]
    command_config: Option<PathBuf>,
    /// A client setting, for example request.timeout.ms=5000; can be repeated. Overrides --command-config.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Connect {
    /// All settings.
    pub fn properties(&self) -> anyhow::Result<Properties> {
        let mut properties = match &self.command_config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("Cannot read --command-config {}", path.display()))?;
                Properties::parse(&text)
            }
            None => Properties::new(),
        };
        for setting in &self.settings {
            properties.set_text(setting)?;
        }
        match &self.bootstrap_server {
            Some(servers) => properties.set("bootstrap.servers", servers),
            None => properties.set_default("bootstrap.servers", BOOTSTRAP_SERVER),
        }
        Ok(properties)
    }

    /// The brokers to connect to first, and how, for a tool that administers a cluster.
    pub fn addresses(&self) -> anyhow::Result<(Vec<String>, ConnectionOptions)> {
        let mut properties = self.properties()?;
        let bootstrap = properties.take_bootstrap_servers()?;
        let options = ConnectionOptions::take(&mut properties, "admin")?;
        warn_about_rest(&properties);
        Ok((bootstrap, options))
    }

    /// The cluster, for a tool that administers it.
    pub async fn cluster(&self) -> anyhow::Result<Cluster> {
        let (bootstrap, options) = self.addresses()?;
        Ok(Cluster::connect(&bootstrap, &options).await?)
    }
}

/// Warns of settings without effect.
pub fn warn_about_rest(properties: &Properties) {
    for key in properties.rest() {
        tracing::warn!("Unknown setting {key} has no effect");
    }
}
