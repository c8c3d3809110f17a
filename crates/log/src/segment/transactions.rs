//! The transaction index of a segment: `.txnindex`, the aborted transactions whose marker is in it.
//!
//! ```text
//! 34 bytes an entry, big-endian, in the order of their last offsets:
//!   version            i16   0
//!   producer id        i64
//!   first offset       i64
//!   last offset        i64   that of the marker
//!   last stable offset i64   as it was once the marker was applied: at most the offset behind the marker
//! ```
//! The file exists only if the segment has such a transaction.
//!
//! Readers stop at the first entry whose last stable offset reaches their bound. If a replica of Apache
//! Kafka, or of an earlier Thalweg, appends several transactions at once, it records the beginning of a later
//! transaction for a marker at which no transaction is open. Such an offset is above the offset after the
//! marker, which is the right value: the reader uses that value instead.
//!
//! Owns: the format and the search. Refuses: caching entries: the file is read only if a consumer requests
//! committed data and the segment has the file.

use std::io;
use std::path::{Path, PathBuf};

use crc_fast::CrcAlgorithm;
use thalweg_record::{Offset, ProducerId};

use super::{Home, Segment, TXN_INDEX_SUFFIX};
use crate::checkpoint::TxnIndexSum;
use crate::disk::Disk;

const ENTRY_BYTES: usize = 34;

/// An aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    /// Offset of the transaction's first record.
    pub first_offset: Offset,
    /// Offset of the marker.
    pub last_offset: Offset,
    /// The last stable offset once the marker was applied.
    pub last_stable_offset: Offset,
}

impl Segment {
    /// The aborted transactions whose marker is in this segment.
    pub fn aborted_transactions(&self, home: &Home) -> io::Result<Vec<AbortedTransaction>> {
        if !self.has_txn_index {
            return Ok(Vec::new());
        }
        read(&home.disk, &home.file(self.base_offset, TXN_INDEX_SUFFIX))
    }

    /// The transaction index, if there is one.
    pub fn txn_index(&self, home: &Home) -> Option<PathBuf> {
        self.has_txn_index.then(|| home.file(self.base_offset, TXN_INDEX_SUFFIX))
    }

    /// Adds aborted transactions to the transaction index.
    pub fn add_aborted(&mut self, home: &Home, aborted: &[AbortedTransaction]) -> io::Result<()> {
        self.txn_index_sum = None;
        append(&home.disk, &home.file(self.base_offset, TXN_INDEX_SUFFIX), aborted)?;
        self.has_txn_index = true;
        Ok(())
    }

    /// Replaces the content of the transaction index. Does not write unchanged content, so that a full disk
    /// does not matter.
    pub fn replace_aborted(&mut self, home: &Home, aborted: &[AbortedTransaction]) -> io::Result<()> {
        let path = home.file(self.base_offset, TXN_INDEX_SUFFIX);
        let found = if self.has_txn_index { home.disk.read_if_exists(&path)? } else { None };
        let bytes: Vec<u8> = aborted.iter().flat_map(encode).collect();
        if found.unwrap_or_default() != bytes {
            self.txn_index_sum = None;
            replace(&home.disk, &path, &bytes)?;
            self.has_txn_index = !aborted.is_empty();
        }
        Ok(())
    }

    /// Corrects last stable offsets that lie after their markers.
    pub fn correct_aborted(&mut self, home: &Home) -> io::Result<()> {
        let known = self.aborted_transactions(home)?;
        self.replace_aborted(home, &known)
    }

    /// Drops the aborted transactions whose marker is not below `offset`.
    pub fn truncate_transactions(&mut self, home: &Home, offset: Offset) -> io::Result<()> {
        if self.has_txn_index {
            let mut kept = self.aborted_transactions(home)?;
            let count = kept.partition_point(|aborted| aborted.last_offset < offset);
            if count < kept.len() {
                kept.truncate(count);
                self.replace_aborted(home, &kept)?;
            }
        }
        Ok(())
    }

    /// Length and checksum of the transaction index; `None` without one.
    pub fn txn_index_sum(&mut self, home: &Home) -> io::Result<Option<TxnIndexSum>> {
        let Some(path) = self.txn_index(home).filter(|_| self.txn_index_sum.is_none()) else {
            return Ok(self.txn_index_sum);
        };
        let Some(bytes) = home.disk.read_if_exists(&path)? else { return Ok(None) };
        let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &bytes);
        let crc = u32::try_from(crc).expect("a CRC-32C has 32 bits");
        self.txn_index_sum = Some(TxnIndexSum { bytes: bytes.len() as u64, crc });
        Ok(self.txn_index_sum)
    }
}

/// Adds entries to the index file, creating it if necessary. After an error none of them counts: the file is
/// truncated to its previous length.
fn append(disk: &Disk, path: &Path, entries: &[AbortedTransaction]) -> io::Result<()> {
    let file = disk.open_or_create(path)?;
    let whole = file.len()? / ENTRY_BYTES as u64 * ENTRY_BYTES as u64;
    let bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
    file.write_all_at(&bytes, whole).or_else(|error| file.set_len(whole).and(Err(error)))
}

/// Replaces the entries of the index file; without entries, removes it. The file is overwritten in place,
/// which works on a full disk too: after a stop in the middle, the segment is recovered and its index
/// rebuilt.
fn replace(disk: &Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() { disk.remove(path) } else { disk.overwrite(path, bytes) }
}

/// All entries; bytes after the last whole entry, or of an unknown version, are left out.
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
    let last_offset = field(18)?;
    Some(AbortedTransaction {
        producer_id: ProducerId(field(2)?),
        first_offset: Offset(field(10)?),
        last_offset: Offset(last_offset),
        last_stable_offset: Offset(field(26)?.min(last_offset.saturating_add(1))),
    })
}
