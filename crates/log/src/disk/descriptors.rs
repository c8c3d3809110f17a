//! The descriptors of the process: their limit and their use.
//!
//! Owns: the limit (`RLIMIT_NOFILE`), the count of open log files and of connections, and the refusal of
//! connections and partitions before the limit is reached. Connections leave a share of descriptors to logs.
//! New partitions leave some to existing logs, which open files briefly to roll, read, flush and checkpoint,
//! and some to connections: if partitions used all descriptors, no client could delete a partition. Refuses:
//! counting other files; a share is reserved for them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The divisor of the share that connections leave to logs, and the maximum of that share.
const LOG_SHARE: usize = 4;
const LOG_SHARE_MAX: usize = 16 * 1024;
/// The divisor of the share that new partitions leave to existing ones and to uncounted files, with its
/// minimum and maximum.
const WORK_SHARE: usize = 8;
const WORK_MIN: usize = 48;
const WORK_MAX: usize = 1024;
/// Room for uncounted files: listening sockets, the runtime's files, a checkpoint being written.
const UNCOUNTED: usize = 24;
/// The divisor of the share that new partitions leave to connections, and the maximum of that share.
const CONNECTION_SHARE: usize = 16;
const CONNECTION_SHARE_MAX: usize = 1024;

/// The descriptors of the process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Descriptors(Option<Arc<DescriptorCounts>>);

#[derive(Debug)]
struct DescriptorCounts {
    max: usize,
    files: AtomicUsize,
    connections: AtomicUsize,
}

/// Too few descriptors are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of {max} file descriptors are in use, {files} of them by logs, and the rest is reserved: raise the limit of open files (RLIMIT_NOFILE, `ulimit -n`)",
    files + connections
)]
pub struct TooFewDescriptors {
    /// Number of open log files.
    pub files: usize,
    /// Number of open connections.
    pub connections: usize,
    /// Maximum number of descriptors.
    pub max: usize,
}

impl From<TooFewDescriptors> for io::Error {
    fn from(error: TooFewDescriptors) -> io::Error {
        // The error that the system would soon return, with the reason.
        io::Error::new(io::Error::from(Errno::MFILE).kind(), error)
    }
}

impl Descriptors {
    /// The descriptors of this process, with its current limit. Without a limit nothing is refused.
    pub(super) fn of_process() -> Descriptors {
        let limit = getrlimit(Resource::Nofile).current.and_then(|max| usize::try_from(max).ok());
        limit.map_or(Descriptors(None), Descriptors::limited)
    }

    /// A budget of this size.
    pub fn limited(max: usize) -> Descriptors {
        let (files, connections) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Descriptors(Some(Arc::new(DescriptorCounts { max, files, connections })))
    }

    /// The limit of descriptors; `None` if there is none.
    pub fn max(&self) -> Option<usize> {
        self.0.as_ref().map(|counted| counted.max)
    }

    /// The maximum number of connections if no log file is open; `None` if there is no limit.
    pub fn connections_max(&self) -> Option<usize> {
        self.0.as_ref().map(|counted| counted.connections_max())
    }

    /// Counts an opened file.
    pub(super) fn open_file(&self) -> OpenFile {
        if let Some(counted) = &self.0 {
            counted.files.fetch_add(1, Ordering::Relaxed);
        }
        OpenFile(self.clone())
    }

    /// Checks if a partition may be created.
    pub(crate) fn check_new_partition(&self) -> Result<(), TooFewDescriptors> {
        let Some(counted) = &self.0 else { return Ok(()) };
        let (files, connections) = counted.taken();
        let taken = files + connections.max(counted.connections_min());
        counted.check(taken < counted.max.saturating_sub(counted.work()))
    }

    /// Reserves a descriptor for a connection.
    pub fn open_connection(&self) -> Result<OpenConnection, TooFewDescriptors> {
        if let Some(counted) = &self.0 {
            let (files, connections) = counted.taken();
            // Segments of existing logs may have used the descriptors left by partitions. An operator must
            // still be able to connect.
            let allowed = match connections < counted.connections_min() {
                true => counted.max.saturating_sub(UNCOUNTED),
                false => counted.connections_max(),
            };
            counted.check(files + connections < allowed)?;
            counted.connections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(OpenConnection(self.clone()))
    }
}

impl DescriptorCounts {
    /// The reserve for existing logs and uncounted files.
    fn work(&self) -> usize {
        (self.max / WORK_SHARE).clamp(WORK_MIN, WORK_MAX)
    }

    fn connections_max(&self) -> usize {
        self.max.saturating_sub(self.work() + (self.max / LOG_SHARE).min(LOG_SHARE_MAX))
    }

    /// Number of connections that partitions leave room for.
    fn connections_min(&self) -> usize {
        (self.max / CONNECTION_SHARE).min(CONNECTION_SHARE_MAX)
    }

    /// Numbers of log files and connections.
    fn taken(&self) -> (usize, usize) {
        (self.files.load(Ordering::Relaxed), self.connections.load(Ordering::Relaxed))
    }

    fn check(&self, is_allowed: bool) -> Result<(), TooFewDescriptors> {
        let (files, connections) = self.taken();
        if is_allowed { Ok(()) } else { Err(TooFewDescriptors { files, connections, max: self.max }) }
    }
}

/// An open log file, counted until dropped.
#[derive(Debug)]
pub(super) struct OpenFile(Descriptors);

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(counted) = &self.0.0 {
            counted.files.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// An open connection, counted until dropped.
#[derive(Debug)]
pub struct OpenConnection(Descriptors);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if let Some(counted) = &self.0.0 {
            counted.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// True if the error means that the process or the system has too many open files. The call had no effect,
/// and a later attempt may succeed.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    let refused = |error: &io::Error| {
        error.get_ref().is_some_and(|reason| reason.downcast_ref::<TooFewDescriptors>().is_some())
    };
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) || refused(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_that_take_more_files_do_not_lock_clients_out() {
        let descriptors = Descriptors::limited(16_000);
        let mut files = Vec::new();
        while descriptors.check_new_partition().is_ok() {
            files.push(descriptors.open_file());
        }
        // Each partition may keep some older segments open.
        files.extend((0..1900).map(|_| descriptors.open_file()));
        let connections: Vec<_> = std::iter::from_fn(|| descriptors.open_connection().ok()).collect();
        assert_eq!(files.len() + connections.len(), 16_000 - UNCOUNTED);
        assert!(!connections.is_empty());
    }

    #[test]
    fn connections_are_refused_before_partitions() {
        let descriptors = Descriptors::limited(400);
        let connections: Vec<_> = std::iter::from_fn(|| descriptors.open_connection().ok()).collect();
        assert_eq!(connections.len(), descriptors.connections_max().expect("a limit"));
        assert!(connections.len() < 300, "a quarter is left to logs, and some to other work");
        let mut files = Vec::new();
        while descriptors.check_new_partition().is_ok() {
            files.push(descriptors.open_file());
        }
        assert_eq!(connections.len() + files.len(), 400 - 50);
        drop(connections);
        assert!(descriptors.check_new_partition().is_ok() && descriptors.open_connection().is_ok());
    }

    #[test]
    fn partitions_leave_room_for_connections() {
        for max in [100, 400, 20_000, 1 << 20] {
            let descriptors = Descriptors::limited(max);
            let mut files = Vec::new();
            while descriptors.check_new_partition().is_ok() {
                files.push(descriptors.open_file());
            }
            let connections: Vec<_> = std::iter::from_fn(|| descriptors.open_connection().ok()).collect();
            assert!(
                connections.len() >= max / 16 || connections.len() >= 1024,
                "{} of {max}",
                connections.len()
            );
            // After a client deletes a partition, another may be created.
            assert!(descriptors.check_new_partition().is_err());
            files.truncate(files.len() - 1);
            drop(connections);
            assert!(descriptors.check_new_partition().is_ok());
            // Existing logs continue into the reserve for their work: some connections stay possible.
            files.extend(
                std::iter::repeat_with(|| descriptors.open_file()).take((max / 8).clamp(48, 1024) / 2),
            );
            assert!(descriptors.open_connection().is_ok(), "{max}");
        }
    }

    #[test]
    fn refusal_is_known_for_what_it_is() {
        let refused = io::Error::from(TooFewDescriptors { files: 1, connections: 0, max: 2 });
        assert!(lacks_descriptors(&refused) && lacks_descriptors(&Errno::MFILE.into()));
        assert!(!lacks_descriptors(&Errno::NOSPC.into()));
    }
}
