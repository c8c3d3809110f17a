//! Apache Kafka as the oracle: its tools read our directory, and its directory is opened here.
//!
//! The first needs Kafka's jars: set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`. The second
//! reads `tests/fixtures/kafka-4.3.1`, which a Kafka broker has written (see the README there).

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use thalweg_log::{Clock, LogConfig, LogDirs, LogDirsOptions, PartitionLog, TopicPartition};
use thalweg_record::{
    Batch, Compression, ControlRecordType, DecompressBuffer, LeaderEpoch, Offset, ProducerId, batches,
};

use crate::support::*;

/// The dump tool's output for one file.
fn dump(class_path: &str, file: &Path, options: &[&str]) -> String {
    let output = Command::new("java")
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path])
        .args(["org.apache.kafka.tools.DumpLogSegments", "--files"])
        .arg(file)
        .args(options)
        .output()
        .expect("java is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The tool prints this for every segment that does not start at offset 0, including Kafka's own.
    let errors = String::from_utf8_lossy(&output.stderr);
    let only_the_first =
        errors.matches("is followed by").count() == errors.matches("  -1 is followed by").count();
    let errors = if only_the_first { errors.replace("Non-consecutive", "") } else { errors.into_owned() };
    assert!(output.status.success(), "{}: {text}{errors}", file.display());
    for complaint in
        ["mismatch", "Mismatch", "out of order", "Non-consecutive", "isvalid: false", "Exception", "sanity"]
    {
        let harmless = complaint == "sanity" && text.contains("passed sanity check");
        assert!(harmless || !text.contains(complaint), "{}: {text}", file.display());
        assert!(!errors.contains(complaint), "{}: {errors}", file.display());
    }
    text
}

fn fill(log: &mut PartitionLog) {
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    for index in 0..60i32 {
        let spec = Spec::new(3).value_bytes(100).compression(codecs[index as usize % 5]);
        let batch = spec.timestamp(NOW_MS + i64::from(index / 2) * 10).producer(
            4000 + i64::from(index % 2),
            0,
            index / 2 * 3,
        );
        append(log, &batch.build());
        if index % 20 == 19 {
            let transaction = Spec::new(2).producer(5000, 0, index / 20 * 2).transactional();
            append(log, &transaction.timestamp(NOW_MS + 1000).build());
            append_marker(log, &marker(5000, 0, ControlRecordType::Abort, 3));
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn the_dump_tool_reads_every_file_without_a_complaint() {
    let Ok(class_path) = std::env::var("KAFKA_CLASSPATH") else {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
        return;
    };
    let config = LogConfig { segment_bytes: 8000, index_interval_bytes: 300, ..LogConfig::default() };
    let bench = Bench::with(config);
    let mut log = bench.create();
    fill(&mut log);
    // Not closed: as a running broker's files are.
    let newest = log.segment_offsets().pop().expect("a segment");
    let text = dump(&class_path, &bench.file(&log_name(newest.0)), &["--deep-iteration", "--print-data-log"]);
    assert!(text.contains("payload: aaaa"), "{text}");
    drop(log);
    let mut log = bench.open_unclean();
    append(&mut log, &Spec::new(1).timestamp(NOW_MS + 2000).build());
    log.close().expect("closes");
    let mut kinds = std::collections::BTreeSet::new();
    for name in bench.names() {
        let kind = name.rsplit('.').next().expect("a suffix").to_owned();
        let options: &[&str] = match kind.as_str() {
            "log" => &["--deep-iteration", "--print-data-log"],
            "index" => &["--index-sanity-check"],
            "timeindex" | "txnindex" | "snapshot" => &[],
            _ => continue,
        };
        if kind == "index" {
            // Both ways: comparing each entry with the log, and looking at the file alone.
            dump(&class_path, &bench.file(&name), &["--verify-index-only"]);
        }
        let text = dump(&class_path, &bench.file(&name), options);
        match kind.as_str() {
            "log" => assert!(text.contains("isvalid: true"), "{name}: {text}"),
            "txnindex" => assert!(text.contains("producerId: 5000"), "{name}: {text}"),
            "snapshot" => assert!(text.contains("producerId: 400"), "{name}: {text}"),
            _ => {}
        }
        kinds.insert(kind);
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["index", "log", "snapshot", "timeindex", "txnindex"]);
}

/// Copies the fixture: opening a directory changes it.
fn copy_fixture(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-4.3.1");
    copy_dir(&from, to);
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("creates");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copies");
        }
    }
}

fn open(dir: &Path) -> (LogDirs, Vec<PartitionLog>) {
    let options = LogDirsOptions {
        clock: Clock::manual(NOW_MS + 300_000),
        ..LogDirsOptions::new(vec![dir.to_owned()], 1)
    };
    let (dirs, mut logs) = LogDirs::open(options, |name| {
        let index_interval_bytes = if &*name.topic == "plain" { 200 } else { 4096 };
        Arc::new(LogConfig { segment_ms: i64::MAX, index_interval_bytes, ..LogConfig::default() })
    })
    .expect("opens");
    logs.sort_by(|a, b| a.name().cmp(b.name()));
    (dirs, logs)
}

fn values(log: &mut PartitionLog) -> Vec<String> {
    let bytes = read_all(log, Offset(0), 1 << 20);
    let mut buffer = DecompressBuffer::new(1 << 20);
    let mut values = Vec::new();
    for batch in batches(&bytes) {
        let batch: Batch<'_> = batch.expect("whole");
        thalweg_record::verify(batch.bytes).expect("the CRC fits");
        if batch.header.attributes.is_control() {
            continue;
        }
        for record in batch.records(&mut buffer).expect("records") {
            let value = record.expect("a record").value.expect("a value").to_vec();
            values.push(String::from_utf8(value).expect("text"));
        }
    }
    values
}

#[test]
fn a_directory_of_kafka_is_opened_and_goes_on() {
    let dir = TempDir::new();
    copy_fixture(dir.path());
    let (dirs, mut logs) = open(dir.path());
    assert_eq!(dirs.cluster_id(), "MkU3OEVBNTcwNTJENDM2Qg");
    assert!(dirs.previous_broker_epoch().is_some(), "Kafka left it in order");
    let plain = logs.iter().position(|log| *log.name() == TopicPartition::new("plain", 0)).expect("there");
    let plain = &mut logs[plain];
    assert!(plain.topic_id().is_some());
    assert!(plain.segment_offsets().len() > 2, "{:?}", plain.segment_offsets());
    assert_eq!((plain.log_start_offset(), plain.log_end_offset()), (Offset(0), Offset(200)));
    assert_eq!(plain.high_watermark(), Offset(200));
    let expected: Vec<_> = (0..200).map(|index| format!("value-{index:04}-{}", "x".repeat(50))).collect();
    assert_eq!(values(plain), expected);
    let (id, last) =
        plain.producers().map(|(id, entry)| (id, entry.last_sequence())).next().expect("a producer");
    assert_eq!(last, 199, "{id}");
    assert!(plain.offset_for_timestamp(0).expect("searches").is_some());
    let end = plain.end_offset_for_epoch(LeaderEpoch(0)).expect("an epoch");
    assert_eq!(end.end_offset, Offset(200));

    let transactions =
        logs.iter_mut().find(|log| *log.name() == TopicPartition::new("transactions", 0)).expect("there");
    let end = transactions.log_end_offset();
    let aborted = transactions.aborted_transactions(Offset(0), end).expect("reads");
    assert_eq!(aborted.len(), 1, "{aborted:?}");
    assert_eq!(transactions.last_stable_offset(), end);

    let epoch = LeaderEpoch(1);
    for log in &mut logs {
        log.append_as_leader(&Spec::new(2).build(), epoch, Default::default()).expect("goes on");
    }
    let ends: Vec<_> = logs.iter().map(PartitionLog::log_end_offset).collect();
    drop((dirs, logs));
    let (_dirs, logs) = open(dir.path());
    assert_eq!(logs.iter().map(PartitionLog::log_end_offset).collect::<Vec<_>>(), ends);
}

#[test]
fn recovering_a_directory_of_kafka_agrees_with_its_checkpoints() {
    let dir = TempDir::new();
    copy_fixture(dir.path());
    let (_, clean) = open(dir.path());
    let dir = TempDir::new();
    copy_fixture(dir.path());
    std::fs::remove_file(dir.path().join(".kafka_cleanshutdown")).expect("removes");
    std::fs::remove_file(dir.path().join("recovery-point-offset-checkpoint")).expect("removes");
    let (_, recovered) = open(dir.path());
    for (clean, recovered) in clean.iter().zip(&recovered) {
        assert_eq!(clean.name(), recovered.name());
        assert_eq!(clean.log_end_offset(), recovered.log_end_offset());
        assert_eq!(clean.segment_offsets(), recovered.segment_offsets());
        assert_eq!(clean.leader_epochs(), recovered.leader_epochs());
        let of = |log: &PartitionLog| {
            let mut known: Vec<(ProducerId, i32)> =
                log.producers().map(|(id, entry)| (id, entry.last_sequence())).collect();
            known.sort();
            known
        };
        assert_eq!(of(clean), of(recovered), "{}", clean.name());
    }
    // Rebuilt files are byte-identical to Kafka's.
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-4.3.1");
    let mut compared = 0;
    for partition in ["plain-0", "transactions-0", "empty-0"] {
        for entry in std::fs::read_dir(fixture.join(partition)).expect("lists") {
            let name = entry.expect("an entry").file_name();
            let (kafkas, ours) =
                (fixture.join(partition).join(&name), dir.path().join(partition).join(&name));
            let is_old_snapshot = name.to_string_lossy().ends_with(".snapshot") && !ours.exists();
            if !is_old_snapshot {
                let read = |path: &Path| std::fs::read(path).expect("both have the file");
                assert_eq!(read(&kafkas), read(&ours), "{partition}/{}", name.to_string_lossy());
                compared += 1;
            }
        }
    }
    assert!(compared > 18, "{compared}");
}
