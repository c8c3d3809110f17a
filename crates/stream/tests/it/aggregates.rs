//! Aggregates count every message, whatever the order in which sources and partitions are read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thalweg_stream::OnError;
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{Figures, RunOptions, start};

use super::{Lines, options};

/// Runs a text to its end.
fn run_with(text: &str, on_error: OnError) -> Figures {
    let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { on_error, ..options(Arc::new(Lines::default())) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut running = start(&plan, &options).unwrap_or_else(|error| panic!("{error}"));
        running.ended().await.unwrap_or_else(|error| panic!("{error}"));
        running.figures()
    })
}

/// Writes messages with the times of these seconds.
fn write(path: &Path, seconds: impl IntoIterator<Item = u64>) {
    let lines: String = seconds.into_iter().map(|second| format!("{{\"t\": {}}}\n", second * 1000)).collect();
    std::fs::write(path, lines).expect("it can be written");
}

/// The counts of the windows in a file, by the start in milliseconds.
fn counts(path: &Path) -> BTreeMap<u64, u64> {
    let text = std::fs::read_to_string(path).expect("it is there");
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let window: Value = serde_json::from_str(line).expect("it is JSON");
        let number = |name: &str| window[name].as_u64().expect("a number");
        *counts.entry(number("window_start")).or_default() += number("count");
    }
    counts
}

#[test]
fn a_slow_source_of_a_named_destination_loses_nothing_to_a_fast_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    write(&path("fast"), 0..2000);
    write(&path("slow"), 0..300);
    let text = format!(
        "file --path={} | topic:t\nfile --path={} | rate-limit --rate=1000 | topic:t\n\
         topic:t > aggregate --window=100s --time=payload.t | file --path={}",
        path("fast").display(),
        path("slow").display(),
        path("out").display()
    );
    let figures = run_with(&text, OnError::Fail);
    assert_eq!(figures.streams[2].stages[1].findings["late"], 0);
    let expected = (0..20).map(|window| (window * 100_000, if window < 3 { 200 } else { 100 }));
    assert_eq!(counts(&path("out")), expected.collect());
}

#[test]
fn late_messages_are_counted_and_go_to_the_dead_letters() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    write(&path("in"), [0, 1, 50, 2, 51, 3]);
    let text = format!(
        "file --path={} | aggregate --window=10s --time=payload.t | file --path={}",
        path("in").display(),
        path("out").display()
    );
    for on_error in [OnError::Fail, OnError::Skip, OnError::DeadLetter(path("letters"))] {
        let _ = std::fs::remove_file(path("out"));
        let figures = run_with(&text, on_error);
        let stream = &figures.streams[0];
        assert_eq!((&stream.stages[1].findings["late"], stream.bad), (&Value::from(2), 0));
        assert_eq!(counts(&path("out")), [(0, 2), (50_000, 2)].into());
    }
    let letters = std::fs::read_to_string(path("letters")).expect("it is there");
    let letters: Vec<Value> =
        letters.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let values: Vec<_> = letters.iter().map(|letter| letter["value"].as_str().expect("text")).collect();
    assert_eq!(values, ["{\"t\": 2000}", "{\"t\": 3000}"]);
    assert_eq!(letters[0]["reason"], "it is late: its windows are closed");
}

#[test]
fn a_source_that_has_ended_or_has_no_message_yet_holds_no_window() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    write(&path("short"), 0..5);
    write(&path("long"), 0..300);
    std::fs::write(path("empty"), "").expect("it can be written");
    let text = format!(
        "file --path={} | topic:t\nfile --path={} --mode=follow --from=beginning | topic:t\n\
         file --path={} --mode=follow --from=beginning | batch | topic:t\n\
         topic:t > aggregate --window=100s --time=payload.t --idle=200ms | file --path={}",
        path("short").display(),
        path("long").display(),
        path("empty").display(),
        path("out").display()
    );
    let plan = Plan::read(&text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let options = options(Arc::new(Lines::default()));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut running = start(&plan, &options).unwrap_or_else(|error| panic!("{error}"));
        let closed = async {
            while !path("out").exists() || counts(&path("out")).len() < 2 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                // The file is rotated.
                write(&path("next"), [299]);
                std::fs::rename(path("next"), path("long")).expect("it is renamed");
            }
        };
        tokio::time::timeout(Duration::from_secs(10), closed).await.expect("windows close meanwhile");
        running.stopper().stop();
        running.ended().await.unwrap_or_else(|error| panic!("{error}"));
    });
    let counts = counts(&path("out"));
    assert_eq!((counts[&0], counts[&100_000], counts.len()), (105, 100, 3));
}
