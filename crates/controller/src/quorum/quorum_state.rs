//! `quorum-state`: the latest epoch that this node has seen, and its leader (Kafka's `FileQuorumStateStore`).
//!
//! ```text
//! {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}
//! ```
//! The file is synced before the first record of an epoch is written, so that no epoch is started twice.

use std::io;
use std::path::{Path, PathBuf};

use thalweg_log::disk::{Disk, Durability};

const FILE: &str = "quorum-state";

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QuorumStateError {
    #[error("{} cannot be read or written: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} makes no sense: there is no number after \"{field}\"", path.display())]
    Malformed { path: PathBuf, field: &'static str },
}

/// The epoch and its leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QuorumState {
    pub leader_id: i32,
    pub leader_epoch: i32,
}

impl QuorumState {
    /// Reads the file; `None` if it is missing.
    pub fn read(disk: &Disk, dir: &Path) -> Result<Option<QuorumState>, QuorumStateError> {
        let path = dir.join(FILE);
        let bytes = disk.read_if_exists(&path);
        let Some(bytes) = bytes.map_err(|error| QuorumStateError::Io { path: path.clone(), error })? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        let field = |name: &'static str| {
            number(&text, name).ok_or_else(|| QuorumStateError::Malformed { path: path.clone(), field: name })
        };
        Ok(Some(QuorumState { leader_id: field("leaderId")?, leader_epoch: field("leaderEpoch")? }))
    }

    /// Replaces the file and syncs it.
    pub fn write(&self, disk: &Disk, dir: &Path) -> Result<(), QuorumStateError> {
        let path = dir.join(FILE);
        let text = format!(
            "{{\"leaderId\":{},\"leaderEpoch\":{},\"votedId\":-1,\
             \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}}",
            self.leader_id, self.leader_epoch
        );
        disk.replace(&path, text.as_bytes(), Durability::Synced)
            .map_err(|error| QuorumStateError::Io { path, error })
    }
}

/// The number after a quoted name and a colon. The file has few fields and no nesting.
fn number(text: &str, name: &str) -> Option<i32> {
    let quoted = format!("\"{name}\"");
    let rest = text[text.find(&quoted)? + quoted.len()..].trim_start().strip_prefix(':')?.trim_start();
    let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_file_is_read() {
        let text = r#"{"clusterId":"","leaderId":3,"leaderEpoch":12,"votedId":-1,"appliedOffset":0,"data_version":0}"#;
        assert_eq!((number(text, "leaderId"), number(text, "leaderEpoch")), (Some(3), Some(12)));
        assert_eq!(number("{}", "leaderId"), None);
        assert_eq!(number("{\"leaderId\": x}", "leaderId"), None);
    }
}
