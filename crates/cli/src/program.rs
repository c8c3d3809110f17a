//! The path and the identity of this program, for child processes and agents that run the same program.

use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The running executable, even if the file at its path was replaced.
#[cfg(target_os = "linux")]
const RUNNING: &str = "/proc/self/exe";

/// The running executable, which also serves as lab, worker and embedded broker.
pub fn binary() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    // The kernel appends this suffix to the path of a replaced binary; the new binary may differ.
    match binary.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => {
            anyhow::bail!("{} was replaced while it ran: start it again", Path::new(path).display())
        }
        None => Ok(binary),
    }
}

/// The running executable for child processes, even if the file at its path is replaced meanwhile: they are
/// of the version of this process.
#[cfg(target_os = "linux")]
pub fn running_binary() -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(RUNNING))
}

/// The running executable for child processes.
#[cfg(not(target_os = "linux"))]
pub fn running_binary() -> anyhow::Result<PathBuf> {
    binary()
}

/// A number of the running executable that differs between builds.
pub fn fingerprint() -> anyhow::Result<String> {
    Ok(format!("{:016x}", hash(&running_binary()?)?))
}

#[expect(clippy::disallowed_types, reason = "the program's file, read once in parts: it is large")]
fn hash(file: &Path) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(file)?;
    // Not a defence: it distinguishes builds that differ by mistake.
    let mut hasher = DefaultHasher::new();
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hasher.finish()),
            count => hasher.write(&part[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_has_another_fingerprint() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |bytes: &[u8]| {
            let file = dir.path().join("program");
            std::fs::write(&file, bytes).expect("written");
            hash(&file).expect("readable")
        };
        assert_eq!(of(b"one"), of(b"one"));
        assert_ne!(of(b"one"), of(b"two"));
        assert_eq!(fingerprint().expect("a program"), fingerprint().expect("a program"));
    }
}
