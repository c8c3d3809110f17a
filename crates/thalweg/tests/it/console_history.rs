//! The last hour in the console: of a broker that is produced to, for logins with few rights, over a restart
//! and a stop of the process, and what the samples cost.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use thalweg_client::{Admin, Cluster, ConnectionOptions, NewTopic, Properties};

use super::binary::{pause, until};
use super::node::{self, AUTHORIZER, FREE_PORT, Node};

const SOON: &str = "thalweg.console.history.interval.ms=500";

fn json(answer: &node::Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

fn read(node: &Node, path: &str) -> Value {
    let answer = node.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    json(&answer)
}

/// The sum of the rates of a series, in units: the samples have about the same distance.
fn sum(hour: &Value, series: &Value) -> f64 {
    let times: Vec<i64> = hour["at_ms"].as_array().expect("times").iter().filter_map(Value::as_i64).collect();
    let rates = series.as_array().expect("a series");
    assert_eq!(rates.len(), times.len(), "a value for each time");
    let spans = times.windows(2).zip(&rates[1..]);
    spans.map(|(pair, rate)| rate.as_f64().unwrap_or(0.0) * (pair[1] - pair[0]) as f64 / 1000.0).sum()
}

fn kinds(hour: &Value) -> Vec<&str> {
    hour["events"].as_array().expect("events").iter().filter_map(|event| event["kind"].as_str()).collect()
}

#[test]
fn an_hour_is_there_when_nobody_has_looked() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut node = Node::start(
        dir.path(),
        &[FREE_PORT, SOON, "offsets.topic.num.partitions=2", "group.initial.rebalance.delay.ms=0"],
    );
    node.tool("topic create orders --partitions 3", "");
    node.tool("topic create idle", "");
    for _ in 0..3 {
        node.tool("produce orders", &"0123456789\n".repeat(100));
    }
    node.tool("consume orders --from-beginning --max-messages 100 --group readers", "");
    let hour = || read(&node, "/api/v1/history");
    let is_read =
        |hour: &Value| hour["topics"].as_array().expect("topics").iter().any(|sum| sum["bytes_out"] != 0);
    until("all records are sampled, and that they were read", || {
        let hour = hour();
        sum(&hour, &hour["total"]["messages_in_per_second"]) > 299.0 && is_read(&hour)
    });
    let seen = hour();
    let topics = seen["topics"].as_array().expect("topics");
    let of = |name: &str| {
        topics.iter().find(|sum| sum["topic"] == name).unwrap_or_else(|| panic!("{name}: {seen}"))
    };
    assert_eq!(
        (&of("orders")["messages_in"], &of("idle")["messages_in"]),
        (&300.into(), &0.into()),
        "{seen}"
    );
    assert!(of("orders")["bytes_out"].as_u64() > Some(0), "{seen}");
    assert_eq!(
        (&seen["other_topics"]["topics"], &seen["total"]["messages_in_per_second"][0]),
        (&0.into(), &Value::Null)
    );
    let last = |series: &Value| series.as_array().and_then(|values| values.last().cloned()).expect("a value");
    let figures = &seen["figures"];
    assert_eq!((last(&figures["under_replicated"]), last(&figures["leaderless"])), (0.into(), 0.into()));
    assert!(
        last(&figures["log_bytes"]).as_u64() > Some(3_000) && last(&figures["disk_use_per_mille"]).is_u64(),
        "{seen}"
    );
    for time in ["produce_p50_us", "produce_p99_us", "fetch_p99_us", "fetch_work_p50_us"] {
        let known =
            figures[time].as_array().expect("a series").iter().filter(|us| us.as_u64() > Some(0)).count();
        assert!(known > 0, "{time}: {seen}");
    }
    assert!(
        kinds(&seen).starts_with(&["broker-started"]) && kinds(&seen).contains(&"topics-created"),
        "{seen}"
    );

    let orders = read(&node, "/api/v1/topics/orders/history");
    let produced = sum(&orders, &orders["traffic"]["messages_in_per_second"]);
    assert!((299.0..320.0).contains(&produced), "{produced}: {orders}");
    assert_eq!((&orders["led"], &orders["partitions"]), (&3.into(), &3.into()));
    until("the lag is sampled", || {
        let group = read(&node, "/api/v1/groups/readers/history");
        group["lag"].as_array().is_some_and(|lag| lag.last().and_then(Value::as_u64) == Some(200))
    });
    assert_eq!(node.get("/api/v1/topics/nothing/history").status, 404);
    assert_eq!(node.get("/api/v1/groups/nothing/history").status, 404);

    for (path, words) in [
        (
            "/",
            &[
                "The last 3 minutes of broker 1",
                "id=\"hour-bytes\" data-live",
                "Bytes: in",
                "Broker 1 started",
            ] as &[&str],
        ),
        ("/brokers/1", &["The last 3 minutes of broker 1"]),
        ("/topics/orders", &["leads 3 of 3 partitions", "Records in: "]),
        ("/group?id=readers", &["Lag in the last 3 minutes: 200 records"]),
    ] {
        let page = node.get(path).body;
        words.iter().for_each(|words| assert!(page.contains(words), "{path}: {words}: {page}"));
    }

    // A stopped process takes no samples.
    let before = hour()["at_ms"].as_array().map_or(0, Vec::len);
    kill_process(node.pid(), Signal::STOP).expect("it runs");
    pause(Duration::from_secs(3));
    kill_process(node.pid(), Signal::CONT).expect("it runs");
    until("samples go on", || hour()["at_ms"].as_array().is_some_and(|times| times.len() > before + 2));
    let seen = hour();
    assert!(kinds(&seen).contains(&"not-sampled"), "{seen}");
    let gap =
        seen["after_gap"].as_array().expect("a list").iter().rposition(|gap| gap == true).expect("a gap");
    assert!(gap > 0 && seen["total"]["bytes_in_per_second"][gap].is_null(), "a gap is no zero: {seen}");
    assert!(node.get("/").body.contains("<rect class=\"gap\""));
    let began = seen["at_ms"][0].as_i64().expect("a time");

    node.end(Signal::TERM);
    let node = Node::start(dir.path(), &[FREE_PORT, SOON]);
    until("it is sampled again", || {
        read(&node, "/api/v1/history")["at_ms"].as_array().is_some_and(|at| at.len() > 2)
    });
    let seen = read(&node, "/api/v1/history");
    assert!(seen["at_ms"][0].as_i64() > Some(began) && kinds(&seen)[0] == "broker-started", "{seen}");
    assert!(sum(&seen, &seen["total"]["messages_in_per_second"]) < 1.0, "old records are not new: {seen}");
}

#[test]
fn a_login_sees_the_hour_of_its_topics_and_groups() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(
        dir.path(),
        &[
            "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            AUTHORIZER,
            "super.users=User:ANONYMOUS",
            "connection.failed.authentication.delay.ms=10",
            "offsets.topic.num.partitions=2",
            "group.initial.rebalance.delay.ms=0",
            SOON,
        ],
    );
    node.tool("security user add ann --password-stdin", "correct horse");
    node.tool("security acl add User:ann --topic orders --allow describe", "");
    for topic in ["orders", "secrets"] {
        node.tool(&format!("topic create {topic}"), "");
        node.tool(&format!("produce {topic}"), &"0123456789\n".repeat(50));
        node.tool(&format!("consume {topic} --from-beginning --max-messages 10 --group of-{topic}"), "");
    }
    let login = super::http_client::login("ann", "correct horse");
    let ask = |path: &str| node::ask(&node.http, "GET", path, &login, "");
    // A new topic is not sampled yet, and not known to the console.
    let messages = |hour: &Value| match &hour["traffic"]["messages_in_per_second"] {
        Value::Null => 0.0,
        series => sum(hour, series),
    };
    until("the topic is sampled", || messages(&json(&ask("/api/v1/topics/orders/history"))) > 49.0);
    let answer = ask("/api/v1/history");
    let hour = json(&answer);
    assert_eq!(hour["topics"].as_array().map(Vec::len), Some(1), "{hour}");
    assert!(!answer.body.contains("secrets") && !answer.body.contains("of-orders"), "{hour}");
    for part in ["total", "other_topics", "figures", "lag", "other_groups"] {
        assert!(hour[part].is_null(), "{part}: {hour}");
    }
    assert!(
        kinds(&hour).starts_with(&["broker-started"]) && !kinds(&hour).contains(&"topics-created"),
        "{hour}"
    );
    assert_eq!(ask("/api/v1/topics/secrets/history").status, 404);
    assert_eq!(ask("/api/v1/groups/of-orders/history").status, 403);
    let page = ask("/").body;
    assert!(page.contains("need the operation DESCRIBE on the resource Cluster:kafka-cluster"), "{page}");
    assert!(page.contains("/topics/orders") && !page.contains("secrets"), "{page}");

    node.tool("security acl add User:ann --cluster --allow describe", "");
    node.tool("security acl add User:ann --group of-orders --allow describe", "");
    until("the sums are visible", || json(&ask("/api/v1/history"))["total"].is_object());
    let hour = json(&ask("/api/v1/history"));
    let others = &hour["other_topics"];
    assert!(others["topics"].as_u64() >= Some(1), "{hour}");
    assert!(
        sum(&hour, &others["traffic"]["messages_in_per_second"]) > 49.0,
        "the hidden topic is in the sum: {hour}"
    );
    assert!(!hour.to_string().contains("secrets"), "{hour}");
    assert_eq!(
        ask("/api/v1/groups/of-secrets/history").status,
        403,
        "it is listed, and may not be described"
    );
    until("the group is visible", || ask("/api/v1/groups/of-orders/history").status == 200);
    // Brokers leave out the offsets in topics that the login may not describe, without a word.
    node.tool("group reset of-orders --topic secrets --to-earliest --execute", "");
    let hidden = |reason: &Value| reason.as_str().is_some_and(|why| why.contains("hidden from this login"));
    let hour = json(&ask("/api/v1/groups/of-orders/history"));
    assert!(hour["lag"].is_null() && hidden(&hour["missing"]), "{hour}");
    let group = json(&ask("/api/v1/groups/of-orders"));
    assert!(hidden(&group["partial"]) && !group.to_string().contains("secrets"), "{group}");
    let groups = json(&ask("/api/v1/groups?filter=of-orders"));
    assert!(groups["groups"][0]["lag"].is_null() && hidden(&groups["lag_unknown"]), "{groups}");
    let page = ask("/group?id=of-orders").body;
    assert!(page.contains("40 records in the topics shown") && !page.contains("Lag in the last"), "{page}");
    let page = ask("/group/reset?id=of-orders&to=earliest").body;
    assert!(page.contains("Offsets of the group in other topics may exist, and would stay"), "{page}");
    assert_eq!(json(&ask("/api/v1/history"))["groups"], serde_json::json!([]), "their lags are withheld");
    node.tool("security acl add User:ann --topic * --allow describe", "");
    let lag = || json(&ask("/api/v1/groups?filter=of-orders"))["groups"][0]["lag"].clone();
    until("the lag in both topics", || lag() == 90);
    assert!(json(&ask("/api/v1/groups/of-orders"))["partial"].is_null());
}

#[test]
fn a_broker_keeps_no_hour_if_the_history_is_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.history.interval.ms=0"]);
    let answer = node.get("/api/v1/history");
    assert!(
        answer.status == 404 && answer.body.contains("thalweg.console.history.interval.ms"),
        "{}",
        answer.body
    );
    assert!(!node.get("/").body.contains("The last hour"));
}

/// The bar for a sample of 1,000 topics with 10,000 partitions: 1/200 of ten seconds.
const SAMPLE_MAX_US: u64 = 50_000;

#[test]
#[ignore = "creates 10,000 partitions; run it with --release for the figure of a broker in use"]
#[expect(clippy::print_stderr, reason = "the figure is printed")]
fn a_sample_of_ten_thousand_partitions_takes_little_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(
        dir.path(),
        &[FREE_PORT, "thalweg.console.history.interval.ms=1000", "log.index.size.max.bytes=65536"],
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectionOptions::take(&mut Properties::new(), "cost").expect("no settings");
        let cluster =
            Cluster::connect(std::slice::from_ref(&node.address), &options).await.expect("it listens");
        let admin = Admin::new(cluster).with_timeout(Duration::from_secs(120));
        let names: Vec<String> = (0..1_000).map(|number| format!("topic-{number:04}")).collect();
        for names in names.chunks(100) {
            let topics: Vec<NewTopic> =
                names.iter().map(|name| NewTopic { partitions: Some(10), ..NewTopic::new(name) }).collect();
            for (name, outcome) in admin.create_topics(&topics, false).await.expect("an answer") {
                outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    });
    let hour = || read(&node, "/api/v1/history");
    until("the topics are sampled", || hour()["other_topics"]["topics"].as_u64() >= Some(800));
    let mut costs = Vec::new();
    let mut last = 0;
    while costs.len() < 10 {
        let seen = hour();
        let at_ms = seen["at_ms"].as_array().and_then(|times| times.last()?.as_i64()).expect("a time");
        if at_ms > last {
            costs.push(seen["sample_us"].as_u64().expect("a time"));
            last = at_ms;
        }
        pause(Duration::from_millis(200));
    }
    costs.sort_unstable();
    eprintln!("A sample of 10,000 partitions: {costs:?} us");
    assert!(costs[costs.len() / 2] <= SAMPLE_MAX_US, "{costs:?}");
}
