//! The settings that packages bring: the binary takes all of them, without a warning.

use std::path::Path;

use super::node::Node;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

#[test]
fn settings_of_packages_raise_no_warning() {
    for file in ["debian/server.properties", "oci/server.properties"] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = Path::new(DEPLOY).join(file);
        let path = path.to_str().expect("text");
        // Only what the machine of a test does not have differs: the data directory and the ports.
        let mut node = Node::start_with(dir.path(), &[path], &["listeners=PLAINTEXT://127.0.0.1:0"]);
        node.end(rustix::process::Signal::TERM);
        let said = node.output();
        assert!(!said.contains(" WARN ") && !said.contains(" ERROR "), "{file}: {said}");
    }
}

#[test]
fn the_service_restarts_neither_wrong_settings_nor_forever() {
    let unit = std::fs::read_to_string(Path::new(DEPLOY).join("debian/thalweg.service")).expect("a unit");
    let value = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} is missing")).trim_end_matches('s').to_owned()
    };
    let number = |name: &str| value(name).parse::<u32>().expect("a number");
    assert_eq!(value("RestartPreventExitStatus"), "2", "the exit code of wrong settings");
    // Otherwise the limit is never reached.
    assert!(number("StartLimitBurst") * number("RestartSec") * 2 < number("StartLimitIntervalSec"));
}
