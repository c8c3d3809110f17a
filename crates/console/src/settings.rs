//! Settings of a console.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_browse::{Masking, Registry};
use thalweg_client::{ConnectionOptions, InvalidSetting, Properties};
use thalweg_stream::host::rest::Starting;

use crate::clients::ClientSource;
use crate::history::HistorySource;

/// Maximum bytes of a request body.
pub const BODY_MAX: usize = 4 << 20;
/// Request timeout in milliseconds, short because a person waits.
const REQUEST_TIMEOUT_MS: &str = "15000";
/// Connect timeout in milliseconds.
const CONNECT_TIMEOUT_MS: &str = "5000";
/// Client settings with credentials, replaced by the login of a person.
const CREDENTIALS: [&str; 5] =
    ["sasl.jaas.config", "sasl.username", "sasl.password", "sasl.login.callback.handler.class", "client.id"];

/// Looks up the current credential of a user for a mechanism, as bytes unique to the credential; none without
/// one. Cheap, because each request calls it.
pub type Credentials = Arc<dyn Fn(&str, Mechanism) -> Option<Vec<u8>> + Send + Sync>;

/// Settings of a console.
#[derive(Clone)]
pub struct ConsoleSettings {
    /// Bootstrap servers of the cluster.
    pub bootstrap: Vec<String>,
    /// Client settings for the cluster.
    pub client: Properties,
    /// The login method.
    pub login: Login,
    /// Lookup of user credentials, if the console runs beside a broker that has them.
    pub credentials: Option<Credentials>,
    /// True if all changes are refused.
    pub read_only: bool,
    /// Host names by which browsers may call the console.
    pub hosts: Hosts,
    /// True if browsers reach the console by HTTPS only.
    pub is_https: bool,
    /// The clients of the broker, if the console runs beside one.
    pub clients: Option<ClientSource>,
    /// The last hour of the broker, if the console runs beside one that keeps it.
    pub history: Option<HistorySource>,
    /// The streams of this node, if it hosts streams.
    pub streams: Option<Starting>,
    /// Masks for messages.
    pub masking: Masking,
    /// The schema registry that decodes keys and values.
    pub registry: Option<Arc<Registry>>,
    /// The lab, if enabled.
    pub lab: Option<LabSettings>,
    /// True if `/metrics` of the same server has content.
    pub has_metrics: bool,
}

/// Settings of the lab.
#[derive(Clone, Debug)]
pub struct LabSettings {
    /// This program, whose `lab` command runs as a separate process.
    pub program: PathBuf,
    /// The directory of results, one subdirectory per run.
    pub directory: PathBuf,
}

/// The login method.
#[derive(Clone, Debug)]
pub enum Login {
    /// No login: everyone has the rights of the client settings.
    None,
    /// A name and a password, checked by the cluster with the first mechanism that accepts them.
    Password(Vec<Mechanism>),
    /// Login is impossible, with the reason as a sentence.
    Impossible(String),
}

/// A SASL mechanism with a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

impl Mechanism {
    /// Kafka's name of the mechanism.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    /// Parses Kafka's name, case-insensitive.
    pub fn of(name: &str) -> Option<Mechanism> {
        [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512]
            .into_iter()
            .find(|mechanism| mechanism.name().eq_ignore_ascii_case(name))
    }
}

/// Host names by which browsers may call a console. A page of another site can point its own name to this
/// machine (DNS rebinding), so without logins such names must be refused.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Any name, because requests carry a login that other sites lack.
    Any,
    /// `localhost`, IP addresses, and these names.
    Local(BTreeSet<String>),
}

impl ConsoleSettings {
    /// Connection settings without a person's login.
    pub(crate) fn options(&self) -> Result<ConnectionOptions, InvalidSetting> {
        take(self.client.clone())
    }

    /// Connection settings with a person's login.
    pub(crate) fn options_for(
        &self,
        mechanism: Mechanism,
        user: &str,
        password: &str,
    ) -> Result<ConnectionOptions, InvalidSetting> {
        take(self.properties_for(mechanism, user, password))
    }

    /// Client settings with a person's login.
    pub(crate) fn properties_for(&self, mechanism: Mechanism, user: &str, password: &str) -> Properties {
        let mut client = self.client.clone();
        for key in CREDENTIALS {
            client.take(key);
        }
        client.set("sasl.mechanism", mechanism.name());
        client.set("sasl.username", user);
        client.set("sasl.password", password);
        client
    }
}

#[cfg(test)]
impl ConsoleSettings {
    /// Settings of a console without a login, for unit tests. No cluster is at its address.
    pub(crate) fn without_login() -> ConsoleSettings {
        ConsoleSettings {
            bootstrap: vec!["localhost:1".to_owned()],
            client: Properties::new(),
            login: Login::None,
            credentials: None,
            read_only: false,
            hosts: Hosts::Any,
            is_https: false,
            clients: None,
            history: None,
            streams: None,
            masking: Masking::default(),
            registry: None,
            lab: None,
            has_metrics: false,
        }
    }
}

fn take(mut client: Properties) -> Result<ConnectionOptions, InvalidSetting> {
    client.set_default("request.timeout.ms", REQUEST_TIMEOUT_MS);
    client.set_default("socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS);
    ConnectionOptions::take(&mut client, "console")
}
