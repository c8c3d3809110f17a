//! The last hour of a broker: samples of its figures in memory of a bounded size.
//!
//! A broker takes a sample every few seconds and records it as a round. The history has the last [`POINTS`]
//! rounds, [`TOPICS_MAX`] topics and [`GROUPS_MAX`] groups with a series each. The others, which are the
//! smallest or have long names, are kept as one sum, so that the series and the others together are the
//! total at each point. Times without a sample are gaps, and unknown values stay unknown: neither is a zero.
//! Pure: time and figures are parameters.

mod column;
mod event;
mod history;
mod reading;
mod table;

pub use event::{Event, EventKind};
pub use history::{Figure, Figures, GroupSample, History, Round, TopicSample};
pub use reading::{GroupSeries, Interval, TopicSeries, TopicSum};

use std::sync::Arc;

use parking_lot::Mutex;

/// Rounds that a history keeps: an hour, with one round in ten seconds.
pub const POINTS: usize = 360;
/// Topics with a series.
pub const TOPICS_MAX: usize = 200;
/// Groups with a series.
pub const GROUPS_MAX: usize = 200;

/// Longest name of a series in bytes. Topics have shorter names; ids of groups have no limit.
pub const NAME_BYTES_MAX: usize = 256;

/// A history that is recorded by one task and read by others.
pub type SharedHistory = Arc<Mutex<History>>;
