//! Messages in the console and on the command line: what rules hide, and what a schema registry decodes.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use thalweg_client::{
    Cluster, ConnectionOptions, Producer, ProducerConfig, ProducerRecord, Properties, Waits,
};
use thalweg_record::Header;
use tokio::time::Instant;

use super::binary::{run, thalweg};
use super::node::{self, FREE_PORT, Node};

/// What no answer may have.
const SECRETS: [&str; 4] = ["4711", "ann@example.org", "s3cret", "3437313"];

/// Key, value, and headers of a message.
type SentMessage<'a> = (Option<&'a [u8]>, &'a [u8], &'a [Header<'a>]);

fn send(node: &Node, topic: &str, messages: &[SentMessage<'_>]) {
    let (code, _, error) =
        run(&mut thalweg(&format!("topic create {topic} --bootstrap-server {}", node.address)));
    assert_eq!(code, Some(0), "{error}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectionOptions { waits: Some(Waits::default()), ..ConnectionOptions::default() };
        let cluster = Cluster::connect(std::slice::from_ref(&node.address), &options).await.expect("it runs");
        let config = ProducerConfig::take(&mut Properties::new()).expect("settings");
        let mut producer = Producer::new(cluster, config, |_| {});
        let topic = producer.topic(topic).await.expect("it is there");
        for (number, (key, value, headers)) in (0..).zip(messages) {
            let record = ProducerRecord {
                topic,
                partition: Some(0),
                timestamp: 1_700_000_000_000,
                key: *key,
                value: Some(value),
                headers,
                sent_at: Instant::now(),
                number,
            };
            producer.send(&record).await.expect("there is room");
        }
        producer.close().await;
    });
}

fn search(node: &Node, topic: &str, query: &str) -> (Vec<Value>, String) {
    let path = format!("/api/v1/topics/{topic}/messages?{query}");
    let answer = node.get(&path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    let found: Value = serde_json::from_str(&answer.body).expect("JSON");
    (found["messages"].as_array().expect("a list").clone(), answer.body)
}

#[test]
fn hidden_parts_of_messages_are_in_no_answer_and_no_search_finds_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let rules = dir.path().join("masking");
    std::fs::write(&rules, "# more\npay.*: header:Token\nkeyed: key = -\n").expect("written");
    let masking = "thalweg.console.masking=payments: card, /customer/email; other: x";
    let file = format!("thalweg.console.masking.file={}", rules.display());
    let node = Node::start(&dir.path().join("data"), &[FREE_PORT, masking, &file]);
    let plain = br#"{"card": "4711", "customer": {"email": "ann@example.org"}, "amount": 5}"#;
    let token = [Header::new("TOKEN", Some(b"s3cret")), Header::new("trace", Some(br#"{"card":4711}"#))];
    let (key, odd) = (br#"{"card":"4711"}"#, [Header::new("x", Some(b"\x01card 4711"))]);
    send(
        &node,
        "payments",
        &[
            (Some(b"order-1"), plain, &token),
            (Some(key), br#"{"body": "{\"card\": \"4711\"}", "amount": 6}"#, &odd),
            (Some(b"\x00\x00\x00\x00\x074711"), b"card=4711", &[]),
            (None, br#"["text", {"c\u0061rd": 4711}]"#, &[]),
        ],
    );
    send(&node, "keyed", &[(Some(b"4711"), b"shown", &[])]);
    send(&node, "elsewhere", &[(Some(b"k"), plain, &[])]);

    let (messages, body) = search(&node, "payments", "from=earliest");
    assert_eq!(messages.len(), 4, "{body}");
    assert_eq!(messages[0]["value"], r#"{"card": "***", "customer": {"email": "***"}, "amount": 5}"#);
    assert_eq!(messages[0]["key"], "order-1");
    assert_eq!(messages[0]["headers"][0], json!({"key": "TOKEN", "value": "***"}));
    assert_eq!(messages[0]["headers"][1]["value"], r#"{"card":"***"}"#);
    assert_eq!((&messages[1]["key"], &messages[2]["value"]), (&json!(r#"{"card":"***"}"#), &json!("***")));
    assert_eq!(messages[0]["masked"], true);
    for shape in ["auto", "json", "text", "hex"] {
        let page = node.get(&format!("/topics/payments/messages?from=earliest&shape={shape}"));
        assert!(page.body.contains("id=\"m-0-3\""), "{}", page.body);
        // In hex, too.
        let hex: String = page.body.chars().filter(char::is_ascii_hexdigit).collect();
        for secret in SECRETS {
            let in_hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(
                !page.body.contains(secret) && !hex.contains(&in_hex),
                "{shape}: {secret}: {}",
                page.body
            );
        }
    }
    assert!(SECRETS.iter().all(|secret| !body.contains(secret)), "{body}");
    for (query, count) in [
        ("text=4711", 0),
        ("text=%22card%22%3A+%224", 0),
        ("key=%7B%22card%22%3A%224711%22%7D", 0),
        ("key=order-1", 1),
        ("expression=payload.card+%3D%3D+%224711%22", 0),
        ("expression=payload.amount+%3E+4", 2),
        ("expression=text.contains(%224711%22)", 0),
        ("expression=key.contains(%224711%22)", 0),
        ("expression=headers.exists(h,+headers%5Bh%5D.contains(%22s3cret%22))", 0),
    ] {
        let (found, body) = search(&node, "payments", &format!("from=earliest&{query}"));
        assert_eq!(found.len(), count, "{query}: {body}");
        assert!(SECRETS.iter().all(|secret| !body.contains(secret)), "{query}: {body}");
    }
    let (found, _) = search(&node, "keyed", "from=earliest");
    assert_eq!((&found[0]["key"], &found[0]["value"]), (&json!("-"), &json!("shown")));
    let (found, _) = search(&node, "elsewhere", "from=earliest&text=4711");
    assert_eq!(found.len(), 1, "no rule is about this topic");
}

#[test]
fn rules_of_a_console_that_cannot_be_read_are_refused_at_the_start() {
    let start = |options: &[&str]| {
        let mut command = thalweg("console --bootstrap-server localhost:1 --listen 127.0.0.1:0");
        run(command.args(options))
    };
    for (options, expected) in [
        (["--mask", "payments card"], "--mask: masking rule 1, \"payments card\": there is no colon"),
        (["--mask-file", "/nowhere"], "--mask-file: cannot read /nowhere"),
        (["--schema-registry", "registry"], "--schema-registry: schema registry"),
    ] {
        let (code, _, error) = start(&options);
        assert!(code == Some(2) && error.contains(expected), "{code:?} {error}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = thalweg("serve --listen 127.0.0.1:0 --set http.listener=127.0.0.1:0 --set");
    let (code, _, error) =
        run(command.arg("thalweg.console.masking=(: card").arg("--data-dir").arg(dir.path()));
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    let expected = "thalweg.console.masking: masking rule 1, \"(: card\": \"(\" is no regular expression";
    assert!(error.contains(expected), "{error}");
}

const AVRO: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"card","type":"string"}]}"#;
const MONEY: &str = "syntax = \"proto3\"; package money; message Amount { int64 cents = 1; }";
const PROTO: &str = "syntax = \"proto3\"; import \"money.proto\"; message Other {} \
    message Order { message Line { string card = 1; money.Amount total = 2; } int64 id = 1; }";

/// A registry with the paths that clients read. Answers until the test ends, and refuses requests without the
/// login.
fn registry(login: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let expected = super::http_client::login("reader", login).trim().to_lowercase();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(reading) = stream.try_clone() else { return };
            let mut lines = BufReader::new(reading).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let has_login = head.iter().any(|line| line.to_lowercase() == expected);
            let reference = json!([{"name": "money.proto", "subject": "money", "version": 3}]);
            let (status, body) = match first.split(' ').nth(1).unwrap_or_default() {
                _ if !has_login => ("401 Unauthorized", json!({"error_code": 401, "message": "no login"})),
                "/schemas/ids/7" => ("200 OK", json!({"schema": AVRO})),
                "/schemas/ids/8" => {
                    ("200 OK", json!({"schemaType": "PROTOBUF", "schema": PROTO, "references": reference}))
                }
                "/subjects/money/versions/3" => {
                    ("200 OK", json!({"schemaType": "PROTOBUF", "schema": MONEY, "id": 3}))
                }
                _ => ("404 Not Found", json!({"error_code": 40403, "message": "Schema not found"})),
            };
            let body = body.to_string();
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn values_of_a_schema_registry_are_decoded_searched_and_masked() {
    let url = registry("pw-of-registry");
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        FREE_PORT.to_owned(),
        "thalweg.console.masking=orders: card".to_owned(),
        format!("thalweg.console.schema.registry.url={url}"),
        "thalweg.console.schema.registry.basic.auth.user.info=reader:pw-of-registry".to_owned(),
    ];
    let node = Node::start(dir.path(), &settings.each_ref().map(String::as_str));
    let avro = [&[0, 0, 0, 0, 7, 14, 8][..], b"4711"].concat();
    // Order.Line with its card, and a total of 300 cents.
    let protobuf = [&[0, 0, 0, 0, 8, 4, 2, 0, 10, 4][..], b"4711", &[18, 3, 8, 172, 2]].concat();
    let unknown = [&[0, 0, 0, 0, 9][..], b"4711"].concat();
    let messages: [SentMessage<'_>; 4] =
        [(Some(&avro), &avro, &[]), (None, &protobuf, &[]), (None, &unknown, &[]), (None, b"[1]", &[])];
    send(&node, "orders", &messages);
    send(&node, "unmasked", &messages);

    let (found, body) = search(&node, "orders", "from=earliest");
    assert_eq!(found[0]["value"], r#"{"id":7,"card":"***"}"#, "{body}");
    assert_eq!(found[0]["key"], r#"{"id":7,"card":"***"}"#, "{body}");
    assert_eq!(found[0]["value_schema"], json!({"id": 7, "type": "AVRO", "problem": null}), "{body}");
    assert_eq!(found[1]["value"], r#"{"card":"***","total":{"cents":300}}"#, "{body}");
    assert_eq!(found[2]["value"], "***", "what is not decoded is hidden: {body}");
    let problem = found[2]["value_schema"]["problem"].as_str().expect("a problem");
    assert!(problem.contains("Schema not found") && !body.contains("4711"), "{body}");
    let (found, _) = search(&node, "orders", "from=earliest&expression=payload.total.cents+%3D%3D+300");
    assert_eq!(found.len(), 1);
    let (found, _) = search(&node, "unmasked", "from=earliest&expression=payload.card+%3D%3D+%224711%22");
    assert_eq!(found.len(), 2);
    let page = node.get("/topics/unmasked/messages?from=earliest");
    assert!(
        page.body.contains("schema 8 (PROTOBUF)") && page.body.contains("&quot;cents&quot;: 300"),
        "{}",
        page.body
    );
    let configuration = node.get("/api/v1/brokers/1/configuration").body;
    assert!(configuration.contains("schema.registry.url") && !configuration.contains("pw-of-registry"));

    let consume = |options: &str| {
        run(&mut thalweg(&format!(
            "consume unmasked --from-beginning --until-end --bootstrap-server {} {options}",
            node.address
        )))
    };
    let with_login = format!("--schema-registry {url} --set basic.auth.user.info=reader:pw-of-registry");
    let (code, out, error) = consume(&format!("{with_login} -n 2"));
    let expected = "{\"id\":7,\"card\":\"4711\"}\n{\"card\":\"4711\",\"total\":{\"cents\":300}}\n";
    assert_eq!((code, out.as_str(), error.as_str()), (Some(0), expected, ""));
    let (code, out, error) = consume(&format!("{with_login} --filter payload.total.cents==300"));
    assert_eq!((code, out.as_str()), (Some(0), "{\"card\":\"4711\",\"total\":{\"cents\":300}}\n"));
    assert!(error.contains("not decoded: schema 9") && error.contains("Schema not found"), "{error}");
    let (_, _, error) = consume(&format!("--schema-registry {url} -n 1"));
    assert!(error.contains("401"), "{error}");
    assert!(!node.output().contains("pw-of-registry"));
    let taken = node::ask(&node.http, "GET", "/brokers/1", "", "");
    assert!(!taken.body.contains("pw-of-registry"));
}

#[test]
fn searches_of_large_batches_hold_a_bounded_part_of_the_nodes_memory() {
    const VALUE_BYTES: usize = 24 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let limits = ["message.max.bytes=50000000", "socket.request.max.bytes=60000000"];
    let node = Node::start(dir.path(), &[&[FREE_PORT][..], &limits].concat());
    let (code, _, error) =
        run(&mut thalweg(&format!("topic create huge --partitions 4 --bootstrap-server {}", node.address)));
    assert_eq!(code, Some(0), "{error}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = ConnectionOptions { waits: Some(Waits::default()), ..ConnectionOptions::default() };
        let cluster = Cluster::connect(std::slice::from_ref(&node.address), &options).await.expect("it runs");
        let mut properties = Properties::new();
        properties.set("max.request.size", "50000000");
        properties.set("buffer.memory", "100000000");
        let config = ProducerConfig::take(&mut properties).expect("settings");
        let mut producer = Producer::new(cluster, config, |_| {});
        let topic = producer.topic("huge").await.expect("it is there");
        let value = vec![b'x'; VALUE_BYTES];
        for number in 0..8 {
            let record = ProducerRecord {
                topic,
                partition: Some(i32::try_from(number % 4).expect("small")),
                timestamp: 1_700_000_000_000,
                key: None,
                value: Some(&value),
                headers: &[],
                sent_at: Instant::now(),
                number,
            };
            producer.send(&record).await.expect("there is room");
            producer.flush().await;
        }
        producer.close().await;
    });
    let proc = format!("/proc/{}", node.pid().as_raw_nonzero());
    let status_mib = |name: &str| -> usize {
        let text = std::fs::read_to_string(format!("{proc}/status")).expect("it runs");
        let line = text.lines().find(|line| line.starts_with(name)).expect("a line of the kernel");
        let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
        kib.expect("a number") >> 10
    };
    let before = status_mib("VmRSS");
    std::fs::write(format!("{proc}/clear_refs"), "5").expect("a process of the same user");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let answer = node.get("/api/v1/topics/huge/messages?text=nothing");
                assert_eq!(answer.status, 200, "{}", answer.body);
            });
        }
    });
    let added = status_mib("VmHWM").saturating_sub(before);
    assert!(added < 160, "six searches took {added} MiB more than {before} MiB");
}
