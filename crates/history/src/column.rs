//! The values of one measure in the last rounds.
//!
//! Values are in chunks, which are allocated at the first value other than zero: an idle topic costs a few
//! pointers. A chunk has 32 bits for each value, and 64 after a value that does not fit.

use crate::POINTS;

/// Values of a chunk.
const CHUNK: usize = 30;
/// The chunk in progress comes on top of those with the last rounds.
const CHUNKS: usize = POINTS / CHUNK + 1;

#[derive(Clone, Debug)]
enum Chunk {
    Narrow(Box<[u32; CHUNK]>),
    Wide(Box<[u64; CHUNK]>),
}

/// The values of the last [`POINTS`] rounds, which may be unknown. Rounds are numbered without end.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// A missing chunk has zeros only.
    chunks: [Option<Chunk>; CHUNKS],
}

impl Chunk {
    /// The largest number marks an unknown value.
    fn get(&self, at: usize) -> Option<u64> {
        match self {
            Chunk::Narrow(values) => Some(values[at]).filter(|value| *value != u32::MAX).map(u64::from),
            Chunk::Wide(values) => Some(values[at]).filter(|value| *value != u64::MAX),
        }
    }

    fn set(&mut self, at: usize, value: Option<u64>) {
        let narrow = value
            .map_or(Some(u32::MAX), |value| u32::try_from(value).ok().filter(|value| *value != u32::MAX));
        match (&mut *self, narrow) {
            (Chunk::Narrow(values), Some(narrow)) => values[at] = narrow,
            (Chunk::Narrow(_), None) => {
                let mut wide = Box::new([0; CHUNK]);
                for (index, place) in wide.iter_mut().enumerate() {
                    *place = self.get(index).unwrap_or(u64::MAX);
                }
                *self = Chunk::Wide(wide);
                self.set(at, value);
            }
            (Chunk::Wide(values), _) => {
                values[at] = value.map_or(u64::MAX, |value| value.min(u64::MAX - 1));
            }
        }
    }
}

fn place(round: u64) -> (usize, usize) {
    let (chunk, at) = (round / CHUNK as u64 % CHUNKS as u64, round % CHUNK as u64);
    (usize::try_from(chunk).expect("below CHUNKS"), usize::try_from(at).expect("below CHUNK"))
}

impl Column {
    /// Begins the next round, with zero as its value. No round may be left out, because the first round of a
    /// chunk drops the oldest chunk.
    pub fn begin(&mut self, round: u64) {
        if let (chunk, 0) = place(round) {
            self.chunks[chunk] = None;
        }
    }

    /// The value of a round that is kept.
    pub fn get(&self, round: u64) -> Option<u64> {
        let (chunk, at) = place(round);
        self.chunks[chunk].as_ref().map_or(Some(0), |chunk| chunk.get(at))
    }

    /// Replaces the value of a round that is kept.
    pub fn set(&mut self, round: u64, value: Option<u64>) {
        let (chunk, at) = place(round);
        if self.chunks[chunk].is_none() && value == Some(0) {
            return;
        }
        self.chunks[chunk].get_or_insert_with(|| Chunk::Narrow(Box::new([0; CHUNK]))).set(at, value);
    }

    /// Adds to the value of a round that is kept. An unknown value stays unknown.
    pub fn add(&mut self, round: u64, more: Option<u64>) {
        if more != Some(0) {
            let sum = self.get(round).zip(more).map(|(value, more)| value.saturating_add(more));
            self.set(round, sum);
        }
    }

    /// Memory behind this value, in bytes.
    pub fn allocated(&self) -> usize {
        let of_chunk = |chunk: &Chunk| match chunk {
            Chunk::Narrow(values) => size_of_val(&**values),
            Chunk::Wide(values) => size_of_val(&**values),
        };
        self.chunks.iter().flatten().map(of_chunk).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_last_rounds_of_any_width() {
        let mut column = Column::default();
        let value = |round: u64| match round % 7 {
            0 => None,
            1 => Some(u64::from(u32::MAX)),
            2 => Some(u64::from(u32::MAX) - 1),
            3 => Some(round << 40),
            _ => Some(round),
        };
        for round in 0..2_000 {
            column.begin(round);
            column.add(round, value(round));
            let oldest = (round + 1).saturating_sub(POINTS as u64);
            assert!((oldest..=round).all(|at| column.get(at) == value(at)), "round {round}");
        }
    }

    #[test]
    fn zeros_cost_nothing_and_small_values_half() {
        let mut column = Column::default();
        for round in 0..1_000 {
            column.begin(round);
            column.add(round, Some(0));
        }
        assert_eq!(column.allocated(), 0);
        for round in 1_000..2_000 {
            column.begin(round);
            column.add(round, Some(7));
        }
        assert_eq!(column.allocated(), CHUNKS * CHUNK * 4);
        for round in 2_000..2_000 + (CHUNKS * CHUNK) as u64 {
            column.begin(round);
            column.add(round, Some(0));
        }
        assert_eq!(column.allocated(), 0, "chunks of zeros have taken the places");
    }

    #[test]
    fn an_unknown_value_stays_unknown() {
        let mut column = Column::default();
        column.begin(0);
        column.add(0, None);
        column.add(0, Some(3));
        assert_eq!(column.get(0), None);
    }
}
