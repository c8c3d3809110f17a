//! What the stages that talk to a cluster share: which cluster, with which settings, and over which connections. Settings have
//! the names of Kafka's own clients, or librdkafka's for the same.

mod clusters;
mod opening;
mod outlet;
mod reports;
mod settings;
mod writer;

use std::path::Path;

use thalweg_client::{ConnectionOptions, Properties, Security};

use crate::declaration::{Absent, Module, OptionSpec, Settings, Takes};
use crate::disk;
use crate::stage::{KafkaFailed, StageError};

pub use opening::Opening;
pub use outlet::{Outlet, Waiting};
pub use settings::{ClientSettings, consumer, producer};
pub use writer::Writer;

/// The largest file of properties.
const PROPERTIES_BYTES_MAX: usize = 1 << 20;
/// `client.id`, where the properties name no other.
const CLIENT_ID: &str = "thalweg-stream";

/// Which cluster.
pub const BOOTSTRAP: OptionSpec = OptionSpec {
    name: "bootstrap",
    takes: Takes::Brokers,
    default: Absent::Value("localhost:9092"),
    summary: "The brokers to connect to first.",
};

/// With which properties.
pub const PROPERTIES: OptionSpec = OptionSpec {
    name: "properties",
    takes: Takes::Name,
    default: Absent::None,
    summary: "A file of client properties, by the names of Kafka's own clients (`security.protocol`, `sasl.jaas.config`, `fetch.max.bytes`) or by librdkafka's for the same. They override the other options.",
};

/// A cluster, for what streams need one for beside their kafka stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The brokers to connect to first.
    pub bootstrap: String,
    /// A file of client properties, as `--properties` of a kafka stage takes it.
    pub properties: Option<String>,
}

impl Cluster {
    /// The brokers to connect to first, and how, for the clients of this program. The file is read for each of them, so that a
    /// certificate or a password can be renewed.
    pub fn connection(&self, client_id: &str) -> Result<(Vec<String>, ConnectionOptions), StageError> {
        let mut properties = self.properties.as_deref().map(read).transpose()?.unwrap_or_default();
        // They override what is said elsewhere, as they do for a stage.
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

    /// A client of it, which connects with its first request and shares its connections with stages that have the same settings.
    /// To be called on a runtime.
    pub(crate) fn client(&self) -> Result<thalweg_client::Cluster, StageError> {
        Ok(settings::admin(self)?.cluster())
    }

    /// The settings of a kafka stage for it. The options are such as the stage takes.
    pub(crate) fn settings(&self, module: &'static Module, options: &[(&str, &str)]) -> Settings {
        let settings = Settings::read(module, |name| match name {
            "bootstrap" => Some(&self.bootstrap),
            "properties" => self.properties.as_deref(),
            _ => options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value),
        });
        settings.unwrap_or_else(|_| panic!("kafka takes these options"))
    }
}

/// Whether headers are carried.
pub const MODE: OptionSpec = OptionSpec {
    name: "mode",
    takes: Takes::Choice(&["headers", "raw"]),
    default: Absent::Value("headers"),
    summary: "Whether headers are carried, or only keys and values.",
};

/// What [`MODE`] says.
pub fn with_headers(settings: &Settings) -> bool {
    settings.text("mode") == "headers"
}

fn reading(path: &str) -> String {
    format!("Reading the properties in {path}")
}

fn read(path: &str) -> Result<Properties, StageError> {
    let bytes = disk::read_whole(Path::new(path), PROPERTIES_BYTES_MAX)?;
    Ok(Properties::parse(&String::from_utf8_lossy(&bytes)))
}

/// What was tried with a cluster, and what came of it.
pub fn failed(action: impl Into<String>, reason: impl ToString) -> StageError {
    KafkaFailed { action: action.into(), reason: reason.to_string() }.into()
}
