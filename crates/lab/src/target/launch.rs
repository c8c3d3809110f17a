//! Starting brokers for a run: directories, and retries if another program takes a port first.

use std::collections::BTreeMap;

use super::error::{LimitsExceeded, TargetError};
use super::plan::{Controllers, Node, Plan, Software};
use super::process::Brokers;
use super::security::SecuritySettings;
use super::{StartOptions, properties};
use crate::workload::ClusterSpec;

const ATTEMPTS: u32 = 3;

/// The setting of a broker's rack.
pub(super) const RACK: &str = "broker.rack";

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

/// True if a log reports a port conflict.
pub(super) fn is_port_taken(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}

/// Refuses limits that the machine cannot provide to all nodes at once: the nodes would share the machine,
/// unlimited.
pub(super) fn check_limits(spec: &ClusterSpec) -> Result<(), LimitsExceeded> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    exceeds(spec, cpus as u64, machine_memory_mb())
}

/// The memory of this machine, in MiB.
pub(super) fn machine_memory_mb() -> u64 {
    let memory = rustix::system::sysinfo();
    (u64::from(memory.mem_unit) * memory.totalram as u64) >> 20
}

fn exceeds(spec: &ClusterSpec, cpus: u64, memory_mb: u64) -> Result<(), LimitsExceeded> {
    let of_all = |limit: Option<u32>| u64::from(limit.unwrap_or(0)) * u64::from(spec.brokers);
    let (cpu_millis, mb) = (of_all(spec.node.cpu_millis), of_all(spec.node.memory_mb));
    let exceeded = |requested: String, found: String| LimitsExceeded {
        brokers: spec.brokers,
        limits: spec.node.describe(),
        requested,
        found,
    };
    if cpu_millis > cpus * 1000 {
        let requested = format!("{} processors", cpu_millis as f64 / 1000.0);
        return Err(exceeded(requested, cpus.to_string()));
    }
    match mb > memory_mb {
        true => Err(exceeded(format!("{mb} MB of memory"), format!("{memory_mb} MB"))),
        false => Ok(()),
    }
}

/// Creates the directories and properties files of brokers and their controllers. Starts none.
pub(super) fn lay_out(
    kind: &str,
    software: Software,
    controllers: Controllers,
    spec: &ClusterSpec,
    settings: &BTreeMap<String, String>,
    options: &StartOptions,
) -> Result<(Brokers, Plan, SecuritySettings), TargetError> {
    check_limits(spec)?;
    let mut brokers = Brokers::beginning(&options.work_dir, kind)?;
    for dir in properties::dirs_elsewhere(&spec.properties, brokers.dir()) {
        brokers.make_dir(dir)?;
    }
    let secured = SecuritySettings::make(spec.security, &spec.properties, brokers.dir())?;
    let mut plan = Plan::new(spec.brokers as usize, software, controllers, None, brokers.dir())?;
    plan.protocol = secured.protocol;
    let mut settings = settings.clone();
    settings.extend(secured.node.clone());
    let of_node = |node: &Node| {
        let mut settings = settings.clone();
        let rack = node.broker.as_ref().and_then(|_| spec.rack(node.id as usize - 1));
        settings.extend(rack.map(|rack| (RACK.to_owned(), rack.to_owned())));
        settings
    };
    plan.write(of_node, |node| properties::log_dirs(&spec.properties, &node.dir))?;
    Ok((brokers, plan, secured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::NodeLimits;

    #[test]
    fn limits_beyond_the_machine_are_refused_by_what_it_lacks() {
        let node = NodeLimits { cpu_millis: Some(2000), memory_mb: Some(8192) };
        let spec = ClusterSpec { node, ..ClusterSpec::plaintext(3, BTreeMap::new()) };
        assert_eq!(exceeds(&spec, 6, 24_576), Ok(()));
        let text = exceeds(&spec, 4, 24_576).expect_err("too few processors").to_string();
        assert!(
            text.starts_with("3 nodes of 2 CPU, 8,192 MB need 6 processors, but this machine has 4,"),
            "{text}"
        );
        let text = exceeds(&spec, 6, 20_000).expect_err("too little memory").to_string();
        assert!(text.contains("need 24576 MB of memory, but this machine has 20000 MB"), "{text}");
        assert_eq!(exceeds(&ClusterSpec::plaintext(9, BTreeMap::new()), 1, 1), Ok(()), "no limits");
    }
}
