//! What a console is started with.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_browse::{Masking, Registry};
use thalweg_client::{ConnectionOptions, InvalidSetting, Properties};
use thalweg_stream::host::rest::Starting;

/// The largest body of a request.
pub const BODY_MAX: usize = 4 << 20;
/// How long the cluster may take for an answer; a person waits.
const REQUEST_TIMEOUT_MS: &str = "15000";
/// How long connecting may take.
const CONNECT_TIMEOUT_MS: &str = "5000";
/// The settings that hold a login; a person's own takes their place.
const CREDENTIALS: [&str; 5] =
    ["sasl.jaas.config", "sasl.username", "sasl.password", "sasl.login.callback.handler.class", "client.id"];

/// What a user logs in with now by a mechanism, as bytes that differ from credential to credential; none if there is none. Cheap: it
/// is looked up for each request.
pub type Credentials = Arc<dyn Fn(&str, Mechanism) -> Option<Vec<u8>> + Send + Sync>;

/// What a console is started with.
#[derive(Clone)]
pub struct ConsoleSettings {
    /// The brokers to connect to first.
    pub bootstrap: Vec<String>,
    /// Client settings for the cluster.
    pub client: Properties,
    /// How people log in.
    pub login: Login,
    /// The credentials of users, where the console is beside a broker that has them.
    pub credentials: Option<Credentials>,
    /// Whether every change is refused.
    pub read_only: bool,
    /// The names by which browsers may call it.
    pub hosts: Hosts,
    /// Whether browsers reach it by HTTPS only.
    pub is_https: bool,
    /// The streams of this node, where it hosts some.
    pub streams: Option<Starting>,
    /// What is hidden of messages.
    pub masking: Masking,
    /// Decodes keys and values.
    pub registry: Option<Arc<Registry>>,
    /// The lab, if people may start it here.
    pub lab: Option<LabSettings>,
    /// What `/metrics` of the same server shows, if there is one.
    pub has_metrics: bool,
}

/// How the lab is run here.
#[derive(Clone, Debug)]
pub struct LabSettings {
    /// This program, whose `lab` runs as a separate process.
    pub program: PathBuf,
    /// The directory of results.
    pub directory: PathBuf,
}

/// How people log in.
#[derive(Clone, Debug)]
pub enum Login {
    /// Not at all: everyone acts as the client settings say.
    None,
    /// With a name and a password that the cluster checks, by the first of these mechanisms that takes them.
    Password(Vec<Mechanism>),
    /// It is impossible: the reason, as a sentence.
    Impossible(String),
}

/// A mechanism of SASL that takes a name and a password, by Kafka's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

impl Mechanism {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    /// The mechanism of a name.
    pub fn of(name: &str) -> Option<Mechanism> {
        [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512]
            .into_iter()
            .find(|mechanism| mechanism.name().eq_ignore_ascii_case(name))
    }
}

/// The names by which browsers may call a console. A page of another site can make its own name point to this machine (DNS
/// rebinding): without a login, such a name must be refused.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Any name: requests carry a login that other sites lack.
    Any,
    /// `localhost`, IP addresses, and these.
    Local(BTreeSet<String>),
}

impl ConsoleSettings {
    /// The settings of a connection without a login of a person.
    pub(crate) fn options(&self) -> Result<ConnectionOptions, InvalidSetting> {
        take(self.client.clone())
    }

    /// The settings of a connection with the login of a person.
    pub(crate) fn options_for(
        &self,
        mechanism: Mechanism,
        user: &str,
        password: &str,
    ) -> Result<ConnectionOptions, InvalidSetting> {
        take(self.properties_for(mechanism, user, password))
    }

    /// Client settings with the login of a person.
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

fn take(mut client: Properties) -> Result<ConnectionOptions, InvalidSetting> {
    client.set_default("request.timeout.ms", REQUEST_TIMEOUT_MS);
    client.set_default("socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS);
    ConnectionOptions::take(&mut client, "console")
}
