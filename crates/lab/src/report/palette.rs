//! Who is drawn how. A target has one colour on the whole page, a driver one kind of line; the colours themselves, for
//! light and dark, are in `style.css`.

use crate::result::{PointResult, RunResult};
use crate::worker::Driver;

/// Colours that `style.css` has.
const COLOURS: usize = 6;

/// A target with a driver: what bars and lines stand for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// The target.
    pub target: String,
    /// The driver.
    pub driver: Driver,
    /// Its name on the page: the target, with the driver where the run has several.
    pub name: String,
    /// Its classes: `s0` to `s5` for the colour, `d0` to `d2` for the line.
    pub class: String,
}

/// All series of a run, in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Palette {
    series: Vec<Series>,
}

impl Palette {
    /// The series of a run.
    pub fn of(run: &RunResult) -> Palette {
        let points = || run.workloads.iter().flat_map(|workload| &workload.points);
        let mut targets: Vec<&str> = Vec::new();
        let mut pairs: Vec<(&str, Driver)> = Vec::new();
        let mut drivers: Vec<Driver> = Vec::new();
        for point in points() {
            add(&mut targets, &point.target);
            add(&mut pairs, (&point.target, point.driver));
            add(&mut drivers, point.driver);
        }
        // Ours first and Kafka second, whatever the order of the run: their colours are the same in all reports.
        let rank = |target: &str| match target {
            "embedded" => 0,
            "apache-kafka" => 1,
            _ => 2,
        };
        targets.sort_by_key(|target| rank(target));
        let first_other = if targets.iter().any(|target| rank(target) < 2) { 2 } else { 0 };
        let others: Vec<&str> = targets.iter().copied().filter(|target| rank(target) == 2).collect();
        let colour = |target: &str| match rank(target) {
            2 => first_other + others.iter().position(|other| *other == target).unwrap_or(0),
            fixed => fixed,
        };
        pairs.sort_by_key(|(target, driver)| {
            (
                targets.iter().position(|known| known == target),
                drivers.iter().position(|known| known == driver),
            )
        });
        let series = pairs.into_iter().map(|(target, driver)| Series {
            target: target.to_owned(),
            driver,
            name: match drivers.len() {
                1 => target.to_owned(),
                _ => format!("{target} · {}", driver.words()),
            },
            class: format!("s{} d{}", colour(target) % COLOURS, line(driver)),
        });
        Palette { series: series.collect() }
    }

    /// All, in order.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The series that a point belongs to.
    pub fn of_point(&self, point: &PointResult) -> &Series {
        let same = |series: &&Series| series.target == point.target && series.driver == point.driver;
        self.series.iter().find(same).expect("every point of the run has added its series")
    }

    /// Where a point's series stands in the order.
    pub fn order(&self, point: &PointResult) -> usize {
        let same = |series: &Series| series.target == point.target && series.driver == point.driver;
        self.series.iter().position(same).unwrap_or(usize::MAX)
    }
}

impl Series {
    /// Its name with a dot of its colour.
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

fn line(driver: Driver) -> u32 {
    match driver {
        Driver::Thalweg => 0,
        Driver::Librdkafka => 1,
        Driver::Java => 2,
    }
}
