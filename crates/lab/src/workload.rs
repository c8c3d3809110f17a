//! Workloads as data: what is measured, under which settings, and what others have published about it.
//!
//! A [`Workload`] is read from a file; its [`Point`]s are what the runner takes. A point is complete: nothing in it is
//! left to a default, so that a result tells all by itself and can be run again.
//!
//! # The file
//! TOML. At the top stand `title`, `description` and the settings that all points share, in tables: `[cluster]`,
//! `[topics]`, `[records]`, `[producers]`, `[consumers]`, `[load]`, `[extent]`. Each `[[point]]` says what is different for
//! it, with the same keys. Where there is no `[[point]]`, the top is the only one. A list in place of a value makes a
//! point of each value; several lists make all combinations. `published` beside a point holds figures of others.
//!
//! ```toml
//! title = "Two sizes, one and three partitions"
//! description = "Four points."
//! label = "{records.size_bytes} B, {topics.partitions} partitions"
//! records.size_bytes = [100, 1000]
//! topics.partitions = [1, 3]
//! producers.count = 2
//! producers.properties = { acks = "all", linger.ms = 5 }
//! ```
//!
//! Every key with its default, unit and bounds is in `docs/workloads/README.md`, which is written from the table in `key`.
//! A key that is not in that table is refused, and a mistake is told with its line, its key and what would be right.
//!
//! The benchmark files of the OpenMessaging project are read by [`openmessaging`].

mod builtin;
mod check;
mod client_properties;
mod document;
mod driver;
mod file;
mod key;
mod layer;
mod mistake;
pub mod openmessaging;
mod page;
mod point;
mod scale;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use builtin::{names, source};
pub use check::STAMP_BYTES;
pub use driver::{Driver, DriverNotBuilt};
pub use mistake::{
    InvalidFile, InvalidScale, Mistake, Position, UnknownWorkload, UnreadableFile, WorkloadError,
};
pub use page::{describe, key_table, tables};
pub use point::{
    Clients, ClusterSpec, Extent, Keys, Load, Measure, Payload, Point, RecordSpec, Topics, Unit, Verify,
};
pub use scale::scaled;

use serde::{Deserialize, Serialize};

/// A named set of points, with the figures that were published for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name, such as `ibm-fast`: a file `NAME.toml`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is for and where it comes from.
    pub description: String,
    /// Who measures it, where nobody is named; empty for the driver thalweg.
    #[serde(default)]
    pub drivers: Vec<Driver>,
    /// The factor that durations, records and rates were multiplied by; 1 for the workload as published.
    pub scale: f64,
    /// What is measured, in order.
    pub points: Vec<Point>,
    /// What others have published, to stand beside what is measured.
    pub published: Vec<Published>,
}

impl Workload {
    /// The same as a result keeps it: see [`Point::without_secrets`].
    pub fn without_secrets(&self) -> Workload {
        Workload { points: self.points.iter().map(Point::without_secrets).collect(), ..self.clone() }
    }
}

/// A figure that somebody published, on other hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The label of the [`Point`] that it belongs to.
    pub point: String,
    /// What was measured, such as `Kafka 2.3.0`.
    pub system: String,
    /// On what.
    pub hardware: String,
    /// What the number is: `records_per_s`, `mb_per_s`, `p99_us` and so on, a name of [`crate::figures::Figures`].
    pub figure: String,
    /// The number, in the figure's unit.
    pub value: f64,
    /// Where it stands: title, publisher, date.
    pub source: String,
}

/// A file longer than this is no workload.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The workload of this name that is built in, or that of the file at this path: TOML of ours, or, where it ends in
/// `.yaml` or `.yml`, the workload of an OpenMessaging Benchmark with the client's own defaults. With a scale, as
/// [`scaled`] has it.
pub fn load(name_or_path: &str, scale: Option<f64>) -> Result<Workload, WorkloadError> {
    load_with(name_or_path, None, scale)
}

/// Whether a path is that of a workload of the OpenMessaging Benchmark.
pub fn is_openmessaging(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// As [`load`], with the driver's file for what comes from the OpenMessaging Benchmark.
pub fn load_with(
    name_or_path: &str,
    omb_driver: Option<&Path>,
    scale: Option<f64>,
) -> Result<Workload, WorkloadError> {
    let path = Path::new(name_or_path);
    let workload = match source(name_or_path) {
        Some(text) => file::parse(name_or_path, &format!("{name_or_path}.toml"), text, Path::new(""))?,
        None if is_openmessaging(name_or_path) => openmessaging::load(path, omb_driver)?,
        None if path.extension().is_some_and(|ending| ending == "toml") => {
            let text = read(path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            file::parse(&name, name_or_path, &text, path.parent().unwrap_or(Path::new("")))?
        }
        None => {
            return Err(UnknownWorkload { name: name_or_path.to_owned(), known: names() }.into());
        }
    };
    match scale {
        Some(factor) => Ok(scaled(&workload, factor)?),
        None => Ok(workload),
    }
}

/// What is odd in a workload without being wrong: settings that no client or not every driver knows, clients that must
/// stand idle. For people, each once.
pub fn warnings(workload: &Workload) -> Vec<String> {
    client_properties::warnings(workload)
}

/// The text of a file that somebody wrote.
fn read(path: &Path) -> Result<String, UnreadableFile> {
    let unreadable = |reason: String| UnreadableFile { path: path.to_owned(), reason };
    let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {length} bytes; at most {FILE_BYTES_MAX} would be right")));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}
