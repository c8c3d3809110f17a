//! The result directory of a run, and the run's final output.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use thalweg_lab::result::{self, CpuProfile, PointResult, RunResult, State};
use thalweg_lab::{report, run, terminal};

use crate::failure::{CommandFailure, Usage};
use crate::output::CommandOutput;

/// The default parent directory of results.
const RESULTS: &str = "thalweg-results";
/// The file of a result, in the result directory.
pub(crate) const RESULT: &str = "result.json";
/// The file of the report, in the result directory.
const REPORT: &str = "report.html";
/// Limit of the length of workload names in a directory name.
const NAMES_MAX: usize = 60;

/// The directory of one result.
#[derive(Debug)]
pub(crate) struct ResultDirectory {
    dir: PathBuf,
}

impl ResultDirectory {
    /// Creates the directory: the given path, or a name of time and workloads.
    pub fn make(requested: Option<&Path>, names: &[&str]) -> anyhow::Result<ResultDirectory> {
        let dir = match requested {
            Some(dir) => dir.to_owned(),
            None => Path::new(RESULTS).join(folder_name(&run::now_rfc_3339(), names)),
        };
        let failed = || format!("Cannot create the directory {} for the result", dir.display());
        std::fs::create_dir_all(&dir).with_context(failed)?;
        let made = ResultDirectory { dir };
        if made.result().exists() {
            let message =
                format!("{} contains a result already: use another --out, or remove it", made.dir.display());
            return Err(Usage(message).into());
        }
        Ok(made)
    }

    /// The path of the result file.
    pub fn result(&self) -> PathBuf {
        self.file(RESULT)
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The default directory of brokers: on the disk of the result, because the usual temporary directory is
    /// in memory on many systems.
    pub fn work_dir(&self, requested: Option<&Path>) -> anyhow::Result<WorkDir> {
        let (path, ours) = match requested {
            Some(dir) => (dir.to_owned(), false),
            None => (self.dir.join("brokers"), true),
        };
        let failed = || format!("Cannot create the directory {} for the brokers", path.display());
        std::fs::create_dir_all(&path).with_context(failed)?;
        let path = path.canonicalize().with_context(failed)?;
        Ok(WorkDir { path, ours })
    }

    /// Writes result and report, with `omb_result` also results for the OpenMessaging Benchmark; prints a
    /// summary, and fails if the run did.
    pub fn finish(&self, run: &RunResult, output: &CommandOutput, omb_result: bool) -> anyhow::Result<()> {
        let page = self.file(REPORT);
        let written = self.write(run, &page, omb_result);
        output.show(run, |style| {
            let mut text = format!("{}\n", terminal::table(run, style.has_colours(), style.columns()));
            // The summary is printed even if the files cannot be written.
            if let Ok(SideFiles { for_omb, stacks }) = &written {
                writeln!(text, "Report: {}\nResult: {}", page.display(), self.result().display())?;
                for path in for_omb {
                    writeln!(text, "Result for the OpenMessaging Benchmark: {}", path.display())?;
                }
                for path in stacks {
                    writeln!(text, "Stacks: {}", path.display())?;
                }
            }
            Ok(text)
        })?;
        written?;
        verdict(run)
    }

    fn write(&self, run: &RunResult, page: &Path, omb_result: bool) -> anyhow::Result<SideFiles> {
        result::write(&self.result(), run)?;
        result::write_whole(page, report::html(run).as_bytes())?;
        let for_omb = if omb_result { write_for_omb(&self.dir, run)? } else { Vec::new() };
        Ok(SideFiles { for_omb, stacks: write_stacks(&self.dir, run)? })
    }
}

/// The files beside result and report.
struct SideFiles {
    /// Results for the tools of the OpenMessaging Benchmark.
    for_omb: Vec<PathBuf>,
    /// Processor time by stack.
    stacks: Vec<PathBuf>,
}

/// Writes the stacks of the brokers of each profiled point, over all repetitions, for flame graph tools.
fn write_stacks(dir: &Path, run: &RunResult) -> anyhow::Result<Vec<PathBuf>> {
    let mut written: Vec<PathBuf> = Vec::new();
    for workload in &run.workloads {
        for point in &workload.points {
            let profiles = point.repetitions.iter().filter_map(|one| one.profile.as_ref());
            let cpu = profiles.flat_map(|profile| &profile.processes).filter_map(|one| one.cpu.as_ref());
            let text: String = cpu.map(CpuProfile::folded).collect();
            if !text.is_empty() {
                let path = point_file(dir, "stacks", &workload.workload.name, point, "folded", &written);
                result::write_whole(&path, text.as_bytes())?;
                written.push(path);
            }
        }
    }
    Ok(written)
}

/// The file of a point. Labels that differ only in characters that file names lack do not overwrite each
/// other.
fn point_file(
    dir: &Path,
    kind: &str,
    workload: &str,
    point: &PointResult,
    extension: &str,
    written: &[PathBuf],
) -> PathBuf {
    let parts = [workload, &point.point.label, &point.target, point.driver.words()].map(plain);
    let path = dir.join(format!("{kind}-{}.{extension}", parts.join("-")));
    match written.contains(&path) {
        true => path.with_extension(format!("{}.{extension}", written.len())),
        false => path,
    }
}

/// Writes a result in the OpenMessaging Benchmark's format for each measured point.
pub(crate) fn write_for_omb(dir: &Path, run: &RunResult) -> anyhow::Result<Vec<PathBuf>> {
    let mut written: Vec<PathBuf> = Vec::new();
    for workload in &run.workloads {
        for point in workload.points.iter().filter(|point| !point.repetitions.is_empty()) {
            let path = point_file(dir, "omb", &workload.workload.name, point, "json", &written);
            let json = serde_json::to_string_pretty(&result::openmessaging::write(point))?;
            result::write_whole(&path, json.as_bytes())?;
            written.push(path);
        }
    }
    Ok(written)
}

/// A text as part of a file name.
fn plain(text: impl AsRef<str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    text.as_ref().chars().map(plain).take(NAMES_MAX).collect()
}

/// The directory of brokers, removed at the end if the run created it.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
    ours: bool,
}

impl WorkDir {
    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if self.ours {
            // Each cluster has removed its own directory. A directory with other files stays.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Fails unless everything was measured, and the evidence has no faults.
fn verdict(run: &RunResult) -> anyhow::Result<()> {
    let points = || run.workloads.iter().flat_map(|workload| &workload.points);
    let faults = points()
        .flat_map(|point| &point.repetitions)
        .filter(|repetition| !repetition.evidence.faults.is_empty())
        .count();
    if let State::Partial { why } = &run.state {
        return Err(CommandFailure(format!("the run is incomplete: {why}")).into());
    }
    if faults > 0 {
        return Err(CommandFailure(format!("{faults} repetitions have faults in their evidence")).into());
    }
    Ok(())
}

/// A name that sorts by time and is valid on all file systems.
fn folder_name(time: &str, names: &[&str]) -> String {
    let time: String = time.chars().map(|c| if c.is_ascii_digit() || c == 'T' { c } else { '-' }).collect();
    let names = plain(names.join("-"));
    format!("{}-{names}", time.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_by_time_and_workloads() {
        let name = folder_name("2026-11-22T04:05:06Z", &["ibm-fast", "a/b c"]);
        assert_eq!(name, "2026-11-22T04-05-06-ibm-fast-a-b-c");
    }
}
