//! `broker api-versions`: the requests that brokers serve.

use clap::Args;
use serde_json::json;
use thalweg_client::Admin;
use thalweg_wire::ApiKey;

use crate::connect::Connect;
use crate::outcomes::fail_with;
use crate::output::{Column, CommandOutput};

/// Show which versions of which requests brokers serve, and which one this program uses.
#[derive(Args, Debug)]
pub struct ApiVersions {
    #[command(flatten)]
    connect: Connect,
    /// Brokers to show [default: all].
    #[arg(value_name = "ID")]
    brokers: Vec<i32>,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 6] = [
    ("BROKER", "broker"),
    ("KEY", "key"),
    ("API", "api"),
    ("MIN", "min"),
    ("MAX", "max"),
    ("USED-HERE", "used"),
];

impl ApiVersions {
    /// Prints a row per broker and API; fails if a broker does not answer.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let cluster = admin.cluster();
        let all: Vec<i32> = cluster.metadata().brokers.keys().copied().collect();
        let brokers = if self.brokers.is_empty() { &all } else { &self.brokers };
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for &id in brokers {
            let connection = match cluster.broker(id).await {
                Ok(connection) => connection,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            let versions = connection.versions();
            rows.extend(ApiKey::ALL.iter().filter_map(|&key| {
                let (min, max) = versions.range(key)?;
                Some(json!({
                    "broker": id,
                    "key": key as i16,
                    "api": format!("{key:?}"),
                    "min": min,
                    "max": max,
                    "used": versions.newest(key, i16::MAX),
                }))
            }));
        }
        self.output.rows(&COLUMNS, &rows)?;
        fail_with(errors)
    }
}
