//! `reserve`: room for the metadata records that a full disk needs to be freed.
//!
//! A full disk is freed by deleting topics and records, or by shorter retention. The metadata records of these changes
//! need room themselves, and so do the first records of a start. This file holds the room: its bytes mean nothing. When
//! an urgent write finds a full disk, the file is cut by a piece, and the write is tried again. The rest of the piece is
//! taken back at once, before other files grow into it, and what was used is taken back when there is room. Kafka has no
//! such file, and ignores it.
//!
//! Owns: the file, and how much of it is there. Refuses: deciding what is urgent.

use std::path::{Path, PathBuf};

use thalweg_log::disk::Disk;

const FILE: &str = "reserve";

/// The room that is reserved: a start and a deletion need a few blocks each, and the records of a deletion of a
/// thousand topics less than 100 KiB.
const RESERVE_BYTES: u64 = 1024 * 1024;

/// How much is given up at once: more than the log and a replaced checkpoint need for a small change, whatever the size of
/// the file system's blocks.
const PIECE_BYTES: u64 = 64 * 1024;

/// Whether a write may use the reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The write can wait until there is room.
    Ordinary,
    /// The node needs the write to start or to serve, or it frees room.
    Urgent,
}

/// The file of one log.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Disk,
    path: PathBuf,
    len: u64,
    /// Whether the last attempt to lengthen the file has failed, so that a series of failures is logged once.
    has_failed: bool,
}

impl Reserve {
    pub fn open(disk: Disk, dir: &Path) -> Reserve {
        let path = dir.join(FILE);
        let len = disk.facts(&path).map_or(0, |facts| facts.len);
        Reserve { disk, path, len, has_failed: false }
    }

    /// Whether all of the room is reserved.
    pub fn is_whole(&self) -> bool {
        self.len >= RESERVE_BYTES
    }

    /// Frees a piece of the room. Returns whether there was any.
    pub fn give_up_piece(&mut self) -> bool {
        if self.len == 0 {
            return false;
        }
        let left = self.len.saturating_sub(PIECE_BYTES);
        match self.disk.open(&self.path).and_then(|file| file.set_len(left)) {
            Ok(()) => {
                tracing::debug!(path = %self.path.display(), left, "Gave up reserved room");
                self.len = left;
                true
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "Failed to give up reserved room");
                self.len = 0;
                false
            }
        }
    }

    /// Reserves what is missing, as far as there is room.
    pub fn fill(&mut self) {
        if self.is_whole() {
            return;
        }
        match self.lengthen() {
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(
                    path = %self.path.display(), %error, reserved = self.len,
                    "The room reserved for what frees a full disk is incomplete; the rest is reserved when there is room"
                );
            }
            Err(_) => {}
            Ok(()) => self.has_failed = false,
        }
    }

    /// Writes zeros: a file that is only made longer would have no blocks.
    fn lengthen(&mut self) -> std::io::Result<()> {
        let file = self.disk.open_or_create(&self.path)?;
        self.len = file.len()?;
        let missing = usize::try_from(RESERVE_BYTES.saturating_sub(self.len)).expect("a megabyte fits");
        let written = file.write_all_at(&vec![0; missing], self.len);
        // On a full disk a part of it was written.
        self.len = file.len()?;
        written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_log::Clock;
    use thalweg_log::disk::MemoryDisk;

    use super::*;

    #[test]
    fn pieces_are_given_up_and_taken_back_as_far_as_there_is_room() {
        let memory = MemoryDisk::new(Clock::manual(0));
        let (disk, dir) = (Disk::in_memory(Arc::clone(&memory)), Path::new("/data"));
        disk.create_dir(dir).expect("creates");
        let mut reserve = Reserve::open(disk.clone(), dir);
        assert!(!reserve.is_whole() && !reserve.give_up_piece());
        reserve.fill();
        assert!(reserve.is_whole() && memory.used_bytes(dir) >= RESERVE_BYTES);
        let used = memory.used_bytes(dir);
        memory.set_capacity(dir, Some(used));
        assert!(reserve.give_up_piece());
        assert_eq!(disk.space(dir).expect("is known").1, PIECE_BYTES);
        disk.open_or_create(&dir.join("log"))
            .and_then(|log| log.write_all_at(b"a", 0))
            .expect("there is room");
        reserve.fill();
        assert!(!reserve.is_whole(), "the log has a block of it");
        assert_eq!(disk.space(dir).expect("is known").1, 0);
        let mut reserve = Reserve::open(disk.clone(), dir);
        let pieces = std::iter::from_fn(|| reserve.give_up_piece().then_some(())).count() as u64;
        assert_eq!(pieces, RESERVE_BYTES / PIECE_BYTES, "the last one is shorter");
        memory.set_capacity(dir, None);
        reserve.fill();
        assert!(reserve.is_whole());
    }
}
