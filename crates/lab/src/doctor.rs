//! The doctor: examines the host and the brokers' configuration for problems with event rate, latency and
//! durability, with reasons. The doctor changes nothing.

mod brokers;
mod host;
mod network;
mod paths;
mod storage;
mod text;
mod volumes;

pub use storage::DiskTest;
pub use text::text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Fine,
    /// May matter for some loads.
    Note,
    /// Costs events, latency or durability.
    Warning,
}

/// A finding, with its reason and advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Location: `host`, or brokers such as `broker 1`.
    pub place: String,
    /// The subject, under its common name, such as `vm.dirty_ratio`.
    pub subject: String,
    /// The value found.
    pub found: String,
    /// Why it matters.
    pub why: String,
    /// Advice; empty if there is no problem.
    pub right: String,
    pub severity: Severity,
}

impl Advice {
    /// A finding without a problem; [`Advice::note`] and [`Advice::warning`] change that.
    fn fine(place: &str, subject: &str, found: impl Into<String>, why: &str) -> Advice {
        Advice {
            place: place.to_owned(),
            subject: subject.to_owned(),
            found: found.into(),
            why: why.to_owned(),
            right: String::new(),
            severity: Severity::Fine,
        }
    }

    fn note(self, right: impl Into<String>) -> Advice {
        Advice { severity: Severity::Note, right: right.into(), ..self }
    }

    fn warning(self, right: impl Into<String>) -> Advice {
        Advice { severity: Severity::Warning, right: right.into(), ..self }
    }
}

/// A cluster to examine: bootstrap servers and client properties.
pub type Brokers<'a> = (&'a [String], &'a BTreeMap<String, String>);

/// Examines this host, with the disk that holds `data_dir`, and the brokers of a cluster. Writes to that
/// directory as the test says, and removes it.
pub fn examine<'a>(
    data_dir: &Path,
    test: DiskTest,
    brokers: Option<Brokers<'a>>,
) -> BoxFuture<'a, Vec<Advice>> {
    Box::pin(examine_all(data_dir.to_owned(), test, brokers))
}

/// Examines this host without its disks, for about a second. Writes nothing.
pub async fn examine_host() -> Vec<Advice> {
    let before = host::cpu_ticks();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let examined = tokio::task::spawn_blocking(move || {
        let mut advice = network::examine();
        advice.extend(host::examine(before));
        advice
    });
    examined.await.expect("reading the host does not panic")
}

async fn examine_all(data_dir: PathBuf, test: DiskTest, brokers: Option<Brokers<'_>>) -> Vec<Advice> {
    let host = tokio::task::spawn_blocking(move || {
        let before = host::cpu_ticks();
        let mut advice = storage::examine(&data_dir, &test);
        advice.extend(volumes::examine(&data_dir));
        advice.extend(network::examine());
        advice.extend(host::examine(before));
        advice
    });
    let mut advice = host.await.expect("reading the host does not panic");
    if let Some((servers, properties)) = brokers {
        advice.extend(brokers::examine(servers, properties).await);
        advice.extend(paths::examine(servers, properties).await);
    }
    advice
}

/// A number of bytes for people, in units of 1024.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let amount = format!("{amount:.1}");
    format!("{} {}", amount.strip_suffix(".0").unwrap_or(&amount), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(size(100), "100 bytes");
        assert_eq!(size(102_400), "100 KB");
        assert_eq!(size(1_610_612_736), "1.5 GB");
        assert_eq!(size(8 << 40), "8 TB");
    }

    #[tokio::test]
    async fn this_host_is_examined_without_a_trace() {
        let dir = tempfile::tempdir().expect("a directory");
        let advice = examine(dir.path(), DiskTest::short(), None).await;
        for subject in ["write speed", "file system", "vm.dirty_ratio", "RLIMIT_NOFILE", "steal"] {
            assert!(advice.iter().any(|one| one.subject == subject), "{subject} is missing in {advice:#?}");
        }
        for one in &advice {
            assert!(!one.found.is_empty() && !one.why.is_empty(), "{one:?}");
            assert_eq!(one.right.is_empty(), one.severity == Severity::Fine, "{one:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[tokio::test]
    async fn a_cluster_that_is_not_there_is_a_finding() {
        let dir = tempfile::tempdir().expect("a directory");
        let servers = ["127.0.0.1:1".to_owned()];
        let advice = examine(dir.path(), DiskTest::short(), Some((&servers, &BTreeMap::new()))).await;
        let last = advice.last().expect("findings");
        assert_eq!((last.place.as_str(), last.severity), ("brokers", Severity::Warning), "{last:?}");
    }
}
