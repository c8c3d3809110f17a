//! `.kafka_cleanshutdown`: the marker of a clean shutdown of a log directory.
//!
//! ```text
//! {"version":0,"brokerEpoch":<epoch>}
//! ```
//! The marker is written last when a broker stops, durably, and removed first when a broker starts.
//!
//! Owns: the format. Refuses: interpreting the content: only the file's existence counts.

use std::io;
use std::path::Path;

use crate::disk::{Disk, Durability};

/// The name of the file in the log directory.
pub const FILE: &str = ".kafka_cleanshutdown";

/// Writes the marker.
pub fn write(disk: &Disk, dir: &Path, broker_epoch: i64) -> io::Result<()> {
    let text = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
    disk.replace(&dir.join(FILE), text.as_bytes(), Durability::Synced)
}

/// Reads the marker and removes it durably. The outer `None` means no marker: the stop was not clean. The
/// inner `None` means a marker without a broker epoch.
pub fn take(disk: &Disk, dir: &Path) -> io::Result<Option<Option<i64>>> {
    let path = dir.join(FILE);
    let Some(bytes) = disk.read_if_exists(&path)? else { return Ok(None) };
    disk.remove(&path)?;
    disk.sync_dir(dir)?;
    Ok(Some(parse_epoch(&bytes)))
}

/// The number after `"brokerEpoch":`. The file is one flat object of two numbers, so no JSON parser is
/// needed.
fn parse_epoch(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once("\"brokerEpoch\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end =
        rest.find(|character: char| character != '-' && !character.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_read_from_kafkas_form() {
        assert_eq!(parse_epoch(br#"{"version":0,"brokerEpoch":42}"#), Some(42));
        assert_eq!(parse_epoch(br#"{ "brokerEpoch" : -1 , "version" : 0 }"#), Some(-1));
        for other in [&b""[..], b"{}", b"\xff", br#"{"brokerEpoch":null}"#, b"\"brokerEpoch\":"] {
            assert_eq!(parse_epoch(other), None);
        }
    }
}
