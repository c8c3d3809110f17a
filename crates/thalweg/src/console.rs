//! The console of a broker: its connection to this broker, and the login of its users. Planned from the
//! settings before anything starts, so that wrong settings are reported first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use thalweg_broker::Server;
use thalweg_browse::{Masking, Registry};
use thalweg_cli::program::binary;
use thalweg_client::Properties;
use thalweg_config::{
    BrokerConfig, ConsoleSettings as Settings, HttpSettings, Listener, ListenerSettings, SecurityProtocol,
    TlsKeys,
};
use thalweg_console::{
    ClientConnection, ClientSource, Console, ConsoleSettings, Credentials, Guard, HistorySource, Hosts,
    LabSettings, Login, Mechanism,
};
use thalweg_net::OpenPeer;
use thalweg_security::sasl::Mechanism as Sasl;
use thalweg_security::sasl::scram::Hash;
use thalweg_stream::host::rest::Starting;

/// Prefix of the trust store settings.
const TRUST: &str = "ssl.truststore.";
/// Maximum number of connections in the list of clients.
const CONNECTIONS_MAX: usize = 10_000;
/// Characters shown of the name and the version of a client's library.
const SOFTWARE_SHOWN: usize = 100;

/// A console that is not started yet.
pub struct Plan {
    /// The name of the broker's listener that the console connects to.
    pub listener: String,
    client: Properties,
    login: Login,
    is_read_only: bool,
    hosts: Hosts,
    is_https: bool,
    masking: Masking,
    registry: Option<Arc<Registry>>,
    lab: Option<LabSettings>,
}

impl Plan {
    /// The console of a node with these settings; none without HTTP listener, without broker role, or if
    /// disabled. `trusted` has client settings that trust this node, if the node has made its own
    /// certificates.
    pub fn of(config: &BrokerConfig, trusted: &BTreeMap<String, String>) -> Result<Option<Plan>> {
        let Some(http) = config.http.as_listener() else { return Ok(None) };
        let listeners = &config.listeners.broker;
        let with_login = listeners.iter().find(|listener| listener.protocol.has_sasl());
        let Some(listener) = with_login.or(listeners.first()) else { return Ok(None) };
        if !config.console.enabled || !config.node.roles.broker {
            return Ok(None);
        }
        let mut client = match &config.console.client_config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("{}: cannot read {path}", Settings::client_config.name()))?;
                Properties::parse(&text).resolve().with_context(|| path.clone())?
            }
            None => trust(config, listener, trusted),
        };
        client.take("bootstrap.servers");
        client.set("security.protocol", listener.protocol.name());
        let login = login(config, listener, &http, &client);
        let hosts = match login {
            Login::Password(_) => Hosts::Any,
            Login::None | Login::Impossible(_) if config.http.has_login => Hosts::Any,
            Login::None | Login::Impossible(_) => Hosts::Local(names(config, &http)),
        };
        Ok(Some(Plan {
            listener: listener.name.clone(),
            client,
            login,
            is_read_only: config.console.read_only,
            hosts,
            is_https: config.http.has_tls,
            masking: masking(&config.console)?,
            registry: registry(&config.console)?,
            lab: config.console.lab_directory.clone().map(lab).transpose()?,
        }))
    }

    /// The console, once the address of its listener is known.
    pub fn start(
        self,
        address: String,
        streams: Option<Starting>,
        credentials: Credentials,
        clients: ClientSource,
        history: Option<HistorySource>,
    ) -> Console {
        Console::new(ConsoleSettings {
            credentials: Some(credentials),
            bootstrap: vec![address],
            client: self.client,
            login: self.login,
            read_only: self.is_read_only,
            hosts: self.hosts,
            is_https: self.is_https,
            masking: self.masking,
            registry: self.registry,
            clients: Some(clients),
            history,
            streams,
            lab: self.lab,
            has_metrics: true,
        })
    }
}

/// The stored credentials of a broker's users, from its metadata. The users of PLAIN are in the broker's
/// settings, which stay the same until it stops.
pub fn credentials(server: &Server) -> Credentials {
    let broker = Arc::clone(&server.broker);
    Arc::new(move |user, mechanism| {
        let hash = match mechanism {
            Mechanism::Plain => return Some(Vec::new()),
            Mechanism::ScramSha256 => Hash::Sha256,
            Mechanism::ScramSha512 => Hash::Sha512,
        };
        let image = broker.image();
        let found = image.scram_credentials().get(&(user.to_owned(), hash.code()))?;
        Some([&found.salt[..], &found.stored_key[..]].concat())
    })
}

/// The connections to a broker that has just started, for its console.
pub fn clients(server: &Server) -> ClientSource {
    let broker = Arc::clone(&server.broker);
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let connection = move |OpenPeer { peer, open_for, idle_for }: OpenPeer| {
        let software = peer.software.get();
        ClientConnection {
            client: peer.client_id.get().cloned(),
            address: peer.address.to_string(),
            principal: peer.identified.get().map(ToString::to_string),
            software: software.map(|software| shortened(&software.name)),
            version: software.map(|software| shortened(&software.version)),
            listener: peer.listener.clone(),
            tls: peer.tls.is_some(),
            open_ms: ms(open_for),
            idle_ms: ms(idle_for),
        }
    };
    let (node_id, started_ms) = (broker.node_id.0, broker.clock.now_ms());
    let read = move || {
        let (peers, more) = broker.connections.peers(CONNECTIONS_MAX);
        (peers.into_iter().map(connection).collect(), more)
    };
    ClientSource { broker: node_id, started_ms, read: Arc::new(read) }
}

/// The last hour of a broker, for its console; none if the broker keeps none.
pub fn history(server: &Server) -> Option<HistorySource> {
    let history = Arc::clone(server.history.as_ref()?);
    Some(HistorySource { broker: server.broker.node_id.0, history })
}

/// The beginning of a name that a client has sent.
fn shortened(name: &str) -> String {
    name.chars().take(SOFTWARE_SHOWN).collect()
}

/// Protection of the routes beside the console: checks of their requests, and masking of messages.
#[derive(Default)]
pub struct RouteProtection {
    /// None without a listener.
    pub guard: Option<Guard>,
    /// The rules that hide parts of messages.
    pub masking: Masking,
}

impl RouteProtection {
    /// By the settings of a node. Without a login per request and without TLS, host names are checked:
    /// another site could point its own name here and use a visitor's browser (DNS rebinding).
    pub fn of(config: &BrokerConfig) -> Result<RouteProtection> {
        let Some(http) = config.http.as_listener() else { return Ok(RouteProtection::default()) };
        let is_safe = config.http.has_login || config.http.has_tls;
        let hosts = if is_safe { Hosts::Any } else { Hosts::Local(names(config, &http)) };
        let guard = Some(Guard::new(hosts, config.console.read_only));
        Ok(RouteProtection { guard, masking: masking(&config.console)? })
    }
}

/// The rules in the settings and in the file that they name.
fn masking(settings: &Settings) -> Result<Masking> {
    let given = settings.masking.as_deref().unwrap_or_default();
    let given = Masking::parse(given).with_context(|| Settings::masking.name())?;
    let Some(path) = &settings.masking_file else { return Ok(given) };
    Ok(given.and(rules_of(path).with_context(|| Settings::masking_file.name())?))
}

/// The masking rules of a file.
pub fn rules_of(path: &Path) -> Result<Masking> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Masking::parse(&text).with_context(|| path.display().to_string())
}

fn registry(settings: &Settings) -> Result<Option<Arc<Registry>>> {
    let Some(url) = &settings.registry_url else { return Ok(None) };
    if url.contains('@') {
        bail!(
            "{}: a login does not belong in the address, which everyone who may describe the configuration sees; set {}",
            Settings::registry_url.name(),
            Settings::registry_user.name()
        );
    }
    let login = settings.registry_user.as_ref().map(|user| user.0.as_str());
    let registry = Registry::with_login(url, login).with_context(|| Settings::registry_url.name())?;
    Ok(Some(Arc::new(registry)))
}

/// The settings of a lab that stores its results in `directory`.
pub fn lab(directory: PathBuf) -> Result<LabSettings> {
    Ok(LabSettings { program: binary()?, directory: std::path::absolute(directory)? })
}

/// Clients use the listener's trust store, unless this node has made its own certificates.
fn trust(config: &BrokerConfig, listener: &Listener, trusted: &BTreeMap<String, String>) -> Properties {
    let mut client = Properties::new();
    for (key, value) in trusted {
        client.set(key, value);
    }
    if trusted.is_empty() {
        let tls = config.tls_of(listener).unwrap_or_default();
        for (key, value) in tls.iter().filter(|(key, _)| key.starts_with(TRUST)) {
            client.set(key, value);
        }
    }
    client
}

fn login(config: &BrokerConfig, listener: &Listener, http: &Listener, client: &Properties) -> Login {
    if listener.protocol.has_sasl() {
        let mechanisms = config.sasl.get(&listener.name).map(|sasl| &sasl.mechanisms);
        let has = |mechanism| mechanisms.is_some_and(|enabled| enabled.contains(&mechanism));
        let known = [
            (Sasl::Scram(Hash::Sha512), Mechanism::ScramSha512),
            (Sasl::Scram(Hash::Sha256), Mechanism::ScramSha256),
            (Sasl::Plain, Mechanism::Plain),
        ];
        let of_password: Vec<Mechanism> =
            known.into_iter().filter(|(sasl, _)| has(*sasl)).map(|(_, mechanism)| mechanism).collect();
        if of_password.is_empty() {
            return Login::Impossible(format!(
                "The listener {} of this broker takes no name and password, which is all that the console can pass on. Enable \
                 SCRAM-SHA-512 there (sasl.enabled.mechanisms).",
                listener.name
            ));
        }
        if !http.protocol.has_tls() && http.is_reachable() {
            return Login::Impossible(format!(
                "Passwords would be sent in plain text to {http}: set {}=SSL with a certificate (ssl.keystore.location), or let \
                 the console listen on localhost.",
                HttpSettings::has_tls.name()
            ));
        }
        return Login::Password(of_password);
    }
    let tls = config.tls_of(listener).unwrap_or_default();
    let requires_certificate = tls.get(TlsKeys::client_auth.name()).is_some_and(|auth| auth == "required");
    let has_certificate = client.rest().any(|key| key.starts_with("ssl.keystore."));
    if listener.protocol == SecurityProtocol::Ssl && requires_certificate && !has_certificate {
        return Login::Impossible(format!(
            "The listener {} of this broker knows its clients by their certificates, and the console cannot pass a browser's \
             certificate on. Add a listener with SASL ({}), so that people log in with a name and a password. Or set {} to a file \
             with the console's own certificate, by which everyone who may use it acts.",
            listener.name,
            ListenerSettings::listeners.name(),
            Settings::client_config.name()
        ));
    }
    Login::None
}

/// The host names of this machine.
fn names(config: &BrokerConfig, http: &Listener) -> BTreeSet<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let given = config.console.hosts.iter().chain(&http.host).map(|host| host.to_lowercase());
    let advertised = config.listeners.advertised.iter().filter_map(|listener| listener.host.as_deref());
    let advertised = advertised.map(str::to_lowercase);
    given.chain(advertised).chain([machine]).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_config::ServerProperties;

    fn planned(settings: &[(&str, &str)]) -> Option<Plan> {
        let mut properties = ServerProperties::default();
        for (key, value) in settings {
            properties.set(key, value);
        }
        Plan::of(&BrokerConfig::new(&properties).expect("valid settings"), &BTreeMap::new()).expect("a plan")
    }

    const HTTP: (&str, &str) = ("http.listener", "localhost:9090");

    #[test]
    fn there_is_a_console_where_there_is_a_listener() {
        assert!(planned(&[]).is_none());
        assert!(planned(&[HTTP, ("thalweg.console.enabled", "false")]).is_none());
        let plan = planned(&[HTTP, ("thalweg.console.hosts", "Console.Example")]).expect("a console");
        assert!(matches!(plan.login, Login::None), "{:?}", plan.login);
        let Hosts::Local(names) = &plan.hosts else { panic!("any host") };
        assert!(names.contains("console.example") && names.contains("localhost"), "{names:?}");
    }

    #[test]
    fn a_rule_that_cannot_be_read_stops_the_start() {
        let of = |settings: &[(&str, &str)]| {
            let mut properties = ServerProperties::default();
            for (key, value) in settings {
                properties.set(key, value);
            }
            let config = BrokerConfig::new(&properties).expect("valid settings");
            Plan::of(&config, &BTreeMap::new()).err().map(|error| format!("{error:#}"))
        };
        let masking = "thalweg.console.masking";
        let url = "thalweg.console.schema.registry.url";
        assert_eq!(
            of(&[HTTP, (masking, "a: card; b: key, /x = hidden"), (url, "http://registry:8081")]),
            None
        );
        for (settings, expected) in [
            (
                [HTTP, (masking, "a: b; payments card")],
                "thalweg.console.masking: masking rule 1, \"payments card\"",
            ),
            (
                [HTTP, ("thalweg.console.masking.file", "/nowhere")],
                "thalweg.console.masking.file: cannot read /nowhere",
            ),
            ([HTTP, (url, "registry:8081")], "expected http://HOST:PORT"),
            ([HTTP, (url, "http://me:secret@registry")], "schema.registry.basic.auth.user.info"),
        ] {
            let error = of(&settings).expect("it is wrong");
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn people_log_in_where_the_broker_requires_a_password() {
        let listeners = ("listeners", "PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9094");
        let scram = ("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512");
        let plan = planned(&[HTTP, listeners, scram]).expect("a console");
        assert_eq!(plan.listener, "SASL_PLAINTEXT");
        let Login::Password(mechanisms) = &plan.login else { panic!("{:?}", plan.login) };
        assert_eq!(mechanisms, &[Mechanism::ScramSha512, Mechanism::ScramSha256]);
        assert!(matches!(plan.hosts, Hosts::Any));
        let open = planned(&[("http.listener", ":9090"), listeners, scram]).expect("a console");
        let Login::Impossible(reason) = &open.login else { panic!("{:?}", open.login) };
        assert!(reason.contains("plain text"), "{reason}");
    }

    #[test]
    fn a_certificate_of_a_browser_is_not_passed_on() {
        let listeners = ("listeners", "SSL://localhost:9092");
        let inter_broker = ("inter.broker.listener.name", "SSL");
        let plan =
            planned(&[HTTP, listeners, inter_broker, ("ssl.client.auth", "required")]).expect("a console");
        let Login::Impossible(reason) = &plan.login else { panic!("{:?}", plan.login) };
        assert!(
            reason.contains("certificate") && reason.contains("thalweg.console.client.config"),
            "{reason}"
        );
        let plan = planned(&[HTTP, listeners, inter_broker]).expect("a console");
        assert!(matches!(plan.login, Login::None));
    }
}
