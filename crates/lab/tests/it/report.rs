//! The page of a result, as text.

use thalweg_lab::report::{self, StepRate};

use crate::fixture;

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = report::html(&fixture::run(7));
    for forbidden in ["<script", "<link", "<img", "<iframe", "src=", "url(", "@import", "http:", "https:"] {
        assert!(!page.contains(forbidden), "the page holds {forbidden}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_figure_that_may_not_be_quoted_is_grey_with_its_reason() {
    let mut run = fixture::run(7);
    let workload = &mut run.workloads[0];
    workload.points.retain(|point| point.target == "apache-kafka" && point.point.label == "6 brokers");
    let rate = workload.points[0].summary.figures["produced_records_per_s"].mean;
    run.workloads.truncate(1);
    let headlines =
        |page: &str| page.split("<section class=\"workload\"").next().unwrap_or_default().to_owned();
    let refused = headlines(&report::html(&run));
    let rate = thalweg_lab::quantity::short(rate);
    assert!(refused.contains(&format!("<b class=\"big grey\">{rate}</b>")), "{refused}");
    let badge = "<span class=\"badge\" title=\"the spread over 3 repetitions is 14 %, more than 10 %\">not quotable</span>";
    assert!(refused.contains(badge), "on hover: {refused}");
    assert!(
        refused.contains("<span class=\"why\">the spread over 3 repetitions is 14 %"),
        "in text: {refused}"
    );
    assert!(refused.contains("No figure of Apache Kafka may be quoted from this run."), "{refused}");
    run.workloads[0].points[0].verdict.no_headline.clear();
    let quoted = headlines(&report::html(&run));
    assert!(quoted.contains(&format!("<b class=\"big\">{rate}</b>")), "{quoted}");
    assert!(quoted.contains(&format!("Apache Kafka carries {rate} records per second.")), "{quoted}");
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
    let row = |text: &str| text.lines().find(|line| line.starts_with("| 3 ")).expect("a row").to_owned();
    assert!(
        !row(&quoted).contains('(') && row(&quoted).contains("| ≥ 1.") && row(&quoted).contains("| ≤ 0."),
        "{quoted}"
    );
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
    assert!(page.contains("title=\"the evidence indicates lost records\">not quotable"));
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
    assert!(page.contains("not quotable</span><span class=\"why\">the evidence indicates lost records"));
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
    assert!(report::html(&run).contains("title=\"broker-1 died\">not quotable"));
    run.workloads.clear();
    assert!(report::html(&run).contains("Nothing was measured."));
}

#[test]
fn unreadable_histograms_are_reported_and_not_drawn() {
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
    let step = |label: &str, records_per_s, half_interval| StepRate {
        label: label.to_owned(),
        records_per_s,
        half_interval,
        is_quotable: true,
    };
    let steps = [step("out of the box", 410_000.0, 9_000.0), step("16 partitions", 800_000.0, 20_000.0)];
    let bars = report::cumulative_bars("Step by step", &steps);
    assert!(
        bars.contains("Step by step")
            && bars.contains("16 partitions")
            && bars.contains("+95.1 %")
            && bars.contains("800,000"),
        "{bars}"
    );
}

#[test]
fn a_workload_of_steps_has_their_chart_for_each_target() {
    let mut run = fixture::run(7);
    let title = "Records per second, step by step: Thalweg";
    assert!(!report::html(&run).contains(title));
    run.workloads.iter_mut().for_each(|workload| workload.workload.has_steps = true);
    let page = report::html(&run);
    assert!(page.contains(title) && page.contains("step by step: Apache Kafka"), "no chart of steps");
}

#[test]
fn page_table_and_markdown_begin_with_the_same_sentence() {
    let run = fixture::run(7);
    let said = report::answer(&run);
    assert!(said.sentence.starts_with("At 11 of 14 comparisons, Thalweg carries at least 1."), "{said:?}");
    assert!(said.sentence.contains(" times what Apache Kafka does"), "{said:?}");
    let page = report::html(&run);
    let first =
        page.split("<h1").nth(1).and_then(|rest| rest.split_once('>')).map(|(_, rest)| rest.to_owned());
    assert!(first.is_some_and(|rest| rest.starts_with(&format!("{}</h1>", said.sentence))));
    let table = thalweg_lab::terminal::table(&run, false, None);
    assert!(table.trim_start().starts_with(&said.sentence), "{table}");
    assert!(report::markdown(&run).starts_with(&format!("**{}**", said.sentence)));
}

#[test]
fn systems_have_their_names() {
    let run = fixture::run(7);
    let rendered = report::html(&run);
    // The command that repeats the run names targets as arguments do.
    let shown = rendered.replace("<dd>embedded</dd>", "").replace("<dd>apache-kafka</dd>", "");
    for target in ["embedded", "apache-kafka"] {
        assert!(!shown.contains(target), "{target} is on the page");
        assert!(!report::markdown(&run).contains(target));
    }
}

#[test]
fn the_main_chart_has_what_is_scaled_on_its_axis() {
    let mut run = fixture::run(7);
    run.workloads.truncate(2);
    let page = report::html(&run);
    let main = page
        .split("figures main")
        .nth(1)
        .and_then(|rest| rest.split("class=\"cards\"").next())
        .expect("charts");
    assert!(
        main.contains("ibm-fast · Records per second, produced and consumed")
            && main.contains(">brokers</text>"),
        "{main}"
    );
    assert!(
        main.contains("ibm-payload · MB produced per second")
            && main.contains(">record size in bytes, logarithmic</text>")
    );
    assert!(main.contains("<text") && main.contains(">Thalweg, 3 brokers: "), "values on hover");
    assert!(main.contains(">not quotable: the spread over 3"), "and why one may not be quoted");
    run.workloads.remove(1);
    assert!(report::html(&run).contains("figure class=\"alone\""), "one chart takes the page's width");
}

#[test]
fn a_short_run_has_a_time_axis_of_parts_of_a_second() {
    let mut run = fixture::run(7);
    run.workloads.truncate(1);
    for repetition in run.workloads[0].points.iter_mut().flat_map(|point| &mut point.repetitions) {
        let began_at_us = repetition.began_at_us;
        repetition.samples.clear();
        for (place, interval) in (1..).zip(repetition.produced.iter_mut().chain(&mut repetition.consumed)) {
            interval.at_us = began_at_us + place * 10_000;
        }
    }
    let page = report::html(&run);
    let chart = page.split("Produced: records per second").nth(2).expect("a chart");
    let chart = chart.split("</svg>").next().expect("an end");
    assert!(chart.contains(">0.5</text>"), "{chart}");
    assert_eq!(chart.matches(">0</text>").count(), 2, "one on each axis: {chart}");
}
