//! Listeners with TLS: certificates of both sides, versions, large answers, hostile peers, and certificates
//! that change while the broker runs.

use crate::records::{Topic, batch, fetch, fetch_partition, produce};
use crate::running::RunningBroker;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use thalweg_dial::{ClientError, Connection, ConnectionOptions, Properties};
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{IncrementalAlterConfigsRequest, MetadataRequest};
use thalweg_wire::{ErrorCode, Records};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(30);

/// Certificates of a test, in files.
pub(crate) struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let certificates = Certificates { dir: tempfile::tempdir().expect("a temporary directory") };
        let ca = certificates.authority("ca");
        certificates.authority("other-ca");
        certificates.sign(&ca, "broker", "broker", None);
        certificates.sign(&ca, "client", "client", None);
        certificates.sign(&ca, "expired", "client", Some(2001));
        let stranger = certificates.authority("strange-ca");
        certificates.sign(&stranger, "stranger", "client", None);
        certificates
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.dir.path().join(name), content).expect("written");
    }

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        self.write(&format!("{name}.pem"), &params.self_signed(&key).expect("a certificate").pem());
        Issuer::new(params, key)
    }

    /// A certificate for this machine with its key, in `name`.pem.
    fn sign(&self, by: &Issuer<'static, KeyPair>, name: &str, subject: &str, until: Option<i32>) {
        let mut params =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, subject);
        if let Some(year) = until {
            params.not_after = date_time_ymd(year, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, by).expect("a certificate");
        self.write(&format!("{name}.pem"), &(key.serialize_pem() + &certificate.pem()));
    }

    /// A client's options: the authority that it trusts, and its certificate.
    pub(crate) fn options(
        &self,
        trusted: &str,
        own: Option<&str>,
        more: &[(&str, &str)],
    ) -> ConnectionOptions {
        let mut properties = Properties::new();
        properties.set("security.protocol", "SSL");
        properties.set("ssl.truststore.location", &self.path(trusted));
        if let Some(own) = own {
            properties.set("ssl.keystore.location", &self.path(own));
        }
        for (key, value) in more {
            properties.set(key, value);
        }
        ConnectionOptions::take(&mut properties, "test").expect("valid settings")
    }

    pub(crate) async fn start(&self, data: &Path, more: &[(&str, &str)]) -> RunningBroker {
        let (keystore, truststore) = (self.path("broker.pem"), self.path("ca.pem"));
        let mut properties = vec![
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:0,NONE://127.0.0.1:0,REQUESTED://127.0.0.1:0,REQUIRED://127.0.0.1:0",
            ),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,NONE:SSL,REQUESTED:SSL,REQUIRED:SSL,CONTROLLER:PLAINTEXT",
            ),
            ("ssl.keystore.location", keystore.as_str()),
            ("ssl.truststore.location", truststore.as_str()),
            ("listener.name.requested.ssl.client.auth", "requested"),
            ("listener.name.required.ssl.client.auth", "required"),
        ];
        properties.extend(more);
        RunningBroker::start(data, &properties).await
    }
}

pub(crate) fn address(broker: &RunningBroker, listener: &str) -> String {
    let addresses = &broker.server().addresses;
    addresses.iter().find(|(name, _)| name == listener).expect("a listener").1[0].to_string()
}

/// Connects and asks once: with TLS 1.3, a server refuses a client's certificate after the handshake.
pub(crate) async fn ask(address: &str, options: &ConnectionOptions) -> Result<Connection, ClientError> {
    let connection = Connection::connect(address, options).await?;
    connection.send(&MetadataRequest::default()).await?;
    Ok(connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_checked_by_the_listeners_settings() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let broker = certificates.start(data.path(), &[]).await;
    for version in ["TLSv1.2", "TLSv1.3"] {
        for (listener, own, is_served) in [
            ("NONE", None, true),
            ("NONE", Some("stranger.pem"), true),
            ("REQUESTED", None, true),
            ("REQUESTED", Some("client.pem"), true),
            ("REQUESTED", Some("stranger.pem"), false),
            ("REQUIRED", None, false),
            ("REQUIRED", Some("client.pem"), true),
            ("REQUIRED", Some("stranger.pem"), false),
            ("REQUIRED", Some("expired.pem"), false),
        ] {
            let options = certificates.options("ca.pem", own, &[("ssl.enabled.protocols", version)]);
            let asked = ask(&address(&broker, listener), &options).await;
            assert_eq!(asked.is_ok(), is_served, "{version} {listener} {own:?}: {:?}", asked.err());
        }
    }
    let error = ask(&address(&broker, "NONE"), &certificates.options("other-ca.pem", None, &[])).await;
    assert!(error.expect_err("an unknown authority").to_string().contains("signed by none that is trusted"));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_and_suites_are_those_of_the_listener() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let own = [
        ("listener.name.none.ssl.enabled.protocols", "TLSv1.2"),
        ("listener.name.none.ssl.cipher.suites", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        ("listener.name.required.ssl.principal.mapping.rules", "RULE:^CN=other$/x/"),
    ];
    let broker = certificates.start(data.path(), &own).await;
    let with = |more: &[(&str, &str)]| certificates.options("ca.pem", Some("client.pem"), more);
    let only_13 = with(&[("ssl.enabled.protocols", "TLSv1.3")]);
    assert!(ask(&address(&broker, "NONE"), &only_13).await.is_err());
    let other = with(&[("ssl.cipher.suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")]);
    assert!(ask(&address(&broker, "NONE"), &other).await.is_err());
    ask(&address(&broker, "NONE"), &with(&[])).await.expect("a version and a suite in common");
    assert!(ask(&address(&broker, "REQUIRED"), &with(&[])).await.is_err(), "no rule makes a user of it");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_and_answers_pass_whole() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let broker = certificates.start(data.path(), &[("message.max.bytes", "8000000")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let value: Vec<u8> = (0..4_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (round, version) in ["TLSv1.2", "TLSv1.3"].into_iter().enumerate() {
        let options = certificates.options("ca.pem", None, &[("ssl.enabled.protocols", version)]);
        let connection = ask(&address(&broker, "NONE"), &options).await.expect("a connection");
        for size in [1, 100, 16_383, 16_384, 70_000, 4_000_000] {
            let records = batch(&[&value[..size]]);
            let answer =
                connection.send_at(&produce(12, &topic, 0, -1, records), 12).await.expect("an answer");
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0, "{size}");
        }
        for (at, size) in [1, 100, 16_383, 16_384, 70_000, 4_000_000].into_iter().enumerate() {
            let offset = i64::try_from(6 * round + at).expect("small");
            let answer = connection.send_at(&fetch(12, &topic, vec![fetch_partition(0, offset)]), 12).await;
            let answer = answer.expect("an answer");
            let Some(Records::Inline(records)) = &answer.responses[0].partitions[0].records else {
                panic!("no records")
            };
            let sent = batch(&[&value[..size]]);
            // The first 16 bytes and the epoch are the broker's.
            assert_eq!(records[61..sent.len()], sent[61..], "{version} {size}");
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_all_of_a_large_answer() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let broker = certificates.start(data.path(), &[("message.max.bytes", "8000000")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let options = certificates.options("ca.pem", None, &[]);
    let connection = ask(&address(&broker, "NONE"), &options).await.expect("a connection");
    let value = vec![7; 4_000_000];
    for _ in 0..4 {
        connection.send_at(&produce(12, &topic, 0, -1, batch(&[&value])), 12).await.expect("an answer");
    }
    // Many answers at once, more than any buffer holds.
    let fetch = |offset| fetch(12, &topic, vec![fetch_partition(0, offset)]);
    let asked: Vec<_> = (0..4).map(fetch).collect();
    let answers = asked.iter().map(|request| connection.send_at(request, 12));
    let mut waiting: Vec<_> = answers.map(Box::pin).collect();
    for answer in &mut waiting {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let answer = timeout(PATIENCE, answer).await.expect("in time").expect("an answer");
        let Some(Records::Inline(records)) = &answer.responses[0].partitions[0].records else {
            panic!("no records")
        };
        assert!(records.len() > 4_000_000);
    }
    broker.stop().await;
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}

/// Sends bytes, and reads until the broker closes the connection.
async fn closed_after(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    // A reset is an end as well.
    drop(timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the broker closes"));
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_break_the_rules_are_disconnected() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let broker = certificates.start(data.path(), &[("connections.max.idle.ms", "1500")]).await;
    let (plain, tls) = (address(&broker, "PLAINTEXT"), address(&broker, "NONE"));
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    for bytes in [
        // A request in plain text, HTTP, a half hello, a record that is too long, and an unknown record.
        &b"\0\0\0\x0e\0\x12\0\0\0\0\0\x01\0\x04test"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &hello,
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x03\x00\x04\x63\x00\x00\x00",
        &[],
    ] {
        closed_after(&tls, bytes).await;
    }
    assert_eq!(closed_after(&plain, &hello).await, b"", "a hello on a listener without TLS");
    let alert = closed_after(&tls, b"\x16\x03\x01\xff\xff").await;
    assert_eq!((alert.first(), alert.len()), (Some(&0x15), 7), "one alert says why: {alert:?}");
    let mut endless = TcpStream::connect(&tls).await.expect("it listens");
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < PATIENCE {
        // A handshake message of 16 MiB, a byte of each record at a time.
        let record: &[u8] =
            if sent == 0 { b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\x00" } else { b"\x16\x03\x01\x00\x01\x00" };
        if endless.write_all(record).await.is_err() {
            break;
        }
        sent += record.len();
    }
    assert!(started.elapsed() < PATIENCE, "closed after {sent} bytes");
    ask(&tls, &certificates.options("ca.pem", None, &[])).await.expect("others are served");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renegotiation_is_refused() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let broker = certificates.start(data.path(), &[]).await;
    let address = address(&broker, "NONE");
    let spawned = Command::new("openssl")
        .args(["s_client", "-tls1_2", "-connect", &address, "-CAfile", &certificates.path("ca.pem")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut openssl) = spawned else {
        skipped("renegotiation by openssl: install openssl");
        return;
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    openssl.stdin.as_mut().expect("a pipe").write_all(b"R\n").expect("written");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let output = tokio::task::spawn_blocking(move || {
        drop(openssl.stdin.take());
        openssl.wait_with_output()
    });
    let output = output.await.expect("no panic").expect("it ends");
    let told =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("RENEGOTIATING"), "{told}");
    assert!(told.contains("no renegotiation") || told.contains("NO_RENEGOTIATION"), "{told}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_while_the_broker_runs() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let broker = certificates.start(data.path(), &[]).await;
    let address = address(&broker, "NONE");
    let old = ask(&address, &certificates.options("ca.pem", None, &[])).await.expect("the first certificate");

    // A file that is no certificate, and one for another subject, change nothing.
    let other = certificates.authority("new-ca");
    certificates.sign(&other, "broker", "another", None);
    tokio::time::sleep(Duration::from_millis(4500)).await;
    ask(&address, &certificates.options("ca.pem", None, &[])).await.expect("the first certificate is kept");
    certificates.write("broker.pem", "no PEM");
    tokio::time::sleep(Duration::from_millis(4500)).await;
    ask(&address, &certificates.options("ca.pem", None, &[])).await.expect("the first certificate is kept");

    certificates.sign(&other, "broker", "broker", None);
    let deadline = Instant::now() + PATIENCE;
    while ask(&address, &certificates.options("new-ca.pem", None, &[])).await.is_err() {
        assert!(Instant::now() < deadline, "the new certificate is shown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    old.send(&MetadataRequest::default()).await.expect("an old connection is kept");

    // By kafka-configs on the listener.
    let third = certificates.authority("third-ca");
    certificates.sign(&third, "third", "broker", None);
    let alter = async |name: &str, value: &str| {
        let config =
            AlterableConfig { name: name.to_owned(), value: Some(value.to_owned()), ..Default::default() };
        let resource =
            AlterConfigsResource { resource_type: 4, resource_name: "1".to_owned(), configs: vec![config] };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        let answer = broker.ask(&request).await.responses.remove(0);
        (answer.error_code, answer.error_message.unwrap_or_default())
    };
    let key = "listener.name.none.ssl.keystore.location";
    let (code, message) = alter(key, "/nowhere.pem").await;
    assert!(
        code != 0 && message.contains("Listener NONE: ssl.keystore.location=/nowhere.pem is invalid"),
        "{message}"
    );
    let (code, message) = alter(key, "/dev/zero").await;
    assert!(code != 0 && message.contains("not a regular file"), "{message}");
    let (code, message) = alter("ssl.keystore.location", &certificates.path("third.pem")).await;
    assert!(code != 0 && message.contains("for a single listener only"), "{message}");
    assert_eq!(alter(key, &certificates.path("third.pem")).await, (0, String::new()));
    let deadline = Instant::now() + PATIENCE;
    while ask(&address, &certificates.options("third-ca.pem", None, &[])).await.is_err() {
        assert!(Instant::now() < deadline, "the third certificate is shown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    old.send(&MetadataRequest::default()).await.expect("an old connection is kept");
    broker.stop().await;
}

/// A path in a setting may name a device or a private file. A client without the right to change settings
/// neither has the broker read a device to its end nor learns which files exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_only_for_those_who_may_change_settings() {
    let (certificates, data) = (Certificates::new(), tempfile::tempdir().expect("a directory"));
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let more = [("authorizer.class.name", authorizer), ("super.users", "User:somebody")];
    let broker = certificates.start(data.path(), &more).await;
    let mut answers = Vec::new();
    for path in ["/dev/zero", "/nowhere.pem", "/proc/self/mem"] {
        let (name, value) = ("listener.name.none.ssl.keystore.location".to_owned(), Some(path.to_owned()));
        let config = AlterableConfig { name, value, ..Default::default() };
        let resource =
            AlterConfigsResource { resource_type: 4, resource_name: "1".to_owned(), configs: vec![config] };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: true };
        let answer = broker.ask(&request).await.responses.remove(0);
        assert_eq!(answer.error_code, ErrorCode::ClusterAuthorizationFailed.code(), "{path}: {answer:?}");
        answers.push(answer.error_message);
    }
    assert!(answers.iter().all(|message| *message == answers[0]), "{answers:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_reach_each_other_and_the_controller_over_tls() {
    let certificates = Certificates::new();
    let (keystore, truststore) = (certificates.path("broker.pem"), certificates.path("ca.pem"));
    let secured = [
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL"),
        ("inter.broker.listener.name", "INTERNAL"),
        ("ssl.keystore.location", keystore.as_str()),
        ("ssl.truststore.location", truststore.as_str()),
        ("ssl.client.auth", "required"),
        ("default.replication.factor", "2"),
    ];
    let first = tempfile::tempdir().expect("a directory");
    let first_properties = [
        &secured[..],
        &[("listeners", "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0")],
    ];
    let one = RunningBroker::start(first.path(), &first_properties.concat()).await;
    let controller = address(&one, "CONTROLLER");
    let second = tempfile::tempdir().expect("a directory");
    let second_properties = [
        &secured[..],
        &[
            ("listeners", "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"),
            ("process.roles", "broker"),
            ("node.id", "2"),
            ("controller.quorum.bootstrap.servers", &controller),
        ],
    ];
    let two = RunningBroker::start(second.path(), &second_properties.concat()).await;
    let topic = replicated(&two).await;
    // Acknowledged by both: the follower fetches over TLS.
    let leader = if topic.1 == 1 { &one } else { &two };
    let answer = leader.ask_at(&produce(12, &topic.0, 0, -1, batch(&[b"a"])), 12).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    two.stop().await;
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_follows_its_controller_to_a_new_authority() {
    let certificates = Certificates::new();
    let ca = std::fs::read_to_string(certificates.path("ca.pem")).expect("the authority");
    certificates.write("trust.pem", &ca);
    let (keystore, truststore) = (certificates.path("broker.pem"), certificates.path("trust.pem"));
    let controller = format!("127.0.0.1:{}", thalweg_ports::free_port());
    let secured = [
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"),
        ("ssl.keystore.location", keystore.as_str()),
        ("ssl.truststore.location", truststore.as_str()),
        ("ssl.client.auth", "required"),
        ("default.replication.factor", "2"),
        ("broker.heartbeat.interval.ms", "500"),
    ];
    let first = tempfile::tempdir().expect("a directory");
    let listeners = format!("PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}");
    let first_properties = [&secured[..], &[("listeners", listeners.as_str())]].concat();
    let one = RunningBroker::start(first.path(), &first_properties).await;
    let second = tempfile::tempdir().expect("a directory");
    let more = [
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("controller.quorum.bootstrap.servers", controller.as_str()),
    ];
    let two = RunningBroker::start(second.path(), &[&secured[..], &more].concat()).await;

    let new = certificates.authority("new-ca");
    let both = ca + &std::fs::read_to_string(certificates.path("new-ca.pem")).expect("the new authority");
    certificates.write("trust.pem", &both);
    certificates.sign(&new, "broker", "broker", None);
    one.kill().await;
    let one = RunningBroker::start(first.path(), &first_properties).await;
    let deadline = Instant::now() + PATIENCE;
    while one.server().broker.image().alive_brokers().count() < 2 {
        assert!(Instant::now() < deadline, "the broker is back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The controller may still count the broker from before; a record that both have shows that it is back.
    let (topic, leader) = replicated(&one).await;
    let leader = if leader == 1 { &one } else { &two };
    let acknowledged = async || {
        let answer = leader.ask_at(&produce(12, &topic, 0, -1, batch(&[b"a"])), 12).await;
        answer.responses[0].partition_responses[0].error_code == 0
    };
    while !acknowledged().await {
        assert!(Instant::now() < deadline, "both replicas have a record");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    two.stop().await;
    one.stop().await;
}

/// A topic with two replicas in sync, and its leader.
async fn replicated(broker: &RunningBroker) -> (Topic, i32) {
    use thalweg_wire::request::CreateTopicsRequest;
    use thalweg_wire::request::create_topics_request::CreatableTopic;
    let topic = CreatableTopic {
        name: "topic".to_owned(),
        num_partitions: 1,
        replication_factor: 2,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    let created = broker.ask(&request).await.topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metadata = broker.ask(&MetadataRequest { topics: None, ..Default::default() }).await;
        let known = metadata.topics.iter().find(|known| known.name.as_deref() == Some("topic"));
        if let Some(partition) = known.and_then(|known| known.partitions.first())
            && partition.isr_nodes.len() == 2
        {
            return (Topic { name: "topic".to_owned(), id: created.topic_id }, partition.leader_id);
        }
        assert!(Instant::now() < deadline, "both replicas are in sync");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_clients_use_java_stores() {
    let Some(jars) = std::env::var("KAFKA_CLASSPATH").ok().filter(|jars| !jars.is_empty()) else {
        skipped("Java's clients over TLS: export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\"");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let run = async |line: String| {
        let dir: PathBuf = dir.path().to_owned();
        let done = tokio::task::spawn_blocking(move || {
            let words: Vec<&str> = line.split(' ').collect();
            let output = Command::new(words[0]).args(&words[1..]).current_dir(dir).output().expect("it runs");
            let told = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {told}");
            told
        });
        done.await.expect("it succeeds")
    };
    for name in ["broker", "client"] {
        run(format!(
            "keytool -genkeypair -keyalg RSA -keysize 2048 -alias a -dname CN={name} -ext SAN=ip:127.0.0.1 -validity 9 \
             -keystore {name}.jks -storetype JKS -storepass secret1 -keypass secret1"
        ))
        .await;
        run(format!("keytool -exportcert -alias a -keystore {name}.jks -storepass secret1 -file {name}.der"))
            .await;
        run(format!(
            "keytool -importcert -noprompt -alias {name} -file {name}.der -keystore trust.jks -storetype JKS -storepass \
             secret1"
        ))
        .await;
    }
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (keystore, truststore, client) = (path("broker.jks"), path("trust.jks"), path("client.jks"));
    let data = tempfile::tempdir().expect("a directory");
    let properties = [
        ("listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"),
        ("ssl.keystore.location", &*keystore),
        ("ssl.keystore.password", "secret1"),
        ("ssl.truststore.location", &*truststore),
        ("ssl.truststore.password", "secret1"),
        ("ssl.client.auth", "required"),
    ];
    let broker = RunningBroker::start(data.path(), &properties).await;
    let address = address(&broker, "SSL");
    for version in ["TLSv1.2", "TLSv1.3"] {
        let settings = format!(
            "security.protocol=SSL\nssl.truststore.location={truststore}\nssl.truststore.password=secret1\n\
             ssl.keystore.location={client}\nssl.keystore.password=secret1\nssl.enabled.protocols={version}\n"
        );
        std::fs::write(dir.path().join("client.properties"), settings).expect("written");
        let told = run(format!(
            "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp {jars} org.apache.kafka.tools.ProducerPerformance --topic perf --num-records 50000 --record-size 1000 \
             --throughput -1 --bootstrap-server {address} --command-config client.properties"
        ))
        .await;
        assert!(told.contains("50000 records sent"), "{told}");
        let told = run(format!(
            "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp {jars} org.apache.kafka.tools.ConsumerPerformance --topic perf --num-records 50000 \
             --bootstrap-server {address} --command-config client.properties"
        ))
        .await;
        assert!(!told.contains("WARNING: Exiting before consuming"), "{told}");
    }
    broker.stop().await;
}
