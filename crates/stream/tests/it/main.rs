//! Streams through the public interface, in this process: combinations of stages.

mod aggregates;
mod exec;
mod files;
mod http_sink;
mod http_source;
mod secure;
mod wrong;

use std::sync::{Arc, Mutex};

use thalweg_stream::module::StageOutput;
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{Figures, RunOptions, StreamEnd, Taps, start};
use thalweg_stream::{Cluster, Guarantee, OnError, Reach};

/// Records the lines of stages.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl StageOutput for Lines {
    fn line(&self, text: &str) {
        self.0.lock().expect("no test panics with the lock").push(text.to_owned());
    }
}

/// Run options that fail at the first bad message.
fn options(console: Arc<Lines>) -> RunOptions {
    RunOptions {
        reach: Reach::everything().into(),
        on_error: OnError::Fail,
        cluster: Cluster { bootstrap: "localhost:9092".to_owned(), properties: None },
        guarantee: Guarantee::AtLeastOnce,
        instance: "0".to_owned(),
        console,
        taps: Taps::default(),
    }
}

/// Runs a text to its end, and returns figures and lines.
fn run(text: &str) -> (Figures, Vec<String>) {
    let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let lines = Arc::new(Lines::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let options = options(lines.clone());
    let figures = runtime.block_on(async {
        let mut running = start(&plan, &options).unwrap_or_else(|error| panic!("{error}"));
        running.ended().await.unwrap_or_else(|error| panic!("{error}"));
        running.figures()
    });
    assert!(figures.streams.iter().all(|stream| stream.ended == Some(StreamEnd::Complete)), "{figures:?}");
    let lines = lines.0.lock().expect("no test panics with the lock").clone();
    (figures, lines)
}

/// The output count of a stage.
fn out(figures: &Figures, stream: usize, stage: usize) -> u64 {
    figures.streams[stream].stages[stage].messages_out
}

#[test]
fn several_producers_each_count_their_own_messages_and_none_is_missing() {
    let (figures, lines) =
        run("load-generator --producers=3 --messageCount=10000 --messageSize=64 | throughput");
    assert_eq!(out(&figures, 0, 1), 30_000);
    assert!(lines.last().is_some_and(|line| line.contains("No message is missing")), "{lines:?}");
}

#[test]
fn messages_of_any_size_are_made_whole() {
    for size in [0, 1, 8, 12, 1000, 300_000] {
        for more in ["", "--mode=reference", "--generateTimestamp=true"] {
            if size < 12 && more.contains("Timestamp") {
                continue;
            }
            let text = format!("load-generator --messageCount=1500 --messageSize={size} {more} | throughput");
            let (figures, lines) = run(&text);
            assert_eq!(figures.streams[0].stages[1].bytes_out, 1500 * size, "{text}");
            assert!(
                lines.last().is_some_and(|line| line.contains("No message is missing")),
                "{text}: {lines:?}"
            );
        }
    }
}

#[test]
fn throughput_reports_filtered_messages_as_gaps() {
    let (_, lines) =
        run("load-generator --messageCount=10 | filter --expression='sequence != 5' | throughput");
    assert!(lines.last().is_some_and(|line| line.contains("1 gaps in the sequences")), "{lines:?}");
}

#[test]
fn a_rate_is_kept_and_nothing_is_dropped_at_the_end() {
    let (figures, _) =
        run("load-generator --messageCount=600 --messageSize=10 | rate-limit --rate=1000 | null");
    assert_eq!(out(&figures, 0, 2), 600);
    assert!(figures.elapsed.as_secs_f64() > 0.5, "{:?}", figures.elapsed);
    let (figures, _) = run("load-generator --messageCount=300 --messageSize=10 --rate=1000 | null");
    assert!(figures.elapsed.as_secs_f64() > 0.25, "{:?}", figures.elapsed);
}

#[test]
fn a_topic_in_memory_gives_every_message_to_every_reader() {
    let (figures, _) =
        run("load-generator --messageCount=5000 | topic:t\nload-generator --messageCount=3000 | topic:t\n\
                            topic:t > throughput\ntopic:t > batch --size=1000 --timeout=1h | null");
    assert_eq!((out(&figures, 2, 0), out(&figures, 3, 0), out(&figures, 3, 1)), (8000, 8000, 8));
}

#[test]
fn keys_that_are_too_long_to_be_remembered_are_bad_messages() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("in");
    std::fs::write(&path, format!("short\n{}\n", "x".repeat(5000))).expect("written");
    let plan = |stage: &str| format!("file --path={} | {stage}", path.display());
    for text in [plan("counter --by=text"), plan("aggregate --key=text | null")] {
        let plan = Plan::read(&text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let error = runtime.block_on(async {
            let mut running =
                start(&plan, &options(Arc::default())).unwrap_or_else(|error| panic!("{error}"));
            running.ended().await.expect_err("a key is too long").to_string()
        });
        assert!(error.contains("its key is longer than 4 KiB"), "{error}");
    }
}

#[test]
fn the_same_is_seen_once() {
    let (figures, _) = run("load-generator --messageCount=5000 --mode=reference | dedup | null");
    assert_eq!(out(&figures, 0, 1), 1);
    let (figures, _) =
        run("load-generator --messageCount=5000 | dedup --by='sequence % 7' --remember=7 | null");
    assert_eq!(out(&figures, 0, 1), 7);
}

/// Runs a text on the lines of a file, and returns the lines of its output.
fn lines_of(input: &str, processors: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("in"), input).expect("written");
    run(&format!("file --path={} | {processors} | file --path={}", path("in"), path("out")));
    let out = std::fs::read_to_string(path("out")).expect("it is there");
    out.lines().map(str::to_owned).collect()
}

/// Values of different types that look alike.
const ALIKE: &str = "{\"a\":1}\n{\"a\":\"1\"}\n{\"a\":1.0}\n{\"a\":null}\n{\"a\":\"null\"}\n{\"a\":\"x\"}\n";

#[test]
fn values_that_look_alike_are_neither_duplicates_nor_counted_together() {
    let twice = ALIKE.repeat(2);
    assert_eq!(lines_of(&twice, "dedup --by=payload.a"), ALIKE.lines().collect::<Vec<_>>());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("in");
    std::fs::write(&path, &twice).expect("written");
    let (figures, _) = run(&format!("file --path={} | counter --by=payload.a", path.display()));
    let counts = figures.streams[0].stages[1].findings["counts"].as_object().cloned().expect("counts");
    let keys: Vec<&str> = counts.keys().map(String::as_str).collect();
    assert_eq!(keys, ["\"1\"", "\"null\"", "1", "1.0", "null", "x"]);
    assert!(counts.values().all(|count| *count == 2), "{counts:?}");
}

#[test]
fn a_null_key_is_no_key_and_a_tombstone_has_no_value() {
    let shown = |processors: &str| {
        let expression = "{\"k\": key, \"v\": text}";
        lines_of(ALIKE, &format!("{processors} | transform --expression='{expression}'"))
    };
    let keys: Vec<String> = shown("transform --key=payload.a")
        .iter()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
            line["k"].to_string()
        })
        .collect();
    assert_eq!(keys, ["\"1\"", "\"1\"", "\"1.0\"", "null", "\"null\"", "\"x\""]);
    let kept = shown("transform --key=key | filter --expression='key == null'");
    assert_eq!(kept.len(), 6, "{kept:?}");
    let deleted = shown("transform --expression=payload.a --tombstone='payload.a == null'");
    assert_eq!(deleted[3..], [r#"{"k":null,"v":""}"#, r#"{"k":null,"v":"null"}"#, r#"{"k":null,"v":"x"}"#]);
}

#[test]
fn only_json_is_put_into_an_array_as_it_is() {
    let input = "2026-01-31\n10.0.0.1\n-\n01\n1.10\n{\"a\":1 junk}\n\"\\q\"\n{\"a\": [1]}\n";
    let expected = r#"["2026-01-31","10.0.0.1","-","01",1.10,"{\"a\":1 junk}","\"\\q\"",{"a": [1]}]"#;
    assert_eq!(lines_of(input, "batch --format=json"), [expected]);
}

#[test]
fn a_program_may_write_much_more_than_it_reads() {
    let (figures, _) = run("load-generator --messageCount=2000 --messageSize=100 --mode=reference \
                            | exec --command='tr \"\\\\000\" x | sed \"p;p;p\"' | null");
    assert_eq!(out(&figures, 0, 2), 8000);
    let (figures, _) = run(
        "load-generator --messageCount=2000 --messageSize=100 | exec --framing=length --command=cat | null",
    );
    assert_eq!((out(&figures, 0, 2), figures.streams[0].stages[2].bytes_out), (2000, 200_000));
}

#[test]
fn the_elements_of_an_array_go_on_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(
        path("in"),
        b"[\"a\", \"\xc3\xbf\", \"\", \"b\\n\\\"c\", 1.50, {\"d\": [2]}, [ ], null, true]",
    )
    .expect("written");
    let split = |name: &str, options: &str| {
        let (input, output) = (path("in"), path(name));
        run(&format!(
            "file --path={input} --mode=whole | splitter --by=json {options} | file --path={output} --delimiter='|'"
        ));
        std::fs::read(path(name)).expect("it is there")
    };
    assert_eq!(split("1", ""), b"a|\xc3\xbf|b\n\"c|1.50|{\"d\": [2]}|[ ]|null|true|");
    assert_eq!(split("2", "--keepEmpty=true"), b"a|\xc3\xbf||b\n\"c|1.50|{\"d\": [2]}|[ ]|null|true|");
}
