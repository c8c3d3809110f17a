//! Cluster access for the stages: address, settings and shared connections. Settings have the names of
//! Kafka's own clients or of librdkafka.

mod clusters;
mod copies;
mod creation;
mod ends;
mod opening;
mod outlet;
mod partitions;
mod reports;
mod settings;
mod table;
mod transactions;
mod writer;

use std::path::Path;

use thalweg_client::{ConnectionOptions, Properties, Security};

use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings};
use crate::disk;
use crate::stage::{KafkaFailed, StageError};

pub use clusters::report_waits_to;
pub use creation::{CreationFailed, admin, create_topics, wait_for_topic};
pub use ends::Ends;
pub use opening::Opening;
pub use outlet::{PendingMessages, TopicProducer};
pub use partitions::partitions_of;
pub use settings::{ClientSettings, consumer, producer};
pub use table::Table;
pub use transactions::Transactions;
pub use writer::TopicWriter;

/// Size limit of a properties file.
const PROPERTIES_BYTES_MAX: usize = 1 << 20;
/// The common part of errors for missing rights: `TOPIC_AUTHORIZATION_FAILED` and so on.
pub const DENIED: &str = "_AUTHORIZATION_FAILED";
/// The command that grants rights.
const GRANT: &str = "thalweg security acl add";
/// The default `client.id`.
const CLIENT_ID: &str = "thalweg-stream";

/// The bootstrap option.
pub const BOOTSTRAP: OptionSpec = OptionSpec {
    name: "bootstrap",
    takes: OptionType::Brokers,
    default: OptionDefault::Value("localhost:9092"),
    summary: "The bootstrap servers. Without it, `stream run` uses those of `THALWEG_BOOTSTRAP_SERVER` or of the profile, if there are any, and a host its own cluster.",
};

/// The properties option.
pub const PROPERTIES: OptionSpec = OptionSpec {
    name: "properties",
    takes: OptionType::Name,
    default: OptionDefault::None,
    summary: "A file of client properties, with the names of Kafka's own clients (`security.protocol`, `sasl.jaas.config`, `fetch.max.bytes`) or of librdkafka. They override the other options.",
};

/// The cluster of streams, apart from their kafka stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The bootstrap servers.
    pub bootstrap: String,
    /// A file of client properties, like `--properties` of a kafka stage.
    pub properties: Option<String>,
}

impl Cluster {
    /// The bootstrap servers and client settings for this program's own clients. Reads the file each time, so
    /// that certificates and passwords can be renewed.
    pub fn connection(&self, client_id: &str) -> Result<(Vec<String>, ConnectionOptions), StageError> {
        let mut properties = self.properties.as_deref().map(read).transpose()?.unwrap_or_default();
        // The file overrides other sources, as for a stage.
        properties.set_default("bootstrap.servers", &self.bootstrap);
        let wrong = |error: &dyn std::error::Error| {
            failed(reading(self.properties.as_deref().unwrap_or_default()), error)
        };
        let bootstrap = properties.take_bootstrap_servers().map_err(|error| wrong(&error))?;
        let options = ConnectionOptions {
            client_id: client_id.to_owned(),
            security: Security::take(&mut properties).map_err(|error| wrong(&error))?,
            ..ConnectionOptions::default()
        };
        Ok((bootstrap, options))
    }

    /// A client that connects with its first request and shares connections with stages of the same settings.
    /// Call it on a runtime.
    pub(crate) fn client(&self) -> Result<thalweg_client::Cluster, StageError> {
        Ok(settings::admin(self)?.cluster())
    }

    /// The settings for a kafka stage on this cluster. The options must be valid for the stage.
    pub(crate) fn settings(&self, module: &'static Module, options: &[(&str, &str)]) -> Settings {
        let settings = Settings::read(module, |name| match name {
            "bootstrap" => Some(&self.bootstrap),
            "properties" => self.properties.as_deref(),
            _ => options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value),
        });
        settings.unwrap_or_else(|_| panic!("these are valid options of kafka"))
    }
}

/// The headers option.
pub const MODE: OptionSpec = OptionSpec {
    name: "mode",
    takes: OptionType::Choice(&["headers", "raw"]),
    default: OptionDefault::Value("headers"),
    summary: "`headers` keeps record headers, `raw` drops them.",
};

/// True if [`MODE`] is `headers`.
pub fn with_headers(settings: &Settings) -> bool {
    settings.text("mode") == "headers"
}

fn reading(path: &str) -> String {
    format!("Reading the properties in {path}")
}

fn read(path: &str) -> Result<Properties, StageError> {
    let bytes = disk::read_whole(Path::new(path), PROPERTIES_BYTES_MAX)?;
    let properties = Properties::parse(&String::from_utf8_lossy(&bytes));
    properties.resolve().map_err(|error| failed(reading(path), error))
}

/// The reason of an error, with the command that grants a missing right. `right` are the options of that
/// command.
pub fn with_grant(reason: impl ToString, cluster: &thalweg_client::Cluster, right: &str) -> String {
    let reason = reason.to_string();
    // An inner action may have included the command.
    let is_denied = reason.contains(DENIED) && !reason.contains(GRANT);
    match cluster.options().security.principal().filter(|_| is_denied) {
        Some(user) => {
            format!("{reason}: {user} lacks a right; thalweg security acl add {user} {right} grants it")
        }
        None => reason,
    }
}

/// An error: the attempted action and its cause.
pub fn failed(action: impl Into<String>, reason: impl ToString) -> StageError {
    KafkaFailed { action: action.into(), reason: reason.to_string() }.into()
}
