//! The doctor: reads the host and the brokers' configuration, and says what would matter for event rate, latency and
//! durability, and why. It changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It is as it should be.
    Fine,
    /// Worth knowing: it may matter for some loads.
    Note,
    /// It costs events, latency or durability.
    Warning,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Where: `host`, or a broker such as `broker 1`.
    pub place: String,
    /// What was looked at, by the name under which people look for it, such as `vm.dirty_ratio`.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// Why it matters.
    pub why: String,
    /// What would be right; empty where it is.
    pub right: String,
    /// How much it matters.
    pub severity: Severity,
}

/// A cluster to look at: where to connect first, and with which client properties.
pub type Brokers<'a> = (&'a [String], &'a BTreeMap<String, String>);

/// Examines this host, with the disk that holds `data_dir`, and the brokers of a cluster.
pub async fn examine(data_dir: &Path, brokers: Option<Brokers<'_>>) -> Vec<Advice> {
    let _ = (data_dir, brokers);
    Vec::new()
}

/// The findings as text of at most `width` columns, the grave ones first.
pub fn text(advice: &[Advice], width: usize) -> String {
    let _ = (advice, width);
    String::new()
}
