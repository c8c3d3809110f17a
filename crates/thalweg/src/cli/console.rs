//! `thalweg console`: the console for any cluster, in the foreground.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use axum::Router;
use clap::Args;
use thalweg_browse::Masking;
use thalweg_cli::connect::{Connect, WAITS};
use thalweg_cli::failure::Usage;
use thalweg_cli::schema_registry::SchemaRegistry;
use thalweg_cli::signals::EndSignals;
use thalweg_client::{ClientError, Cluster, ConnectionOptions, Properties, bootstrap_servers};
use thalweg_console::{Console as Pages, ConsoleSettings, Hosts, Login, Mechanism};
use tokio::sync::watch;

use crate::console;
use crate::http::{self, HttpAddress, HttpSockets};

/// The SASL mechanism for a name and password, unless the settings name one.
const MECHANISM: &str = "SCRAM-SHA-512";

/// Pause between attempts to reach a broker at the start: short, so that the failures count as one wait.
const CONTACT_INTERVAL: Duration = Duration::from_secs(1);

/// Serve the console: a cluster in the browser, and a JSON API.
///
/// The console works with any cluster that speaks Kafka's protocol. If the client settings have SASL, people
/// log in with their own names and passwords, and the cluster decides what they may see and do. A broker of
/// thalweg serve has a console already, at its http.listener.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  thalweg console --bootstrap-server broker-1:9092
  thalweg console -b broker-1:9094 --set security.protocol=SASL_SSL --set ssl.truststore.location=ca.pem --read-only")]
pub struct Console {
    #[command(flatten)]
    connect: Connect,
    /// Address to listen on; port 0 means a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:9091", value_parser = http::address)]
    listen: HttpAddress,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// Let everyone act as the user of the client settings, instead of asking for a name and a password.
    /// Anyone who reaches the address has that user's rights
    #[arg(long)]
    no_login: bool,
    /// A name by which browsers call this console, besides localhost, IP addresses and the host of --listen;
    /// can be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Hide parts of messages by this rule, for example 'payments: card, header:token'; can be repeated.
    /// docs/console.md explains rules
    #[arg(long, value_name = "RULE")]
    mask: Vec<String>,
    /// A file with such rules, one on each line
    #[arg(long, value_name = "FILE")]
    mask_file: Option<PathBuf>,
    #[command(flatten)]
    registry: SchemaRegistry,
    /// Passwords may arrive in plain text, because a proxy on a trusted network ends TLS
    #[arg(long)]
    behind_proxy: bool,
    /// Let those with ALTER on the cluster run the lab's built-in workloads on this machine, with the results
    /// in this directory
    #[arg(long, value_name = "DIR")]
    lab_dir: Option<PathBuf>,
}

impl Console {
    /// Serves until SIGTERM or SIGINT.
    pub async fn run(&self) -> Result<()> {
        let mut client = self.connect.properties()?;
        let bootstrap = client.take_bootstrap_servers()?;
        let (masking, registry) = (self.masking()?, self.registry.take(&mut client)?);
        bootstrap_servers(&bootstrap.join(","))?;
        let first_contact = first_contact(bootstrap.clone(), client.clone());
        let protocol = client.get("security.protocol").unwrap_or("PLAINTEXT").to_uppercase();
        let login = match protocol.starts_with("SASL") && !self.no_login {
            true => Login::Password(vec![mechanism(client.get("sasl.mechanism").unwrap_or(MECHANISM))?]),
            false => Login::None,
        };
        let (host, port) = &self.listen.0;
        let is_local = matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1" | "[::1]");
        let has_login = matches!(login, Login::Password(_));
        if has_login && !is_local && !self.behind_proxy {
            let problem = format!(
                "--listen {host}:{port}: passwords would be sent in plain text. Listen on localhost, or put a proxy with TLS in front and \
                 say --behind-proxy"
            );
            return Err(Usage(problem).into());
        }
        if !is_local && !has_login {
            tracing::warn!(
                "ANYONE who reaches {host}:{port} may act on the cluster: the console has no login"
            );
        }
        let names: BTreeSet<String> =
            self.allow_host.iter().chain([host]).map(|name| name.to_lowercase()).collect();
        let pages = Pages::new(ConsoleSettings {
            bootstrap,
            client,
            login,
            credentials: None,
            read_only: self.read_only,
            hosts: if has_login { Hosts::Any } else { Hosts::Local(names) },
            is_https: self.behind_proxy,
            masking,
            registry,
            clients: None,
            history: None,
            streams: None,
            lab: self.lab_dir.clone().map(console::lab).transpose()?,
            has_metrics: false,
        });
        pages.check()?;
        tokio::select! {
            served = self.serve(pages) => served,
            () = first_contact => Ok(()),
        }
    }

    fn masking(&self) -> Result<Masking> {
        let given =
            Masking::parse(&self.mask.join("\n")).map_err(|wrong| Usage(format!("--mask: {wrong}")))?;
        let Some(path) = &self.mask_file else { return Ok(given) };
        Ok(given.and(console::rules_of(path).map_err(|wrong| Usage(format!("--mask-file: {wrong:#}")))?))
    }

    async fn serve(&self, pages: Pages) -> Result<()> {
        let mut signals = EndSignals::listen()?;
        let listening = HttpSockets::bind(&self.listen.0)?;
        let (stopping, is_stopping) = watch::channel(false);
        let routes =
            Router::new().merge(http::health::routes(is_stopping, Box::new(|| true))).merge(pages.router());
        let server = listening.serve(routes, None, Some(pages));
        let Some(url) = server.urls.first() else { bail!("the address has no socket") };
        // On standard error and not logged, because the log level of tools is warn.
        print_line(&format!("The console is at {url}"));
        signals.next().await;
        stopping.send_replace(true);
        server.stop().await;
        Ok(())
    }
}

/// Connects to a broker until one answers, so that a wrong address is reported at the start, and not only by
/// the pages. Never returns. Without a login in the client settings, an accepted TCP connection suffices,
/// because users bring their own login.
async fn first_contact(bootstrap: Vec<String>, mut client: Properties) {
    let (options, has_login) = match ConnectionOptions::take(&mut client, "console") {
        Ok(options) => (options, true),
        Err(_) => (ConnectionOptions::default(), false),
    };
    let options = ConnectionOptions { waits: Some(WAITS.clone()), ..options };
    loop {
        match Cluster::connect(&bootstrap, &options).await {
            Err(ClientError::ConnectFailed(_) | ClientError::ConnectTimedOut(_)) => {}
            Err(error) if has_login && error.is_retriable() => {}
            _ => std::future::pending().await,
        }
        tokio::time::sleep(CONTACT_INTERVAL).await;
    }
}

fn mechanism(name: &str) -> Result<Mechanism> {
    Mechanism::of(name).ok_or_else(|| {
        let problem = format!(
            "sasl.mechanism={name} takes no name and password: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or --no-login"
        );
        Usage(problem).into()
    })
}

fn print_line(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
