//! The commands: those of docs/commands.md exist, and administer a broker. `commands_kafka` does the same to
//! Apache Kafka.

use serde_json::{Value, json};
use thalweg_client::{Producer, ProducerConfig, ProducerRecord};

use crate::binary::{Broker, RunningProcess, run, run_with_input, thalweg, until};

/// The command lines in the third column of the tables of docs/commands.md.
fn documented() -> Vec<(String, Vec<String>)> {
    let text = include_str!("../../../../docs/commands.md");
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.contains("| operation |")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [tool, operation, command, remarks] = cells[..] else { panic!("four columns: {line}") };
        assert!(!tool.is_empty() && !operation.is_empty(), "{line}");
        let commands: Vec<String> =
            command.split('`').filter_map(|part| part.strip_prefix("thalweg ")).map(str::to_owned).collect();
        assert_eq!(commands.is_empty(), command == "none", "{line}");
        assert!(!commands.is_empty() || !remarks.is_empty(), "no command and no reason: {line}");
        rows.push((tool.to_owned(), commands));
    }
    rows
}

#[test]
fn documented_commands_exist() {
    let rows = documented();
    assert!(rows.len() > 80, "{}", rows.len());
    let commands: std::collections::BTreeSet<String> =
        rows.into_iter().flat_map(|(_, commands)| commands).collect();
    for command in commands {
        let (code, out, error) = run(&mut thalweg(&format!("{command} --help")));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{command}");
        assert!(
            out.contains(&format!(
                "Usage: thalweg {}",
                command.replace("group seek", "group reset").replace("cluster health", "cluster status")
            )),
            "{command}: {out}"
        );
    }
}

#[test]
fn every_tool_of_kafka_has_a_row() {
    let tools = documented().into_iter().map(|(tool, _)| tool).collect::<Vec<_>>().join(", ");
    // bin/ of Kafka 4.3, and those that recent releases removed.
    for tool in [
        "connect-distributed",
        "connect-mirror-maker",
        "connect-plugin-path",
        "connect-standalone",
        "kafka-acls",
        "kafka-broker-api-versions",
        "kafka-client-metrics",
        "kafka-cluster",
        "kafka-configs",
        "kafka-console-consumer",
        "kafka-console-producer",
        "kafka-console-share-consumer",
        "kafka-consumer-groups",
        "kafka-consumer-perf-test",
        "kafka-delegation-tokens",
        "kafka-delete-records",
        "kafka-dump-log",
        "kafka-e2e-latency",
        "kafka-features",
        "kafka-get-offsets",
        "kafka-groups",
        "kafka-jmx",
        "kafka-leader-election",
        "kafka-log-dirs",
        "kafka-metadata-quorum",
        "kafka-metadata-shell",
        "kafka-producer-perf-test",
        "kafka-reassign-partitions",
        "kafka-replica-verification",
        "kafka-run-class",
        "kafka-server-start",
        "kafka-server-stop",
        "kafka-share-consumer-perf-test",
        "kafka-share-groups",
        "kafka-storage",
        "kafka-streams-application-reset",
        "kafka-streams-groups",
        "kafka-topics",
        "kafka-transactions",
        "kafka-verifiable-producer",
        "trogdor",
    ] {
        assert!(tools.split(", ").any(|known| known == tool), "{tool}");
    }
}

/// Standard output of a command that succeeds.
pub fn output_of(at: &str, line: &str) -> String {
    let (code, out, error) = runs(at, line);
    assert_eq!(code, Some(0), "{line}: {error}");
    out
}

pub fn runs(at: &str, line: &str) -> (Option<i32>, String, String) {
    run(thalweg(line).env("THALWEG_BOOTSTRAP_SERVER", at))
}

/// A command that fails, and what its error has in it.
pub fn fails(at: &str, line: &str, code: i32, reason: &str) {
    let (ended, _, error) = runs(at, line);
    assert_eq!(ended, Some(code), "{line}: {error}");
    assert!(error.contains(reason), "{line}: {error}");
}

/// The JSON that a command prints.
pub fn document(at: &str, line: &str) -> Value {
    serde_json::from_str(&output_of(at, &format!("{line} --json"))).expect("JSON")
}

/// A broker of Apache Kafka answers before it has seen a change, or a new topic.
pub fn shows(at: &str, line: &str, holds: impl Fn(&Value) -> bool) {
    until(line, || {
        let (code, out, _) = runs(at, &format!("{line} --json"));
        code == Some(0) && holds(&serde_json::from_str(&out).expect("JSON"))
    });
}

pub fn produce(at: &str, topic: &str, records: usize) {
    let lines: String = (0..records).map(|number| format!("{number}\n")).collect();
    let mut command = thalweg(&format!("produce {topic}"));
    let (code, _, error) = run_with_input(command.env("THALWEG_BOOTSTRAP_SERVER", at), lines.as_bytes());
    assert_eq!(code, Some(0), "{error}");
}

/// The field of each row.
pub fn column(rows: &Value, field: &str) -> Vec<i64> {
    rows.as_array().expect("rows").iter().filter_map(|row| row[field].as_i64()).collect()
}

pub fn rows(document: &Value) -> &[Value] {
    document.as_array().expect("rows")
}

#[test]
fn groups() {
    let broker = Broker::start();
    a_group_is_reset_only_with_execute(&broker.address);
    an_active_group_is_not_reset(&broker.address);
    a_consumer_group_has_epochs_and_targets(&broker.address);
    a_share_group_is_consumed_reset_and_deleted(&broker.address);
}

pub fn a_group_is_reset_only_with_execute(at: &str) {
    output_of(at, "topic create orders --partitions 1");
    produce(at, "orders", 10);
    output_of(at, "consume orders --group g --from-beginning --max-messages 4");
    let dry = runs(at, "group reset g --topic orders --to-latest");
    assert_eq!(dry.0, Some(0), "{}", dry.2);
    assert!(dry.1.contains("CURRENT-OFFSET") && dry.2.contains("Dry run: nothing has changed"), "{dry:?}");
    let new = |line: &str| column(&document(at, &format!("group reset g {line}")), "new_offset");
    assert_eq!(new("--topic orders --to-current"), [4]);
    assert_eq!(new("--topic orders --to-earliest"), [0]);
    assert_eq!(new("--all-topics --shift-by 3"), [7]);
    assert_eq!(new("--all-topics --shift-by -9"), [0]);
    assert_eq!(new("--all-topics --to-offset 99"), [10]);
    assert_eq!(new("--all-topics --to-datetime 2001-01-01"), [0]);
    assert_eq!(new("--all-topics --by-duration 1h"), [0]);
    assert_eq!(new("--all-topics --to-datetime 2999-01-01"), [10]);
    output_of(at, "group reset g --all-topics --to-offset 6 --execute");
    let described = document(at, "group describe g");
    assert_eq!(column(&described[0]["partitions"], "current_offset"), [6]);
    // What one prints, another reads.
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("offsets.csv");
    std::fs::write(&file, output_of(at, "group reset g --all-topics --to-current --csv")).expect("written");
    output_of(at, &format!("group reset copy --from-file {} --execute", file.display()));
    assert_eq!(column(&document(at, "group describe copy")[0]["partitions"], "current_offset"), [6]);
    assert_eq!(new("--all-topics --to-group copy"), [6]);
    fails(at, "group reset g --topic nowhere --to-earliest", 7, "Topic nowhere");
    fails(at, "group reset g --all-topics", 2, "--to-earliest");
    fails(at, "group reset g --topic orders:7 --to-earliest", 7, "Partition orders-7");
    fails(at, "group reset empty --all-topics --to-earliest", 1, "Group empty has no offsets");
    // A group forgets a topic, and is deleted.
    output_of(at, "group delete-offsets copy --topic orders:0");
    fails(at, "group delete-offsets copy --topic orders:0", 7, "Group copy has no offset in orders-0");
    assert_eq!(document(at, "group reset g --topic orders --to-group copy"), json!([]));
    let listed = document(at, "group list --type classic --in-state empty");
    assert!(rows(&listed).iter().any(|group| group["group"] == "g"), "{listed}");
    assert_eq!(document(at, "group list --type share"), json!([]));
    output_of(at, "group delete g");
}

pub fn an_active_group_is_not_reset(at: &str) {
    output_of(at, "topic create active --partitions 1");
    produce(at, "active", 1);
    let mut command = thalweg("consume active --group a --from-beginning");
    let mut member = RunningProcess::start(command.env("THALWEG_BOOTSTRAP_SERVER", at));
    assert_eq!(member.lines().next().as_deref(), Some("0"));
    let reset = "group reset a --topic active --to-earliest --execute";
    fails(at, reset, 1, "while the group is inactive: a is Stable with 1 member: ");
    let removed = output_of(at, "group remove-members a --all");
    assert!(removed.starts_with("Removed ") && removed.ends_with(" from group a.\n"), "{removed}");
}

pub fn a_consumer_group_has_epochs_and_targets(at: &str) {
    output_of(at, "topic create assigned --partitions 2");
    produce(at, "assigned --partition 0", 1);
    let mut command = thalweg("consume assigned --group modern --group-protocol consumer --from-beginning");
    let mut member = RunningProcess::start(command.env("THALWEG_BOOTSTRAP_SERVER", at));
    assert_eq!(member.lines().next().as_deref(), Some("0"));
    let described = document(at, "group describe modern");
    let group = &described[0];
    assert_eq!((&group["type"], &group["state"]), (&json!("consumer"), &json!("Stable")), "{group}");
    let member_of = &group["members"][0];
    assert_eq!(member_of["partitions"], json!(["assigned-0", "assigned-1"]), "{group}");
    assert_eq!(member_of["target_partitions"], member_of["partitions"], "{group}");
    assert_eq!(member_of["epoch"], group["group_epoch"], "{group}");
    let members = output_of(at, "group describe modern --members");
    assert!(members.contains("EPOCH") && members.contains("assigned-0,assigned-1"), "{members}");
    let state = output_of(at, "group describe modern --state");
    assert!(state.contains("consumer") && state.contains("uniform") && state.contains(at), "{state}");
    let listed = document(at, "group list --type consumer --in-state stable");
    assert!(rows(&listed).iter().any(|group| group["group"] == "modern"), "{listed}");
    fails(at, "group reset modern --topic assigned --to-earliest --execute", 1, "Stable with 1 member: ");
}

pub fn a_share_group_is_consumed_reset_and_deleted(at: &str) {
    output_of(at, "topic create jobs --partitions 1");
    produce(at, "jobs", 5);
    output_of(at, "config set group:workers share.auto.offset.reset=earliest");
    let consume = |options: &str| output_of(at, &format!("consume jobs --share --group workers {options}"));
    assert_eq!(consume("--max-messages 2 --print-offset --print-delivery").lines().count(), 2);
    assert_eq!(consume("--max-messages 3 --ack release"), "2\n3\n4\n");
    assert_eq!(consume("--max-messages 1 --ack reject"), "2\n");
    let last: Value = serde_json::from_str(&consume("--max-messages 1 --json")).expect("JSON");
    assert_eq!((&last["value"], last["delivery_count"].as_i64() > Some(1)), (&json!("3"), true), "{last}");
    assert_eq!(consume("--max-messages 1"), "4\n");
    assert_eq!(consume("--timeout-ms 3000"), "");
    let described = document(at, "group describe workers");
    assert_eq!(described[0]["type"], "share", "{described}");
    assert_eq!(column(&described[0]["partitions"], "lag"), [0], "{described}");
    output_of(at, "group reset workers --topic jobs --to-earliest --execute");
    assert_eq!(consume("--max-messages 1"), "0\n");
    let listed = document(at, "group list --type share");
    assert!(rows(&listed).iter().any(|group| group["group"] == "workers"), "{listed}");
    output_of(at, "group delete-offsets workers --topic jobs");
    output_of(at, "group delete workers");
    let measure =
        "share-consumer-perf-test --topic jobs --group measurers --num-records 5 --threads 2 --json";
    let explicit = "--command-property share.acknowledgement.mode=explicit";
    output_of(at, "config set group:measurers share.auto.offset.reset=earliest");
    let said = runs(at, &format!("{measure} {explicit} bootstrap.servers={at}"));
    let measured: Value = serde_json::from_str(&said.1).expect("JSON");
    assert_eq!((&measured["records"], &measured["redelivered"]), (&json!(5), &json!(0)), "{said:?}");
    // As ProducerPerformance was run in Kafka 0.8, and the consumer's tool in 2.x.
    output_of(at, "topic create crowd --partitions 3");
    let (code, out, error) =
        runs(at, &format!("producer-perf-test crowd 3000 10 -1 acks=1 bootstrap.servers={at}"));
    assert!(code == Some(0) && out.contains("3000 records sent"), "{out} {error}");
    let line =
        format!("consumer-perf-test --broker-list {at} --messages 3000 --topic crowd --threads 3 --json");
    let measured: Value = serde_json::from_str(&runs(at, &line).1).expect("JSON");
    let records = measured["records"].as_u64().expect("a number");
    // Each of the three reads chunks of its own at the end.
    assert!((3000..=3000 + 2 * 500).contains(&records) && measured["members"] == json!(3), "{measured}");
    assert!(measured["records_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{measured}");
    for tool in ["share-consumer-perf-test --group measurers", "consumer-perf-test"] {
        let line = format!("{tool} --topic jobs --num-records 999 --timeout 1500 --json --command-property");
        let (code, out, error) = runs(at, &format!("{line} bootstrap.servers={at}"));
        let measured: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, &measured["timed_out"]), (Some(1), &json!(true)), "{out} {error}");
        assert!(error.contains("of 999 records were read"), "{error}");
    }
    fails(at, "consume ^jobs.* --share --group workers", 2, "is a regular expression");
    fails(at, "consume jobs --share", 2, "--group");
    fails(at, "consume jobs --share --group workers --from-beginning", 2, "--share");
}

#[test]
fn quotas() {
    let broker = Broker::start();
    quotas_are_set_described_and_removed(&broker.address);
}

pub fn quotas_are_set_described_and_removed(at: &str) {
    output_of(at, "quota set --user alice producer_byte_rate=1048576 request_percentage=12.5");
    output_of(at, "quota set --default client-id consumer_byte_rate=5");
    shows(at, "quota describe", |all| {
        let has = |user: Value, client: Value, value: f64| {
            let is_it =
                |row: &Value| row["user"] == user && row["client-id"] == client && row["value"] == value;
            rows(all).iter().any(is_it)
        };
        rows(all).len() == 3
            && has("alice".into(), Value::Null, 12.5)
            && has(Value::Null, "<default>".into(), 5.0)
    });
    output_of(at, "quota remove --user alice request_percentage");
    shows(at, "quota describe --user alice", |found| rows(found).len() == 1);
    assert_eq!(output_of(at, "quota remove --user alice --all"), "Changed the quotas of user alice.\n");
    shows(at, "quota describe --user alice", |found| rows(found).is_empty());
    assert_eq!(output_of(at, "quota remove --user alice --all"), "There is no quota of user alice.\n");
    // Later consumers would be throttled.
    output_of(at, "quota remove --default client-id --all");
    shows(at, "quota describe", |all| rows(all).is_empty());
    fails(at, "quota set --user alice no_such_rate=1", 1, "no_such_rate");
    fails(at, "quota set producer_byte_rate=1", 2, "expected --user");
}

#[test]
fn partitions() {
    let broker = Broker::start();
    records_are_trimmed_only_with_execute(&broker.address);
}

pub fn records_are_trimmed_only_with_execute(at: &str) {
    output_of(at, "topic create trimmed --partitions 1");
    shows(at, "topic describe trimmed", |_| true);
    produce(at, "trimmed", 10);
    let (code, out, error) = runs(at, "topic trim trimmed --to-offset 4");
    assert_eq!(code, Some(0), "{error}");
    assert!(out.ends_with("trimmed  0          0                 4                 4\n"), "{out}");
    assert!(error.contains("Dry run"), "{error}");
    let first = || column(&document(at, "topic offsets trimmed --earliest"), "offset");
    assert_eq!(first(), [0]);
    output_of(at, "topic trim trimmed --to-offset 4 --execute");
    assert_eq!(first(), [4]);
    output_of(at, "topic trim trimmed:0 --to-latest --execute");
    assert_eq!((first(), column(&document(at, "topic offsets trimmed"), "offset")), (vec![10], vec![10]));
    assert_eq!(output_of(at, "topic grow trimmed --by 2"), "Topic trimmed has 3 partitions.\n");
    shows(at, "topic describe trimmed", |topics| topics[0]["partitions"].as_array().map(Vec::len) == Some(3));
    assert_eq!(output_of(at, "topic elect trimmed:0"), "trimmed-0 needs no election.\n");
    assert_eq!(document(at, "topic moves"), json!([]));
    let (_, _, error) = runs(at, "topic move trimmed --replicas 1");
    assert_eq!(error, "Nothing moves: every replica is where it should be.\n");
    let twice = "topic move trimmed --replication-factor 2";
    fails(at, twice, 1, "needs 2 brokers for its replicas, and there are 1");
    fails(at, "topic cancel-moves nowhere", 7, "Topic nowhere");
    fails(at, "topic cancel-moves --all", 7, "No partition of the cluster moves");
}

#[test]
fn brokers() {
    let broker = Broker::start();
    a_broker_is_looked_at_and_changed(&broker.address);
    loggers_have_levels(&broker.address);
}

pub fn loggers_have_levels(at: &str) {
    let loggers = document(at, "broker log-level list 1");
    let logger = rows(&loggers).last().and_then(|row| row["logger"].as_str()).expect("a logger").to_owned();
    output_of(at, &format!("broker log-level set 1 {logger}=debug"));
    shows(at, "broker log-level list 1", |listed| {
        rows(listed).iter().any(|row| row["logger"] == *logger && row["level"] == "DEBUG")
    });
    output_of(at, &format!("broker log-level remove 1 {logger}"));
    fails(at, "broker log-level set 1 no.such.logger=debug", 1, "no.such.logger");
}

pub fn a_broker_is_looked_at_and_changed(at: &str) {
    assert_eq!(document(at, "broker list")[0]["state"], "active");
    output_of(at, "broker config set 1 log.cleaner.threads=2");
    shows(at, "broker config describe 1", |set| {
        rows(set).iter().any(|row| row["name"] == "log.cleaner.threads" && row["value"] == "2")
    });
    output_of(at, "broker config remove 1 log.cleaner.threads");
    output_of(at, "topic create configured --partitions 1");
    shows(at, "config describe topic:configured --name retention.ms", |shown| {
        shown[0]["value"] == "604800000" && shown[0]["source"] == "DEFAULT_CONFIG"
    });
    output_of(at, "config set client-metrics:all interval.ms=60000 metrics=org.apache");
    shows(at, "config list --kind client-metrics", |listed| {
        *listed == json!([{"resource": "client-metrics:all"}])
    });
    output_of(at, "config remove client-metrics:all interval.ms metrics");
    fails(at, "config set topic:configured retention.ms=soon", 1, "retention.ms");
    fails(at, "broker config describe 77", 7, "77");
    let dirs = document(at, "broker log-dirs");
    assert_eq!((&dirs[0]["broker"], &dirs[0]["error"]), (&Value::from(1), &Value::Null), "{dirs}");
    assert!(output_of(at, "broker log-dirs 1 --topic configured --replicas").contains("configured  0"));
    assert!(output_of(at, "broker api-versions 1").contains("Produce"));
    assert!(output_of(at, "quorum describe").starts_with("Leader 1, epoch "));
    let features = document(at, "feature list");
    let level = rows(&features).iter().find(|row| row["feature"] == "metadata.version");
    assert!(level.is_some_and(|row| row["level"].as_i64() > Some(0)), "{features}");
    fails(at, "feature upgrade metadata.version=999 --dry-run", 1, "metadata.version");
    fails(at, "broker unregister 1", 1, "Broker 1 runs: stop it first");
    fails(at, "broker decommission 1", 1, "needs 1 brokers for its replicas, and there are 0");
    fails(at, "quorum remove-voter 77", 7, "The quorum knows no node 77");
}

#[test]
fn transactions() {
    let broker = Broker::start();
    transactions_are_listed_and_fenced(&broker.address);
}

pub fn transactions_are_listed_and_fenced(at: &str) {
    output_of(at, "topic create paid --partitions 1");
    shows(at, "topic describe paid", |_| true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(write_in_a_transaction(at, "paid", "tx"));
    assert_eq!(document(at, "transaction list")[0]["transactional_id"], "tx");
    assert_eq!(document(at, "transaction describe tx")[0]["transactional_id"], "tx");
    assert!(document(at, "transaction producers paid:0")[0]["producer_id"].is_i64());
    assert_eq!(document(at, "transaction find-hanging --all-topics"), json!([]));
    let abort = "transaction abort paid:0 --start-offset 3";
    fails(at, abort, 1, "No open transaction in paid-0 starts at offset 3");
    assert!(output_of(at, "transaction fence tx").starts_with("Fenced the producers of tx"));
    fails(at, "transaction fence other", 7, "TRANSACTIONAL_ID_NOT_FOUND");

    // Each of them commits at least one transaction when it ends.
    let test = "producer-perf-test --topic paid --num-records 600 --record-size 10 --throughput 1000";
    let slowly = test.replace("--throughput 1000", "--throughput 300");
    let by_id = document(at, &format!("{slowly} --transactional-id perf --transaction-duration-ms 100"));
    assert!(by_id["transactions"].as_u64() >= Some(2), "{by_id}");
    let until_end = document(at, &format!("{test} --command-property transactional.id=until-end"));
    assert_eq!(until_end["transactions"], 1);
    let without = document(at, test);
    assert!(without["transactions"].is_null(), "{without}");
    for id in ["perf", "until-end"] {
        assert_eq!(document(at, &format!("transaction describe {id}"))[0]["state"], "CompleteCommit", "{id}");
    }
}

pub async fn write_in_a_transaction(at: &str, topic: &str, id: &str) {
    let config = ProducerConfig { transactional_id: Some(id.to_owned()), ..ProducerConfig::default() };
    let mut producer = Producer::connect(&[at.to_owned()], config, |_| {}).await.expect("connected");
    let topic = producer.topic(topic).await.expect("a topic");
    producer.init_transactions().await.expect("initialised");
    producer.begin_transaction().expect("begun");
    let record = ProducerRecord {
        topic,
        partition: Some(0),
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(b"v"),
        headers: &[],
        sent_at: tokio::time::Instant::now(),
        number: 0,
    };
    producer.send(&record).await.expect("sent");
    producer.commit_transaction().await.expect("committed");
}
