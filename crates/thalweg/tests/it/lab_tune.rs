//! `thalweg lab tune` and `lab run --look-inside`: studies of what limits real brokers.

use std::path::PathBuf;
use std::sync::Mutex;

use thalweg_lab::BoxFuture;
use thalweg_lab::result::State;
use thalweg_lab::run::{Options, interrupt};
use thalweg_lab::target::{KafkaOptions, TargetSpec};
use thalweg_lab::terminal::Progress;
use thalweg_lab::tune::{self, Means, Operator, OperatorReply, Study};
use thalweg_lab::worker::Driver;
use thalweg_lab::workload;

use super::lab::{LabDirectory, assert_ends_with, place, ran, text, workload as small};

#[test]
fn a_study_spreads_the_data_over_the_named_directories_and_leaves_nothing_there() {
    let _place = place();
    let lab = LabDirectory::with(&small(0.3, ""));
    let dirs = ["disk-1", "disk-2"].map(|name| lab.dir.path().join(name));
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
    let [first, second] = dirs.each_ref().map(|dir| dir.display().to_string());
    let listed = format!("{first},{second}");
    let arguments = ["tune", "small.toml", "--out", "out", "--settings", "log.dirs", "--log-dirs", &listed];
    assert_ends_with(&ran(lab.command(&arguments)), 0);
    let study = std::fs::read_to_string(lab.out().join("tune.json")).expect("a result");
    let study: Study = serde_json::from_str(&study).expect("a study");
    assert_eq!(study.state, State::Complete);
    let steps: Vec<&str> = study.steps.iter().map(|step| step.setting.as_str()).collect();
    assert_eq!(steps, ["log.dirs"], "one setting has no remainder");
    let tried = &study.steps[0].tried[0];
    assert_eq!((tried.label.clone(), tried.failure.as_ref()), (format!("log.dirs={listed}"), None));
    assert_eq!((tried.records_per_s.len(), tried.before_records_per_s.len()), (3, 3));
    assert!(tried.acknowledge_p99_us.is_some_and(|us| us > 0.0), "{tried:?}");
    for dir in &dirs {
        assert_eq!(std::fs::read_dir(dir).expect("it is there").count(), 0, "{}", dir.display());
    }
    let page = std::fs::read_to_string(lab.out().join("tune.html")).expect("a page");
    assert!(page.contains("<th>p99</th>") && page.contains(&first), "{page}");
    lab.assert_nothing_is_left();
}

#[test]
fn a_study_refuses_what_it_cannot_try_before_anything_is_made() {
    let lab = LabDirectory::with(&small(0.3, ""));
    let refusals = [
        ("--settings batch.size,batches", "--settings batches is no setting of a study: use partitions,"),
        ("--log-dirs /no/such/directory", "--log-dirs /no/such/directory is no directory"),
        ("--log-dirs /tmp --bootstrap 127.0.0.1:1", "--log-dirs is for brokers that the lab starts"),
        ("--manual", "--manual asks you for changes: run it on a terminal"),
    ];
    for (arguments, message) in refusals {
        let arguments = ["tune", "small.toml", "--out", "out"].into_iter().chain(arguments.split(' '));
        let output = ran(lab.command(&arguments.collect::<Vec<_>>()));
        assert_ends_with(&output, 2);
        let error = text(&output.stderr);
        assert!(error.contains(message), "{error}");
        assert!(!lab.out().exists(), "nothing is made for nothing");
    }
}

#[test]
fn a_look_inside_has_the_threads_of_broker_and_clients() {
    let _place = place();
    let lab = LabDirectory::with(&small(2.0, ""));
    assert_ends_with(&ran(lab.run(&["--repetitions", "1", "--look-inside"])), 0);
    let profile = lab.point().repetitions.remove(0).profile.expect("it was asked for");
    for name in ["broker-1", "producer-0"] {
        let of_process = profile.processes.iter().find(|process| process.name == name).expect("a process");
        let busy: f64 = of_process.threads.iter().map(|thread| thread.user_s + thread.system_s).sum();
        assert!(busy > 0.0, "{name}: {of_process:?}");
    }
    let broker = &profile.processes[0];
    let waits = broker.waits.as_ref().expect("the broker's metrics were read");
    let served = waits.places.iter().find(|wait| wait.place == "Produce: served here");
    assert!(served.is_some_and(|wait| wait.count > 0 && wait.waited_s > 0.0), "{waits:?}");
    assert!((1.0..60.0).contains(&waits.seconds), "{waits:?}");
    assert!(!profile.missing.iter().any(|what| what.contains("locks of broker-1")), "{profile:?}");
    // Where stacks may not be recorded, the reason is in the result.
    assert!(broker.cpu.is_some() || !profile.missing.is_empty(), "{profile:?}");
    let page = std::fs::read_to_string(lab.out().join("report.html")).expect("a page");
    assert!(page.contains("gave up its processor"), "no section about threads");
    assert!(page.contains("Waits in broker-1"), "no section about waits");
    lab.assert_nothing_is_left();
}

/// An operator who makes and undoes the first change, and skips the others.
#[derive(Default)]
struct FirstOnly(Mutex<Vec<String>>);

impl Operator for FirstOnly {
    fn ask<'a>(&'a self, text: &'a str) -> BoxFuture<'a, OperatorReply> {
        let mut asked = self.0.lock().expect("no panic");
        asked.push(text.to_owned());
        let is_done = asked.len() == 1 || text.contains("To undo it");
        let reply = if is_done { OperatorReply::Done } else { OperatorReply::Skip };
        Box::pin(std::future::ready(reply))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_makes_a_change_and_undoes_what_did_not_help() {
    let work = tempfile::tempdir().expect("a directory");
    let file = work.path().join("small.toml");
    std::fs::write(&file, small(0.3, "")).expect("written");
    let loaded = workload::load(file.to_str().expect("UTF-8"), None).expect("a workload");
    let mut base = loaded.points[0].clone();
    base.repetitions = 3;
    let options = Options {
        workloads: Vec::new(),
        targets: vec![TargetSpec::Embedded, TargetSpec::Embedded],
        by_workload: false,
        drivers: vec![Driver::Thalweg],
        precision: None,
        seed: 1,
        work_dir: work.path().join("work"),
        kafka: KafkaOptions::default(),
        binary: PathBuf::from(env!("CARGO_BIN_EXE_thalweg")),
        agents: None,
        broker_agents: None,
        look_inside: false,
        partial: None,
        arguments: Vec::new(),
        lab_version: "a test".to_owned(),
    };
    let (operator, no_setting) = (FirstOnly::default(), ["none".to_owned()]);
    let means = Means { log_dirs: &[], settings: &no_setting, operator: Some(&operator) };
    let (_interrupter, heard) = interrupt();
    let progress = Progress::lines(1, std::io::sink());
    let study = tune::study(&options, &base, means, &heard, &progress, &|_| ()).await;
    assert_eq!(study.state, State::Complete, "{study:?}");
    let asked = operator.0.into_inner().expect("no panic");
    assert!(asked[0].contains("sysctl -w vm.dirty_background_ratio=5 vm.dirty_ratio=60"), "{asked:?}");
    let step = &study.steps[0];
    assert_eq!(step.setting, "vm.dirty_ratio");
    let note = step.note.as_deref().unwrap_or_default();
    assert!(note.starts_with("made by hand; measured before and after, not in turns"), "{note}");
    assert_eq!((step.tried[0].before_records_per_s.len(), step.tried[0].records_per_s.len()), (3, 3));
    // Nothing was changed, so that only noise can have helped.
    let undone = asked.iter().any(|text| text.contains("To undo it") && text.contains("vm.dirty_ratio="));
    assert_eq!(undone, !step.tried[0].kept, "{asked:?}");
    assert_eq!((note.ends_with("; undone"), step.undo.is_none()), (undone, undone), "{step:?}");
    assert_eq!(study.steps.len(), 1, "skipped steps leave no trace: {:?}", study.steps);
}
