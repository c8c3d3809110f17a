//! Charts: pure functions from numbers to markup, with scales, ticks, bars and lines. Callers choose the data. Names and labels are
//! escaped here.

mod bar;
mod line;
mod scale;
mod ticks;

pub(super) use bar::{Bar, Bars, Group, Part};
pub(super) use line::{Axis, Band, Chart, Line, Mark};
pub(super) use ticks::nice_ceiling;

use std::fmt::Write;

/// Appends formatted text; writing to a `String` cannot fail.
fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    to.write_fmt(text).expect("a String takes every text");
}
