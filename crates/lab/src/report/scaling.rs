//! The main charts of a workload: its figure over the scaled parameter, such as brokers, plans or the size of
//! records. Points that scale nothing are beside them, as searches for saturation or as bars.

use super::answer::QuotedPoints;
use super::chart::{Axis, Better, Chart, Dot, Line, main_figure, nice_ceiling};
use super::latency::{log_domain, quantity_of_tick};
use super::obstacles::obstacles;
use super::palette::{Palette, Series};
use super::{published, saturation, unscaled};
use crate::quantity;
use crate::result::{Figure, Judgement, PointResult, Spread, Subject, WorkloadResult, ratio_of, values};
use crate::workload::{Load, Point};

/// Ratio of the largest to the smallest value from which an axis is logarithmic: on a linear one, small
/// values would lie on the floor.
const LOG_FROM: f64 = 25.0;
/// Maximum characters of a reason on hover.
const REASON_MAX: usize = 48;

/// The parameter that a workload scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaledParameter {
    Plan,
    Size,
    Brokers,
    Rate,
    Partitions,
    Groups,
    Consumers,
    Producers,
    IdleConnections,
    IdlePartitions,
    CreatedTopics,
}

impl ScaledParameter {
    /// All parameters, in order of preference: of parameters that grow together, the others follow the first.
    const ALL: [ScaledParameter; 11] = [
        ScaledParameter::Plan,
        ScaledParameter::Size,
        ScaledParameter::Brokers,
        ScaledParameter::Rate,
        ScaledParameter::Partitions,
        ScaledParameter::Groups,
        ScaledParameter::Consumers,
        ScaledParameter::Producers,
        ScaledParameter::IdleConnections,
        ScaledParameter::IdlePartitions,
        ScaledParameter::CreatedTopics,
    ];

    fn title(self) -> &'static str {
        match self {
            ScaledParameter::Plan => "plan",
            ScaledParameter::Size => "record size in bytes",
            ScaledParameter::Brokers => "brokers",
            ScaledParameter::Rate => "requested records per second",
            ScaledParameter::Partitions => "partitions",
            ScaledParameter::Groups => "consumer groups",
            ScaledParameter::Consumers => "consumers",
            ScaledParameter::Producers => "producers",
            ScaledParameter::IdleConnections => "idle connections",
            ScaledParameter::IdlePartitions => "idle partitions",
            ScaledParameter::CreatedTopics => "topics created and deleted per second",
        }
    }

    /// The parameter's value of a point; `None` if it has none. Plans are ordered only by the workload.
    fn value(self, point: &Point) -> Option<f64> {
        Some(match self {
            ScaledParameter::Plan => return None,
            ScaledParameter::Size => f64::from(point.records.size_bytes),
            ScaledParameter::Brokers => f64::from(point.cluster.brokers),
            ScaledParameter::Rate => match point.load {
                Load::Rate { records_per_s } => records_per_s,
                _ => return None,
            },
            ScaledParameter::Partitions => f64::from(point.topics.count) * f64::from(point.topics.partitions),
            ScaledParameter::Groups => f64::from(point.consumer_groups),
            ScaledParameter::Consumers => f64::from(point.consumers.count),
            ScaledParameter::Producers => f64::from(point.producers.count),
            ScaledParameter::IdleConnections => f64::from(point.cluster.idle_connections),
            ScaledParameter::IdlePartitions => f64::from(point.cluster.idle_partitions),
            ScaledParameter::CreatedTopics => f64::from(point.topics.created_per_s),
        })
    }
}

/// The layout of the main charts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    /// True if no other chart stands beside the chart.
    pub alone: bool,
    /// True if points that scale nothing have a chart even if it has only one bar.
    pub with_single_bars: bool,
}

/// What all charts of a workload need.
#[derive(Clone, Copy)]
struct ChartContext<'a> {
    workload: &'a WorkloadResult,
    palette: &'a Palette,
    quoted: &'a QuotedPoints,
    layout: Layout,
}

/// The charts of a workload, which have all its points: those of its published report first. `quoted` are the
/// points behind headlines.
pub(super) fn markup(
    workload: &WorkloadResult,
    palette: &Palette,
    quoted: &QuotedPoints,
    layout: Layout,
) -> String {
    let context = ChartContext { workload, palette, quoted, layout };
    let (reported, others): (Vec<&PointResult>, Vec<&PointResult>) =
        workload.points.iter().partition(|point| workload.reports(point));
    let beside = if reported.is_empty() { "" } else { ", not in the report" };
    let of = |points: &[&PointResult], name: &str| -> String {
        Subject::ALL.into_iter().map(|subject| of_subject(context, subject, (points, name))).collect()
    };
    of(&reported, "") + &of(&others, beside)
}

/// The charts of the points of a subject; `beside` is added to their captions.
fn of_subject(
    context: ChartContext<'_>,
    subject: Subject,
    (points, beside): (&[&PointResult], &str),
) -> String {
    let ChartContext { workload, palette, quoted, layout } = context;
    let points: Vec<&PointResult> =
        points.iter().copied().filter(|point| Subject::of(&point.point) == subject).collect();
    let mut charts = String::new();
    let mut rest = Vec::new();
    for (name, family) in families(&points) {
        let name = name + beside;
        match positions(&family) {
            Some(positions) => charts += &of_family(context, subject, (&name, &family), &positions),
            None => rest.extend(family),
        }
    }
    let (searched, rest): (Vec<&PointResult>, Vec<&PointResult>) =
        rest.into_iter().partition(|point| !point.steps.is_empty());
    charts += &saturation::main(workload, &searched, palette, quoted, layout.alone);
    charts + &unscaled::markup(workload, subject, &rest, palette, quoted, layout)
}

/// Points that differ only in the scaled parameter. At fixed rates that grow with the brokers, points with
/// the same rate per broker belong together. If points scale different parameters at different rates, points
/// with the same rate belong together.
fn families<'a>(points: &[&'a PointResult]) -> Vec<(String, Vec<&'a PointResult>)> {
    let each = |point: &PointResult| match point.point.load {
        Load::Rate { records_per_s } => {
            Some((records_per_s / f64::from(point.point.cluster.brokers)).round())
        }
        _ => None,
    };
    let found = grouped(points, each).into_iter().map(|(each, family)| Some((each?, family)));
    let Some(found) = found.collect::<Option<Vec<(f64, _)>>>() else { return by_brokers(points) };
    let scaled: Vec<Option<ScaledParameter>> =
        found.iter().map(|(_, family)| positions(family).map(|positions| positions.scaled)).collect();
    let name = |each: f64, family: &[&PointResult]| match family.first().map(|first| &first.point.load) {
        Some(Load::Rate { records_per_s }) if !scaled.contains(&Some(ScaledParameter::Brokers)) => {
            format!(", {} records/s", quantity::number(*records_per_s))
        }
        _ => format!(", {} for each broker", quantity::number(each)),
    };
    if !scaled.contains(&Some(ScaledParameter::Brokers)) && (found.len() < 2 || scaled.contains(&None)) {
        return by_brokers(points);
    }
    found.into_iter().map(|(each, family)| (name(each, &family), family)).collect()
}

/// Points with the same key, in order of each key's first point.
fn grouped<'a, K: PartialEq>(
    points: &[&'a PointResult],
    key: impl Fn(&PointResult) -> K,
) -> Vec<(K, Vec<&'a PointResult>)> {
    let mut found: Vec<(K, Vec<&PointResult>)> = Vec::new();
    for &point in points {
        let key = key(point);
        match found.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(point),
            None => found.push((key, vec![point])),
        }
    }
    found
}

/// All points together if they scale a parameter; otherwise points with the same number of brokers, so that a
/// reference point on fewer brokers does not hide the scaled parameter.
fn by_brokers<'a>(points: &[&'a PointResult]) -> Vec<(String, Vec<&'a PointResult>)> {
    let together = || vec![(String::new(), points.to_vec())];
    if positions(points).is_some() {
        return together();
    }
    let found = grouped(points, |point| point.point.cluster.brokers);
    if found.iter().all(|(_, family)| positions(family).is_none()) {
        return together();
    }
    found
        .into_iter()
        .map(|(brokers, family)| {
            (format!(", {brokers} broker{}", if brokers == 1 { "" } else { "s" }), family)
        })
        .collect()
}

fn of_family(
    context: ChartContext<'_>,
    subject: Subject,
    (name, points): (&str, &[&PointResult]),
    positions: &XPositions,
) -> String {
    let is_time = matches!(subject, Subject::Latency | Subject::Drain);
    let by_bytes = positions.scaled == ScaledParameter::Size && !is_time;
    let main = if by_bytes { ChartFigure::Bytes(subject) } else { ChartFigure::Main(subject) };
    let mut shown = vec![main];
    if by_bytes {
        shown.push(ChartFigure::Main(subject));
    }
    if shows_cost(subject, positions.scaled) {
        shown.push(ChartFigure::Cost);
    }
    match positions.scaled {
        ScaledParameter::CreatedTopics => shown.push(ChartFigure::TopicReady),
        ScaledParameter::IdlePartitions => shown.push(ChartFigure::Metadata),
        _ => {}
    }
    let charts = shown.into_iter().map(|shown| chart(shown, points, positions, context));
    let drawn = charts.filter(|chart| !chart.dots.is_empty()).map(|chart| {
        let caption = format!("{} · {}{name}", context.workload.workload.name, chart.title);
        main_figure(&caption, &chart, context.layout.alone)
    });
    drawn.collect()
}

/// The figure that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChartFigure {
    Main(Subject),
    /// The rate in bytes, for comparing records of different sizes.
    Bytes(Subject),
    /// The brokers' cost of a record.
    Cost,
    /// Time until temporary topics have leaders.
    TopicReady,
    /// Time of an answer with all metadata.
    Metadata,
}

impl ChartFigure {
    fn figure(self, point: &PointResult) -> &'static str {
        match self {
            ChartFigure::Main(subject) => subject.figure(&point.summary),
            ChartFigure::Bytes(Subject::Consume) => "consumed_mb_per_s",
            ChartFigure::Bytes(_) if point.summary.figures.contains_key("carried_mb_per_s") => {
                "carried_mb_per_s"
            }
            ChartFigure::Bytes(_) => "produced_mb_per_s",
            ChartFigure::Cost => "broker_cpu_us_per_record",
            ChartFigure::TopicReady => "topic_ready_p99_us",
            ChartFigure::Metadata => "metadata_us",
        }
    }

    /// The value of a point whose figure has this mean.
    fn value(self, point: &PointResult, mean: f64) -> Option<f64> {
        match self {
            ChartFigure::Main(subject) => subject.value(point),
            ChartFigure::Bytes(_) | ChartFigure::Cost => Some(mean),
            ChartFigure::TopicReady | ChartFigure::Metadata => Some(mean / 1000.0),
        }
    }

    /// Minimum and maximum, in the unit of [`ChartFigure::value`].
    fn reach(self, point: &PointResult, spread: &Spread) -> Option<(f64, f64)> {
        let own = (spread.count > 1).then_some((spread.min, spread.max));
        match self {
            ChartFigure::Main(subject) => subject.reach(point),
            ChartFigure::Bytes(_) | ChartFigure::Cost => own,
            ChartFigure::TopicReady | ChartFigure::Metadata => {
                own.map(|(low, high)| (low / 1000.0, high / 1000.0))
            }
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            ChartFigure::Main(subject) => subject.text(value),
            ChartFigure::Bytes(_) => format!("{} MB/s", quantity::number(value)),
            ChartFigure::Cost => {
                format!("{} µs of the brokers' processors a record", quantity::number(value))
            }
            ChartFigure::TopicReady | ChartFigure::Metadata => format!("{} ms", quantity::number(value)),
        }
    }

    fn title(self, points: &[&PointResult]) -> &'static str {
        match self {
            ChartFigure::Main(subject) => points.first().map_or("", |point| subject.title(point)),
            ChartFigure::Bytes(Subject::Consume) => "MB consumed per second (2²⁰ bytes)",
            ChartFigure::Bytes(_) if points.iter().any(|point| self.figure(point) == "carried_mb_per_s") => {
                "MB per second (2²⁰ bytes), produced and consumed"
            }
            ChartFigure::Bytes(_) => "MB produced per second (2²⁰ bytes)",
            ChartFigure::Cost => "Processor time of the brokers for a record",
            ChartFigure::TopicReady => "From the creation of a topic until it has leaders, p99",
            ChartFigure::Metadata => "An answer with the metadata of all topics",
        }
    }

    fn better(self) -> Better {
        match self {
            ChartFigure::Main(Subject::Latency | Subject::Drain)
            | ChartFigure::Cost
            | ChartFigure::TopicReady
            | ChartFigure::Metadata => Better::Lower,
            ChartFigure::Main(_) | ChartFigure::Bytes(_) => Better::Higher,
        }
    }

    /// True for rates, which are published most often.
    fn is_rate(self) -> bool {
        matches!(
            self,
            ChartFigure::Bytes(_) | ChartFigure::Main(Subject::Knee | Subject::Produce | Subject::Consume)
        )
    }

    /// True if a headline quotes the figure.
    fn is_quoted(self) -> bool {
        matches!(self, ChartFigure::Main(_) | ChartFigure::Bytes(_))
    }

    /// True if two points of a system differ beyond the noise.
    fn differs(self, a: &PointResult, b: &PointResult) -> bool {
        let name = self.figure(a);
        let compared = Figure::named(name).filter(|_| name == self.figure(b));
        let ratio = compared
            .and_then(|figure| ratio_of(figure, &values(&a.repetitions, &b.repetitions, figure.name)));
        !matches!(
            ratio.map(|ratio| ratio.judgement),
            None | Some(Judgement::NoDifference | Judgement::NotJudged)
        )
    }

    fn unit(self) -> &'static str {
        match self {
            ChartFigure::Main(Subject::Latency) => "p99",
            ChartFigure::Main(Subject::Drain) => "seconds",
            ChartFigure::Main(_) => "records/s",
            ChartFigure::Bytes(_) => "MB/s",
            ChartFigure::Cost => "µs",
            ChartFigure::TopicReady | ChartFigure::Metadata => "ms",
        }
    }
}

/// True if the cost of a record is informative. At a fixed rate, it shows if the cost grows with the scaled
/// parameter; over rates and sizes, it would only show the effect of batching.
fn shows_cost(subject: Subject, scaled: ScaledParameter) -> bool {
    subject == Subject::Latency && !matches!(scaled, ScaledParameter::Rate | ScaledParameter::Size)
}

/// The positions of points on the x axis.
struct XPositions {
    scaled: ScaledParameter,
    /// The x value of each label.
    x: Vec<(String, f64)>,
}

impl XPositions {
    fn of(&self, point: &PointResult) -> f64 {
        self.x.iter().find(|(label, _)| *label == point.point.label).map_or(0.0, |(_, x)| *x)
    }
}

/// The scaled parameter of points: the first that differs for each label.
fn positions(points: &[&PointResult]) -> Option<XPositions> {
    let mut labels: Vec<&Point> = Vec::new();
    for point in points {
        if !labels.iter().any(|known| known.label == point.point.label) {
            labels.push(&point.point);
        }
    }
    if labels.len() < 2 {
        return None;
    }
    ScaledParameter::ALL.into_iter().find_map(|scaled| {
        let x: Option<Vec<(String, f64)>> = match scaled {
            ScaledParameter::Plan => {
                let planned = labels.iter().all(|point| !point.cluster.node.is_none());
                let named =
                    labels.iter().enumerate().map(|(place, point)| (point.label.clone(), place as f64));
                planned.then(|| named.collect())
            }
            _ => labels.iter().map(|point| Some((point.label.clone(), scaled.value(point)?))).collect(),
        };
        let x = x?;
        let mut values: Vec<f64> = x.iter().map(|(_, x)| *x).collect();
        values.sort_by(f64::total_cmp);
        values.windows(2).all(|pair| pair[0] < pair[1]).then_some(XPositions { scaled, x })
    })
}

fn chart(
    shown: ChartFigure,
    points: &[&PointResult],
    positions: &XPositions,
    context: ChartContext<'_>,
) -> Chart {
    let ChartContext { workload, palette, quoted, .. } = context;
    let mut lines = Vec::new();
    let mut dots = Vec::new();
    for series in palette.series() {
        let own = points.iter().filter(|point| palette.of_point(point) == series);
        let found = own.filter_map(|point| {
            let spread = point.summary.figures.get(shown.figure(point))?;
            let y = shown.value(point, spread.mean)?;
            let reach = shown.reach(point, spread);
            (y.is_finite() && y > 0.0).then(|| (positions.of(point), y, reach, *point))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        if found.is_empty() {
            continue;
        }
        let same = found.windows(2).enumerate().filter(|(_, pair)| !shown.differs(pair[0].3, pair[1].3));
        lines.push(Line {
            name: series.name.clone(),
            class: series.class.clone(),
            points: found.iter().map(|(x, y, ..)| (*x, *y)).collect(),
            dots: false,
            within_noise: same.map(|(place, _)| place).collect(),
        });
        dots.extend(found.into_iter().map(|(x, y, spread, point)| Dot {
            spread,
            is_quoted: shown.is_quoted() && quoted.contain(workload, point),
            ..dot((x, y), point, series, &shown.text(y))
        }));
    }
    if let Some(first) = points.first().filter(|_| shown.is_rate() && !dots.is_empty()) {
        let position = |label: &str| positions.x.iter().find(|(known, _)| known == label).map(|(_, x)| *x);
        let values =
            published::values(&workload.workload, shown.figure(first), position, |value| shown.text(value));
        // Below the measured lines.
        lines.splice(0..0, values.lines);
        dots.splice(0..0, values.dots);
    }
    let ys = || dots.iter().map(|dot| dot.y);
    let (least, most) = (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max));
    let ends: Vec<f64> =
        dots.iter().filter_map(|dot| dot.spread).flat_map(|(low, high)| [low, high]).collect();
    let reach = ends.iter().copied().fold(most, f64::max);
    let is_latency = shown == ChartFigure::Main(Subject::Latency);
    let y_log = is_latency || (most / least > LOG_FROM && shown != ChartFigure::Main(Subject::Drain));
    let unit = shown.unit();
    Chart {
        title: shown.title(points).to_owned(),
        better: Some(shown.better()),
        x: x_axis(positions),
        y: Axis {
            title: if y_log { format!("{unit}, logarithmic") } else { unit.to_owned() },
            domain: if y_log { log_domain(ys().chain(ends)) } else { (0.0, nice_ceiling(reach * 1.02)) },
            log: y_log,
            tick: if is_latency { quantity_of_tick } else { quantity::round },
            ticks: Vec::new(),
            names: Vec::new(),
        },
        bands: Vec::new(),
        lines,
        marks: Vec::new(),
        dots,
    }
}

fn x_axis(positions: &XPositions) -> Axis {
    let values = || positions.x.iter().map(|(_, x)| *x);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let log = matches!(positions.scaled, ScaledParameter::Size | ScaledParameter::Rate)
        || (least > 0.0 && most / least > LOG_FROM);
    let mut ticks: Vec<f64> = values().collect();
    ticks.sort_by(f64::total_cmp);
    let names = match positions.scaled {
        ScaledParameter::Plan => positions.x.iter().map(|(label, _)| label.clone()).collect(),
        _ => Vec::new(),
    };
    Axis {
        title: if log {
            format!("{}, logarithmic", positions.scaled.title())
        } else {
            positions.scaled.title().to_owned()
        },
        domain: match (positions.scaled, log) {
            (ScaledParameter::Plan, _) => (-0.5, most + 0.5),
            (_, true) => (least / 1.2, most * 1.2),
            (_, false) => (0.0, most * 1.05),
        },
        log,
        tick: quantity::round,
        // A few values are all marked; with more, round marks are used.
        ticks: if log { Vec::new() } else { ticks },
        names,
    }
}

fn dot((x, y): (f64, f64), point: &PointResult, series: &Series, text: &str) -> Dot {
    let mut tip = vec![format!("{}, {}: {text}", series.name, point.point.label)];
    let obstacles = obstacles(point);
    if let Some(reason) = obstacles.first() {
        tip.push(format!("not quotable: {}", shortened(reason)));
    }
    let is_hollow = !obstacles.is_empty();
    Dot { x, y, class: series.class.clone(), is_hollow, is_quoted: false, spread: None, tip }
}

fn shortened(text: &str) -> String {
    match text.chars().count() > REASON_MAX {
        true => text.chars().take(REASON_MAX - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::result;

    fn points(change: impl Fn(usize, &mut Point)) -> Vec<PointResult> {
        let made = (0..3).map(|number| {
            let mut point = crate::workload::load("ibm-payload", None).expect("built in").points[0].clone();
            point.label = format!("point {number}");
            change(number, &mut point);
            result(point, "embedded", Vec::new())
        });
        made.collect()
    }

    fn scaled(change: impl Fn(usize, &mut Point)) -> Option<ScaledParameter> {
        let points = points(change);
        positions(&points.iter().collect::<Vec<_>>()).map(|positions| positions.scaled)
    }

    #[test]
    fn the_thing_that_differs_for_each_point_is_scaled() {
        assert_eq!(scaled(|_, _| ()), None);
        assert_eq!(scaled(|n, point| point.records.size_bytes = 1 << n), Some(ScaledParameter::Size));
        let brokers = |n: usize, point: &mut Point| {
            point.cluster.brokers = n as u32 + 1;
            point.topics.partitions = 2 * (n as u32 + 1);
        };
        assert_eq!(scaled(brokers), Some(ScaledParameter::Brokers), "partitions follow");
        let rates = |n: usize, point: &mut Point| {
            point.cluster.brokers = 1 + n as u32 / 2;
            point.load = Load::Rate { records_per_s: 10f64.powi(n as i32) };
        };
        assert_eq!(scaled(rates), Some(ScaledParameter::Rate), "two points have one broker");
    }

    #[test]
    fn rates_that_grow_with_the_brokers_make_a_family() {
        let names = |each: fn(usize) -> f64| {
            let points = points(|n, point| {
                point.cluster.brokers = 3 * (n as u32 % 2 + 1);
                point.load = Load::Rate { records_per_s: f64::from(point.cluster.brokers) * each(n) };
            });
            let found = families(&points.iter().collect::<Vec<_>>());
            found.into_iter().map(|(name, family)| (name, family.len())).collect::<Vec<_>>()
        };
        let (two, one) = (", 10,000 for each broker".to_owned(), ", 40,000 for each broker".to_owned());
        assert_eq!(names(|n| if n < 2 { 10_000.0 } else { 40_000.0 }), [(two, 2), (one, 1)]);
        assert_eq!(names(|n| 1000.0 * (n as f64 + 1.0)), [(String::new(), 3)]);
        let points = points(|n, point| {
            let (partitions, producers) = [(6, 1), (1000, 1), (6, 100)][n];
            (point.topics.partitions, point.producers.count) = (partitions, producers);
            point.load = Load::Rate { records_per_s: if n < 2 { 9000.0 } else { 200.0 } };
        });
        let mut points: Vec<&PointResult> = points.iter().collect();
        assert_eq!(families(&points).len(), 1, "one point scales nothing");
        let rates = self::points(|n, point| {
            point.cluster.brokers = [3, 3, 1][n];
            point.load = Load::Rate { records_per_s: [1000.0, 10_000.0, 10_000.0][n] };
        });
        let found = families(&rates.iter().collect::<Vec<_>>());
        let found: Vec<(&str, usize)> = found.iter().map(|(name, family)| (&**name, family.len())).collect();
        assert_eq!(found, [(", 3 brokers", 2), (", 1 broker", 1)], "the last scales nothing");
        let other = PointResult { point: points[0].point.clone(), ..points[2].clone() };
        let other = PointResult {
            point: Point { label: "other".to_owned(), load: points[2].point.load.clone(), ..other.point },
            ..points[2].clone()
        };
        points.push(&other);
        let found = families(&points);
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [", 9,000 records/s", ", 200 records/s"]);
    }
}
