//! The transaction index of a segment: `.txnindex`, the aborted transactions whose marker lies in it.
//!
//! ```text
//! 34 bytes an entry, big-endian, in the order of their last offsets:
//!   version            i16   0
//!   producer id        i64
//!   first offset       i64
//!   last offset        i64   that of the marker
//!   last stable offset i64   as it was once the marker was applied
//! ```
//! The file exists only when the segment has such a transaction.
//!
//! Owns: the format and the search. Refuses: caching; it is read when a consumer asks for committed data and the
//! segment has the file at all.

use std::io;
use std::path::Path;

use thalweg_record::{Offset, ProducerId};

use crate::disk::Disk;

const ENTRY_BYTES: usize = 34;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: ProducerId,
    /// Offset of the transaction's first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// The last stable offset once the marker was applied.
    pub last_stable_offset: Offset,
}

/// Adds entries to the index file, creating it for the first. After an error none of them counts: it is cut back to what
/// it was.
pub fn append(disk: &Disk, path: &Path, entries: &[AbortedTransaction]) -> io::Result<()> {
    let file = disk.open_or_create(path)?;
    let whole = file.len()? / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
    let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
    file.write_all_at(&bytes, whole).or_else(|error| file.set_len(whole).and(Err(error)))
}

/// Has the index file hold these entries; without any, the file goes. It is overwritten in place, where there is room on a
/// full disk too: a stop in the middle leaves a segment that is recovered, and its index made anew.
pub fn replace(disk: &Disk, path: &Path, entries: &[AbortedTransaction]) -> io::Result<()> {
    if entries.is_empty() {
        return disk.remove(path);
    }
    let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
    disk.overwrite(path, &bytes)
}

/// All entries; bytes after the last whole one, or of an unknown version, are left out.
pub fn read(disk: &Disk, path: &Path) -> io::Result<Vec<AbortedTransaction>> {
    let bytes = disk.read_if_exists(path)?.unwrap_or_default();
    Ok(bytes.chunks_exact(ENTRY_BYTES).map_while(decode).collect())
}

fn encode(aborted: &AbortedTransaction) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[2..10].copy_from_slice(&aborted.producer_id.0.to_be_bytes());
    entry[10..18].copy_from_slice(&aborted.first_offset.0.to_be_bytes());
    entry[18..26].copy_from_slice(&aborted.last_offset.0.to_be_bytes());
    entry[26..34].copy_from_slice(&aborted.last_stable_offset.0.to_be_bytes());
    entry
}

fn decode(entry: &[u8]) -> Option<AbortedTransaction> {
    let field = |at: usize| Some(i64::from_be_bytes(*entry.get(at..)?.first_chunk()?));
    if entry.first_chunk() != Some(&[0, 0]) {
        return None;
    }
    Some(AbortedTransaction {
        producer_id: ProducerId(field(2)?),
        first_offset: Offset(field(10)?),
        last_offset: Offset(field(18)?),
        last_stable_offset: Offset(field(26)?),
    })
}
