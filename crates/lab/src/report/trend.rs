//! A trend: the main figures of several results, such as those of releases, in order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::chart::{Bar, Bars, Group, Part};
use super::obstacles::obstacles;
use super::page;
use super::text::{escape, one_line, table};
use crate::quantity;
use crate::result::{
    Comparison, Figure, NotComparable, Pairing, PointName, PointResult, Ratio, RunResult, Spread, State,
    Subject, compare, system,
};

/// The main figure of each point over several results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// The results, in the given order.
    pub results: Vec<TrendResult>,
    /// Points in two results at least, in the order of the first.
    pub points: Vec<TrendPoint>,
}

/// A result of a trend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrendResult {
    /// The name of the result, such as that of its file.
    pub name: String,
    /// Start time, RFC 3339.
    pub began_at: String,
    /// Version and commit of the lab.
    pub lab_version: String,
    /// The machine: processor and kernel.
    pub machine: String,
    /// Why there are no ratios to the result before; empty if there are.
    pub differences: Vec<String>,
    /// Why the result is incomplete; `None` if it is complete.
    pub incomplete: Option<String>,
}

/// A point over the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrendPoint {
    pub point: PointName,
    /// The name of the main figure.
    pub figure: String,
    /// A value for each result; `None` if the result lacks the point or its figure.
    pub values: Vec<Option<TrendValue>>,
    /// Why a result has the point and no value.
    pub failures: Vec<Option<String>>,
}

/// The figure of a point in a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrendValue {
    pub spread: Spread,
    /// The version of the target.
    pub version: String,
    /// Why the figure is not quotable; `None` if it is.
    pub objection: Option<String>,
    /// The ratio to the last result before that has the point; `None` for the first, and if they are not
    /// comparable.
    pub ratio: Option<Ratio>,
    /// Why the value is not comparable with the one before, such as other settings of the point.
    pub incomparable: Option<String>,
}

/// Comparisons of results, each made once: it takes the time of all points.
struct Comparisons<'a> {
    runs: &'a [(String, RunResult)],
    /// By the places of both results.
    known: BTreeMap<(usize, usize), Result<Comparison, NotComparable>>,
}

impl Comparisons<'_> {
    fn of(&mut self, a: usize, b: usize) -> &Result<Comparison, NotComparable> {
        let runs = self.runs;
        let compared = || compare(&runs[a].1, &runs[b].1, &Pairing::SameTarget);
        self.known.entry((a, b)).or_insert_with(compared)
    }
}

/// The points of a result with their names.
fn points_of(run: &RunResult) -> impl Iterator<Item = (PointName, &PointResult)> {
    run.workloads.iter().flat_map(|of| {
        of.points.iter().map(|point| {
            let name = PointName {
                workload: of.workload.name.clone(),
                label: point.point.label.clone(),
                target: point.target.clone(),
                driver: point.driver,
            };
            (name, point)
        })
    })
}

/// The trend of results with names, in this order.
pub fn trend(runs: &[(String, RunResult)]) -> Trend {
    let mut points: Vec<TrendPoint> = Vec::new();
    for (place, (_, run)) in runs.iter().enumerate() {
        for (name, point) in points_of(run) {
            let figure = Subject::of(&point.point).figure(&point.summary);
            let Some(spread) = point.summary.figures.get(figure) else { continue };
            let value = TrendValue {
                spread: *spread,
                version: run.targets.get(&point.target).map(|info| info.version.clone()).unwrap_or_default(),
                objection: obstacles(point).into_iter().next(),
                ratio: None,
                incomparable: None,
            };
            let is_same = |known: &&mut TrendPoint| known.point == name && known.figure == figure;
            let known = match points.iter_mut().find(is_same) {
                Some(known) => known,
                None => {
                    let (values, failures) = (vec![None; runs.len()], vec![None; runs.len()]);
                    points.push(TrendPoint { point: name, figure: figure.to_owned(), values, failures });
                    points.last_mut().expect("it was added")
                }
            };
            known.values[place] = Some(value);
        }
    }
    add_failures(&mut points, runs);
    points.retain(|point| {
        let has = |place: &usize| point.values[*place].is_some() || point.failures[*place].is_some();
        (0..runs.len()).filter(has).count() > 1
    });
    let mut comparisons = Comparisons { runs, known: BTreeMap::new() };
    add_ratios(&mut points, &mut comparisons);
    let results = runs.iter().enumerate().map(|(place, (name, run))| {
        let before = place.checked_sub(1).map(|before| comparisons.of(before, place));
        described(name, run, before)
    });
    Trend { results: results.collect(), points }
}

/// Adds why results have a point and no value of it.
fn add_failures(points: &mut [TrendPoint], runs: &[(String, RunResult)]) {
    for (place, (_, run)) in runs.iter().enumerate() {
        for (name, failed) in points_of(run) {
            let is_without = |point: &&mut TrendPoint| point.point == name && point.values[place].is_none();
            for point in points.iter_mut().filter(is_without) {
                let why = failed.failure.as_deref().unwrap_or("not measured");
                point.failures[place] = Some(one_line(why));
            }
        }
    }
}

fn described(
    name: &str,
    run: &RunResult,
    since_before: Option<&Result<Comparison, NotComparable>>,
) -> TrendResult {
    let comparison = since_before.and_then(|compared| compared.as_ref().ok());
    let differences = comparison.map(|comparison| &comparison.machines[..]).unwrap_or_default();
    TrendResult {
        name: name.to_owned(),
        began_at: run.began_at.clone(),
        lab_version: run.lab_version.clone(),
        machine: format!("{}, {}", run.machine.cpu, run.machine.os),
        differences: differences.iter().map(ToString::to_string).collect(),
        incomplete: match &run.state {
            State::Complete => None,
            State::Partial { why } => Some(why.clone()),
        },
    }
}

/// Adds to each value its ratio to the last value before.
fn add_ratios(points: &mut [TrendPoint], comparisons: &mut Comparisons<'_>) {
    for point in points {
        let has = |place: &usize| point.values[*place].is_some();
        let places: Vec<usize> = (0..point.values.len()).filter(has).collect();
        for pair in places.windows(2) {
            let Some(value) = &mut point.values[pair[1]] else { continue };
            match comparisons.of(pair[0], pair[1]) {
                Ok(compared) => {
                    let refused = compared.refused.iter().find(|refused| refused.a == point.point);
                    let differences = refused.into_iter().flat_map(|refused| &refused.differences);
                    let differences: Vec<String> = differences.map(ToString::to_string).collect();
                    value.incomparable = (!differences.is_empty()).then(|| differences.join("; "));
                    let found = compared.pairs.iter().find(|found| found.a == point.point);
                    let mut ratios = found.into_iter().flat_map(|found| &found.ratios);
                    value.ratio = ratios.find(|ratio| ratio.figure == point.figure).cloned();
                }
                Err(why) => value.incomparable = Some(why.to_string()),
            }
        }
    }
}

impl TrendPoint {
    /// The figure with its unit.
    pub fn title(&self) -> &str {
        Figure::named(&self.figure).map_or(self.figure.as_str(), |figure| figure.title)
    }

    /// A value as text.
    pub fn text(&self, value: &TrendValue) -> String {
        match Figure::named(&self.figure) {
            Some(figure) => figure.text(value.spread.mean),
            None => quantity::number(value.spread.mean),
        }
    }
}

impl TrendValue {
    /// The change since the value before, such as `+4.0 % (+2.1 to +5.9)`, or why there is none; empty for
    /// the first value.
    pub fn change(&self) -> String {
        let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
        let Some(ratio) = &self.ratio else {
            let why = self.incomparable.as_ref();
            return why.map_or_else(String::new, |why| format!("not comparable: {why}"));
        };
        match ratio.interval {
            Some((low, high)) => {
                format!("{} % ({} to {})", percent(ratio.ratio), percent(low), percent(high))
            }
            None => format!("{} %", percent(ratio.ratio)),
        }
    }
}

/// The trend as a self-contained page.
pub fn trend_page(of: &Trend) -> String {
    let mut body = format!(
        "<header><p class=\"brand\">Thalweg lab</p><h1>Trend over {} results</h1></header><main>{}",
        of.results.len(),
        results(of)
    );
    let mut workloads: Vec<&str> = Vec::new();
    for point in &of.points {
        if !workloads.contains(&point.point.workload.as_str()) {
            workloads.push(&point.point.workload);
        }
    }
    for workload in workloads {
        let points: Vec<&TrendPoint> =
            of.points.iter().filter(|point| point.point.workload == workload).collect();
        let _ = write!(
            body,
            "<section class=\"workload\"><h2>{}</h2>{}</section>",
            escape(workload),
            panels(of, &points)
        );
    }
    if of.points.is_empty() {
        body += "<p class=\"banner\">No point is in two of the results.</p>";
    }
    body += "</main>";
    page("Thalweg lab: trend", &body)
}

/// The results, with what forbids ratios between neighbours.
fn results(of: &Trend) -> String {
    let rows = of.results.iter().map(|result| {
        let differences: Vec<String> = result.differences.iter().map(|text| escape(text)).collect();
        let incomplete = result.incomplete.as_ref().map(|why| format!("; incomplete: {why}"));
        vec![
            escape(&format!("{}{}", result.name, incomplete.unwrap_or_default())),
            escape(&result.began_at),
            escape(&result.lab_version),
            escape(&result.machine),
            differences.join("<br>"),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let heads = ["result", "began", "lab", "machine", "no ratios to the one before, because of"];
    format!(
        "<section><h2>Results</h2>{}<p>A change is the ratio to the last result before that has the point, with its 95 % \
         interval. Hollow bars may not be quoted.</p></section>",
        table(&heads, heads.len(), &rows)
    )
}

/// Bars for each figure, target and driver of a workload: a group per point, a bar per result.
fn panels(of: &Trend, points: &[&TrendPoint]) -> String {
    let mut shown: Vec<(&str, &PointName)> = Vec::new();
    for point in points {
        let is_known = |(figure, name): &&(&str, &PointName)| {
            *figure == point.figure && name.target == point.point.target && name.driver == point.point.driver
        };
        if !shown.iter().any(|known| is_known(&known)) {
            shown.push((&point.figure, &point.point));
        }
    }
    let panels = shown.into_iter().map(|(figure, name)| {
        let own = points.iter().filter(|point| {
            point.figure == figure && point.point.target == name.target && point.point.driver == name.driver
        });
        let groups: Vec<Group> = own.map(|point| group(of, point)).collect();
        let unit = Figure::named(figure).map_or(figure, |figure| figure.title);
        let title = format!("{}, {}: {unit}", system(&name.target), name.driver.words());
        Bars { title, groups, tick: quantity::round }.markup()
    });
    format!("<div class=\"panels\">{}</div>", panels.collect::<String>())
}

fn group(of: &Trend, point: &TrendPoint) -> Group {
    let values = point.values.iter().zip(&point.failures);
    let bars = of.results.iter().zip(values).map(|(result, (value, failure))| {
        let reach = value.as_ref().filter(|value| value.spread.count > 1);
        let version = value.as_ref().map(|value| value.version.as_str()).unwrap_or_default();
        let objection = value.as_ref().and_then(|value| value.objection.as_ref());
        let tip =
            objection.map_or_else(|| version.to_owned(), |why| format!("{version}; not quotable: {why}"));
        Bar {
            name: result.name.clone(),
            class: "s0 d0".to_owned(),
            parts: value.iter().map(|value| Part { value: value.spread.mean, class: "" }).collect(),
            whisker: reach.map(|value| (value.spread.min, value.spread.max)),
            value: match (value, failure) {
                (Some(value), _) => point.text(value),
                (None, Some(why)) => format!("failed: {why}"),
                (None, None) => "not measured".to_owned(),
            },
            remark: value.as_ref().map(TrendValue::change).unwrap_or_default(),
            tip,
            hollow: objection.is_some(),
            is_quoted: false,
        }
    });
    Group { name: point.point.label.clone(), bars: bars.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{measured, run_of};
    use crate::result::testing::point;

    fn result(rates: &[f64]) -> RunResult {
        run_of(vec![measured(&point(), "embedded", 0, rates)])
    }

    fn three() -> Vec<(String, RunResult)> {
        vec![
            ("0.1".to_owned(), result(&[100.0, 101.0, 99.0])),
            ("0.2".to_owned(), result(&[120.0, 121.0, 119.0])),
            ("0.3".to_owned(), result(&[110.0, 111.0, 109.0])),
        ]
    }

    #[test]
    fn each_value_has_its_change_since_the_one_before() {
        let of = trend(&three());
        assert_eq!(of.points.len(), 1, "{of:?}");
        let changes: Vec<String> = of.points[0].values.iter().flatten().map(TrendValue::change).collect();
        assert_eq!(changes[0], "");
        assert!(changes[1].starts_with("+20.0 % (+") && changes[2].starts_with("-8.3 % (-"), "{changes:?}");
        let page = trend_page(&of);
        assert!(page.contains("Trend over 3 results") && page.contains("+20.0 %"), "{page}");
    }

    #[test]
    fn another_machine_has_values_without_a_change_and_its_difference() {
        let mut runs = three();
        runs[1].1.machine.cpu = "another processor".to_owned();
        let of = trend(&runs);
        let values: Vec<&TrendValue> = of.points[0].values.iter().flatten().collect();
        assert!(values.len() == 3 && values[1].ratio.is_none() && values[2].ratio.is_none(), "{values:?}");
        assert!(of.results[1].differences.iter().any(|text| text.contains("another processor")), "{of:?}");
        assert!(of.results[0].differences.is_empty());
    }

    #[test]
    fn another_size_of_records_has_its_reason_and_a_failed_point_its_failure() {
        let mut runs = three();
        runs[1].1.workloads[0].points[0].point.records.size_bytes *= 10;
        let failed = &mut runs[2].1.workloads[0].points[0];
        failed.summary.figures.clear();
        failed.failure = Some("broker-1 exited:\n no space".to_owned());
        runs[2].1.state = State::Partial { why: "interrupted".to_owned() };
        let of = trend(&runs);
        let change = of.points[0].values[1].as_ref().map(TrendValue::change).expect("measured");
        assert!(change.starts_with("not comparable: ") && change.contains("size_bytes"), "{change}");
        assert_eq!(of.points[0].failures[2].as_deref(), Some("broker-1 exited: no space"));
        let page = trend_page(&of);
        assert!(page.contains("failed: broker-1 exited: no space"), "{page}");
        assert!(page.contains("incomplete: interrupted"), "{page}");
    }

    #[test]
    fn a_missing_point_is_passed_over() {
        let mut runs = three();
        runs[1].1.workloads[0].points.clear();
        let of = trend(&runs);
        assert!(of.points[0].values[1].is_none());
        let change = of.points[0].values[2].as_ref().map(TrendValue::change).expect("measured");
        assert!(change.starts_with("+10.0 %"), "{change}");
        runs.truncate(2);
        assert!(trend_page(&trend(&runs)).contains("No point is in two of the results."));
    }
}
