//! Directories, pipes, dangling links and whatever else is no file and has the name of one that a log writes.
//!
//! Something else has put them there. A file of that name could be neither written nor removed, so each gets another name.
//! Files whose content is nowhere else (`meta.properties`, the checkpoints, `partition.metadata`) are not among them: a
//! start that cannot read one fails with its name.
//!
//! Owns: the new name. Refuses: deleting anything, and objects with other names.

use std::io;
use std::path::Path;

use crate::disk::{Disk, Listed, is_shortage};
use crate::topic_partition::STRAY_DIR_SUFFIX;

/// Renames what is no file although its name is that of one, and returns all else that is in the directory.
pub(crate) fn rename(
    disk: &Disk,
    dir: &Path,
    listed: Vec<Listed>,
    is_of_file: impl Fn(&str) -> bool,
) -> io::Result<Vec<Listed>> {
    let is_in_the_way =
        |found: &Listed| !found.is_file && !found.name.ends_with(STRAY_DIR_SUFFIX) && is_of_file(&found.name);
    let (obstacles, others): (Vec<_>, Vec<_>) = listed.into_iter().partition(is_in_the_way);
    for Listed { name, .. } in obstacles {
        match disk.rename_away(&dir.join(&name)) {
            // A mount point, for one: it matters once there is to be a file of that name.
            Err(error) if !is_shortage(&error) => {
                tracing::error!(dir = %dir.display(), name, %error, "Failed to rename what is in the way of a file");
            }
            renamed => renamed?,
        }
    }
    Ok(others)
}
