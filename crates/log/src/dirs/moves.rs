//! Moving a partition to another log directory (KIP-113, Kafka's `LogManager.replaceCurrentWithFutureLog`).
//!
//! ```text
//! <topic>-<partition>.<hex>-future/   the copy that will take the place of the log in another directory
//! <topic>-<partition>.<hex>-delete/   with the same hex: the log whose place it takes
//! ```
//!
//! Owns: creating such a copy, and replacing the log with it, so that a stop at any moment leaves a complete
//! log or copy. Refuses: copying, which is the broker's task, since the broker knows when the log changes.
//!
//! When a copy replaces the log, the copy's directory first loses `-future`, as in Kafka, and this rename is
//! synced before the log's directory is renamed. So each directory has a whole log or copy until the other
//! has the log, and either directory may be missing at the next start. No append reaches the copy before both
//! names are synced. A stop between the renames leaves two equal logs, and the next start keeps one (see
//! `dirs::duplicates`). If a start finds a copy and a `-delete` directory with the same hex, it finishes the
//! move. A copy with neither a log nor such a directory waits for its log: the log is in an offline
//! directory, and the copy may lack some of its records.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_hash::HashSet;

use super::job::Job;
use super::{CreateError, DirectoryOffline, LogDirs};
use crate::config::LogConfig;
use crate::dir_state::{Checkpoint, DirState};
use crate::partition::PartitionLog;
use crate::segment::Home;
use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;

impl LogDirs {
    /// The id of the directory at this path, as spelled in `log.dirs`, and true if it is online; `None` for
    /// an unknown path. A directory that could not be opened has no id.
    pub fn directory_at(&self, path: &Path) -> Option<(Option<Uuid>, bool)> {
        let is_it = |known: &Path| std::path::absolute(known).is_ok_and(|known| known == path);
        if let Some(dir) = self.dirs.iter().find(|dir| is_it(dir.state.path())) {
            return Some((Some(dir.state.id()), dir.state.offline().is_none()));
        }
        self.failed.iter().any(|failed| is_it(&failed.path)).then_some((None, false))
    }

    /// True if every directory of `log.dirs` was opened. The content of a missing directory is unknown.
    pub fn are_complete(&self) -> bool {
        self.are_all_online()
    }

    /// Creates an empty copy of a partition in a directory other than that of its log.
    pub fn create_future(
        &self,
        name: &TopicPartition,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
        directory: Uuid,
    ) -> Result<PartitionLog, CreateError> {
        let Some(dir) = self.online().find(|dir| dir.state.id() == directory) else {
            return Err(DirectoryOffline { directory: Some(directory) }.into());
        };
        self.disk.descriptors().check_new_partition().map_err(io::Error::from)?;
        let state = &dir.state;
        state.make_way(name)?;
        let home = Home::new(state.disk().clone(), state.path().join(name.future_dir_name()));
        let mut future = PartitionLog::create(home, name.clone(), topic_id, config, self.clock.clone())?;
        future.attach(Arc::clone(state));
        state.register_future(name.clone(), Arc::clone(future.published()));
        Ok(future)
    }

    /// The copy of a partition that was found when the directories were opened.
    pub fn take_future(&self, name: &TopicPartition) -> Option<PartitionLog> {
        self.futures.lock().remove(name)
    }

    /// The directory of a copy of this topic, if not taken yet.
    pub fn directory_of_future(&self, name: &TopicPartition, topic_id: Uuid) -> Option<Uuid> {
        let futures = self.futures.lock();
        let copy = futures.get(name).filter(|copy| copy.topic_id().is_none_or(|of| of == topic_id));
        copy.and_then(|copy| copy.directory_id())
    }

    /// Turns a copy into the log, because the directory of the log is missing. Syncs its name.
    pub fn promote_future(&self, name: &TopicPartition) -> io::Result<Option<PartitionLog>> {
        let mut futures = self.futures.lock();
        let Some(copy) = futures.get_mut(name) else { return Ok(None) };
        let Some(state) = copy.state().cloned() else { return Ok(None) };
        let place = state.path().join(name.dir_name());
        state.disk().rename(copy.dir(), &place)?;
        copy.move_to(place);
        state.disk().sync_dir(state.path())?;
        state.register(name.clone(), Arc::clone(copy.published()));
        Ok(futures.remove(name))
    }

    /// All copies found when the directories were opened and not taken yet.
    pub fn take_futures(&self) -> Vec<PartitionLog> {
        self.take_stray_futures(|_| true)
    }

    /// Takes the copies that are strays.
    pub fn take_stray_futures(&self, is_stray: impl Fn(&PartitionLog) -> bool) -> Vec<PartitionLog> {
        self.futures.lock().extract_if(|_, copy| is_stray(copy)).map(|(_, future)| future).collect()
    }

    /// Replaces a log by an equal copy; afterwards `current` is the copy, and `future` the old log, to be
    /// deleted. After an error both are unchanged, unless a directory has failed. If the log's directory has
    /// failed, the copy is kept, and is the log at the next start. Syncs the names in both directories.
    pub fn replace(&self, current: &mut PartitionLog, future: &mut PartitionLog) -> io::Result<()> {
        let _allowed =
            crate::disk::allow_waits("until the names are on the medium it is open which log is the one");
        let name = current.name().clone();
        let copied_to = future.dir().file_name().and_then(|name| name.to_str());
        let retired = copied_to.and_then(TopicPartition::retired_dir_name);
        let (Some(old), Some(new), Some(retired)) =
            (current.state().cloned(), future.state().cloned(), retired)
        else {
            return Err(io::Error::other("the log and its copy do not lie in log directories"));
        };
        let paths = MovePaths {
            old: &old,
            new: &new,
            log: current.dir().to_owned(),
            retired: old.path().join(retired),
            copy: future.dir().to_owned(),
            target: new.path().join(name.dir_name()),
        };
        // The promised log start offset must hold in the new directory too, even after a power failure right
        // away.
        new.write_checkpoint(Checkpoint::LogStart)?;
        if let Err(error) = paths.change() {
            paths.change_back();
            if paths.has_target_name() {
                future.move_to(paths.target);
            }
            return Err(error);
        }
        future.succeed(current, paths.target);
        std::mem::swap(current, future);
        future.leave(paths.retired.clone());
        // Offsets published for readers belong to the new log, which is registered here under the same name.
        old.unregister(&name, current.published());
        new.register(name.clone(), Arc::clone(current.published()));
        let due_ms = self.clock.elapsed_ms().saturating_add(current.config().file_delete_delay_ms);
        old.doom(due_ms, paths.retired);
        // Otherwise, after a crash, the log would begin with high watermark 0, be recovered completely, and
        // count as never compacted.
        if let Err(error) = new.write_checkpoints() {
            tracing::warn!(dir = %new.path().display(), %error, "Failed to add a moved partition to the checkpoints, retrying later");
        }
        if let Err(error) = old.forget_checkpoints(&name) {
            tracing::warn!(dir = %old.path().display(), %error, "Failed to remove a moved partition from the checkpoints");
        }
        Ok(())
    }
}

/// The names of the directories before and after a copy replaces a log.
struct MovePaths<'a> {
    old: &'a DirState,
    new: &'a DirState,
    log: PathBuf,
    retired: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

impl MovePaths<'_> {
    fn change(&self) -> io::Result<()> {
        self.new.disk().rename(&self.copy, &self.target)?;
        self.new.disk().sync_dir(self.new.path())?;
        self.old.disk().rename(&self.log, &self.retired)?;
        self.old.disk().sync_dir(self.old.path())
    }

    /// True if the copy has the name of a log.
    fn has_target_name(&self) -> bool {
        self.new.disk().exists(&self.target) && !self.new.disk().exists(&self.copy)
    }

    /// Undoes the completed renames. The name of the log must be synced before its next use. If the log is
    /// unusable, the copy keeps its new name: it is whole, and the directory of the log may not return.
    fn change_back(&self) {
        if self.old.disk().exists(&self.retired) {
            let renamed = self.old.disk().rename(&self.retired, &self.log);
            if let Err(error) = renamed.and_then(|()| self.old.disk().sync_dir(self.old.path())) {
                self.old.fail(&format!("{} cannot get its name back: {error}", self.log.display()));
            }
        }
        if self.old.offline().is_none()
            && self.has_target_name()
            && let Err(error) = self.new.disk().rename(&self.target, &self.copy)
        {
            // The next start determines the log.
            self.new.fail(&format!("{} cannot get its name back: {error}", self.copy.display()));
        }
    }
}

/// A retired directory of a partition, found at the start.
pub(super) struct RetiredDir {
    pub(super) state: Arc<DirState>,
    pub(super) name: String,
}

/// Removes these directories, unless a log directory is offline: a partition's move to it may have been
/// interrupted, in which case its log is here under such a name.
pub(super) fn remove_retired(retired: Vec<RetiredDir>, all_are_online: bool) {
    if all_are_online {
        for RetiredDir { state, name } in retired {
            state.doom(0, state.path().join(name));
        }
    } else if let Some(first) = retired.first() {
        let first = first.state.path().join(&first.name);
        tracing::warn!(
            count = retired.len(), first = %first.display(),
            "Kept the directories of deleted and moved partitions until all log directories are online at a start"
        );
    }
}

/// Finishes an interrupted move: a copy whose log was renamed away becomes the log. Of several copies, one is
/// kept.
pub(super) fn finish_interrupted(jobs: &mut Vec<Job>, retired: &[RetiredDir]) {
    let found: HashSet<&str> = retired.iter().map(|dir| &*dir.name).collect();
    let logs: HashSet<_> =
        jobs.iter().filter(|job| job.future.is_none()).map(|job| job.name.clone()).collect();
    for job in jobs.iter_mut().filter(|job| !logs.contains(&job.name)) {
        let Some(copy) = job.future.clone() else { continue };
        let retired = copy.file_name().and_then(|name| TopicPartition::retired_dir_name(name.to_str()?));
        if retired.is_none_or(|retired| !found.contains(&*retired)) {
            continue;
        }
        let place = job.state.path().join(job.name.dir_name());
        let disk = job.state.disk();
        let placed = disk.rename(&copy, &place).and_then(|()| disk.sync_dir(job.state.path()));
        match placed {
            Ok(()) => {
                tracing::info!(from = %copy.display(), to = %place.display(), "Finished moving a partition between log directories");
                job.future = None;
            }
            Err(error) => job.state.fail(&format!("{} cannot take its place: {error}", copy.display())),
        }
    }
    let mut taken: HashSet<(TopicPartition, Option<Uuid>)> = HashSet::default();
    let logs_now = || jobs.iter().filter(|job| job.future.is_none());
    taken.extend(logs_now().map(|job| (job.name.clone(), Some(job.state.id()))));
    let logs: HashSet<TopicPartition> = logs_now().map(|job| job.name.clone()).collect();
    jobs.retain(|job| {
        let Some(copy) = &job.future else { return true };
        let beside_log = taken.contains(&(job.name.clone(), Some(job.state.id())));
        if !beside_log && taken.insert((job.name.clone(), None)) {
            return true;
        }
        // The copy was abandoned, and restored by a power failure or an offline directory: the log has all
        // its records. Without the log, either copy may be the better one.
        let is_needless = logs.contains(&job.name);
        let renamed = match is_needless {
            true => job.name.delete_dir_name(),
            false => job.name.stray_dir_name(),
        };
        let renamed = job.state.path().join(renamed);
        match job.state.disk().rename(copy, &renamed) {
            Ok(()) if is_needless => {
                tracing::warn!(path = %copy.display(), "Deleted a second copy of a partition");
                job.state.doom(0, renamed);
            }
            Ok(()) => {
                tracing::warn!(path = %renamed.display(), "Set aside a second copy of a partition without a log");
            }
            Err(error) => tracing::warn!(path = %copy.display(), %error, "Failed to remove a second copy of a partition"),
        }
        false
    });
}
