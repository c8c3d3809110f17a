//! The description of the machine, for judging a figure and for the checks of `lab compare`.

pub(crate) mod data_directory;
pub(crate) mod interfaces;
pub(crate) mod mount;
pub(crate) mod storage;
pub(crate) mod traffic_control;

use crate::cgroup;
use std::collections::BTreeMap;
use std::path::Path;

use crate::proc;
use crate::result::Machine;
use interfaces::{INTERFACES, slowest_link};
use mount::Mount;

/// This machine, and the file system of `data_dir`. Unknown facts are left out.
pub fn fingerprint(data_dir: &Path) -> Machine {
    let cpuinfo = text("/proc/cpuinfo");
    let mount = Mount::of(data_dir);
    let system = rustix::system::uname();
    let architecture = system.machine().to_string_lossy().into_owned();
    Machine {
        cpu: cpu_name(&cpuinfo).unwrap_or_else(|| format!("unknown {architecture}")),
        cpus: usable_cpus(),
        memory_bytes: proc::memory(&text("/proc/meminfo"), "MemTotal").unwrap_or_default(),
        kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
        os: os_name(&text("/etc/os-release")).unwrap_or_else(|| "unknown".to_owned()),
        filesystem: mount.as_ref().map_or_else(|| "unknown".to_owned(), describe_mount),
        hypervisor: hypervisor(&cpuinfo),
        facts: facts(&cpuinfo, &architecture, mount.as_ref()),
    }
}

/// Processors that this process and its children may run on.
fn usable_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

fn describe_mount(mount: &Mount) -> String {
    format!("{} on {} ({})", mount.kind, mount.source, mount.options.join(","))
}

fn facts(cpuinfo: &str, architecture: &str, mount: Option<&Mount>) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([("architecture".to_owned(), architecture.to_owned())]);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let online = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    add("processors_online", (online > 0).then(|| online.to_string()));
    add("clock_source", line("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    add("cpu_governor", line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    add("cgroup_cpus", cgroup::cpus().map(|cpus| cpus.to_string()));
    add("cgroup_memory_bytes", cgroup::memory_bytes().map(|bytes| bytes.to_string()));
    add("loopback_mtu", line("/sys/class/net/lo/mtu"));
    // Often unknown in virtual machines.
    let slowest = slowest_link(Path::new(INTERFACES));
    add("link_speed_mbit_per_s", slowest.map(|mbit_per_s| mbit_per_s.to_string()));
    add("transparent_hugepage", chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")));
    for name in
        ["dirty_ratio", "dirty_background_ratio", "dirty_bytes", "dirty_background_bytes", "swappiness"]
    {
        add(&format!("vm.{name}"), line(&format!("/proc/sys/vm/{name}")));
    }
    let swap = proc::memory(&text("/proc/meminfo"), "SwapTotal");
    add("swap_bytes", swap.map(|bytes| bytes.to_string()));
    if let Some(disk) = mount.and_then(Mount::disk) {
        add("disk_scheduler", chosen(&text(&format!("/sys/block/{disk}/queue/scheduler"))));
        add("disk_rotational", line(&format!("/sys/block/{disk}/queue/rotational")));
        add("disk", Some(disk));
    }
    facts
}

/// The processor's name, from the processor or the board.
fn cpu_name(cpuinfo: &str) -> Option<String> {
    let own = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "model name" | "Model" | "cpu model").then(|| value.trim().to_owned())
    });
    own.or_else(|| line("/proc/device-tree/model")).filter(|name| !name.is_empty())
}

fn os_name(os_release: &str) -> Option<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim().trim_matches('"').to_owned())
}

/// The hypervisor, if this is a virtual machine.
fn hypervisor(cpuinfo: &str) -> Option<String> {
    if let Some(kind) = line("/sys/hypervisor/type") {
        return Some(kind);
    }
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    if !flags.split_ascii_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let board: Vec<String> = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|name| line(&format!("/sys/class/dmi/id/{name}")))
        .collect();
    Some(if board.is_empty() { "unnamed hypervisor".to_owned() } else { board.join(" ") })
}

/// The first line of a small file; `None` if missing or empty.
pub(crate) fn line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
    (!line.is_empty()).then_some(line)
}

/// The choice in brackets of a file such as `[none] mq-deadline`; the whole text if there are no brackets.
pub(crate) fn chosen(text: &str) -> Option<String> {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    let choice = bracketed.unwrap_or(text).trim();
    (!choice.is_empty()).then(|| choice.to_owned())
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_fingerprint() {
        let machine = fingerprint(Path::new("."));
        assert!(machine.cpus >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(!machine.cpu.is_empty() && machine.filesystem.contains(" on "), "{machine:?}");
        assert!(machine.facts.contains_key("vm.dirty_ratio"), "{machine:?}");
    }

    #[test]
    fn names_are_read_from_the_files_of_the_system() {
        assert_eq!(cpu_name("processor\t: 0\nmodel name\t: AMD EPYC\n").as_deref(), Some("AMD EPYC"));
        let debian = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(os_name(debian).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(hypervisor("flags\t\t: fpu vme de\n"), None);
    }

    #[test]
    fn the_choice_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber bfq\n").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen("none\n").as_deref(), Some("none"));
        assert_eq!(chosen(""), None);
    }
}
