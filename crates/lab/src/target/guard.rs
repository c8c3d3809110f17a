//! The guard: a small process that ends the brokers and removes their directories when the lab is gone without having
//! done so, as after `kill -9`.
//!
//! It reads words on its standard input and acts when that closes. Nobody but the lab holds the other end, so the system
//! closes it however the lab ends. It leads a process group of its own and does not hear the terminal's Ctrl-C.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// What the guard does: `group N` is a process group to end, `forget` says that all groups so far have ended, `remove DIR`
/// is a directory to remove, and `release` says that all is done already.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
groups=
dirs=
while read -r word what; do
  case $word in
    group) groups="$groups $what" ;;
    forget) groups= ;;
    remove) dirs="$dirs$what
" ;;
    release) exit 0 ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
printf %s "$dirs" | while read -r dir; do rm -rf -- "$dir"; done
"#;

/// The guard's process. Dropped without [`Guard::release`], it acts.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    words: Option<ChildStdin>,
}

impl Guard {
    /// A guard that has nothing to guard yet.
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

    /// Has a directory removed at the end.
    pub(super) fn remove(&mut self, dir: &Path) -> io::Result<()> {
        // A path on two lines would be taken for a shorter one, and that removed.
        if !dir.is_absolute() || dir.to_str().is_none_or(|path| path.contains('\n')) {
            let message = "an absolute path in UTF-8 without line breaks would be right";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.say(&format!("remove {}\n", dir.display()))
    }

    /// Has a process group ended at the end.
    pub(super) fn group(&mut self, leader: u32) -> io::Result<()> {
        self.say(&format!("group {leader}\n"))
    }

    /// All process groups so far have ended; their numbers may become others'.
    pub(super) fn forget_groups(&mut self) -> io::Result<()> {
        self.say("forget\n")
    }

    /// All is done: the guard leaves. Its process is collected.
    pub(super) fn release(&mut self) {
        // A guard that is gone already has nothing left to do.
        let _gone = self.say("release\n");
        self.words = None;
        let _collected = self.child.wait();
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
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
        guard.remove(&dir).expect("told");
        guard.group(broker.id()).expect("told");
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
        guard.remove(dir.path()).expect("told");
        guard.group(broker.id()).expect("told");
        guard.release();
        assert!(broker.try_wait().expect("ours to ask").is_none(), "the process still runs");
        assert!(dir.path().exists());
        broker.kill().and_then(|()| broker.wait()).expect("ours to end");
    }
}
