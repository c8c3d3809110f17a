//! Horizontal bars from zero, in groups: a name on the left, the value on the right, and the spread as a
//! whisker.
//!
//! A row is text around a small drawing with coordinates in percent, so it fits any width and its text never
//! shrinks.

use super::key::{self, Sign};
use super::scale::Scale;
use super::{nice_ceiling, put, ticks};
use crate::report::text::escape;

/// Bars on one common scale.
pub(crate) struct Bars {
    /// The title, with its unit.
    pub title: String,
    /// The groups, in order.
    pub groups: Vec<Group>,
    /// Formats a value on the scale.
    pub tick: fn(f64) -> String,
}

/// A group of bars, such as those of a point.
pub(crate) struct Group {
    /// The group's name; empty for none.
    pub name: String,
    /// The group's bars.
    pub bars: Vec<Bar>,
}

pub(crate) struct Bar {
    /// The bar's label.
    pub name: String,
    /// The bar's CSS classes.
    pub class: String,
    /// The bar's parts, from zero; empty if there is no value.
    pub parts: Vec<Part>,
    /// Minimum and maximum.
    pub whisker: Option<(f64, f64)>,
    /// The value as text, or the reason why there is none.
    pub value: String,
    /// Small text after the value, such as the spread.
    pub remark: String,
    /// Text on hover; empty for none.
    pub tip: String,
    /// True if not quotable: the bar is hollow.
    pub hollow: bool,
    /// True if a headline rests on the figure: the bar has an outline.
    pub is_quoted: bool,
}

/// A part of a bar.
pub(crate) struct Part {
    /// The part's length, in the bar's unit.
    pub value: f64,
    /// The part's CSS class; empty for a plain bar.
    pub class: &'static str,
}

impl Bar {
    fn end(&self) -> f64 {
        let sum: f64 = self.parts.iter().map(|part| part.value).sum();
        sum.max(self.whisker.map_or(0.0, |(_, high)| high))
    }
}

impl Bars {
    /// The markup; empty if there are no bars.
    pub fn markup(&self) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        if bars().next().is_none() {
            return String::new();
        }
        let top = nice_ceiling(bars().map(Bar::end).fold(0.0, f64::max));
        let scale = Scale::linear((0.0, top), (0.0, 100.0));
        let ticks = ticks::linear(top, 4);
        // As wide as the longest name in the widest common font; the bars get the rest.
        let longest = bars().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let name_rem = (longest as f64 * 0.52 + 1.3).clamp(5.0, 13.0);
        let mut markup =
            format!("<div class=\"bars\" style=\"--name:{name_rem:.1}rem\"><h4>{}</h4>", escape(&self.title));
        for group in &self.groups {
            markup += "<div class=\"group\">";
            if !group.name.is_empty() {
                put(&mut markup, format_args!("<p class=\"name\">{}</p>", escape(&group.name)));
            }
            for bar in &group.bars {
                let place = [self.title.as_str(), &group.name];
                row(&mut markup, place, bar, scale, &ticks);
            }
            markup += "</div>";
        }
        markup += "<div class=\"row scale\" aria-hidden=\"true\"><span></span><svg class=\"ticks\">";
        for tick in &ticks {
            let at = scale.at(*tick);
            let anchor = match at {
                at if at < 1.0 => "start",
                at if at > 99.0 => "end",
                _ => "middle",
            };
            let text = escape(&(self.tick)(*tick));
            put(
                &mut markup,
                format_args!("<text x=\"{at:.2}%\" y=\"12\" text-anchor=\"{anchor}\">{text}</text>"),
            );
        }
        let signs = [
            (Sign::QuotedBar, bars().any(|bar| bar.is_quoted)),
            (Sign::HollowBar, bars().any(|bar| bar.hollow && !bar.parts.is_empty())),
            (Sign::Whisker, bars().any(|bar| bar.whisker.is_some_and(|(low, high)| high > low))),
        ];
        let own = signs.into_iter().filter(|(_, has)| *has).map(|(sign, _)| sign);
        markup + "</svg><span></span></div>" + &key::markup(&own.collect::<Vec<_>>()) + "</div>"
    }
}

fn row(markup: &mut String, place: [&str; 2], bar: &Bar, scale: Scale, ticks: &[f64]) {
    let name = escape(&bar.name);
    let hollow = if bar.hollow { " hollow" } else { "" };
    let quoted = if bar.is_quoted { " quoted" } else { "" };
    let place = place.iter().filter(|part| !part.is_empty()).map(|part| escape(part)).collect::<Vec<_>>();
    put(
        markup,
        format_args!(
            "<div class=\"row{grey}\" title=\"{tip}\"><span class=\"who\"><i class=\"dot {class}\"></i>{name}</span>\
             <svg class=\"track\" role=\"img\" aria-label=\"{place}, {name}: {value}{refused}\">",
            class = escape(&bar.class),
            place = place.join(", "),
            value = escape(&bar.value),
            refused = if bar.hollow { ", not quotable" } else { "" },
            grey = if bar.hollow { " grey" } else { "" },
            tip = escape(&bar.tip),
        ),
    );
    for tick in ticks {
        let at = scale.at(*tick);
        put(
            markup,
            format_args!("<line class=\"grid\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"100%\"/>"),
        );
    }
    let mut from = 0.0;
    for part in &bar.parts {
        let (start, end) = (scale.at(from), scale.at(from + part.value));
        put(
            markup,
            format_args!(
                "<rect class=\"bar {}{hollow}{quoted} {}\" x=\"{start:.2}%\" y=\"4\" width=\"{:.2}%\" height=\"14\"/>",
                escape(&bar.class),
                part.class,
                (end - start).max(0.15),
            ),
        );
        from += part.value;
    }
    if let Some((low, high)) = bar.whisker.filter(|(low, high)| high > low) {
        let (low, high) = (scale.at(low), scale.at(high));
        put(
            markup,
            format_args!(
                "<g class=\"whisker\"><line x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"11\" y2=\"11\"/>\
                 <line x1=\"{low:.2}%\" x2=\"{low:.2}%\" y1=\"7.5\" y2=\"14.5\"/>\
                 <line x1=\"{high:.2}%\" x2=\"{high:.2}%\" y1=\"7.5\" y2=\"14.5\"/></g>"
            ),
        );
    }
    let class = if bar.parts.is_empty() { "value none" } else { "value" };
    put(markup, format_args!("</svg><span class=\"{class}\">{}", escape(&bar.value)));
    if !bar.remark.is_empty() {
        put(markup, format_args!(" <small>{}</small>", escape(&bar.remark)));
    }
    *markup += "</span></div>";
}
