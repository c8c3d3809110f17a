//! The page of a result, as text.

use thalweg_lab::report;

use crate::fixture;

#[test]
fn the_page_asks_for_nothing_and_runs_nothing() {
    let page = report::html(&fixture::run(7));
    for forbidden in ["<script", "<link", "<img", "<iframe", "src=", "url(", "@import", "http:", "https:"] {
        assert!(!page.contains(forbidden), "the page holds {forbidden}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_figure_that_may_not_be_quoted_gives_way_to_its_reason() {
    let mut run = fixture::run(7);
    let workload = &mut run.workloads[0];
    workload.points.retain(|point| point.target == "apache-kafka" && point.point.label == "6 brokers");
    let rate = workload.points[0].summary.figures["produced_records_per_s"].mean;
    run.workloads.truncate(1);
    let headlines =
        |page: &str| page.split("<section class=\"workload\"").next().unwrap_or_default().to_owned();
    let refused = headlines(&report::html(&run));
    assert!(refused.contains("No headline: the spread over 3 repetitions is 14 %"), "{refused}");
    assert!(!refused.contains(&thalweg_lab::quantity::short(rate)), "{refused}");
    run.workloads[0].points[0].verdict.no_headline.clear();
    assert!(headlines(&report::html(&run)).contains(&thalweg_lab::quantity::short(rate)));
}

#[test]
fn in_markdown_what_may_not_be_quoted_is_in_brackets_and_without_ratio() {
    let mut run = fixture::run(7);
    run.workloads.truncate(1);
    let points = &mut run.workloads[0].points;
    let driver = points[0].driver;
    points.retain(|point| point.driver == driver && point.point.label == "3 brokers");
    run.workloads[0].points.iter_mut().for_each(|point| point.verdict.no_headline.clear());
    let quoted = report::markdown(&run);
    let row = |text: &str| text.lines().nth(2).expect("head, rule, row").to_owned();
    assert!(!row(&quoted).contains('(') && !row(&quoted).ends_with("|  |  |"), "{quoted}");
    run.workloads[0].points[0].verdict.no_headline.push("the run is too short".to_owned());
    run.workloads[0].points[0].point.label = "3 | brokers".to_owned();
    run.workloads[0].points[1].point.label = "3 | brokers".to_owned();
    let refused = report::markdown(&run);
    assert!(row(&refused).starts_with("| 3 \\| brokers |"), "{refused}");
    assert!(row(&refused).contains('(') && row(&refused).ends_with("|  |  |"), "{refused}");
}

#[test]
fn records_that_were_lost_stand_out_and_forbid_the_headline() {
    let mut run = fixture::run(7);
    for point in &mut run.workloads[0].points {
        for repetition in &mut point.repetitions {
            repetition.evidence.faults = vec!["1,234 acknowledged records are not in the log".to_owned()];
        }
    }
    run.workloads.truncate(1);
    let page = report::html(&run);
    assert!(page.contains("✗ 1,234 acknowledged records are not in the log"));
    assert!(page.contains("No headline: the evidence indicates lost records"));
    assert!(!page.contains("✓ quotable"));
}

#[test]
fn a_single_lost_record_forbids_the_headline() {
    let mut run = fixture::run(7);
    let point = &mut run.workloads[0].points[0];
    let check = point.repetitions[2].evidence.check.as_mut().expect("was asked for");
    check.lost = 1;
    assert!(!report::html(&fixture::run(7)).contains("indicates lost records"));
    let page = report::html(&run);
    assert!(page.contains("Affected results: 1."));
    assert!(page.contains("✗ not quotable</span><br>the evidence indicates lost records"));
    assert!(page.contains("<span class=\"bad\">✗ 1</span>"));
}

#[test]
fn an_empty_run_and_a_run_of_failures_have_their_pages() {
    let mut run = fixture::run(7);
    for point in run.workloads.iter_mut().flat_map(|workload| &mut workload.points) {
        (point.repetitions, point.summary) = (Vec::new(), Default::default());
        (point.steps, point.knee) = (Vec::new(), None);
        point.failure = Some("broker-1 died".to_owned());
    }
    assert!(report::html(&run).contains("No headline: broker-1 died"));
    run.workloads.clear();
    assert!(report::html(&run).contains("Nothing was measured."));
}

#[test]
fn unreadable_histograms_are_said_and_not_drawn() {
    let mut run = fixture::run(7);
    let summary = &mut run.workloads[0].points[0].summary;
    summary.acknowledge_latency.as_mut().expect("was measured").hdr_v2_deflate_base64 = "AAAA".to_owned();
    assert!(report::html(&run).contains("is no HdrHistogram V2"));
}

#[test]
fn figures_that_are_no_numbers_break_no_drawing() {
    let mut run = fixture::run(7);
    for point in run.workloads.iter_mut().flat_map(|workload| &mut workload.points) {
        for spread in point.summary.figures.values_mut() {
            (spread.mean, spread.max, spread.variation) = (f64::NAN, f64::INFINITY, f64::NAN);
        }
        for step in &mut point.steps {
            (step.records_per_s, step.broker_cpu_share) = (f64::NAN, f64::INFINITY);
        }
    }
    let page = report::html(&run);
    assert!(!page.contains("NaN") && !page.contains("inf%"), "a drawing holds what is no number");
}

#[test]
fn a_study_is_drawn_step_by_step() {
    let steps = [("out of the box", 410_000.0, 9_000.0), ("16 partitions", 800_000.0, 20_000.0)];
    let bars = report::cumulative_bars(&steps);
    assert!(bars.contains("16 partitions") && bars.contains("+95.1 %") && bars.contains("800,000"), "{bars}");
}
