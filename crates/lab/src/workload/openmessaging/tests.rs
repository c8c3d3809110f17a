use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const WORKLOAD: &str = "name: Two topics\n\ntopics: 2\npartitionsPerTopic: 8\nkeyDistributor: \"KEY_ROUND_ROBIN\"\n\
                        messageSize: 1024\nuseRandomizedPayloads: true\nrandomBytesRatio: 0.5\n\
                        randomizedPayloadPoolSize: 100\n\nsubscriptionsPerTopic: 1\nconsumerPerSubscription: 3\n\
                        producersPerTopic: 4\nproducerRate: 50000\nconsumerBacklogSizeGB: 0\ntestDurationMinutes: 5\n";

const DRIVER: &str = "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\
                      replicationFactor: 3\nreset: true\ntopicConfig: |\n  min.insync.replicas=2\ncommonConfig: |\n  \
                      bootstrap.servers=localhost:9092\n  request.timeout.ms=120000\nproducerConfig: |\n  acks=all\n  \
                      linger.ms=1\n  batch.size=131072\nconsumerConfig: |\n  auto.offset.reset=earliest\n  \
                      request.timeout.ms=9000\n";

fn read(text: &str) -> Result<Workload, InvalidFile> {
    parse("stem", "w.yaml", text, &Driver::default())
}

/// The first mistake in the workload with one line replaced: line, key and message.
fn mistake(key: &str, line: &str) -> (u32, String, String) {
    let text: Vec<_> = WORKLOAD.lines().map(|old| if old.starts_with(key) { line } else { old }).collect();
    let invalid = read(&text.join("\n")).expect_err(line);
    let Mistake { position, key, problem, remedy } = invalid.mistakes[0].clone();
    (position.line, key, format!("{problem}; {remedy}"))
}

#[track_caller]
fn assert_mistake(key: &str, line: &str, at: u32, message: &str) {
    assert_eq!(mistake(&format!("{key}:"), line), (at, key.to_owned(), message.to_owned()));
}

fn replaced(from: &str, to: &str) -> Workload {
    assert!(WORKLOAD.contains(from), "{from}");
    read(&WORKLOAD.replace(from, to)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_workload_and_its_driver_become_a_point() {
    let driver = Driver::parse("d.yaml", DRIVER).unwrap_or_else(|error| panic!("{error}"));
    let workload = parse("stem", "w.yaml", WORKLOAD, &driver).unwrap_or_else(|error| panic!("{error}"));
    let point = &workload.points[0];
    assert_eq!((workload.name.as_str(), workload.title.as_str()), ("stem", "Two topics"));
    assert_eq!((point.topics.count, point.topics.partitions, point.topics.replication_factor), (2, 8, 3));
    assert_eq!((point.producers.count, point.consumers.count, point.cluster.brokers), (8, 6, 3));
    assert_eq!((point.records.size_bytes, point.records.keys), (1024, Some(Keys { distinct: 10_000 })));
    assert_eq!(point.load, Load::Rate { records_per_s: 50_000.0 });
    assert_eq!((point.extent.warm_up_s, point.extent.unit), (60.0, Unit::Seconds(300.0)));
    assert_eq!(point.topics.properties["min.insync.replicas"], "2");
    assert_eq!((&*point.producers.properties["acks"], point.producers.properties.len()), ("all", 4));
    assert_eq!(point.producers.properties["request.timeout.ms"], "120000");
    assert_eq!(point.consumers.properties["request.timeout.ms"], "9000", "the own word counts more");
    assert!(!point.consumers.properties.contains_key("bootstrap.servers"));
}

#[test]
fn values_of_config_providers_are_put_in_place() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "password=hunter2\n").expect("written");
    let path = file.path().to_str().expect("UTF-8");
    let by = "config.providers=file\n  \
              config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n  ";
    let common =
        |more: &str| DRIVER.replace("commonConfig: |\n  ", &format!("commonConfig: |\n  {more}\n  "));
    let text = common(&format!("{by}sasl.password=${{file:{path}:password}}"));
    let driver = Driver::parse("d.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    for client in [&driver.producer, &driver.consumer] {
        assert_eq!(client["sasl.password"], "hunter2");
        assert!(!client.keys().any(|key| key.starts_with("config.providers")), "{client:?}");
    }
    let message =
        Driver::parse("d.yaml", &common("sasl.password=${env:PW}")).expect_err("no provider").to_string();
    assert!(message.contains("config.providers does not name env"), "{message}");
}

#[test]
fn each_subscription_is_a_group_with_as_many_consumers() {
    let point = replaced("subscriptionsPerTopic: 1", "subscriptionsPerTopic: 4").points.remove(0);
    assert_eq!((point.consumers.count, point.consumer_groups), (24, 4));
    let point = replaced("consumerPerSubscription: 3", "consumerPerSubscription: 0").points.remove(0);
    assert_eq!((point.consumers.count, point.consumer_groups), (0, 1));
}

#[test]
fn rate_0_looks_for_the_most() {
    let point = replaced("producerRate: 50000", "producerRate: 0").points.remove(0);
    assert_eq!(point.load, Load::RaiseRate { first_records_per_s: 10_000.0, factor: 1.5, precision: 0.05 });
}

#[test]
fn a_backlog_is_drained() {
    let point = replaced("consumerBacklogSizeGB: 0", "consumerBacklogSizeGB: 2").points.remove(0);
    assert_eq!((point.measure, point.extent.unit), (Measure::Drain, Unit::Records(2 << 20)));
    let text = WORKLOAD.replace("GB: 0", "GB: 2").replace("Rate: 50000", "Rate: 0");
    let message = read(&text).expect_err("no backlog at the highest rate").to_string();
    assert!(
        message.contains("producerRate: 0 searches for the highest rate, which builds no backlog"),
        "{message}"
    );
}

#[test]
fn values_are_random_where_nothing_is_compressed() {
    assert!(replaced("name: Two", "name: 2").description.contains("instead of randomBytesRatio = 0.5"));
    assert_eq!(replaced("Ratio: 0.5", "Ratio: 0").points[0].records.payload, Payload::Zeros);
    let file = "useRandomizedPayloads: false\npayloadFile: \"payload/payload-1Kb.data\"";
    let workload = replaced("useRandomizedPayloads: true", file);
    assert_eq!(workload.points[0].records.payload, Payload::Random);
    assert!(workload.description.contains("instead of payload/payload-1Kb.data"), "{}", workload.description);
}

#[test]
fn values_that_matter_to_compression_are_refused() {
    let driver = DRIVER.replace("linger.ms=1", "compression.type=zstd");
    let driver = Driver::parse("d.yaml", &driver).unwrap_or_else(|error| panic!("{error}"));
    let message = |text: &str| {
        parse("stem", "w.yaml", text, &driver).expect_err("it depends on the values").to_string()
    };
    let ratio = message(WORKLOAD);
    assert!(
        ratio
            .starts_with("w.yaml:8:19: randomBytesRatio: 0.5 cannot be expressed with compression.type=zstd"),
        "{ratio}"
    );
    let file = message(&WORKLOAD.replace("useRandomizedPayloads: true", "payloadFile: a.data"));
    assert!(file.starts_with("w.yaml:7:14: payloadFile: \"a.data\" cannot be expressed"), "{file}");
}

#[test]
fn mistakes_are_reported_by_key() {
    assert_mistake("topics", "topics: many", 3, "\"many\" is invalid; use a whole number from 1 to 100000");
    let message = "is missing; add topics: NUMBER";
    assert_eq!(mistake("topics:", "topic: 1"), (1, "topics".to_owned(), message.to_owned()));
    let message = "10001 is invalid; use a whole number from 0 to 10000";
    assert_mistake("subscriptionsPerTopic", "subscriptionsPerTopic: 10001", 11, message);
    let message = "\"RANDOM\" is invalid; use one of NO_KEY, KEY_ROUND_ROBIN, RANDOM_NANO";
    assert_mistake("keyDistributor", "keyDistributor: RANDOM", 5, message);
    let message = "the pool is empty, with useRandomizedPayloads; use at least 1";
    assert_mistake("randomizedPayloadPoolSize", "randomizedPayloadPoolSize: 0", 9, message);
    let message =
        "is missing, without useRandomizedPayloads; use the path of a file, or useRandomizedPayloads: true";
    assert_eq!(mistake("useRandomizedPayloads:", "useRandomizedPayloads: false").2, message);
    assert_mistake("producersPerTopic", "producersPerTopic: 0", 13, "no producers; use at least 1");
    let message = "16000 clients in total; use at most 10,000";
    assert_mistake("producersPerTopic", "producersPerTopic: 8000", 13, message);
    let message = "unknown key; did you mean producerRate?";
    assert_eq!(
        mistake("producerRate:", "producersRate: 5"),
        (14, "producersRate".to_owned(), message.to_owned())
    );
}

#[test]
fn a_ratio_of_a_backlog_is_refused() {
    let text = WORKLOAD.replace("GB: 0", "GB: 1") + "backlogDrainRatio: 0.9\n";
    let message = read(&text).expect_err("it is drained whole").to_string();
    assert!(
        message.starts_with("w.yaml:17:20: backlogDrainRatio: 0.9: the lab always drains the whole backlog"),
        "{message}"
    );
}

#[test]
fn drivers_of_other_systems_are_refused() {
    let driver = DRIVER.replace("kafka.KafkaBenchmarkDriver", "pulsar.PulsarBenchmarkDriver");
    let message = Driver::parse("d.yaml", &driver).expect_err("it is not Kafka's").to_string();
    assert!(message.starts_with("d.yaml:2:14: driverClass: \"io.openmessaging"), "{message}");
    let message = Driver::parse("d.yaml", "replicationFactor: 0\n").expect_err("no replica").to_string();
    assert!(message.starts_with("d.yaml:1:20: replicationFactor: 0 is invalid"), "{message}");
    let message = Driver::parse("d.yaml", "replicationFactor: 1\nclient:\n  a: 1\n")
        .expect_err("no such key")
        .to_string();
    assert!(message.starts_with("d.yaml:2:1: client: unknown key"), "{message}");
}

#[test]
fn files_are_read_by_their_ending() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("two-topics.yaml");
    std::fs::write(&path, WORKLOAD).expect("written");
    let workload =
        crate::workload::load(&path.to_string_lossy(), Some(0.1)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((workload.name.as_str(), workload.scale), ("two-topics", 0.1));
    assert_eq!(workload.points[0].extent.unit, Unit::Seconds(30.0));
    let missing = load(&path, Some(&folder.path().join("driver.yaml"))).expect_err("no driver").to_string();
    assert!(missing.contains("driver.yaml cannot be read"), "{missing}");
}

#[test]
fn damaged_files_never_panic() {
    let mut random = SmallRng::seed_from_u64(7);
    for round in 0..3000 {
        let whole = if round % 2 == 0 { WORKLOAD } else { DRIVER };
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random_range(b'\n'..b'~');
        }
        let text = String::from_utf8_lossy(&bytes);
        let reported = |invalid: InvalidFile| assert!(!invalid.mistakes.is_empty(), "seed 7, round {round}");
        if round % 2 == 0 {
            let _ = read(&text).map_err(reported);
        } else {
            let _ = Driver::parse("d.yaml", &text).map_err(reported);
        }
    }
}
