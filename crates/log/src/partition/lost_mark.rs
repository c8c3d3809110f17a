//! `<offset>.lost`: the records from this offset to the first segment are missing without having been
//! deleted, and a leader lacked them, too.
//!
//! ```text
//! <base offset>    of the first segment with which the mark counts
//! ...              a line per further restart: the mark counts before and after that restart
//! ```
//! The mark is written before the restart. With another first segment, the mark is a leftover: the restart
//! was interrupted, or those records were deleted since. An empty or invalid mark counts with every first
//! segment: remembering a loss too long costs less than forgetting it.
//!
//! Owns: the format, and the validity of marks. Refuses: restarts of a log; see `restart`.

use std::fmt::Write as _;
use std::io;

use thalweg_record::Offset;

use crate::disk::Durability;
use crate::segment::{Home, LOST_SUFFIX};

/// Writes the mark at `lost_from`, durably, for a log that begins with one of these segments.
pub(super) fn write(home: &Home, lost_from: Offset, first_segments: &[Offset]) -> io::Result<()> {
    let mut text = String::new();
    for first in first_segments {
        writeln!(text, "{first}").expect("writing to a string does not fail");
    }
    home.disk.replace(&home.file(lost_from, LOST_SUFFIX), text.as_bytes(), Durability::Synced)
}

/// True if the mark at `lost_from` counts for a log with one of these first segments.
pub(super) fn counts(home: &Home, lost_from: Offset, first_segments: &[Offset]) -> io::Result<bool> {
    let bytes = home.disk.read_if_exists(&home.file(lost_from, LOST_SUFFIX))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let known: Result<Vec<i64>, _> = text.lines().map(str::parse).collect();
    Ok(known.map_or(true, |known| {
        known.is_empty() || first_segments.iter().any(|first| known.contains(&first.0))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::disk::{Disk, MemoryDisk};

    #[test]
    fn mark_counts_with_its_first_segments_and_an_older_one_with_all() {
        let disk = Disk::in_memory(MemoryDisk::new(Clock::manual(0)));
        let home = Home::new(disk, "/t-0".into());
        home.disk.create_dir(&home.dir).expect("creates");
        let with = |first| counts(&home, Offset(3), &[Offset(first)]).expect("reads");
        write(&home, Offset(3), &[Offset(20), Offset(50)]).expect("writes");
        assert_eq!([3, 5, 20, 50].map(with), [false, false, true, true]);
        for other in ["", "20\nx\n", "\n"] {
            let path = home.file(Offset(3), LOST_SUFFIX);
            home.disk.replace(&path, other.as_bytes(), Durability::Synced).expect("writes");
            assert!(with(7), "{other:?}");
        }
    }
}
