//! TLS and SASL against Apache Kafka, with a listener of each kind, and stores written by Java. Skipped, with
//! a message, without `KAFKA_CLASSPATH`.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use thalweg_client::{
    Cluster, ConnectionOptions, Consumer, ConsumerConfig, Delivery, OffsetReset, OffsetSpec, PollEvent,
    Producer, ProducerConfig, Properties, StartAt, TopicPartition,
};
use thalweg_ports::free_port;
use tokio::time::Instant;

use crate::certificates::{Authority, PASSWORD, Validity, path, write};
use crate::kafka::{KEEP_OLD_RECORDS, Kafka, java, read, skipped};
use crate::random::{record, seeded};

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required";
/// The listeners, and what clients call their protocols.
const LISTENERS: [(&str, &str); 4] =
    [("TLS", "SSL"), ("MUTUAL", "SSL"), ("SCRAM", "SASL_SSL"), ("PLAIN", "SASL_PLAINTEXT")];

/// A limit for what takes well under a second on an idle machine.
const READ_WITHIN: Duration = Duration::from_secs(60);

struct SecureKafka {
    _kafka: Kafka,
    directory: TempDir,
    ports: BTreeMap<&'static str, u16>,
    ca: String,
}

/// Kafka with a listener of each kind; sessions of SASL live for five seconds.
async fn secured() -> Option<SecureKafka> {
    let Ok(classpath) = std::env::var("KAFKA_CLASSPATH") else {
        skipped("TLS and SASL against Apache Kafka");
        return None;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("authority");
    let broker = authority.sign(&["localhost", "127.0.0.1"], Validity::Now);
    let store =
        write(&directory.path().join("broker.pem"), (broker.key_pem.clone() + &broker.pem).as_bytes());
    let ca = write(&directory.path().join("ca.pem"), authority.pem.as_bytes());
    let client = authority.sign(&[], Validity::Now);
    client.write_keystore(&directory.path().join("client.p12"));

    let ports: BTreeMap<_, _> = LISTENERS.iter().map(|(name, _)| (*name, free_port())).collect();
    let (inner, controller) = (free_port(), free_port());
    let listeners: String = ports.iter().map(|(name, port)| format!("{name}://127.0.0.1:{port},")).collect();
    let map: String = LISTENERS.iter().map(|(name, protocol)| format!("{name}:{protocol},")).collect();
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners={listeners}INNER://127.0.0.1:{inner},CONTROLLER://127.0.0.1:{controller}\n\
         listener.security.protocol.map={map}INNER:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         controller.listener.names=CONTROLLER\ninter.broker.listener.name=INNER\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n{KEEP_OLD_RECORDS}\
         ssl.keystore.type=PEM\nssl.keystore.location={store}\nssl.truststore.type=PEM\nssl.truststore.location={ca}\n\
         listener.name.mutual.ssl.client.auth=required\nconnections.max.reauth.ms=5000\n\
         listener.name.plain.sasl.enabled.mechanisms=PLAIN\n\
         listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256\n\
         listener.name.plain.plain.sasl.jaas.config={PLAIN} user_ann=\"plain-secret\";\n\
         listener.name.scram.scram-sha-512.sasl.jaas.config={SCRAM};\n\
         listener.name.scram.scram-sha-256.sasl.jaas.config={SCRAM};\n",
        directory.path().join("data").display()
    );
    let properties = write(&directory.path().join("server.properties"), text.as_bytes());
    let format = java(&classpath, "-Xmx256m")
        .args(["kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", &properties])
        .args(["--add-scram", "SCRAM-SHA-512=[name=ann,password=scram-secret]"])
        .args(["--add-scram", "SCRAM-SHA-256=[name=bob,password=two]"])
        .status();
    assert!(format.expect("java runs").success(), "the data directory is formatted");
    // Kafka's first lines report faults of its settings.
    let child =
        java(&classpath, "-Xmx512m").args(["kafka.Kafka", &properties]).stdout(Stdio::piped()).spawn();
    let inner = vec![format!("127.0.0.1:{inner}")];
    let mut kafka = Kafka { bootstrap: inner, child: Some(child.expect("java runs")), _data: None };
    let deadline = Instant::now() + Duration::from_secs(120);
    while Cluster::connect(&kafka.bootstrap, &ConnectionOptions::default()).await.is_err() {
        let child = kafka.child.as_mut().expect("it was started");
        if child.try_wait().expect("a child").is_some() || Instant::now() > deadline {
            child.kill().expect("it is ours");
            let said = std::io::read_to_string(child.stdout.take().expect("a pipe")).expect("text");
            panic!("Kafka did not start within two minutes: {said}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let said = kafka.child.as_mut().and_then(|child| child.stdout.take()).expect("a pipe");
    // Until the pipe ends with Kafka: a full one would stop it.
    std::thread::spawn(move || std::io::copy(&mut { said }, &mut std::io::sink()));
    Some(SecureKafka { _kafka: kafka, directory, ports, ca })
}

impl SecureKafka {
    fn bootstrap(&self, listener: &str) -> Vec<String> {
        vec![format!("127.0.0.1:{}", self.ports[listener])]
    }

    /// Settings for a listener, with one of trust.
    fn settings(&self, listener: &str, more: &[(&str, &str)]) -> Properties {
        let protocol = LISTENERS.iter().find(|(name, _)| *name == listener).expect("a listener").1;
        let mut properties = Properties::new();
        properties.set("security.protocol", protocol);
        if protocol.ends_with("SSL") {
            properties.set("ssl.truststore.location", &self.ca);
        }
        for (key, value) in more {
            properties.set(key, value);
        }
        properties
    }

    async fn connect(&self, listener: &str, more: &[(&str, &str)]) -> Result<Cluster, String> {
        let mut properties = self.settings(listener, more);
        let options = ConnectionOptions::take(&mut properties, "test").map_err(|error| error.to_string())?;
        Cluster::connect(&self.bootstrap(listener), &options).await.map_err(|error| error.to_string())
    }

    /// Sends records to a topic of their own and reads each of them back, over and over for so long.
    async fn works(&self, topic: &str, listener: &str, more: &[(&str, &str)], lasting: Duration) {
        let config = ProducerConfig::take(&mut self.settings(listener, more)).expect("settings");
        let report = |delivery: &Delivery<'_>| assert!(delivery.result.is_ok(), "{:?}", delivery.result);
        let mut producer =
            Producer::connect(&self.bootstrap(listener), config, report).await.expect("connected");
        let id = producer.topic(topic).await.expect("the topic is created");
        let mut settings = self.settings(listener, more);
        settings.set("fetch.max.wait.ms", "100");
        settings.set("auto.offset.reset", "earliest");
        let config = ConsumerConfig::take(&mut settings).expect("settings");
        assert_eq!(config.offset_reset, OffsetReset::Earliest);
        let mut consumer = Consumer::connect(&self.bootstrap(listener), config).await.expect("connected");
        let at = TopicPartition::new(topic, 0);
        consumer.assign(vec![(at.clone(), StartAt::Spec(OffsetSpec::Earliest))]).await.expect("assigned");
        let mut random = seeded(7);
        let begun = Instant::now();
        let (mut sent, mut back) = (Vec::new(), Vec::new());
        while sent.is_empty() || begun.elapsed() < lasting {
            for _ in 0..50 {
                let stored = record(&mut random, sent.len() as u64, 20_000);
                let record = thalweg_client::ProducerRecord {
                    topic: id,
                    partition: Some(0),
                    timestamp: stored.timestamp,
                    key: None,
                    value: stored.value.as_deref(),
                    headers: &[],
                    sent_at: Instant::now(),
                    number: 0,
                };
                producer.send(&record).await.expect("taken");
                sent.push(stored.value);
            }
            let deadline = Instant::now() + READ_WITHIN;
            while back.len() < sent.len() {
                assert!(
                    Instant::now() < deadline,
                    "{topic}: {} of {} records came back",
                    back.len(),
                    sent.len()
                );
                if let PollEvent::Chunk(chunk) =
                    consumer.poll(Duration::from_millis(500)).await.expect("a poll")
                {
                    let mut records = Vec::new();
                    read(&chunk, &mut records);
                    back.extend(records.into_iter().map(|record| record.value));
                }
            }
        }
        producer.close().await;
        assert!(back == sent, "{topic}: the records that came back are those sent, in their order");
    }
}

fn keytool(arguments: &[&str]) {
    let status = Command::new("keytool").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.expect("keytool comes with Java").success(), "{arguments:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_lets_us_in_by_every_protocol() {
    let Some(kafka) = secured().await else { return };
    tls_works_with_stores_that_java_wrote(&kafka).await;
    sessions_outlive_their_lifetime(&kafka).await;
    what_kafka_refuses_is_explained(&kafka).await;
}

async fn tls_works_with_stores_that_java_wrote(kafka: &SecureKafka) {
    let file = |name| path(&kafka.directory, name).1;
    let (trust, ours, theirs, jks) =
        (file("trust.p12"), file("client.p12"), file("java.p12"), file("java.jks"));
    keytool(&[
        "-importcert",
        "-noprompt",
        "-alias",
        "ca",
        "-file",
        &kafka.ca,
        "-keystore",
        &trust,
        "-storetype",
        "PKCS12",
        "-storepass",
        PASSWORD,
    ]);
    for (store, kind) in [(&theirs, "PKCS12"), (&jks, "JKS")] {
        keytool(&[
            "-importkeystore",
            "-srckeystore",
            &ours,
            "-srcstorepass",
            PASSWORD,
            "-srcstoretype",
            "PKCS12",
            "-destkeystore",
            store,
            "-deststoretype",
            kind,
            "-deststorepass",
            PASSWORD,
        ]);
    }
    let trusted = [("ssl.truststore.location", trust.as_str()), ("ssl.truststore.password", PASSWORD)];
    kafka.works("tls", "TLS", &trusted, Duration::ZERO).await;
    for (topic, store) in [("mutual-rust", &ours), ("mutual-java", &theirs), ("mutual-jks", &jks)] {
        let mut mutual = trusted.to_vec();
        mutual.extend([("ssl.keystore.location", store.as_str()), ("ssl.keystore.password", PASSWORD)]);
        kafka.works(topic, "MUTUAL", &mutual, Duration::ZERO).await;
    }
}

async fn sessions_outlive_their_lifetime(kafka: &SecureKafka) {
    let scram = format!("{SCRAM} username=\"ann\" password=\"scram-secret\";");
    let plain = format!("{PLAIN} username=\"ann\" password=\"plain-secret\";");
    let by_scram = [("sasl.mechanism", "SCRAM-SHA-512"), ("sasl.jaas.config", scram.as_str())];
    let by_plain = [("sasl.mechanism", "PLAIN"), ("sasl.jaas.config", plain.as_str())];
    // Kafka closes connections that continue after the lifetime without re-authentication.
    let lasting = Duration::from_secs(12);
    tokio::join!(
        kafka.works("scram", "SCRAM", &by_scram, lasting),
        kafka.works("plain", "PLAIN", &by_plain, lasting)
    );
    let other = [("sasl.mechanism", "SCRAM-SHA-256"), ("sasl.username", "bob"), ("sasl.password", "two")];
    kafka.connect("SCRAM", &other).await.expect("let in");
}

async fn what_kafka_refuses_is_explained(kafka: &SecureKafka) {
    let scram = |user, password| {
        [("sasl.mechanism", "SCRAM-SHA-512"), ("sasl.username", user), ("sasl.password", password)]
    };
    let plain = [("sasl.mechanism", "PLAIN"), ("sasl.username", "ann"), ("sasl.password", "hunter2")];
    let stranger = Authority::new("stranger");
    let system = [("security.protocol", "PLAINTEXT")];
    for (listener, settings, words) in [
        (
            "SCRAM",
            &scram("ann", "hunter2")[..],
            "rejects this client by SCRAM-SHA-512: Authentication failed",
        ),
        ("SCRAM", &scram("nobody", "x"), "Authentication failed"),
        ("SCRAM", &plain, "this listener supports SCRAM-SHA-512, SCRAM-SHA-256 (sasl.mechanism)"),
        ("PLAIN", &plain, "rejects this client by PLAIN: Authentication failed"),
        (
            "TLS",
            &[("ssl.truststore.certificates", stranger.pem.as_str()), ("ssl.truststore.location", "")],
            "signed by none that is trusted here",
        ),
        ("MUTUAL", &[], "requires a client certificate"),
        ("TLS", &system, "expected security.protocol=SSL or SASL_SSL"),
        ("PLAIN", &system, "a SASL listener does so"),
        (
            "PLAIN",
            &[("security.protocol", "SSL"), ("ssl.truststore.location", &kafka.ca)],
            "a listener without TLS does so",
        ),
        ("TLS", &[("security.protocol", "SASL_SSL"), plain[0], plain[1], plain[2]], "does not use SASL"),
    ] {
        let error = kafka.connect(listener, settings).await.expect_err("a refusal");
        assert!(error.contains(words), "{listener}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
