//! `broker log-level`: the loggers of a broker (KIP-412).

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::{Admin, ConfigChange, ConfigOperation, ConfigResource};

use crate::config::alter;
use crate::connect::Connect;
use crate::failure::Usage;
use crate::output::{Column, CommandOutput};

/// List and set the levels of a broker's loggers.
#[derive(Subcommand, Debug)]
pub enum LogLevel {
    List(List),
    Set(Set),
    Remove(Remove),
}

impl LogLevel {
    /// Runs the command.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        match self {
            LogLevel::List(list) => list.run().await,
            LogLevel::Set(set) => set.run().await,
            LogLevel::Remove(remove) => remove.run().await,
        }
    }
}

/// List the loggers of a broker with their levels.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// The broker's id.
    broker: i32,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 2] = [("LOGGER", "logger"), ("LEVEL", "level")];

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let resource = ConfigResource::BrokerLogger(self.broker);
        let mut described = admin.describe_configs(std::slice::from_ref(&resource)).await?;
        let entries = described.remove(&resource).transpose()?.unwrap_or_default();
        let rows: Vec<serde_json::Value> = entries
            .into_iter()
            .map(|(logger, entry)| json!({ "logger": logger, "level": entry.value }))
            .collect();
        self.output.rows(&COLUMNS, &rows)
    }
}

/// Set levels of a broker's loggers until it stops.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg broker log-level set 1 kafka.server=DEBUG")]
pub struct Set {
    #[command(flatten)]
    connect: Connect,
    /// The broker's id.
    broker: i32,
    /// The levels: TRACE, DEBUG, INFO, WARN, ERROR or FATAL.
    #[arg(required = true, value_name = "LOGGER=LEVEL", value_parser = assignment)]
    levels: Vec<ConfigChange>,
    #[command(flatten)]
    output: CommandOutput,
}

fn assignment(text: &str) -> Result<ConfigChange, Usage> {
    match text.split_once('=') {
        Some((logger, level)) if !logger.is_empty() && !level.is_empty() => Ok(ConfigChange {
            name: logger.to_owned(),
            operation: ConfigOperation::Set(level.to_uppercase()),
        }),
        _ => Err(Usage(format!("{text:?} is not LOGGER=LEVEL: expected for example kafka.server=DEBUG"))),
    }
}

impl Set {
    async fn run(&self) -> anyhow::Result<()> {
        let resource = ConfigResource::BrokerLogger(self.broker);
        alter(&self.connect, &self.output, resource, self.levels.clone(), false).await
    }
}

/// Put levels of a broker's loggers back to those of its start.
#[derive(Args, Debug)]
pub struct Remove {
    #[command(flatten)]
    connect: Connect,
    /// The broker's id.
    broker: i32,
    /// The loggers to put back.
    #[arg(required = true, value_name = "LOGGER")]
    loggers: Vec<String>,
    #[command(flatten)]
    output: CommandOutput,
}

impl Remove {
    async fn run(&self) -> anyhow::Result<()> {
        let delete = |name: &String| ConfigChange { name: name.clone(), operation: ConfigOperation::Delete };
        let changes = self.loggers.iter().map(delete).collect();
        let resource = ConfigResource::BrokerLogger(self.broker);
        alter(&self.connect, &self.output, resource, changes, false).await
    }
}
