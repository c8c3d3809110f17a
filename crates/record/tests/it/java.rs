//! Kafka's own classes read built batches. Runs if KAFKA_CLASSPATH names the libs of a Kafka 4.3 distribution
//! (`/path/to/kafka/libs/*`) and `java` is installed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use thalweg_record::{
    BatchBuilder, BatchOptions, Compression, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch,
    ProducerId, stamp_head, stamp_log_append_time,
};

use crate::listing::list;
use crate::samples::{CODECS, T, append_large, append_shapes};

#[test]
fn kafka_reads_what_the_builder_writes() {
    let Some(classpath) = std::env::var("KAFKA_CLASSPATH").ok().filter(|path| !path.is_empty()) else {
        // Not by `eprintln!`, which the test harness swallows where a test passes.
        let how = "set KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\" to run it";
        writeln!(std::io::stderr(), "SKIPPED: built batches read by Kafka's classes: {how}")
            .expect("stderr takes a line");
        return;
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record-java");
    std::fs::create_dir_all(&dir).expect("the target directory is writable");
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut ours = String::new();
    for (name, bytes) in built_batches() {
        let path = dir.join(format!("{name}.bin"));
        std::fs::write(&path, &bytes).expect("the target directory is writable");
        ours += &list(&name, &bytes);
        paths.push(path);
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/Golden.java");
    let output = Command::new("java")
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", &classpath])
        .arg(source)
        .arg("list")
        .args(&paths)
        .output()
        .expect("java runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kafkas = String::from_utf8(output.stdout).expect("the listing is UTF-8");
    for (ours, kafkas) in ours.lines().zip(kafkas.lines()) {
        assert_eq!(ours, kafkas);
    }
    assert_eq!(ours.lines().count(), kafkas.lines().count());
}

fn built_batches() -> Vec<(String, Vec<u8>)> {
    let mut built = Vec::new();
    for compression in CODECS {
        built.push((format!("{compression}"), shapes(BatchOptions { compression, ..Default::default() })));
        let append_time = BatchOptions { compression, log_append_time_ms: Some(T + 1), ..Default::default() };
        built.push((format!("{compression}-append-time"), shapes(append_time)));
        built.push((format!("{compression}-stamped"), stamped(compression)));
        built.push((format!("{compression}-incompressible"), incompressible(compression)));
        for level in [-5, 1, 9, 22] {
            let options = BatchOptions { compression, compression_level: Some(level), ..Default::default() };
            built.push((format!("{compression}-level{level}"), shapes(options)));
        }
    }
    let transactional = BatchOptions {
        producer_id: ProducerId(i64::MAX),
        producer_epoch: ProducerEpoch(i16::MAX),
        base_sequence: i32::MAX - 3,
        transactional: true,
        ..Default::default()
    };
    built.push(("transactional".to_owned(), shapes(transactional)));
    let mut control = BatchBuilder::new(BatchOptions { control: true, ..Default::default() });
    for kind in (0..=6).filter_map(ControlRecordType::from_id) {
        control.append_control(T, kind, b"value").expect("far from full");
    }
    built.push(("control".to_owned(), control.build().to_vec()));
    built
}

fn shapes(options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::with_capacity(options, 0);
    append_shapes(&mut builder);
    append_large(&mut builder);
    builder.build().to_vec()
}

fn stamped(compression: Compression) -> Vec<u8> {
    let mut batch = shapes(BatchOptions { compression, transactional: true, ..Default::default() });
    stamp_head(&mut batch, Offset(123_456_789_012), LeaderEpoch(42));
    stamp_log_append_time(&mut batch, T + 77).expect("a whole batch");
    batch
}

fn incompressible(compression: Compression) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut random = rand::rngs::SmallRng::seed_from_u64(7);
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..Default::default() });
    let mut value = vec![0; 40_000];
    for i in 0..5 {
        random.fill_bytes(&mut value);
        builder.append(T + i, None, Some(&value), &[]).expect("far from full");
    }
    builder.build().to_vec()
}
