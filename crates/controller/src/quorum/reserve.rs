//! `reserve`: room for the metadata records that free a full disk.
//!
//! A full disk is freed by deleting topics and records, or by shorter retention. The metadata records of
//! these changes need room themselves, and so do the first records of a start. This file reserves the room;
//! its bytes mean nothing. If such a write finds a full disk, the file is shortened by a piece, and the write
//! is retried. The rest of the piece is taken back immediately, before other files grow into it, and the used
//! part when there is room. Kafka has no such file, and ignores it.
//!
//! The caller decides which writes are urgent (`Claim`).

use std::path::{Path, PathBuf};

use thalweg_log::disk::{Disk, is_disk_full};

use crate::state::Claim;

const FILE: &str = "reserve";

/// Size of the reserve. A start and a deletion need a few blocks each, and the records for deleting a
/// thousand topics less than 100 KiB.
const RESERVE_BYTES: u64 = 1024 * 1024;

/// Size of a piece to give up: more than the log and a replaced checkpoint need for a small change, for any
/// block size.
const PIECE_BYTES: u64 = 64 * 1024;

/// Size of a write that takes back room on a full disk, because ext4 accepts a larger write only as a whole.
const BLOCK_BYTES: u64 = 4096;

impl Claim {
    /// The part of the reserve that writes of this claim must leave.
    fn leaves(self) -> u64 {
        match self {
            Claim::Ordinary => u64::MAX,
            Claim::Limited => RESERVE_BYTES / 2,
            Claim::Urgent => 0,
        }
    }
}

/// The file of one log.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Disk,
    path: PathBuf,
    len: u64,
    /// True if this process has written the whole file. A copied directory may have holes instead.
    is_written: bool,
    /// True if the last attempt to lengthen the file failed, so that a series of failures is logged once.
    has_failed: bool,
}

impl Reserve {
    pub fn open(disk: Disk, dir: &Path) -> Reserve {
        let path = dir.join(FILE);
        // Another program may have created a larger file.
        let len = disk.facts(&path).map_or(0, |facts| facts.len.min(RESERVE_BYTES));
        Reserve { disk, path, len, is_written: false, has_failed: false }
    }

    /// True if the reserve is complete.
    pub fn is_whole(&self) -> bool {
        self.is_written && self.len >= RESERVE_BYTES
    }

    /// Frees a piece of the reserve. Returns false if this claim may take no more.
    pub fn give_up_piece(&mut self, claim: Claim) -> bool {
        if self.len <= claim.leaves() {
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

    /// Fills the missing part, as far as there is room.
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

    fn lengthen(&mut self) -> std::io::Result<()> {
        let file = self.disk.open_or_create(&self.path)?;
        if file.len()? > RESERVE_BYTES {
            file.set_len(RESERVE_BYTES)?;
        }
        self.len = file.len()?;
        let noise = noise();
        let mut at = if self.is_written { self.len } else { 0 };
        let mut step = PIECE_BYTES;
        while at < RESERVE_BYTES {
            // To the next multiple of the step.
            let piece = step - at % step;
            let from = usize::try_from(at % PIECE_BYTES).expect("a piece fits");
            let bytes = &noise[from..from + usize::try_from(piece).expect("a piece fits")];
            let written = file.write_all_at(bytes, at);
            // On a full disk, a part of the piece may be written.
            self.len = file.len()?;
            match written {
                Err(error) if is_disk_full(&error) && step > BLOCK_BYTES => step = BLOCK_BYTES,
                written => {
                    written?;
                    at += piece;
                    self.is_written |= at >= self.len;
                }
            }
        }
        Ok(())
    }
}

/// A piece that takes room on any file system: compressed zeros would have no blocks.
fn noise() -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let words = (0..PIECE_BYTES / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
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
        assert!(!reserve.is_whole() && !reserve.give_up_piece(Claim::Urgent));
        reserve.fill();
        assert!(reserve.is_whole() && memory.used_bytes(dir) >= RESERVE_BYTES);
        let mut restored = Reserve::open(disk.clone(), dir);
        disk.open(&dir.join(FILE)).and_then(|file| file.write_all_at(&vec![0; 1 << 20], 0)).expect("writes");
        restored.fill();
        let bytes = disk.read(&dir.join(FILE)).expect("is there");
        assert!(
            restored.is_whole() && bytes.chunks(4096).all(|block| block != [0; 4096]),
            "it may have had holes"
        );
        let used = memory.used_bytes(dir);
        memory.set_capacity(dir, Some(used));
        assert!(reserve.give_up_piece(Claim::Urgent));
        assert_eq!(disk.space(dir).expect("is known").1, PIECE_BYTES);
        disk.open_or_create(&dir.join("log"))
            .and_then(|log| log.write_all_at(b"a", 0))
            .expect("there is room");
        reserve.fill();
        assert!(!reserve.is_whole(), "the log has a block of it");
        assert_eq!(disk.space(dir).expect("is known").1, 0);
        let mut reserve = Reserve::open(disk.clone(), dir);
        let pieces = std::iter::from_fn(|| reserve.give_up_piece(Claim::Urgent).then_some(())).count() as u64;
        assert_eq!(pieces, RESERVE_BYTES / PIECE_BYTES, "the last one is shorter");
        memory.set_capacity(dir, None);
        reserve.fill();
        assert!(reserve.is_whole());
    }

    #[test]
    fn pieces_are_taken_back_but_for_what_is_needed_where_a_write_works_as_a_whole_or_not_at_all() {
        let memory = MemoryDisk::new(Clock::manual(0));
        let (disk, dir) = (Disk::in_memory(Arc::clone(&memory)), Path::new("/data"));
        disk.create_dir(dir).expect("creates");
        let mut reserve = Reserve::open(disk.clone(), dir);
        reserve.fill();
        memory.set_writes_are_whole(true);
        memory.set_capacity(dir, Some(memory.used_bytes(dir)));
        for used in 1..=200 {
            let log = disk.open_or_create(&dir.join("log")).expect("opens");
            assert!(log.write_all_at(&[1; 4096], used * 4096).is_err());
            assert!(reserve.give_up_piece(Claim::Urgent));
            log.write_all_at(&[1; 4096], used * 4096).expect("there is room");
            reserve.fill();
            assert_eq!(disk.space(dir).expect("is known").1, 0, "{used}");
        }
    }

    #[test]
    fn larger_file_in_its_place_is_cut() {
        let memory = MemoryDisk::new(Clock::manual(0));
        let (disk, dir) = (Disk::in_memory(Arc::clone(&memory)), Path::new("/data"));
        disk.create_dir(dir).expect("creates");
        let file = disk.open_or_create(&dir.join(FILE)).expect("creates");
        file.write_all_at(&[1], 4 * RESERVE_BYTES).expect("writes");
        let mut reserve = Reserve::open(disk.clone(), dir);
        let pieces = std::iter::from_fn(|| reserve.give_up_piece(Claim::Urgent).then_some(())).count() as u64;
        assert_eq!(pieces, RESERVE_BYTES / PIECE_BYTES);
        file.write_all_at(&[1], 4 * RESERVE_BYTES).expect("writes");
        Reserve::open(disk, dir).fill();
        assert_eq!(file.len().expect("is open"), RESERVE_BYTES);
    }
}
