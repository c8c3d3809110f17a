//! `thalweg serve`: a broker, a controller, or both, in the foreground, until a signal stops the node.

mod announcement;
mod early;
mod exposure;
mod first_users;
mod ownership;
mod renewal;
mod secured;
mod stop_requests;
mod temporary;

use crate::console;
use crate::hosting::{self, Streams};
use crate::http::{self, HttpServer, HttpSockets};
use crate::logging::{self, LogFormat};
use announcement::Announcement;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use early::{AbandonedStart, EarlyStop};
use first_users::first_users;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use secured::NodeSecurity;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stop_requests::StopRequests;
use temporary::TemporaryData;
use thalweg_broker::metrics::Metrics;
use thalweg_broker::{ControllerServer, Loading, Server, StartError};
use thalweg_cli::failure::Usage;
use thalweg_config::{
    BrokerConfig, ConsoleSettings, HTTP_LISTENER, HttpSettings, ListenerSettings, Listeners, LogLevel,
    LogLineSettings, LogSettings, Loggers, NodeSettings, SecurityProtocol, ServerProperties, StreamSettings,
    WarningKind,
};
use thalweg_console::Console;
use thalweg_stream::Reach;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Two signals within this time count as one: `timeout` and similar tools signal a process and then its
/// group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// Default address of the console.
const CONSOLE: &str = "localhost:9090";

/// Run a broker.
///
/// By default the broker listens on localhost:9092 and keeps its data in ./thalweg-data, which it formats;
/// its console is at http://localhost:9090 unless a properties file is given. A Kafka server.properties can
/// be used unchanged; unknown and unsupported keys are listed in warnings. Options override the file. SIGTERM
/// or Ctrl-C stops it cleanly. RUST_LOG sets the log filter, for example RUST_LOG=debug.
///
/// With process.roles=broker the node joins the cluster of the controllers in
/// controller.quorum.bootstrap.servers, Thalweg's or Apache Kafka's.
#[derive(Args, Debug, Clone)]
#[command(after_help = "Examples:
  thalweg serve
  thalweg serve --data-dir /var/lib/thalweg --listen 0.0.0.0:9092
  thalweg serve server.properties --set num.partitions=6
  thalweg serve --set process.roles=broker --set node.id=2 --listen localhost:9094 --data-dir ./data-2 \\
      --set controller.quorum.bootstrap.servers=localhost:9093
  thalweg serve --set streams.enabled=true --set http.listener=localhost:9090
  thalweg serve --secure --listen 0.0.0.0:9092
  thalweg serve --temporary --listen localhost:0 --json --until-stdin-closes     for a test")]
pub struct Serve {
    /// A Kafka properties file (server.properties)
    #[arg(value_name = "FILE")]
    properties: Option<PathBuf>,
    /// Data directory (log.dirs) [default: ./thalweg-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Keep the data in a new directory below $TMPDIR, and remove it when the node stops
    #[arg(long, conflicts_with = "data_dir")]
    temporary: bool,
    /// Address to listen on [default: localhost:9092]. 0.0.0.0 or an empty host means every interface, port 0
    /// a free port
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Add a user when the cluster is created, for SCRAM: SCRAM-SHA-512=[name=alice,password=alice-secret];
    /// can be repeated. A cluster that exists is left as it is
    #[arg(long, value_name = "MECHANISM=[name=NAME,password=PASSWORD]")]
    add_scram: Vec<String>,
    /// Set a property, for example num.partitions=6; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Serve over TLS only, to users with passwords, with ACLs. Certificates, an administrator and settings
    /// for clients are made in DIR where they are missing [default: the data directory's name with -security]
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    secure: Option<Option<PathBuf>>,
    /// The form of log lines (thalweg.log.format) [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormatName>,
    /// Print a line of JSON on standard output once the node serves: its addresses, process and directories
    #[arg(long)]
    json: bool,
    /// Stop cleanly when standard input closes, so that the node ends with the program that started it, even
    /// if that program is killed
    #[arg(long)]
    until_stdin_closes: bool,
}

/// The form of log lines, as `thalweg.log.format` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormatName {
    /// Text for people
    Text,
    /// One JSON object a line
    Json,
}

impl Serve {
    /// Serves until SIGTERM, SIGINT, or with `--until-stdin-closes` the end of standard input.
    pub fn run(&self, bars: &MultiProgress) -> Result<()> {
        let started = now();
        if self.log_format == Some(LogFormatName::Json) {
            // Before the properties, so that errors in them are JSON, too.
            logging::use_json();
        }
        // At least two threads, so that other connections are served while a write waits for the disk.
        let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("thalweg")
            .enable_all()
            .build()
            .context("Cannot start the runtime")?;
        // Before there is a directory to remove.
        let stop_requests = {
            let _entered = runtime.enter();
            StopRequests::listen(self.until_stdin_closes)?
        };
        let temporary = self.temporary.then(TemporaryData::create).transpose()?;
        let data_dir = temporary.as_ref().map(TemporaryData::path).or(self.data_dir.as_deref());
        let properties = self.properties(data_dir)?;
        let format = match properties.get(LogLineSettings::is_json.name()) {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Text,
        };
        let loggers = logging::begin(LogLevel::Info, format, bars);
        logging::log_panics(format);
        tracing::info!("Thalweg {} starts, process {}", env!("CARGO_PKG_VERSION"), std::process::id());
        let (config, secured, is_http_offered) = self.config(properties)?;
        let data_dirs = ownership::data_dirs(&config);
        for warning in exposure::warnings(&config).into_iter().chain(ownership::warnings(&data_dirs)) {
            tracing::warn!("{warning}");
        }
        raise_descriptor_limit();
        let bars = bars.clone();
        let spec = NodeSpec {
            config,
            secured,
            is_http_offered,
            announcement: self.json.then(|| Announcement::new(temporary.as_ref())),
            abandoned: if self.temporary { AbandonedStart::Awaited } else { AbandonedStart::Left },
        };
        let abandoned = spec.abandoned;
        let ended = early::run(runtime, abandoned, serve(spec, stop_requests, started, bars, loggers));
        if let Some(temporary) = temporary {
            temporary.remove();
        }
        ended
    }

    /// The properties of the file, changed by options. `data_dir` is that of an option.
    fn properties(&self, data_dir: Option<&Path>) -> Result<ServerProperties> {
        let mut properties = match &self.properties {
            Some(path) => ServerProperties::load(path)?,
            None => ServerProperties::default(),
        };
        if let Some(dir) = data_dir {
            let origin = if self.temporary { "--temporary" } else { "--data-dir" };
            let dir = dir.to_str().with_context(|| format!("{origin}: {} is not UTF-8", dir.display()))?;
            properties.set_from(origin, LogSettings::dirs.name(), dir);
        }
        if let Some(address) = &self.listen {
            properties.set_from("--listen", ListenerSettings::listeners.name(), &listener(address)?);
        }
        for assignment in &self.set {
            properties.assign("--set", assignment).with_context(|| format!("--set {assignment}"))?;
        }
        if let Some(format) = self.log_format {
            let format = if format == LogFormatName::Json { "json" } else { "text" };
            properties.set_from("--log-format", LogLineSettings::is_json.name(), format);
        }
        Ok(properties.resolve()?)
    }

    /// The configuration, the result of `--secure`, and true if the HTTP listener is the default one.
    fn config(&self, mut properties: ServerProperties) -> Result<(BrokerConfig, Option<NodeSecurity>, bool)> {
        let secured = self.secure.as_ref().map(|dir| {
            let host_name = rustix::system::uname();
            secured::secure(&mut properties, dir.as_deref(), &host_name.nodename().to_string_lossy())
        });
        let mut secured = secured.transpose()?;
        if let Some(dir) = secured::left_out(&properties).filter(|_| secured.is_none()) {
            tracing::warn!(
                "--secure is missing: {} was made for this data, and it is served WITHOUT passwords and ACLs now",
                dir.display()
            );
        }
        let is_http_offered = self.offer_console(&mut properties);
        for warning in properties.warnings() {
            let key = &warning.name;
            match warning.kind {
                WarningKind::Unknown { similar: Some(similar) } => {
                    tracing::warn!("Unknown property {key}; did you mean {similar}?");
                }
                WarningKind::Unknown { similar: None } => tracing::warn!("Unknown property {key}"),
                WarningKind::Removed(advice) => {
                    tracing::warn!("Property {key} is of an older Kafka: {advice}");
                }
                WarningKind::Unserved(reason) => tracing::warn!("Property {key} is not served: {reason}"),
                WarningKind::WithoutEffect(reason) => {
                    tracing::info!("Property {key} has no effect: {reason}")
                }
            }
        }
        let mut config = BrokerConfig::new(&properties).map_err(|invalid| properties.place(invalid))?;
        if let Some(secured) = secured.as_mut().filter(|_| config.streams.enabled) {
            secured.let_streams_in(&mut config.streams)?;
        }
        check_streams(&config)?;
        config.first_users = first_users(&self.add_scram, &config)?;
        if let Some(secured) = &secured {
            config.first_users.extend(secured.admin(&config)?);
            secured::keep_data_private(&config);
        }
        Ok((config, secured, is_http_offered))
    }

    /// Lets the console listen on this machine, unless a properties file, an option or the node's role speaks
    /// against it. True if done.
    fn offer_console(&self, properties: &mut ServerProperties) -> bool {
        let says = |key: &str| properties.get(key).is_some();
        let has_name = properties
            .get(ListenerSettings::listeners.name())
            .is_some_and(|listeners| listeners.to_uppercase().contains(&format!("{HTTP_LISTENER}://")));
        let roles = properties.get(NodeSettings::roles.name());
        let is_requested = self.properties.is_some()
            || says(HttpSettings::listener.name())
            || properties
                .get(ConsoleSettings::enabled.name())
                .is_some_and(|enabled| enabled.trim() == "false")
            || roles.is_some_and(|roles| !roles.contains("broker"));
        if is_requested || has_name {
            return false;
        }
        properties.set_from("the default", HttpSettings::listener.name(), CONSOLE);
        true
    }
}

/// The requested configuration of a node.
struct NodeSpec {
    config: BrokerConfig,
    secured: Option<NodeSecurity>,
    /// True for the default HTTP listener: if its port is taken, the node starts without it.
    is_http_offered: bool,
    /// The line to print once the node serves, if any.
    announcement: Option<Announcement>,
    abandoned: AbandonedStart,
}

/// The security protocol of the first listener.
fn first_protocol(config: &BrokerConfig) -> SecurityProtocol {
    config.listeners.broker.first().map_or(SecurityProtocol::Plaintext, |listener| listener.protocol)
}

/// Checks the settings of hosted streams.
fn check_streams(config: &BrokerConfig) -> Result<()> {
    if !config.streams.enabled {
        return Ok(());
    }
    if !config.node.roles.broker {
        let problem = "streams.enabled: process.roles has no broker, and only brokers host streams";
        return Err(Usage(problem.to_owned()).into());
    }
    // The address of the broker's first listener is not known yet; any address will do.
    hosting::cluster(&config.streams, "localhost:0", first_protocol(config))?;
    if config.http.listener.is_none() {
        let right = "set http.listener=HOST:PORT to create and deploy streams here";
        tracing::warn!("Property streams.enabled only starts streams that are already deployed: {right}");
    }
    Ok(())
}

/// The listener for an address. An empty host binds every interface, and advertises the machine's name,
/// because clients cannot connect to 0.0.0.0.
fn listener(address: &str) -> Result<String> {
    let Some((host, port)) = address.rsplit_once(':') else {
        let problem =
            format!("--listen {address} has no port: expected HOST:PORT, for example localhost:9092");
        return Err(Usage(problem).into());
    };
    let host = if matches!(host, "0.0.0.0" | "[::]" | "*") { "" } else { host };
    Ok(format!("PLAINTEXT://{host}:{port}"))
}

/// The running node: a broker, with or without an embedded controller, or a controller alone.
enum Node {
    Broker(Server),
    Controller(ControllerServer),
}

impl Node {
    async fn start(
        config: BrokerConfig,
        loading: &Loading,
        loggers: Arc<Loggers>,
    ) -> Result<Node, StartError> {
        if config.node.roles.broker {
            return Ok(Node::Broker(thalweg_broker::start_watched(config, loading, Some(loggers)).await?));
        }
        Ok(Node::Controller(thalweg_broker::start_controller(config).await?))
    }

    /// The description of a serving node, for the log.
    fn described(&self) -> String {
        let (what, addresses, data_dirs) = match self {
            Node::Broker(server) => {
                (format!("Broker {}", server.broker.node_id), &server.addresses, &server.data_dirs)
            }
            Node::Controller(server) => {
                (format!("Controller {}", server.node_id), &server.addresses, &server.data_dirs)
            }
        };
        let listens: Vec<String> = addresses
            .iter()
            .flat_map(|(name, addresses)| addresses.iter().map(move |address| format!("{name}://{address}")))
            .collect();
        let data: Vec<String> = data_dirs.iter().map(|dir| dir.display().to_string()).collect();
        format!("{what} listens on {}, its data is in {}", listens.join(", "), data.join(", "))
    }

    /// The metrics of broker or controller.
    fn metrics(&self) -> &Metrics {
        match self {
            Node::Broker(server) => &server.metrics,
            Node::Controller(server) => &server.metrics,
        }
    }

    /// Starts the HTTP server on its open sockets. Other parts add their routes and metrics here.
    fn serve_http(
        &self,
        listening: HttpSockets,
        streams: Option<&Streams>,
        console: Option<Console>,
        beside: &console::RouteProtection,
        stopping: watch::Receiver<bool>,
    ) -> HttpServer {
        let metrics = self.metrics().clone();
        let mut sources: Vec<http::metrics::Source> = vec![Box::new(move || -> http::metrics::Writer {
            let mut pages = metrics.pages();
            Box::new(move |page, bytes| pages.write(page, bytes))
        })];
        sources.extend(streams.map(Streams::metrics));
        let broker = match self {
            Node::Broker(server) => Some(Arc::clone(&server.broker)),
            Node::Controller(_) => None,
        };
        let is_in_sync = move || broker.as_ref().is_none_or(|broker| broker.is_in_sync());
        // Metrics are served under any host name, unlike pages and APIs, because scrapers use names of all
        // kinds. By DNS rebinding, another site could read figures and names of topics, but no messages, and
        // could change nothing.
        let mut routes =
            http::metrics::routes(sources).merge(http::health::routes(stopping, Box::new(is_in_sync)));
        if let Some(streams) = streams {
            let streams = streams.routes(&beside.masking);
            routes = routes.merge(match beside.guard.clone() {
                Some(guard) => guard.with(console.as_ref()).protect(streams),
                None => streams,
            });
        }
        if let Some(console) = &console {
            routes = routes.merge(console.router());
        }
        let access = match self {
            Node::Broker(server) => server.http_access(),
            Node::Controller(server) => server.http_access(),
        };
        listening.serve(routes, Some(access), console)
    }

    /// The address of a broker's first listener for this machine, and the advertised address.
    fn reached_at(&self, listeners: &Listeners, host_name: &str) -> (Option<String>, Option<String>) {
        let Node::Broker(server) = self else { return (None, None) };
        let address = self.advertised(listeners, host_name).into_iter().next().map(|(_, address)| address);
        (hosting::own_address(server).map(|own| own.to_string()), address)
    }

    /// The names and advertised addresses of a broker's listeners.
    fn advertised(&self, listeners: &Listeners, host_name: &str) -> Vec<(String, String)> {
        let Node::Broker(server) = self else { return Vec::new() };
        let port = |name: &str| {
            let bound = server.addresses.iter().find(|(known, _)| known == name);
            bound.and_then(|(_, addresses)| Some(addresses.first()?.port()))
        };
        let advertised = listeners.advertised_as(host_name, port);
        let parts = advertised.iter().map(ToString::to_string);
        parts
            .filter_map(|text| text.split_once("://").map(|(name, at)| (name.to_owned(), at.to_owned())))
            .collect()
    }

    /// Starts hosting streams, if enabled. `host_login` has the client settings for the definitions, if they
    /// differ from the streams'; `reach` limits streams outside the cluster.
    fn host(
        &self,
        settings: &StreamSettings,
        protocol: SecurityProtocol,
        host_login: Option<String>,
        reach: Reach,
    ) -> Result<Option<Streams>> {
        match self {
            Node::Broker(server) if settings.enabled => {
                Ok(Some(Streams::start(server, settings, protocol, host_login, reach)?))
            }
            _ => Ok(None),
        }
    }

    /// The console, if planned.
    fn console(&self, plan: Option<console::Plan>, streams: Option<&Streams>) -> Option<Console> {
        let Node::Broker(server) = self else { return None };
        let plan = plan?;
        let address = hosting::address_of(server, &plan.listener)?.to_string();
        let credentials = console::credentials(server);
        let clients = console::clients(server);
        let history = console::history(server);
        Some(plan.start(address, streams.map(Streams::starting), credentials, clients, history))
    }

    async fn failed(&self) -> String {
        match self {
            Node::Broker(server) => server.failed().await,
            Node::Controller(server) => server.failed().await,
        }
    }

    /// Stops the node; true if the stop was clean.
    async fn stop(self) -> bool {
        match self {
            Node::Broker(server) => server.stop().await,
            Node::Controller(server) => server.stop().await,
        }
    }
}

/// Starts the node, unless a request to stop arrives first.
async fn start(
    config: BrokerConfig,
    loading: Arc<Loading>,
    loggers: Arc<Loggers>,
    stop_requests: &mut StopRequests,
    abandoned: AbandonedStart,
) -> Result<Node> {
    // A separate task, because the start blocks while it opens logs.
    let mut starting = tokio::spawn(async move { Node::start(config, &loading, loggers).await });
    tokio::select! {
        node = &mut starting => Ok(node??),
        () = stop_requests.next() => {
            let stop = async |node: Node| {
                if !node.stop().await {
                    tracing::warn!("The node was not stopped cleanly");
                }
            };
            abandoned.end(starting, stop).await;
            Err(EarlyStop(abandoned).into())
        }
    }
}

async fn serve(
    spec: NodeSpec,
    mut stop_requests: StopRequests,
    started: Instant,
    bars: MultiProgress,
    loggers: Arc<Loggers>,
) -> Result<()> {
    let NodeSpec { mut config, secured, is_http_offered, announcement, abandoned } = spec;
    // Handle SIGXFSZ, which would end the process: a write beyond the file size limit then fails like a write
    // to a full disk.
    let _file_too_large = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    // Bind before any log is opened, so that a port conflict is reported at once.
    let http = match config.http.listener.as_ref().map(HttpSockets::bind).transpose() {
        Err(error) if is_http_offered => {
            let error = anyhow::Error::from(error);
            tracing::info!(
                "No console: {error:#}; choose another address with --set http.listener=HOST:PORT"
            );
            config.http.listener = None;
            None
        }
        bound => bound?,
    };
    let trusted = secured.as_ref().map(NodeSecurity::trusted).unwrap_or_default();
    let plan = console::Plan::of(&config, &trusted)?;
    let beside = console::RouteProtection::of(&config)?;
    let (streams, protocol) = (config.streams.clone(), first_protocol(&config));
    let reach = hosting::reach::of(&config);
    let advertised = config.listeners.clone();
    let data_dirs = ownership::data_dirs(&config);
    let loading = Arc::new(Loading::default());
    let shown = tokio::spawn(show(Arc::clone(&loading), bars));
    tokio::spawn(logging::limit::report());
    let node = start(config, loading, loggers, &mut stop_requests, abandoned).await;
    // Wait for the task, so that the bar is erased before the next line.
    shown.abort();
    let _ = shown.await;
    let node = node.map_err(|error| ownership::explained(error, &data_dirs))?;
    tracing::info!("{}; started in {} ms", node.described(), started.elapsed().as_millis());
    let host_login = secured.as_ref().and_then(|secured| secured.host_login.clone());
    if let Some(secured) = secured {
        let (local, advertised) = node.reached_at(&advertised, &secured.host_name);
        secured.served(local, advertised).await;
    }
    let streams = node.host(&streams, protocol, host_login, reach)?;
    let console = node.console(plan, streams.as_ref());
    let (stopping, is_stopping) = watch::channel(false);
    let has_console = console.is_some();
    let http =
        http.map(|listening| node.serve_http(listening, streams.as_ref(), console, &beside, is_stopping));
    if let Some(server) = &http {
        log_urls(server, streams.is_some(), has_console);
    }
    if let Some(announcement) = announcement {
        let url = http.as_ref().and_then(|server| server.urls.first());
        announcement.print(&node, &advertised, url.map(String::as_str), has_console);
    }
    let running = RunningNode { node, streams, http, stopping };
    tokio::select! {
        () = stop_requests.next() => {}
        reason = running.node.failed() => {
            tracing::error!(reason, "Failed to follow the cluster, stopping");
            running.stop().await;
            bail!("the cluster cannot be followed: {reason}");
        }
    }
    stop(running, stop_requests).await
}

/// Logs the addresses of what the HTTP server serves.
fn log_urls(server: &HttpServer, has_streams: bool, has_console: bool) {
    for url in &server.urls {
        tracing::info!("Metrics are at {url}/metrics");
        if has_streams {
            tracing::info!("Streams are at {url}/api/v1/streams");
        }
        if has_console {
            tracing::info!("The console is at {url}");
        }
    }
}

/// The running node with its HTTP server and streams.
struct RunningNode {
    node: Node,
    streams: Option<Streams>,
    http: Option<HttpServer>,
    /// True while the node stops.
    stopping: watch::Sender<bool>,
}

impl RunningNode {
    /// Stops streams first, while there is a broker to drain to, and the HTTP server last, so that a slow
    /// stop can be watched. True if the stop was clean.
    async fn stop(self) -> bool {
        self.stopping.send_replace(true);
        if let Some(streams) = self.streams {
            streams.stop().await;
        }
        let is_clean = self.node.stop().await;
        if let Some(http) = self.http {
            http.stop().await;
        }
        is_clean
    }
}

/// The error for failed writes during the stop.
const NOT_IN_ORDER: &str = "stopped, but not cleanly: the errors above name the failed writes. Acknowledged records are in \
                            their files, and the next start checks the logs, which takes longer";

/// Stops cleanly, unless a second signal arrives.
async fn stop(running: RunningNode, mut stop_requests: StopRequests) -> Result<()> {
    tracing::info!("Stopping");
    let signalled = now();
    let signalled_again = async {
        loop {
            stop_requests.next_signal().await;
            if signalled.elapsed() > SAME_SIGNAL {
                return;
            }
        }
    };
    tokio::select! {
        is_clean = running.stop() => {
            logging::limit::report_rest();
            if !is_clean {
                bail!(NOT_IN_ORDER);
            }
            tracing::info!("Stopped cleanly");
        }
        () = signalled_again => bail!("stopped uncleanly by a second signal"),
    }
    Ok(())
}

/// Delay of the bar: a faster start shows none.
const LOADING_UNSHOWN: Duration = Duration::from_millis(500);
/// Interval of drawing the bar.
const DRAW: Duration = Duration::from_millis(200);

/// Draws a bar of opened logs, if standard error is a terminal and the start takes long.
async fn show(loading: Arc<Loading>, bars: MultiProgress) {
    if bars.is_hidden() {
        return;
    }
    tokio::time::sleep(LOADING_UNSHOWN).await;
    let mut bar = None;
    loop {
        if let Some((open, partitions)) = loading.progress() {
            let bar = bar.get_or_insert_with(|| TransientBar(bars.add(loading_bar(partitions as u64))));
            bar.0.set_position(open as u64);
            bar.0.tick();
        } else {
            bar = None;
        }
        tokio::time::sleep(DRAW).await;
    }
}

fn loading_bar(partitions: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("[{bar:30}] {human_pos} of {human_len} partitions loaded, {eta} left")
            .expect("the template is well formed");
    ProgressBar::new(partitions).with_style(style.progress_chars("=> "))
}

/// A bar that is erased at the end.
struct TransientBar(ProgressBar);

impl Drop for TransientBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Raises the soft limit of open files: a broker needs a descriptor for each connection and each open
/// segment.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "Failed to raise the limit of open files");
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
