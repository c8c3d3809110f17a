//! Published figures that are older than the code that they measure: a check before a release, not of every
//! change. A newer commit is a reason to look, not a fault.

mod origin;
mod table;

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;

use origin::Origin;
pub use table::{MeasuredResult, TABLE};

/// Prints each result with the commits since then that changed the measured code.
pub fn run(root: &Path) -> Result<()> {
    let mut older = 0;
    for measured in TABLE {
        for path in measured.code.iter().chain([&measured.result]) {
            ensure!(root.join(path).exists(), "{path} does not exist: correct xtask/src/figures/table.rs");
        }
        let text = std::fs::read_to_string(root.join(measured.result)).context(measured.result)?;
        let (origin, commits) = since(root, &Origin::of(measured.result, &text), measured.code)
            .with_context(|| measured.result.to_owned())?;
        println!("{}: {}", measured.result, measured.figures);
        match commits.first() {
            None => println!("  measured at {origin}; its code is unchanged"),
            Some(last) => {
                older += 1;
                println!(
                    "  measured at {origin}; {} commits since changed its code, the last:",
                    commits.len()
                );
                println!("  {last}");
            }
        }
    }
    println!("\n{older} of {} results are older than the code that they measure.", TABLE.len());
    Ok(())
}

/// The origin in words, and the commits since then that changed `code`, newest first.
fn since(root: &Path, origin: &Origin, code: &[&str]) -> Result<(String, Vec<String>)> {
    let (words, range) = match (oldest(root, &origin.commits)?, &origin.time) {
        (Some(commit), _) => (format!("commit {commit}"), format!("{commit}..HEAD")),
        (None, Some(time)) => (time.clone(), format!("--since={time}")),
        (None, None) => bail!("names neither a commit of this history nor a day"),
    };
    let fixed = ["log", "--no-merges", "--format=%h %cs %s", &range, "--"];
    let listed = git(root, &[&fixed, code].concat())?;
    Ok((words, listed.lines().map(str::to_owned).collect()))
}

/// The oldest of these commits. Those that the history does not have are left out.
fn oldest(root: &Path, commits: &[String]) -> Result<Option<String>> {
    let mut found = Vec::new();
    for commit in commits {
        let is_known = git(root, &["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_ok();
        if is_known && git(root, &["merge-base", "--is-ancestor", commit, "HEAD"]).is_ok() {
            found.push(git(root, &["log", "-1", "--format=%ct %h", commit])?);
        }
    }
    // Times have the same number of digits for centuries.
    found.sort();
    Ok(found.first().and_then(|line| line.trim().split_once(' ')).map(|(_, commit)| commit.to_owned()))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("git does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history of three commits: of `a`, of `b`, of both.
    fn history() -> (tempfile::TempDir, Vec<String>) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let act = |arguments: &[&str]| git(dir.path(), arguments).expect("git works");
        act(&["init", "--quiet"]);
        act(&["config", "user.name", "A"]);
        act(&["config", "user.email", "a@example.org"]);
        act(&["config", "commit.gpgsign", "false"]);
        let mut commits = Vec::new();
        for (number, files) in [&["a"][..], &["b"], &["a", "b"]].into_iter().enumerate() {
            for file in files {
                std::fs::write(dir.path().join(file), number.to_string()).expect("written");
            }
            act(&["add", "--all"]);
            act(&["commit", "--quiet", "--message", &format!("change {number}")]);
            commits.push(act(&["rev-parse", "--short", "HEAD"]).trim().to_owned());
        }
        (dir, commits)
    }

    #[test]
    fn commits_since_then_that_changed_the_code_are_listed() {
        let (dir, commits) = history();
        let found = |at: &str, code: &[&str]| {
            let origin = Origin { commits: vec![at.to_owned()], time: None };
            let (_, commits) = since(dir.path(), &origin, code).expect("git works");
            commits.iter().map(|line| line.split_once(' ').expect("an id").0.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&commits[0], &["a"]), [commits[2].clone()]);
        assert_eq!(found(&commits[0], &["a", "b"]), [commits[2].clone(), commits[1].clone()]);
        assert_eq!(found(&commits[2], &["a", "b"]), [""; 0]);
    }

    #[test]
    fn a_commit_that_is_gone_leaves_the_time() {
        let (dir, commits) = history();
        let mut origin =
            Origin { commits: vec!["0123456789".to_owned()], time: Some("2001-01-01T00:00:00Z".to_owned()) };
        let (words, all) = since(dir.path(), &origin, &["a", "b"]).expect("git works");
        assert_eq!((words.as_str(), all.len()), ("2001-01-01T00:00:00Z", 3));
        origin.commits.push(commits[1].clone());
        assert_eq!(since(dir.path(), &origin, &["a", "b"]).expect("git works").1.len(), 1);
        let unknown =
            since(dir.path(), &Origin::default(), &["a"]).expect_err("nothing is known").to_string();
        assert!(unknown.contains("neither a commit"), "{unknown}");
    }
}
