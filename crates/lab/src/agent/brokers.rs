//! The brokers on an agent's machine: those that advertise an address of this machine, with their processes,
//! and the log files below their data directories.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::listeners;
use super::own_addresses::own_addresses;
use crate::machine::data_directory::{LOCK_FILE, PROPERTIES_FILE, held_by, node_id};
use crate::machine::line;
use crate::machine::storage::chain;
use crate::proc;
use crate::result::{DataDirectory, PartitionFiles, WatchedBroker};

/// Maximum time to resolve the addresses of all brokers.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of brokers, and of a run's partitions in the data directories.
pub(super) const BROKERS_MAX: usize = 1024;
pub(super) const PARTITIONS_MAX: usize = 20_000;
/// Maximum number of entries of a directory that are looked at.
const ENTRIES_MAX: usize = 1 << 20;
/// Maximum number of processes in the reason of an unknown one.
const LISTENING_MAX: usize = 3;

/// A broker and the address that it advertises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdvertisedBroker {
    /// `broker-1`, with the broker's id.
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A broker whose process is watched.
#[derive(Clone, Debug)]
pub(super) struct FoundBroker {
    pub(super) broker: WatchedBroker,
    /// The start time of its process, which distinguishes the process from a later one with its id.
    start_ticks: Option<u64>,
}

impl FoundBroker {
    /// Name and id of its process, if that is known.
    pub(super) fn sampled(&self) -> Option<(String, u32)> {
        Some((self.broker.name.clone(), self.broker.pid?))
    }

    /// True if the process ran all the time.
    fn runs(&self) -> bool {
        self.broker.pid.is_none() || self.broker.pid.and_then(start_ticks) == self.start_ticks
    }
}

/// The brokers with an address of this machine. Loopback addresses are this machine's only for a lab on it.
pub(super) async fn find(brokers: Vec<AdvertisedBroker>, with_loopback: bool) -> Vec<FoundBroker> {
    let mut resolving = JoinSet::new();
    let here = Arc::new(own_addresses());
    for (place, broker) in brokers.into_iter().enumerate() {
        let here = Arc::clone(&here);
        resolving.spawn(async move {
            let found = timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((&*broker.host, broker.port))).await;
            let all: Vec<SocketAddr> = found.ok().and_then(Result::ok).into_iter().flatten().collect();
            let own: Vec<SocketAddr> =
                all.into_iter().filter(|address| is_own(address.ip(), &here, with_loopback)).collect();
            (place, broker.name, own)
        });
    }
    let mut own: Vec<(usize, String, Vec<SocketAddr>)> = resolving.join_all().await;
    own.retain(|(.., addresses)| !addresses.is_empty());
    own.sort_unstable();
    // The open files of all processes take a moment to read.
    let finding = tokio::task::spawn_blocking(move || {
        own.into_iter().map(|(_, name, addresses)| find_process(name, &addresses)).collect()
    });
    match finding.await {
        Ok(found) => found,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// True for an address of this machine, which has these.
fn is_own(ip: IpAddr, here: &BTreeSet<IpAddr>, with_loopback: bool) -> bool {
    match ip.to_canonical() {
        ip if ip.is_loopback() => with_loopback,
        ip => here.contains(&ip),
    }
}

fn find_process(name: String, addresses: &[SocketAddr]) -> FoundBroker {
    let unknown = |why: String| WatchedBroker {
        name: name.clone(),
        process_unknown: Some(why),
        ..WatchedBroker::default()
    };
    match listeners::processes(addresses).and_then(broker_among) {
        Ok(pid) => match start_ticks(pid) {
            Some(ticks) => FoundBroker {
                broker: WatchedBroker { name, pid: Some(pid), program: program(pid), process_unknown: None },
                start_ticks: Some(ticks),
            },
            None => {
                FoundBroker { broker: unknown(format!("process {pid} has just ended")), start_ticks: None }
            }
        },
        Err(why) => FoundBroker { broker: unknown(why), start_ticks: None },
    }
}

/// The process of a broker among those that listen at its port, which a proxy may do instead of it.
fn broker_among(listening: Vec<u32>) -> Result<u32, String> {
    if let Some(broker) = listening.iter().find(|pid| is_broker(**pid)) {
        return Ok(*broker);
    }
    let named = listening.iter().take(LISTENING_MAX).map(|pid| match program(*pid) {
        Some(name) => format!("{name} (process {pid})"),
        None => format!("process {pid}"),
    });
    Err(format!(
        "{} listens on its port, but has no {LOCK_FILE} of a data directory open, as brokers have: it may forward the port \
         to a broker elsewhere",
        named.collect::<Vec<String>>().join(", ")
    ))
}

/// True for a process that has a data directory open. A program's name would tell less: proxies are written
/// in Java, too.
fn is_broker(pid: u32) -> bool {
    held_by(pid, ENTRIES_MAX).is_some_and(|mut held| held.next().is_some())
}

fn program(pid: u32) -> Option<String> {
    line(&format!("/proc/{pid}/comm"))
}

fn start_ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    proc::stat(&text).map(|stat| stat.start_ticks)
}

/// The brokers after the measurement. Those whose process has ended meanwhile have no usage of the whole
/// measurement.
pub(super) fn after(found: Vec<FoundBroker>) -> Vec<WatchedBroker> {
    let after = found.into_iter().map(|found| match (found.runs(), found.broker.pid) {
        (false, Some(pid)) => WatchedBroker {
            process_unknown: Some(format!("process {pid} ended during the measurement")),
            ..found.broker
        },
        _ => found.broker,
    });
    after.collect()
}

/// The log files of topics below data directories. The error is the reason of a refusal.
pub(super) fn logs(dirs: &[PathBuf], topics: &BTreeSet<String>) -> Result<Vec<DataDirectory>, String> {
    let mut found = Vec::new();
    let mut partitions = 0;
    for dir in dirs {
        let mut of_dir = DataDirectory {
            path: dir.display().to_string(),
            storage: chain(dir),
            broker: broker_of(dir),
            ..DataDirectory::default()
        };
        match partitions_of(dir, topics) {
            Ok(files) => of_dir.partitions = files,
            Err(error) => of_dir.failure = Some(error.to_string()),
        }
        partitions += of_dir.partitions.len();
        if partitions > PARTITIONS_MAX {
            return Err(format!(
                "its data directories have more than {PARTITIONS_MAX} partitions of the run"
            ));
        }
        found.push(of_dir);
    }
    Ok(found)
}

/// The id of the broker that owns a data directory.
fn broker_of(dir: &Path) -> Option<i32> {
    node_id(&std::fs::read_to_string(dir.join(PROPERTIES_FILE)).ok()?)
}

fn partitions_of(dir: &Path, topics: &BTreeSet<String>) -> std::io::Result<Vec<PartitionFiles>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)?.take(ENTRIES_MAX) {
        let name = entry?.file_name();
        let Some((topic, partition)) = name.to_str().and_then(|name| name.rsplit_once('-')) else { continue };
        let Ok(partition) = partition.parse() else { continue };
        if topics.contains(topic) {
            let bytes = log_bytes(&dir.join(&name))?;
            found.extend(bytes.map(|bytes| PartitionFiles { topic: topic.to_owned(), partition, bytes }));
        }
    }
    Ok(found)
}

/// Total size of the log files of a partition; `None` if its directory is gone. Retention may delete files
/// between two looks.
fn log_bytes(dir: &Path) -> std::io::Result<Option<u64>> {
    let Some(entries) = unless_gone(std::fs::read_dir(dir))? else { return Ok(None) };
    let mut bytes = 0;
    for entry in entries.take(ENTRIES_MAX) {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            bytes += unless_gone(std::fs::metadata(path))?.map_or(0, |file| file.len());
        }
    }
    Ok(Some(bytes))
}

fn unless_gone<T>(found: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data directory's open lock.
    fn lock_in(data: &Path) -> tempfile::NamedTempFile {
        tempfile::Builder::new().prefix(LOCK_FILE).rand_bytes(0).tempfile_in(data).expect("made")
    }

    #[tokio::test]
    async fn a_broker_at_an_address_of_this_machine_has_its_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let data = tempfile::tempdir().expect("a directory");
        let _lock = lock_in(data.path());
        let of = |name: &str, host: &str, port| AdvertisedBroker {
            name: name.to_owned(),
            host: host.to_owned(),
            port,
        };
        // An address for documentation is no machine's.
        let all = vec![
            of("broker-1", "127.0.0.1", port),
            of("broker-2", "192.0.2.1", port),
            of("broker-3", "127.0.0.1", 1),
        ];
        let found = after(find(all.clone(), true).await);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].pid), ("broker-1", Some(std::process::id())));
        assert!(found[0].program.is_some() && found[0].process_unknown.is_none(), "{found:?}");
        assert_eq!(found[1].pid, None);
        assert!(
            found[1].process_unknown.as_ref().is_some_and(|why| why.contains("127.0.0.1:1")),
            "{found:?}"
        );
        assert!(find(all, false).await.is_empty(), "the loopback of another machine");
    }

    #[test]
    fn a_program_that_forwards_a_port_is_no_broker() {
        let data = tempfile::tempdir().expect("a directory");
        // A proxy may be written in Java.
        let java = data.path().join("java");
        std::os::unix::fs::symlink("/bin/sh", &java).expect("made");
        let mut forwards = std::process::Command::new(java)
            .args(["-c", "read line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a program");
        let (proxy, own) = (forwards.id(), std::process::id());
        // Between fork and exec, a child has the name of its parent.
        while program(proxy).as_deref() != Some("java") {
            std::thread::yield_now();
        }
        let why = broker_among(vec![proxy]).expect_err("it is no broker");
        assert!(why.starts_with(&format!("java (process {proxy}) listens on its port, but has no")), "{why}");
        let _lock = lock_in(data.path());
        assert_eq!(broker_among(vec![proxy, own]), Ok(own), "a socket that several processes have open");
        forwards.kill().and_then(|()| forwards.wait()).expect("it ends");
    }

    #[test]
    fn addresses_that_can_be_bound_are_not_all_own() {
        let here = [IpAddr::from([10, 0, 0, 7])].into();
        let own =
            |address: &str, with_loopback| is_own(address.parse().expect("an address"), &here, with_loopback);
        assert!(own("10.0.0.7", false) && own("::ffff:10.0.0.7", false));
        assert!(!own("10.0.0.8", true) && !own("0.0.0.0", true));
        assert!(own("127.0.0.1", true) && !own("127.0.0.1", false));
    }

    #[test]
    fn a_process_that_ended_is_unknown() {
        let broker =
            WatchedBroker { name: "broker-1".to_owned(), pid: Some(u32::MAX), ..WatchedBroker::default() };
        let found = after(vec![FoundBroker { broker, start_ticks: Some(7) }]);
        let why = found[0].process_unknown.as_deref().expect("it does not run");
        assert!(why.ends_with("ended during the measurement"), "{why}");
    }

    #[test]
    fn log_files_of_the_run_are_summed_by_partition() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |file: &str, bytes: usize| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, vec![0; bytes]).expect("written");
        };
        write("run-a-1/00000000000000000000.log", 100);
        write("run-a-1/00000000000000000007.log", 30);
        write("run-a-1/00000000000000000000.index", 9);
        write("other-1/00000000000000000000.log", 5);
        write("run-a-1.0123-delete/00000000000000000000.log", 5);
        // A file that is deleted after its name was read, and so is a directory.
        let gone = dir.path().join("gone");
        std::os::unix::fs::symlink(&gone, dir.path().join("run-a-1/00000000000000000009.log")).expect("made");
        std::os::unix::fs::symlink(&gone, dir.path().join("run-a-2")).expect("made");
        let meta = dir.path().join("meta.properties");
        std::fs::write(meta, "#\nversion=1\nnode.id = 3\n").expect("written");
        let missing = dir.path().join("missing");
        let found = logs(&[dir.path().to_owned(), missing], &["run-a".to_owned()].into()).expect("few");
        assert_eq!(found[0].broker, Some(3));
        let files = PartitionFiles { topic: "run-a".to_owned(), partition: 1, bytes: 130 };
        assert_eq!((&found[0].partitions, &found[0].failure), (&vec![files], &None));
        assert!(found[0].storage.is_some());
        assert!(found[1].failure.is_some() && found[1].broker.is_none(), "{found:?}");
    }
}
