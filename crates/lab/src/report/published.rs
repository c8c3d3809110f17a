//! Published figures in the charts of a workload: lines of their own, which are never compared with measured
//! ones, because they are of other hardware.

use super::chart::{Dot, Line};
use crate::workload::Workload;

/// Maximum characters of a line's label.
const LABEL_MAX: usize = 20;

/// The published values of a chart.
pub(super) struct PublishedValues {
    pub lines: Vec<Line>,
    pub dots: Vec<Dot>,
}

/// A system on one kind of machine.
struct System<'a> {
    system: &'a str,
    machine: &'a str,
    /// Position, value and point.
    points: Vec<(f64, f64, &'a str)>,
}

/// The published values of a figure at the points that a chart has, by `position`; `text` formats a value.
pub(super) fn values(
    workload: &Workload,
    figure: &str,
    position: impl Fn(&str) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> PublishedValues {
    let mut systems: Vec<System<'_>> = Vec::new();
    for published in workload.published.iter().filter(|published| is_same(&published.figure, figure)) {
        let Some(x) = position(&published.point) else { continue };
        let machine = published.hardware.split(',').next().unwrap_or_default();
        let point = (x, published.value, published.point.as_str());
        let of_system = |one: &&mut System<'_>| one.system == published.system && one.machine == machine;
        match systems.iter_mut().find(of_system) {
            Some(system) => system.points.push(point),
            None => systems.push(System { system: &published.system, machine, points: vec![point] }),
        }
    }
    let mut values = PublishedValues { lines: Vec::new(), dots: Vec::new() };
    for system in &mut systems {
        system.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    for system in &systems {
        let has_kin = systems.iter().filter(|other| other.system == system.system).count() > 1;
        let label = if has_kin { system.machine } else { system.system };
        values.lines.push(Line {
            name: shortened(label),
            class: Line::PUBLISHED.to_owned(),
            points: system.points.iter().map(|(x, y, _)| (*x, *y)).collect(),
            dots: false,
            within_noise: Vec::new(),
        });
        values.dots.extend(system.points.iter().map(|(x, y, point)| Dot {
            x: *x,
            y: *y,
            class: Line::PUBLISHED.to_owned(),
            is_hollow: false,
            is_quoted: false,
            spread: None,
            tip: vec![
                format!("{}, {point}: {}", system.system, text(*y)),
                format!("published, on {}: not comparable", system.machine),
            ],
        }));
    }
    values
}

/// True if a published rate is that of a chart. A rate that was carried is that of producers and of
/// consumers.
fn is_same(published: &str, charted: &str) -> bool {
    fn parts(figure: &str) -> (&str, &str) {
        let prefixes = ["carried_", "produced_", "consumed_"];
        let prefix = prefixes.into_iter().find(|prefix| figure.starts_with(prefix)).unwrap_or_default();
        (prefix, &figure[prefix.len()..])
    }
    let ((prefix, unit), (charted_prefix, charted_unit)) = (parts(published), parts(charted));
    unit == charted_unit && (prefix == charted_prefix || prefix.is_empty() || charted_prefix == "carried_")
}

/// A name without its remarks in brackets and behind a comma.
fn shortened(name: &str) -> String {
    let short = name.split([',', '(', ':']).next().unwrap_or_default().trim();
    match short.chars().count() > LABEL_MAX {
        true => short.chars().take(LABEL_MAX - 1).chain(['…']).collect(),
        false => short.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::load;

    fn published(name: &str, figure: &str) -> PublishedValues {
        let workload = load(name, None).expect("built in");
        let labels: Vec<&str> = workload.points.iter().map(|point| point.label.as_str()).collect();
        let position =
            |label: &str| labels.iter().position(|known| *known == label).map(|place| place as f64);
        values(&workload, figure, position, |value| format!("{value} records/s"))
    }

    #[test]
    fn each_published_system_has_a_line() {
        let of_clouds = published("aiven-plans", "produced_records_per_s");
        let names: Vec<&str> = of_clouds.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["UpCloud", "Azure", "Google", "AWS"]);
        assert!(of_clouds.lines.iter().all(|line| line.points.len() == 3));
        assert_eq!(of_clouds.dots.len(), 12);
        assert!(of_clouds.dots[0].tip[1].contains("not comparable"), "{:?}", of_clouds.dots[0].tip);
        let of_systems = published("xd-kafka", "carried_records_per_s");
        let names: Vec<&str> = of_systems.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["Kafka's perf tools", "Spring XD 1.2"]);
    }

    #[test]
    fn figures_and_points_that_a_chart_does_not_show_are_left_out() {
        assert!(published("ibm-fast", "broker_cpu_us_per_record").lines.is_empty());
        assert!(published("xd-kafka", "produced_records_per_s").lines.is_empty(), "it was consumed");
        let workload = load("ibm-fast", None).expect("built in");
        let nowhere = values(&workload, "produced_records_per_s", |_| None, |_| String::new());
        assert!(nowhere.lines.is_empty() && nowhere.dots.is_empty());
    }
}
