//! The target `pulsar` with a real broker. Needs Java 17 and Pulsar's distribution (`PULSAR_HOME`); otherwise
//! skipped, with a notice.

use std::collections::BTreeMap;
use std::io::Write;

use thalweg_lab::target::{self, PulsarAdmin, StartOptions, TargetSpec, pulsar_distribution};
use thalweg_lab::workload::ClusterSpec;

/// True if Pulsar is installed; prints that the test is skipped otherwise.
pub fn is_installed(what: &str) -> bool {
    let found = pulsar_distribution(None);
    if let Err(error) = &found {
        writeln!(std::io::stderr(), "SKIPPED: {what}: {error}").expect("stderr takes a line");
    }
    found.is_ok()
}

#[tokio::test]
async fn a_broker_starts_with_the_workloads_settings_and_leaves_nothing_behind() {
    if !is_installed("the target pulsar") {
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let spec = ClusterSpec {
        pulsar: BTreeMap::from([("journalSyncData".to_owned(), "true".to_owned())]),
        ..ClusterSpec::plaintext(1, BTreeMap::new())
    };
    let running = target::start(&TargetSpec::Pulsar, &spec, &StartOptions::new(work.path())).await;
    let running = running.expect("it starts");
    let cluster = running.cluster().clone();
    assert!(cluster.info.version.starts_with("Apache Pulsar "), "{:?}", cluster.info);
    assert_eq!(cluster.info.facts["journalSyncData"], "true");
    let java = cluster.info.notes.iter().find(|note| note.contains("17 or later is needed"));
    assert!(java.is_some_and(|note| note.contains("version")), "{:?}", cluster.info.notes);
    assert!(cluster.bootstrap[0].starts_with("pulsar://127.0.0.1:"), "{:?}", cluster.bootstrap);
    assert_eq!(cluster.processes.len(), 1);

    let admin = PulsarAdmin::new(cluster.pulsar_admin.as_deref().expect("an admin API")).expect("a URL");
    admin.create_topic("t", 3, "s").await.expect("made");
    admin.create_topic("t", 3, "s").await.expect_err("it exists");
    assert_eq!(admin.partition_stats("t", 2).await.expect("stats").msg_in_counter, 0);
    admin.delete_topic("t").await.expect("deleted");
    admin.delete_topic("t").await.expect("what is gone is deleted");

    // The same cluster, as a foreign one.
    let foreign = TargetSpec::PulsarCluster {
        service_url: cluster.bootstrap[0].clone(),
        admin_url: cluster.pulsar_admin.clone().expect("an admin API"),
    };
    target::reach(&foreign).await.expect("it answers");
    let found = target::start(&foreign, &spec, &StartOptions::new(work.path())).await.expect("it is there");
    assert_eq!(found.cluster().info.version, cluster.info.version);
    assert!(found.cluster().processes.is_empty());

    let pid = cluster.processes[0].1;
    assert_eq!(running.stop(), [""; 0]);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the process is gone");
    assert_eq!(std::fs::read_dir(work.path()).expect("readable").count(), 0, "the data is gone");
}
