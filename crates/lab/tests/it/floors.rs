//! The modules of the lab stand in floors: each imports from those below it alone. So a reader can begin at any floor and
//! need not look up, and any upper part could become a crate of its own.

use std::path::{Path, PathBuf};

/// The lowest first.
const FLOORS: &[&str] = &[
    // Numbers and what they are called.
    "quantity",
    "figures",
    "histogram",
    "pacer",
    // What is measured, and on what.
    "workload",
    "payload",
    "target",
    "null_server",
    // Who measures.
    "worker",
    "perf",
    // What comes out, and what bears on it.
    "result",
    "sample",
    "machine",
    "warm",
    "evidence",
    "doctor",
    // What shows it.
    "report",
    "terminal",
    // What walks through all of it.
    "run",
    "calibrate",
    "tune",
];

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| *floor == module)
}

/// Source files below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the sources are there").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The modules that a text names from the root of the crate.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("crate::").map(|(at, found)| {
        let rest = &text[at + found.len()..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn imports_run_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut seen = vec![false; FLOORS.len()];
    let mut upwards = Vec::new();
    for file in files {
        let place = file.strip_prefix(&root).expect("it was found there");
        let module = place.iter().next().and_then(|part| Path::new(part).file_stem()).expect("a name");
        let module = module.to_str().expect("UTF-8");
        if module == "lib" {
            continue;
        }
        let own = floor(module).unwrap_or_else(|| panic!("{module} has no floor yet: give it one in FLOORS"));
        seen[own] = true;
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let above = imports(&text).filter(|import| floor(import).is_some_and(|other| other > own));
        upwards.extend(above.map(|import| format!("{} imports {import}", place.display())));
    }
    assert_eq!(upwards, [""; 0], "imports that run upwards");
    let gone: Vec<_> = FLOORS.iter().zip(&seen).filter(|(_, seen)| !**seen).map(|(floor, _)| floor).collect();
    assert!(gone.is_empty(), "{gone:?} are in FLOORS, and not there");
}

#[test]
fn imports_are_found_wherever_they_stand() {
    let text = "use crate::result::Figures;\nlet a = crate::run::rfc_3339(1); // [`crate::warm`]";
    assert_eq!(imports(text).collect::<Vec<_>>(), ["result", "run", "warm"]);
}
