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
//! Owns: the marks, and when each is judged and removed. Refuses: the judgement, which `continuity` makes.

use std::collections::BTreeMap;
use std::io;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use crate::disk;
use crate::segment::{Home, MISSING_SUFFIX};

/// Why the marks are changed under the partition's lock.
const RARE: &str = "records are lost once";

/// The marks of a log.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Those that are not judged, for want of the policy of the topic.
    unjudged: Vec<Offset>,
    /// Those of damage, by its first offset.
    damage: BTreeMap<Offset, Offset>,
}

/// Marks places, durably. Where there is no room for that, they are only known until the process ends.
pub(super) fn mark(home: &Home, places: &[Offset]) -> io::Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let mut created = places
        .iter()
        .try_for_each(|place| home.disk.open_or_create(&home.file(*place, MISSING_SUFFIX)).map(drop));
    if created.is_ok() {
        created = home.disk.sync_dir(&home.dir);
    }
    home.disk.unless_full(created)
}

impl Suspects {
    /// The marks that a start found or made, to be judged.
    pub(super) fn new(mut found: Vec<Offset>) -> Suspects {
        found.sort_unstable();
        found.dedup();
        Suspects { unjudged: found, damage: BTreeMap::new() }
    }

    /// Forgets damage that is mended by its first offset, and returns its marks.
    pub(super) fn take_mended(&mut self, is_mended: impl Fn(Offset) -> bool) -> Vec<Offset> {
        self.damage.extract_if(.., |from, _| is_mended(*from)).map(|(_, place)| place).collect()
    }

    /// The first offset that is known to be missing between segments.
    pub(super) fn first_damage(&self) -> Option<Offset> {
        self.damage.keys().next().copied()
    }
}

impl PartitionLog {
    /// Judges the segments at the marks by a check. As long as the policy is not known, they are to be judged again.
    pub(super) fn judge_suspects(
        &mut self,
        check: fn(&mut PartitionLog, usize) -> Result<(), LogError>,
        is_final: bool,
    ) -> Result<(), LogError> {
        for place in self.health.suspects.unjudged.clone() {
            let Some(index) = self.floor_index(place) else { continue };
            if let Some(from) = self.damage_at(index, check)? {
                self.health.suspects.damage.insert(from, place);
            }
        }
        if is_final { self.end_suspicion() } else { Ok(()) }
    }

    /// Whether a mark is still to be judged.
    pub(super) fn has_unjudged_suspects(&self) -> bool {
        !self.health.suspects.unjudged.is_empty()
    }

    /// Ends the suspicion of all places that are not known as damage by now.
    pub(super) fn end_suspicion(&mut self) -> Result<(), LogError> {
        let suspects = &mut self.health.suspects;
        let unjudged = std::mem::take(&mut suspects.unjudged);
        let is_none = |place: &Offset| !suspects.damage.values().any(|damaged| damaged == place);
        let cleared: Vec<Offset> = unjudged.into_iter().filter(is_none).collect();
        Ok(self.remove_marks(cleared)?)
    }

    /// Forgets the marks of damage that is not known any more: its records were cut, or deleted.
    pub(super) fn forget_mended_suspects(&mut self) {
        let mended = self.health.take_mended_suspects();
        if let Err(error) = self.remove_marks(mended) {
            // The next start judges it again.
            tracing::warn!(partition = %self.name, %error, "Failed to remove the mark of records that are not missing any more");
        }
    }

    /// Forgets all marks: no other replica has the records.
    pub(super) fn give_up_suspects(&mut self) -> io::Result<()> {
        let Suspects { unjudged, damage } = std::mem::take(&mut self.health.suspects);
        self.remove_marks(unjudged.into_iter().chain(damage.into_values()).collect())
    }

    fn remove_marks(&mut self, places: Vec<Offset>) -> io::Result<()> {
        let _allowed = disk::allow_waits(RARE);
        places.iter().try_for_each(|place| self.home.disk.remove(&self.home.file(*place, MISSING_SUFFIX)))
    }
}
