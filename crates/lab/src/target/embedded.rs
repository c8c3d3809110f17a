//! The target `embedded`: brokers of this binary as child processes. One at a time: clusters of Thalweg brokers do not
//! exist yet, and that is said rather than measured with less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{DirectoryFailed, InvalidBrokers, NoClustersYet, NotStarted, TargetError};
use super::process::Brokers;
use super::{Cluster, StartOptions, ports, properties, readiness};
use crate::result::TargetInfo;
use crate::workload::ClusterSpec;

/// How often a start is tried when somebody takes the port first.
const ATTEMPTS: u32 = 3;

/// Starts it.
pub(super) async fn start(
    spec: &ClusterSpec,
    options: &StartOptions,
) -> Result<(Cluster, Brokers), TargetError> {
    match spec.brokers {
        0 => return Err(InvalidBrokers { brokers: 0 }.into()),
        1 => {}
        brokers => return Err(NoClustersYet { brokers }.into()),
    }
    let settings = properties::merged(&spec.properties, 1)?;
    let program = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe()
            .map_err(|source| NotStarted { program: PathBuf::from("the program that runs"), source })?,
    };
    let mut attempt = 1;
    loop {
        match launch(spec, options, &settings, &program).await {
            Err(TargetError::BrokerDied(died)) if attempt < ATTEMPTS && is_port_taken(&died.log_tail) => {
                attempt += 1;
            }
            other => return other,
        }
    }
}

/// Whether a log says that somebody else listens on the port.
pub(super) fn is_port_taken(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}

async fn launch(
    spec: &ClusterSpec,
    options: &StartOptions,
    settings: &BTreeMap<String, String>,
    program: &Path,
) -> Result<(Cluster, Brokers), TargetError> {
    let mut brokers = Brokers::beginning(&options.work_dir, "embedded")?;
    for dir in properties::dirs_elsewhere(&spec.properties, brokers.dir()) {
        brokers.make_dir(dir)?;
    }
    let dir = brokers.dir().join("broker-1");
    std::fs::create_dir_all(&dir).map_err(|source| DirectoryFailed { path: dir.clone(), source })?;
    let port = ports::free(1)
        .map_err(|source| DirectoryFailed { path: PathBuf::from("a port of 127.0.0.1"), source })?[0];
    let address = format!("127.0.0.1:{port}");
    let data: Vec<String> =
        properties::log_dirs(&spec.properties, &dir).iter().map(|path| path.display().to_string()).collect();

    let mut arguments = vec!["serve".to_owned(), "--listen".to_owned(), address.clone()];
    arguments.extend(["--data-dir".to_owned(), data.join(",")]);
    for (key, value) in settings {
        arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
    }
    let log = dir.join("broker.log");
    let mut command = Command::new(program);
    command.args(&arguments).current_dir(&dir);
    brokers.spawn("broker-1", command, &log)?;
    let bootstrap = vec![address];
    readiness::wait(&brokers, &bootstrap, options.start_timeout).await?;

    let mut notes = properties::notes(&spec.properties, settings);
    notes.extend(complaints(&std::fs::read_to_string(&log).unwrap_or_default()));
    let cluster = Cluster {
        name: "embedded".to_owned(),
        bootstrap,
        client_properties: BTreeMap::new(),
        processes: brokers.processes(),
        data_dir: Some(brokers.dir().to_owned()),
        info: TargetInfo {
            kind: "embedded".to_owned(),
            version: version(program),
            command: std::iter::once(program.display().to_string()).chain(arguments).collect(),
            notes,
        },
    };
    Ok((cluster, brokers))
}

/// What the binary calls itself.
fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").output().ok();
    let line = said.and_then(|said| {
        String::from_utf8_lossy(&said.stdout).lines().next().map(|line| line.trim().to_owned())
    });
    line.filter(|line| !line.is_empty())
        .unwrap_or_else(|| concat!("thalweg ", env!("CARGO_PKG_VERSION")).to_owned())
}

/// The settings that the broker says it cannot follow: a reader must know that they were without effect.
fn complaints(log: &str) -> Vec<String> {
    log.lines()
        .filter(|line| line.contains("Unknown property") || line.contains("is not served"))
        .filter_map(|line| {
            let start = line.find("Unknown property").or_else(|| line.find("Property "))?;
            Some(format!("The broker said: {}", line[start..].trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn several_embedded_brokers_are_refused_with_what_would_do() {
        let work = tempfile::tempdir().expect("a directory");
        let spec = ClusterSpec { brokers: 3, properties: BTreeMap::new() };
        let error = start(&spec, &StartOptions::new(work.path())).await.expect_err("a refusal").to_string();
        assert!(error.contains("clusters of Thalweg brokers do not exist yet"), "{error}");
        assert!(error.contains("--target apache-kafka") && error.contains("--bootstrap"), "{error}");
    }

    #[test]
    fn settings_without_effect_are_told() {
        let log = "2026-01-01 WARN thalweg: Unknown property num.iot.threads; did you mean num.io.threads?\n\
                   2026-01-01 INFO thalweg: Broker 1 listens\n\
                   2026-01-01 WARN thalweg: Property num.replica.fetchers is not served: one broker has no followers\n";
        let notes = complaints(log);
        assert_eq!(notes.len(), 2);
        assert_eq!(
            notes[0],
            "The broker said: Unknown property num.iot.threads; did you mean num.io.threads?"
        );
        assert!(notes[1].starts_with("The broker said: Property num.replica.fetchers is not served"));
    }

    #[tokio::test]
    async fn a_binary_that_is_not_there_is_named() {
        let work = tempfile::tempdir().expect("a directory");
        let spec = ClusterSpec { brokers: 1, properties: BTreeMap::new() };
        let binary = Some(PathBuf::from("/nowhere/thalweg"));
        let options = StartOptions { binary, ..StartOptions::new(work.path()) };
        let error = start(&spec, &options).await.expect_err("it is not there").to_string();
        assert!(error.starts_with("Cannot start /nowhere/thalweg: "), "{error}");
        assert_eq!(std::fs::read_dir(work.path()).expect("it is there").count(), 0);
    }
}
