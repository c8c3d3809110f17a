//! The owners of data directories. Files that one user, often root, has created there cannot be opened by
//! another, such as the user of the service.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use thalweg_config::BrokerConfig;

/// Entries that the search for a file of another user looks at: a failed start must end soon.
const ENTRIES_MAX: usize = 100_000;

/// The directories with data of a node.
pub fn data_dirs(config: &BrokerConfig) -> Vec<PathBuf> {
    let mut dirs = config.log.data_dirs().to_vec();
    dirs.push(config.metadata_log_dir());
    dirs.sort();
    dirs.dedup();
    dirs
}

/// Warnings of root about directories of other users.
pub fn warnings(dirs: &[PathBuf]) -> Vec<String> {
    let user = rustix::process::geteuid().as_raw();
    let owned = dirs.iter().filter_map(|dir| Some((dir, std::fs::metadata(dir).ok()?.uid())));
    owned.filter_map(|(dir, owner)| warning(dir, owner, user)).collect()
}

fn warning(dir: &Path, owner: u32, user: u32) -> Option<String> {
    (user == 0 && owner != 0).then(|| {
        let owner = user_name(owner);
        format!(
            "This process runs as root, and {0} belongs to {owner}: {owner} cannot open the files that root creates there. \
             Run it as {owner}; to repair the directory: chown -R {owner} {0}",
            dir.display()
        )
    })
}

/// Adds the first file of another user that this process may not write, if any, to the error of a start.
pub fn explained(error: anyhow::Error, dirs: &[PathBuf]) -> anyhow::Error {
    let user = rustix::process::geteuid().as_raw();
    let is_closed = |path: &Path| access(path, Access::READ_OK | Access::WRITE_OK).is_err();
    match dirs.iter().find_map(|dir| obstacle(dir, user, is_closed)) {
        Some(obstacle) => error.context(obstacle),
        None => error,
    }
}

/// A sentence about the first file in a data directory that belongs to another user and is closed to this
/// process: entries of the directory, and entries of its partitions.
fn obstacle(dir: &Path, user: u32, is_closed: impl Fn(&Path) -> bool) -> Option<String> {
    let entries =
        |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = entries(dir).flat_map(|entry| {
        let below: Vec<PathBuf> = if entry.is_dir() { entries(&entry).collect() } else { Vec::new() };
        std::iter::once(entry).chain(below)
    });
    let owned = all.take(ENTRIES_MAX).filter_map(|path| {
        let owner = std::fs::symlink_metadata(&path).ok()?.uid();
        Some((path, owner))
    });
    let mut foreign = owned.filter(|(path, owner)| *owner != user && is_closed(path));
    let (path, owner) = foreign.next()?;
    let (owner, user) = (user_name(owner), user_name(user));
    Some(format!(
        "{} belongs to {owner}, and this process of {user} may not write it (chown -R {user} {})",
        path.display(),
        dir.display()
    ))
}

/// The name of a user of this machine, or else its number.
fn user_name(id: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = id.to_string();
    let of_id = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    };
    users.lines().find_map(of_id).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_warned_about_directories_of_others() {
        let dir = Path::new("/data");
        let warned = warning(dir, 4_000_000, 0).expect("a warning");
        assert!(warned.contains("/data belongs to 4000000") && warned.contains("chown -R 4000000 /data"));
        assert_eq!(warning(dir, 0, 0), None);
        assert_eq!(warning(dir, 0, 1000), None);
        assert_eq!(warning(dir, 1000, 1000), None);
    }

    #[test]
    fn a_closed_file_of_another_user_explains_a_failed_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = dir.path().join("t-0");
        std::fs::create_dir(&partition).expect("created");
        std::fs::write(partition.join("0.log"), "").expect("written");
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(obstacle(dir.path(), me, |_| true), None, "own files");
        assert_eq!(obstacle(dir.path(), me + 1, |_| false), None, "open files");
        let closed = |path: &Path| path.extension().is_some();
        let text = obstacle(dir.path(), me + 1, closed).expect("an obstacle");
        assert!(text.contains("t-0/0.log belongs to ") && text.contains("chown -R "), "{text}");
    }
}
