//! The lab's modules are in layers: each imports only from lower ones. So each layer can be read without the
//! upper ones, and any upper part could become a separate crate.

use std::path::{Path, PathBuf};

/// The layers, lowest first.
const FLOORS: &[&str] = &[
    // Numbers and their names.
    "quantity",
    "figures",
    "histogram",
    "pacer",
    "proc",
    "cgroup",
    // Workloads and targets.
    "workload",
    "payload",
    "target",
    "null_server",
    // Clients.
    "worker",
    "perf",
    // Results.
    "result",
    "machine",
    "sample",
    "profile",
    "live",
    "warm",
    "evidence",
    "agent",
    "doctor",
    // Display.
    "report",
    "terminal",
    // Control.
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

/// The modules that a text imports from the crate's root.
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
