//! Opening a partition on disk, and creating a new one.
//!
//! Owns: the choice of state to trust after a clean stop and to rebuild after any other. Refuses: checkpoints
//! and indexes that do not match the batches.
//!
//! After a clean stop, the log end is found from the last index entry and a few headers. The leader epochs
//! are compared with these headers and the first headers of the newest segment. Otherwise only the last entry
//! of each index is read, and no file stays open. After any other stop every batch from the recovery point on
//! is read and checked; the first incomplete or invalid one ends the log. The indexes of these segments, the
//! transaction indexes, the leader epochs and the producers are rebuilt from the batches. Earlier leader
//! epochs are compared with the end of the previous segment.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use thalweg_record::Offset;

use super::compact::CompactionState;
use super::error::LogError;
use super::examine::Oddities;
use super::flush::FlushState;
use super::found::{had_batches, sort_out};
use super::health::Health;
use super::in_flight::recall_in_flight;
use super::loading::{LoadingPartition, OpenOptions};
use super::replay::{EpochReplay, replay_segments};
use super::{PartitionLog, ReadHints, metadata, suspects};
use crate::clock::Clock;
use crate::config::LogConfig;
use crate::epochs::LeaderEpochs;
use crate::producers::{Producers, snapshot};
use crate::published::PublishedOffsets;
use crate::scan::ScanError;
use crate::segment::{Home, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment};
use crate::set_aside::SetAside;
use crate::topic_partition::TopicPartition;
use thalweg_ids::Uuid;

impl PartitionLog {
    /// Creates the directory and first segment of a partition that is not on disk; fails if segments exist.
    pub fn create(
        home: Home,
        name: TopicPartition,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
        clock: Clock,
    ) -> io::Result<PartitionLog> {
        let is_new = home.disk.create_dir(&home.dir)?;
        if !is_new && home.disk.list(&home.dir)?.iter().any(|listed| listed.name.ends_with(LOG_SUFFIX)) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let written = topic_id
            .map_or(Ok(()), |topic_id| metadata::write(&home.disk, &home.dir, topic_id))
            .and_then(|()| Segment::create(&home, Offset::ZERO, clock.now_ms()));
        let segment = match written {
            Ok(segment) => segment,
            Err(error) => {
                // Leftovers would obstruct the next attempt. The directory was empty before.
                if let Err(error) = home.disk.remove_dir(&home.dir) {
                    tracing::warn!(dir = %home.dir.display(), %error, "Failed to remove an incomplete partition");
                }
                return Err(error);
            }
        };
        let loading = LoadingPartition {
            home,
            segments: vec![segment],
            epochs: LeaderEpochs::empty(),
            epoch_replay: EpochReplay::new(LeaderEpochs::empty(), Offset::ZERO),
            producers: Producers::default(),
            snapshots: Vec::new(),
            log_end: Offset::ZERO,
            oddities: Oddities::default(),
            missing: None,
            contradicted: None,
            lost_markers: Vec::new(),
            has_txn_checkpoint: false,
            unindexed: BTreeSet::new(),
        };
        let mut log = loading.into_log(name, topic_id, config, clock, Offset::ZERO);
        log.note_unsynced_names();
        log.publish();
        Ok(log)
    }

    /// Opens a partition that is on disk.
    pub fn open(
        home: Home,
        name: TopicPartition,
        config: Arc<LogConfig>,
        clock: Clock,
        options: &OpenOptions,
    ) -> Result<PartitionLog, LogError> {
        let topic_id = metadata::read(&home.disk, &home.dir)?;
        let mut found = sort_out(&home)?;
        let now_ms = clock.now_ms();
        let mut segments = Vec::with_capacity(found.segments.len().max(1));
        for (&base, &files) in &found.segments {
            segments.push(Segment::found(&home, base, files, now_ms)?);
        }
        mark_emptied(&home, &segments, &mut found.signs.suspects)?;
        if segments.is_empty() {
            segments.push(Segment::create(&home, options.log_start, now_ms)?);
        }
        let unindexed = segments.iter().filter(|segment| segment.lacks_index());
        let mut loading = LoadingPartition {
            unindexed: unindexed.map(|segment| segment.base_offset).collect(),
            epochs: LeaderEpochs::empty(),
            epoch_replay: EpochReplay::new(LeaderEpochs::empty(), Offset::ZERO),
            producers: Producers::starting_at(segments[0].base_offset.0),
            snapshots: found.snapshots,
            log_end: Offset::ZERO,
            oddities: Oddities { deleted: found.deleted, ..Oddities::default() },
            missing: None,
            contradicted: None,
            lost_markers: Vec::new(),
            has_txn_checkpoint: found.txn_checkpoint,
            segments,
            home,
        };
        let deleted_to = loading.load(&name, &config, options, now_ms)?;
        let mut lost_markers = std::mem::take(&mut loading.lost_markers);
        let txn_checkpoint_is_older = !lost_markers.is_empty();
        // In a compacted log, no record of an aborted transaction is left, and Apache Kafka, which does not
        // know the checkpoint, may have replaced segments.
        let may_be_lost = options.cleaned_to..loading.log_end;
        lost_markers.retain(|base| may_be_lost.contains(base) && !found.signs.has(*base));
        suspects::mark(&loading.home, &lost_markers)?;
        found.signs.suspects.append(&mut lost_markers);
        let log_start = deleted_to.max(loading.segments[0].base_offset).min(loading.log_end);
        let mut log = loading.into_log(name, topic_id, config, clock, log_start);
        // Records not left by the clean stop, as in a segment of another log, may not be synced.
        let is_as_left = options.recovery_point == Offset::ZERO || log.log_end <= options.recovery_point;
        log.flushing.recovery_point =
            if options.clean && is_as_left { log.log_end } else { options.recovery_point };
        if !options.clean {
            // Recovery, or the previous process, may have cut the newest segment, and changed names.
            log.cut_is_unsynced();
            log.note_unsynced_names();
        }
        log.cleaning.cleaned_to = options.cleaned_to.min(log.log_end);
        log.epochs.truncate_from_start(log_start);
        log.producers.on_log_start(log_start.0);
        log.set_high_watermark(options.high_watermark);
        log.publish();
        log.adopt_txn_indexes(&found.left_txn_indexes)?;
        if txn_checkpoint_is_older {
            log.renew_txn_checkpoint()?;
        }
        log.note_lost_segments(found.signs, deleted_to)?;
        if options.synced_to.is_some() {
            // A log with a single writer is never compacted, so its policy is known.
            log.judge_renamed()?;
        }
        Ok(log)
    }
}

/// Marks the emptied closed segments.
fn mark_emptied(home: &Home, segments: &[Segment], suspects: &mut Vec<Offset>) -> io::Result<()> {
    let closed = &segments[..segments.len().saturating_sub(1)];
    let mut emptied = Vec::new();
    for segment in closed.iter().filter(|segment| segment.is_empty()) {
        if !suspects.contains(&segment.base_offset) && had_batches(home, segment.base_offset)? {
            emptied.push(segment.base_offset);
        }
    }
    suspects::mark(home, &emptied)?;
    suspects.append(&mut emptied);
    Ok(())
}

impl LoadingPartition {
    fn into_log(
        self,
        name: TopicPartition,
        topic_id: Option<Uuid>,
        config: Arc<LogConfig>,
        clock: Clock,
        log_start: Offset,
    ) -> PartitionLog {
        let flushing = FlushState::new(self.log_end, clock.now_ms());
        PartitionLog {
            name,
            topic_id,
            home: self.home,
            config,
            clock,
            segments: self.segments,
            log_start,
            log_end: self.log_end,
            high_watermark: log_start,
            first_unstable: None,
            epochs: self.epochs,
            producers: self.producers,
            snapshots: self.snapshots,
            hints: ReadHints::default(),
            flushing,
            cleaning: CompactionState::default(),
            health: Health::new(self.oddities, self.missing, log_start..self.log_end),
            rewrites: 0,
            trim_seen_end: Offset::NONE,
            doomed: Vec::new(),
            published: Arc::new(PublishedOffsets::default()),
            state: None,
        }
    }

    /// Loads the log. Returns the end of the deleted records.
    fn load(
        &mut self,
        name: &TopicPartition,
        config: &LogConfig,
        options: &OpenOptions,
        now_ms: i64,
    ) -> Result<Offset, LogError> {
        let mut deleted_to = options.log_start;
        let epochs = LeaderEpochs::load(&self.home.disk, &self.home.dir)?;
        let epochs_are_known = epochs.is_some();
        self.epochs = epochs.unwrap_or_else(LeaderEpochs::empty);
        let clean_end = if options.clean { self.clean_end(name, options)? } else { None };
        match clean_end {
            Some(log_end) => {
                self.log_end = log_end;
                self.check_txn_indexes(self.segments.len(), name, config, now_ms)?;
                // If another program has cut the log, the index would hide appended records.
                let active = self.segments.last_mut().expect("a log always has a segment");
                active.truncate_transactions(&self.home, log_end)?;
                self.load_producers(config, log_end, now_ms)?;
                replay_segments(&self.home, &mut self.segments, &mut self.producers, log_end)?;
                recall_in_flight(&self.home, &mut self.segments, &mut self.producers)?;
            }
            None => self.recover(name, config, options, now_ms)?,
        }
        if self.log_end < deleted_to && clean_end.is_some() {
            tracing::error!(
                partition = %name, log_end = self.log_end.0, log_start = deleted_to.0,
                "Log starts behind its end by the checkpoint, although it was cleanly closed: ignored the checkpoint"
            );
            deleted_to = Offset::ZERO;
        }
        if self.log_end < deleted_to {
            // Only committed records are deleted: either the log had more records once, or the checkpoint is
            // wrong. A power failure loses unsynced records, and the high watermark is written before a log
            // start above it.
            let is_power_failure =
                !options.clean && self.missing.is_none() && deleted_to <= options.high_watermark;
            self.restart_at(name, deleted_to, now_ms)?;
            if !is_power_failure {
                // Above the new end, so that the next start learns of the loss, too.
                self.missing = self.missing.max(Some(Offset(deleted_to.0.saturating_add(1))));
            }
        }
        self.epochs.truncate_from_end(self.log_end);
        let log_start = deleted_to.max(self.segments[0].base_offset);
        if !epochs_are_known
            || self.epochs_are_short(log_start)
            || (clean_end.is_some() && self.epochs_contradict_end(log_start)?)
        {
            self.rebuild_epochs(name, log_start, self.log_end)?;
        }
        // Files opened by the checks are closed again: most partitions are idle.
        for segment in &mut self.segments {
            self.home.disk.unless_full(segment.release(&self.home))?;
        }
        Ok(deleted_to)
    }

    /// The log end after a clean stop, if it matches the checkpoint; `None` if the end of the log does not
    /// match a clean stop.
    fn clean_end(
        &mut self,
        name: &TopicPartition,
        options: &OpenOptions,
    ) -> Result<Option<Offset>, LogError> {
        let recovery_point = options.recovery_point;
        // Without a checkpoint the recovery point is 0, and the high watermark is the minimum log end.
        let is_as_closed = |end| match recovery_point {
            Offset::ZERO => end >= options.high_watermark,
            recovery_point => end == recovery_point,
        };
        let active = self.segments.last_mut().expect("a log always has a segment");
        let segment = active.base_offset.0;
        match active.read_next_offset(&self.home) {
            Ok(next) if is_as_closed(next.max(active.base_offset)) => Ok(Some(next.max(active.base_offset))),
            Ok(next) if next > recovery_point && recovery_point != Offset::ZERO => {
                tracing::warn!(
                    partition = %name, log_end = next.0, recovery_point = recovery_point.0,
                    "Recovery point is older than the clean stop: checking the log from it on"
                );
                Ok(None)
            }
            Ok(next) => {
                tracing::error!(
                    partition = %name, segment, log_end = next.0, recovery_point = recovery_point.0,
                    "Log does not end where it was cleanly closed"
                );
                Ok(None)
            }
            Err(ScanError::Io(error)) => Err(error.into()),
            Err(ScanError::Corrupt(fault)) => {
                tracing::error!(partition = %name, segment, %fault, "Log is damaged although it was cleanly closed");
                Ok(None)
            }
        }
    }

    /// Loads the producers from the newest snapshot at or below `end` ([`snapshot::load_newest`]).
    pub(super) fn load_producers(
        &mut self,
        config: &LogConfig,
        end: Offset,
        now_ms: i64,
    ) -> Result<(), LogError> {
        self.snapshots.sort_unstable();
        let expiration_ms = config.producer_id_expiration_ms;
        let newest = snapshot::load_newest(&self.home, &mut self.snapshots, end, now_ms, expiration_ms)?;
        self.producers = newest.unwrap_or_else(|| Producers::starting_at(self.segments[0].base_offset.0));
        Ok(())
    }

    /// Restarts the log empty at the log start, because the whole log is below it.
    fn restart_at(&mut self, name: &TopicPartition, log_start: Offset, now_ms: i64) -> Result<(), LogError> {
        tracing::warn!(
            partition = %name, log_end = self.log_end.0, log_start = log_start.0,
            "Log ends below its start offset and restarts empty there"
        );
        for snapshot in std::mem::take(&mut self.snapshots) {
            self.home.disk.remove(&self.home.file(snapshot, SNAPSHOT_SUFFIX))?;
        }
        if self.segments.iter().any(|segment| !segment.is_empty()) {
            // The records are deleted, if the checkpoint is right.
            let aside = SetAside::create(&self.home, name)?;
            tracing::warn!(partition = %name, kept_in = %aside.dir().display(), "Set aside the records below the log start");
            aside.take_from(&mut self.segments, 1)?;
            aside.take_files(&mut self.segments[0])?;
        }
        for mut segment in std::mem::take(&mut self.segments) {
            for path in segment.mark_deleted(&self.home)? {
                self.home.disk.remove(&path)?;
            }
        }
        self.segments.push(Segment::create(&self.home, log_start, now_ms)?);
        self.epochs.clear();
        self.producers = Producers::starting_at(log_start.0);
        self.log_end = log_start;
        Ok(())
    }
}
