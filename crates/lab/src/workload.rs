//! Workloads as data: measurements, their settings, and published figures.
//!
//! A [`Workload`] is read from a file; the runner takes its [`Point`]s. A point has no implicit defaults, so
//! that a result is complete and can be repeated.
//!
//! # The file
//! TOML. At the top are `title`, `description` and the settings that all points share, in tables:
//! `[cluster]`, `[topics]`, `[records]`, `[producers]`, `[consumers]`, `[load]`, `[extent]`. Each `[[point]]`
//! has the differences, with the same keys. Without a `[[point]]`, the top is the only point. A list in place
//! of a value creates a point per value; several lists create all combinations. `published` in a point has
//! published figures, and `[why]` the reasons for settings.
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
//! Every key with its default, unit and bounds is in `docs/workloads/README.md`, which is generated from the
//! table in `key`. Unknown keys are refused, and errors name line, key and remedy.
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
mod security;
mod target_name;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

pub use builtin::{names, source};
pub use check::STAMP_BYTES;
pub use driver::{Driver, DriverNotBuilt};
pub use mistake::{
    InvalidFile, InvalidScale, Mistake, Position, UnknownWorkload, UnreadableFile, WorkloadError,
};
pub use page::{SettingRow, describe, key_table, setting_rows, tables};
pub use point::{
    Clients, ClusterSpec, Extent, Keys, Load, Measure, NodeLimits, Payload, Point, RecordSpec, Topics, Unit,
    Verification,
};
pub use scale::scaled;
pub use security::{ClusterSecurity, SaslMechanism, SecurityProtocol};
pub use target_name::TargetName;

use serde::{Deserialize, Serialize};

/// A named set of points, with published figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The workload's name, such as `ibm-fast` for the file `ibm-fast.toml`.
    pub name: String,
    /// A one-line title.
    pub title: String,
    /// Purpose and origin.
    pub description: String,
    /// The drivers, if none are given; empty for the driver thalweg.
    #[serde(default)]
    pub drivers: Vec<Driver>,
    /// The targets, if none are given; empty for brokers of this binary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetName>,
    /// True if each point builds on the one above, as the steps of a tuning study do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_steps: bool,
    /// The reasons for settings, by name, such as `num.io.threads` or `topics.partitions`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub why: BTreeMap<String, String>,
    /// The factor applied to durations, records and rates; 1 for the workload as published.
    pub scale: f64,
    /// The points, in order.
    pub points: Vec<Point>,
    /// Published figures, for comparison with the measured ones.
    pub published: Vec<PublishedFigure>,
}

impl Workload {
    /// A copy without secrets, for a result: see [`Point::without_secrets`].
    pub fn without_secrets(&self) -> Workload {
        Workload { points: self.points.iter().map(Point::without_secrets).collect(), ..self.clone() }
    }
}

/// A published figure, from other hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The label of the compared [`Point`].
    pub point: String,
    /// The measured system, such as `Kafka 2.3.0`.
    pub system: String,
    pub hardware: String,
    /// The price of the system, with currency, unit and date; empty if none is given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub price: String,
    /// The figure: `records_per_s`, `mb_per_s`, `p99_us` and so on, a name of [`crate::figures::Figures`].
    pub figure: String,
    /// The number, in the figure's unit.
    pub value: f64,
    /// The source: title, publisher, date.
    pub source: String,
}

/// Size limit of a workload file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Loads a built-in workload by name, or a file by path: our TOML, or, if it ends in `.yaml` or `.yml`, a
/// workload of the OpenMessaging Benchmark with client defaults. With a scale, as in [`scaled`], whose
/// numbers are also in the labels.
pub fn load(name_or_path: &str, scale: Option<f64>) -> Result<Workload, WorkloadError> {
    load_with(name_or_path, None, scale)
}

/// True if a path is that of an OpenMessaging Benchmark workload.
pub fn is_openmessaging(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// Like [`load`], with the driver file for workloads of the OpenMessaging Benchmark.
pub fn load_with(
    name_or_path: &str,
    omb_driver: Option<&Path>,
    scale: Option<f64>,
) -> Result<Workload, WorkloadError> {
    let path = Path::new(name_or_path);
    let factor = scale.unwrap_or(1.0);
    let workload = match source(name_or_path) {
        Some(text) => {
            let file = format!("{name_or_path}.toml");
            file::parse_for(factor, name_or_path, &file, text, Path::new(""))?
        }
        None if is_openmessaging(name_or_path) => openmessaging::load(path, omb_driver)?,
        None if path.extension().is_some_and(|ending| ending == "toml") => {
            let text = read(path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let folder = path.parent().unwrap_or(Path::new(""));
            file::parse_for(factor, &name, name_or_path, &text, folder)?
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

/// Warnings about a workload: settings unknown to all or some clients, idle clients. As text, each once.
pub fn warnings(workload: &Workload) -> Vec<String> {
    client_properties::warnings(workload)
}

/// Reads a file with a size limit.
fn read(path: &Path) -> Result<String, UnreadableFile> {
    let unreadable = |reason: String| UnreadableFile { path: path.to_owned(), reason };
    let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {length} bytes; the limit is {FILE_BYTES_MAX}")));
    }
    std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}
