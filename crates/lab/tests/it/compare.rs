//! Results in files, and their comparison.

use std::path::Path;

use thalweg_lab::result::{
    Judgement, Pairing, PointName, ReadError, RunResult, SCHEMA, compare, read, write,
};
use thalweg_lab::terminal;
use thalweg_lab::workload::Measure;

use crate::fixture;

fn targets() -> Pairing {
    Pairing::Targets { a: "apache-kafka".to_owned(), b: "embedded".to_owned() }
}

fn refusal(a: &RunResult, b: &RunResult) -> String {
    compare(a, b, &Pairing::SameTarget).expect_err("not comparable").to_string()
}

#[test]
fn targets_of_one_run_are_compared() {
    let run = fixture::run(7);
    let comparison = compare(&run, &run, &targets()).expect("one machine, one run");
    let first = &comparison.pairs[0];
    assert_eq!((first.a.target.as_str(), first.b.target.as_str()), ("apache-kafka", "embedded"));
    let rate = first.ratios.iter().find(|ratio| ratio.figure == "produced_records_per_s").expect("produced");
    let (low, high) = rate.interval.expect("three repetitions");
    assert_eq!(rate.judgement, Judgement::Faster);
    assert!((1.7..2.1).contains(&rate.ratio) && low < rate.ratio && rate.ratio < high, "{rate:?}");
    let failed: Vec<&PointName> = comparison.refused.iter().map(|refused| &refused.a).collect();
    assert!(failed.len() == 1 && failed[0].label == "512,000 B", "{failed:?}");
    assert!(comparison.refused[0].differences[0].to_string().contains("broker-1 died"));
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let run = fixture::run(7);
    let comparison = compare(&run, &run, &Pairing::SameTarget).expect("the same");
    for ratio in comparison.pairs.iter().flat_map(|pair| &pair.ratios) {
        assert_eq!((ratio.ratio, ratio.judgement), (1.0, Judgement::NoDifference), "{ratio:?}");
    }
    assert!(comparison.only_in_a.is_empty() && comparison.only_in_b.is_empty());
}

#[test]
fn clients_that_were_placed_otherwise_have_no_ratios() {
    let (mut a, mut b) = (fixture::run(7), fixture::run(8));
    b.machine = a.machine.clone();
    for (run, rule) in [(&mut a, "both"), (&mut b, "apart")] {
        run.agents = vec![thalweg_lab::result::AgentInfo::default()];
        run.agents_place = Some(rule.to_owned());
    }
    let comparison = compare(&a, &b, &Pairing::SameTarget).expect("the same points");
    assert!(comparison.pairs.iter().all(|pair| pair.ratios.is_empty()), "{:?}", comparison.machines);
    let text = terminal::comparison(&comparison, false, None);
    assert!(text.contains("agents_place: both in the first, apart in the second"), "{text}");
}

#[test]
fn other_machines_of_brokers_have_no_ratios() {
    let watched = |memory_bytes: u64, result: &RunResult| {
        let machine =
            thalweg_lab::result::Machine { memory_bytes, ..thalweg_lab::result::Machine::default() };
        let mut result = result.clone();
        result.broker_machines =
            vec![thalweg_lab::result::AgentInfo { machine, ..thalweg_lab::result::AgentInfo::default() }];
        result
    };
    let (a, mut b) = (fixture::run(1), fixture::run(2));
    b.machine = a.machine.clone();
    let differences = |a: &RunResult, b: &RunResult| {
        let comparison = compare(a, b, &Pairing::SameTarget).expect("the same points");
        let fields = comparison.machines.iter().map(|difference| difference.field.clone());
        fields.collect::<Vec<String>>()
    };
    assert_eq!(differences(&watched(8 << 30, &a), &watched(8 << 30, &b)), [""; 0]);
    let found = differences(&watched(8 << 30, &a), &watched(4 << 30, &b));
    assert_eq!(found, ["broker_machines[0].machine.memory_bytes"]);
    // Brokers that were not watched may be on any machine.
    assert_eq!(differences(&watched(8 << 30, &a), &b), [""; 0]);
}

#[test]
fn times_between_unknown_clocks_have_no_ratio() {
    let (a, mut b) = (fixture::run(7), fixture::run(8));
    b.machine = a.machine.clone();
    let figures = |a: &RunResult, b: &RunResult| {
        let comparison = compare(a, b, &Pairing::SameTarget).expect("the same points");
        let ratios = comparison.pairs.into_iter().flat_map(|pair| pair.ratios);
        ratios.map(|ratio| ratio.figure).collect::<std::collections::BTreeSet<String>>()
    };
    assert!(figures(&a, &b).contains("end_to_end_p99_us"));
    for point in b.workloads.iter_mut().flat_map(|workload| &mut workload.points) {
        let text =
            "the clocks of the agents a:7000 and b:7000 are known to 5.00 ms together, more than a tenth";
        point.verdict.no_headline.push(text.to_owned());
    }
    let left = figures(&a, &b);
    assert!(left.contains("produced_records_per_s") && left.contains("acknowledge_p99_us"), "{left:?}");
    assert!(!left.iter().any(|figure| figure.starts_with("end_to_end")), "{left:?}");
}

#[test]
fn figures_of_another_machine_stand_beside_each_other_without_ratios() {
    let (a, mut b) = (fixture::run(7), fixture::run(8));
    b.machine.cpus = 2;
    b.machine.facts.insert("clock source".to_owned(), "hpet".to_owned());
    let comparison = compare(&a, &b, &Pairing::SameTarget).expect("the same points");
    assert!(comparison.pairs.iter().all(|pair| pair.ratios.is_empty() && !pair.figures.is_empty()));
    let rate = &comparison.pairs[0].figures[0];
    assert_eq!(rate.figure, "produced_records_per_s");
    assert!(rate.a.count == 3 && rate.b.count == 3 && rate.a != rate.b, "{rate:?}");
    let text = terminal::comparison(&comparison, false, None);
    assert!(text.contains("There are no ratios, because the machines differ:"), "{text}");
    assert!(!text.contains("95 % interval "), "{text}");
    assert!(text.contains("machine.cpus: 4 in the first, 2 in the second"), "{text}");
    assert!(
        text.contains("machine.facts.clock source: \"tsc\" in the first, \"hpet\" in the second"),
        "{text}"
    );
}

#[test]
fn other_settings_scales_and_sizes_are_refused_point_by_point() {
    let (a, mut b) = (fixture::run(7), fixture::run(8));
    b.machine = a.machine.clone();
    b.workloads[0].workload.scale = 0.5;
    b.workloads[1].points[0].point.records.size_bytes = 999;
    b.workloads[1].points[1].point.producers.properties.insert("acks".to_owned(), "all".to_owned());
    let comparison = compare(&a, &b, &Pairing::SameTarget).expect("other points are comparable");
    let reasons: Vec<String> =
        comparison.refused.iter().flat_map(|refused| &refused.differences).map(ToString::to_string).collect();
    for reason in [
        "workload.scale: 0.1 in the first, 0.5 in the second",
        "point.records.size_bytes: 1024 in the first, 999 in the second",
        "point.producers.properties.acks: \"1\" in the first, \"all\" in the second",
    ] {
        assert!(reasons.iter().any(|known| known == reason), "{reason} is not among {reasons:?}");
    }
    assert!(comparison.pairs.iter().all(|pair| pair.a.workload != "ibm-fast"));
}

#[test]
fn results_without_a_common_point_are_refused_by_name() {
    let (mut a, mut b) = (fixture::run(7), fixture::run(7));
    a.workloads.truncate(1);
    b.workloads.drain(..3);
    let text = refusal(&a, &b);
    assert!(text.contains("ibm-fast · 3 brokers") && text.contains("aiven-saturation"), "{text}");
}

#[test]
fn versions_that_differ_are_reported_and_compared() {
    let (a, mut b) = (fixture::run(7), fixture::run(7));
    b.targets.get_mut("embedded").expect("a target").version = "thalweg 0.2.0".to_owned();
    let comparison = compare(&a, &b, &Pairing::SameTarget).expect("a version is what may be compared");
    let text = terminal::comparison(&comparison, false, None);
    assert!(text.contains("targets.embedded.version: \"thalweg 0.1.0 (dfc02f0)\" in the first"), "{text}");
    assert!(text.contains("no difference beyond the noise") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn too_few_repetitions_are_reported() {
    let mut run = fixture::run(7);
    run.workloads.iter_mut().flat_map(|w| &mut w.points).for_each(|point| point.repetitions.truncate(2));
    let comparison = compare(&run, &run, &targets()).expect("comparable");
    assert!(comparison.pairs.iter().flat_map(|pair| &pair.ratios).all(|ratio| ratio.interval.is_none()));
    assert!(terminal::comparison(&comparison, false, None).contains("not judged: fewer than 3 repetitions"));
}

#[test]
fn a_result_comes_back_as_it_was_written_and_leaves_nothing_beside() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("result.json");
    std::fs::write(&path, "an older one").expect("written");
    let run = fixture::run(7);
    write(&path, &run).expect("written");
    // Not assert_eq, which would print two results of some megabytes each.
    assert!(read(&path).expect("readable") == run);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1);
    let missing = dir.path().join("no/such/result.json");
    assert!(write(&missing, &run).expect_err("no directory").to_string().contains("no/such/result.json"));
}

#[test]
fn a_result_of_the_first_schema_is_read() {
    let mut run = fixture::run(7);
    // Drains of this version were timed in another way, which a unit test shows.
    run.workloads[2].points.retain(|point| point.point.measure != Measure::Drain);
    run.schema = "thalweg-lab-result/1".to_owned();
    let mut document = serde_json::to_value(&run).expect("plain data");
    for (number, workload) in run.workloads.iter().enumerate() {
        for (place, point) in workload.points.iter().enumerate() {
            for (taken, repetition) in point.repetitions.iter().enumerate() {
                let written = &mut document["workloads"][number]["points"][place]["repetitions"][taken];
                // Its series were rows.
                written["produced"] = serde_json::to_value(&repetition.produced).expect("plain data");
                written["consumed"] = serde_json::to_value(&repetition.consumed).expect("plain data");
                written["samples"] = serde_json::to_value(&repetition.samples).expect("plain data");
                assert!(written["produced"].is_array());
            }
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("result.json");
    std::fs::write(&path, document.to_string()).expect("written");
    run.schema = SCHEMA.to_owned();
    assert!(read(&path).expect("readable") == run);
    // Its figures can be compared with those of today.
    let pairs = compare(&run, &fixture::run(7), &targets()).expect("comparable").pairs;
    assert!(!pairs.is_empty());
}

fn written(dir: &Path, change: impl FnOnce(&mut serde_json::Value)) -> ReadError {
    let mut document = serde_json::to_value(fixture::run(7)).expect("plain data");
    change(&mut document);
    let path = dir.join("changed.json");
    std::fs::write(&path, document.to_string()).expect("written");
    read(&path).expect_err("refused")
}

#[test]
fn a_result_that_cannot_be_read_names_file_and_field() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = written(dir.path(), |document| {
        document["workloads"][1]["points"][2]["repetitions"][0]["figures"]["drain_s"] = "soon".into();
    });
    let text = error.to_string();
    assert!(text.contains("changed.json: workloads[1].points[2].repetitions[0].figures.drain_s: "), "{text}");
    let error = written(dir.path(), |document| document["schema"] = "thalweg-lab-result/5".into());
    assert!(matches!(error, ReadError::Newer { .. }), "{error}");
    let error = written(dir.path(), |document| document["schema"] = 7.into());
    assert!(matches!(error, ReadError::NotAResult { .. }), "{error}");
    std::fs::write(dir.path().join("torn.json"), "{\"schema\": ").expect("written");
    let error = read(&dir.path().join("torn.json")).expect_err("torn");
    assert!(
        error.to_string().contains("torn.json: is not JSON") && error.to_string().contains("line 1"),
        "{error}"
    );
    assert!(matches!(read(&dir.path().join("none.json")), Err(ReadError::Unreadable { .. })));
}

#[test]
fn tables_name_what_may_not_be_quoted_and_pass_no_escape_on() {
    let mut run = fixture::run(7);
    run.workloads[0].points[0].point.label = "red \u{1b}[31m".to_owned();
    let text = terminal::table(&run, false, None);
    assert!(!text.contains('\u{1b}'));
    assert!(text.contains("[1] no headline: the spread over 3 repetitions is 14 %"), "{text}");
    assert!(text.contains("[1] failed: broker-1 died"), "{text}");
    assert!(terminal::table(&run, true, None).contains("\u{1b}[1m"));
}
