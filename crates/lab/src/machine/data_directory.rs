//! The data directories of brokers on this machine: the processes that hold them, and the ids in them.

use std::path::{Path, PathBuf};

/// The file that a broker holds open in each data directory.
pub(crate) const LOCK_FILE: &str = ".lock";
/// The file with the ids of a node in each data directory.
pub(crate) const PROPERTIES_FILE: &str = "meta.properties";

/// The data directories in which a process has the lock file open, among its first `files_max` open files;
/// `None` if those are not visible.
pub(crate) fn held_by(pid: u32, files_max: usize) -> Option<impl Iterator<Item = PathBuf>> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().take(files_max);
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let locks = links.filter(|path| path.file_name().is_some_and(|name| name == LOCK_FILE));
    Some(locks.filter_map(|lock| lock.parent().map(Path::to_owned)))
}

/// The id of the node in the text of a `meta.properties`.
pub(crate) fn node_id(properties: &str) -> Option<i32> {
    let number = |name| value(properties, name)?.parse().ok();
    number("node.id").or_else(|| number("broker.id"))
}

/// The id of the cluster in the same text.
pub(crate) fn cluster_id(properties: &str) -> Option<&str> {
    value(properties, "cluster.id")
}

fn value<'a>(properties: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = properties.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_its_directory() {
        let ids = |text| (node_id(text), cluster_id(text));
        let text = "#\nversion=1\ncluster.id=abc\nnode.id=3\ndirectory.id=x\n";
        assert_eq!(ids(text), (Some(3), Some("abc")));
        assert_eq!(ids("version=0\nbroker.id = 4\ncluster.id = c\n"), (Some(4), Some("c")));
        assert_eq!(ids("version=1\n"), (None, None));
    }
}
