//! Pages, Markdown and tables of made-up runs and of the published results.

use std::path::Path;

use super::answer::{QuotedPoints, compared, of_run};
use super::obstacles::obstacles;
use super::*;
use crate::result::{self, PointResult, Spread};

/// The published results of the lab, by name.
fn published() -> Vec<(String, RunResult)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let paths = files.map(|entry| entry.expect("it can be read").path());
    let of_lab = |path: &Path| {
        let name = path.file_name().is_some_and(|name| name.to_string_lossy().contains("-lab"));
        name && path.extension().is_some_and(|is| is == "json")
    };
    let found = paths.filter(|path| of_lab(path)).map(|path| {
        let run = result::read(&path).unwrap_or_else(|error| panic!("{error}"));
        (path.display().to_string(), run)
    });
    let found: Vec<(String, RunResult)> = found.collect();
    assert!(found.len() >= 8);
    found
}

fn quoted<'a>(run: &'a RunResult, points: &QuotedPoints) -> Vec<&'a PointResult> {
    let all = run.workloads.iter().flat_map(|one| one.points.iter().map(move |point| (one, point)));
    all.filter(|(workload, point)| points.contain(workload, point)).map(|(_, point)| point).collect()
}

/// The part of a page with its main charts.
fn main_part(page: &str) -> &str {
    let from = page.split("<div class=\"figures main\">").nth(1).unwrap_or_default();
    from.split("<div class=\"cards\">").next().unwrap_or_default()
}

#[test]
fn published_headlines_rest_on_quotable_points_that_the_charts_mark() {
    for (name, run) in published() {
        let headline = of_run(&run, &compared(&run));
        let points = quoted(&run, &headline.points);
        assert!(points.iter().all(|point| obstacles(point).is_empty()), "{name}");
        assert_eq!(points.is_empty(), !headline.answer.is_quotable, "{name}: {:?}", headline.answer);
        let page = html(&run);
        let charts = main_part(&page);
        for point in &run.workloads.iter().flat_map(|one| &one.points).collect::<Vec<_>>() {
            let subject = result::Subject::of(&point.point);
            let alone = run.workloads.iter().flat_map(|one| &one.points).count() < 2;
            let is_shown = charts.contains(&escape(&point.point.label));
            assert!(is_shown || alone || subject.value(point).is_none(), "{name}: {}", point.point.label);
        }
        if headline.answer.is_quotable {
            assert!(charts.contains("a headline rests on it"), "{name}");
        }
    }
}

#[test]
fn no_published_headline_stands_above_refused_figures_alone() {
    for (name, run) in published() {
        let all = || run.workloads.iter().flat_map(|one| &one.points);
        if all().all(|point| !obstacles(point).is_empty()) {
            assert!(!answer(&run).is_quotable, "{name}");
        }
    }
}

/// Three points of one family, and one that scales nothing.
fn with_rest() -> RunResult {
    testing::run(&[("3 brokers", 2.0), ("6 brokers", 3.0), ("9 brokers", 4.0), ("quiet at a rate", 0.5)])
}

#[test]
fn charts_mark_the_points_of_the_headline() {
    let mut run = with_rest();
    for point in &mut run.workloads[0].points[..2] {
        point.verdict.no_headline.push("the host was busy".to_owned());
    }
    let page = html(&run);
    assert!(page.contains(">At 2 of 3 points, Thalweg carries at least "), "{page}");
    let charts = main_part(&page);
    let marked = |chart: &str| chart.matches("<circle class=\"quoted\"").count();
    let rates = charts.split("<figcaption>").nth(1).expect("a chart").split("<ul class=\"key\">").next();
    assert_eq!(marked(rates.unwrap_or_default()), 4, "two systems at two points: {charts}");
    assert!(
        charts
            .contains("aria-label=\"ibm-fast · p99 until acknowledged, quiet at a rate, Thalweg: 50.0 µs\"")
    );
}

#[test]
fn points_that_scale_nothing_are_bars_marked_like_dots() {
    let page = html(&testing::run(&[("first", 2.0), ("second", 3.0)]));
    let charts = main_part(&page);
    assert_eq!(charts.matches("class=\"bar s0 d0 quoted").count(), 2, "{charts}");
    assert_eq!(charts.matches("class=\"bar s1 d0 quoted").count(), 2, "{charts}");
    assert!(charts.contains(">a headline rests on it</li>"), "{charts}");
}

#[test]
fn hollow_signs_are_explained_in_the_key_of_their_chart() {
    let mut run = with_rest();
    let keys = |run: &RunResult| {
        let page = html(run);
        main_part(&page)
            .split("<figure")
            .skip(1)
            .map(|figure| figure.contains(">not quotable</li>"))
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&run), [false, false], "none is hollow");
    run.workloads[0].points[0].verdict.no_headline.push("the host was busy".to_owned());
    assert_eq!(keys(&run), [true, false]);
    run.workloads[0].points[6].verdict.no_headline.push("the host was busy".to_owned());
    assert_eq!(keys(&run), [true, true]);
}

#[test]
fn lines_within_the_noise_are_thin() {
    let drawn = |factors: [f64; 3]| {
        let [a, b, c] = factors;
        let page = html(&testing::run(&[("3 brokers", a), ("6 brokers", b), ("9 brokers", c)]));
        let figure = main_part(&page).split("<div class=\"narrow\">").next().unwrap_or_default().to_owned();
        let thin = figure.matches("class=\"line s0 d0 within-noise\"").count();
        let full = figure.matches("class=\"line s0 d0\"").count();
        (full, thin, page.contains("no difference shown: within the noise"))
    };
    // Apache Kafka's points are equal in all cases, so that the key is there.
    assert_eq!(drawn([2.0, 3.0, 4.0]), (1, 0, true));
    assert_eq!(drawn([2.0, 2.0, 4.0]), (1, 1, true));
    assert_eq!(drawn([2.0, 2.0, 2.0]), (0, 1, true));
    let mut run = testing::run(&[("3 brokers", 2.0), ("6 brokers", 3.0)]);
    run.workloads[0].points.retain(|point| point.target == "embedded");
    assert!(!html(&run).contains("no difference shown"));
    for point in &mut run.workloads[0].points {
        point.repetitions.truncate(2);
        point.summary.figures = Spread::of_figures(&point.repetitions);
    }
    assert!(html(&run).contains("or fewer than 3 repetitions"));
}

#[test]
fn results_precede_a_refusal_and_follow_an_answer() {
    let mut run = testing::run(&[("3 brokers", 2.0), ("6 brokers", 3.0)]);
    let order = |text: &str, result: &str, sentence: &str| {
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing: {text}"));
        at(result) < at(sentence)
    };
    let said = answer(&run).sentence;
    assert!(!order(&markdown(&run), "| 3 brokers", &said));
    assert!(html(&run).contains(&format!("<h1 class=\"answer\">{said}</h1>")));
    for point in &mut run.workloads[0].points {
        point.verdict.no_headline.push("other processes used 30 % of the processors".to_owned());
    }
    let Answer { sentence, basis, .. } = answer(&run);
    assert!(sentence.starts_with("No headline") && basis.contains("other processes used 30 %"), "{basis}");
    assert!(order(&markdown(&run), "| 3 brokers", &sentence) && markdown(&run).trim_end().ends_with(&basis));
    let page = html(&run);
    assert!(order(&page, "<figcaption>", &sentence) && order(&page, &sentence, "class=\"card\""), "{page}");
    assert!(page.contains("<h1 class=\"answer grey\">ibm-fast on Thalweg and Apache Kafka</h1>"));
    // A run with one point has no chart: its card comes first.
    run.workloads[0].points.retain(|point| point.target == "embedded" && point.point.label == "3 brokers");
    let page = html(&run);
    let sentence = answer(&run).sentence;
    assert!(order(&page, "class=\"card\"", &sentence), "{page}");
}

#[test]
fn cards_show_the_point_that_bounds_the_headline() {
    let page = html(&testing::run(&[("3 brokers", 2.0), ("6 brokers", 4.0)]));
    assert!(page.contains("<p class=\"over\">ibm-fast · 3 brokers</p>"), "the weakest, not the best: {page}");
}

/// A run whose last point is not in the published report.
fn with_unreported() -> RunResult {
    let mut run = testing::run(&[("1 broker (not published)", 9.0), ("3 brokers", 2.0), ("6 brokers", 3.0)]);
    let published = |point: &str| crate::workload::PublishedFigure {
        price: String::new(),
        point: point.to_owned(),
        system: String::new(),
        hardware: String::new(),
        figure: "produced_records_per_s".to_owned(),
        value: 7.0,
        source: String::new(),
    };
    run.workloads[0].workload.published = ["3 brokers", "6 brokers"].map(published).to_vec();
    run
}

#[test]
fn charts_and_cards_lead_with_the_points_of_the_report() {
    let mut run = with_unreported();
    // One system: its headline has the highest of all points.
    run.workloads[0].points.retain(|point| point.target == "embedded");
    let page = html(&run);
    assert!(page.contains("<p class=\"over\">ibm-fast · 6 brokers</p>"), "{page}");
    let page = html(&with_unreported());
    let charts = main_part(&page);
    let at = |text: &str| charts.find(text).unwrap_or_else(|| panic!("{text} is missing: {charts}"));
    assert!(
        at("by brokers. Thalweg: from 200 at 3 to 300 at 6.") < at("1 broker (not published)"),
        "{charts}"
    );
}

#[test]
fn whiskers_stand_on_their_dots() {
    let mut run = testing::run(&[("3 brokers", 2.0), ("6 brokers", 3.0)]);
    for point in &mut run.workloads[0].points {
        point.point.load = crate::workload::Load::AddProducers { producers_max: 2, gain_min: 0.03 };
        // The repetitions at the knee carried less than the search found.
        let records_per_s = point.summary.figures["produced_records_per_s"].mean * 1.5;
        point.knee = Some(result::Knee {
            records_per_s,
            low_records_per_s: records_per_s * 0.9,
            high_records_per_s: records_per_s * 1.1,
            producers: 1,
        });
        let subject = result::Subject::of(&point.point);
        let (low, high) = subject.reach(point).expect("a reach");
        let value = subject.value(point).expect("a value");
        assert!(low < value && value < high, "{low} {value} {high}");
    }
    let page = html(&run);
    let charts = main_part(&page);
    let number = |mark: &str, name: &str| -> f64 {
        let value = mark.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {mark}"))
    };
    let mut whiskers = 0;
    for part in charts.split("<line class=\"reach").skip(1) {
        let dot = part.split("<circle class=\"figure").nth(1).expect("a dot follows");
        let (low, high, y) = (number(part, "y1"), number(part, "y2"), number(dot, "cy"));
        assert!(high <= y && y <= low, "{low} {y} {high}");
        whiskers += 1;
    }
    assert!(whiskers >= 4, "{charts}");
}

#[test]
fn a_ratio_of_figures_that_vary_is_no_headline() {
    let mut run = testing::run(&[("3 brokers", 2.0)]);
    let note = "No headline rests on it: a figure above is not quotable.";
    assert!(!html(&run).contains(note));
    let varies = result::varies("produced_records_per_s", 0.2, 3, 0.1);
    run.workloads[0].points[0].verdict.no_headline.push(varies);
    assert!(html(&run).contains(note));
}

#[test]
fn markdown_has_the_end_of_an_interval_that_is_nearer_to_one() {
    let ratio = |factor: f64| {
        let text = markdown(&testing::run(&[("3 brokers", factor)]));
        let row = text.lines().find(|line| line.starts_with("| 3 brokers")).expect("a row").to_owned();
        let explained = text.contains("≥ and ≤ are the ends of 95 % intervals that are nearer to 1.");
        (row.split(" | ").nth(6).expect("a ratio").to_owned(), explained)
    };
    assert_eq!(ratio(2.0), ("≥ 1.9".to_owned(), true));
    assert_eq!(ratio(0.5), ("≤ 0.52".to_owned(), true), "a loser");
    assert_eq!(ratio(1.0), ("0.98 to 1.0".to_owned(), false), "equals");
    let mut run = testing::run(&[("3 brokers", 2.0)]);
    assert!(!markdown(&run).contains("in brackets"));
    run.workloads[0].points[0].verdict.no_headline.push("the host was busy".to_owned());
    assert!(markdown(&run).contains("Figures in brackets may not be quoted."));
}

#[test]
fn charts_describe_what_they_show() {
    let page = html(&testing::run(&[("3 brokers", 2.0), ("6 brokers", 3.0), ("9 brokers", 0.5)]));
    let description = "aria-label=\"Records produced per second (records/s) by brokers. Thalweg: from 50 at 9 to \
                       300 at 6. Apache Kafka: always 100. Thalweg leads from 3 to 6, Apache Kafka leads at 9 (higher is \
                       better). They cross between 6 and 9.\"";
    assert!(page.contains(description), "{page}");
    for (name, run) in published() {
        for chart in html(&run).split("<svg class=\"chart\"").skip(1) {
            let label = chart.split("aria-label=\"").nth(1).and_then(|rest| rest.split('"').next());
            let label = label.expect("a label");
            assert!(
                label.contains(" by ") && label.contains(": ") && !label.contains("NaN"),
                "{name}: {label}"
            );
        }
    }
}

#[test]
fn a_search_marks_the_knees_that_are_compared() {
    let mut run = testing::run(&[("3 brokers", 2.0)]);
    for point in &mut run.workloads[0].points {
        point.point.load = crate::workload::Load::AddProducers { producers_max: 2, gain_min: 0.03 };
        let knee = point.summary.figures["produced_records_per_s"].mean;
        point.steps = (1..=2)
            .map(|producers| result::Step {
                producers,
                asked_records_per_s: None,
                records_per_s: knee,
                p99_us: None,
                fell_behind: false,
                broker_cpu_share: 0.5,
                producer_cpu_share: 0.2,
            })
            .collect();
        point.knee = Some(result::Knee {
            records_per_s: knee,
            low_records_per_s: knee,
            high_records_per_s: knee,
            producers: 1,
        });
    }
    assert!(main_part(&html(&run)).contains(">knee: a headline rests on it</li>"));
    run.workloads[0].points[0].verdict.no_headline.push("the host was busy".to_owned());
    let page = html(&run);
    assert!(main_part(&page).contains(">knee</li>") && !page.contains("a headline rests on it"));
}

#[test]
fn batches_have_a_column_and_a_dash_names_the_driver_without_them() {
    let measured = |driver, batches: Option<(f64, f64)>| {
        let mut point = testing::measured(&result::testing::point(), "embedded", 0, &[100.0, 101.0]);
        point.driver = driver;
        for repetition in &mut point.repetitions {
            repetition.figures.records_per_batch = batches.map(|(records, _)| records);
            repetition.figures.bytes_per_batch = batches.map(|(_, bytes)| bytes);
        }
        point.summary.figures = Spread::of_figures(&point.repetitions);
        point
    };
    let (own, java) = (crate::worker::Driver::Thalweg, crate::worker::Driver::Java);
    let page = |points| html(&testing::run_of(points));
    let both = page(vec![measured(own, Some((118.0, 16_000.0))), measured(java, None)]);
    assert!(both.contains(">records per batch<") && both.contains(">bytes per batch<"), "{both}");
    assert!(both.contains("118 <small>") && both.contains(&quantity::bytes(16_000.0)), "{both}");
    let reason = "Kafka&#39;s tool prints no number of batches";
    assert_eq!(both.matches(&format!("title=\"{reason}\"")).count(), 2, "{both}");
    assert!(both.contains(&format!("–: {reason}.")), "{both}");
    assert!(page(vec![measured(java, None)]).contains(reason));
    // A result of an earlier version has no such columns.
    assert!(!page(vec![measured(own, None)]).contains("per batch"));
}
