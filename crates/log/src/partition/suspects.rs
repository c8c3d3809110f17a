//! Places where records between segments may be missing, as seen at a start: an empty closed segment whose
//! indexes show that it had batches, and a segment with only an index.
//!
//! ```text
//! <base offset>.missing    an empty file for each of them
//! ```
//! Both are seen only once: recovery rebuilds the indexes, and an index without a log is deleted. A start
//! also opens logs before the policies of their topics are known, and the policies decide: a log without gaps
//! is truncated there, if it was not synced; in a log with gaps there is no other sign. So each place gets a
//! mark before its traces are removed, and keeps the mark until it is judged. A damaged place keeps the mark
//! until the records are restored or deleted.
//!
//! A segment after the first whose log has a `.deleted` name is such a place, too, and that file is its mark.
//! In a compacted log, a compaction may have replaced the segment, and the file is removed. In other logs no
//! operation renames a log in this way, so its records are missing. The file then stays until the records are
//! restored, and is not renamed back: after a compaction and a later change of the policy, it would restore
//! deleted values, and other replicas have its records. An operator may rename the file back while the broker
//! is down.
//!
//! Owns: the marks, and the times of judging and removing them. Refuses: the judgement, which `continuity`
//! makes.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use crate::disk;
use crate::segment::{Home, LOG_SUFFIX, MISSING_SUFFIX, deleted_name};

/// The reason why marks may be changed under the partition's lock.
const RARE: &str = "records are lost once";

/// The marks of a log.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// The marks not judged yet, because the policy of the topic is unknown.
    unjudged: Vec<Offset>,
    /// The marks of damage, with the first offset of the damage.
    damage: BTreeSet<(Offset, Offset)>,
    /// The base offsets of logs with `.deleted` names that are not known as damage.
    renamed: BTreeSet<Offset>,
}

/// Marks places, durably: the traces of the missing records are removed next.
pub(super) fn mark(home: &Home, places: &[Offset]) -> io::Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    places
        .iter()
        .try_for_each(|place| home.disk.open_or_create(&home.file(*place, MISSING_SUFFIX)).map(drop))?;
    home.disk.sync_dir(&home.dir)
}

impl Suspects {
    /// The marks that a start found or made, to be judged, and the logs with `.deleted` names.
    pub(super) fn new(mut found: Vec<Offset>, renamed: Vec<Offset>) -> Suspects {
        found.extend(&renamed);
        found.sort_unstable();
        found.dedup();
        Suspects { unjudged: found, damage: BTreeSet::new(), renamed: renamed.into_iter().collect() }
    }

    /// The base offsets of logs with `.deleted` names that a compaction may have replaced.
    pub(super) fn renamed(&self) -> impl Iterator<Item = &Offset> {
        self.renamed.iter()
    }

    /// True if an unjudged mark is at one of these offsets.
    pub(super) fn is_suspected(&self, offsets: Range<Offset>) -> bool {
        self.unjudged.iter().any(|place| offsets.contains(place) && !self.renamed.contains(place))
    }

    /// Notes damage at a marked place.
    pub(super) fn note_damage(&mut self, from: Offset, place: Offset) {
        self.damage.insert((from, place));
    }

    /// Forgets repaired damage, identified by its first offset, and returns its marks.
    pub(super) fn take_mended(&mut self, is_mended: impl Fn(Offset) -> bool) -> Vec<Offset> {
        self.damage.extract_if(.., |(from, _)| is_mended(*from)).map(|(_, place)| place).collect()
    }

    /// True if records are known to be missing from one of these offsets on.
    pub(super) fn has_damage_in(&self, offsets: Range<Offset>) -> bool {
        self.damage.range((offsets.start, Offset(0))..(offsets.end, Offset(0))).next().is_some()
    }

    /// The first offset known to be missing between segments.
    pub(super) fn first_damage(&self) -> Option<Offset> {
        self.damage.first().map(|(from, _)| *from)
    }
}

impl PartitionLog {
    /// Judges the segments at the marks with a check. A log with a `.deleted` name counts as replaced by a
    /// compaction. While the policy is unknown, they must be judged again.
    pub(super) fn judge_suspects(
        &mut self,
        check: fn(&mut PartitionLog, usize) -> Result<(), LogError>,
        is_final: bool,
    ) -> Result<(), LogError> {
        let suspects = &self.health.suspects;
        let unjudged = suspects.unjudged.iter().filter(|place| !suspects.renamed.contains(place));
        for place in unjudged.copied().collect::<Vec<_>>() {
            let Some(index) = self.floor_index(place) else { continue };
            if let Some(from) = self.damage_at(index, check)? {
                self.health.suspects.note_damage(from, place);
            }
        }
        if is_final { self.end_suspicion() } else { Ok(()) }
    }

    /// Judges the logs with `.deleted` names, once the log is known not to be compacted: no process renames a
    /// log between others in this way, synced or not.
    pub(super) fn judge_renamed(&mut self) -> Result<(), LogError> {
        if self.config.cleanup_policy.compact || self.cleaning.cleaned_to > Offset::ZERO {
            return Ok(());
        }
        for place in self.health.suspects.renamed.clone() {
            let Some(index) = self.floor_index(place) else { continue };
            // If another segment was written since, it contains the offsets of this one.
            if let Ok(missing) = self.end_before_next(index)
                && !missing.is_some_and(|missing| missing.contains(&place))
            {
                continue;
            }
            if let Some(from) = self.damage_at(index, Self::check_end_whatever_was_synced)? {
                self.health.suspects.renamed.remove(&place);
                self.health.suspects.note_damage(from, place);
                let path = deleted_name(&self.home.file(place, LOG_SUFFIX));
                tracing::error!(
                    partition = %self.name, path = %path.display(), from = from.0,
                    "Records are missing whose segment has the name of a deleted one; kept the file"
                );
            }
        }
        Ok(())
    }

    /// Marks damage without a mark. If there is no room for the mark, its traces still exist.
    pub(super) fn mark_damage(&mut self, from: Offset, place: Offset) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(RARE);
        self.home.disk.unless_full(mark(&self.home, &[place]))?;
        self.health.suspects.note_damage(from, place);
        Ok(())
    }

    /// True if a mark must still be judged.
    pub(super) fn has_unjudged_suspects(&self) -> bool {
        !self.health.suspects.unjudged.is_empty()
    }

    /// Ends the suspicion of all places that are not known as damage.
    pub(super) fn end_suspicion(&mut self) -> Result<(), LogError> {
        let suspects = &mut self.health.suspects;
        let unjudged = std::mem::take(&mut suspects.unjudged);
        let is_none = |place: &Offset| !suspects.damage.iter().any(|(_, damaged)| damaged == place);
        let cleared: Vec<Offset> = unjudged.into_iter().filter(is_none).collect();
        Ok(self.clear(&cleared)?)
    }

    /// Forgets the marks of damage that no longer exists: its records were cut, or deleted.
    pub(super) fn forget_mended_suspects(&mut self) {
        let mended = self.health.take_mended_suspects();
        if let Err(error) = self.clear(&mended) {
            // The next start judges the place again.
            tracing::warn!(partition = %self.name, %error, "Failed to remove the mark of records that are not missing any more");
        }
    }

    /// Forgets all marks, because no other replica has the records.
    pub(super) fn give_up_suspects(&mut self) -> io::Result<()> {
        let Suspects { unjudged, damage, .. } = std::mem::take(&mut self.health.suspects);
        self.remove_marks(unjudged.iter().chain(damage.iter().map(|(_, place)| place)))
    }

    /// Removes marks of places without missing records. A log with a `.deleted` name there is such a mark,
    /// unless the log ends before it.
    fn clear(&mut self, places: &[Offset]) -> io::Result<()> {
        self.remove_marks(places.iter())?;
        places.iter().for_each(|place| _ = self.health.suspects.renamed.remove(place));
        let below_end = places.iter().filter(|place| **place < self.log_end);
        let mut deleted: Vec<_> =
            below_end.map(|place| deleted_name(&self.home.file(*place, LOG_SUFFIX))).collect();
        deleted.retain(|path| self.home.disk.exists(path));
        self.doom(deleted);
        Ok(())
    }

    fn remove_marks<'p>(&self, mut places: impl Iterator<Item = &'p Offset>) -> io::Result<()> {
        let _allowed = disk::allow_waits(RARE);
        places.try_for_each(|place| self.home.disk.remove(&self.home.file(*place, MISSING_SUFFIX)))
    }
}
