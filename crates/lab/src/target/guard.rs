//! The guard: a small process that ends the brokers and removes their directories if the lab dies without
//! clean-up, as after `kill -9`.
//!
//! The guard reads commands on standard input and acts when the input closes. Only the lab has the other end,
//! so the system closes it when the lab ends for any reason. The guard leads its own process group and does
//! not receive the terminal's Ctrl-C.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The guard's script: `group N` registers a process group to end, `forget` clears all groups, which have
/// ended, `remove DIR` registers a directory to remove, `limit DIR` a control group, and `release` cancels
/// everything.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
groups=
dirs=
limits=
while read -r word what; do
  case $word in
    group) groups="$groups $what" ;;
    forget) groups= ;;
    remove) dirs="$dirs$what
" ;;
    limit) limits="$limits$what
" ;;
    release) exit 0 ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
printf %s "$dirs" | while read -r dir; do rm -rf -- "$dir"; done
# A control group is busy until its last process is gone.
printf %s "$limits" | while read -r dir; do
  tries=0
  while [ -d "$dir" ] && ! rmdir -- "$dir" 2>/dev/null && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries+1)); done
done
"#;

/// The guard's process. Dropping it without [`Guard::release`] makes the guard act.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    words: Option<ChildStdin>,
}

impl Guard {
    /// A guard without tasks.
    pub(super) fn start() -> io::Result<Guard> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "thalweg-lab-guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let words = child.stdin.take();
        Ok(Guard { child, words })
    }

    /// Registers a directory to remove.
    pub(super) fn remove(&mut self, dir: &Path) -> io::Result<()> {
        self.write_path("remove", dir)
    }

    /// Registers the directory of a control group, which is removed after the process groups have ended.
    pub(super) fn limit(&mut self, dir: &Path) -> io::Result<()> {
        self.write_path("limit", dir)
    }

    fn write_path(&mut self, word: &str, dir: &Path) -> io::Result<()> {
        // A line break would truncate the path, and the wrong directory would be removed.
        if !dir.is_absolute() || dir.to_str().is_none_or(|path| path.contains('\n')) {
            let message = "the path must be absolute, in UTF-8 and without line breaks";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.write_line(&format!("{word} {}\n", dir.display()))
    }

    /// Registers a process group to end.
    pub(super) fn group(&mut self, leader: u32) -> io::Result<()> {
        self.write_line(&format!("group {leader}\n"))
    }

    /// Clears all process groups, which have ended; their ids may be reused.
    pub(super) fn forget_groups(&mut self) -> io::Result<()> {
        self.write_line("forget\n")
    }

    /// Ends the guard without action, and reaps its process.
    pub(super) fn release(&mut self) {
        // A dead guard has nothing left to do.
        let _gone = self.write_line("release\n");
        self.words = None;
        let _collected = self.child.wait();
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        match &mut self.words {
            Some(words) => words.write_all(line.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.words = None;
        let _collected = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").process_group(0).spawn().expect("sleep is everywhere")
    }

    #[test]
    fn a_lab_that_is_gone_leaves_no_broker_and_no_directory() {
        let dir = tempfile::tempdir().expect("a directory").keep();
        let mut broker = sleeper();
        let mut guard = Guard::start().expect("a shell");
        guard.remove(&dir).expect("the guard is running");
        guard.group(broker.id()).expect("the guard is running");
        drop(guard);
        let status = broker.wait().expect("ours to wait for");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        assert!(!dir.exists(), "{} is still there", dir.display());
    }

    #[test]
    fn a_guard_that_is_released_touches_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut broker = sleeper();
        let mut guard = Guard::start().expect("a shell");
        guard.remove(dir.path()).expect("the guard is running");
        guard.group(broker.id()).expect("the guard is running");
        guard.release();
        assert!(broker.try_wait().expect("ours to ask").is_none(), "the process still runs");
        assert!(dir.path().exists());
        broker.kill().and_then(|()| broker.wait()).expect("ours to end");
    }
}
