//! The console of a node: its pages, its API against its document, its logins, and what it refuses.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::binary::{RunningProcess, run, thalweg, until};
use super::node::{self, AUTHORIZER, Answer, FORM, FREE_PORT, JSON, Node};

/// The first page, also of a debug build on a busy machine; the goal of a release build is 100 ms.
const PAGE_SOON: Duration = Duration::from_secs(3);

fn ask(node: &Node, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let Answer { status, body, .. } = node::ask(&node.http, method, path, JSON, &text);
    let value =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{method} {path}: {error}: {body}"));
    (status, value)
}

fn done(node: &Node, method: &str, path: &str, body: &Value) -> Value {
    let (status, value) = ask(node, method, path, body);
    assert_eq!(status, 200, "{method} {path}: {value}");
    value
}

/// A process with the lines of its standard error.
pub fn start(command: &mut Command) -> (RunningProcess, impl Iterator<Item = String> + use<>) {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    (RunningProcess(child), lines.map(|line| line.expect("text")))
}

#[test]
fn the_api_changes_a_cluster_and_answers_by_its_document() {
    let dir = tempfile::tempdir().expect("a directory");
    let lab = format!("thalweg.console.lab.directory={}", dir.path().join("lab").display());
    let data = dir.path().join("data");
    let node = Node::start(
        &data,
        &[
            FREE_PORT,
            "group.initial.rebalance.delay.ms=0",
            "offsets.topic.num.partitions=2",
            "streams.enabled=true",
            &lab,
        ],
    );
    until("the streams are known", || node.get("/api/v1/streams").status == 200);
    let ticks = json!({ "name": "orders", "definition": "time --fixedDelay=20ms | null", "deploy": true });
    let (status, stream) = ask(&node, "POST", "/api/v1/streams", &ticks);
    assert_eq!(status, 201, "{stream}");
    let orders = json!({ "name": "orders", "partitions": 3, "configuration": { "retention.ms": "60000" } });
    done(&node, "POST", "/api/v1/topics", &orders);
    assert_eq!(ask(&node, "POST", "/api/v1/topics", &orders).0, 409);
    assert_eq!(ask(&node, "POST", "/api/v1/topics", &json!({ "name": "a b" })).0, 400);
    let (status, refused) = ask(&node, "POST", "/api/v1/topics", &json!({ "nmae": "x" }));
    assert!(
        status == 400 && refused["error"]["message"].as_str().is_some_and(|text| text.contains("nmae")),
        "{refused}"
    );
    done(&node, "POST", "/api/v1/topics/orders/partitions", &json!({ "partitions": 4 }));
    let changes = json!({ "set": { "max.message.bytes": "2000" }, "reset": ["retention.ms"] });
    done(&node, "PATCH", "/api/v1/topics/orders/configuration", &changes);
    let configuration = done(&node, "GET", "/api/v1/topics/orders/configuration", &Value::Null);
    let of = |name: &str| {
        let lines = configuration.as_array().expect("a list");
        lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name} is missing")).clone()
    };
    assert_eq!(
        (&of("max.message.bytes")["value"], &of("max.message.bytes")["is_set"]),
        (&json!("2000"), &json!(true))
    );
    assert_eq!(
        (&of("retention.ms")["value"], &of("retention.ms")["default"]),
        (&json!("604800000"), &json!("604800000"))
    );
    assert!(of("retention.ms")["documentation"].is_string(), "{}", of("retention.ms"));

    node.tool("produce orders", &"0123456789\n".repeat(10));
    node.tool("consume orders --from-beginning --max-messages 10 --group readers", "");
    let group = done(&node, "GET", "/api/v1/groups/readers", &Value::Null);
    let sum = |group: &Value, field: &str| -> i64 {
        let offsets = group["offsets"].as_array().expect("a list");
        offsets.iter().filter_map(|offset| offset[field].as_i64()).sum()
    };
    assert_eq!((sum(&group, "offset"), sum(&group, "lag")), (10, 0), "{group}");
    let dry =
        done(&node, "POST", "/api/v1/groups/readers/reset", &json!({ "to": "earliest", "dry_run": true }));
    assert_eq!(dry["done"], false);
    let group = done(&node, "GET", "/api/v1/groups/readers", &Value::Null);
    assert_eq!(sum(&group, "offset"), 10, "a dry run changes nothing");
    done(&node, "POST", "/api/v1/groups/readers/reset", &json!({ "to": "by", "value": "-1" }));
    let group = done(&node, "GET", "/api/v1/groups/readers", &Value::Null);
    assert!(sum(&group, "lag") >= 1, "{group}");
    // The record that is unread has an age.
    assert!(sum(&group, "lag_ms") >= 1, "{group}");
    let readers = done(&node, "GET", "/api/v1/topics/orders/groups", &Value::Null);
    let reader = &readers["groups"][0];
    assert_eq!((&reader["group"], &reader["kind"]), (&json!("readers"), &json!("classic")), "{readers}");
    assert!(reader["lag"].as_i64() >= Some(1) && reader["lag_ms"].as_i64() >= Some(1), "{readers}");
    let clients = done(&node, "GET", "/api/v1/clients?filter=console", &Value::Null);
    let console = &clients["connections"][0];
    let named = (&console["client"], &console["principal"]);
    assert_eq!(named, (&json!("thalweg-console"), &json!("User:ANONYMOUS")), "{clients}");
    assert!(console["software"].is_string() && console["tls"] == false, "{clients}");
    let listed = run(&mut thalweg(&format!("broker clients console --json --server http://{}", node.http)));
    assert!(listed.0 == Some(0) && listed.1.contains("User:ANONYMOUS"), "{listed:?}");
    let described = run(&mut thalweg(&format!(
        "topic describe orders --groups --json --bootstrap-server {}",
        node.address
    )));
    let described: Value = serde_json::from_str(&described.1).expect("JSON");
    let reader = &described[0]["groups"][0];
    assert!(reader["group"] == "readers" && reader["lag_seconds"].as_f64() > Some(0.0), "{described}");
    let quota = json!({ "entity": { "user": "ann" }, "limit": "producer_byte_rate", "value": 1024.0 });
    done(&node, "POST", "/api/v1/quotas", &quota);
    done(&node, "POST", "/api/v1/users", &json!({ "name": "ann", "password": "secret" }));

    let sent = json!({ "key": "k1", "value": "{\"amount\": 7}", "headers": "trace=<b>" });
    let sent = done(&node, "POST", "/api/v1/topics/orders/messages", &sent);
    let found = done(
        &node,
        "GET",
        "/api/v1/topics/orders/messages?from=earliest&expression=payload.amount%3E5",
        &Value::Null,
    );
    assert_eq!(found["messages"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(
        (&found["messages"][0]["offset"], &found["messages"][0]["key"]),
        (&sent["offset"], &json!("k1")),
        "{found}"
    );
    assert_eq!(ask(&node, "GET", "/api/v1/topics/orders/messages?expression=payload..", &Value::Null).0, 400);

    conforms_to_its_document(&node);

    let credential = json!({ "name": "ann", "mechanism": "SCRAM-SHA-512" });
    done(&node, "DELETE", "/api/v1/users", &credential);
    done(&node, "DELETE", "/api/v1/groups/readers", &Value::Null);
    done(&node, "DELETE", "/api/v1/topics/orders", &Value::Null);
    assert_eq!(ask(&node, "GET", "/api/v1/topics/orders", &Value::Null).0, 404);
    assert_eq!(ask(&node, "GET", "/api/v1/nothing", &Value::Null).0, 404);
}

/// Checks the answer of every reading against the schema that the document has for it.
fn conforms_to_its_document(node: &Node) {
    let document = done(node, "GET", "/api/v1/openapi.json", &Value::Null);
    let mut checked = 0;
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let Some(reading) = operations.get("get") else { continue };
        // An event stream does not end, and a download is no document.
        let content = &reading["responses"]["200"]["content"];
        if content.get("text/event-stream").is_some() || path.ends_with("/download") {
            continue;
        }
        let (query, is_there) = match path.as_str() {
            "/api/v1/acls" | "/api/v1/acls/rights" | "/api/v1/transactions/{id}" | "/api/v1/lab/compare" => {
                ("?principal=User:ann&resource_type=TOPIC", false)
            }
            "/api/v1/streams" => ("?figures=true", true),
            _ => ("", true),
        };
        let real = path.replace("{name}", "orders").replace("{group}", "readers").replace("{id}", "1");
        let real = real.replace("{stage}", "time");
        let (status, answer) = ask(node, "GET", &format!("{real}{query}"), &Value::Null);
        assert_eq!(status == 200, is_there, "{path}: {answer}");
        let responses = &reading["responses"];
        let response = if is_there { &responses["200"] } else { &responses["default"] };
        let schema = &response["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path} has no schema");
        if let Err(wrong) = conforms(&answer, schema, &document) {
            panic!("{path}: {wrong}: {answer}");
        }
        checked += 1;
    }
    assert!(checked >= 12, "{checked} readings");
}

/// The schema that a schema refers to, or the schema itself.
fn referred<'a>(schema: &'a Value, document: &'a Value) -> &'a Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema };
    let name = reference.trim_start_matches("#/components/schemas/");
    let found = &document["components"]["schemas"][name];
    assert!(found.is_object(), "{reference} is not in the document");
    found
}

/// The schema of an object with the properties of all parts.
fn joined(parts: &[Value], document: &Value) -> Value {
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for part in parts.iter().map(|part| referred(part, document)) {
        properties.extend(part["properties"].as_object().expect("an object").clone());
        required.extend(part["required"].as_array().into_iter().flatten().cloned());
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Whether a value has the shape of a schema: as much of JSON Schema as the document uses.
fn conforms(value: &Value, schema: &Value, document: &Value) -> Result<(), String> {
    if schema["$ref"].is_string() {
        return conforms(value, referred(schema, document), document);
    }
    if let Some(parts) = schema["allOf"].as_array() {
        return conforms(value, &joined(parts, document), document);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let mut failures = choices.iter().map(|choice| conforms(value, choice, document));
        return if failures.any(|outcome| outcome.is_ok()) {
            Ok(())
        } else {
            Err(format!("{value} is none of {schema}"))
        };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |name: &Value| name == kind || kind == "integer" && name == "number";
    let fits = match &schema["type"] {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    };
    if !fits {
        return Err(format!("{value} is no {}", schema["type"]));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        return Err(format!("{value} is none of {choices:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(item, &schema["items"], document)?;
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    // Any object.
    if schema["properties"].is_null() && schema["additionalProperties"].is_null() {
        return Ok(());
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(required.as_str().unwrap_or_default()) {
            return Err(format!("{required} is missing"));
        }
    }
    for (name, field) in object {
        let of_field = &schema["properties"][name];
        let of_field = if of_field.is_null() { &schema["additionalProperties"] } else { of_field };
        if !of_field.is_object() {
            return Err(format!("{name} is not in the document"));
        }
        conforms(field, of_field, document).map_err(|wrong| format!("{name}: {wrong}"))?;
    }
    Ok(())
}

#[test]
fn pages_are_whole_without_script_and_protected() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    let began = Instant::now();
    let first = node.get("/");
    assert!(began.elapsed() < PAGE_SOON, "{:?}", began.elapsed());
    assert_eq!(first.status, 200, "{}", first.body);
    // The disk of the machine may be nearly full, which is an alert.
    for words in ["Brokers", "Under-replicated", "Disk in use"] {
        assert!(first.body.contains(words), "{words} is missing: {}", first.body);
    }
    for words in [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(first.head.contains(words), "{words} is missing: {}", first.head);
    }
    let asset =
        first.body.split('"').find(|part| part.starts_with("/assets/console.css")).expect("a stylesheet");
    let asset = node.get(asset);
    assert!(asset.status == 200 && asset.head.contains("immutable"), "{}", asset.head);
    assert_eq!(node.get("/elsewhere").status, 404);
    assert_eq!(node.get("/topics/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E").status, 400);
    for path in ["/livez", "/readyz", "/healthz"] {
        let answer = node.get(path);
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"), "{path}");
    }

    let post = |path: &str, headers: &str, body: &str| node::ask(&node.http, "POST", path, headers, body);
    let own = format!("{FORM}Origin: http://{}\r\n", node.http);
    for foreign in [
        FORM.to_owned(),
        format!("{FORM}Origin: http://evil.example\r\n"),
        format!("{own}Sec-Fetch-Site: cross-site\r\n"),
        format!("{JSON}Origin: null\r\n"),
    ] {
        assert_eq!(post("/create-topic", &foreign, "name=evil").status, 403, "{foreign}");
    }
    assert_eq!(node.get("/topics/evil").status, 404);
    assert_eq!(post("/create-topic", &own, "name=good").status, 303);
    assert_eq!(node.get("/topics/good").status, 200);
    assert_eq!(post("/topics/good/delete", &own, "confirm=goo").status, 303);
    assert_eq!(node.get("/topics/good").status, 200, "the name was not right");
}

#[test]
fn names_of_other_sites_are_refused_without_a_login() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.hosts=console.example"]);
    let with_host = |host: &str| {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        node::raw(&node.http, &request).status
    };
    assert_eq!(with_host("console.example:9090"), 200);
    assert_eq!(with_host("localhost"), 200);
    assert_eq!(with_host("evil.example:9090"), 421);
}

#[test]
fn people_log_in_with_the_users_of_the_cluster_and_see_what_it_lets_them_see() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(
        dir.path(),
        &[
            "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            AUTHORIZER,
            "super.users=User:ANONYMOUS",
            "connection.failed.authentication.delay.ms=10",
        ],
    );
    node.tool("topic create orders", "");
    node.tool("topic create secrets", "");
    node.tool("security user add ann --password-stdin", "correct horse");
    node.tool("security acl add User:ann --topic orders --allow describe", "");

    let answer = node.get("/topics");
    assert!(
        answer.status == 303 && answer.head.contains("location: /login?next=%2ftopics"),
        "{}",
        answer.head
    );
    assert_eq!(node.get("/api/v1/topics").status, 401);
    assert_eq!(node.get("/healthz").status, 200);
    let own = format!("{FORM}Origin: http://{}\r\n", node.http);
    let log_in = |password: &str| {
        let body = format!("user=ann&password={password}&next=//evil.example");
        node::ask(&node.http, "POST", "/login", &own, &body)
    };
    assert_eq!(log_in("wrong").status, 401);
    let answer = log_in("correct+horse");
    assert!(answer.status == 303 && answer.head.contains("location: /\r\n"), "{}", answer.head);
    let cookie = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a session");
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    let (pair, _) = cookie.split_once(';').expect("a name and a value");
    let session = format!("Cookie: {pair}\r\n");
    let page = node::ask(&node.http, "GET", "/topics", &session, "");
    assert!(page.status == 200 && page.body.contains("/topics/orders"), "{}", page.body);
    assert!(!page.body.contains("secrets"), "it may not be seen");
    let refused =
        node::ask(&node.http, "POST", "/topics/orders/delete", &format!("{own}{session}"), "confirm=orders");
    let (_, note) = refused.head.split_once("location: ").expect("a page with the reason");
    let page = node::ask(&node.http, "GET", note.lines().next().unwrap_or_default(), &session, "");
    assert!(page.body.contains("TOPIC_AUTHORIZATION_FAILED"), "{}", page.body);
    assert_eq!(node::ask(&node.http, "POST", "/logout", &format!("{own}{session}"), "").status, 303);
    assert_eq!(node::ask(&node.http, "GET", "/topics", &session, "").status, 303, "the session has ended");
    // By HTTP Basic, for programs.
    let basic = super::http_client::login("ann", "correct horse");
    let list = node::ask(&node.http, "GET", "/api/v1/topics", &basic, "");
    let list: Value = serde_json::from_str(&list.body).expect("JSON");
    let (matched, total, hidden) = (&list["matched"], &list["total"], &list["hidden"]);
    assert_eq!(
        (matched, total, hidden),
        (&json!(1), &Value::Null, &Value::Null),
        "others may be hidden: {list}"
    );
    let page = node::ask(&node.http, "GET", "/topics/orders/purge", &basic, "").body;
    let hidden = "Groups that the login may not describe are not listed";
    assert!(page.contains(hidden) && page.contains("None of those that could be read."), "{page}");
    let groups = node::ask(&node.http, "GET", "/api/v1/groups", &basic, "");
    let groups: Value = serde_json::from_str(&groups.body).expect("JSON");
    assert!(groups["total"].is_null(), "{groups}");
    assert!(groups["missing"][0].as_str().is_some_and(|missing| missing.starts_with(hidden)), "{groups}");
    let page = node::ask(&node.http, "GET", "/hanging-transactions", &basic, "").body;
    assert!(page.contains("topics may be hidden from this login"), "{page}");
    assert!(!page.contains("No transaction hangs.<"), "{page}");
    let page = node::ask(&node.http, "GET", "/brokers", &basic, "").body;
    assert!(page.contains("Leaders and replicas are those of topics that this login may see."), "{page}");
    let page = node::ask(&node.http, "GET", "/", &basic, "").body;
    assert!(page.contains("Topics that this login may not describe are not counted."), "{page}");
    assert!(!page.contains("in order"), "{page}");
    let overview = || -> Value {
        let answer = node::ask(&node.http, "GET", "/api/v1/cluster", &basic, "");
        serde_json::from_str(&answer.body).expect("JSON")
    };
    let partial = overview();
    assert_eq!((&partial["health"], &partial["topics"]), (&json!("unknown"), &json!(1)), "{partial}");
    assert_eq!((&partial["log_bytes"], &partial["hidden_topics"]), (&Value::Null, &Value::Null), "{partial}");
    node.tool("security acl add User:ann --cluster --allow describe", "");
    until("the hidden topic is counted", || overview()["hidden_topics"] == 1);
    assert_eq!(overview()["health"], "unknown");
    node.tool("security acl add User:ann --topic secrets --allow describe", "");
    until("nothing is hidden", || overview()["hidden_topics"] == 0);
    assert_eq!(
        node::ask(&node.http, "GET", "/api/v1/topics", &super::http_client::login("ann", "x"), "").status,
        401
    );
    assert!(!node.output().contains("correct horse"));
}

#[test]
fn messages_that_pass_a_stage_are_shown_and_do_not_stop_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "streams.enabled=true"]);
    until("the streams are known", || node.get("/api/v1/streams").status == 200);
    let line = "load-generator --messageCount=0 --messageSize=100 | even: filter --expression='true' | null";
    let (status, created) = ask(
        &node,
        "POST",
        "/api/v1/streams",
        &json!({ "name": "flood", "definition": line, "deploy": true }),
    );
    assert_eq!(status, 201, "{created}");
    let passed = done(&node, "GET", "/api/v1/streams/flood/taps/even?messages=5&wait_ms=5000", &Value::Null);
    assert_eq!(passed["messages"].as_array().map(Vec::len), Some(5), "{passed}");
    let page = node.get("/streams/flood/taps/even");
    assert!(page.status == 200 && page.body.contains("aria-label=\"Message "), "{}", page.body);
    // The page still looks on for a while: the stream does not wait for it.
    let count = || {
        let stream = done(&node, "GET", "/api/v1/streams/flood", &Value::Null);
        stream["parts"][0]["stages"][1]["messages_out"].as_u64().expect("a number")
    };
    let first = count();
    until("more has passed", || count() > first + 10_000);
    let (status, refused) = ask(&node, "GET", "/api/v1/streams/flood/taps/null", &Value::Null);
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 404 && message.contains("load-generator, even"), "{refused}");
    assert_eq!(ask(&node, "GET", "/api/v1/streams/flood/taps/even?messages=0", &Value::Null).0, 400);
    assert_eq!(node.get("/streams/none/taps/even").status, 404);
}

/// The processes of a parent, by their command lines.
fn children(parent: i32) -> Vec<(i32, String)> {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let (state, found) = (fields.split_whitespace().next()?, fields.split_whitespace().nth(1)?);
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (found == parent.to_string() && state != "Z").then_some((pid, line))
    };
    std::fs::read_dir("/proc").expect("processes").filter_map(of).collect()
}

#[test]
fn a_run_of_the_lab_ends_with_the_process_of_its_console() {
    let dir = tempfile::tempdir().expect("a directory");
    let results = dir.path().join("lab");
    let lab = format!("thalweg.console.lab.directory={}", results.display());
    let mut node = Node::start(&dir.path().join("data"), &[FREE_PORT, &lab]);
    let wrong = |body: Value, words: &str| {
        let (status, refused) = ask(&node, "POST", "/api/v1/lab/run", &body);
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(words), "{refused}");
    };
    wrong(json!({ "workload": "quik", "target": "embedded" }), "use quick");
    wrong(json!({ "workload": "quick", "target": "kafka" }), "use embedded or cluster");
    wrong(json!({ "workload": "quick", "target": "embedded", "scale": 100 }), "0.001 to 10");
    assert_eq!(ask(&node, "DELETE", "/api/v1/lab/run", &Value::Null).0, 409, "nothing runs");
    let (status, run) = ask(
        &node,
        "POST",
        "/api/v1/lab/run",
        &json!({ "workload": "quick", "target": "embedded", "repetitions": 1 }),
    );
    assert_eq!(status, 202, "{run}");
    let state = || done(&node, "GET", "/api/v1/lab", &Value::Null)["run"].clone();
    until("it measures", || state()["produced"].is_object());
    assert_eq!(state()["state"], "running");
    let (status, again) =
        ask(&node, "POST", "/api/v1/lab/run", &json!({ "workload": "quick", "target": "embedded" }));
    assert_eq!(status, 409, "{again}");
    let found = children(node.pid().as_raw_nonzero().get());
    let [(child, line)] = &found[..] else { panic!("one child: {found:?}") };
    assert!(line.contains("lab run quick"), "{line}");
    let brokers: Vec<(i32, String)> = children(*child);
    assert!(brokers.iter().any(|(_, line)| line.contains(" serve ")), "{brokers:?}");
    node.end(Signal::KILL);
    let is_gone = |pid: i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.is_empty()
    };
    until("the run and its brokers have ended", || {
        is_gone(*child) && brokers.iter().all(|(pid, _)| is_gone(*pid))
    });
    let name = run["name"].as_str().expect("a name");
    assert!(results.join(name).join("result.json").exists(), "what was measured so far is kept");
    assert!(!results.join(name).join("brokers").exists(), "its brokers' data is gone");
}

#[test]
fn the_lab_is_for_those_who_may_alter_the_cluster_and_has_their_rights() {
    let dir = tempfile::tempdir().expect("a directory");
    let lab = format!("thalweg.console.lab.directory={}", dir.path().join("lab").display());
    let node = Node::start(
        &dir.path().join("data"),
        &[
            "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            AUTHORIZER,
            "super.users=User:ANONYMOUS;User:root",
            "connection.failed.authentication.delay.ms=10",
            &lab,
        ],
    );
    for user in ["ann", "root"] {
        node.tool(&format!("security user add {user} --password-stdin"), "correct horse");
    }
    let ask = |user: &str, method: &str, path: &str, body: &Value| {
        let headers = format!("{JSON}{}", super::http_client::login(user, "correct horse"));
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = node::ask(&node.http, method, path, &headers, &text);
        (answer.status, answer.body)
    };
    let (status, refused) = ask("ann", "GET", "/api/v1/lab", &Value::Null);
    assert!(status == 403 && refused.contains("DESCRIBE"), "{refused}");
    for path in ["/api/v1/clients", "/clients"] {
        let (status, refused) = ask("ann", "GET", path, &Value::Null);
        assert!(status == 403 && refused.contains("DESCRIBE"), "{path}: {refused}");
    }
    node.tool("security acl add User:ann --cluster --allow describe", "");
    until("the ACL counts", || ask("ann", "GET", "/api/v1/lab", &Value::Null).0 == 200);
    let (status, listed) = ask("ann", "GET", "/api/v1/clients?filter=user:ann", &Value::Null);
    assert!(status == 200 && listed.contains("\"principal\":\"User:ann\""), "{listed}");
    let quick = |password: &str| json!({ "workload": "quick", "target": "cluster", "scale": 0.02, "repetitions": 1, "password": password });
    let (status, refused) = ask("ann", "POST", "/api/v1/lab/run", &quick("correct horse"));
    assert!(status == 403 && refused.contains("ALTER"), "{refused}");
    let (status, refused) = ask("root", "POST", "/api/v1/lab/run", &quick("wrong"));
    assert!(status == 403 && refused.contains("does not take this password"), "{refused}");
    let (status, started) = ask("root", "POST", "/api/v1/lab/run", &quick("correct horse"));
    assert_eq!(status, 202, "{started}");
    let run = || {
        let (_, body) = ask("root", "GET", "/api/v1/lab", &Value::Null);
        serde_json::from_str::<Value>(&body).expect("JSON")["run"].clone()
    };
    until("it has ended", || run()["ended_ms"].is_number());
    let ended = run();
    assert_eq!((&ended["state"], &ended["by"]), (&json!("complete"), &json!("root")), "{ended}");
    let name = ended["name"].as_str().expect("a name").to_owned();
    let result = std::fs::read_to_string(dir.path().join("lab").join(&name).join("result.json"));
    assert!(!result.expect("a result").contains("correct horse"), "no password is kept");
    assert!(!node.output().contains("correct horse"));
    let (status, report) = ask("ann", "GET", &format!("/lab/results/{name}"), &Value::Null);
    assert!(status == 200 && report.contains("Thalweg lab: quick"), "{report}");
    let path = format!("/api/v1/lab/compare?a={name}&b={name}");
    let (status, compared) = ask("ann", "GET", &path, &Value::Null);
    assert!(status == 200 && compared.contains("\"ratio\""), "{compared}");
    assert_eq!(ask("ann", "DELETE", &format!("/api/v1/lab/results/{name}"), &Value::Null).0, 403);
    assert_eq!(ask("root", "DELETE", &format!("/api/v1/lab/results/{name}"), &Value::Null).0, 200);
    assert_eq!(ask("ann", "GET", &format!("/lab/results/{name}"), &Value::Null).0, 404);
    for outside in ["..", "%2e%2e", "%2Fetc", "..%2Fdata"] {
        assert_eq!(
            ask("root", "DELETE", &format!("/api/v1/lab/results/{outside}"), &Value::Null).0,
            404,
            "{outside}"
        );
    }
}

#[test]
fn a_read_only_console_of_another_cluster_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.read.only=true"]);
    let answer = node::ask(&node.http, "POST", "/api/v1/topics", JSON, r#"{"name": "x"}"#);
    assert!(answer.status == 403 && answer.body.contains("read-only"), "{}", answer.body);

    let mut command = thalweg(&format!("console --bootstrap-server {} --listen 127.0.0.1:0", node.address));
    let (mut other, mut lines) = start(&mut command);
    let line = lines.find(|line| line.contains("console is at")).expect("it listens");
    let (_, address) = line.split_once("http://").expect("an address");
    assert_eq!(node::ask(address, "POST", "/api/v1/topics", JSON, r#"{"name": "made-there"}"#).status, 200);
    assert!(node.get("/topics").body.contains("made-there"));
    other.interrupt();
    assert_eq!(other.exit_code(), Some(0));
}

#[test]
fn a_taken_port_stops_no_broker_without_a_configured_listener() {
    // Another process may have it already; what counts is that both brokers serve.
    let _taken = std::net::TcpListener::bind("127.0.0.1:9090");
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = thalweg("serve --listen 127.0.0.1:0 --data-dir");
    let (mut broker, mut lines) = start(command.arg(dir.path().join("data")));
    let mut said = Vec::new();
    let served = lines.find(|line| {
        said.push(line.clone());
        line.contains("listens on PLAINTEXT")
    });
    assert!(served.is_some(), "{said:?}");
    assert!(said.iter().any(|line| line.contains("No console: ")), "{said:?}");
    broker.interrupt();
    assert_eq!(broker.exit_code(), Some(0));
}

#[test]
fn a_cluster_that_is_away_is_named() {
    let (code, _, error) = run(&mut thalweg("console --bootstrap-server nowhere --listen 127.0.0.1:0"));
    assert!(code == Some(1) || code == Some(2), "{code:?}");
    assert!(error.contains("nowhere"), "{error}");
}
