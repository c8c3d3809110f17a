//! Apache Kafka's dump tool reads our log and our snapshots. It needs Kafka's jars: set `KAFKA_CLASSPATH`,
//! for instance to `/path/to/kafka/libs/*`.

use std::path::Path;
use std::process::Command;

use crate::support::*;

fn dump(class_path: &str, file: &Path) -> String {
    let output = Command::new("java")
        .args([
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            class_path,
            "org.apache.kafka.tools.DumpLogSegments",
            "--cluster-metadata-decoder",
            "--files",
        ])
        .arg(file)
        .arg("--print-data-log")
        .output()
        .expect("java is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    for complaint in ["isvalid: false", "Exception", "Could not", "Found", "malformed"] {
        assert!(
            !text.contains(complaint) && !errors.contains(complaint),
            "{}: {text}{errors}",
            file.display()
        );
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
async fn kafkas_dump_tool_reads_the_log_and_the_snapshots() {
    let Ok(class_path) = std::env::var("KAFKA_CLASSPATH") else {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
        return;
    };
    let bench = Bench::with(|options| {
        options.snapshot_bytes = 1;
        options.listeners = vec![thalweg_metadata::Endpoint {
            listener: "CONTROLLER".to_owned(),
            host: "localhost".to_owned(),
            port: 9093,
            security_protocol: 0,
        }];
    })
    .await;
    bench.join(1).await;
    bench.create("alpha", 2, 1).await;
    bench.create("beta", 1, 1).await;
    let bench = bench.restart().await;
    bench.join(1).await;
    bench.create("gamma", 1, 1).await;
    bench.controller.shutdown().await;

    let log = dump(&class_path, &bench.log_dir().join("00000000000000000000.log"));
    for expected in [
        "LeaderChange: {\"version\":0,\"leaderId\":1,\"voters\":[{\"voterId\":1}],\"grantingVoters\":[{\"voterId\":1}]}",
        "KRaftVersion {\"version\":0,\"kRaftVersion\":1}",
        "\"endpoints\":[{\"name\":\"CONTROLLER\",\"host\":\"localhost\",\"port\":9093}]",
        "\"type\":\"BEGIN_TRANSACTION_RECORD\",\"version\":0,\"data\":{\"name\":\"Bootstrap records\"}",
        "{\"name\":\"metadata.version\",\"featureLevel\":30}",
        "\"type\":\"REGISTER_CONTROLLER_RECORD\"",
        "\"type\":\"REGISTER_BROKER_RECORD\",\"version\":4",
        "\"type\":\"TOPIC_RECORD\",\"version\":0,\"data\":{\"name\":\"gamma\"",
        "\"type\":\"PARTITION_RECORD\",\"version\":2",
        "\"type\":\"PARTITION_CHANGE_RECORD\",\"version\":2",
    ] {
        assert!(log.contains(expected), "{expected} is missing in {log}");
    }
    let bootstrap = dump(&class_path, &bench.dir.path().join("bootstrap.checkpoint"));
    assert!(bootstrap.contains("SnapshotHeader") && bootstrap.contains("metadata.version"), "{bootstrap}");
    let mut snapshots = 0;
    for entry in std::fs::read_dir(bench.log_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "checkpoint") {
            let text = dump(&class_path, &path);
            assert!(text.contains("SnapshotHeader") && text.contains("SnapshotFooter"), "{text}");
            snapshots += 1;
        }
    }
    assert!(snapshots >= 2, "{snapshots}");
}
