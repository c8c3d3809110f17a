//! Charts: pure functions from numbers to markup. They know scales, ticks, bars and lines; what is drawn is for others to
//! say. Names and labels are escaped here.

mod bar;
mod line;
mod scale;
mod ticks;

pub(super) use bar::{Bar, Bars, Group, Part};
pub(super) use line::{Axis, Band, Chart, Line, Mark};
pub(super) use ticks::nice_ceiling;

use std::fmt::Write;

/// Appends formatted text; a `String` takes all of it.
fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    to.write_fmt(text).expect("a String takes every text");
}
