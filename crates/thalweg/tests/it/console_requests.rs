//! Requests to the console that are wrong, or meant to harm: each is answered for what it is, and the broker
//! goes on.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::binary::{RunningProcess, run, run_with_input, thalweg, until};
use super::node::{self, Answer, FORM, FREE_PORT, JSON, Node};

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
fn a_node_without_streams_names_the_setting() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    for path in ["/api/v1/streams", "/api/v1/streams/mine/deploy"] {
        let (status, refused) = ask(&node, "POST", path, "{}");
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 404 && message.contains("streams.enabled=true"), "{refused}");
    }
    let (_, other) = ask(&node, "GET", "/api/v1/streamsx", "");
    assert_eq!(other["error"]["message"], "There is nothing at /api/v1/streamsx");
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
        let reason = found["without_value_reason"].as_str().unwrap_or_default();
        let is_given_up = found["without_value"] == 1 && reason.contains("too much time or memory");
        // Searches have the lowest priority: where others have the processors, its own time may be over
        // before.
        let is_late = found["end"] == "time";
        assert!(is_given_up || is_late, "{found}");
    }
    // On a busy machine, threads of the lowest priority get their time late.
    assert!(began.elapsed() < Duration::from_secs(180), "{:?}", began.elapsed());
    let (status, found) = ask(&node, "GET", "/api/v1/topics/orders/messages?from=earliest", "");
    assert!(status == 200 && found["messages"].as_array().is_some_and(|found| found.len() == 1), "{found}");
}

#[test]
fn streams_pass_the_checks_of_the_console() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "streams.enabled=true", "thalweg.console.enabled=false"]);
    until("the streams are known", || node.get("/api/v1/streams").status == 200);
    let by_name = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        node::raw(&node.http, &request)
    };
    for path in ["/api/v1/streams", "/api/v1/streams/x", "/api/v1/streams/x/taps/y"] {
        let refused = by_name(path);
        assert!(refused.status == 421 && refused.body.contains("evil.example"), "{path}: {}", refused.body);
    }
    assert_eq!(by_name("/metrics").status, 200, "scrapers call nodes by names of all kinds");
    let body = r#"{"name": "ticks", "definition": "time | null"}"#;
    for headers in [
        "Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n",
        "Origin: http://evil.example\r\nContent-Type: application/json\r\n",
        "Content-Type: text/plain\r\n",
    ] {
        assert_eq!(node::ask(&node.http, "POST", "/api/v1/streams", headers, body).status, 403, "{headers}");
    }
    let answer = node.get("/api/v1/streams");
    for header in ["content-security-policy", "x-frame-options: deny", "cache-control: no-store", "nosniff"] {
        assert!(answer.head.contains(header), "{header}: {}", answer.head);
    }
    assert_eq!(ask(&node, "POST", "/api/v1/streams", body).0, 201, "programs change streams");
}

#[test]
fn a_read_only_console_changes_no_streams() {
    let dir = tempfile::tempdir().expect("a directory");
    let node =
        Node::start(dir.path(), &[FREE_PORT, "streams.enabled=true", "thalweg.console.read.only=true"]);
    until("the streams are known", || node.get("/api/v1/streams").status == 200);
    let body = r#"{"name": "ticks", "definition": "time | null"}"#;
    for (method, path) in [
        ("POST", "/api/v1/streams"),
        ("POST", "/api/v1/streams/x/deploy"),
        ("POST", "/api/v1/streams/x/undeploy"),
        ("DELETE", "/api/v1/streams/x"),
    ] {
        let (status, refused) = ask(&node, method, path, body);
        assert!(status == 403 && refused["error"]["kind"] == "read-only", "{method} {path}: {refused}");
    }
}

#[test]
fn rules_hide_parts_of_the_messages_that_pass_a_stage() {
    let dir = tempfile::tempdir().expect("a directory");
    let masking = "thalweg.console.masking=payments: card";
    let node = Node::start(dir.path(), &[FREE_PORT, "streams.enabled=true", masking]);
    until("the streams are known", || node.get("/api/v1/streams").status == 200);
    let line = r#"time --fixedDelay=100ms | cards: transform --expression='{"card": 4711, "id": 5}' | null"#;
    let body = json!({ "name": "cards", "definition": line, "deploy": true });
    let (status, created) = ask(&node, "POST", "/api/v1/streams", &body.to_string());
    assert_eq!(status, 201, "{created}");
    for path in ["/api/v1/streams/cards/taps/cards?messages=1&wait_ms=5000", "/streams/cards/taps/cards"] {
        let answer = node.get(path);
        assert!(answer.status == 200 && answer.body.contains("***"), "{path}: {}", answer.body);
        assert!(!answer.body.contains("4711"), "{path}: {}", answer.body);
    }
}

/// Its connection is a stranger's for less.
const LONGER_THAN_A_STRANGER: Duration = Duration::from_secs(12);

#[test]
fn logins_last_as_long_as_the_user_does_and_changes_of_streams_are_audited() {
    let dir = tempfile::tempdir().expect("a directory");
    let trail = dir.path().join("audit.log");
    let audit = format!("thalweg.audit.file={}", trail.display());
    let jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
                required user_bob=\"pw-of-bob\";";
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS;User:ann;User:bob",
        "streams.enabled=true",
        jaas,
        &audit,
    ];
    let mut node = Node::start(&dir.path().join("data"), &settings);
    let security = |node: &Node, line: &str| {
        let mut command = thalweg(&format!("security {line} --bootstrap-server {}", node.address));
        let (code, _, error) = run_with_input(&mut command, b"correct horse");
        assert_eq!(code, Some(0), "{error}");
    };
    create_topic(&node, "orders");
    security(&node, "user add ann --password-stdin");

    // A program of PLAIN, on a connection whose answer takes longer than a stranger may.
    let bob = super::http_client::login("bob", "pw-of-bob");
    let mut tail = TcpStream::connect(&node.http).expect("it listens");
    let request = format!("GET /api/v1/topics/orders/tail HTTP/1.1\r\nHost: {}\r\n{bob}\r\n", node.http);
    tail.write_all(request.as_bytes()).expect("sent");
    let opened = Instant::now();

    let own = format!("{FORM}Origin: http://{}\r\n", node.http);
    let answer = node::ask(&node.http, "POST", "/login", &own, "user=ann&password=correct+horse");
    let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a session");
    let session = format!("Cookie: {}\r\n", cookie.split(';').next().expect("a name and a value"));
    let changed = format!("{own}{session}");
    let created = "name=ticks&definition=time+%7C+null";
    until("the streams are known", || {
        node::ask(&node.http, "POST", "/streams", &changed, created).status == 303
    });
    assert_eq!(node::ask(&node.http, "DELETE", "/api/v1/streams/none", &session, "").status, 404);
    let basic = super::http_client::login("ann", "correct horse");
    assert_eq!(node::ask(&node.http, "GET", "/api/v1/topics", &basic, "").status, 200);

    security(&node, "user remove ann");
    let destroy = node::ask(&node.http, "POST", "/streams/ticks/destroy", &changed, "confirm=ticks");
    assert!(destroy.head.contains("location: /login"), "{}", destroy.head);
    assert_eq!(node::ask(&node.http, "GET", "/api/v1/topics", &basic, "").status, 401);
    assert_eq!(node::ask(&node.http, "GET", "/topics", &session, "").status, 303);

    let rest = LONGER_THAN_A_STRANGER.saturating_sub(opened.elapsed()).max(Duration::from_secs(1));
    tail.set_read_timeout(Some(rest)).expect("a socket");
    let mut received = Vec::new();
    let ended = tail.read_to_end(&mut received).map_err(|error| error.kind());
    let received = String::from_utf8_lossy(&received);
    assert!(
        received.starts_with("HTTP/1.1 200") && ended == Err(ErrorKind::WouldBlock),
        "{ended:?} {received}"
    );

    node.end(Signal::TERM);
    let text = std::fs::read_to_string(&trail).expect("a trail");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let events: Vec<Value> = events.collect();
    let change = |request: &str| {
        let found = events.iter().find(|event| event["api"]["operation"] == request);
        found.unwrap_or_else(|| panic!("no {request}: {text}"))
    };
    let created = change("CreateStream");
    assert_eq!(
        (&created["actor"]["user"]["uid"], &created["status"]),
        (&json!("User:ann"), &json!("Success"))
    );
    assert_eq!(created["resources"][0], json!({ "type": "Stream", "name": "ticks" }));
    assert_eq!(change("DestroyStream")["status"], "Failure");
    let failed = events.iter().filter(|event| event["metadata"]["event_code"] == "login.failed");
    assert_eq!(failed.filter(|event| event["user"]["uid"] == "User:bob").count(), 0, "{text}");
}

fn message_of(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_default()
}

#[test]
fn wrong_requests_are_refused_in_words_and_change_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    create_topic(&node, "orders");
    let messages = "/api/v1/topics/orders/messages";
    for (method, path, body, status, part) in [
        ("POST", messages, r#"{"valeu": "x"}"#, 400, "valeu"),
        ("POST", messages, "", 400, "value is missing"),
        ("POST", messages, "{}", 400, "value is missing"),
        ("POST", messages, "[]", 400, "a JSON object"),
        ("POST", messages, r#"["k", "", "v", "", ""]"#, 400, "a JSON object"),
        ("POST", messages, r#"{"tombstone": "maybe"}"#, 400, "tombstone"),
        ("POST", "/api/v1/topics", r#"["arr", 1]"#, 400, "a JSON object"),
        ("POST", "/api/v1/users", r#"["eve", "pw"]"#, 400, "a JSON object"),
        ("GET", "/api/v1/topics?per_page=abc", "", 400, "per_page"),
        ("GET", "/api/v1/topics?page=-1", "", 400, "page"),
        ("GET", "/api/v1/topics?sort=bogus", "", 400, "sort"),
        ("GET", "/api/v1/topics?state=bogus", "", 400, "state"),
        ("GET", "/api/v1/groups?kind=bogus", "", 400, "kind"),
        ("GET", "/api/v1/groups?sorted=lag", "", 400, "filter, kind, state, sort, order, page, per_page"),
        ("GET", "/api/v1/transactions?filtre=a", "", 400, "filtre"),
        ("POST", "/api/v1/groups/g/reset?dry_run=true", r#"{"to": "earliest"}"#, 400, "dry_run"),
        ("GET", "/api/v1/brokers/abc/configuration", "", 400, "abc"),
        ("GET", "/api/v1/brokers/99/configuration", "", 404, "99"),
        ("GET", "/api/v1/topics/%ff", "", 400, "UTF-8"),
        ("PUT", "/api/v1/topics", "", 405, "PUT is not served at /api/v1/topics"),
        ("GET", "/api/v1/topics/orders/messages?committed=maybe", "", 400, "committed"),
        ("GET", "/api/v1/topics/orders/messages?control=maybe", "", 400, "control"),
        ("GET", "/api/v1/topics/orders/messages?from=bogus", "", 400, "from"),
        ("GET", "/api/v1/topics/orders/messages?shape=bogus", "", 400, "shape"),
        ("GET", "/api/v1/topics/orders/messages?limit=x", "", 400, "limit"),
        ("GET", "/api/v1/topics/orders/tail?from=earliest", "", 400, "from"),
        ("GET", "/api/v1/topics/orders/tail?limit=5", "", 400, "limit"),
        ("GET", "/api/v1/topics/orders/messages?from=time&at=-1", "", 400, "before 1970"),
        ("GET", "/api/v1/topics/orders/messages?from=offset&at=-1", "", 400, "negative"),
        ("POST", "/api/v1/groups/g/reset", r#"{"to": "earliest", "partition": 0}"#, 400, "name the topic"),
        (
            "POST",
            "/api/v1/groups/g/reset",
            r#"{"to": "time", "value": "-1", "topic": "orders"}"#,
            400,
            "value",
        ),
        (
            "POST",
            "/api/v1/groups/g/reset",
            r#"{"to": "offset", "value": "-1", "topic": "orders"}"#,
            400,
            "value",
        ),
        ("DELETE", "/api/v1/groups/g/offsets", r#"{"topic": "orders", "partitions": [0]}"#, 404, "no offset"),
        ("GET", "/api/v1/topics/nowhere/messages", "", 404, "nowhere"),
        ("POST", "/api/v1/topics/nowhere/messages", r#"{"value": "x"}"#, 404, "nowhere"),
    ] {
        let (found, answer) = ask(&node, method, path, body);
        assert!(
            found == status && message_of(&answer).contains(part),
            "{method} {path} {body}: {found} {answer}"
        );
    }
    let (_, answer) = ask(&node, "GET", "/api/v1/topics/nowhere/messages", "");
    assert_eq!(answer["error"]["kind"], "UNKNOWN_TOPIC_OR_PARTITION");
    let large = format!(r#"{{"value": "{}"}}"#, "x".repeat(5 << 20));
    let answer = node::ask(&node.http, "POST", messages, JSON, &large);
    assert!(answer.status == 413 && answer.body.contains("\"error\""), "{} {}", answer.status, answer.body);
    let (status, found) = ask(&node, "GET", &format!("{messages}?from=earliest&limit="), "");
    assert!(status == 200 && found["messages"] == json!([]), "nothing was sent: {found}");

    // A message without a value, and one with an empty one, on purpose.
    for body in [r#"{"key": "k", "tombstone": "on"}"#, r#"{"value": ""}"#] {
        assert_eq!(ask(&node, "POST", messages, body).0, 200, "{body}");
    }
    let (_, found) = ask(&node, "GET", &format!("{messages}?from=earliest"), "");
    assert_eq!((&found["messages"][0]["value"], &found["messages"][1]["value"]), (&Value::Null, &json!("")));
    for (expression, part) in [("1%2F0+%3D%3D+1", "ivision"), ("key.matches('%5B')", "regular expression")] {
        let (status, found) = ask(&node, "GET", &format!("{messages}?expression={expression}"), "");
        let reason = found["without_value_reason"].as_str().unwrap_or_default();
        assert!(status == 200 && reason.contains(part), "{found}");
    }
}

#[test]
fn resets_note_limited_offsets_and_are_refused_for_active_groups() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    create_topic(&node, "orders");
    send(&node, "orders", "x");
    let reset = "/api/v1/groups/g/reset";
    let beyond = r#"{"to": "offset", "value": "99999", "topic": "orders", "partition": 0, "dry_run": true}"#;
    let (status, plan) = ask(&node, "POST", reset, beyond);
    let note = plan["steps"][0]["note"].as_str().unwrap_or_default();
    assert!(status == 200 && note.contains("99,999 is beyond the end"), "{plan}");

    let line = format!("consume orders --group g --from-beginning --bootstrap-server {}", node.address);
    let mut member = RunningProcess::start(&mut thalweg(&line));
    assert_eq!(member.lines().next().as_deref(), Some("x"));
    let (status, refused) = ask(&node, "POST", reset, beyond);
    assert!(status == 409 && message_of(&refused).contains("g is Stable with 1 member: "), "{refused}");
    let page = node.get("/group/reset?id=g&to=earliest&topic=orders");
    assert!(page.body.contains("1 member: ") && !page.body.contains("Reset these offsets"), "{}", page.body);
}

#[test]
fn wrong_requests_of_people_are_answered_with_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    create_topic(&node, "t1");
    let own = format!("{FORM}Origin: http://{}\r\n", node.http);
    for (method, path, body, status, part) in [
        ("GET", "/topics?page=x", "", 400, "page"),
        ("GET", "/topics/%ff", "", 400, "UTF-8"),
        ("PUT", "/topics", "", 405, "PUT is not served"),
        ("POST", "/users", "name=ann", 400, "password"),
        ("GET", "/topics/nowhere/messages", "", 404, "nowhere"),
        ("GET", "/topics/t1/messages?committed=maybe", "", 400, "committed"),
        ("GET", "/topics/t1/messages?limit=", "", 200, "Send a message"),
        ("GET", "/topics/t1/messages?limits=5", "", 400, "unknown field `limits`"),
    ] {
        let answer = node::ask(&node.http, method, path, &own, body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert!(answer.head.contains("content-type: text/html"), "{method} {path}: {}", answer.head);
        assert!(
            answer.body.contains("<html") && answer.body.contains(part),
            "{method} {path}: {}",
            answer.body
        );
        assert!(status != 405 || answer.head.contains("allow: get"), "{}", answer.head);
    }
}

#[test]
fn the_newest_messages_of_all_partitions_come_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    create_topic(&node, "large");
    let value = "x".repeat(40 << 10);
    (0..140).for_each(|number| send(&node, "large", &format!("{number:03}{value}")));
    let (_, answer) = ask(&node, "GET", "/api/v1/topics/large/messages?limit=140", "");
    let extent = ["order", "end", "more"].map(|name| answer[name].clone());
    assert_eq!(extent, [json!("newest_first"), json!("answer_bytes"), json!(true)], "{answer}");
    let found = answer["messages"].as_array().expect("a list");
    let number = |message: &Value| message["value"].as_str().map(|value| value[..3].to_owned());
    assert_eq!(number(&found[0]), Some("139".to_owned()), "the newest first");
    assert!((100..140).contains(&found.len()), "{}", found.len());
}

#[test]
fn a_search_reports_what_it_looked_at() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    create_topic(&node, "t");
    (0..60).for_each(|number| send(&node, "t", &format!("number {number}")));
    for (query, looked, ended, part) in [
        (
            "",
            "50 messages of 50 records (450 B) looked at, newest first: offsets 10 to 59 of partition 0.",
            "10 older offsets were not looked at: the search ended at the number of messages asked for.",
            json!([{"partition": 0, "from": 10, "to": 60, "start": 0, "end": 60}]),
        ),
        (
            "from=earliest&limit=2",
            "2 messages of 2 records (16 B) looked at, oldest first: offsets 0 to 1 of partition 0.",
            "58 newer offsets were not looked at: the search ended at the number of messages asked for.",
            json!([{"partition": 0, "from": 0, "to": 2, "start": 0, "end": 60}]),
        ),
        (
            "text=number+1&limit=100",
            "11 messages of 60 records (530 B) looked at, newest first: offsets 0 to 59 of partition 0.",
            "Everything was read.",
            json!([{"partition": 0, "from": 0, "to": 60, "start": 0, "end": 60}]),
        ),
    ] {
        let (_, found) = ask(&node, "GET", &format!("/api/v1/topics/t/messages?{query}"), "");
        assert_eq!((&found["ended"], &found["partitions"]), (&json!(ended), &part), "{query}: {found}");
        assert_eq!(found["more"], json!(!ended.starts_with("Everything")), "{found}");
        let page = node.get(&format!("/topics/t/messages?{query}")).body;
        let expected = format!("{looked} {ended}");
        assert!(page.contains(&expected), "{expected}: {page}");
    }
}
