//! Colours and lines. A target has one colour on the whole page, a driver one kind of line; the colours, for
//! light and dark, are in `style.css`.

use crate::result::{PointResult, RunResult, WorkloadResult, system};
use crate::worker::Driver;

/// Number of colours in `style.css`.
const COLOURS: usize = 6;

/// A target with a driver, represented by a bar or line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub target: String,
    pub driver: Driver,
    /// The series' name: the system, and the driver if the workload has several.
    pub name: String,
    /// The series' CSS classes: `s0` to `s5` for the colour, `d0` to `d3` for the line.
    pub class: String,
}

/// All series of a run, in display order.
#[derive(Debug)]
pub(super) struct Palette {
    series: Vec<Series>,
}

impl Palette {
    /// The series of a run.
    pub fn of(run: &RunResult) -> Palette {
        let mut targets: Vec<&str> = Vec::new();
        let mut pairs: Vec<(&str, Driver)> = Vec::new();
        let mut drivers: Vec<Driver> = Vec::new();
        for point in run.workloads.iter().flat_map(|workload| &workload.points) {
            add(&mut targets, &point.target);
            add(&mut pairs, (&point.target, point.driver));
            add(&mut drivers, point.driver);
        }
        // Thalweg first and Kafka second in any run, so that colours are the same in all reports.
        let rank = |target: &str| match target {
            "embedded" => 0,
            "apache-kafka" => 1,
            _ => 2,
        };
        targets.sort_by_key(|target| rank(target));
        let known = targets.iter().filter(|target| rank(target) < 2).count();
        let colour = |target: &str| match (rank(target), targets.iter().position(|other| *other == target)) {
            // The first two colours are reserved for these systems, even if one is missing.
            (2, Some(place)) if known > 0 => place - known + 2,
            (2, place) => place.unwrap_or(0),
            (fixed, _) => fixed,
        };
        pairs.sort_by_key(|(target, driver)| {
            let place = targets.iter().position(|known| known == target);
            (place, drivers.iter().position(|known| known == driver))
        });
        let series = pairs.into_iter().map(|(target, driver)| Series {
            target: target.to_owned(),
            driver,
            name: String::new(),
            class: format!("s{} d{}", colour(target) % COLOURS, line(driver)),
        });
        Palette { series: series.collect() }
    }

    /// The series of one workload, with the same colours, and names as short as the workload allows.
    pub fn within(&self, workload: &WorkloadResult) -> Palette {
        let mut drivers: Vec<Driver> = Vec::new();
        workload.points.iter().for_each(|point| add(&mut drivers, point.driver));
        let here = |series: &&Series| {
            workload.points.iter().any(|point| point.target == series.target && point.driver == series.driver)
        };
        let named = |series: &Series| Series {
            name: match drivers.len() {
                1 => system(&series.target).to_owned(),
                _ => format!("{} · {}", system(&series.target), client(series.driver)),
            },
            ..series.clone()
        };
        Palette { series: self.series.iter().filter(here).map(named).collect() }
    }

    /// All series, in order.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// All targets, in order.
    pub fn targets(&self) -> Vec<&str> {
        let mut targets = Vec::new();
        for series in &self.series {
            add(&mut targets, series.target.as_str());
        }
        targets
    }

    /// The series of a point.
    pub fn of_point(&self, point: &PointResult) -> &Series {
        let same = |series: &&Series| series.target == point.target && series.driver == point.driver;
        self.series.iter().find(same).expect("every point of the workload has added its series")
    }

    /// The index of a point's series.
    pub fn order(&self, point: &PointResult) -> usize {
        let same = |series: &Series| series.target == point.target && series.driver == point.driver;
        self.series.iter().position(same).unwrap_or(usize::MAX)
    }
}

impl Series {
    /// The series' name with a dot of its colour.
    pub fn markup(&self) -> String {
        format!(
            "<span class=\"who\"><i class=\"dot {}\"></i>{}</span>",
            self.class,
            super::text::escape(&self.name)
        )
    }
}

fn add<T: PartialEq>(to: &mut Vec<T>, value: T) {
    if !to.contains(&value) {
        to.push(value);
    }
}

/// A driver's name beside the name of a system, which may be the same.
fn client(driver: Driver) -> &'static str {
    match driver {
        Driver::Thalweg => "own client",
        other => other.words(),
    }
}

fn line(driver: Driver) -> u32 {
    match driver {
        Driver::Thalweg => 0,
        Driver::Librdkafka => 1,
        Driver::Java => 2,
        Driver::Stream => 3,
    }
}

#[cfg(test)]
mod tests;
