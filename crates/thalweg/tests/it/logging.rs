//! Log lines: as JSON, with levels that change at run time, and about requests that take long.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;
use thalweg_client::{Connection, ConnectionOptions};
use thalweg_wire::ErrorCode;
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{
    ApiVersionsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, MetadataRequest,
};

use super::binary::{run, thalweg, until};
use super::node::Node;

/// The lines of standard error, each of which must be JSON of the documented form.
fn json(text: &str) -> Vec<Value> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let keys: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["fields", "level", "message", "target", "timestamp"], "{line}");
        value
    };
    text.lines().map(line).collect()
}

/// Asks for metadata under a name, and reads the answer.
fn ask_as(address: &str, client_id: &str) {
    let frame = encode_request(&MetadataRequest::default(), 12, 7, Some(client_id)).expect("a request");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&frame).expect("it reads");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
}

#[test]
fn lines_are_json_whatever_clients_send() {
    let dir = tempfile::tempdir().expect("a directory");
    // Every request is slow enough to be logged, with the client's name for itself.
    let mut node =
        Node::start_with(dir.path(), &["--log-format", "json"], &["thalweg.log.slow.request.ms=0"]);
    let hostile = "x\"},\n{\"level\":\"ERROR\"}\r\u{1b}[2J\u{2028}\u{7f}\\";
    let long = "ü".repeat(10_000);
    ask_as(&node.address, hostile);
    ask_as(&node.address, &long);
    for frame in [&b"\x7f\xff\xff\xff"[..], b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\x7f\0\0\0\0\0\0\x01"] {
        let mut stream = TcpStream::connect(&node.address).expect("it listens");
        stream.write_all(frame).expect("it reads");
        // It closes the connection without an answer.
        let _ = stream.read(&mut [0]);
    }
    until("a line about each", || node.output().matches("Closed a connection").count() >= 3);
    node.end(Signal::TERM);
    until("the last line", || node.output().contains("Stopped cleanly"));
    let lines = json(&node.output());
    let asked: Vec<_> = lines.iter().filter(|line| line["fields"]["api"] == "Metadata").collect();
    let [by_hostile, by_long] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(by_hostile["target"], "kafka.request.logger");
    assert_eq!(by_hostile["fields"]["client_id"], hostile);
    assert_eq!(by_hostile["fields"]["principal"], "User:ANONYMOUS");
    assert!(
        by_hostile["fields"]["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:"))
    );
    assert!(by_hostile["fields"]["ms"].is_u64() && by_hostile["fields"]["stage"].is_string(), "{by_hostile}");
    let client_id = by_long["fields"]["client_id"].as_str().expect("a text");
    assert!(client_id.len() < 3000 && client_id.ends_with("ü…"), "{}", client_id.len());
    assert!(lines.iter().all(|line| line["level"] != "ERROR"));
}

#[test]
fn a_closed_connection_is_logged_with_its_client() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut node = Node::start(dir.path(), &[]);
    let request = ApiVersionsRequest {
        client_software_name: "librdkafka".to_owned(),
        client_software_version: "2.11.0".to_owned(),
    };
    let frame = encode_request(&request, 3, 7, Some("billing-7")).expect("a request");
    let mut stream = TcpStream::connect(&node.address).expect("it listens");
    stream.write_all(&frame).expect("it reads");
    stream.read_exact(&mut [0; 4]).expect("an answer");
    stream.write_all(b"\x7f\xff\xff\xff").expect("it reads");
    until("a line about it", || node.output().contains("Closed a connection"));
    let said = node.output();
    let line = said.lines().find(|line| line.contains("Closed a connection")).expect("a line");
    assert!(line.contains("billing-7") && line.contains("librdkafka 2.11.0"), "{line}");
    node.end(Signal::TERM);
}

#[test]
fn text_lines_stay_lines_whatever_clients_send() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut node = Node::start(dir.path(), &["thalweg.log.slow.request.ms=0"]);
    ask_as(&node.address, "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\r");
    ask_as(&node.address, &"y".repeat(30_000));
    until("a line about each", || node.output().matches("api=Metadata").count() >= 2);
    node.end(Signal::TERM);
    let said = node.output();
    assert!(said.lines().all(|line| !line.starts_with("2026-01-01T00:00:00Z")), "{said}");
    assert!(said.contains("forged") && !said.contains('\u{1b}') && !said.contains('\r'), "{said}");
    assert!(said.lines().all(|line| line.len() < 9 * 1024), "a line is bounded");
}

#[test]
fn a_failed_start_is_json_too() {
    let dir = tempfile::tempdir().expect("a directory");
    for broken in [
        &["--log-format", "json", "--set", "num.partitions=many"][..],
        &["--set", "thalweg.log.format=json", "--set", "num.partitions=many"],
        &["--log-format", "json", "/no/such/file"],
    ] {
        let mut command = thalweg("serve --data-dir");
        let (code, _, error) = run(command.arg(dir.path()).args(broken));
        assert!(code.is_some_and(|code| code != 0), "{error}");
        let lines = json(&error);
        let last = lines.last().expect("it says why");
        assert_eq!(last["level"], "ERROR", "{error}");
    }
    let (code, _, error) =
        run(thalweg("serve --set thalweg.log.format=xml --data-dir").arg(dir.path().join("data")));
    assert!(code != Some(0) && error.contains("thalweg.log.format"), "{error}");
}

const BROKER_LOGGER: i8 = 8;

/// The level of each logger.
async fn levels(connection: &Connection) -> Vec<(String, String)> {
    let resource = DescribeConfigsResource {
        resource_type: BROKER_LOGGER,
        resource_name: "1".to_owned(),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let answer = connection.send(&request).await.expect("an answer").results.remove(0);
    assert_eq!((answer.error_code, answer.configs[0].config_source), (0, 6), "{:?}", answer.error_message);
    let configs = answer.configs.into_iter();
    configs.map(|config| (config.name, config.value.expect("a level"))).collect()
}

async fn level(connection: &Connection, logger: &str) -> Option<String> {
    levels(connection).await.into_iter().find(|(name, _)| name == logger).map(|(_, level)| level)
}

/// Changes levels: a logger, an operation (0 sets, 1 deletes), a value.
async fn alter(
    connection: &Connection,
    changes: &[(&str, i8, Option<&str>)],
    validate_only: bool,
) -> (i16, String) {
    let config = |(name, operation, value): &(&str, i8, Option<&str>)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: *operation,
        value: value.map(str::to_owned),
    };
    let configs = changes.iter().map(config).collect();
    let resource =
        AlterConfigsResource { resource_type: BROKER_LOGGER, resource_name: "1".to_owned(), configs };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only };
    let answer = connection.send(&request).await.expect("an answer").responses.remove(0);
    (answer.error_code, answer.error_message.unwrap_or_default())
}

#[tokio::test]
async fn levels_change_while_the_broker_runs() {
    const ENDED: &str = "Connection ended";
    let dir = tempfile::tempdir().expect("a directory");
    let mut node = Node::start(dir.path(), &[]);
    let connection =
        Connection::connect(&node.address, &ConnectionOptions::default()).await.expect("a broker");
    let info = Some("INFO".to_owned());
    assert_eq!(levels(&connection).await[0], ("root".to_owned(), "INFO".to_owned()));
    assert_eq!(level(&connection, "thalweg.net").await, info);
    assert_eq!(level(&connection, "thalweg_net").await, None);

    ask_as(&node.address, "before");
    assert_eq!(alter(&connection, &[("thalweg.net", 0, Some("DEBUG"))], true).await, (0, String::new()));
    assert_eq!(level(&connection, "thalweg.net").await, info, "it was only checked");
    assert_eq!(alter(&connection, &[("thalweg.net", 0, Some("DEBUG"))], false).await, (0, String::new()));
    assert_eq!(level(&connection, "thalweg.net").await.as_deref(), Some("DEBUG"));
    ask_as(&node.address, "after");
    until("a line of level debug", || node.output().contains(ENDED));
    let said = node.output();
    let (before, _) = said.split_once("Changed a log level").expect("a line of the change");
    assert!(!before.contains(ENDED), "{said}");

    // All or nothing.
    let invalid = ErrorCode::InvalidConfig.code();
    for (changes, code, words) in [
        (
            vec![("thalweg.log", 0, Some("DEBUG")), ("kafka.server.KafkaApis", 0, Some("DEBUG"))],
            invalid,
            "does not exist!",
        ),
        (
            vec![("thalweg.log", 0, Some("loud"))],
            invalid,
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        (
            vec![("root", 1, None)],
            ErrorCode::InvalidRequest.code(),
            "Removing the log level of the root logger is not allowed",
        ),
        (
            vec![("root", 2, Some("INFO"))],
            ErrorCode::InvalidRequest.code(),
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
    ] {
        let (found, message) = alter(&connection, &changes, false).await;
        assert!(found == code && message.contains(words), "{found} {message}");
    }
    assert_eq!(level(&connection, "thalweg.log").await, info);

    // A deleted level is that of the root.
    let changes = [("thalweg.net", 1, None), ("root", 0, Some("ERROR"))];
    assert_eq!(alter(&connection, &changes, false).await, (0, String::new()));
    assert_eq!(level(&connection, "thalweg.net").await.as_deref(), Some("ERROR"));
    let mut stream = TcpStream::connect(&node.address).expect("it listens");
    stream.write_all(b"\x7f\xff\xff\xff").expect("it reads");
    let _ = stream.read(&mut [0]);
    connection.close();
    node.end(Signal::TERM);
    let said = node.output();
    assert!(said.contains("Changed a log level"), "{said}");
    assert!(!said.contains("Closed a connection") && !said.contains("Stopping"), "{said}");
}
