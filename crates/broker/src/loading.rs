//! The progress of loading logs at the start, for display.
//!
//! Counts partitions in the data directories, and open ones. Durations differ: a log that was not closed
//! cleanly is read from its recovery point on, any other log opens immediately.

use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_log::{LogDirsOptions, TopicPartition};
use thalweg_metadata::topic_name::CLUSTER_METADATA;

/// Number of partitions on disk that are open. There is no progress before loading starts and after it ends.
#[derive(Debug, Default)]
pub struct Loading {
    partitions: AtomicUsize,
    begun: AtomicUsize,
    threads: AtomicUsize,
}

impl Loading {
    /// Number of open partitions (at least), and of all partitions.
    pub fn progress(&self) -> Option<(usize, usize)> {
        let partitions = self.partitions.load(Ordering::Relaxed);
        // Each thread is still opening its latest partition.
        let at_work = self.threads.load(Ordering::Relaxed);
        let open = self.begun.load(Ordering::Relaxed).saturating_sub(at_work);
        (partitions > 0).then(|| (open.min(partitions), partitions))
    }

    /// Starts to count, before the directories are opened.
    pub(crate) fn begin(&self, options: &LogDirsOptions) {
        let partitions = options.dirs.iter().map(|dir| {
            // An unreadable directory is reported when it is opened.
            let listed = options.disk.list(dir).unwrap_or_default();
            // The metadata log belongs to the controller.
            let is_partition = |name: &str| {
                TopicPartition::from_dir_name(name)
                    .or_else(|| TopicPartition::from_future_dir_name(name))
                    .is_some_and(|name| &*name.topic != CLUSTER_METADATA)
            };
            listed.iter().filter(|listed| listed.is_dir && is_partition(&listed.name)).count()
        });
        self.threads.store(options.threads, Ordering::Relaxed);
        self.partitions.store(partitions.sum(), Ordering::Relaxed);
    }

    /// Counts a partition that a thread starts to open.
    pub(crate) fn open_one(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the display when all partitions are open.
    pub(crate) fn end(&self) {
        self.partitions.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_in_the_directories_are_counted_and_those_at_work_are_not_open() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        for name in ["a-0", "a-1", "__cluster_metadata-0", "a-2.0123-delete", "lost+found"] {
            std::fs::create_dir(dirs[0].path().join(name)).expect("a directory");
        }
        std::fs::write(dirs[1].path().join("b-0"), "a file").expect("a file");
        std::fs::create_dir(dirs[1].path().join("b-1")).expect("a directory");
        let mut paths: Vec<_> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        paths.push("/nowhere/at/all".into());
        let options = LogDirsOptions { threads: 2, ..LogDirsOptions::new(paths, 1) };
        let loading = Loading::default();
        assert_eq!(loading.progress(), None);
        loading.begin(&options);
        for open in [0, 0, 0, 1] {
            assert_eq!(loading.progress(), Some((open, 3)));
            loading.open_one();
        }
        loading.end();
        assert_eq!(loading.progress(), None);
    }
}
