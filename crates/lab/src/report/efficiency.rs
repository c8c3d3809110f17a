//! Scaling efficiency: what more brokers gained, as a share of a linear gain.

use super::obstacles::obstacles;
use super::palette::Palette;
use super::text::{escape, table};
use crate::quantity;
use crate::result::{Figure, PAIRS_MIN, PointResult, Subject, WorkloadResult, ratio_of, values};
use crate::workload::Point;

/// A step from fewer to more brokers.
#[derive(Clone, Debug, PartialEq)]
struct ScalingStep {
    system: String,
    from: u32,
    to: u32,
    /// The rate with more brokers, divided by that with fewer.
    gain: f64,
    /// The 95 % interval of the gain, if known.
    interval: Option<(f64, f64)>,
    is_published: bool,
}

impl ScalingStep {
    fn growth(&self) -> f64 {
        f64::from(self.to) / f64::from(self.from)
    }

    fn row(&self) -> Vec<String> {
        let interval = match (self.interval, self.is_published) {
            (Some((low, high)), _) => format!("{low:.2} to {high:.2}"),
            (None, true) => "not published".to_owned(),
            (None, false) => format!("not quotable: needs {PAIRS_MIN} repetitions of each"),
        };
        vec![
            escape(&self.system),
            format!("{} to {}", self.from, self.to),
            format!("{:.2}", self.growth()),
            format!("{:.2}", self.gain),
            quantity::percent(self.gain / self.growth()),
            interval,
        ]
    }
}

/// A table of the steps of a workload that measures a rate on different numbers of brokers, with those of its
/// published figures; empty for other workloads.
pub(super) fn markup(workload: &WorkloadResult, palette: &Palette) -> String {
    let measured = measured(workload, palette);
    if measured.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = measured.iter().chain(&published(workload)).map(ScalingStep::row).collect();
    let heads = [
        "system",
        "brokers",
        "times the brokers",
        "times the rate",
        "of linear",
        "95 % interval of the rate",
    ];
    table(&heads, 1, &rows)
        + "<p>Figures that may not be quoted are left out. Brokers on one machine share its processors: their gain says \
           nothing about brokers on machines of their own. Published figures are of other hardware.</p>"
}

fn measured(workload: &WorkloadResult, palette: &Palette) -> Vec<ScalingStep> {
    let mut steps = Vec::new();
    for series in palette.series() {
        let own: Vec<&PointResult> = workload
            .points
            .iter()
            .filter(|point| palette.of_point(point) == series && obstacles(point).is_empty())
            .collect();
        let pairs = neighbours(&own, |point| &point.point);
        steps.extend(pairs.into_iter().filter_map(|(fewer, more)| {
            let name = Subject::of(&fewer.point).figure(&fewer.summary);
            let same = name == Subject::of(&more.point).figure(&more.summary);
            let figure = Figure::named(name).filter(|_| same)?;
            let ratio = ratio_of(figure, &values(&fewer.repetitions, &more.repetitions, name))?;
            Some(ScalingStep {
                system: series.name.clone(),
                from: fewer.point.cluster.brokers,
                to: more.point.cluster.brokers,
                gain: ratio.ratio,
                interval: ratio.interval,
                is_published: false,
            })
        }));
    }
    steps
}

/// The steps of published rates.
fn published(workload: &WorkloadResult) -> Vec<ScalingStep> {
    let of = &workload.workload;
    let mut systems: Vec<(&str, &str)> = Vec::new();
    for figure in of.published.iter().filter(|figure| figure.figure.ends_with("_records_per_s")) {
        let key = (figure.system.as_str(), figure.figure.as_str());
        if !systems.contains(&key) {
            systems.push(key);
        }
    }
    let mut steps = Vec::new();
    for (system, name) in systems {
        let known: Vec<(&Point, f64)> = of
            .published
            .iter()
            .filter(|figure| (figure.system.as_str(), figure.figure.as_str()) == (system, name))
            .filter_map(|figure| {
                Some((of.points.iter().find(|point| point.label == figure.point)?, figure.value))
            })
            .collect();
        steps.extend(neighbours(&known, |(point, _)| point).into_iter().map(
            |((fewer, low), (more, high))| ScalingStep {
                system: format!("{system}, published"),
                from: fewer.cluster.brokers,
                to: more.cluster.brokers,
                gain: high / low,
                interval: None,
                is_published: true,
            },
        ));
    }
    steps
}

/// Pairs of neighbours by their number of brokers, among points that differ in what grows with the brokers
/// only: partitions, clients, and fetchers of followers.
fn neighbours<'a, T>(items: &'a [T], point: impl Fn(&'a T) -> &'a Point) -> Vec<(&'a T, &'a T)> {
    let is_rate = |of: &Point| matches!(Subject::of(of), Subject::Produce | Subject::Consume | Subject::Knee);
    let mut groups: Vec<Vec<&T>> = Vec::new();
    for item in items.iter().filter(|item| is_rate(point(item))) {
        let is_alike = |group: &&mut Vec<&'a T>| are_alike(point(group[0]), point(item));
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    let mut pairs = Vec::new();
    for mut group in groups {
        group.sort_by_key(|item| point(item).cluster.brokers);
        let brokers: Vec<u32> = group.iter().map(|item| point(item).cluster.brokers).collect();
        // Points with as many brokers differ in something else.
        if brokers.windows(2).all(|pair| pair[0] < pair[1]) {
            pairs.extend(group.windows(2).map(|pair| (pair[0], pair[1])));
        }
    }
    pairs
}

fn are_alike(a: &Point, b: &Point) -> bool {
    let settings = |point: &Point| {
        let mut properties = point.cluster.properties.clone();
        properties.remove("num.replica.fetchers");
        (
            point.records.clone(),
            point.cluster.node,
            properties,
            point.cluster.security,
            point.topics.replication_factor,
            point.producers.properties.clone(),
            point.measure,
        )
    };
    settings(a) == settings(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{measured as measured_point, run_of};
    use crate::result::testing::point;
    use crate::workload::PublishedFigure;

    fn on(brokers: u32) -> Point {
        let mut shape = point();
        shape.label = format!("{brokers} brokers");
        (shape.cluster.brokers, shape.topics.partitions) = (brokers, 2 * brokers);
        shape
    }

    #[test]
    fn the_gain_of_more_brokers_stands_beside_a_linear_one() {
        let (three, six) = ([100.0, 101.0, 99.0], [180.0, 182.0, 178.0]);
        let points =
            vec![measured_point(&on(3), "embedded", 0, &three), measured_point(&on(6), "embedded", 1, &six)];
        let run = run_of(points);
        let workload = &run.workloads[0];
        let found = measured(workload, &Palette::of(&run));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].from, found[0].to), (3, 6));
        assert!((found[0].gain - 1.8).abs() < 0.01 && found[0].interval.is_some(), "{found:?}");
        let page = markup(workload, &Palette::of(&run));
        assert!(
            page.contains(">3 to 6</td>") && page.contains(">1.80</td>") && page.contains(">90 %</td>"),
            "{page}"
        );
    }

    #[test]
    fn what_may_not_be_quoted_or_differs_otherwise_is_not_compared() {
        let values = [100.0, 101.0, 99.0];
        let mut other = on(6);
        other.records.size_bytes += 1;
        let apart = run_of(vec![
            measured_point(&on(3), "embedded", 0, &values),
            measured_point(&other, "embedded", 1, &values),
        ]);
        assert_eq!(measured(&apart.workloads[0], &Palette::of(&apart)), []);
        let mut disturbed = measured_point(&on(6), "embedded", 1, &values);
        disturbed.verdict.no_headline.push("disturbed".to_owned());
        let run = run_of(vec![measured_point(&on(3), "embedded", 0, &values), disturbed]);
        assert_eq!(measured(&run.workloads[0], &Palette::of(&run)), []);
    }

    #[test]
    fn published_rates_have_their_steps() {
        let mut run = run_of(vec![measured_point(&on(3), "embedded", 0, &[100.0])]);
        let workload = &mut run.workloads[0];
        workload.workload.points = vec![on(3), on(6)];
        workload.workload.published = [("3 brokers", 1000.0), ("6 brokers", 1900.0)]
            .map(|(label, value)| PublishedFigure {
                price: String::new(),
                point: label.to_owned(),
                system: "Kafka 2.3.0".to_owned(),
                hardware: String::new(),
                figure: "produced_records_per_s".to_owned(),
                value,
                source: String::new(),
            })
            .to_vec();
        let found = published(workload);
        assert_eq!((found.len(), found[0].system.as_str()), (1, "Kafka 2.3.0, published"));
        assert!((found[0].gain - 1.9).abs() < 1e-9, "{found:?}");
    }
}
