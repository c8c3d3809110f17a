//! The pages under `docs/workloads/` name the workloads and the keys that there are, and nothing else. With UPDATE_DOCS=1,
//! their tables are written anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thalweg_lab::workload;

const BEGIN: &str =
    "<!-- Written by the test `workload_pages`; run it with UPDATE_DOCS=1 to write it anew. -->\n";
const END: &str = "<!-- End of what is written. -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of the files with this ending in a folder.
fn stems(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|is| is == ending));
    paths.map(|path| path.file_stem().expect("it has a name").to_string_lossy().into_owned()).collect()
}

/// That the part of a page between the marks is `expected`.
fn assert_fresh(page: &str, expected: &str) {
    let path = root().join("docs/workloads").join(page);
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = text.split_once(BEGIN).unwrap_or_else(|| panic!("{page} lacks the mark {BEGIN}"));
    let (written, after) = rest.split_once(END).unwrap_or_else(|| panic!("{page} lacks the mark {END}"));
    let expected = format!("\n{expected}\n");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect("it can be written");
        return;
    }
    assert!(written == expected, "docs/workloads/{page} is stale: run this test with UPDATE_DOCS=1");
}

#[test]
fn pages_and_files_are_those_of_the_workloads_that_are_built_in() {
    let names: BTreeSet<String> = workload::names().into_iter().map(str::to_owned).collect();
    assert_eq!(stems("workloads", "toml"), names);
    let mut pages = stems("docs/workloads", "md");
    assert!(pages.remove("README"), "docs/workloads/README.md is missing");
    assert_eq!(pages, names);
    let index = std::fs::read_to_string(root().join("docs/workloads/README.md")).expect("the page is there");
    for name in names {
        assert!(index.contains(&format!("[{name}]({name}.md)")), "README.md does not list {name}");
    }
}

#[test]
fn pages_have_the_points_and_published_figures_of_their_workload() {
    for name in workload::names() {
        let workload = workload::load(name, None).unwrap_or_else(|error| panic!("{error}"));
        let page = format!("{name}.md");
        assert_fresh(&page, &workload::tables(&workload));
        let text =
            std::fs::read_to_string(root().join("docs/workloads").join(&page)).expect("the page is there");
        for part in
            [&format!("# {name}\n"), &workload.title, "## What it does not prove", "## Run it", "## Source"]
        {
            assert!(text.contains(part), "docs/workloads/{page} lacks {part:?}");
        }
    }
}

#[test]
fn the_format_documents_exactly_the_keys_that_are_read() {
    assert_fresh("README.md", &workload::key_table());
}

#[test]
fn the_example_of_the_format_is_a_workload() {
    let page = std::fs::read_to_string(root().join("docs/workloads/README.md")).expect("the page is there");
    let example =
        page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("example.toml");
    std::fs::write(&path, example).expect("it can be written");
    let workload = workload::load(&path.to_string_lossy(), None).unwrap_or_else(|error| panic!("{error}"));
    let labels: Vec<_> = workload.points.iter().map(|point| point.label.as_str()).collect();
    assert_eq!((labels.len(), labels[0], labels[5]), (6, "acks=1, 100 B", "acks=all, 10,000 B"));
}
