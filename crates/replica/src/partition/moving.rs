//! A move to another log directory of this broker (KIP-113): a copy grows there, and replaces the log once it
//! has caught up.
//!
//! Owns: the equality of copy and log, batch for batch, through any change of the log, and the durability of
//! synced records through the switch. Refuses: deciding when to copy; see `replication::moves`.
//!
//! The copy has its own lock, which is taken before the partition's: copying blocks no requests. Only at the
//! end, when little is missing, both locks are held until the rest is copied and synced and the directories
//! are renamed. This is the one place where a partition's lock is held through syncs, once per move.
//!
//! The switch waits for the controller's consent to the new directory. A replica must not be in sync in a
//! directory that the controller does not know: otherwise the loss of that directory would go unnoticed.

use super::truncation::truncation;
use super::{Partition, State};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_log::disk::{allow_waits, is_shortage};
use thalweg_log::{
    AppendError, CreateError, DeleteRecordsError, EpochEnd, LogConfig, LogDirs, LogError, LogSlice,
    PartitionLog, ReadError, Uuid,
};
use thalweg_metadata::{DIRECTORY_FULL, DIRECTORY_LOST};
use thalweg_record::{LeaderEpoch, Offset};

/// Maximum number of bytes missing at the final switch, which copies them under the partition's lock.
const TAIL_BYTES: usize = 1024 * 1024;
/// Maximum number of rounds that copy bytes appended during a sync before the switch, so that few are
/// missing.
const CATCH_UPS_MAX: usize = 16;
/// Accepts batches of any epoch: the log has accepted them already.
const ANY_EPOCH: LeaderEpoch = LeaderEpoch(i32::MAX);

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many bytes were copied.
    Copied(u64),
    /// The copy has caught up.
    CaughtUp,
    /// The log has failed: log and copy stay where they are until a restart.
    LogFailed,
    /// Records of the log are known to be missing or unreadable, and other replicas may have them. The copy
    /// would not know of the damage, so it waits until the records are restored.
    LogDamaged,
    /// The copy has replaced the log.
    Moved,
    /// The copy no longer exists.
    Over,
}

/// Why a move cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The log could not be read.
    #[error("the log cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The copy refused an append.
    #[error("the copy cannot be appended to: {0}")]
    Append(#[from] AppendError),
    /// The log or the copy has failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The copy could not take over the log start.
    #[error("the log start cannot be taken over: {0}")]
    LogStart(#[from] DeleteRecordsError),
    /// A file or directory could not be read or renamed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl MoveError {
    /// True if the move can continue once disk space or file descriptors are free.
    pub fn is_for_lack_of_room(&self) -> bool {
        match self {
            MoveError::Append(AppendError::DiskFull(_) | AppendError::TooManyOpenFiles(_)) => true,
            MoveError::Io(error) | MoveError::Log(LogError::Io(error)) => is_shortage(error),
            _ => false,
        }
    }
}

/// The next step of a copy.
enum Step {
    /// Truncate the copy to this end.
    Cut(Offset),
    /// Restart the copy at this start.
    BeginAt(Offset),
    Append(LogSlice),
    Nothing,
}

impl Partition {
    /// Starts a move to a directory, or abandons one if the partition is already there. Returns true if there
    /// is a copy that needs a task.
    pub fn begin_move(&self, dirs: &LogDirs, directory: Uuid) -> Result<bool, CreateError> {
        let mut future = self.future.lock();
        if future.as_ref().is_some_and(|future| future.directory_id() == Some(directory)) {
            return Ok(self.claim());
        }
        self.give_up(&mut future, dirs);
        let (name, topic_id, config) = {
            let state = self.state.lock();
            let log = &state.log;
            if state.is_retired() || log.directory_id() == Some(directory) {
                return Ok(false);
            }
            (log.name().clone(), log.topic_id(), Arc::clone(log.config()))
        };
        *future = Some(dirs.create_future(&name, topic_id, config, directory)?);
        self.move_begins(&mut self.state.lock(), Some(directory));
        Ok(self.claim())
    }

    /// Resumes a move of an earlier process. The copy restarts empty unless it certainly belongs to the
    /// current log: the copy's disk may have been offline while the log was truncated or compacted.
    pub fn resume_move(&self, mut copy: PartitionLog) -> Result<bool, MoveError> {
        let mut future = self.future.lock();
        let (is_compacted, config) = {
            let state = self.state.lock();
            (state.is_compacted(), Arc::clone(state.log.config()))
        };
        let is_whole = !is_compacted && is_whole(&mut copy, config)?;
        let last = if is_whole { last_batch_of_copy(&mut copy) } else { None };
        let restart = {
            let mut state = self.state.lock();
            let goes_on = is_whole && !state.is_compacted() && state.is_of_log(&copy, last);
            self.move_begins(&mut state, copy.directory_id());
            (!goes_on).then(|| Step::BeginAt(state.log.log_start_offset()))
        };
        if let Some(step) = restart {
            tracing::info!(partition = ?self, path = %copy.dir().display(), "Copy does not match its log, restarting it");
            if let Err(error) = take(&mut copy, step) {
                *self.moves_to.lock() = None;
                return Err(error);
            }
        }
        *future = Some(copy);
        Ok(self.claim())
    }

    fn move_begins(&self, state: &mut State, directory: Option<Uuid>) {
        state.cut_to = None;
        *self.moves_to.lock() = directory;
    }

    /// Claims the copying for the caller; `false` if another task has claimed it.
    fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::Relaxed)
    }

    /// Abandons the move, if there is one.
    pub fn cancel_move(&self, dirs: &LogDirs) {
        self.give_up(&mut self.future.lock(), dirs);
    }

    /// Abandons the move of a [retired](Partition::retire) partition. A task that works on the copy finds the
    /// partition retired and abandons it.
    pub fn end_move(&self, dirs: &LogDirs) {
        if let Some(mut future) = self.future.try_lock() {
            self.give_up(&mut future, dirs);
        }
    }

    fn give_up(&self, future: &mut Option<PartitionLog>, dirs: &LogDirs) {
        let Some(mut copy) = future.take() else { return };
        *self.moves_to.lock() = None;
        tracing::info!(partition = ?self, path = %copy.dir().display(), "Abandoned a move to another log directory");
        if let Err(error) = dirs.delete(&mut copy) {
            tracing::error!(partition = ?self, %error, "Failed to delete the copy of a partition");
        }
    }

    /// True if the partition is being moved. The log of a moving partition is not compacted, since a
    /// tombstone must not be removed before it is copied.
    pub fn is_moving(&self) -> bool {
        self.moves_to().is_some()
    }

    /// The target directory of the move.
    pub fn moves_to(&self) -> Option<Uuid> {
        *self.moves_to.lock()
    }

    /// The directory to report to the controller, which knows `known`: that of the log, unless the controller
    /// has consented to an unfinished move.
    pub fn unreported_directory(&self, known: Option<Uuid>) -> Option<Uuid> {
        let consented = known.is_some() && self.moves_to() == known;
        let state = self.state.lock();
        let actual = state.log.directory_id()?;
        let will_move = consented && state.log.failure().is_none();
        (known != Some(actual) && !will_move).then_some(actual)
    }

    /// Notes that the log was found at the start.
    pub fn note_found(&self) {
        self.found.store(true, Ordering::Relaxed);
    }

    /// Notes the directory of the replica that the controller knows.
    pub fn note_known_directory(&self, known: Option<Uuid>) {
        if known.is_some() && known == self.with_log(|log| log.directory_id()) {
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// The directory to report first, if the directory that the controller knows has disappeared. The true
    /// directory would make the controller assume a restarted log. A log in the directory that the controller
    /// has known since the start did not move there: it is whole. A log found at the start may be an earlier
    /// one in a directory that has returned, and may lack records.
    pub fn place_until_known(&self) -> Option<Uuid> {
        match self.known.load(Ordering::Relaxed) {
            true => Some(DIRECTORY_FULL),
            false => self.found.load(Ordering::Relaxed).then_some(DIRECTORY_LOST),
        }
    }

    /// Closes the copy, before the log is closed. The move continues at the next start.
    pub fn close_future(&self) -> Result<(), LogError> {
        self.future.lock().take().map_or(Ok(()), |mut copy| copy.close())
    }

    /// Copies the next bytes: at most `bytes_max`, but at least one batch. Blocks.
    pub fn copy_next(&self, dirs: &LogDirs, bytes_max: usize) -> Result<Progress, MoveError> {
        let mut future = self.future.lock();
        if self.state.lock().is_retired() {
            self.give_up(&mut future, dirs);
        }
        match future.as_mut() {
            Some(_) if self.state.lock().log.failure().is_some() => Ok(Progress::LogFailed),
            Some(copy) => self.copy_once(copy, bytes_max),
            None => Ok(self.is_over()),
        }
    }

    fn copy_once(&self, copy: &mut PartitionLog, bytes_max: usize) -> Result<Progress, MoveError> {
        let step = {
            let mut state = self.state.lock();
            copy.set_config(Arc::clone(state.log.config()));
            state.next_step(copy, bytes_max)?
        };
        match take(copy, step) {
            // Bytes read without the lock may have been truncated since, or belong to two branches.
            Err(MoveError::Append(_)) if copy.poison().is_none() && self.state.lock().cut_to.is_some() => {
                Ok(Progress::Copied(0))
            }
            taken => taken,
        }
    }

    /// Replaces the log by the copy in directory `to`, if little is missing. Blocks until all synced records
    /// are synced in the copy.
    pub fn finish_move(&self, dirs: &LogDirs, to: Uuid) -> Result<Progress, MoveError> {
        let mut future = self.future.lock();
        let Some(copy) = future.as_mut() else { return Ok(self.is_over()) };
        if copy.directory_id() != Some(to) {
            // Another move has replaced this one.
            return Ok(Progress::Copied(0));
        }
        copy.flush()?;
        for _ in 0..CATCH_UPS_MAX {
            if self.copy_once(copy, TAIL_BYTES)? == Progress::CaughtUp {
                break;
            }
        }
        let mut state = self.state.lock();
        let _allowed = allow_waits("little is missing, and nothing may come between it and the exchange");
        if state.is_retired() || state.log.failure().is_some() {
            // The next step handles this case.
            return Ok(Progress::Copied(0));
        }
        if state.log.damage().is_some() && state.registration.replicas.len() > 1 {
            return Ok(Progress::LogDamaged);
        }
        if let Some(copied) = state.copy_tail(copy)? {
            return Ok(Progress::Copied(copied));
        }
        match dirs.replace(&mut state.log, copy) {
            // The copy may be the only remaining log.
            Err(_) if state.log.failure().is_some() => return Ok(Progress::LogFailed),
            replaced => replaced?,
        }
        *future = None;
        *self.moves_to.lock() = None;
        self.claimed.store(false, Ordering::Relaxed);
        Ok(Progress::Moved)
    }

    /// Ends the move under the lock of the copy, so that a later move gets its own task.
    fn is_over(&self) -> Progress {
        self.claimed.store(false, Ordering::Relaxed);
        Progress::Over
    }
}

impl State {
    fn is_compacted(&self) -> bool {
        self.log.config().cleanup_policy.compact || self.log.cleaned_to() > Offset::ZERO
    }

    /// True if the log contains the whole copy, as far as their ends show. `last_of_copy` is the last batch
    /// of the copy, if readable.
    fn is_of_log(&mut self, copy: &PartitionLog, last_of_copy: Option<Vec<u8>>) -> bool {
        let end = copy.log_end_offset();
        if end > self.log.log_end_offset() {
            return false;
        }
        let last = end - 1;
        let lies_in = |log: &PartitionLog| last >= log.log_start_offset();
        // If the log starts behind the copy's end, the copy restarts in any case.
        !lies_in(copy) || !lies_in(&self.log) || {
            let ours = last_batch(&mut self.log, last).ok().flatten();
            ours.is_some() && ours == last_of_copy
        }
    }

    /// Compares the copy with the log, and returns the next step.
    fn next_step(&mut self, copy: &mut PartitionLog, bytes_max: usize) -> Result<Step, MoveError> {
        let (start, end) = (self.log.log_start_offset(), self.log.log_end_offset());
        let (copied_to, epoch) = (copy.log_end_offset(), copy.latest_epoch());
        if let Some(cut_to) = self.cut_to.take().filter(|cut_to| *cut_to < copied_to) {
            return Ok(Step::Cut(cut_to));
        }
        // After a power failure the log may have its earlier start.
        if copied_to < start || copy.log_start_offset() > start {
            return Ok(Step::BeginAt(start));
        }
        if copied_to > end {
            return Ok(Step::Cut(end));
        }
        // The log may have been truncated and rewritten unnoticed.
        if let Some(epoch) = epoch
            && let Some(here) = self.log.end_offset_for_epoch(epoch)
            && (here.leader_epoch < epoch || here.end_offset < copied_to)
        {
            let EpochEnd { leader_epoch, .. } = here;
            let cut_to = truncation(here, copy.end_offset_for_epoch(leader_epoch), copied_to);
            // An epoch without remaining records is dropped by restarting the copy.
            return Ok(if cut_to < copied_to { Step::Cut(cut_to) } else { Step::BeginAt(start) });
        }
        copy.set_high_watermark(self.log.high_watermark());
        let slice = self.log.read(copied_to, bytes_max, end, true)?;
        Ok(slice.map_or(Step::Nothing, Step::Append))
    }

    /// Copies the missing bytes, and makes the copy identical to the log. Returns the number of copied bytes
    /// if too many are missing to continue.
    fn copy_tail(&mut self, copy: &mut PartitionLog) -> Result<Option<u64>, MoveError> {
        let mut copied = 0;
        loop {
            let step = self.next_step(copy, TAIL_BYTES)?;
            match take(copy, step)? {
                Progress::CaughtUp => break,
                Progress::Copied(bytes) if bytes > 0 && copied + bytes <= TAIL_BYTES as u64 => {
                    copied += bytes
                }
                // The rest, or a cut, takes too long for this lock.
                Progress::Copied(bytes) => return Ok(Some(copied + bytes)),
                progress => unreachable!("taking a step is never {progress:?}"),
            }
        }
        copy.go_to_end_of(&self.log)?;
        copy.set_high_watermark(self.log.high_watermark());
        let start = self.log.log_start_offset();
        if copy.log_start_offset() < start {
            copy.delete_records(start)?;
        }
        copy.adopt_lost_beginning(&self.log)?;
        if copy.recovery_point() < self.log.recovery_point() {
            copy.flush()?;
        }
        Ok(None)
    }
}

fn take(copy: &mut PartitionLog, step: Step) -> Result<Progress, MoveError> {
    match step {
        Step::Cut(offset) => cut(copy, offset)?,
        Step::BeginAt(offset) => begin_at(copy, offset)?,
        Step::Append(slice) => return append(copy, &slice),
        Step::Nothing => return Ok(Progress::CaughtUp),
    }
    // The copy has no readers, and the disk may need the space.
    copy.purge_deleted(i64::MAX);
    Ok(Progress::Copied(0))
}

/// Empties a copy, so that all its records are copied again.
fn begin_at(copy: &mut PartitionLog, offset: Offset) -> Result<(), LogError> {
    copy.truncate_fully_and_start_at(offset, None)?;
    copy.forget_missing()
}

/// Cuts a copy. Nothing is set aside, since the log has the records.
fn cut(copy: &mut PartitionLog, offset: Offset) -> Result<(), LogError> {
    // The high watermark is not below the log start.
    if offset < copy.log_start_offset() {
        return begin_at(copy, offset);
    }
    copy.set_high_watermark(offset);
    copy.truncate_to(offset).map(drop)
}

fn append(copy: &mut PartitionLog, slice: &LogSlice) -> Result<Progress, MoveError> {
    let Some(bytes) = read(slice)? else {
        // The log was truncated meanwhile, which the next comparison shows.
        return Ok(Progress::Copied(0));
    };
    let info = match copy.append_as_follower(&bytes, ANY_EPOCH) {
        // A batch of the log spans the end of the copy, so the copy differs.
        Err(AppendError::UnexpectedOffset(found)) => {
            cut(copy, found.first)?;
            copy.append_as_follower(&bytes, ANY_EPOCH)?
        }
        // The copy may lack the same offsets as the log.
        Err(AppendError::OffsetsMissing(_)) => {
            copy.accept_gaps();
            copy.append_as_follower(&bytes, ANY_EPOCH)?
        }
        appended => appended?,
    };
    if info.rolled {
        // Bounds the recovery scan after a crash to one segment, and the sync at the end of the move.
        copy.flush()?;
    }
    Ok(Progress::Copied(info.appended_bytes))
}

/// The bytes of a slice, unless its file has become shorter.
fn read(slice: &LogSlice) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; slice.len];
    Ok((slice.file.read_at(&mut bytes, slice.position)? == bytes.len()).then_some(bytes))
}

/// True if no record is missing from a copy of an earlier process, since the log is deleted when the copy
/// replaces it. Reads the whole copy.
fn is_whole(copy: &mut PartitionLog, config: Arc<LogConfig>) -> Result<bool, LogError> {
    // The copy was opened before the policy of its topic was known.
    copy.set_config(config);
    copy.end_at_gap()?;
    while copy.damage().is_none() && copy.check_next_segment()? {}
    Ok(copy.damage().is_none())
}

/// The last batch of a copy, if readable.
fn last_batch_of_copy(copy: &mut PartitionLog) -> Option<Vec<u8>> {
    let last = copy.log_end_offset() - 1;
    if last >= copy.log_start_offset() { last_batch(copy, last).ok().flatten() } else { None }
}

/// The batch that contains this offset.
fn last_batch(log: &mut PartitionLog, offset: Offset) -> Result<Option<Vec<u8>>, MoveError> {
    let end = log.log_end_offset();
    match log.read(offset, 1, end, true)? {
        Some(slice) => Ok(read(&slice)?),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
