//! The machine's fingerprint: what a reader must know to judge a figure, and what `lab compare` looks at.

use std::path::Path;

use crate::result::Machine;

/// The machine that this runs on, and the file system that holds `data_dir`.
pub fn fingerprint(data_dir: &Path) -> Machine {
    let _ = data_dir;
    Machine::default()
}
