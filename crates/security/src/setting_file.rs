//! The files that settings name. Administrators set paths on a running broker, so a path may lead to a device
//! or to a pipe: only regular files are read, up to a limit.

use std::io::{self, Read};
use std::path::Path;

/// Reads a regular file of at most `bytes_max` bytes.
#[expect(clippy::disallowed_types, reason = "a file of settings, which is no data")]
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // An open waits for the other end of a pipe, so the kind is checked first.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        std::fs::write(&path, b"four").expect("writable");
        assert_eq!(read(&path, 4).expect("readable"), b"four");
        assert_eq!(read(&path, 3).expect_err("too long").to_string(), "more than 3 bytes");
        // Their length is 0, and an end never comes.
        for endless in ["/dev/zero", "/dev/null", "/proc/self/mem"] {
            let read = read(Path::new(endless), 4);
            assert!(read.is_err(), "{endless}: {read:?}");
        }
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
        assert!(made.success());
        assert_eq!(read(&pipe, 4).expect_err("a pipe").to_string(), "not a regular file");
        assert_eq!(read(dir.path(), 4).expect_err("a directory").to_string(), "not a regular file");
    }
}
