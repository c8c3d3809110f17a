//! The lab's results under `docs/results/` are condensed, and the lab's tables in the pages beside them match
//! the results that they name. UPDATE_DOCS=1 rewrites both.
//!
//! A table is between `<!-- lab RESULT.json WORKLOAD... -->` and `<!-- /lab -->`; the path is relative to the
//! root.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use thalweg_lab::{report, result};

use crate::page_blocks::{PAGES_LOCK, assert_fresh, regenerated};

const BEGIN: &str = "<!-- lab ";
const END: &str = "<!-- /lab -->";

/// The pages with such tables.
fn pages(root: &Path) -> Vec<PathBuf> {
    let results = std::fs::read_dir(root.join("docs/results")).expect("the folder is there");
    let results = results.map(|entry| entry.expect("it can be read").path());
    let mut pages: Vec<PathBuf> =
        results.filter(|path| path.extension().is_some_and(|is| is == "md")).collect();
    pages.push(root.join("README.md"));
    pages
}

/// The table of a mark: the path of a result, and workloads of it.
fn table(root: &Path, words: &str) -> String {
    let (path, workloads) = words.split_once(' ').expect("a path and workloads");
    let mut run = result::read(&root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let wanted: Vec<&str> = workloads.split(' ').collect();
    run.workloads.retain(|workload| wanted.contains(&workload.workload.name.as_str()));
    assert_eq!(run.workloads.len(), wanted.len(), "{path} has not all of {wanted:?}");
    report::markdown(&run)
}

/// The results of the lab among those that are kept.
fn results(root: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(root.join("docs/results")).expect("the folder is there");
    let all = all.map(|entry| entry.expect("it can be read").path());
    let mut found: Vec<PathBuf> = all
        .filter(|path| path.extension().is_some_and(|is| is == "json"))
        .filter(|path| std::fs::read_to_string(path).expect("text").contains("\"thalweg-lab-result/"))
        .collect();
    found.sort();
    found
}

/// The parts that reports do not read make up nine tenths of a result as it was measured.
#[test]
fn every_result_that_is_kept_is_condensed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for path in results(&root) {
        let run = result::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let condensed = report::condensed(run).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let text = result::to_json(&condensed).expect("plain data");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            result::write(&path, &condensed).expect("it can be written");
        } else {
            let is_condensed = std::fs::read(&path).expect("it is kept") == text;
            assert!(is_condensed, "{} is not condensed: run this test with UPDATE_DOCS=1", path.display());
        }
    }
}

/// Results of earlier versions are understood: what they lack has a default.
#[test]
fn every_result_that_is_kept_is_read_and_has_its_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let all = results(&root);
    assert!(all.len() >= 8, "{all:?}");
    for path in all {
        let name = path.display();
        let run = result::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let said = report::answer(&run);
        let page = report::html(&run);
        let is_title = page.contains(&format!(">{}</h1>", said.sentence));
        assert!(is_title == said.is_quotable && page.contains(&said.sentence), "{name}: {said:?}");
        assert!(
            page.contains("class=\"figures main\"") || run.workloads[0].workload.points.len() < 2,
            "{name} has no main chart"
        );
        assert!(!page.contains("NaN"), "{name}");
        assert!(report::markdown(&run).contains(&said.sentence), "{name}");
    }
}

#[test]
fn the_first_version_of_a_result_has_the_answer_of_its_pairs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let run = result::read(&root.join("docs/results/2026-11-22-lab.json")).expect("it is kept");
    let said = report::answer(&run);
    // Three pairs: 3 brokers of ibm-fast. All others have two.
    let why = "only at 1 of 17 points may both figures and their ratio be quoted.";
    assert!(said.sentence.ends_with(why) && !said.is_quotable, "{said:?}");
    assert!(said.basis.contains(" is known at 1 of 15 points: at least 3.4."), "{said:?}");
}

#[test]
fn tables_are_those_of_the_results_that_they_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tables = 0;
    let _held = PAGES_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for path in pages(&root) {
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let (fresh, count) = regenerated(&page, BEGIN, END, |words| table(&root, words));
        tables += count;
        assert_fresh(&path, &fresh);
    }
    assert!(tables > 0, "the pages have tables of the lab");
}
