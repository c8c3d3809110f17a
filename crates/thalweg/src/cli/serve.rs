//! `thalweg serve`: a broker in the foreground, until it is told to stop.

use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thalweg_broker::config::{BrokerConfig, ServerProperties, WarningKind};
use tokio::signal::unix::{SignalKind, signal};

/// What comes so soon after a signal is the same once more: `timeout` and others tell a process and then its group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Run a broker: without arguments, on port 9092 with its data in ./thalweg-data.
///
/// It listens on localhost only, unless it is told otherwise. A Kafka server.properties is read as it is; keys that are
/// unknown or not served are named in a warning. Arguments win over the file.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  thalweg serve
  thalweg serve --data-dir /var/lib/thalweg --listen 0.0.0.0:9092
  thalweg serve server.properties --set num.partitions=6")]
pub struct Serve {
    /// A Kafka properties file
    #[arg(value_name = "SERVER.PROPERTIES")]
    properties: Option<PathBuf>,
    /// Where the data lies (log.dirs)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// HOST:PORT to listen on; 0.0.0.0 or an empty host is every interface, port 0 a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// A property, by Kafka's name; may be given again and again
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Serve {
    /// Serves until SIGTERM or SIGINT.
    pub fn run(&self) -> Result<()> {
        let started = now();
        super::failure::log_to_standard_error("info");
        let config = self.config()?;
        raise_descriptor_limit();
        // Two at the least: a write may wait for the disk, and others are served meanwhile.
        let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("thalweg")
            .enable_all()
            .build()
            .context("The runtime could not be started")?;
        runtime.block_on(async move { tokio::spawn(serve(config, started)).await? })
    }

    fn config(&self) -> Result<BrokerConfig> {
        let mut properties = match &self.properties {
            Some(path) => ServerProperties::load(path)?,
            None => ServerProperties::default(),
        };
        if let Some(dir) = &self.data_dir {
            properties.set_from("--data-dir", "log.dirs", dir.to_str().context("--data-dir is not UTF-8")?);
        }
        if let Some(address) = &self.listen {
            properties.set_from("--listen", "listeners", &listener(address)?);
        }
        for assignment in &self.set {
            properties.assign("--set", assignment).with_context(|| format!("--set {assignment}"))?;
        }
        for warning in properties.warnings() {
            let key = &warning.name;
            match warning.kind {
                WarningKind::Unknown { similar: Some(similar) } => {
                    tracing::warn!("Unknown property {key}; did you mean {similar}?");
                }
                WarningKind::Unknown { similar: None } => tracing::warn!("Unknown property {key}"),
                WarningKind::Unserved(reason) => tracing::warn!("Property {key} is not served: {reason}"),
                WarningKind::WithoutEffect(reason) => {
                    tracing::info!("Property {key} has no effect: {reason}")
                }
            }
        }
        Ok(BrokerConfig::new(&properties).map_err(|invalid| properties.place(invalid))?)
    }
}

/// The listener that an address stands for. Every interface is an empty host: what is advertised then is the name of
/// the machine, since nobody can connect to 0.0.0.0.
fn listener(address: &str) -> Result<String> {
    let Some((host, port)) = address.rsplit_once(':') else {
        bail!("--listen {address} has no port; HOST:PORT would be right, as in localhost:9092");
    };
    let host = if matches!(host, "0.0.0.0" | "[::]" | "*") { "" } else { host };
    Ok(format!("PLAINTEXT://{host}:{port}"))
}

async fn serve(config: BrokerConfig, started: Instant) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = thalweg_broker::start(config).await?;
    let listens: Vec<String> = server
        .addresses
        .iter()
        .flat_map(|(name, addresses)| addresses.iter().map(move |address| format!("{name}://{address}")))
        .collect();
    let data: Vec<String> = server.data_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let took_ms = started.elapsed().as_millis();
    tracing::info!(
        "Broker {} listens on {}, its data is in {}; started in {took_ms} ms",
        server.broker.node_id,
        listens.join(", "),
        data.join(", "),
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        reason = server.failed() => {
            tracing::error!(reason, "The cluster cannot be followed any more; the broker stops");
            server.stop().await;
            bail!("the cluster cannot be followed: {reason}");
        }
    }
    tracing::info!("Stopping");
    let signalled = now();
    let signalled_again = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if signalled.elapsed() > SAME_SIGNAL {
                return;
            }
        }
    };
    tokio::select! {
        () = server.stop() => tracing::info!("Stopped in order"),
        () = signalled_again => bail!("stopped without order by a second signal"),
    }
    Ok(())
}

/// A broker holds a descriptor for each connection and each open segment.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "The limit of open files could not be raised");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long the start of a process took is not the broker's time"
)]
fn now() -> Instant {
    Instant::now()
}
