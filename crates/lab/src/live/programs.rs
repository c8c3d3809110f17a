//! The brokers on this machine, by the command lines in `/proc`, and their data directories.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};

use crate::machine::data_directory::{PROPERTIES_FILE, cluster_id, held_by, node_id};
use crate::machine::storage;
use crate::result::StorageChain;

/// Maximum number of open files of a process that are searched for data directories. Brokers open the locks
/// of their directories before their logs.
const FILES_MAX: usize = 4096;
/// Maximum size of `meta.properties`, and of a command line. A process of any user may have larger ones.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The program of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerKind {
    /// `thalweg serve`.
    Thalweg,
    /// Java with the class `kafka.Kafka`.
    ApacheKafka,
}

impl BrokerKind {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            BrokerKind::Thalweg => "thalweg",
            BrokerKind::ApacheKafka => "kafka",
        }
    }
}

/// A broker's process.
#[derive(Debug)]
pub(super) struct Program {
    pub kind: BrokerKind,
    pub directories: Vec<PathBuf>,
    pub node: Option<(i32, String)>,
    /// True if the process has other mounts than this one, as in a container: a path then means another file.
    pub has_own_mounts: bool,
}

impl Program {
    pub(super) fn new(pid: u32, kind: BrokerKind) -> Program {
        let mut program = Program { kind, directories: Vec::new(), node: None, has_own_mounts: false };
        program.find_directories(pid);
        program
    }

    /// Finds the data directories in which the process holds a lock.
    pub(super) fn find_directories(&mut self, pid: u32) {
        let Some(held) = held_by(pid, FILES_MAX) else { return };
        self.directories = held.collect();
        self.directories.sort();
        self.directories.dedup();
        let mounts = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        self.has_own_mounts = mounts(&pid.to_string()) != mounts("self");
        let Ok(process) = std::fs::metadata(format!("/proc/{pid}")) else { return };
        let files = self.directories.iter().map(|dir| self.seen(pid, dir).join(PROPERTIES_FILE));
        self.node = files.filter_map(|file| node(&text_of(&file, process.uid()).ok()?)).next();
    }

    /// A path of the process as this process sees it.
    fn seen(&self, pid: u32, path: &Path) -> PathBuf {
        match self.has_own_mounts {
            true => Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path)),
            false => path.to_owned(),
        }
    }

    /// The devices below each data directory whose mount is known.
    pub(super) fn storage(&self, pid: u32) -> Vec<StorageChain> {
        let chain = |path: &PathBuf| match self.has_own_mounts {
            true => storage::chain_of_process(pid, path),
            false => storage::chain(path),
        };
        self.directories.iter().filter_map(chain).collect()
    }
}

/// The text of a small regular file that this user or root owns. Opening and reading it do not wait: a
/// process of any user may lay a pipe, a link or a device at its place.
fn text_of(path: &Path, user: u32) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let found = fstat(&file)?;
    let is_trusted = FileType::from_raw_mode(found.st_mode).is_file()
        && [user, 0].contains(&found.st_uid)
        && usize::try_from(found.st_size).is_ok_and(|bytes| bytes <= TEXT_BYTES_MAX);
    if !is_trusted {
        return Err(io::Error::other("not a small regular file of the process's user"));
    }
    String::from_utf8(begin_of(&file)?).map_err(io::Error::other)
}

/// The begin of a file, up to a limit.
fn begin_of(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let (mut bytes, mut read) = (vec![0; TEXT_BYTES_MAX], 0);
    while read < bytes.len() {
        match rustix::io::read(file, &mut bytes[read..])? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// The brokers on this machine that `/proc` shows, by process id.
pub(super) fn brokers() -> Vec<(u32, BrokerKind)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let found = entries.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(entry.path().join("cmdline"), flags, Mode::empty()).ok()?;
        let line = begin_of(&file).ok()?;
        Some((pid, kind(&line)?))
    });
    let mut found: Vec<(u32, BrokerKind)> = found.collect();
    found.sort_by_key(|(pid, _)| *pid);
    found
}

/// The broker with a command line, whose arguments end with zeros.
fn kind(line: &[u8]) -> Option<BrokerKind> {
    let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = arguments.next()?;
    let name = Path::new(&*program).file_name()?.to_str()?;
    match name {
        "thalweg" => {
            let command = arguments.find(|argument| !argument.starts_with('-'))?;
            (command == "serve").then_some(BrokerKind::Thalweg)
        }
        "java" => arguments.any(|argument| argument == "kafka.Kafka").then_some(BrokerKind::ApacheKafka),
        _ => None,
    }
}

/// Node id and cluster id in the text of a `meta.properties`.
fn node(text: &str) -> Option<(i32, String)> {
    Some((node_id(text)?, cluster_id(text)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::data_directory::LOCK_FILE;

    #[test]
    fn brokers_are_known_by_their_command_lines() {
        for (line, expected) in [
            ("/usr/bin/thalweg\0serve\0--data-dir\0/d\0", Some(BrokerKind::Thalweg)),
            ("thalweg\0--json\0serve\0", Some(BrokerKind::Thalweg)),
            ("thalweg\0topic\0create\0serve\0", None),
            (
                "/opt/jdk/bin/java\0-Xmx1G\0-cp\0a.jar\0kafka.Kafka\0server.properties\0",
                Some(BrokerKind::ApacheKafka),
            ),
            ("java\0-cp\0a.jar\0org.apache.kafka.tools.TopicCommand\0", None),
            ("grep\0kafka.Kafka\0", None),
            ("", None),
        ] {
            assert_eq!(kind(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_node_is_known_by_its_directory() {
        let text = "#\nversion=1\ncluster.id=abc\nnode.id=3\ndirectory.id=x\n";
        assert_eq!(node(text), Some((3, "abc".to_owned())));
        assert_eq!(node("version=0\nbroker.id = 4\ncluster.id = c\n"), Some((4, "c".to_owned())));
        assert_eq!(node("version=1\n"), None);
    }

    #[test]
    fn only_small_regular_files_of_the_user_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let user = rustix::process::getuid().as_raw();
        std::fs::write(at("small"), "node.id=9\n").expect("written");
        assert_eq!(text_of(&at("small"), user).expect("a text"), "node.id=9\n");
        std::fs::write(at("large"), vec![b'#'; TEXT_BYTES_MAX + 1]).expect("written");
        std::os::unix::fs::symlink("/dev/zero", at("endless")).expect("linked");
        std::os::unix::fs::symlink(at("small"), at("link")).expect("linked");
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().expect("a program");
        assert!(made.success());
        for name in ["large", "endless", "link", "pipe", "", "absent"] {
            text_of(&at(name), user).expect_err(name);
        }
        text_of(Path::new("/dev/zero"), user).expect_err("a device");
        if user != 0 {
            text_of(&at("small"), user + 1).expect_err("another user's");
        }
    }

    #[test]
    fn paths_of_a_process_with_its_own_mounts_are_below_its_root() {
        let mut program =
            Program { kind: BrokerKind::Thalweg, directories: Vec::new(), node: None, has_own_mounts: false };
        let data = Path::new("/var/lib/kafka");
        assert_eq!(program.seen(7, data), data);
        program.has_own_mounts = true;
        assert_eq!(program.seen(7, data), Path::new("/proc/7/root/var/lib/kafka"));
        // A process of this machine's mounts, too, knows them by its own list.
        let own = std::env::temp_dir().canonicalize().expect("a path");
        program.directories = vec![own.clone()];
        assert_eq!(program.storage(std::process::id()), Vec::from_iter(storage::chain(&own)));
        assert_eq!(program.storage(u32::MAX), [], "its mounts are unknown");
    }

    #[test]
    fn the_directory_of_a_held_lock_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(LOCK_FILE), "").expect("written");
        std::fs::write(dir.path().join("meta.properties"), "node.id=9\ncluster.id=c\n").expect("written");
        let mut holder = std::process::Command::new("sleep");
        let file = rustix::fs::open(dir.path().join(LOCK_FILE), OFlags::RDONLY, Mode::empty());
        let mut holder = holder.arg("60").stdin(file.expect("it opens")).spawn().expect("a program");
        let program = Program::new(holder.id(), BrokerKind::Thalweg);
        holder.kill().and_then(|()| holder.wait()).expect("ours to end");
        assert_eq!(program.directories, [dir.path().canonicalize().expect("a path")]);
        assert_eq!(program.node, Some((9, "c".to_owned())));
    }
}
