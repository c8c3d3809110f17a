//! Tracks which batches of a segment were compared with each other.
//!
//! Batches written by this process need no comparison. Batches found on disk are compared once, before they
//! are served: base offset and leader epoch are outside the CRC, and only neighbouring batches can confirm
//! them. If the header at the beginning of an answer is invalid, another program has written to the file, and
//! all its batches count as found on disk.
//!
//! Owns: the memory of compared batches, in a bounded number of stretches. Refuses: comparing; see
//! `partition::examine`.

use thalweg_record::Offset;

use super::{RecentBatches, Segment};

/// Maximum number of remembered stretches per segment: one for each of this many readers.
const STRETCHES_MAX: usize = 16;

/// Comparison state of a segment's batches.
#[derive(Debug, Default)]
pub(super) struct ComparedBatches {
    /// The batches below this position were found on disk, and not compared with each other.
    unknown_to: u64,
    /// Compared stretches below that position.
    stretches: Vec<ComparedStretch>,
}

/// Batches found on disk and compared with each other.
#[derive(Clone, Copy, Debug)]
pub struct ComparedStretch {
    from: u64,
    /// End position of the batches.
    pub to: u64,
    /// The offset after the last of the batches.
    pub next_offset: Offset,
}

impl ComparedBatches {
    /// The state of a segment found with this size.
    pub(super) fn found(size_bytes: u64) -> ComparedBatches {
        ComparedBatches { unknown_to: size_bytes, stretches: Vec::new() }
    }

    /// Notes the new end of the segment.
    pub(super) fn cut(&mut self, size_bytes: u64) {
        self.unknown_to = self.unknown_to.min(size_bytes);
        self.stretches.retain(|judged| judged.to <= size_bytes);
    }
}

impl Segment {
    /// True if all batches between two positions were written by this process, or compared with each other.
    pub fn is_judged(&self, from: u64, to: u64) -> bool {
        let to = to.min(self.compared.unknown_to);
        from >= self.compared.unknown_to
            || self.compared.stretches.iter().any(|judged| from >= judged.from && to <= judged.to)
    }

    /// Compared batches that end between two positions.
    pub fn judged_up_to(&self, from: u64, to: u64) -> Option<ComparedStretch> {
        self.compared.stretches.iter().copied().find(|judged| judged.to > from && judged.to <= to)
    }

    /// Notes that batches were compared with each other.
    pub fn note_judged(&mut self, from: u64, to: u64, next_offset: Offset) {
        if let Some(judged) = self.compared.stretches.iter_mut().find(|judged| judged.to == from) {
            (judged.to, judged.next_offset) = (to, next_offset);
            return;
        }
        if self.compared.stretches.len() == STRETCHES_MAX {
            self.compared.stretches.remove(0);
        }
        self.compared.stretches.push(ComparedStretch { from, to, next_offset });
    }

    /// Notes that another program has changed the file: its batches count as found on disk.
    pub fn distrust(&mut self) {
        self.compared = ComparedBatches::found(self.size_bytes);
        self.recent = RecentBatches::after(Some(u32::MAX));
    }

    /// True if the batches up to this position were written a while ago.
    pub fn is_aged(&self, position: u64) -> bool {
        position < self.aged_to
    }

    /// Marks the batches written so far as aged.
    pub fn age(&mut self) {
        self.aged_to = self.size_bytes;
    }

    /// Notes that all batches were compared with each other.
    pub fn set_judged(&mut self) {
        self.compared.unknown_to = 0;
        self.compared.stretches = Vec::new();
    }
}
