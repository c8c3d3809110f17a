//! The client's settings for a perf tool: a file, then single ones, then the options that stand above both.

use std::path::Path;

use thalweg_client::Properties;

use super::PerfError;

/// The variable that says where all tools of Thalweg connect to.
const BOOTSTRAP_SERVER: &str = "THALWEG_BOOTSTRAP_SERVER";
/// Where a tool connects to when nothing says so.
const DEFAULT_BOOTSTRAP_SERVER: &str = "localhost:9092";

/// Gathers settings; the later ones win.
pub(super) fn gather(
    file: Option<&Path>,
    properties: &[String],
    bootstrap_server: Option<&str>,
) -> Result<Properties, PerfError> {
    let mut gathered = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| PerfError::File { path: path.to_owned(), source })?;
            Properties::parse(&text)
        }
        None => Properties::new(),
    };
    for property in properties {
        gathered.set_text(property)?;
    }
    if let Some(servers) = bootstrap_server {
        gathered.set("bootstrap.servers", servers);
    }
    let otherwise = std::env::var(BOOTSTRAP_SERVER).ok().filter(|servers| !servers.is_empty());
    gathered.set_default("bootstrap.servers", otherwise.as_deref().unwrap_or(DEFAULT_BOOTSTRAP_SERVER));
    Ok(gathered)
}

/// Says which settings nobody took. They are known to Kafka's clients perhaps, and without effect here.
pub(super) fn warn_about_rest(properties: &Properties) {
    for key in properties.rest() {
        tracing::warn!("The setting {key} is not known here and has no effect");
    }
}
