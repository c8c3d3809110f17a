//! The whole configuration, against the answers of Kafka 4.3.1 in `tests/golden/config-answers.txt`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::alter::{AlterOp, Alteration, ConfigScope, apply};
use super::describe::{ConfigSource, DescribedConfig};
use super::*;

const GOLDEN: &str = include_str!("../tests/golden/config-answers.txt");

/// The file of the Kafka broker with the golden answers.
const FILE: &str = "
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:39193
listeners=PLAINTEXT://127.0.0.1:39192,CONTROLLER://127.0.0.1:39193
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://127.0.0.1:39192,CONTROLLER://127.0.0.1:39193
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
log.segment.bytes=10485760
log.cleanup.policy=delete
ssl.keystore.password=secret
my.custom.key=value
";

fn configure(text: &str) -> Result<BrokerConfig, InvalidConfig> {
    let properties = ServerProperties::parse(Path::new("server.properties"), text.as_bytes());
    BrokerConfig::new(&properties.expect("a properties file"))
}

fn kafka_like() -> BrokerConfig {
    configure(FILE).expect("a valid file")
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The lines of the golden file that begin with `kind`, as fields.
fn golden(kind: &str) -> Vec<Vec<&'static str>> {
    let lines = GOLDEN.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let found: Vec<_> = lines.filter(|fields| fields[0] == kind).collect();
    assert!(!found.is_empty(), "the golden file has {kind} lines");
    found
}

fn source_name(source: ConfigSource) -> &'static str {
    match source {
        ConfigSource::DynamicTopic => "DYNAMIC_TOPIC_CONFIG",
        ConfigSource::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
        ConfigSource::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
        ConfigSource::StaticBroker => "STATIC_BROKER_CONFIG",
        ConfigSource::Default => "DEFAULT_CONFIG",
        ConfigSource::ClientMetrics => "CLIENT_METRICS_CONFIG",
        ConfigSource::BrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
        ConfigSource::Group => "GROUP_CONFIG",
    }
}

fn line(config: &DescribedConfig) -> Vec<String> {
    let null = || "null".to_owned();
    let access = if config.read_only { "ro" } else { "rw" };
    let synonyms = config.synonyms.iter().map(|synonym| {
        let value = synonym.value.clone().unwrap_or_else(null);
        format!("{}:{}={value}", source_name(synonym.source), synonym.name)
    });
    vec![
        config.name.clone(),
        config.value.clone().unwrap_or_else(null),
        source_name(config.source).to_owned(),
        config.config_type.name().to_owned(),
        if config.is_sensitive { format!("{access} sensitive") } else { access.to_owned() },
        synonyms.collect::<Vec<_>>().join(" ; "),
    ]
}

/// Compares descriptions with Kafka's, except for keys that Thalweg declares as different or does not show.
fn compare(moment: &str, resource: &str, described: &[DescribedConfig]) {
    let mut compared = 0;
    for fields in golden("describe") {
        let name = fields[3];
        let key =
            if resource.starts_with("TOPIC") { table::topic_key(name) } else { table::broker_key(name) };
        let hidden = !described.iter().any(|config| config.name == name)
            && key.is_some_and(|key| {
                matches!(key.support, Support::Unserved(_) | Support::Startup | Support::Opening)
            });
        if fields[1] != moment
            || fields[2] != resource
            || hidden
            || key.is_some_and(|key| key.differs.is_some())
        {
            continue;
        }
        let ours = described.iter().find(|config| config.name == name);
        assert_eq!(line(ours.unwrap_or_else(|| panic!("{name} is not described"))), fields[3..], "{moment}");
        compared += 1;
    }
    assert!(compared > 2, "{moment} {resource}");
}

fn topic_overrides() -> BTreeMap<String, String> {
    map(&[("cleanup.policy", "compact"), ("segment.ms", "1000000"), ("min.cleanable.dirty.ratio", "0.25")])
}

#[test]
fn describe_configs_answers_as_kafka_does() {
    let (config, errors) = kafka_like().with_dynamic(&map(&[("min.insync.replicas", "1")]), &map(&[]));
    assert_eq!(errors, []);
    compare("before", "BROKER:1", &config.describe_broker(None));
    compare("before", "TOPIC:t", &config.describe_topic(&topic_overrides(), None));
    let cluster =
        map(&[("min.insync.replicas", "1"), ("message.max.bytes", "2000000"), ("log.roll.ms", "777777")]);
    let broker = map(&[
        ("log.retention.ms", "7200000"),
        ("message.max.bytes", "3000000"),
        ("my.unknown", "1"),
        ("log.cleanup.policy", "delete,compact"),
        ("sasl.jaas.config", "x"),
    ]);
    let (config, errors) = config.with_dynamic(&cluster, &broker);
    assert_eq!(errors, []);
    compare("after", "BROKER:1", &config.describe_broker(None));
    compare("after", "BROKER:", &config.describe_cluster_defaults(None));
    let overrides = map(&[
        ("cleanup.policy", "delete,compact"),
        ("segment.ms", "1000000"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("leader.replication.throttled.replicas", "0:1,0:2"),
    ]);
    compare("after", "TOPIC:t", &config.describe_topic(&overrides, None));
}

#[test]
fn describe_configs_shows_the_requested_settings() {
    let config = kafka_like();
    let names = ["segment.ms", "nothing"].into();
    let described = config.describe_topic(&map(&[]), Some(&names));
    assert_eq!(described.len(), 1);
    assert!(described[0].documentation.is_some());
    let names = ["ssl.keystore.password", "ssl.engine.factory.class"].into();
    let described = config.describe_broker(Some(&names));
    assert_eq!(described.len(), 1, "a key that is not served appears only when it is set");
    assert_eq!(described[0].value, None, "a secret is not shown");
}

#[test]
fn topics_are_refused_in_kafkas_words() {
    let config = kafka_like();
    for fields in golden("create") {
        let pairs: Vec<_> = fields[1].split('|').map(|pair| pair.split_once('=').expect("a pair")).collect();
        let answer = match config.topic_defaults.validate(&map(&pairs)) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(answer, fields[2], "{}", fields[1]);
    }
    let null = BTreeMap::from([("retention.ms".to_owned(), None)]);
    let error = config.topic_defaults.validate_request(&null).expect_err("a null");
    assert_eq!(error.to_string(), "Null value not supported for topic configs: retention.ms");
}

fn alteration(op: AlterOp, name: &str, value: Option<&str>) -> Alteration {
    Alteration { name: name.to_owned(), op, value: value.map(str::to_owned) }
}

#[test]
fn alterations_of_topics_are_answered_as_kafka_does() {
    let config = kafka_like();
    for fields in golden("alter") {
        let (op, pair) = fields[1].split_once(' ').expect("an operation");
        let (name, value) = pair.split_once('=').expect("a pair");
        let op = match op {
            "SET" => AlterOp::Set,
            "DELETE" => AlterOp::Delete,
            "APPEND" => AlterOp::Append,
            _ => AlterOp::Subtract,
        };
        let value = Some(value).filter(|value| *value != "null");
        let answer = match config.alter_topic(&topic_overrides(), &[alteration(op, name, value)]) {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(answer, fields[2], "{}", fields[1]);
    }
}

#[test]
fn lists_grow_and_shrink_by_their_entries() {
    let step = |current: &[(&str, &str)], op, value| {
        let altered =
            apply(ConfigScope::Topic, &map(current), &[alteration(op, "cleanup.policy", Some(value))]);
        altered.expect("a list")["cleanup.policy"].clone()
    };
    assert_eq!(step(&[("cleanup.policy", "compact")], AlterOp::Append, "delete"), "compact,delete");
    assert_eq!(step(&[("cleanup.policy", "compact,delete")], AlterOp::Subtract, "compact"), "delete");
    assert_eq!(step(&[("cleanup.policy", "delete")], AlterOp::Subtract, "delete"), "");
    assert_eq!(step(&[], AlterOp::Append, "compact"), "delete,compact", "it starts from the default");
    assert_eq!(step(&[], AlterOp::Append, "delete"), "delete", "an entry is there once");
}

#[test]
fn malformed_alterations_are_refused() {
    let twice = [alteration(AlterOp::Set, "a", Some("1")), alteration(AlterOp::Delete, "a", None)];
    assert_eq!(apply(ConfigScope::Topic, &map(&[]), &twice), Err(AlterError::DuplicateKeys));
    let long = alteration(AlterOp::Set, "a", Some(&"x".repeat(32_768)));
    let error = apply(ConfigScope::Topic, &map(&[]), &[long]).expect_err("too long");
    assert_eq!(error.code(), 40);
    assert_eq!(AlterOp::from_code(9), Err(AlterError::UnknownOperation { code: 9 }));
}

#[test]
fn alterations_of_brokers_are_checked() {
    let config = kafka_like();
    let set = |per_broker, name: &str, value: &str| {
        let error = config.alter_broker(per_broker, &[alteration(AlterOp::Set, name, Some(value))]).err();
        error.map(|error| (error.code(), error.to_string()))
    };
    let refused = |code, text: &str| Some((code, text.to_owned()));
    assert_eq!(set(true, "message.max.bytes", "5"), None);
    assert_eq!(set(false, "log.retention.ms", "-5"), None);
    assert_eq!(
        set(true, "num.partitions", "3"),
        refused(42, "Cannot update these configs dynamically: [num.partitions]")
    );
    assert_eq!(
        set(true, "log.retention.ms", "abc"),
        refused(42, "Invalid value abc for configuration log.retention.ms: Not a number of type LONG")
    );
    assert_eq!(
        set(true, "sasl.jaas.config", "x"),
        refused(42, "Cannot set sasl.jaas.config: it is read when the broker starts")
    );
    // Kafka's tools may set any key of Kafka; a key without effect here is stored, and a warning names it.
    let kerberos = "sasl.kerberos.min.time.before.relogin";
    let altered =
        config.alter_broker(true, &[alteration(AlterOp::Set, kerberos, Some("1000"))]).expect("stored");
    let warnings: Vec<_> = altered.dynamic_warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [format!("{kerberos}: Kerberos is not served")]);
    assert_eq!(altered.layers.broker[kerberos], "1000");
    let described = altered.describe_broker(Some(&[kerberos].into()));
    assert_eq!(
        (described[0].value.as_deref(), described[0].source),
        (Some("1000"), ConfigSource::DynamicBroker)
    );
    assert_eq!(set(false, "remote.log.reader.threads", "4"), None);
    let threads = LogSettings::recovery_threads_per_dir.name();
    let altered =
        config.alter_broker(false, &[alteration(AlterOp::Set, threads, Some("8"))]).expect("stored");
    let warnings: Vec<_> = altered.dynamic_warnings().iter().map(ToString::to_string).collect();
    let reason = "logs are opened before the node knows values set at run time";
    assert_eq!(warnings, [format!("{threads} has no effect: {reason}")]);
    let file = ServerProperties::parse(Path::new("server.properties"), format!("{threads}=8\n").as_bytes());
    assert_eq!(file.expect("a properties file").warnings(), [], "the file's value counts");
    assert_eq!(
        set(true, kerberos, "soon"),
        refused(
            42,
            "Invalid value soon for configuration sasl.kerberos.min.time.before.relogin: Not a number of type LONG"
        )
    );
    assert_eq!(
        set(true, "log.roll.ms", "0"),
        refused(42, "Invalid value 0 for configuration log.roll.ms: Value must be at least 1")
    );
    assert_eq!(
        set(false, "cordoned.log.dirs", "/data"),
        refused(
            42,
            "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]"
        )
    );
    assert_eq!(set(true, "my.unknown", "1"), refused(40, "Unknown config name: my.unknown"));
}

#[test]
fn a_strange_entry_in_the_image_does_not_block_changes() {
    let (config, errors) = kafka_like().with_dynamic(
        &map(&[("log.roll.ms", "1e3"), ("num.partitions", "7")]),
        &map(&[("my.unknown", "1"), ("message.max.bytes", "77")]),
    );
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(config.topics.num_partitions, 1);
    assert_eq!(config.topic(&map(&[])).max_message_bytes, 77);
    let altered = config.alter_broker(true, &[alteration(AlterOp::Set, "message.max.bytes", Some("78"))]);
    let altered = altered.expect("a valid change");
    assert_eq!(altered.topic(&map(&[])).max_message_bytes, 78);
    assert_eq!(altered.layers.broker, map(&[("my.unknown", "1"), ("message.max.bytes", "78")]));
}

#[test]
fn without_a_file_one_broker_serves_this_machine() {
    let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
    assert_eq!((config.node.id, config.node.roles), (1, Roles { broker: true, controller: true }));
    assert_eq!(config.listeners.broker[0].to_string(), "PLAINTEXT://localhost:9092");
    assert_eq!(config.log.data_dirs(), [PathBuf::from("./thalweg-data")]);
    assert_eq!(config.metadata_log_dir(), PathBuf::from("./thalweg-data"));
    assert_eq!(config.groups.offsets_topic().replication_factor, 1);
    assert_eq!(config.transactions.state_topic().replication_factor, 1);
    assert_eq!(config.transactions.state_topic().configs["min.insync.replicas"], "1");
    assert_eq!(config.network.connections_max_idle, Some(Duration::from_secs(600)));
    assert_eq!(config.network.queued_max_request_bytes, None);
    assert_eq!(config.log.flush_check_interval, None);
    let topic = config.topic(&map(&[]));
    assert_eq!(topic.retention_ms, Some(604_800_000));
    assert_eq!(topic.retention_bytes, None);
    assert_eq!(topic.segment_bytes, 1_073_741_824);
    assert_eq!(topic.cleanup_policy, CleanupPolicy { delete: true, compact: false });
    assert_eq!(topic.compression(), TopicCompression::Producer);
    assert_eq!(topic.timestamp_type, TimestampType::CreateTime);
}

#[test]
fn a_broker_in_a_quorum_follows_kafkas_replication() {
    let quorum = "process.roles=broker\nnode.id=4\ncontroller.quorum.bootstrap.servers=c1:9093,[::1]:9093\n";
    let config = configure(quorum).expect("a broker of a quorum");
    assert_eq!(config.groups.offsets_topic().replication_factor, 3);
    assert_eq!(config.transactions.state_topic().configs["min.insync.replicas"], "2");
    assert_eq!(config.controller.bootstrap_servers, [("c1".to_owned(), 9093), ("::1".to_owned(), 9093)]);
    let first = "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n";
    let config = configure(first).expect("the broker that the others join");
    assert_eq!(config.groups.offsets_topic().replication_factor, 3, "whichever broker makes the topic");
    let config = configure("process.roles=broker\nnode.id=4\ncontroller.quorum.voters=1@c1:9093\n");
    let voters = config.expect("a broker of a static quorum").controller.voters;
    assert_eq!(voters, [Voter { id: 1, host: "c1".to_owned(), port: 9093 }]);
}

#[test]
fn topics_follow_the_first_broker_key_that_is_set() {
    let config =
        configure("log.retention.hours=2\nlog.retention.minutes=3\nlog.roll.hours=1\n").expect("valid");
    assert_eq!(config.topic(&map(&[])).retention_ms, Some(180_000));
    assert_eq!(config.topic(&map(&[])).segment_ms, 3_600_000);
    let (config, _) = config.with_dynamic(&map(&[("log.retention.ms", "-5")]), &map(&[("log.roll.ms", "9")]));
    assert_eq!(config.topic(&map(&[])).retention_ms, None);
    assert_eq!(config.topic(&map(&[])).segment_ms, 9);
    let topic = config.topic(&map(&[("retention.ms", "5"), ("compression.type", "zstd"), ("nothing", "1")]));
    assert_eq!((topic.retention_ms, topic.compression()), (Some(5), TopicCompression::Zstd(3)));
    let compacted = map(&[("cleanup.policy", "compact"), ("max.compaction.lag.ms", "4")]);
    assert_eq!(config.topic(&compacted).max_segment_ms(), 4);
}

#[test]
fn a_log_gets_the_settings_of_its_topic() {
    let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
    let by_default = config.log_config(&config.topic(&map(&[])));
    assert_eq!(by_default, thalweg_log::LogConfig::default(), "both follow Kafka");
    let (other, _) = config.with_dynamic(&map(&[("producer.id.expiration.ms", "5")]), &map(&[]));
    assert_eq!(other.log_config(&other.topic(&map(&[]))).producer_id_expiration_ms, 5);
    let overrides = map(&[
        ("retention.ms", "-1"),
        ("retention.bytes", "77"),
        ("preallocate", "true"),
        ("segment.bytes", "2097152"),
        ("flush.messages", "1"),
        ("message.timestamp.type", "LogAppendTime"),
    ]);
    let log = config.log_config(&config.topic(&overrides));
    assert_eq!((log.retention_ms, log.retention_bytes), (-1, 77));
    assert_eq!((log.segment_bytes, log.preallocate_bytes, log.flush_messages), (2_097_152, 2_097_152, 1));
    assert_eq!(log.message_timestamp_type, TimestampType::LogAppendTime);
}

#[test]
fn all_errors_are_reported_at_once() {
    let wrong = "num.partitions=none\nlog.segment.bytes=7\nlisteners=PLAINTEXT://:70000\n";
    let error = configure(wrong).expect_err("three wrong values");
    assert_eq!(
        error.to_string(),
        "Invalid value 7 for configuration log.segment.bytes: Value must be at least 1048576\n\
         Invalid value none for configuration num.partitions: Not a number of type INT\n\
         Invalid value PLAINTEXT://:70000 for configuration listeners: \
         Expected a port from 0 to 65535 after the last colon"
    );
}

#[test]
fn rules_between_keys_hold() {
    let broken = |text: &str, name: &str| {
        let error = configure(text).expect_err(text).to_string();
        assert!(error.contains(&format!(" for configuration {name}: ")), "{text}: {error}");
    };
    broken("node.id=1\nbroker.id=2\n", "broker.id");
    broken("process.roles=controller\n", "listeners");
    broken("process.roles=controller\nlisteners=CONTROLLER://:9093,PLAINTEXT://:9092\n", "listeners");
    broken("process.roles=broker\n", "controller.quorum.bootstrap.servers");
    broken("process.roles=broker\ncontroller.quorum.voters=1@a:1\n", "controller.quorum.voters");
    broken("controller.quorum.voters=1@a:1,2@b:1\n", "controller.quorum.voters");
    broken("controller.quorum.bootstrap.servers=a:1,b:1\n", "controller.quorum.bootstrap.servers");
    broken("log.retention.hours=0\n", "log.retention.hours");
    broken("log.cleaner.threads=0\n", "log.cleaner.threads");
    broken("log.cleaner.dedupe.buffer.size=9\n", "log.cleaner.dedupe.buffer.size");
    broken("queued.max.request.bytes=5\n", "queued.max.request.bytes");
    broken("max.connections.per.ip=0\n", "max.connections.per.ip");
    broken("max.connections.per.ip.overrides=a b:1\n", "max.connections.per.ip.overrides");
    broken("max.connections.per.ip.overrides=a:x\n", "max.connections.per.ip.overrides");
    broken("authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n", "authorizer.class.name");
    broken("super.users=admin\n", "super.users");
    broken("allow.everyone.if.no.acl.found=yes\n", "allow.everyone.if.no.acl.found");
    broken("replica.fetch.wait.max.ms=40000\n", "replica.fetch.wait.max.ms");
    broken("group.coordinator.rebalance.protocols=consumer\n", "group.coordinator.rebalance.protocols");
    broken("group.consumer.assignors=org.acme.Assignor\n", "group.consumer.assignors");
    broken("group.consumer.session.timeout.ms=44999\n", "group.consumer.session.timeout.ms");
    broken("group.consumer.session.timeout.ms=60001\n", "group.consumer.session.timeout.ms");
    broken("group.consumer.max.session.timeout.ms=44999\n", "group.consumer.max.session.timeout.ms");
    broken("group.consumer.heartbeat.interval.ms=4999\n", "group.consumer.heartbeat.interval.ms");
    broken("group.consumer.min.heartbeat.interval.ms=15001\n", "group.consumer.max.heartbeat.interval.ms");
    broken("group.consumer.assignment.interval.ms=15001\n", "group.consumer.assignment.interval.ms");
    let short = "group.consumer.min.session.timeout.ms=1\ngroup.consumer.session.timeout.ms=5000\n";
    broken(short, "group.consumer.heartbeat.interval.ms");
    broken("security.inter.broker.protocol=SASL_SSL\n", "inter.broker.listener.name");
    let lags = "log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8\n";
    assert!(configure(lags).expect_err("the lags").to_string().contains("min.compaction.lag.ms (9)"));
    let overrides = configure("max.connections.per.ip=0\nmax.connections.per.ip.overrides= ::1:5, a.b:6\n");
    let expected = BTreeMap::from([("::1".to_owned(), 5), ("a.b".to_owned(), 6)]);
    assert_eq!(overrides.expect("valid").network.max_connections_per_ip_overrides, expected);
}

#[test]
fn the_file_that_kafka_ships_is_accepted() {
    let shipped = "process.roles=broker,controller\nnode.id=1\n\
        controller.quorum.bootstrap.servers=localhost:9093\n\
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n\
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
        controller.listener.names=CONTROLLER\n\
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
        SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n\
        num.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\n\
        socket.receive.buffer.bytes=102400\nsocket.request.max.bytes=104857600\n\
        log.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\nnum.recovery.threads.per.data.dir=1\n\
        offsets.topic.replication.factor=1\nshare.coordinator.state.topic.replication.factor=1\n\
        share.coordinator.state.topic.min.isr=1\ntransaction.state.log.replication.factor=1\n\
        transaction.state.log.min.isr=1\nlog.retention.hours=168\nlog.segment.bytes=1073741824\n\
        log.retention.check.interval.ms=300000\n";
    let config = configure(shipped).expect("Kafka's own file");
    assert_eq!(config.listeners.advertised.len(), 1);
    assert_eq!(config.listeners.controller.len(), 1);
    let properties = ServerProperties::parse(Path::new("x"), shipped.as_bytes()).expect("a file");
    let warnings: Vec<_> = properties.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn no_value_is_a_panic() {
    use rand::{Rng, SeedableRng, rngs::SmallRng};
    const TEXTS: [&str; 17] = [
        "",
        " ",
        "-1",
        "0",
        "1",
        "-9223372036854775808",
        "9223372036854775807",
        "2147483647",
        "1e400",
        "NaN",
        "true",
        "a,b",
        ",",
        "1@a:1",
        "PLAINTEXT://[::]:0",
        "://:",
        "\u{e4}:\u{e4}@",
    ];
    let mut random = SmallRng::seed_from_u64(5);
    let keys = table::broker_keys();
    for _ in 0..2_000 {
        let mut properties = ServerProperties::default();
        let mut dynamic = BTreeMap::new();
        let mut topic = BTreeMap::new();
        for _ in 0..random.random_range(1..4) {
            let name = keys[random.random_range(0..keys.len())].name;
            properties.set(name, TEXTS[random.random_range(0..TEXTS.len())]);
            let name = keys[random.random_range(0..keys.len())].name;
            dynamic.insert(name.to_owned(), TEXTS[random.random_range(0..TEXTS.len())].to_owned());
            let name = table::topic_keys()[random.random_range(0..table::topic_keys().len())].name;
            topic.insert(name.to_owned(), TEXTS[random.random_range(0..TEXTS.len())].to_owned());
        }
        if let Ok(config) = BrokerConfig::new(&properties) {
            let (config, _) = config.with_dynamic(&dynamic, &dynamic);
            config.describe_broker(None);
            config.describe_topic(&topic, None);
            drop((config.validate_dynamic(true, &dynamic), config.topic_defaults.validate(&topic)));
        }
    }
}

#[test]
fn groups_follow_the_broker_and_are_checked_as_kafka_does() {
    let config = kafka_like();
    let overrides = map(&[("consumer.session.timeout.ms", "50000")]);
    assert_eq!(config.validate_group(&overrides), Ok(()));
    let described = config.describe_group(&overrides, None);
    assert_eq!(described.len(), 17);
    let line_of = |name: &str| {
        let found = described.iter().find(|config| config.name == name);
        (
            found.expect("a key").value.clone(),
            found.expect("a key").source.code(),
            line(found.expect("a key"))[5].clone(),
        )
    };
    assert_eq!(
        line_of("consumer.session.timeout.ms"),
        (
            Some("50000".to_owned()),
            8,
            "GROUP_CONFIG:consumer.session.timeout.ms=50000 ; DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000"
                .to_owned()
        )
    );
    let by_default =
        (Some("latest".to_owned()), 5, "DEFAULT_CONFIG:share.auto.offset.reset=latest".to_owned());
    assert_eq!(line_of("share.auto.offset.reset"), by_default);
    let refusal =
        |name: &str, value: &str| config.validate_group(&map(&[(name, value)])).expect_err(name).to_string();
    assert_eq!(refusal("nope", "1"), "Unknown group config name: nope");
    assert_eq!(
        refusal("consumer.session.timeout.ms", "1"),
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"
    );
    assert_eq!(
        refusal("share.session.timeout.ms", "99999999"),
        "share.session.timeout.ms must be less than or equal to group.share.max.session.timeout.ms"
    );
    assert_eq!(
        refusal("streams.num.standby.replicas", "3"),
        "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"
    );
    assert_eq!(
        refusal("share.auto.offset.reset", "x"),
        "Invalid value x for configuration share.auto.offset.reset: Invalid value `x` for configuration \
         share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format \
         'by_duration:<PnDTnHnMn.nS>'."
    );
    assert_eq!(config.validate_group(&map(&[("share.auto.offset.reset", "by_duration:P1DT2H")])), Ok(()));
}

#[test]
fn settings_of_a_group_are_its_own_or_the_brokers() {
    let file =
        format!("{FILE}group.consumer.heartbeat.interval.ms=7000\ngroup.share.delivery.count.limit=7\n");
    let config = configure(&file).expect("a valid file");
    let (settings, errors) = config.group(&map(&[]));
    assert_eq!(errors, []);
    assert_eq!(
        (settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms),
        (45_000, 7_000)
    );
    assert_eq!((settings.share_delivery_count_limit, settings.share_partition_max_record_locks), (7, 2000));
    assert_eq!(settings.share_auto_offset_reset, ShareOffsetReset::Latest);
    assert!(!settings.share_is_read_committed && settings.share_renew_acknowledge_enable);
    let (settings, errors) = config.group(&map(&[
        ("consumer.session.timeout.ms", "1"),
        ("consumer.heartbeat.interval.ms", "9000"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.isolation.level", "read_committed"),
        ("streams.num.standby.replicas", "9"),
        ("share.delivery.count.limit", "many"),
    ]));
    assert_eq!(
        (settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms),
        (45_000, 9_000)
    );
    assert_eq!(settings.share_auto_offset_reset, ShareOffsetReset::ByDuration(Duration::from_secs(3600)));
    assert!(settings.share_is_read_committed);
    assert_eq!((settings.streams_num_standby_replicas, settings.share_delivery_count_limit), (2, 7));
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
            "Invalid value many for configuration share.delivery.count.limit: Not a number of type INT",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ]
    );
}

#[test]
fn assignors_are_named_by_their_names_or_by_kafkas_classes() {
    let of = |value: &str| {
        let config = configure(&format!("{FILE}group.consumer.assignors={value}\n")).expect("a valid file");
        config.consumer_groups.assignors
    };
    assert_eq!(of("range"), ["range"]);
    let package = "org.apache.kafka.coordinator.group.assignor";
    assert_eq!(of(&format!("{package}.RangeAssignor,{package}.UniformAssignor")), ["range", "uniform"]);
}

/// The bounds may have changed since the value was set. All other dynamic settings must still apply.
#[test]
fn dynamic_values_beyond_the_bounds_of_the_file_are_replaced_by_the_bounds() {
    let file = format!("{FILE}group.consumer.max.assignment.interval.ms=2000\n");
    let config = configure(&file).expect("a valid file");
    let cluster = map(&[("group.consumer.assignment.interval.ms", "9000"), ("log.retention.ms", "7200000")]);
    let refused = config.validate_dynamic(false, &cluster).expect_err("it is too long").to_string();
    assert!(refused.contains("group.consumer.assignment.interval.ms"), "{refused}");
    let (config, errors) = config.with_dynamic(&cluster, &map(&[]));
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let expected = "group.consumer.assignment.interval.ms must be less than or equal to \
                    group.consumer.max.assignment.interval.ms";
    assert_eq!(errors, [expected]);
    assert_eq!(config.consumer_groups.assignment_interval_ms, 2000);
    assert_eq!(config.topic(&map(&[])).retention_ms, Some(7_200_000));
    assert_eq!(config.group(&map(&[])).0.consumer_assignment_interval_ms, 2000);
}

#[test]
fn a_group_needs_a_session_longer_than_its_heartbeat() {
    let file = format!("{FILE}group.share.min.session.timeout.ms=1\ngroup.share.session.timeout.ms=45000\n");
    let config = configure(&file).expect("a valid file");
    let error = config.validate_group(&map(&[("share.session.timeout.ms", "4000")])).expect_err("too short");
    assert_eq!(
        error.to_string(),
        "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
    );
}

#[test]
fn every_session_must_be_longer_than_its_heartbeat_interval() {
    let mut sessions = 0;
    for session in table::group_keys() {
        let Some(kind) = session.name.strip_suffix(".session.timeout.ms") else { continue };
        let heartbeat = table::group_key(&format!("{kind}.heartbeat.interval.ms")).expect("its heartbeat");
        let as_short = heartbeat.default.expect("an interval");
        let min = table::bounds(session).0.expect("a minimum");
        let file = format!("{FILE}{min}=1\n");
        let refused =
            configure(&file).expect("a valid file").validate_group(&map(&[(session.name, as_short)]));
        let expected = format!("{} must be greater than {}", session.name, heartbeat.name);
        assert_eq!(refused.map_err(|error| error.to_string()), Err(expected));
        let [session, heartbeat] = [session, heartbeat].map(|key| key.falls_back[0].0);
        let refused = configure(&format!("{file}{session}={as_short}\n")).expect_err(session).to_string();
        let expected = format!("for configuration {heartbeat}: Value must be less than {session}");
        assert!(refused.contains(&expected), "{refused}");
        sessions += 1;
    }
    assert_ne!(sessions, 0);
}

#[test]
fn subscriptions_to_client_metrics_are_checked_as_kafka_does() {
    let refusal =
        |pairs: &[(&str, &str)]| validate_client_metrics("m", &map(pairs)).err().map(|e| e.to_string());
    assert_eq!(refusal(&[("interval.ms", "10000"), ("metrics", "a,b"), ("match", "client_id=a.*")]), None);
    let told = |text: &str| Some(text.to_owned());
    assert_eq!(
        refusal(&[("interval.ms", "1")]),
        told("Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)")
    );
    assert_eq!(refusal(&[("nope", "1")]), told("Unknown client metrics configuration: nope"));
    assert_eq!(refusal(&[("match", "client_id=a,b=c")]), told("Illegal client matching pattern: b=c"));
    assert_eq!(
        refusal(&[("interval.ms", "abc")]),
        told("Invalid value abc for configuration interval.ms: Not a number of type INT")
    );
    assert!(validate_client_metrics("", &map(&[])).is_err());
    let described = describe_client_metrics(&map(&[("metrics", "a,b")]), None);
    let lines: Vec<_> =
        described.iter().map(|c| (c.name.as_str(), c.value.as_deref(), c.source.code())).collect();
    assert_eq!(
        lines,
        [("interval.ms", Some("300000"), 5), ("match", Some(""), 5), ("metrics", Some("a,b"), 7)]
    );
}

#[test]
fn the_authorizer_is_kafkas_standard_one() {
    let config = configure("").expect("the defaults");
    assert!(!config.access.has_authorizer && config.authorizer.super_users.is_empty());
    let text = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
                super.users= User:admin ;; User:CN=a\\,OU=b;\nallow.everyone.if.no.acl.found=true\n";
    let config = configure(text).expect("valid");
    let expected = ["admin", "CN=a,OU=b"].map(thalweg_security::Principal::user);
    assert!(config.access.has_authorizer && config.authorizer.allow_everyone_if_no_acl_found);
    assert_eq!(config.authorizer.super_users, expected);
}
