//! Client settings of a perf tool: a file, overridden by single settings, overridden by options.

use std::path::Path;

use thalweg_client::Properties;

use super::PerfError;

/// The environment variable with the default bootstrap servers of all tools.
const BOOTSTRAP_SERVER: &str = "THALWEG_BOOTSTRAP_SERVER";
/// The bootstrap server if nothing else is given.
const DEFAULT_BOOTSTRAP_SERVER: &str = "localhost:9092";

/// Collects settings; later ones win.
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
    Ok(gathered.resolve()?)
}

/// Logs unused settings, which Kafka's clients may know, but which have no effect here.
pub(super) fn warn_about_rest(properties: &Properties) {
    for key in properties.rest() {
        tracing::warn!("The setting {key} is unknown and has no effect");
    }
}
