//! The host's processors, memory and limits.

use std::io;

use rustix::process::{Resource, getrlimit};

use super::{Advice, size};
use crate::cgroup;
use crate::machine::{chosen, line};
use crate::proc::{self, CpuTicks};

const HOST: &str = "host";

/// The file of `sched_migration_cost_ns` in recent kernels.
const MIGRATION_COST: &str = "/sys/kernel/debug/sched/migration_cost_ns";
/// The kernel's own default of `sched_migration_cost_ns`.
const MIGRATION_COST_NS: u64 = 500_000;

/// Processor time so far, to calculate the steal during the examination.
pub(super) fn cpu_ticks() -> CpuTicks {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    proc::cpu(&text("/proc/stat"), &text("/proc/self/status")).unwrap_or_default()
}

/// Examines the host; `before` is the result of [`cpu_ticks`] at least a second ago.
pub(super) fn examine(before: CpuTicks) -> Vec<Advice> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = |name| proc::memory(&meminfo, name).unwrap_or_default();
    let vm = |name: &str| line(&format!("/proc/sys/vm/{name}")).and_then(|text| text.parse::<u64>().ok());
    let mut advice = Vec::new();
    advice.push(processors(
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        cgroup::cpus(),
    ));
    advice.push(steal(before, cpu_ticks()));
    advice.push(memory_for_cache(memory("MemAvailable"), memory("MemTotal"), cgroup::memory_bytes()));
    let available = memory("MemAvailable");
    let limit = DirtyLimit::new(vm("dirty_bytes"), vm("dirty_ratio"), available);
    let background = DirtyLimit::new(vm("dirty_background_bytes"), vm("dirty_background_ratio"), available);
    if let (Some(limit), Some(background)) = (limit, background) {
        advice.extend(dirty(limit, background));
    }
    if let Some(swappiness) = vm("swappiness") {
        advice.push(swap(memory("SwapTotal"), swappiness));
    }
    let limit = getrlimit(Resource::Nofile);
    advice.push(descriptors(limit.current, limit.maximum));
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    advice.extend(source.map(|source| clock_source(&source)));
    advice.push(governor(line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")));
    let pages = line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text));
    advice.extend(pages.map(|pages| huge_pages(&pages)));
    let cost = line(MIGRATION_COST).or_else(|| line("/proc/sys/kernel/sched_migration_cost_ns"));
    let unknown = std::fs::read(MIGRATION_COST).err().map(|error| error.kind());
    advice.push(migration_cost(cost.and_then(|text| text.parse().ok()), unknown));
    advice
}

fn processors(count: usize, quota: Option<f64>) -> Advice {
    let why = "Brokers and the lab's producers share them if both run here; a quota stops processes for parts of each tenth \
               of a second, which shows in p99.";
    match quota {
        Some(quota) => {
            let found = format!("{count}, with a cgroup quota of {quota:.1} processors");
            Advice::fine(HOST, "processors", found, why)
                .warning("remove the quota (cpu.max = max); a cpuset limits without throttling")
        }
        None if count < 4 => Advice::fine(HOST, "processors", count.to_string(), why)
            .note("use 4 or more, or run the brokers elsewhere: with fewer, generator and broker compete"),
        None => Advice::fine(HOST, "processors", count.to_string(), why),
    }
}

fn steal(before: CpuTicks, now: CpuTicks) -> Advice {
    let share = |steal: u64, total: u64| if total > 0 { steal as f64 / total as f64 * 100.0 } else { 0.0 };
    let lately = share(now.steal.saturating_sub(before.steal), now.total.saturating_sub(before.total));
    let ever = share(now.steal, now.total);
    let found = format!("{lately:.1} % of processor time during this examination, {ever:.1} % since boot");
    let why = "The hypervisor gives this time to other machines, at unpredictable moments, which increases the spread of all \
               figures.";
    let advice = Advice::fine(HOST, "steal", found, why);
    match lately.max(ever) {
        most if most >= 3.0 => {
            advice.warning("use a machine with dedicated processors, or run at another time")
        }
        most if most >= 0.5 => advice.note("check the steal of each repetition before comparing figures"),
        _ => advice,
    }
}

fn memory_for_cache(available: u64, total: u64, limit: Option<u64>) -> Advice {
    let mut found = format!("{} available of {}", size(available), size(total));
    if let Some(limit) = limit {
        found.push_str(&format!(", with a cgroup limit of {}", size(limit)));
    }
    let why = "Brokers write to the page cache and consumers read from it; a cgroup limit includes it.";
    let advice = Advice::fine(HOST, "memory", found, why);
    if available < 2 << 30 {
        return advice.warning("provide at least 2 GB, plus a heap of 1 GB per Apache Kafka broker");
    }
    if limit.is_some_and(|limit| limit < total) {
        return advice.note("remove the limit, or leave room for half a minute of writes");
    }
    advice
}

/// One of the kernel's two limits of dirty memory.
#[derive(Clone, Copy)]
struct DirtyLimit {
    /// A percentage, unless it is set in bytes.
    ratio: Option<u64>,
    bytes: u64,
}

impl DirtyLimit {
    fn new(bytes: Option<u64>, ratio: Option<u64>, available: u64) -> Option<DirtyLimit> {
        match (bytes, ratio) {
            (Some(bytes), _) if bytes > 0 => Some(DirtyLimit { ratio: None, bytes }),
            (_, Some(ratio)) => Some(DirtyLimit { ratio: Some(ratio), bytes: available / 100 * ratio }),
            _ => None,
        }
    }

    fn found(self) -> String {
        match self.ratio {
            Some(ratio) => format!("{ratio}, now about {}", size(self.bytes)),
            None => format!("set in bytes: {}", size(self.bytes)),
        }
    }
}

fn dirty(limit: DirtyLimit, background: DirtyLimit) -> [Advice; 2] {
    let why = "Writers wait for the disk while this much is dirty: a run that writes more measures the \
               disk, and its latencies jump.";
    let hard = Advice::fine(HOST, "vm.dirty_ratio", limit.found(), why);
    let hard = match limit.bytes {
        bytes if bytes < 512 << 20 => {
            hard.warning("use 20 or more: a second of writes at full speed must fit")
        }
        bytes if bytes < 2 << 30 => {
            hard.note("for latency measurements, make it large enough for a whole repetition")
        }
        _ => hard,
    };
    let why = "The kernel starts writing at this amount, otherwise after half a minute. The later it starts, the larger the \
               burst, and the longer a sync of one log waits for others.";
    let soft = Advice::fine(HOST, "vm.dirty_background_ratio", background.found(), why);
    let soft = if background.bytes > limit.bytes / 10 * 8 {
        soft.warning(
            "set it well below vm.dirty_ratio: otherwise writing starts when all writers wait already",
        )
    } else if background.bytes > 1 << 30 {
        soft.note("use 5, or vm.dirty_background_bytes of some 500 MB, for even latencies; keep it for the highest rate of a short run")
    } else {
        soft
    };
    [hard, soft]
}

fn swap(total: u64, swappiness: u64) -> Advice {
    let why = "A broker fills the page cache, and the kernel may swap out its heap for it: reading back each page is a \
               pause.";
    if total == 0 {
        return Advice::fine(HOST, "vm.swappiness", format!("{swappiness}, without swap"), why);
    }
    let found = format!("{swappiness}, with {} of swap", size(total));
    let advice = Advice::fine(HOST, "vm.swappiness", found, why);
    if swappiness > 10 { advice.warning("set vm.swappiness=1, or disable swap") } else { advice }
}

fn descriptors(soft: Option<u64>, hard: Option<u64>) -> Advice {
    let word = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let found = format!("{}, maximum {}", word(soft), word(hard));
    let why = "A broker needs a descriptor per connection and several per partition. Thalweg raises its own \
               limit to the maximum, as does a JVM.";
    let advice = Advice::fine(HOST, "RLIMIT_NOFILE", found, why);
    match hard.unwrap_or(u64::MAX) {
        most if most < 4096 => advice.warning("use 100000 (ulimit -n, or LimitNOFILE= of the service)"),
        most if most < 65_536 => advice.note("use 100000 for thousands of partitions or connections"),
        _ => advice,
    }
}

fn clock_source(source: &str) -> Advice {
    let why = "Each record and request needs a timestamp; a clock that is read by a system call costs a microsecond each \
               time instead of some 20 nanoseconds.";
    let advice = Advice::fine(HOST, "clock source", source, why);
    match source {
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" => advice,
        _ => advice.warning("use tsc or kvm-clock if available (available_clocksource)"),
    }
}

fn governor(governor: Option<String>) -> Advice {
    let why = "A processor that slows down when idle answers the first request after a pause late.";
    let advice = |found: &str| Advice::fine(HOST, "CPU governor", found, why);
    match governor {
        None => advice("unknown, as is usual in a virtual machine"),
        Some(governor) if governor == "performance" => advice(&governor),
        Some(governor) => advice(&governor).warning("use performance while measuring"),
    }
}

fn huge_pages(choice: &str) -> Advice {
    let why = "Huge pages speed up a JVM's heap, but compaction stops processes for milliseconds.";
    let advice = Advice::fine(HOST, "transparent huge pages", choice, why);
    if choice == "always" { advice.note("use madvise if p99.9 matters") } else { advice }
}

/// The cost, or the reason why it cannot be read.
fn migration_cost(ns: Option<u64>, unreadable: Option<io::ErrorKind>) -> Advice {
    let why = "How long a thread counts as cache-hot on its processor. A lower value lets the kernel migrate network and disk threads \
               sooner; a study of Kafka on IBM z16 gained with 50,000 ns.";
    let advice = |found: String| Advice::fine(HOST, "sched_migration_cost_ns", found, why);
    match ns {
        None => advice(match unreadable {
            Some(io::ErrorKind::PermissionDenied) => format!("unknown ({MIGRATION_COST} is for root only)"),
            _ => format!("unknown (there is no {MIGRATION_COST}: debugfs is not mounted, or the kernel was built without it)"),
        })
            .note("on a machine with many processors, try 50000 as a separate step"),
        Some(ns) if ns >= MIGRATION_COST_NS => {
            advice(ns.to_string()).note("on a machine with many processors, try 50000 as a separate step")
        }
        Some(ns) => advice(ns.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity::{Fine, Note, Warning};

    #[test]
    fn a_quota_is_graver_than_few_processors() {
        assert_eq!(processors(8, None).severity, Fine);
        assert_eq!(processors(2, None).severity, Note);
        assert_eq!(processors(8, Some(1.5)).severity, Warning);
    }

    #[test]
    fn steal_is_judged_by_the_worse_of_now_and_ever() {
        let ticks = |steal, total| CpuTicks { steal, total, ..CpuTicks::default() };
        assert_eq!(steal(ticks(0, 1000), ticks(0, 2000)).severity, Fine);
        assert_eq!(steal(ticks(0, 1000), ticks(100, 2000)).severity, Warning);
        let often = steal(ticks(20, 1000), ticks(20, 2000));
        assert_eq!(often.severity, Note);
        assert!(often.found.starts_with("0.0 % of processor time during"), "{often:?}");
    }

    #[test]
    fn dirty_limits_are_judged_in_bytes() {
        let gb = 1 << 30;
        let of = |limit: (u64, u64), background: (u64, u64), available| {
            let limit = DirtyLimit::new(Some(limit.0), Some(limit.1), available).expect("both are reported");
            let background = DirtyLimit::new(Some(background.0), Some(background.1), available)
                .expect("both are reported");
            dirty(limit, background).map(|one| one.severity)
        };
        assert_eq!(of((0, 20), (0, 10), 24 * gb), [Fine, Note]);
        assert_eq!(of((0, 20), (0, 10), gb), [Warning, Fine]);
        assert_eq!(of((4 * gb, 20), (500 << 20, 10), 24 * gb), [Fine, Fine]);
        assert_eq!(of((4 * gb, 0), (4 * gb, 0), 24 * gb), [Fine, Warning]);
    }

    #[test]
    fn swap_and_memory_are_judged_together_with_their_limits() {
        assert_eq!(swap(0, 60).severity, Fine);
        assert_eq!(swap(1 << 30, 60).severity, Warning);
        assert_eq!(swap(1 << 30, 1).severity, Fine);
        assert_eq!(memory_for_cache(8 << 30, 16 << 30, None).severity, Fine);
        assert_eq!(memory_for_cache(8 << 30, 16 << 30, Some(4 << 30)).severity, Note);
        assert_eq!(memory_for_cache(1 << 30, 16 << 30, None).severity, Warning);
    }

    #[test]
    fn slow_clocks_and_power_saving_are_reported() {
        assert_eq!(clock_source("tsc").severity, Fine);
        assert_eq!(clock_source("hpet").severity, Warning);
        assert_eq!(governor(Some("powersave".to_owned())).severity, Warning);
        assert_eq!(governor(None).severity, Fine);
        assert_eq!(descriptors(Some(1024), Some(1024)).severity, Warning);
        assert_eq!(descriptors(Some(1024), None).severity, Fine);
        assert_eq!(migration_cost(Some(50_000), None).severity, Fine);
        let unknown = |kind| migration_cost(None, Some(kind)).found;
        assert!(unknown(io::ErrorKind::PermissionDenied).contains("for root only"));
        assert!(unknown(io::ErrorKind::NotFound).contains("debugfs is not mounted"));
        assert_eq!(huge_pages("always").severity, Note);
    }
}
