//! Requests to the console that are wrong, or meant to harm: each is answered for what it is, and the broker goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::binary::{run, thalweg};
use super::node::{self, Answer, Node};

const FREE_PORT: &str = "listeners=PLAINTEXT://127.0.0.1:0";
const JSON: &str = "Content-Type: application/json\r\n";

fn ask(node: &Node, method: &str, path: &str, body: &str) -> (u16, Value) {
    let Answer { status, body, .. } = node::ask(&node.http, method, path, JSON, body);
    let value =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{method} {path}: {error}: {body}"));
    (status, value)
}

fn create_topic(node: &Node, name: &str) {
    let (code, _, error) =
        run(&mut thalweg(&format!("topic create {name} --bootstrap-server {}", node.address)));
    assert_eq!(code, Some(0), "{error}");
}

fn send(node: &Node, topic: &str, value: &str) {
    let body = json!({ "value": value }).to_string();
    let (status, answer) = ask(node, "POST", &format!("/api/v1/topics/{topic}/messages"), &body);
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn expressions_without_end_neither_stop_the_broker_nor_keep_the_places_of_searches() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    create_topic(&node, "orders");
    send(&node, "orders", "{}");
    let ten = "%5B0,1,2,3,4,5,6,7,8,9%5D";
    let loops: String = (0..9).map(|level| format!("{ten}.all(v{level},")).collect();
    let loops = format!("{loops}true{}", ")".repeat(9));
    let sum = |variable: &str| vec![variable; 16].join("%2B");
    let grows = format!(
        "%5B'{}'%5D.exists(a,%5B{}%5D.exists(b,%5B{}%5D.exists(c,%5B{}%5D.exists(d,%5B{}%5D.exists(e,size(e)%3C1)))))",
        "a".repeat(6000),
        sum("a"),
        sum("b"),
        sum("c"),
        sum("d")
    );
    let began = Instant::now();
    for expression in [&loops, &grows] {
        let path = format!("/api/v1/topics/orders/messages?from=earliest&expression={expression}");
        let (status, found) = ask(&node, "GET", &path, "");
        assert!(status == 200 && found["messages"] == json!([]), "{found}");
    }
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let (status, found) = ask(&node, "GET", "/api/v1/topics/orders/messages?from=earliest", "");
    assert!(status == 200 && found["messages"].as_array().is_some_and(|found| found.len() == 1), "{found}");
}
