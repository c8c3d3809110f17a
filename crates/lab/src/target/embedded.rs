//! The target `embedded`: 1 to 9 brokers of this binary as child processes. The first of several is also the
//! only controller; a single broker contains it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::TargetInfo;
use super::error::{NotStarted, TargetError};
use super::local::HTTP_LISTENER;
use super::plan::{Controllers, Node, Software, free_ports};
use super::process::Brokers;
use super::{Cluster, StartOptions, check_brokers, launch, properties, readiness, unused_jvm_options};
use crate::workload::{ClusterSpec, SecurityProtocol};
use thalweg_ports::Port;

/// The name of the target.
const KIND: &str = "embedded";

/// Starts an embedded cluster.
pub(super) async fn start(
    spec: &ClusterSpec,
    options: &StartOptions,
) -> Result<(Cluster, Brokers), TargetError> {
    check_brokers(spec.brokers)?;
    let mut settings = properties::merged(&spec.properties, spec.brokers)?;
    if spec.brokers == 1 {
        // The settings of a single broker are arguments.
        settings.extend(spec.rack(0).map(|rack| (launch::RACK.to_owned(), rack.to_owned())));
    }
    let program = program(options.binary.as_deref())?;
    launch::attempt(async || launch(spec, options, &settings, &program).await).await
}

async fn launch(
    spec: &ClusterSpec,
    options: &StartOptions,
    settings: &BTreeMap<String, String>,
    program: &Path,
) -> Result<(Cluster, Brokers), TargetError> {
    let (mut brokers, plan, secured) =
        launch::lay_out(KIND, Software::Thalweg, Controllers::Brokers(1), spec, settings, options)?;
    brokers.limit(spec.node)?;
    let metrics = metrics_ports(&plan.nodes, settings, options.has_metrics)?;
    let mut logs = Vec::new();
    let mut first = None;
    for node in &plan.nodes {
        let arguments = match (plan.nodes.len(), plan.protocol) {
            (1, SecurityProtocol::Plaintext) => {
                alone(node, settings, &properties::log_dirs(&spec.properties, &node.dir))
            }
            _ => vec!["serve".to_owned(), node.properties_file().display().to_string()],
        };
        let metrics = metrics.get(&node.name()).map(metrics_arguments).unwrap_or_default();
        let mut command = Command::new(program);
        command.args(&arguments).args(metrics).current_dir(&node.dir);
        if let Some(user) = secured.first_user.as_ref().filter(|_| node.controller.is_some()) {
            command.args(["--add-scram", user]);
        }
        let log = node.dir.join("broker.log");
        brokers.spawn(&node.name(), command, &log)?;
        logs.push(log);
        first.get_or_insert(arguments);
    }
    let negotiated = readiness::wait(&brokers, &plan, &secured.client, options.start_timeout).await?;

    let held = brokers.hold()?;
    let mut notes = properties::notes(&spec.properties, settings);
    notes.extend(held);
    notes.extend(unused_jvm_options(spec));
    if plan.nodes.len() > 1 {
        notes.push(format!("KRaft: {} brokers; broker 1 is also the only controller", plan.nodes.len()));
    }
    for log in logs {
        for complaint in complaints(&std::fs::read_to_string(&log).unwrap_or_default()) {
            // All brokers have the same settings, but warnings may depend on the role.
            if !notes.contains(&complaint) {
                notes.push(complaint);
            }
        }
    }
    let cluster = Cluster {
        name: KIND.to_owned(),
        bootstrap: plan.bootstrap(),
        client_properties: secured.client,
        security: Some(negotiated),
        processes: brokers.processes(),
        metrics: metrics.iter().map(|(name, port)| (name.clone(), loopback(port))).collect(),
        data_dir: Some(brokers.dir().to_owned()),
        pulsar_admin: None,
        info: TargetInfo {
            facts: BTreeMap::new(),
            kind: KIND.to_owned(),
            version: version(program),
            command: std::iter::once(program.display().to_string())
                .chain(first.into_iter().flatten())
                .collect(),
            notes,
        },
    };
    Ok((cluster, brokers))
}

/// A port for the metrics of each broker, held until all brokers are ready; none if the workload has set the
/// HTTP listener itself.
fn metrics_ports(
    nodes: &[Node],
    settings: &BTreeMap<String, String>,
    has_metrics: bool,
) -> Result<BTreeMap<String, Port>, TargetError> {
    if !has_metrics || settings.contains_key(HTTP_LISTENER) {
        return Ok(BTreeMap::new());
    }
    Ok(nodes.iter().map(Node::name).zip(free_ports(nodes.len())?).collect())
}

fn loopback(port: &Port) -> String {
    format!("127.0.0.1:{}", port.number())
}

/// The arguments by which a broker serves its metrics, and no console.
fn metrics_arguments(port: &Port) -> Vec<String> {
    let settings =
        [format!("{HTTP_LISTENER}={}", loopback(port)), "thalweg.console.enabled=false".to_owned()];
    settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

/// The arguments of a single broker: its controller needs no listener.
fn alone(node: &Node, settings: &BTreeMap<String, String>, data: &[PathBuf]) -> Vec<String> {
    let address = node.broker.clone().unwrap_or_default();
    let data: Vec<String> = data.iter().map(|path| path.display().to_string()).collect();
    let mut arguments = vec!["serve".to_owned(), "--listen".to_owned(), address];
    arguments.extend(["--data-dir".to_owned(), data.join(",")]);
    for (key, value) in settings {
        arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
    }
    arguments
}

/// The brokers' binary: the given one, or the current program.
pub(super) fn program(named: Option<&Path>) -> Result<PathBuf, NotStarted> {
    match named {
        Some(binary) => Ok(binary.to_owned()),
        None => std::env::current_exe()
            .map_err(|source| NotStarted { program: PathBuf::from("the program that runs"), source }),
    }
}

/// The binary's version output.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output().ok();
    let line = output.and_then(|output| {
        String::from_utf8_lossy(&output.stdout).lines().next().map(|line| line.trim().to_owned())
    });
    line.filter(|line| !line.is_empty())
        .unwrap_or_else(|| concat!("thalweg ", env!("CARGO_PKG_VERSION")).to_owned())
}

/// Words of the broker's log about settings that do nothing.
const COMPLAINTS: [&str; 3] = ["Unknown property", "is not served", "has no effect: "];

/// The settings reported as unsupported by the broker, for readers of the result.
fn complaints(log: &str) -> Vec<String> {
    log.lines()
        .filter(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)))
        .filter_map(|line| {
            let start = line.find("Unknown property").or_else(|| line.find("Property "))?;
            Some(format!("The broker logged: {}", line[start..].trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_number_of_brokers_that_cannot_be_is_refused() {
        let work = tempfile::tempdir().expect("a directory");
        for brokers in [0, 10] {
            let spec = ClusterSpec::plaintext(brokers, BTreeMap::new());
            let error =
                start(&spec, &StartOptions::new(work.path())).await.expect_err("a refusal").to_string();
            assert!(error.contains("use 1 to 9"), "{error}");
        }
    }

    #[test]
    fn settings_without_effect_are_reported() {
        let log = "2026-01-01 WARN thalweg: Unknown property num.iot.threads; did you mean num.io.threads?\n\
                   2026-01-01 INFO thalweg: Broker 1 listens\n\
                   2026-01-01 WARN thalweg: Property num.replica.fetchers is not served: one broker has no followers\n\
                   2026-01-01 INFO thalweg: Property num.io.threads has no effect: one worker thread per core\n";
        let notes = complaints(log);
        assert_eq!(notes.len(), 3);
        assert_eq!(
            notes[2],
            "The broker logged: Property num.io.threads has no effect: one worker thread per core"
        );
        assert_eq!(
            notes[0],
            "The broker logged: Unknown property num.iot.threads; did you mean num.io.threads?"
        );
        assert!(notes[1].starts_with("The broker logged: Property num.replica.fetchers is not served"));
    }

    #[tokio::test]
    async fn a_binary_that_is_not_there_is_named() {
        let work = tempfile::tempdir().expect("a directory");
        let spec = ClusterSpec::plaintext(1, BTreeMap::new());
        let binary = Some(PathBuf::from("/nowhere/thalweg"));
        let options = StartOptions { binary, ..StartOptions::new(work.path()) };
        let error = start(&spec, &options).await.expect_err("it is not there").to_string();
        assert!(error.starts_with("Cannot start /nowhere/thalweg: "), "{error}");
        assert_eq!(std::fs::read_dir(work.path()).expect("it is there").count(), 0);
    }
}
