//! The alternative text of a line chart: its series with their ranges, which of them leads where, and where
//! they cross.

use super::{Axis, Better, Chart, Line};

/// Maximum number of stretches that are listed; a lead that changes more often is counted.
const STRETCHES_MAX: usize = 6;
/// Ratio of two drawn lines up to which they are indistinguishable.
const SAME: f64 = 1.01;

/// A stretch of the x axis with the same leader: an index of the lines, or none beyond the spread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    leader: Option<usize>,
    from: f64,
    to: f64,
}

impl Chart {
    /// What the chart shows, for readers who do not see it.
    pub(super) fn description(&self) -> String {
        let lines: Vec<&Line> =
            self.lines.iter().filter(|line| !line.name.is_empty() && !line.points.is_empty()).collect();
        let plain = |axis: &Axis| axis.title.replace(", logarithmic", "");
        let unit = match plain(&self.y) {
            unit if self.title.contains(&unit) || unit.contains("axes") => String::new(),
            unit => format!(" ({unit})"),
        };
        let mut text = format!("{}{unit} by {}.", self.title, plain(&self.x));
        let (published, measured): (Vec<&Line>, Vec<&Line>) =
            lines.into_iter().partition(|line| line.is_published());
        for line in &measured {
            text += &format!(" {}: {}.", line.name, self.range(line));
        }
        for line in published {
            text += &format!(" {}, published, on other hardware: {}.", line.name, self.range(line));
        }
        let refused = self.dots.iter().filter(|dot| dot.is_hollow).count();
        if refused > 0 {
            let measured = self.dots.iter().filter(|dot| dot.class != Line::PUBLISHED).count();
            text += &format!(" Not quotable: {refused} of {measured} points.");
        }
        if let Some(better) = self.better {
            text += &self.lead(&measured, better);
        }
        text
    }

    fn x_text(&self, x: f64) -> String {
        self.x.names.get(x as usize).cloned().unwrap_or_else(|| (self.x.tick)(x))
    }

    /// The lowest and the highest value of a line, with their positions.
    fn range(&self, line: &Line) -> String {
        let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (Some(low), Some(high)) = (line.points.iter().min_by(by_y), line.points.iter().max_by(by_y))
        else {
            return String::new();
        };
        let at = |point: &(f64, f64)| format!("{} at {}", (self.y.tick)(point.1), self.x_text(point.0));
        match (line.points.len(), low.1 == high.1) {
            (1, _) => at(low),
            (_, true) => format!("always {}", (self.y.tick)(low.1)),
            _ => format!("from {} to {}", at(low), at(high)),
        }
    }

    /// The leader of each stretch, and where lines cross.
    fn lead(&self, lines: &[&Line], better: Better) -> String {
        let stretches = self.stretches(lines, better);
        let name = |leader: usize| lines[leader].name.as_str();
        let is_better = match better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        };
        match stretches.as_slice() {
            [] => String::new(),
            [only] => {
                let is_whole = is_whole(only, lines);
                match only.leader {
                    Some(leader) if is_whole => format!(" {} leads throughout ({is_better}).", name(leader)),
                    Some(leader) => format!(" {} leads {} ({is_better}).", name(leader), self.place(only)),
                    None if is_whole => " No line leads beyond the spread.".to_owned(),
                    None => format!(" No line leads beyond the spread {}.", self.place(only)),
                }
            }
            many if many.len() > STRETCHES_MAX => {
                let changes = many.len() - 1;
                format!(" The lines are close or cross: the lead changes {changes} times ({is_better}).")
            }
            many => {
                let parts: Vec<String> = many
                    .iter()
                    .map(|stretch| {
                        let leader = stretch.leader.map_or("no line", name);
                        format!("{leader} leads {}", self.place(stretch))
                    })
                    .collect();
                format!(" {} ({is_better}).{}", capital(&parts.join(", ")), self.crossings(many))
            }
        }
    }

    /// The positions of a stretch: `at 3`, `from 3 to 6`.
    fn place(&self, stretch: &Stretch) -> String {
        match (self.x_text(stretch.from), self.x_text(stretch.to)) {
            (from, to) if from == to => format!("at {from}"),
            (from, to) => format!("from {from} to {to}"),
        }
    }

    fn crossings(&self, stretches: &[Stretch]) -> String {
        let led: Vec<&Stretch> = stretches.iter().filter(|stretch| stretch.leader.is_some()).collect();
        let changes = led.windows(2).filter(|pair| pair[0].leader != pair[1].leader);
        let crossings: Vec<String> = changes
            .map(|pair| match (self.x_text(pair[0].to), self.x_text(pair[1].from)) {
                (from, to) if from == to => format!("near {from}"),
                (from, to) => format!("between {from} and {to}"),
            })
            .collect();
        match crossings.is_empty() {
            true => String::new(),
            false => format!(" They cross {}.", crossings.join(" and ")),
        }
    }

    fn stretches(&self, lines: &[&Line], better: Better) -> Vec<Stretch> {
        let mut xs: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut stretches: Vec<Stretch> = Vec::new();
        for x in xs {
            let mut values: Vec<(usize, f64)> = lines
                .iter()
                .enumerate()
                .filter_map(|(place, line)| Some((place, self.value(line, x)?)))
                .collect();
            if values.len() < 2 {
                continue;
            }
            values.sort_by(|a, b| match better {
                Better::Higher => b.1.total_cmp(&a.1),
                Better::Lower => a.1.total_cmp(&b.1),
            });
            let (first, second) = (values[0], values[1]);
            let is_clear = self.is_apart((lines[first.0], x, first.1), (lines[second.0], x, second.1));
            let leader = is_clear.then_some(first.0);
            match stretches.last_mut() {
                Some(last) if last.leader == leader => last.to = x,
                _ => stretches.push(Stretch { leader, from: x, to: x }),
            }
        }
        stretches
    }

    /// The value of a line; between its points only if the line stands for all values between them.
    fn value(&self, line: &Line, x: f64) -> Option<f64> {
        if let Some((_, y)) = line.points.iter().find(|point| point.0 == x) {
            return Some(*y);
        }
        if !self.dots.is_empty() {
            return None;
        }
        let pair = line.points.windows(2).find(|pair| pair[0].0 < x && x < pair[1].0)?;
        let share = (x - pair[0].0) / (pair[1].0 - pair[0].0);
        Some(pair[0].1 + share * (pair[1].1 - pair[0].1))
    }

    /// True if the spreads of two figures do not overlap. A figure without a spread is its value, which then
    /// must be distinguishable.
    fn is_apart(&self, a: (&Line, f64, f64), b: (&Line, f64, f64)) -> bool {
        let spread = |(line, x, y): (&Line, f64, f64)| {
            let own = self.dots.iter().find(|dot| dot.class == line.class && dot.x == x && dot.y == y);
            own.and_then(|dot| dot.spread)
        };
        let (of_a, of_b) = (spread(a), spread(b));
        if (of_a.is_none() || of_b.is_none()) && (a.2 / b.2).max(b.2 / a.2) <= SAME {
            return false;
        }
        let (of_a, of_b) = (of_a.unwrap_or((a.2, a.2)), of_b.unwrap_or((b.2, b.2)));
        of_a.1 < of_b.0 || of_b.1 < of_a.0
    }
}

/// True if a stretch reaches from the first to the last position of all lines.
fn is_whole(stretch: &Stretch, lines: &[&Line]) -> bool {
    let mut points = lines.iter().flat_map(|line| line.points.iter());
    stretch.from < stretch.to && points.all(|(x, _)| stretch.from <= *x && *x <= stretch.to)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity;
    use crate::report::chart::Dot;

    /// Name and points of a line.
    type Points<'a> = (&'a str, &'a [(f64, f64)]);

    fn axis(title: &str) -> Axis {
        Axis {
            title: title.to_owned(),
            domain: (0.0, 10.0),
            log: false,
            tick: quantity::round,
            ticks: Vec::new(),
            names: Vec::new(),
        }
    }

    fn chart(better: Option<Better>, lines: &[Points]) -> Chart {
        let line = |(place, (name, points)): (usize, &Points)| Line {
            name: (*name).to_owned(),
            class: format!("s{place}"),
            points: points.to_vec(),
            dots: false,
            within_noise: Vec::new(),
        };
        Chart {
            title: "Rates".to_owned(),
            better,
            x: axis("brokers"),
            y: axis("records/s"),
            bands: Vec::new(),
            lines: lines.iter().enumerate().map(line).collect(),
            marks: Vec::new(),
            dots: Vec::new(),
        }
    }

    /// The chart with a dot for each point, that reaches half a unit in both directions.
    fn with_dots(mut chart: Chart) -> Chart {
        for line in &chart.lines {
            chart.dots.extend(line.points.iter().map(|(x, y)| Dot {
                x: *x,
                y: *y,
                class: line.class.clone(),
                is_hollow: *y > 8.0,
                is_quoted: false,
                spread: Some((y - 0.5, y + 0.5)),
                tip: Vec::new(),
            }));
        }
        chart
    }

    #[test]
    fn ranges_leaders_and_crossings_are_described() {
        let crossing: &[Points] =
            &[("A", &[(1.0, 5.0), (3.0, 7.0), (6.0, 9.0)]), ("B", &[(1.0, 8.0), (3.0, 7.2), (6.0, 2.0)])];
        assert_eq!(
            with_dots(chart(Some(Better::Higher), crossing)).description(),
            "Rates (records/s) by brokers. A: from 5 at 1 to 9 at 6. B: from 2 at 6 to 8 at 1. \
             Not quotable: 1 of 6 points. B leads at 1, no line leads at 3, A leads at 6 (higher is better). \
             They cross between 1 and 6."
        );
    }

    #[test]
    fn one_line_one_point_equal_lines_and_a_steady_leader_are_described() {
        let end = |better, lines: &[Points], dots: bool| {
            let chart = chart(better, lines);
            let text = if dots { with_dots(chart).description() } else { chart.description() };
            text.strip_prefix("Rates (records/s) by brokers.").expect("the title").to_owned()
        };
        assert_eq!(end(Some(Better::Lower), &[("A", &[(1.0, 5.0)])], true), " A: 5 at 1.");
        let equal: &[Points] = &[("A", &[(1.0, 5.0), (2.0, 5.0)]), ("B", &[(1.0, 5.2), (2.0, 5.3)])];
        assert!(end(Some(Better::Lower), equal, true).ends_with(" No line leads beyond the spread."));
        let steady: &[Points] = &[("A", &[(1.0, 5.0), (2.0, 5.0)]), ("B", &[(1.0, 7.0), (2.0, 7.3)])];
        let text = end(Some(Better::Lower), steady, true);
        assert!(
            text.starts_with(" A: always 5.") && text.ends_with(" A leads throughout (lower is better)."),
            "{text}"
        );
        assert!(end(Some(Better::Higher), steady, true).contains(" B leads throughout"));
        assert!(!end(None, steady, false).contains("leads"));
    }

    #[test]
    fn a_lead_is_claimed_only_where_both_lines_have_points() {
        let end = |lines: &[Points]| {
            let text = with_dots(chart(Some(Better::Higher), lines)).description();
            text.rsplit_once(". ").map(|(_, end)| end.to_owned()).expect("two sentences")
        };
        let a: Points = ("A", &[(3.0, 5.0), (6.0, 6.0), (9.0, 7.0)]);
        assert_eq!(end(&[a, ("B", &[(3.0, 2.0)])]), "A leads at 3 (higher is better).");
        let some: Points = ("B", &[(3.0, 2.0), (6.0, 2.0)]);
        assert_eq!(end(&[a, some]), "A leads from 3 to 6 (higher is better).");
        assert_eq!(end(&[a, ("B", &[(3.0, 5.2)])]), "No line leads beyond the spread at 3.");
    }

    #[test]
    fn values_without_spreads_must_be_distinguishable() {
        let text = |other: f64| {
            let first: Points = ("A", &[(3.0, 100.0), (6.0, 100.0)]);
            let points = [(3.0, other), (6.0, other)];
            let mut chart = with_dots(chart(Some(Better::Higher), &[first, ("B", &points)]));
            chart.dots.iter_mut().for_each(|dot| dot.spread = None);
            chart.description()
        };
        assert!(text(100.1).ends_with(" No line leads beyond the spread."), "{}", text(100.1));
        assert!(text(102.0).ends_with(" B leads throughout (higher is better)."), "{}", text(102.0));
    }

    #[test]
    fn curves_with_points_at_different_positions_cross() {
        let curves: &[Points] =
            &[("A", &[(0.0, 1.0), (2.0, 3.0), (4.0, 9.0)]), ("B", &[(0.0, 2.0), (3.0, 4.0), (4.0, 5.0)])];
        let text = chart(Some(Better::Lower), curves).description();
        assert!(
            text.ends_with(
                "A leads from 0 to 2, B leads from 3 to 4 (lower is better). They cross between 2 and 3."
            ),
            "{text}"
        );
    }
}
