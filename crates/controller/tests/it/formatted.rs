//! A directory that was formatted before the first start, as `kafka-storage format` does it: the cluster
//! begins with that.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use thalweg_controller::{Controller, ControllerStartError};
use thalweg_metadata::{VersionedRecord, feature};
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_wire::MetadataRecord;
use thalweg_wire::metadata::{FeatureLevelRecord, UserScramCredentialRecord};
use thalweg_wire::request::UpdateFeaturesRequest;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;

use crate::support::*;

fn level(name: &str, feature_level: i16) -> MetadataRecord {
    MetadataRecord::FeatureLevel(FeatureLevelRecord { name: name.to_owned(), feature_level })
}

fn format(dir: &Path, records: Vec<MetadataRecord>) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for record in records {
        let value = VersionedRecord::new(record, 0).to_value().expect("version 0 holds it");
        builder.append(1, None, Some(&value), &[]).expect("it fits");
    }
    std::fs::write(dir.join("bootstrap.checkpoint"), builder.build()).expect("a file");
}

async fn start(dir: &Path) -> Result<Controller, ControllerStartError> {
    let mut options = options(dir);
    let range = thalweg_metadata::VersionRange { min: 0, max: 2 };
    options.supported_features.insert(feature::TRANSACTION_VERSION.to_owned(), range);
    options.bootstrap_features.insert(feature::TRANSACTION_VERSION.to_owned(), 2);
    Controller::start(options, Arc::new(Rules)).await
}

async fn bench(dir: tempfile::TempDir) -> Bench {
    let controller = Arc::new(start(dir.path()).await.expect("it starts"));
    Bench { dir, controller }
}

async fn features(bench: &Bench) -> Vec<(String, i16)> {
    bench.image().await.features().iter().map(|(name, level)| (name.to_owned(), level)).collect()
}

#[tokio::test]
async fn a_cluster_begins_with_what_its_directory_was_formatted_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let credential =
        UserScramCredentialRecord { name: "alice".to_owned(), mechanism: 1, ..Default::default() };
    let records = [
        level(feature::METADATA_VERSION, 25),
        level(feature::TRANSACTION_VERSION, 1),
        level(feature::STREAMS_VERSION, 1),
        MetadataRecord::UserScramCredential(credential),
    ];
    format(dir.path(), records.into());
    let bench = bench(dir).await;
    let expected = [(feature::METADATA_VERSION, 25), (feature::TRANSACTION_VERSION, 1)];
    assert_eq!(
        features(&bench).await,
        expected.map(|(name, level)| (name.to_owned(), level)),
        "no streams groups"
    );
    let update = FeatureUpdateKey {
        feature: feature::METADATA_VERSION.to_owned(),
        max_version_level: 30,
        upgrade_type: 1,
        ..Default::default()
    };
    let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
    let upgraded = bench.send(request).await;
    assert_eq!(upgraded.error_code, 0, "{:?}", upgraded.error_message);
    bench.controller.shutdown().await;
    let controller = Arc::new(start(bench.dir.path()).await.expect("it starts again"));
    let again = Bench { dir: bench.dir, controller };
    assert_eq!(features(&again).await[0].1, 30, "what it was formatted with is the past");
}

#[tokio::test]
async fn a_version_with_which_no_cluster_is_begun_is_refused_by_name() {
    for level_of_file in [20, 31] {
        let dir = tempfile::tempdir().expect("a directory");
        format(dir.path(), vec![level(feature::METADATA_VERSION, level_of_file)]);
        let error = start(dir.path()).await.expect_err("it is refused").to_string();
        assert!(error.contains(&format!("metadata.version {level_of_file}")), "{error}");
    }
}

#[tokio::test]
async fn a_group_protocol_goes_up_and_down_and_a_node_without_it_names_the_way_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let serving = |levels: &[(&str, i16)]| {
        let mut options = options(dir.path());
        for (name, max) in levels {
            let range = thalweg_metadata::VersionRange { min: 0, max: *max };
            options.supported_features.insert((*name).to_owned(), range);
        }
        Controller::start(options, Arc::new(Rules))
    };
    format(dir.path(), vec![level(feature::METADATA_VERSION, 30), level(feature::GROUP_VERSION, 1)]);
    let controller = serving(&[(feature::GROUP_VERSION, 1)]).await.expect("it starts");
    let bench = Bench { dir: tempfile::tempdir().expect("a directory"), controller: Arc::new(controller) };
    let is_on = async || features(&bench).await.contains(&(feature::GROUP_VERSION.to_owned(), 1));
    assert!(is_on().await, "it was formatted so");
    let update = async |max_version_level, upgrade_type| {
        let update = FeatureUpdateKey {
            feature: feature::GROUP_VERSION.to_owned(),
            max_version_level,
            upgrade_type,
            ..Default::default()
        };
        let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
        bench.send(request).await.error_code
    };
    let refused = thalweg_wire::ErrorCode::InvalidUpdateVersion.code();
    assert_eq!(update(0, 1).await, refused, "that is no upgrade");
    assert_eq!(update(0, 2).await, 0);
    assert!(!is_on().await);
    assert_eq!(update(2, 1).await, refused, "nobody knows it");
    assert_eq!(update(1, 1).await, 0);
    assert!(is_on().await);
    bench.controller.shutdown().await;
    let error = serving(&[]).await.expect_err("it is finalized").to_string();
    assert!(error.contains("kafka-features.sh"), "{error}");
    assert!(error.contains("downgrade --feature group.version=0"), "{error}");
}

/// What `kafka-storage format` of Apache Kafka makes of a directory.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
async fn directories_that_kafka_has_formatted_are_begun_with() {
    let Ok(class_path) = std::env::var("KAFKA_CLASSPATH") else {
        eprintln!("skipped: KAFKA_CLASSPATH is not set");
        return;
    };
    let old = kafka_format(&class_path, &["--standalone", "--release-version", "3.9"]);
    let bench = bench(old).await;
    assert_eq!(features(&bench).await, [(feature::METADATA_VERSION.to_owned(), 21)]);
    let new = kafka_format(&class_path, &["--standalone"]);
    let bench = self::bench(new).await;
    let found = features(&bench).await;
    assert_eq!(found[0], (feature::METADATA_VERSION.to_owned(), 30));
    assert!(found.contains(&(feature::TRANSACTION_VERSION.to_owned(), 2)), "{found:?}");
    assert!(!found.iter().any(|(name, _)| name == feature::GROUP_VERSION), "{found:?}");
    let id = "AAAAAAAAAAAAAAAAAAAAAg";
    let voters = format!("1@localhost:9093:{id},2@localhost:9094:{id},3@localhost:9095:{id}");
    let of_three = kafka_format(&class_path, &["--initial-controllers", &voters]);
    let error = start(of_three.path()).await.expect_err("it has one vote").to_string();
    assert!(error.contains("a quorum with the voters 1, 2, 3"), "{error}");
}

fn kafka_format(class_path: &str, more: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let properties = dir.path().join("server.properties");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093\nlog.dirs={}\n",
        dir.path().display()
    );
    std::fs::write(&properties, text).expect("a file");
    let mut command = Command::new("java");
    command.args([
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        class_path,
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        CLUSTER_ID,
        "--config",
    ]);
    let output = command.arg(&properties).args(more).output().expect("java is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    dir
}
