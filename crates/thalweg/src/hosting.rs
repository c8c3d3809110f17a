//! Streams that `thalweg serve` hosts (`streams.enabled`): a host on its own runtime, so that streams cannot
//! delay the broker. The host uses the cluster like any client, through a listener of this broker.

pub mod reach;
mod rights;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use thalweg_broker::Server;
use thalweg_broker::metrics::Exposition;
use thalweg_browse::Masking;
use thalweg_cli::failure::Usage;
use thalweg_client::bootstrap_servers;
use thalweg_config::{SecurityProtocol, StreamSettings};
use thalweg_stream::host::rest::Starting;
use thalweg_stream::host::{Host, HostSettings, metrics, rest};
use thalweg_stream::module::StageOutput;
use thalweg_stream::{Cluster, Reach, STACK_BYTES};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use rights::AclRights;

/// Retry interval of the start.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for streams to drain when the process stops.
const DRAIN: Duration = Duration::from_secs(30);

/// Contradictory or incomplete settings of the streams' cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum WrongCluster {
    /// Two settings name bootstrap servers.
    #[error("both streams.client.config and streams.bootstrap.servers set the bootstrap servers: remove one")]
    NamedTwice,
    /// The client settings are for other listeners than this broker's first.
    #[error(
        "streams.client.config has security.protocol={spoken}, and this broker's first listener is {protocol}: \
         streams.bootstrap.servers=HOST:PORT must name a listener with that protocol"
    )]
    OtherProtocol {
        /// `security.protocol` of the client settings.
        spoken: &'static str,
        /// Protocol of the broker's first listener.
        protocol: &'static str,
    },
    /// The broker's first listener needs client settings, and there are none.
    #[error(
        "streams.enabled: this broker's first listener is {protocol}. Set streams.client.config to a file of client settings \
         for it"
    )]
    NoClientSettings {
        /// Protocol of the broker's first listener.
        protocol: &'static str,
    },
}

impl From<WrongCluster> for Usage {
    fn from(wrong: WrongCluster) -> Usage {
        Usage(wrong.to_string())
    }
}

/// The streams of a broker.
pub struct Streams {
    /// None only while `Streams` is dropped.
    runtime: Option<Runtime>,
    host: watch::Receiver<Option<Host>>,
    stopping: watch::Sender<bool>,
}

impl Streams {
    /// Starts hosting. Streams run as soon as their definitions are read, with the client settings of
    /// `host_login` if these differ from the streams'. `reach` limits streams outside the cluster.
    pub fn start(
        server: &Server,
        settings: &StreamSettings,
        protocol: SecurityProtocol,
        host_login: Option<String>,
        reach: Reach,
    ) -> anyhow::Result<Streams> {
        let own = own_address(server).context("streams.enabled: the broker has no listener")?;
        let cluster = cluster(settings, &own.to_string(), protocol)?;
        let properties = host_login.or_else(|| cluster.properties.clone());
        let settings = HostSettings {
            definitions: Cluster { properties, ..cluster.clone() },
            cluster,
            node: server.broker.node_id.0,
            reach: Arc::new(reach),
            rights: Arc::new(AclRights(server.rights())),
            console: Arc::new(Log),
        };
        let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("streams")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .context("Cannot start the runtime of streams")?;
        let (started, host) = watch::channel(None);
        let (stopping, stop) = watch::channel(false);
        runtime.spawn(start(settings, started, stop));
        Ok(Streams { runtime: Some(runtime), host, stopping })
    }

    /// The routes of the API. `masking` hides parts of messages.
    pub fn routes(&self, masking: &Masking) -> Router {
        rest::router(self.host.clone(), thalweg_console::hide(masking))
    }

    /// The host, once it has started.
    pub fn starting(&self) -> Starting {
        self.host.clone()
    }

    /// Metrics of streams.
    pub fn metrics(&self) -> crate::http::metrics::Source {
        let host = self.host.clone();
        Box::new(move || -> crate::http::metrics::Writer {
            let host = host.clone();
            Box::new(move |page: &mut Exposition, _| {
                let host = host.borrow().clone();
                page.append(&metrics::text(&host.map(|host| host.list()).unwrap_or_default()));
                false
            })
        })
    }

    /// Stops all streams cleanly: messages in flight are delivered.
    pub async fn stop(&self) {
        self.stopping.send_replace(true);
        let host = self.host.borrow().clone();
        if let Some(host) = host {
            host.stop(DRAIN).await;
        }
    }
}

impl Drop for Streams {
    /// Does not wait for running streams.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn start(
    settings: HostSettings,
    started: watch::Sender<Option<Host>>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let tried = tokio::select! {
            tried = Host::start(settings.clone()) => tried,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match tried {
            Ok(host) => {
                let running = host
                    .list()
                    .iter()
                    .filter(|status| status.definition.as_ref().is_some_and(|d| d.deployed.is_some()))
                    .count();
                tracing::info!("Hosting streams: {} known, {running} deployed", host.list().len());
                started.send_replace(Some(host));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to read stream definitions, retrying");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// The cluster of the streams: this broker's, through `own`, the address of its first listener with
/// `protocol`, unless another is configured. Reads the file of client settings, so that faults in the file
/// are reported before anything starts.
pub fn cluster(settings: &StreamSettings, own: &str, protocol: SecurityProtocol) -> anyhow::Result<Cluster> {
    if let Some(servers) = &settings.bootstrap {
        bootstrap_servers(servers).context(StreamSettings::bootstrap.name())?;
    }
    let cluster = Cluster {
        bootstrap: settings.bootstrap.clone().unwrap_or_else(|| own.to_owned()),
        properties: settings.client_config.clone(),
    };
    let (bootstrap, options) = cluster.connection("").context(StreamSettings::client_config.name())?;
    let bootstrap = bootstrap.join(",");
    if settings.bootstrap.is_some() && bootstrap != cluster.bootstrap {
        return Err(Usage::from(WrongCluster::NamedTwice).into());
    }
    let (spoken, protocol) = (options.security.protocol(), protocol.name());
    if bootstrap == own && spoken != protocol {
        let wrong = match &settings.client_config {
            Some(_) => WrongCluster::OtherProtocol { spoken, protocol },
            None => WrongCluster::NoClientSettings { protocol },
        };
        return Err(Usage::from(wrong).into());
    }
    Ok(Cluster { bootstrap, ..cluster })
}

/// The address of the broker's first listener, as seen from its own machine.
pub fn own_address(server: &Server) -> Option<SocketAddr> {
    address_of(server, &server.addresses.first()?.0)
}

/// The address of a listener, as seen from the broker's own machine.
pub fn address_of(server: &Server, listener: &str) -> Option<SocketAddr> {
    let (_, bound) = server.addresses.iter().find(|(name, _)| name == listener)?;
    let mut address = *bound.first()?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    Some(address)
}

/// Writes the output lines of stages to the broker's log.
struct Log;

impl StageOutput for Log {
    fn line(&self, text: &str) {
        tracing::info!("Stream: {text}");
    }
}
