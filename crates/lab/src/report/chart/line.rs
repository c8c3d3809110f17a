//! Line charts with each line labelled at its end; a key below the chart has the other signs. Points show
//! their values on hover, by style alone: the page has no scripts. The page's tables contain the same values,
//! for the keyboard and for screen readers, which also get a description of the chart.

use super::key::{self, Sign};
use super::put;
use super::scale::Scale;
use super::ticks;
use crate::report::text::escape;

/// The usual size.
pub(crate) const SIZE: (f64, f64) = (440.0, 236.0);
const TOP: f64 = 26.0;
const BOTTOM: f64 = 38.0;
const LEFT: f64 = 54.0;
/// The height of a tick's text, and the width of one of its characters in a wide font.
const TICK_HEIGHT: f64 = 10.0;
const TICK_WIDTH: f64 = 6.0;
/// Minimum distance of the texts of two ticks.
const TICK_GAP: f64 = 2.0;
/// Minimum distance of two labels.
const NAME_GAP: f64 = 13.0;
/// Maximum number of points of a line with values on hover; with more points, only every second, third and so
/// on has one.
const HOVERS_MAX: usize = 60;

pub(crate) struct Axis {
    /// The axis title, with the unit.
    pub title: String,
    /// The axis range.
    pub domain: (f64, f64),
    /// True for a logarithmic axis.
    pub log: bool,
    /// Formats a value.
    pub tick: fn(f64) -> String,
    /// Tick positions; empty for round values.
    pub ticks: Vec<f64>,
    /// Text of the ticks 0, 1, 2 and so on, for an axis of names; empty for an axis of values.
    pub names: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Line {
    /// The line's label, at its end; empty for none.
    pub name: String,
    /// The line's CSS classes.
    pub class: String,
    /// The line's points, by ascending x.
    pub points: Vec<(f64, f64)>,
    /// True if each point gets a dot.
    pub dots: bool,
    /// Points that do not differ from the next one beyond the noise, by index: the line to it is thin.
    pub within_noise: Vec<usize>,
}

impl Line {
    /// The class of a line of published values, which are of other hardware.
    pub(crate) const PUBLISHED: &str = "published";

    pub(super) fn is_published(&self) -> bool {
        self.class == Line::PUBLISHED
    }
}

/// The better direction of a chart's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// A highlighted point.
pub(crate) struct Mark {
    /// The x coordinate.
    pub x: f64,
    /// The y coordinate.
    pub y: f64,
    /// The mark's CSS classes.
    pub class: String,
    /// The mark's label; empty for none.
    pub text: String,
}

impl Mark {
    /// True for the knee of a search.
    pub fn is_knee(&self) -> bool {
        self.has("knee")
    }

    fn has(&self, class: &str) -> bool {
        self.class.split(' ').any(|own| own == class)
    }
}

/// A figure: a point with its spread and its text on hover.
pub(crate) struct Dot {
    /// The x coordinate.
    pub x: f64,
    /// The y coordinate.
    pub y: f64,
    /// The dot's CSS classes.
    pub class: String,
    /// True if not quotable: the dot is hollow.
    pub is_hollow: bool,
    /// True if a headline rests on the figure: the dot has a ring.
    pub is_quoted: bool,
    /// Minimum and maximum.
    pub spread: Option<(f64, f64)>,
    /// The text on hover, by lines.
    pub tip: Vec<String>,
}

/// A highlighted range of the x axis.
pub(crate) struct Band {
    /// The range, in x values.
    pub x: (f64, f64),
    /// The band's CSS classes.
    pub class: String,
}

/// A chart of lines.
pub(crate) struct Chart {
    /// The chart's title, with which its description begins.
    pub title: String,
    /// The better direction; `None` if the lines are not to be compared.
    pub better: Option<Better>,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// Highlighted ranges, behind the lines.
    pub bands: Vec<Band>,
    /// The lines; later ones are on top.
    pub lines: Vec<Line>,
    /// Highlighted points, on top of the lines.
    pub marks: Vec<Mark>,
    /// Figures, on top of all other elements. If there are any, lines show no values.
    pub dots: Vec<Dot>,
}

struct Frame {
    x: Scale,
    y: Scale,
    right: f64,
    floor: f64,
}

impl Axis {
    fn scale(&self, to: (f64, f64)) -> Scale {
        match self.log {
            true => Scale::log(self.domain, to),
            false => Scale::linear(self.domain, to),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match (self.ticks.is_empty(), self.log) {
            _ if !self.names.is_empty() => (0..self.names.len()).map(|place| place as f64).collect(),
            (false, _) => self.ticks.clone(),
            (true, true) => ticks::log(self.domain.0, self.domain.1),
            (true, false) => ticks::linear(self.domain.1, 4),
        }
    }
}

impl Chart {
    /// The chart in the usual size, with its key.
    pub fn markup(&self) -> String {
        self.svg_of(SIZE) + &self.key()
    }

    /// The key of the signs that the chart has.
    pub fn key(&self) -> String {
        let line = |class: &str| self.lines.iter().any(|line| line.class.split(' ').any(|own| own == class));
        let mark = |class: &str| self.marks.iter().any(|mark| mark.has(class));
        let signs = [
            (Sign::QuotedDot, self.dots.iter().any(|dot| dot.is_quoted)),
            (Sign::HollowDot, self.dots.iter().any(|dot| dot.is_hollow)),
            (Sign::Whisker, self.dots.iter().any(|dot| dot.spread.is_some())),
            (Sign::WithinNoise, self.lines.iter().any(|line| !line.within_noise.is_empty())),
            (Sign::Faint, line("faint")),
            (Sign::QuotedKnee, mark("quoted")),
            (Sign::Knee, mark("knee") && !mark("quoted")),
            (Sign::KneeRange, !self.bands.is_empty()),
            (Sign::FellBehind, mark("behind")),
            (Sign::Ideal, line("ideal")),
            (Sign::Published, line(Line::PUBLISHED)),
        ];
        let own = signs.into_iter().filter(|(_, has)| *has).map(|(sign, _)| sign);
        key::markup(&own.collect::<Vec<_>>())
    }

    /// The drawing. Text has the same size in charts of any width.
    pub fn svg_of(&self, (width, height): (f64, f64)) -> String {
        let longest = self.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
        let right = width - (longest as f64 * 6.8 + 12.0).clamp(16.0, width * 0.44);
        let named = if self.x.names.iter().any(|name| name.contains(", ")) { 13.0 } else { 0.0 };
        let floor = height - BOTTOM - named;
        let frame = Frame { x: self.x.scale((LEFT, right)), y: self.y.scale((floor, TOP)), right, floor };
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.description())
        );
        self.axes(&mut svg, &frame);
        for band in &self.bands {
            let (from, to) = (frame.x.at(band.x.0), frame.x.at(band.x.1));
            put(
                &mut svg,
                format_args!(
                    "<rect class=\"band {}\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                    escape(&band.class),
                    (to - from).max(1.0),
                    frame.floor - TOP
                ),
            );
        }
        for line in &self.lines {
            draw(&mut svg, line, &frame);
        }
        self.names(&mut svg, &frame);
        for mark in &self.marks {
            self.mark(&mut svg, mark, &frame);
        }
        for dot in &self.dots {
            figure(&mut svg, dot, &frame);
        }
        // Last, so that no element covers them.
        self.hovers(&mut svg, &frame);
        svg + "</svg>"
    }

    fn hovers(&self, svg: &mut String, frame: &Frame) {
        for dot in &self.dots {
            hover(svg, frame, (dot.x, dot.y), &dot.tip);
        }
        if !self.dots.is_empty() {
            return;
        }
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            for (x, y) in line.points.iter().step_by(line.points.len().div_ceil(HOVERS_MAX).max(1)) {
                let tip = format!("{}: {} at {}", line.name, (self.y.tick)(*y), (self.x.tick)(*x));
                hover(svg, frame, (*x, *y), &[tip]);
            }
        }
    }

    fn axes(&self, svg: &mut String, frame: &Frame) {
        let floor = frame.floor;
        self.x_ticks(svg, frame);
        let ticks = self.y.ticks();
        let places: Vec<(f64, f64)> = ticks.iter().map(|tick| (frame.y.at(*tick), TICK_HEIGHT)).collect();
        let is_named = without_overlaps(&places);
        for (tick, is_named) in ticks.into_iter().zip(is_named) {
            let y = frame.y.at(tick);
            put(
                svg,
                format_args!(
                    "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                    frame.right
                ),
            );
            if is_named {
                put(
                    svg,
                    format_args!(
                        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                        LEFT - 6.0,
                        y + 3.6,
                        escape(&(self.y.tick)(tick))
                    ),
                );
            }
        }
        put(
            svg,
            format_args!(
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>\
                 <text class=\"title\" x=\"4\" y=\"12\">{}</text>\
                 <text class=\"title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                frame.right,
                escape(&self.y.title),
                frame.right,
                floor + BOTTOM - 5.0
                    + if self.x.names.iter().any(|name| name.contains(", ")) { 13.0 } else { 0.0 },
                escape(&self.x.title)
            ),
        );
    }

    fn x_ticks(&self, svg: &mut String, frame: &Frame) {
        let floor = frame.floor;
        let ticks = self.x.ticks();
        let text = |tick: f64| match self.x.names.get(tick as usize) {
            Some(name) => name.clone(),
            None => (self.x.tick)(tick),
        };
        let width = |text: &str| {
            let longest = text.splitn(2, ", ").map(|part| part.chars().count()).max().unwrap_or(0);
            longest as f64 * TICK_WIDTH
        };
        let places: Vec<(f64, f64)> =
            ticks.iter().map(|tick| (frame.x.at(*tick), width(&text(*tick)))).collect();
        let is_named = without_overlaps(&places);
        for (tick, is_named) in ticks.into_iter().zip(is_named) {
            let x = frame.x.at(tick);
            put(
                svg,
                format_args!(
                    "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor:.1}\" y2=\"{:.1}\"/>",
                    floor + 4.0
                ),
            );
            if !is_named {
                continue;
            }
            for (number, part) in text(tick).splitn(2, ", ").enumerate() {
                put(
                    svg,
                    format_args!(
                        "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                        floor + 15.0 + 12.0 * number as f64,
                        escape(part)
                    ),
                );
            }
        }
    }

    /// The labels at the ends of the lines, moved apart if they are close.
    fn names(&self, svg: &mut String, frame: &Frame) {
        let mut ends: Vec<(f64, &Line)> = Vec::new();
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            if let Some((_, y)) = line.points.last() {
                ends.push((frame.y.at(*y), line));
            }
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (y, (_, line)) in
            apart(&ends.iter().map(|end| end.0).collect::<Vec<f64>>(), frame.floor).iter().zip(&ends)
        {
            put(
                svg,
                format_args!(
                    "<text class=\"end {}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    escape(&line.class),
                    frame.right + 6.0,
                    y + 3.8,
                    escape(&line.name)
                ),
            );
        }
    }

    fn mark(&self, svg: &mut String, mark: &Mark, frame: &Frame) {
        let (x, y) = (frame.x.at(mark.x), frame.y.at(mark.y));
        let class = escape(&mark.class);
        put(svg, format_args!("<circle class=\"mark {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5.5\"/>"));
        if mark.text.is_empty() {
            return;
        }
        let (anchor, at) = match x > (LEFT + frame.right) / 2.0 {
            true => ("end", x - 4.0),
            false => ("start", x + 4.0),
        };
        let above = if y > TOP + 24.0 { y - 11.0 } else { y + 20.0 };
        put(
            svg,
            format_args!(
                "<text class=\"note {class}\" x=\"{at:.1}\" y=\"{above:.1}\" text-anchor=\"{anchor}\">{}</text>",
                escape(&mark.text)
            ),
        );
    }
}

fn draw(svg: &mut String, line: &Line, frame: &Frame) {
    let class = escape(&line.class);
    // The stretches of both kinds: full ones, and those within the noise.
    let (mut full, mut thin) = (String::new(), String::new());
    let mut was_thin = None;
    for (number, pair) in line.points.windows(2).enumerate() {
        let is_thin = line.within_noise.contains(&number);
        let path = if is_thin { &mut thin } else { &mut full };
        let at = |(x, y): (f64, f64)| (frame.x.at(x), frame.y.at(y));
        let ((x, y), (next_x, next_y)) = (at(pair[0]), at(pair[1]));
        if was_thin != Some(is_thin) {
            put(path, format_args!("M{x:.1} {y:.1}"));
        }
        put(path, format_args!("L{next_x:.1} {next_y:.1}"));
        was_thin = Some(is_thin);
    }
    for (path, more) in [(full, ""), (thin, " within-noise")] {
        if !path.is_empty() {
            put(svg, format_args!("<path class=\"line {class}{more}\" d=\"{path}\"/>"));
        }
    }
    if line.dots {
        for (x, y) in &line.points {
            let (x, y) = (frame.x.at(*x), frame.y.at(*y));
            put(svg, format_args!("<circle class=\"point {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"));
        }
    }
}

/// A figure's dot, with a whisker from its minimum to its maximum.
fn figure(svg: &mut String, dot: &Dot, frame: &Frame) {
    let (x, y) = (frame.x.at(dot.x), frame.y.at(dot.y));
    let class = format!("{}{}", escape(&dot.class), if dot.is_hollow { " grey" } else { "" });
    if let Some((low, high)) = dot.spread {
        let (low, high) = (frame.y.at(low), frame.y.at(high));
        put(
            svg,
            format_args!(
                "<line class=\"reach {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
            ),
        );
    }
    put(svg, format_args!("<circle class=\"figure {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"));
    if dot.is_quoted {
        put(svg, format_args!("<circle class=\"quoted\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\"/>"));
    }
}

/// Text that appears on hover, in the chart.
fn hover(svg: &mut String, frame: &Frame, (x, y): (f64, f64), tip: &[String]) {
    const LINE: f64 = 13.0;
    let (x, y) = (frame.x.at(x), frame.y.at(y));
    let (anchor, at) = match x > (LEFT + frame.right) / 2.0 {
        true => ("end", x + 6.0),
        false => ("start", x - 6.0),
    };
    let height = LINE * tip.len() as f64;
    let first = if y - height - 4.0 > 0.0 { y - height + 3.0 } else { y + 20.0 };
    put(svg, format_args!("<g class=\"hover\"><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\"/>"));
    for (number, line) in tip.iter().enumerate() {
        let y = first + LINE * number as f64;
        put(
            svg,
            format_args!("<text x=\"{at:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(line)),
        );
    }
    *svg += "</g>";
}

/// Which of several texts, by middle and length, are shown so that none overlaps another: the first and the
/// last, and as many between them as there is room for.
fn without_overlaps(places: &[(f64, f64)]) -> Vec<bool> {
    let mut shown = vec![false; places.len()];
    let apart = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).abs() >= (a.1 + b.1) / 2.0 + TICK_GAP;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let inner = 1..places.len().saturating_sub(1);
    for place in [0, places.len().saturating_sub(1)].into_iter().chain(inner) {
        if let Some(wanted) = places.get(place)
            && kept.iter().all(|other| apart(*wanted, *other))
        {
            kept.push(*wanted);
            shown[place] = true;
        }
    }
    shown
}

/// Sorted positions, moved as little as needed so that each is [`NAME_GAP`] from the next and all fit.
fn apart(wanted: &[f64], floor: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for place in 1..places.len() {
        places[place] = places[place].max(places[place - 1] + NAME_GAP);
    }
    let mut lowest = floor;
    for place in places.iter_mut().rev() {
        *place = place.min(lowest);
        lowest = *place - NAME_GAP;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_close_lines_do_not_cover_each_other() {
        let places = apart(&[50.0, 51.0, 52.0, 197.0, 198.0], 198.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= NAME_GAP - 1e-9), "{places:?}");
        assert!(places.iter().all(|place| *place <= 198.0), "{places:?}");
    }

    #[test]
    fn texts_of_close_ticks_do_not_cover_each_other() {
        let wide =
            |places: &[f64]| without_overlaps(&places.iter().map(|at| (*at, 20.0)).collect::<Vec<_>>());
        assert_eq!(wide(&[0.0, 30.0, 60.0]), [true; 3]);
        assert_eq!(wide(&[0.0, 5.0, 30.0, 31.0, 60.0]), [true, false, true, false, true]);
        assert_eq!(wide(&[0.0, 45.0, 60.0]), [true, false, true], "the last is kept");
        assert_eq!(wide(&[0.0, 5.0]), [true, false]);
        assert_eq!(wide(&[7.0]), [true]);
        assert_eq!(wide(&[]), [false; 0]);
    }
}
