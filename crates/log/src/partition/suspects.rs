//! Places where a start saw that records between segments may be missing: a closed segment without a byte whose indexes say that it
//! had batches, and a segment of which only an index is there.
//!
//! ```text
//! <base offset>.missing    an empty file for each of them
//! ```
//! Both are seen once: recovery makes the indexes again, and an index without a log is deleted. And a start opens logs before the
//! policies of their topics are known, which decide what this means: a log without gaps is cut there, if it was not synced; one with
//! gaps shows it by nothing else. So each gets a mark before its traces go, and keeps it until it is judged; one that is damage keeps
//! it until the records are there again, or deleted.
//!
//! A segment behind the first whose log has the name of a deleted one is a place, too, and that file is its mark. In a
//! compacted log a compaction may have replaced the segment, and the file is removed. In others nothing gives a log
//! that name, and its records are missing. The file stays then, until they are there again, and is not taken back:
//! where a compaction came before a change of the policy, it would bring back values that were deleted, and other
//! replicas have its records. An operator may give it its name back while the broker is down.
//!
//! Owns: the marks, and when each is judged and removed. Refuses: the judgement, which `continuity` makes.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use crate::disk;
use crate::segment::{Home, LOG_SUFFIX, MISSING_SUFFIX, deleted_name};

/// Why the marks are changed under the partition's lock.
const RARE: &str = "records are lost once";

/// The marks of a log.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Those that are not judged, for want of the policy of the topic.
    unjudged: Vec<Offset>,
    /// Those of damage, after its first offset.
    damage: BTreeSet<(Offset, Offset)>,
    /// Those at which a log has the name of a deleted one, and that are no damage as far as is known.
    renamed: BTreeSet<Offset>,
}

/// Marks places, durably: the traces of what is missing there go next.
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
    /// The marks that a start found or made, to be judged, and the logs with the names of deleted ones.
    pub(super) fn new(mut found: Vec<Offset>, renamed: Vec<Offset>) -> Suspects {
        found.extend(&renamed);
        found.sort_unstable();
        found.dedup();
        Suspects { unjudged: found, damage: BTreeSet::new(), renamed: renamed.into_iter().collect() }
    }

    /// The base offsets of logs with the names of deleted ones that a compaction may have replaced.
    pub(super) fn renamed(&self) -> impl Iterator<Item = &Offset> {
        self.renamed.iter()
    }

    /// Whether one of these offsets is that of a mark that is not judged.
    pub(super) fn is_suspected(&self, offsets: Range<Offset>) -> bool {
        self.unjudged.iter().any(|place| offsets.contains(place) && !self.renamed.contains(place))
    }

    /// Notes damage at a marked place.
    pub(super) fn note_damage(&mut self, from: Offset, place: Offset) {
        self.damage.insert((from, place));
    }

    /// Forgets damage that is mended by its first offset, and returns its marks.
    pub(super) fn take_mended(&mut self, is_mended: impl Fn(Offset) -> bool) -> Vec<Offset> {
        self.damage.extract_if(.., |(from, _)| is_mended(*from)).map(|(_, place)| place).collect()
    }

    /// Whether records are known to be missing from one of these offsets on.
    pub(super) fn has_damage_in(&self, offsets: Range<Offset>) -> bool {
        self.damage.range((offsets.start, Offset(0))..(offsets.end, Offset(0))).next().is_some()
    }

    /// The first offset that is known to be missing between segments.
    pub(super) fn first_damage(&self) -> Option<Offset> {
        self.damage.first().map(|(from, _)| *from)
    }
}

impl PartitionLog {
    /// Judges the segments at the marks by a check. A log with the name of a deleted one counts as replaced by a
    /// compaction. As long as the policy is not known, they are to be judged again.
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

    /// Judges the logs with the names of deleted ones, once the log is known not to be compacted: no process gives a
    /// log between others that name, synced or not.
    pub(super) fn judge_renamed(&mut self) -> Result<(), LogError> {
        if self.config.cleanup_policy.compact || self.cleaning.cleaned_to > Offset::ZERO {
            return Ok(());
        }
        for place in self.health.suspects.renamed.clone() {
            let Some(index) = self.floor_index(place) else { continue };
            // Where another segment was written since, the offsets of this one are in that.
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

    /// Marks damage that has no mark. Without room for one, its traces are still there.
    pub(super) fn mark_damage(&mut self, from: Offset, place: Offset) -> Result<(), LogError> {
        let _allowed = disk::allow_waits(RARE);
        self.home.disk.unless_full(mark(&self.home, &[place]))?;
        self.health.suspects.note_damage(from, place);
        Ok(())
    }

    /// Whether a mark is still to be judged.
    pub(super) fn has_unjudged_suspects(&self) -> bool {
        !self.health.suspects.unjudged.is_empty()
    }

    /// Ends the suspicion of all places that are not known as damage by now.
    pub(super) fn end_suspicion(&mut self) -> Result<(), LogError> {
        let suspects = &mut self.health.suspects;
        let unjudged = std::mem::take(&mut suspects.unjudged);
        let is_none = |place: &Offset| !suspects.damage.iter().any(|(_, damaged)| damaged == place);
        let cleared: Vec<Offset> = unjudged.into_iter().filter(is_none).collect();
        Ok(self.clear(&cleared)?)
    }

    /// Forgets the marks of damage that is not known any more: its records were cut, or deleted.
    pub(super) fn forget_mended_suspects(&mut self) {
        let mended = self.health.take_mended_suspects();
        if let Err(error) = self.clear(&mended) {
            // The next start judges it again.
            tracing::warn!(partition = %self.name, %error, "Failed to remove the mark of records that are not missing any more");
        }
    }

    /// Forgets all marks: no other replica has the records.
    pub(super) fn give_up_suspects(&mut self) -> io::Result<()> {
        let Suspects { unjudged, damage, .. } = std::mem::take(&mut self.health.suspects);
        self.remove_marks(unjudged.iter().chain(damage.iter().map(|(_, place)| place)))
    }

    /// Removes marks of places where nothing is missing. A log there that has the name of a deleted one is one, unless
    /// the log ends before it.
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
