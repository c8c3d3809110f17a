//! Control groups, versions 1 and 2: the limits of processors and memory on this process; `limits` sets those
//! of its children.

mod limits;

pub(crate) use limits::Groups;
pub use limits::NoControlGroups;

use std::path::{Path, PathBuf};

/// Version 1 reports no limit as a large number that depends on the page size: anything above this.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The processor quota of this process and its children; `None` if unlimited.
pub(crate) fn cpus() -> Option<f64> {
    let own = own();
    let in_two = own.directories(None).filter_map(|dir| quota_two(&read(&dir, "cpu.max")?));
    let in_one = own
        .directories(Some("cpu"))
        .filter_map(|dir| quota_one(&read(&dir, "cpu.cfs_quota_us")?, &read(&dir, "cpu.cfs_period_us")?));
    in_two.chain(in_one).reduce(f64::min)
}

/// The memory limit; `None` if unlimited.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory().map(|(limit, _)| limit).min()
}

/// Memory left below the limit.
pub(crate) fn memory_left_bytes() -> Option<u64> {
    memory().map(|(limit, used)| limit.saturating_sub(used)).min()
}

/// Limit and usage of each limited group that contains this process.
fn memory() -> impl Iterator<Item = (u64, u64)> {
    let own = own();
    let pairs = |dir: &Path, limit: &str, used: &str| {
        let limit = bytes(&read(dir, limit)?).filter(|limit| *limit < NO_LIMIT_BYTES)?;
        Some((limit, bytes(&read(dir, used)?)?))
    };
    let two: Vec<_> =
        own.directories(None).filter_map(|dir| pairs(&dir, "memory.max", "memory.current")).collect();
    let one = own
        .directories(Some("memory"))
        .filter_map(|dir| pairs(&dir, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    two.into_iter().chain(one.collect::<Vec<_>>())
}

fn own() -> ProcessCgroups {
    ProcessCgroups { text: std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default() }
}

/// `/proc/self/cgroup`: a line `number:controllers:path` per hierarchy.
struct ProcessCgroups {
    text: String,
}

impl ProcessCgroups {
    /// The directories from a controller's root (version 2 if none is given) to this process's group.
    fn directories(&self, controller: Option<&str>) -> impl Iterator<Item = PathBuf> + use<> {
        let root = Path::new("/sys/fs/cgroup");
        let root = controller.map_or_else(|| root.to_owned(), |name| root.join(name));
        let path = self.path(controller).unwrap_or_default();
        let mut found = Vec::new();
        let mut dir = root.clone();
        found.push(dir.clone());
        for part in path.split('/').filter(|part| !part.is_empty()) {
            dir = dir.join(part);
            found.push(dir.clone());
        }
        found.into_iter().filter(|dir| dir.is_dir())
    }

    fn path(&self, controller: Option<&str>) -> Option<String> {
        self.text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let is_it = match controller {
                None => controllers.is_empty(),
                Some(name) => controllers.split(',').any(|one| one == name),
            };
            is_it.then(|| path.to_owned())
        })
    }
}

fn read(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(name)).ok()
}

fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `cpu.max` of version 2: quota and period in microseconds, or `max`.
fn quota_two(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota_one(quota, period)
}

/// Quota and period of version 1; a negative quota is no limit.
fn quota_one(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions_are_processors() {
        assert_eq!(quota_two("150000 100000\n"), Some(1.5));
        assert_eq!(quota_two("max 100000\n"), None);
        assert_eq!(quota_one("400000\n", "100000\n"), Some(4.0));
        assert_eq!(quota_one("-1\n", "100000\n"), None);
    }

    #[test]
    fn the_path_of_a_controller_is_found_in_both_versions() {
        let own = ProcessCgroups { text: "4:cpu,cpuacct:/a/b\n3:memory:/m\n0::/c:d\n".to_owned() };
        assert_eq!(own.path(Some("cpu")).as_deref(), Some("/a/b"));
        assert_eq!(own.path(Some("cpuacct")).as_deref(), Some("/a/b"));
        assert_eq!(own.path(None).as_deref(), Some("/c:d"));
        assert_eq!(own.path(Some("io")), None);
    }
}
