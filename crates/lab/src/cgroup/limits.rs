//! Control groups for child processes, with limits of processor time and memory. Versions 1 and 2.
//!
//! A group is made below a group of this process, so that limits from above stay in force:
//!
//! - version 1: in the hierarchies of `cpu` and `memory`, below this process's own groups;
//! - version 2: below the nearest group above this process whose children may be limited, because a group
//!   with processes has no limited children.
//!
//! A child moves itself into its groups before it executes the program, which thus sees its limits from its
//! first instruction on. This module does not wait for processes: the owner ends them, then removes the
//! groups.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::ProcessCgroups;

/// The mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";
/// The period of the processor quota. The usual 100 ms would let a node with a tenth of a processor pause for
/// 90 ms.
const PERIOD_US: u64 = 20_000;
/// Number of attempts to remove a group, and the pause between them: its last process may be ending.
const REMOVALS: u32 = 400;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);
/// A child moves itself into the groups whose files precede `--`, then executes the program after it.
const MOVE: &str = "while [ \"$1\" != -- ]; do echo $$ > \"$1\" || exit 111; shift; done; shift; exec \"$@\"";

/// Limits of processor time or memory that this machine cannot set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "The nodes' limits (cluster.node_cpus, cluster.node_memory_mb) need control groups, but {missing}: {remedy}"
)]
pub struct NoControlGroups {
    /// The missing feature.
    pub missing: String,
    pub remedy: String,
}

impl NoControlGroups {
    fn new(missing: String, remedy: &str) -> NoControlGroups {
        NoControlGroups { missing, remedy: remedy.to_owned() }
    }
}

/// The parents of new groups.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parents {
    /// Below a group of each hierarchy.
    One { cpu: PathBuf, memory: PathBuf },
    /// Below one of these groups, the first that permits it.
    Two(Vec<PathBuf>),
}

/// The groups of child processes.
#[derive(Debug)]
pub(crate) struct Groups {
    parents: Parents,
    made: Vec<Group>,
}

/// The group of a child: one directory per hierarchy.
#[derive(Debug)]
struct Group {
    cpu: PathBuf,
    memory: PathBuf,
}

impl Groups {
    /// Detects the machine's control groups, without creating any.
    pub(crate) fn find() -> Result<Groups, NoControlGroups> {
        Ok(Groups { parents: parents(Path::new(ROOT), &super::own())?, made: Vec::new() })
    }

    /// The version of control groups.
    pub(crate) fn version(&self) -> u32 {
        match self.parents {
            Parents::One { .. } => 1,
            Parents::Two(_) => 2,
        }
    }

    /// Creates a group with limits: processors in thousandths, and bytes. Returns its directories, for the
    /// caller's own clean-up.
    pub(crate) fn make(
        &mut self,
        name: &str,
        cpu_millis: Option<u32>,
        memory_bytes: Option<u64>,
    ) -> Result<Vec<PathBuf>, NoControlGroups> {
        let group = match &self.parents {
            Parents::One { cpu, memory } => {
                let cpu = make_dir(&cpu.join(name))?;
                let memory = make_dir(&memory.join(name)).inspect_err(|_| {
                    let _without_processes = std::fs::remove_dir(&cpu);
                })?;
                Group { cpu, memory }
            }
            Parents::Two(parents) => {
                let mut made = parents.iter().map(|parent| make_dir(&parent.join(name)));
                // The error of the nearest group is the most helpful one.
                let first = made.next().unwrap_or_else(|| Err(denied(Path::new(ROOT), "there is none")));
                let dir = first.or_else(|error| made.find_map(Result::ok).ok_or(error))?;
                Group { cpu: dir.clone(), memory: dir }
            }
        };
        let directories = group.directories();
        // Recorded here, so that the group is removed if a limit cannot be set.
        self.made.push(group);
        let group = &self.made[self.made.len() - 1];
        if let Some(millis) = cpu_millis {
            group.set_cpu(self.version(), millis)?;
        }
        if let Some(bytes) = memory_bytes {
            let file = if self.version() == 1 { "memory.limit_in_bytes" } else { "memory.max" };
            set(&group.memory.join(file), &bytes.to_string())?;
        }
        Ok(directories)
    }

    /// The command, run in the group made last.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("/bin/sh");
        inside.args(["-c", MOVE, "thalweg-lab-limited"]);
        let files = self.made.last().map(Group::directories).unwrap_or_default();
        inside.args(files.iter().map(|dir| dir.join("cgroup.procs")));
        inside.arg("--").arg(command.get_program()).args(command.get_args().map(OsString::from));
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(key, value),
                None => inside.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            inside.current_dir(dir);
        }
        inside
    }

    /// Sets the processor time of all groups.
    pub(crate) fn set_cpu(&self, millis: u32) -> Result<(), NoControlGroups> {
        self.made.iter().try_for_each(|group| group.set_cpu(self.version(), millis))
    }

    /// Removes the groups, whose processes have ended. Returns failures, as text.
    #[expect(clippy::disallowed_methods, reason = "it also runs where no runtime is left to wait in")]
    pub(crate) fn remove(&mut self) -> Vec<String> {
        let mut odd = Vec::new();
        for dir in self.made.drain(..).flat_map(|group| group.directories()) {
            let mut tries = 0;
            while let Err(error) = std::fs::remove_dir(&dir) {
                tries += 1;
                match error.kind() {
                    io::ErrorKind::NotFound => break,
                    io::ErrorKind::ResourceBusy if tries < REMOVALS => std::thread::sleep(REMOVAL_PAUSE),
                    _ => {
                        odd.push(format!("Failed to remove the control group {}: {error}", dir.display()));
                        break;
                    }
                }
            }
        }
        odd
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _odd = self.remove();
    }
}

impl Group {
    /// All directories, without duplicates.
    fn directories(&self) -> Vec<PathBuf> {
        let mut all = vec![self.cpu.clone()];
        if self.memory != self.cpu {
            all.push(self.memory.clone());
        }
        all
    }

    fn set_cpu(&self, version: u32, millis: u32) -> Result<(), NoControlGroups> {
        let quota_us = u64::from(millis) * PERIOD_US / 1000;
        if version == 1 {
            set(&self.cpu.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
            return set(&self.cpu.join("cpu.cfs_quota_us"), &quota_us.to_string());
        }
        set(&self.cpu.join("cpu.max"), &format!("{quota_us} {PERIOD_US}"))
    }
}

fn parents(root: &Path, own: &ProcessCgroups) -> Result<Parents, NoControlGroups> {
    // A hybrid system has both; controllers belong to one of them.
    let hierarchy = |names: &[&str], controller: &str| {
        let mount = names.iter().map(|name| root.join(name)).find(|dir| dir.is_dir())?;
        let inside = mount.join(own.path(Some(controller)).unwrap_or_default().trim_start_matches('/'));
        // In a container, the path is the host's.
        Some(if inside.is_dir() { inside } else { mount })
    };
    let one = (hierarchy(&["cpu", "cpu,cpuacct"], "cpu"), hierarchy(&["memory"], "memory"));
    if let (Some(cpu), Some(memory)) = one {
        return Ok(Parents::One { cpu, memory });
    }
    let Ok(offered) = std::fs::read_to_string(root.join("cgroup.controllers")) else {
        let missing = match one {
            (None, None) => {
                format!("{} has neither version 1 with cpu and memory nor version 2", root.display())
            }
            (None, _) => format!("{} has no hierarchy for cpu", root.display()),
            (_, _) => format!("{} has no hierarchy for memory", root.display()),
        };
        return Err(NoControlGroups::new(missing, "mount them, or leave the limits out"));
    };
    let lacks = |text: &str| {
        ["cpu", "memory"].into_iter().find(|one| !text.split_whitespace().any(|word| word == *one))
    };
    if let Some(controller) = lacks(&offered) {
        let missing = format!("version 2 at {} does not offer the controller {controller}", root.display());
        return Err(NoControlGroups::new(
            missing,
            "enable it in the kernel (cgroup_enable), or leave the limits out",
        ));
    }
    let path = own.path(None).unwrap_or_default();
    let inner = root.join(path.trim_start_matches('/'));
    let above = inner.ancestors().take_while(|dir| dir.starts_with(root));
    let limiting = above.filter(|dir| {
        std::fs::read_to_string(dir.join("cgroup.subtree_control")).is_ok_and(|text| lacks(&text).is_none())
    });
    let parents: Vec<PathBuf> = limiting.map(Path::to_owned).collect();
    match parents.is_empty() {
        true => Err(NoControlGroups::new(
            format!("no group above this process ({path}) limits cpu and memory of its children"),
            "run the lab as root, or by systemd-run --user --scope -p Delegate=yes",
        )),
        false => Ok(Parents::Two(parents)),
    }
}

fn make_dir(dir: &Path) -> Result<PathBuf, NoControlGroups> {
    std::fs::create_dir(dir).map(|()| dir.to_owned()).map_err(|error| denied(dir, &error.to_string()))
}

fn set(file: &Path, value: &str) -> Result<(), NoControlGroups> {
    std::fs::write(file, value).map_err(|error| denied(file, &format!("{value} was refused ({error})")))
}

fn denied(path: &Path, why: &str) -> NoControlGroups {
    NoControlGroups::new(
        format!("{} cannot be written: {why}", path.display()),
        "run the lab as root, or by systemd-run --user --scope -p Delegate=yes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree like a system's control groups.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        root
    }

    fn own(text: &str) -> ProcessCgroups {
        ProcessCgroups { text: text.to_owned() }
    }

    #[test]
    fn groups_of_version_1_are_made_below_those_of_this_process() {
        let root = tree(&[("cpu,cpuacct/lab/tasks", ""), ("memory/tasks", "")]);
        let found = parents(root.path(), &own("4:cpu,cpuacct:/lab\n3:memory:/docker/on-the-host\n0::/\n"));
        let (cpu, memory) = (root.path().join("cpu,cpuacct/lab"), root.path().join("memory"));
        assert_eq!(found, Ok(Parents::One { cpu, memory }));
    }

    #[test]
    fn groups_of_version_2_are_made_where_children_are_limited() {
        let root = tree(&[
            ("cgroup.controllers", "cpuset cpu io memory pids\n"),
            ("cgroup.subtree_control", "cpu memory\n"),
            ("user.slice/cgroup.subtree_control", "cpu memory pids\n"),
            ("user.slice/a.scope/cgroup.subtree_control", "\n"),
        ]);
        let found = parents(root.path(), &own("0::/user.slice/a.scope\n"));
        assert_eq!(found, Ok(Parents::Two(vec![root.path().join("user.slice"), root.path().to_owned()])));
        let mut groups = Groups { parents: found.expect("found"), made: Vec::new() };
        let made = groups.make("node", Some(500), Some(1 << 30)).expect("made");
        let read = |name: &str| std::fs::read_to_string(made[0].join(name)).expect("written");
        assert_eq!((read("cpu.max").as_str(), read("memory.max").as_str()), ("10000 20000", "1073741824"));
        // A real group's files disappear with it.
        for name in ["cpu.max", "memory.max"] {
            std::fs::remove_file(made[0].join(name)).expect("removed");
        }
        assert_eq!(groups.remove(), Vec::<String>::new());
        assert!(!made[0].exists());
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |files: &[(&str, &str)]| {
            let root = tree(files);
            parents(root.path(), &own("0::/\n")).expect_err("something is missing").to_string()
        };
        assert!(missing(&[("memory/tasks", "")]).contains("has no hierarchy for cpu"));
        assert!(missing(&[("x", "")]).contains("neither version 1"));
        let text = missing(&[("cgroup.controllers", "cpuset cpu\n")]);
        assert!(text.contains("does not offer the controller memory"), "{text}");
        let text = missing(&[("cgroup.controllers", "cpu memory\n"), ("cgroup.subtree_control", "cpu\n")]);
        assert!(text.contains("no group above this process") && text.contains("Delegate=yes"), "{text}");
    }

    #[test]
    fn a_process_is_held_to_its_processor_time_and_its_group_is_removed() {
        use std::io::Write;
        let mut groups = match Groups::find() {
            Ok(groups) => groups,
            Err(error) => {
                writeln!(io::stderr(), "SKIPPED: limits of real processes: {error}")
                    .expect("stderr takes a line");
                return;
            }
        };
        let name = format!("thalweg-lab-test-{}", std::process::id());
        let made = match groups.make(&name, Some(100), Some(64 << 20)) {
            Ok(made) => made,
            Err(error) => {
                writeln!(io::stderr(), "SKIPPED: limits of real processes: {error}")
                    .expect("stderr takes a line");
                return;
            }
        };
        let mut busy = Command::new("/bin/sh");
        busy.args(["-c", "i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done"]);
        let mut child = groups.within(&busy).spawn().expect("a shell");
        #[expect(clippy::disallowed_methods, reason = "a process runs in the world's time")]
        std::thread::sleep(Duration::from_secs(2));
        let used_s = crate::proc::processor_time(child.id()).expect("it runs").as_secs_f64();
        child.kill().and_then(|()| child.wait()).expect("ours to end");
        assert!(used_s < 0.5, "a tenth of a processor for two seconds, but {used_s} s");
        assert_eq!(groups.remove(), Vec::<String>::new());
        assert!(made.iter().all(|dir| !dir.exists()), "{made:?}");
    }
}
