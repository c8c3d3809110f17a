//! Workloads as data: what is measured, under which settings, and what others have published about it.
//!
//! A [`Workload`] is read from a file; its [`Point`]s are what the runner takes. A point is complete: nothing in it is
//! left to a default, so that a result tells all by itself and can be run again.

mod point;

pub use point::{
    Clients, ClusterSpec, Extent, Keys, Load, Measure, Payload, Point, RecordSpec, Topics, Unit,
};

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
    /// The factor that durations, records and rates were multiplied by; 1 for the workload as published.
    pub scale: f64,
    /// What is measured, in order.
    pub points: Vec<Point>,
    /// What others have published, to stand beside what is measured.
    pub published: Vec<Published>,
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
    /// What the number is: `records_per_s`, `mb_per_s`, `p99_us` and so on, a name of [`crate::result::Figures`].
    pub figure: String,
    /// The number, in the figure's unit.
    pub value: f64,
    /// Where it stands: title, publisher, date.
    pub source: String,
}
