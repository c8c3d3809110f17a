//! Changes that an operator makes by hand: those of the machine, which the lab does not make by itself.

use std::path::Path;

use crate::BoxFuture;
use crate::machine::interfaces::{self, INTERFACES};
use crate::machine::line;

/// The operator of the machines, who is asked to make changes.
pub trait Operator {
    /// Shows a text, and waits for the reply.
    fn ask<'a>(&'a self, text: &'a str) -> BoxFuture<'a, OperatorReply>;
}

/// The reply of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorReply {
    /// The change was made.
    Done,
    /// The change is not wanted, or not possible.
    Skip,
}

/// A change with the commands that make and undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManualStep {
    pub(super) name: String,
    pub(super) why: &'static str,
    /// The commands, for root.
    pub(super) apply: String,
    pub(super) undo: String,
}

/// The machine's settings as they are now, by which steps are undone.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineSettings {
    /// Interfaces besides the loopback one, with their MTU.
    pub(super) interfaces: Vec<(String, u64)>,
    pub(super) dirty_background_ratio: Option<String>,
    pub(super) dirty_ratio: Option<String>,
    /// True if the limits are in bytes, which ratios would replace.
    pub(super) has_dirty_bytes: bool,
    /// The file of the scheduler's migration cost, which moved with a release of the kernel, and its value.
    pub(super) migration_cost: Option<(&'static str, String)>,
    pub(super) huge_pages: Option<String>,
}

impl MachineSettings {
    pub(super) fn read() -> MachineSettings {
        let migration_cost =
            ["/sys/kernel/debug/sched/migration_cost_ns", "/proc/sys/kernel/sched_migration_cost_ns"];
        MachineSettings {
            interfaces: interfaces(),
            dirty_background_ratio: line("/proc/sys/vm/dirty_background_ratio"),
            dirty_ratio: line("/proc/sys/vm/dirty_ratio"),
            has_dirty_bytes: ["/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_bytes"]
                .into_iter()
                .any(|path| line(path).is_some_and(|bytes| bytes != "0")),
            migration_cost: migration_cost.into_iter().find_map(|path| Some((path, line(path)?))),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| crate::machine::chosen(&text)),
        }
    }
}

/// The interfaces that are up, with their MTU. The state of the loopback interface is unknown.
fn interfaces() -> Vec<(String, u64)> {
    let all = interfaces::list(Path::new(INTERFACES));
    let up = all.into_iter().filter(|interface| interface.state == "up");
    up.filter_map(|interface| Some((interface.name, interface.mtu_bytes?))).collect()
}

/// The MTU of jumbo frames.
const JUMBO: u64 = 9000;

/// The manual steps for a machine. Frames matter only `over_network`, between machines.
pub(super) fn steps(machine: &MachineSettings, over_network: bool) -> Vec<ManualStep> {
    let mut steps = Vec::new();
    let small = machine.interfaces.iter().filter(|(_, mtu)| over_network && *mtu < JUMBO);
    steps.extend(small.map(|(name, mtu)| ManualStep {
        name: format!("MTU of {name}"),
        why: "larger packets carry the same bytes with fewer of them; every interface and switch between clients and \
              brokers must have it",
        apply: format!("ip link set dev {name} mtu {JUMBO}"),
        undo: format!("ip link set dev {name} mtu {mtu}"),
    }));
    let ratios = (machine.dirty_background_ratio.as_deref(), machine.dirty_ratio.as_deref());
    if let (Some(background), Some(all)) = ratios
        && ratios != (Some("5"), Some("60"))
        && !machine.has_dirty_bytes
    {
        steps.push(ManualStep {
            name: "vm.dirty_ratio".to_owned(),
            why: "early writes in the background keep producers from waiting for the disk; a high limit absorbs bursts",
            apply: "sysctl -w vm.dirty_background_ratio=5 vm.dirty_ratio=60".to_owned(),
            undo: format!("sysctl -w vm.dirty_background_ratio={background} vm.dirty_ratio={all}"),
        });
    }
    if let Some((path, value)) = machine.migration_cost.as_ref().filter(|(_, value)| value != "50000") {
        steps.push(ManualStep {
            name: "sched_migration_cost_ns".to_owned(),
            why: "with a smaller cost the kernel moves threads to idle processors sooner, as in the published study",
            apply: format!("echo 50000 > {path}"),
            undo: format!("echo {value} > {path}"),
        });
    }
    if let Some(chosen) = machine.huge_pages.as_ref().filter(|chosen| *chosen != "always") {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        steps.push(ManualStep {
            name: "transparent huge pages".to_owned(),
            why: "large heaps and buffers need fewer entries of the processor's page tables",
            apply: format!("echo always > {path}"),
            undo: format!("echo {chosen} > {path}"),
        });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> MachineSettings {
        MachineSettings {
            interfaces: vec![("eth0".to_owned(), 1500), ("eth1".to_owned(), 9000)],
            dirty_background_ratio: Some("10".to_owned()),
            dirty_ratio: Some("20".to_owned()),
            has_dirty_bytes: false,
            migration_cost: Some(("/proc/sys/kernel/sched_migration_cost_ns", "500000".to_owned())),
            huge_pages: Some("madvise".to_owned()),
        }
    }

    #[test]
    fn each_step_is_undone_to_what_was_there() {
        let steps = steps(&machine(), true);
        let undo: Vec<&str> = steps.iter().map(|step| step.undo.as_str()).collect();
        assert_eq!(
            undo,
            [
                "ip link set dev eth0 mtu 1500",
                "sysctl -w vm.dirty_background_ratio=10 vm.dirty_ratio=20",
                "echo 500000 > /proc/sys/kernel/sched_migration_cost_ns",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ]
        );
    }

    #[test]
    fn frames_do_not_matter_within_a_machine_and_what_is_unknown_is_no_step() {
        assert!(steps(&machine(), false).iter().all(|step| !step.name.starts_with("MTU")));
        assert_eq!(steps(&MachineSettings::default(), true), []);
        let in_bytes = MachineSettings { has_dirty_bytes: true, ..machine() };
        assert!(steps(&in_bytes, false).iter().all(|step| step.name != "vm.dirty_ratio"));
        let cost = machine().migration_cost.map(|(path, _)| (path, "50000".to_owned()));
        let tuned = MachineSettings { migration_cost: cost, ..machine() };
        assert!(steps(&tuned, false).iter().all(|step| step.name != "sched_migration_cost_ns"));
    }
}
