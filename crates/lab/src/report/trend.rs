//! A trend: the main figures of several results, such as those of releases, in order.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::chart::{Bar, Bars, Group, Part};
use super::obstacles::obstacles;
use super::page;
use super::text::escape;
use crate::quantity;
use crate::result::{Figure, Pairing, PointName, Ratio, RunResult, Spread, Subject, compare, system};

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
}

/// A point over the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrendPoint {
    pub point: PointName,
    /// The name of the main figure.
    pub figure: String,
    /// A value for each result; `None` if the result lacks the point or its figure.
    pub values: Vec<Option<TrendValue>>,
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
}

/// The trend of results with names, in this order.
pub fn trend(runs: &[(String, RunResult)]) -> Trend {
    let mut points: Vec<TrendPoint> = Vec::new();
    for (place, (_, run)) in runs.iter().enumerate() {
        for (workload, point) in
            run.workloads.iter().flat_map(|of| of.points.iter().map(move |point| (of, point)))
        {
            let name = PointName {
                workload: workload.workload.name.clone(),
                label: point.point.label.clone(),
                target: point.target.clone(),
                driver: point.driver,
            };
            let figure = Subject::of(&point.point).figure(&point.summary);
            let Some(spread) = point.summary.figures.get(figure) else { continue };
            let value = TrendValue {
                spread: *spread,
                version: run.targets.get(&point.target).map(|info| info.version.clone()).unwrap_or_default(),
                objection: obstacles(point).into_iter().next(),
                ratio: None,
            };
            let is_same = |known: &&mut TrendPoint| known.point == name && known.figure == figure;
            let known = match points.iter_mut().find(is_same) {
                Some(known) => known,
                None => {
                    let values = vec![None; runs.len()];
                    points.push(TrendPoint { point: name, figure: figure.to_owned(), values });
                    points.last_mut().expect("it was added")
                }
            };
            known.values[place] = Some(value);
        }
    }
    points.retain(|point| point.values.iter().flatten().count() > 1);
    add_ratios(&mut points, runs);
    let results = runs.iter().enumerate().map(|(place, (name, run))| {
        let before = place.checked_sub(1).map(|before| &runs[before].1);
        described(name, run, before)
    });
    Trend { results: results.collect(), points }
}

fn described(name: &str, run: &RunResult, before: Option<&RunResult>) -> TrendResult {
    let machines = before.and_then(|before| compare(before, run, &Pairing::SameTarget).ok());
    let differences = machines.map(|comparison| comparison.machines).unwrap_or_default();
    TrendResult {
        name: name.to_owned(),
        began_at: run.began_at.clone(),
        lab_version: run.lab_version.clone(),
        machine: format!("{}, {}", run.machine.cpu, run.machine.os),
        differences: differences.iter().map(ToString::to_string).collect(),
    }
}

/// Adds to each value its ratio to the last value before.
fn add_ratios(points: &mut [TrendPoint], runs: &[(String, RunResult)]) {
    for point in points {
        let places: Vec<usize> = (0..runs.len()).filter(|place| point.values[*place].is_some()).collect();
        for pair in places.windows(2) {
            let Ok(compared) = compare(&runs[pair[0]].1, &runs[pair[1]].1, &Pairing::SameTarget) else {
                continue;
            };
            let found = compared.pairs.into_iter().find(|found| found.a == point.point);
            let ratio =
                found.and_then(|found| found.ratios.into_iter().find(|ratio| ratio.figure == point.figure));
            if let Some(value) = &mut point.values[pair[1]] {
                value.ratio = ratio;
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
    /// The change since the value before, such as `+4.0 % (+2.1 to +5.9)`; empty if unknown.
    pub fn change(&self) -> String {
        let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
        let Some(ratio) = &self.ratio else { return String::new() };
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
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&result.name),
            escape(&result.began_at),
            escape(&result.lab_version),
            escape(&result.machine),
            differences.join("<br>")
        )
    });
    format!(
        "<section><h2>Results</h2><table><thead><tr><th>result</th><th>began</th><th>lab</th><th>machine</th>\
         <th>no ratios to the one before, because of</th></tr></thead><tbody>{}</tbody></table>\
         <p>A change is the ratio to the last result before that has the point, with its 95 % interval. Hollow bars may not be \
         quoted.</p></section>",
        rows.collect::<String>()
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
    let bars = of.results.iter().zip(&point.values).map(|(result, value)| {
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
            value: value.as_ref().map_or_else(|| "not measured".to_owned(), |value| point.text(value)),
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
