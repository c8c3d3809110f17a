//! `partition.metadata`: the id of the topic that a partition's directory belongs to.
//!
//! ```text
//! version: 0
//! topic_id: <22 characters>
//! ```
//! Owns: the format. Refuses: repairing; an invalid file counts as missing, with a warning, and the broker
//! writes the id again once it is known.

use std::io;
use std::path::Path;

use crate::disk::Disk;
use thalweg_ids::Uuid;

/// The name of the file in the partition's directory.
pub const FILE: &str = "partition.metadata";

/// Writes the file in place, because it is written only if no valid file exists.
pub fn write(disk: &Disk, dir: &Path, topic_id: Uuid) -> io::Result<()> {
    let text = format!("version: 0\ntopic_id: {topic_id}");
    disk.overwrite(&dir.join(FILE), text.as_bytes())
}

/// Reads the file; `None` if it is missing or invalid.
pub fn read(disk: &Disk, dir: &Path) -> io::Result<Option<Uuid>> {
    let path = dir.join(FILE);
    let Some(bytes) = disk.read_if_exists(&path)? else { return Ok(None) };
    let topic_id = std::str::from_utf8(&bytes).ok().and_then(parse);
    if topic_id.is_none() {
        tracing::warn!(path = %path.display(), "Ignored invalid partition metadata");
    }
    Ok(topic_id)
}

fn parse(text: &str) -> Option<Uuid> {
    let mut lines = text.lines();
    if lines.next()?.trim() != "version: 0" {
        return None;
    }
    let topic_id: Uuid = lines.next()?.strip_prefix("topic_id:")?.trim().parse().ok()?;
    (topic_id != Uuid::ZERO).then_some(topic_id)
}
