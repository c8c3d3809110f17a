//! What the console changes beyond topics and groups: moves, elections, transactions, feature levels; and its
//! live tail.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use thalweg_client::{
    Cluster, ConnectionOptions, Producer, ProducerConfig, ProducerRecord, Properties, Waits,
};
use thalweg_record::{BatchBuilder, BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::Records;
use thalweg_wire::request::ProduceRequest;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use tokio::time::Instant;

use super::binary::{RunningProcess, pause, run, run_with_input, thalweg, until};
use super::cluster::ClusterProcess;
use super::node::{self, FORM, FREE_PORT, JSON, Node};

fn ask(address: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = node::ask(address, method, path, JSON, &text);
    let value = serde_json::from_str(&answer.body);
    (answer.status, value.unwrap_or_else(|error| panic!("{method} {path}: {error}: {}", answer.body)))
}

fn done(address: &str, method: &str, path: &str, body: &Value) -> Value {
    let (status, value) = ask(address, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {value}");
    value
}

/// A form of a page; returns the page that it leads to.
fn post(address: &str, path: &str, form: &str) -> String {
    let own = format!("{FORM}Origin: http://{address}\r\n");
    let answer = node::ask(address, "POST", path, &own, form);
    assert_eq!(answer.status, 303, "{path}: {}", answer.body);
    let (_, location) = answer.head.split_once("location: ").expect("it leads to a page");
    node::ask(address, "GET", location.lines().next().unwrap_or_default(), "", "").body
}

#[test]
fn replicas_move_by_a_plan_with_a_throttle_and_leaders_are_elected() {
    let dir = tempfile::tempdir().expect("a directory");
    let up = ClusterProcess::start(dir.path(), "--brokers 3");
    let bootstrap = up.brokers()[0].clients.clone();
    let mut command = thalweg(&format!("console --bootstrap-server {bootstrap} --listen 127.0.0.1:0"));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let _console = RunningProcess(child);
    let line = lines.find(|line| line.contains("console is at")).expect("it listens");
    let (_, at) = line.split_once("http://").expect("an address");

    let brokers = done(at, "GET", "/api/v1/cluster", &Value::Null);
    let ids: Vec<i64> =
        brokers["brokers"].as_array().expect("a list").iter().filter_map(|one| one["id"].as_i64()).collect();
    let [a, b, c] = ids[..] else { panic!("three brokers: {ids:?}") };
    up.run(&format!("topic create orders --replica-assignment {a}:{b},{b}:{a}"));
    up.run("producer-perf-test --topic orders --num-records 20000 --record-size 1000 --throughput -1");
    let plan = done(at, "GET", &format!("/api/v1/topics/orders/moves/plan?exactly={c},{a}"), &Value::Null);
    let moves = plan["moves"].as_array().expect("a list");
    assert_eq!(moves.len(), 2, "{plan}");
    assert_eq!((&moves[0]["from"], &moves[0]["to"]), (&json!([a, b]), &json!([c, a])));
    assert!(plan["bytes"].as_i64().is_some_and(|bytes| bytes > 10_000_000), "{plan}");
    let page = node::ask(at, "GET", &format!("/topics/orders/replicas?plan=on&exactly={c},{a}"), "", "").body;
    assert!(page.contains("Nothing has changed yet. 2 partitions would move, with"), "{page}");

    let order = |from: &Value| {
        let to = json!([c, a]);
        json!({ "moves": [{ "partition": 0, "from": from, "to": to }], "throttle": 20_000 })
    };
    let (status, refused) = ask(at, "POST", "/api/v1/topics/orders/moves", &order(&json!([b, a])));
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && message.contains("make a new plan"), "{refused}");
    done(at, "POST", "/api/v1/topics/orders/moves", &order(&json!([a, b])));
    let going = done(at, "GET", "/api/v1/topics/orders/moves", &Value::Null);
    assert_eq!((&going[0]["partition"], &going[0]["adding"]), (&json!(0), &json!([c])), "{going}");
    let page = node::ask(at, "GET", "/topics/orders/replicas", "", "").body;
    assert!(page.contains("1 partition of this topic moves."), "{page}");
    assert_eq!(ask(at, "DELETE", "/api/v1/topics/orders/moves/throttle", &Value::Null).0, 400);
    assert!(up.run("topic describe orders").contains("throttled"), "it has a throttle");
    let page = post(at, "/topics/orders/replicas/cancel", "");
    assert!(page.contains("The moves of 1 partition were cancelled."), "{page}");
    until("no move", || done(at, "GET", "/api/v1/topics/orders/moves", &Value::Null) == json!([]));
    done(at, "DELETE", "/api/v1/topics/orders/moves/throttle", &Value::Null);
    assert!(!up.run("topic describe orders").contains("throttled"), "the throttle is gone");

    // As the page does it, without a limit.
    let form = format!("moves=0%3A{a}%2C{b}%3E{c}%2C{a}&throttle=");
    let page = post(at, "/topics/orders/replicas", &form);
    assert!(page.contains("The moves of 1 partition have begun."), "{page}");
    let replicas = || {
        let topic = done(at, "GET", "/api/v1/topics/orders", &Value::Null);
        (topic["partitions"][0]["replicas"].clone(), topic["partitions"][0]["leader"].clone())
    };
    until("the move ends", || replicas().0 == json!([c, a]));
    let elected = done(at, "POST", "/api/v1/topics/orders/elections", &json!({ "partitions": [0] }));
    assert!(elected["done"].as_str().is_some_and(|words| words.ends_with("elected")), "{elected}");
    until("the preferred leader leads", || replicas().1 == json!(c));
    let page = post(at, "/topics/orders/replicas/elect", "partitions=");
    assert!(page.contains("No partition needs an election."), "{page}");
    let page = post(at, "/topics/orders/replicas/elect", "unclean=on&confirm=order");
    assert!(
        page.contains("is not the topic&#39;s name") || page.contains("is not the topic's name"),
        "{page}"
    );
    assert_eq!(ask(at, "POST", "/api/v1/topics/orders/elections", &json!({ "partitions": [7] })).0, 404);
}

/// Sends a record in a transaction that stays open.
fn open_transaction(node: &Node, topic: &str, id: &str) -> (tokio::runtime::Runtime, Producer) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let producer = runtime.block_on(async {
        let options = ConnectionOptions { waits: Some(Waits::default()), ..ConnectionOptions::default() };
        let cluster = Cluster::connect(std::slice::from_ref(&node.address), &options).await.expect("it runs");
        let mut properties = Properties::new();
        properties.set("transactional.id", id);
        let config = ProducerConfig::take(&mut properties).expect("settings");
        let mut producer = Producer::new(cluster, config, |_| {});
        let topic = producer.topic(topic).await.expect("it is there");
        producer.init_transactions().await.expect("a coordinator");
        producer.begin_transaction().expect("none is open");
        let record = ProducerRecord {
            topic,
            partition: Some(0),
            timestamp: 1_700_000_000_000,
            key: None,
            value: Some(b"open"),
            headers: &[],
            sent_at: Instant::now(),
            number: 0,
        };
        producer.send(&record).await.expect("there is room");
        producer.flush().await;
        producer
    });
    (runtime, producer)
}

#[test]
fn transactions_are_found_and_aborted_and_levels_are_changed_and_audited() {
    let dir = tempfile::tempdir().expect("a directory");
    let trail = dir.path().join("audit.log");
    let audit = format!("thalweg.audit.file={}", trail.display());
    let settings = [
        FREE_PORT,
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "transaction.state.log.num.partitions=2",
        &audit,
    ];
    let node = Node::start(&dir.path().join("data"), &settings);
    let at = &node.http;
    done(at, "POST", "/api/v1/topics", &json!({ "name": "paid" }));
    let (_runtime, _producer) = open_transaction(&node, "paid", "billing");
    let listed = |query: &str| {
        let list = done(at, "GET", &format!("/api/v1/transactions?{query}"), &Value::Null);
        list["transactions"].as_array().expect("a list").clone()
    };
    let all = listed("state=Ongoing");
    assert_eq!(all[0]["transactional_id"], "billing", "{all:?}");
    let producer = &all[0]["producer_id"];
    assert_eq!(listed(&format!("producer={producer}")).len(), 1);
    assert!(listed("producer=77").is_empty() && listed("longer=5").is_empty());
    assert_eq!(ask(at, "GET", "/api/v1/transactions?producer=x", &Value::Null).0, 400);
    // Its coordinator knows it, so it does not hang, old as its record is.
    let hanging = done(at, "GET", "/api/v1/hanging-transactions?minutes=0", &Value::Null);
    assert_eq!(hanging, json!({ "transactions": [], "unclear": [], "missing": [] }));
    assert!(node.get("/hanging-transactions?minutes=0").body.contains("No transaction hangs."));
    let open = done(at, "GET", "/api/v1/topics/paid/producers", &Value::Null);
    assert_eq!(open["producers"][0]["transaction_start"], 0, "{open}");
    let page = node.get("/topics/paid/abort-transaction?partition=0&start=0").body;
    assert!(page.contains("A coordinator knows this producer") && page.contains("billing"), "{page}");
    let page = post(at, "/topics/paid/abort-transaction", "partition=0&start=0&confirm=paid");
    assert!(page.contains("Nothing was aborted"), "{page}");
    assert_eq!(
        ask(at, "POST", "/api/v1/topics/paid/abort-transaction", &json!({"partition": 0, "start": 5})).0,
        404
    );
    let page = post(at, "/topics/paid/abort-transaction", "partition=0&start=0&confirm=paid-0");
    assert!(page.contains("The transaction in paid-0 was aborted."), "{page}");
    let open = done(at, "GET", "/api/v1/topics/paid/producers", &Value::Null);
    assert!(
        open["producers"].as_array().expect("a list").iter().all(|one| one["transaction_start"].is_null()),
        "{open}"
    );
    assert_eq!(ask(at, "POST", "/api/v1/transactions/nobody/fence", &Value::Null).0, 404);
    done(at, "POST", "/api/v1/transactions/billing/fence", &Value::Null);
    let fenced = done(at, "GET", "/api/v1/transactions/billing", &Value::Null);
    assert_ne!(fenced["state"], "Ongoing", "{fenced}");

    let level = |name: &str| {
        let features = done(at, "GET", "/api/v1/features", &Value::Null);
        let features = features.as_array().expect("a list").clone();
        features.into_iter().find(|one| one["name"] == name).expect("the feature")["level"].clone()
    };
    let before = level("transaction.version").as_i64().expect("a level");
    let lower = before - 1;
    let change = |dry_run: bool| json!({ "feature": "transaction.version", "level": lower, "change": "downgrade", "dry_run": dry_run });
    let (status, refused) =
        ask(at, "POST", "/api/v1/features", &json!({"feature": "transaction.version", "level": lower}));
    assert_eq!(status, 400, "an upgrade does not go down: {refused}");
    done(at, "POST", "/api/v1/features", &change(true));
    assert_eq!(level("transaction.version"), before, "a dry run changes nothing");
    let form = format!("feature=transaction.version&level={lower}&change=downgrade&action=");
    let page = post(at, "/features", &format!("{form}check"));
    assert!(page.contains(&format!("transaction.version could be set to level {lower}.")), "{page}");
    let page = post(at, "/features", &format!("{form}set&confirm=transaction"));
    assert!(page.contains("Nothing was set") && level("transaction.version") == before, "{page}");
    let page = post(at, "/features", &format!("{form}set&confirm=transaction.version"));
    assert!(page.contains(&format!("transaction.version has level {lower} now.")), "{page}");
    until("the level", || level("transaction.version") == lower);
    let trail = || std::fs::read_to_string(&trail).unwrap_or_default();
    until("the audit trail", || {
        let trail = trail();
        trail.contains("UPDATE_FEATURES") || trail.contains("UpdateFeatures")
    });
}

/// A batch of a transaction that no coordinator knows.
fn forgotten() -> ProduceRequest {
    let options = BatchOptions {
        producer_id: ProducerId(4711),
        producer_epoch: ProducerEpoch(0),
        base_sequence: 0,
        transactional: true,
        ..BatchOptions::default()
    };
    let mut batch = BatchBuilder::new(options);
    batch.append(1_700_000_000_000, None, Some(b"forgotten"), &[]).expect("it fits");
    let data = PartitionProduceData { index: 0, records: Some(Records::Inline(batch.build())) };
    let topic =
        TopicProduceData { name: "paid".to_owned(), partition_data: vec![data], ..Default::default() };
    ProduceRequest {
        transactional_id: Some("forgotten".to_owned()),
        acks: -1,
        timeout_ms: 3000,
        topic_data: vec![topic],
    }
}

#[test]
fn a_hanging_transaction_is_found_and_aborted() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        FREE_PORT,
        "transaction.partition.verification.enable=false",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ];
    let node = Node::start(dir.path(), &settings);
    let at = &node.http;
    done(at, "POST", "/api/v1/topics", &json!({ "name": "paid" }));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectionOptions { waits: Some(Waits::default()), ..ConnectionOptions::default() };
        let cluster = Cluster::connect(std::slice::from_ref(&node.address), &options).await.expect("it runs");
        // The last version that names topics.
        let answer = cluster.any().await.expect("it answers").send_at(&forgotten(), 11).await;
        let answer = answer.expect("an answer").responses.remove(0).partition_responses.remove(0);
        assert_eq!(answer.error_code, 0, "{answer:?}");
    });
    let found = |query: &str| done(at, "GET", &format!("/api/v1/hanging-transactions?{query}"), &Value::Null);
    let hanging = found("topic=paid&minutes=15");
    let one = &hanging["transactions"][0];
    assert_eq!((&one["producer_id"], &one["start"]), (&json!(4711), &json!(0)), "{hanging}");
    assert_eq!(found(""), hanging);
    let page = node.get("/hanging-transactions").body;
    assert!(page.contains("/topics/paid/abort-transaction?partition=0&amp;start=0"), "{page}");
    let page = node.get("/topics/paid/abort-transaction?partition=0&start=0").body;
    assert!(page.contains("No coordinator knows this producer"), "{page}");
    done(at, "POST", "/api/v1/topics/paid/abort-transaction", &json!({ "partition": 0, "start": 0 }));
    assert_eq!(found("")["transactions"], json!([]));
}

#[test]
fn a_read_only_console_refuses_these_changes_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.read.only=true"]);
    for (method, path) in [
        ("POST", "/api/v1/topics/t/moves"),
        ("DELETE", "/api/v1/topics/t/moves"),
        ("DELETE", "/api/v1/topics/t/moves/throttle"),
        ("POST", "/api/v1/topics/t/elections"),
        ("POST", "/api/v1/topics/t/abort-transaction"),
        ("POST", "/api/v1/transactions/x/fence"),
        ("POST", "/api/v1/features"),
        ("POST", "/topics/t/replicas"),
        ("POST", "/features"),
    ] {
        let answer = node::ask(&node.http, method, path, JSON, "{}");
        assert!(
            answer.status == 403 && answer.body.contains("read-only"),
            "{method} {path}: {}",
            answer.body
        );
    }
    let page = node.get("/quorum").body;
    assert!(page.contains("metadata.version") && !page.contains("Change metadata.version"), "{page}");
}

/// The lines of an event stream.
fn tail(address: &str, path: &str, headers: &str) -> impl Iterator<Item = String> + use<> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    BufReader::new(stream).lines().map_while(Result::ok)
}

#[test]
fn a_live_tail_streams_masked_messages_within_its_bounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.masking=t: card"]);
    let at = &node.http;
    done(at, "POST", "/api/v1/topics", &json!({ "name": "t", "partitions": 2 }));
    let produce = |value: &str| {
        let mut command = thalweg(&format!("produce t --bootstrap-server {}", node.address));
        let (code, _, error) = run_with_input(&mut command, value.as_bytes());
        assert_eq!(code, Some(0), "{error}");
    };
    produce("\"before\"\n");
    let mut lines = tail(at, "/api/v1/topics/t/tail", "");
    let first = lines.by_ref().find(|line| line.is_empty() || !line.starts_with("HTTP/1.1 200"));
    assert!(first.is_some());
    // The tail begins when its search has found the ends.
    pause(Duration::from_secs(2));
    produce("{\"card\": 4711, \"a\": \"<b>\\r\"}\n");
    let data =
        lines.by_ref().find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).expect("an event");
    assert!(data.contains("***") && !data.contains("4711") && !data.contains("before"), "{data}");
    // A page's tail goes on where the page ended.
    let mut lines = tail(at, "/topics/t/tail?after=0:0,1:0", "");
    let data: Vec<String> =
        lines.by_ref().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).take(2).collect();
    assert!(
        data.iter().any(|one| one.contains("before")) && data.iter().all(|one| one.contains("<tbody id=")),
        "{data:?}"
    );
    assert!(data.iter().all(|one| !one.contains("4711") && !one.contains("<b>")), "{data:?}");
    drop(lines);
    let mut flood = tail(at, "/topics/t/tail?after=0:0,1:0", "");
    assert!(flood.by_ref().any(|line| line.starts_with("data: ")));
    produce(&"x\n".repeat(1000));
    let omitted = flood.by_ref().find_map(|line| {
        assert!(!line.starts_with("event: end"), "{line}");
        (line == "event: omitted").then(|| line.clone())
    });
    assert!(omitted.is_some(), "the rest is counted");
    drop(flood);
    // Places are bounded.
    let mut open: Vec<_> = (0..40).map(|_| tail(at, "/api/v1/topics/t/tail", "")).collect();
    let answers: Vec<String> = open.iter_mut().filter_map(Iterator::next).collect();
    let of = |status: &str| answers.iter().filter(|line| line.contains(status)).count();
    assert!(of(" 200 ") >= 30 && of(" 429 ") >= 1, "{answers:?}");
    drop(open);
    let refused = ask(at, "GET", "/api/v1/topics/t/tail?expression=payload..", &Value::Null);
    assert!(refused.0 == 400 || refused.0 == 429, "{refused:?}");
}

/// The names and data of the events of a stream.
fn events(lines: impl Iterator<Item = String>) -> impl Iterator<Item = [String; 3]> {
    let mut event = [const { String::new() }; 3];
    lines.filter_map(move |line| {
        for (part, name) in event.iter_mut().zip(["event: ", "id: ", "data: "]) {
            if let Some(text) = line.strip_prefix(name) {
                text.clone_into(part);
            }
        }
        (line.is_empty() && !event[0].is_empty()).then(|| std::mem::take(&mut event))
    })
}

#[test]
fn a_tail_counts_the_messages_between_its_page_and_its_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    let at = &node.http;
    done(at, "POST", "/api/v1/topics", &json!({ "name": "t", "partitions": 1 }));
    let produce = |count: usize| {
        let mut command = thalweg(&format!("produce t --bootstrap-server {}", node.address));
        let (code, _, error) = run_with_input(&mut command, "x\n".repeat(count).as_bytes());
        assert_eq!(code, Some(0), "{error}");
    };
    produce(320);
    // The page ended at offset 20, and a tail repeats 50 messages at most.
    let mut shown = events(tail(at, "/topics/t/tail?after=0:20", ""));
    let [name, position, omitted] = shown.next().expect("an event");
    assert_eq!((name.as_str(), omitted.as_str()), ("omitted", "250"));
    assert_eq!(position, "0:270");
    for offset in 270..320 {
        let [name, position, data] = shown.next().expect("an event");
        assert!(name == "message" && data.contains(&format!("m-0-{offset}")), "{name}: {data}");
        assert_eq!(position, format!("0:{}", offset + 1));
    }
    drop(shown);
    // The stream continues behind the last event that a browser has received.
    produce(55);
    let mut shown = events(tail(at, "/topics/t/tail?after=0:20", "Last-Event-ID: 0:320\r\n"));
    let [name, position, omitted] = shown.next().expect("an event");
    assert_eq!([name.as_str(), &position, &omitted], ["omitted", "0:325", "5"]);
    drop(shown);
    // Messages that the filter leaves out are no gap.
    let mut shown = events(tail(at, "/topics/t/tail?text=y&after=0:370", ""));
    let [name, position, _] = shown.next().expect("an event");
    assert_eq!([name.as_str(), &position], ["position", "0:375"]);
}

#[test]
fn a_live_tail_ends_with_its_session() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(
        dir.path(),
        &[
            "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
        ],
    );
    let (code, _, error) = run(&mut thalweg(&format!("topic create t --bootstrap-server {}", node.address)));
    assert_eq!(code, Some(0), "{error}");
    let mut command =
        thalweg(&format!("security user add ann --password-stdin --bootstrap-server {}", node.address));
    let (code, _, error) = run_with_input(&mut command, b"correct horse");
    assert_eq!(code, Some(0), "{error}");
    let own = format!("{FORM}Origin: http://{}\r\n", node.http);
    let answer = node::ask(&node.http, "POST", "/login", &own, "user=ann&password=correct+horse&next=/");
    let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a session");
    let session = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
    assert!(tail(&node.http, "/topics/t/tail", "").next().is_some_and(|line| !line.contains("200")));
    let mut lines = tail(&node.http, "/topics/t/tail", &session);
    assert!(lines.next().is_some_and(|line| line.starts_with("HTTP/1.1 200")));
    assert_eq!(node::ask(&node.http, "POST", "/logout", &format!("{own}{session}"), "").status, 303);
    let last = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    assert_eq!(last.as_deref(), Some("\"The session has ended.\""));
}
