//! One partition to open in a log directory.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::config::LogConfig;
use crate::dir_state::DirState;
use crate::partition::{LogError, OpenOptions, PartitionLog};
use crate::segment::Home;
use crate::topic_partition::TopicPartition;

/// A partition to open.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) state: Arc<DirState>,
    pub(super) name: TopicPartition,
    /// The path of the directory, for a copy that will replace the log in another directory.
    pub(super) future: Option<PathBuf>,
    pub(super) options: OpenOptions,
}

impl Job {
    /// Opens the partition, and registers it with its directory.
    pub(super) fn open(&self, config: Arc<LogConfig>, clock: &Clock) -> Result<PartitionLog, LogError> {
        let home = Home::new(self.state.disk().clone(), self.dir());
        let mut log = PartitionLog::open(home, self.name.clone(), config, clock.clone(), &self.options)?;
        log.attach(Arc::clone(&self.state));
        let (name, offsets) = (self.name.clone(), Arc::clone(log.published()));
        match self.future {
            Some(_) => self.state.register_future(name, offsets),
            None => self.state.register(name, offsets),
        }
        Ok(log)
    }

    /// The directory of the partition's files.
    pub(super) fn dir(&self) -> PathBuf {
        self.future.clone().unwrap_or_else(|| self.state.path().join(self.name.dir_name()))
    }
}
