//! Starting brokers for a run: directories, and retries if another program takes a port first.

use std::collections::BTreeMap;

use super::error::TargetError;
use super::plan::{Controllers, Plan, Software};
use super::process::Brokers;
use super::security::Secured;
use super::{StartOptions, properties};
use crate::workload::ClusterSpec;

/// Maximum attempts.
const ATTEMPTS: u32 = 3;

/// Starts brokers, and retries if a port is taken between its choice and its use.
pub(super) async fn attempt<T>(start: impl AsyncFn() -> Result<T, TargetError>) -> Result<T, TargetError> {
    let mut attempts = 1;
    loop {
        match start().await {
            Err(TargetError::BrokerDied(died)) if attempts < ATTEMPTS && is_port_taken(&died.log_tail) => {
                attempts += 1;
            }
            other => return other,
        }
    }
}

/// Whether a log reports a port conflict.
pub(super) fn is_port_taken(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}

/// Creates the directories and properties files of brokers, of which the first `controllers` are also controllers. Starts none.
pub(super) fn lay_out(
    kind: &str,
    software: Software,
    controllers: usize,
    spec: &ClusterSpec,
    settings: &BTreeMap<String, String>,
    options: &StartOptions,
) -> Result<(Brokers, Plan, Secured), TargetError> {
    let mut brokers = Brokers::beginning(&options.work_dir, kind)?;
    for dir in properties::dirs_elsewhere(&spec.properties, brokers.dir()) {
        brokers.make_dir(dir)?;
    }
    let controllers = Controllers::Brokers(controllers);
    let secured = Secured::make(spec.security, &spec.properties, brokers.dir())?;
    let mut plan = Plan::new(spec.brokers as usize, software, controllers, None, brokers.dir())?;
    plan.protocol = secured.protocol;
    let mut settings = settings.clone();
    settings.extend(secured.node.clone());
    plan.write(|_| settings.clone(), |node| properties::log_dirs(&spec.properties, &node.dir))?;
    Ok((brokers, plan, secured))
}
