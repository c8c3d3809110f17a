//! The lab's target `embedded`: the binary as a broker that is started, watched, stopped and removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thalweg_lab::doctor;
use thalweg_lab::sample::Sampler;
use thalweg_lab::target::{self, RunningCluster, StartOptions, TargetSpec};
use thalweg_lab::workload::{ClusterSecurity, ClusterSpec, SaslMechanism, SecurityProtocol};

fn options(work: &Path) -> StartOptions {
    let binary = Some(PathBuf::from(env!("CARGO_BIN_EXE_thalweg")));
    StartOptions { binary, ..StartOptions::new(work) }
}

async fn start(work: &Path, properties: &[(&str, &str)]) -> RunningCluster {
    let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let spec = ClusterSpec::plaintext(1, properties);
    match target::start(&TargetSpec::Embedded, &spec, &options(work)).await {
        Ok(running) => running,
        Err(error) => panic!("the broker did not start: {error}"),
    }
}

fn pid(running: &RunningCluster) -> u32 {
    running.cluster().processes[0].1
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("the test made it").next().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_broker_serves_and_leaves_nothing_behind() {
    let work = tempfile::tempdir().expect("a directory");
    let running = start(work.path(), &[("num.partitions", "3"), ("log.dirs", "first,second")]).await;
    let cluster = running.cluster().clone();
    assert_eq!(cluster.name, "embedded");
    assert_eq!(cluster.info.version, concat!("thalweg ", env!("CARGO_PKG_VERSION")));
    assert!(cluster.info.command.contains(&"num.partitions=3".to_owned()), "{:?}", cluster.info.command);
    let data = cluster.data_dir.clone().expect("it is here");
    assert!(data.join("broker-1/first").is_dir() && data.join("broker-1/second").is_dir());
    let client = target::connect(&cluster.bootstrap, &BTreeMap::new()).await.expect("it serves");
    assert_eq!(client.metadata().brokers.len(), 1);
    drop(client);
    assert_eq!(running.died(), None);

    let pid = pid(&running);
    assert_eq!(running.stop(), Vec::<String>::new());
    assert!(!is_alive(pid) && is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_embedded_brokers_are_a_cluster_and_leave_nothing_behind() {
    let work = tempfile::tempdir().expect("a directory");
    let properties = BTreeMap::from([("num.partitions".to_owned(), "3".to_owned())]);
    let racks = ["a", "b"].map(str::to_owned).to_vec();
    let spec = ClusterSpec { racks, ..ClusterSpec::plaintext(3, properties) };
    let running = target::start(&TargetSpec::Embedded, &spec, &options(work.path())).await;
    let running = running.unwrap_or_else(|error| panic!("the brokers did not start: {error}"));
    let cluster = running.cluster().clone();
    assert_eq!((cluster.bootstrap.len(), cluster.processes.len()), (3, 3));
    assert!(
        cluster.info.notes.contains(&"KRaft: 3 brokers; broker 1 is also the only controller".to_owned()),
        "{:?}",
        cluster.info.notes
    );
    for address in &cluster.bootstrap {
        let client =
            target::connect(std::slice::from_ref(address), &BTreeMap::new()).await.expect("it serves");
        let metadata = client.metadata();
        let racks: Vec<Option<&str>> =
            metadata.brokers.values().map(|broker| broker.rack.as_deref()).collect();
        assert_eq!(racks, [Some("a"), Some("b"), Some("a")]);
    }
    let data = cluster.data_dir.clone().expect("it is here");
    let file = std::fs::read_to_string(data.join("broker-3/server.properties")).expect("it was written");
    assert!(file.contains("num.partitions=3\n") && file.contains("process.roles=broker\n"), "{file}");
    assert_eq!(running.stop(), Vec::<String>::new());
    assert!(cluster.processes.iter().all(|(_, pid)| !is_alive(*pid)) && is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn secured_brokers_refuse_strangers_and_leave_no_secrets_behind() {
    let work = tempfile::tempdir().expect("a directory");
    let tls = (Some("TLSv1.3"), Some("TLS_AES_256_GCM_SHA384"));
    let none = (None, None);
    for (brokers, protocol, mechanism, (version, suite)) in [
        (1, SecurityProtocol::Ssl, None, tls),
        (1, SecurityProtocol::SaslPlaintext, Some(SaslMechanism::Plain), none),
        (3, SecurityProtocol::SaslSsl, Some(SaslMechanism::ScramSha512), tls),
    ] {
        let security = ClusterSecurity::new(protocol, mechanism);
        let properties = BTreeMap::from([("ssl.client.auth".to_owned(), "required".to_owned())]);
        let spec = ClusterSpec { security, ..ClusterSpec::plaintext(brokers, properties) };
        let running = target::start(&TargetSpec::Embedded, &spec, &options(work.path())).await;
        let running = running.unwrap_or_else(|error| panic!("{}: {error}", protocol.name()));
        let cluster = running.cluster().clone();
        let negotiated = cluster.security.clone().expect("it was talked to");
        assert_eq!(negotiated.protocol, protocol.name());
        assert_eq!((negotiated.tls_version.as_deref(), negotiated.cipher_suite.as_deref()), (version, suite));
        assert_eq!(negotiated.mechanism.as_deref(), mechanism.map(SaslMechanism::name));
        let client =
            target::connect(&cluster.bootstrap, &cluster.client_properties).await.expect("it serves");
        assert_eq!(client.metadata().brokers.len(), brokers as usize);
        let impatient = BTreeMap::from([("request.timeout.ms".to_owned(), "2000".to_owned())]);
        assert!(target::connect(&cluster.bootstrap, &impatient).await.is_err(), "{}", protocol.name());
        let said = format!("{:?}", cluster.info);
        let password =
            cluster.client_properties.get("sasl.jaas.config").and_then(|jaas| jaas.split('"').nth(3));
        assert!(password.is_none_or(|password| !said.contains(password)), "{said}");
        assert_eq!(running.stop(), Vec::<String>::new());
        assert!(is_empty(work.path()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_is_noticed_and_a_dropped_cluster_is_removed() {
    let work = tempfile::tempdir().expect("a directory");
    let running = start(work.path(), &[]).await;
    let pid = pid(&running);
    let broker = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("not zero");
    kill_process(broker, Signal::KILL).expect("it is ours");
    let mut died = None;
    for _ in 0..200 {
        died = running.died();
        if died.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let died = died.expect("the death of a broker is noticed");
    assert!(died.contains("signal 9") && died.contains("listens on"), "{died}");
    drop(running);
    assert!(!is_alive(pid) && is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_refused_by_the_broker_is_reported() {
    let work = tempfile::tempdir().expect("a directory");
    let properties = BTreeMap::from([("num.partitions".to_owned(), "many".to_owned())]);
    let spec = ClusterSpec::plaintext(1, properties);
    let error = target::start(&TargetSpec::Embedded, &spec, &options(work.path())).await;
    let error = error.map(|_| ()).expect_err("a refusal").to_string();
    assert!(error.contains("num.partitions") && error.contains("many"), "{error}");
    assert!(is_empty(work.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_is_not_changed_and_must_be_large_enough() {
    let work = tempfile::tempdir().expect("a directory");
    let running = start(work.path(), &[]).await;
    let servers = running.cluster().bootstrap.clone();
    let spec = |brokers| {
        ClusterSpec::plaintext(brokers, BTreeMap::from([("num.io.threads".to_owned(), "24".to_owned())]))
    };
    let target = TargetSpec::Bootstrap { servers: servers.clone(), properties: BTreeMap::new() };
    let other = target::start(&target, &spec(1), &options(work.path())).await.expect("it serves");
    let cluster = other.cluster();
    assert_eq!((cluster.name.as_str(), cluster.processes.len()), (servers[0].as_str(), 0));
    assert!(
        cluster.info.notes.iter().any(|note| note.starts_with("Cluster id ")),
        "{:?}",
        cluster.info.notes
    );
    assert!(
        cluster.info.notes.iter().any(|note| note.contains("num.io.threads=24")),
        "{:?}",
        cluster.info.notes
    );
    drop(other);
    let error = target::start(&target, &spec(3), &options(work.path())).await.map(|_| ());
    let error = error.expect_err("too small").to_string();
    assert!(error.contains("cluster.brokers = 3") && error.contains("has 1"), "{error}");
    assert_eq!(running.died(), None, "it is not the other target's to stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_reads_the_configuration_of_the_broker() {
    let work = tempfile::tempdir().expect("a directory");
    let running = start(work.path(), &[("num.partitions", "1")]).await;
    let servers = &running.cluster().bootstrap;
    let advice =
        doctor::examine(work.path(), doctor::DiskTest::short(), Some((servers, &BTreeMap::new()))).await;
    let partitions = advice.iter().find(|one| one.subject == "num.partitions").expect("it is looked at");
    assert_eq!((partitions.place.as_str(), partitions.severity), ("broker 1", doctor::Severity::Note));
    for (subject, severity) in [
        // Kafka's default of three network threads gets advice, but Thalweg has none.
        ("num.network.threads", doctor::Severity::Fine),
        ("round trip", doctor::Severity::Fine),
        ("segment size", doctor::Severity::Fine),
    ] {
        let found: Vec<_> = advice.iter().filter(|one| one.subject == subject).collect();
        assert!(found.len() == 1 && found[0].severity == severity, "{subject}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_broker_is_sampled() {
    let work = tempfile::tempdir().expect("a directory");
    let sampler = Sampler::start(Vec::new());
    let running = start(work.path(), &[]).await;
    sampler.add("broker-1", pid(&running));
    tokio::time::sleep(Duration::from_millis(700)).await;
    let usage = sampler.finish(0, u64::MAX);
    let broker = &usage.processes[0];
    assert_eq!((broker.name.as_str(), broker.pid), ("broker-1", pid(&running)));
    assert!(broker.memory_bytes_max > 1 << 20, "{broker:?}");
    assert!(broker.disk_written_bytes.is_some(), "{broker:?}");
}

/// Started by the next test, in a separate process that is then killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lab_that_waits_to_be_killed() {
    let Some(work) = std::env::var_os("THALWEG_TEST_KILLED_LAB") else { return };
    let running = start(Path::new(&work), &[]).await;
    std::fs::write(Path::new(&work).join("pid"), pid(&running).to_string()).expect("written");
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_lab_that_is_killed_leaves_no_broker_and_no_data() {
    let work = tempfile::tempdir().expect("a directory");
    let mut lab = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "embedded_target::a_lab_that_waits_to_be_killed"])
        .env("THALWEG_TEST_KILLED_LAB", work.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this test starts again");
    let told = work.path().join("pid");
    until("the broker starts", || std::fs::read(&told).is_ok_and(|text| !text.is_empty())).await;
    let broker: u32 = std::fs::read_to_string(&told).expect("it is there").parse().expect("a number");
    assert!(is_alive(broker));
    lab.kill().and_then(|()| lab.wait()).expect("ours to kill");
    until("the broker ends", || !is_alive(broker)).await;
    std::fs::remove_file(&told).expect("ours");
    until("the data goes", || is_empty(work.path())).await;
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: not within half a minute");
}
