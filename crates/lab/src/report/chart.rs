//! Charts: pure functions from numbers to markup, with scales, ticks, bars and lines. Callers choose the
//! data. Names and labels are escaped here.

mod bar;
mod description;
mod key;
mod line;
mod scale;
mod ticks;

pub(super) use bar::{Bar, Bars, Group, Part};
pub(super) use line::{Axis, Band, Better, Chart, Dot, Line, Mark};
pub(super) use ticks::nice_ceiling;

use super::text::{escape, put};
use line::SIZE;

/// The size of a chart without neighbours, on a wide screen.
const WIDE: (f64, f64) = (760.0, 310.0);

/// A main chart with its caption and its key. With `alone`, no other chart stands beside it: its size on a
/// wide screen is then different, so that its text has the same size there as on a phone.
pub(super) fn main_figure(caption: &str, chart: &Chart, alone: bool) -> String {
    let caption = escape(caption);
    match alone {
        true => format!(
            "<figure class=\"alone\"><figcaption>{caption}</figcaption><div class=\"wide\">{}</div>\
             <div class=\"narrow\">{}</div>{}</figure>",
            chart.svg_of(WIDE),
            chart.svg_of(SIZE),
            chart.key()
        ),
        false => format!("<figure><figcaption>{caption}</figcaption>{}</figure>", chart.markup()),
    }
}
