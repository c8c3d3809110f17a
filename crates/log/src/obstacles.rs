//! Obstacles: directories, pipes, dangling links and other objects with the name of a file that a log writes.
//!
//! Another program has created them. A file of that name could be neither written nor removed, so each
//! obstacle is renamed. Files with irreplaceable content (`meta.properties`, the checkpoints,
//! `partition.metadata`) are excluded: a start that cannot read such a file fails with its name.
//!
//! Owns: the new name. Refuses: deleting anything, and objects with other names.

use std::io;
use std::path::Path;

use crate::disk::{DirEntry, Disk, is_shortage};
use crate::topic_partition::STRAY_DIR_SUFFIX;

/// Renames the obstacles in the directory, and returns all other names.
pub(crate) fn rename(
    disk: &Disk,
    dir: &Path,
    listed: Vec<DirEntry>,
    is_of_file: impl Fn(&str) -> bool,
) -> io::Result<Vec<DirEntry>> {
    let is_in_the_way = |found: &DirEntry| {
        !found.is_file && !found.name.ends_with(STRAY_DIR_SUFFIX) && is_of_file(&found.name)
    };
    let (obstacles, others): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_in_the_way);
    for DirEntry { name, .. } in obstacles {
        match disk.rename_away(&dir.join(&name)) {
            // A mount point, for example: it matters once a file of that name is needed.
            Err(error) if !is_shortage(&error) => {
                tracing::error!(dir = %dir.display(), name, %error, "Failed to rename what is in the way of a file");
            }
            renamed => renamed?,
        }
    }
    Ok(others)
}
