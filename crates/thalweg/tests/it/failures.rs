//! Failures are reported at once, in one line on standard error, with the right exit code: 1 for a failure, 2
//! for invalid arguments, 5 if no broker answers, 7 if there is no such topic or group.
use thalweg_ports::free_port;

use crate::binary::{Broker, run, run_with_input, thalweg, until};
use crate::node::Node;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

/// Every command that connects, to `address`.
fn commands(address: &str) -> [Command; 7] {
    let to = |line: &str| {
        let mut command = thalweg(line);
        command.env("THALWEG_BOOTSTRAP_SERVER", address);
        command
    };
    [
        to("topic list"),
        to("group list"),
        to("produce t"),
        to("consume t --max-messages 1"),
        to("producer-perf-test --topic t --num-records 1 --record-size 1 --throughput -1"),
        to("consumer-perf-test --topic t --num-records 1 --hide-header"),
        to("e2e-latency --topic t --num-records 1 --record-size 1 --producer-acks 1"),
    ]
}

/// Every other command with a broker argument.
fn others(brokers: &str) -> [Command; 7] {
    let on = |line: &str, option: &str| {
        let mut command = thalweg(line);
        command.args([option, brokers]);
        command
    };
    [
        on("cluster status", "--bootstrap-server"),
        on("topic create t", "-b"),
        on("lab run quick", "--bootstrap"),
        on("lab doctor", "--bootstrap"),
        on("lab tune", "--bootstrap"),
        on("stream run null --transport kafka", "-b"),
        on("stream check time|null", "-b"),
    ]
}

/// A server that answers every connection with these bytes, and closes it.
fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

#[test]
fn brokers_are_host_and_port_for_every_command() {
    for wrong in ["foo", "host:port:x", "host:99999", "http://host:9092", "localhost:1,foo", ","] {
        for mut command in commands(wrong).into_iter().chain(others(wrong)) {
            let (code, out, error) = run(&mut command);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{command:?}: {error}");
            assert!(error.contains("HOST:PORT"), "{command:?}: {error}");
        }
    }
    let (code, _, error) = run(thalweg("topic list -b").arg(""));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.starts_with("thalweg: no bootstrap server is given: expected HOST:PORT"), "{error}");
}

#[test]
fn a_closed_port_is_named() {
    let free = format!("127.0.0.1:{}", free_port());
    for mut command in commands(&free) {
        let (code, out, error) = run(&mut command);
        assert_eq!((code, out.as_str()), (Some(5), ""), "{command:?}: {error}");
        assert!(error.starts_with(&format!("thalweg: Cannot connect to {free}: ")), "{command:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{command:?}: {error}");
    }
}

#[test]
fn servers_of_other_protocols_are_recognised() {
    let closing = "it closed the connection (a TLS listener does so)";
    for (answer, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "it speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "it speaks TLS (expected security.protocol=SSL or SASL_SSL)"),
        (b"", closing),
    ] {
        let address = answering(answer);
        for mut command in commands(&address) {
            let (code, out, error) = run(&mut command);
            assert_eq!((code, out.as_str()), (Some(5), ""), "{command:?}: {error}");
            let expected = format!("thalweg: {address} did not answer like a Kafka broker: {expected}\n");
            assert_eq!(error, expected, "{command:?}");
        }
    }
}

#[test]
fn a_silent_server_delays_no_longer_than_the_setup_may_take() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let mut command = thalweg("topic list --set socket.connection.setup.timeout.ms=200 --bootstrap-server");
    let (code, _, error) = run(command.arg(&address));
    assert_eq!(code, Some(5), "{error}");
    assert!(error.contains("did not answer like a Kafka broker: no answer within 200 ms"), "{error}");
}

#[test]
fn a_topic_or_group_that_does_not_exist_is_named() {
    let broker = Broker::start();
    let no_topic = "UNKNOWN_TOPIC_OR_PARTITION (there is no such topic or partition)\n";
    for (line, expected) in [
        ("topic describe nope", format!("Topic nope: {no_topic}")),
        ("consume nope --max-messages 1", format!("Topic nope: {no_topic}")),
        ("consume nope --group g --max-messages 1", format!("Topic nope: {no_topic}")),
        ("produce nope --set max.block.ms=300", format!("Topic nope: {no_topic}")),
        (
            "producer-perf-test --topic nope --num-records 1 --record-size 1 --throughput -1 --command-property \
             max.block.ms=300",
            format!("Topic nope: {no_topic}"),
        ),
        ("group describe nope", "Group nope: GROUP_ID_NOT_FOUND (Group nope not found.)\n".to_owned()),
        (
            "group delete nope",
            "Deletion of group nope: GROUP_ID_NOT_FOUND (there is no such group)\n".to_owned(),
        ),
    ] {
        let mut command = thalweg(line);
        let (code, _, error) = run(command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address));
        assert_eq!((code, error), (Some(7), format!("thalweg: {expected}")), "{line}");
    }
    let mut created = thalweg("topic create t");
    let (code, out, error) = run(created.env("THALWEG_BOOTSTRAP_SERVER", &broker.address));
    assert_eq!((code, out.as_str(), error.as_str()), (Some(0), "Created topic t.\n", ""));
    let mut missing = thalweg("consume t --partition 7");
    let (code, _, error) = run(missing.env("THALWEG_BOOTSTRAP_SERVER", &broker.address));
    assert_eq!((code, error.as_str()), (Some(7), "thalweg: Topic t has no partition 7: expected 0 to 0\n"));
}

#[test]
fn only_kafkas_lines_are_written_without_a_terminal() {
    let broker = Broker::start();
    let to = |line: &str| {
        let mut command = thalweg(line);
        command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address);
        command
    };
    run(&mut to("topic create t"));
    let test = "producer-perf-test --topic t --num-records 600 --record-size 1 --throughput 1000";
    let (code, out, error) = run(&mut to(test));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(out.starts_with("600 records sent, ") && out.lines().count() == 1, "{out}");
}

#[test]
fn a_controllers_port_is_named_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let controller = format!("127.0.0.1:{}", free_port());
    let listeners = format!("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}");
    let node = Node::start(dir.path(), &["node.id=1", &listeners]);
    for mut command in commands(&controller) {
        let (code, out, error) = run(&mut command);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{command:?}: {error}");
        let expected = format!(
            "thalweg: {controller} is the port of a controller, which serves brokers, not clients: expected a broker's \
             port (in its advertised.listeners, often 9092)\n"
        );
        assert_eq!(error, expected, "{command:?}");
    }
    // The other way round: a broker that uses another broker as its controller.
    let dir = tempfile::tempdir().expect("a directory");
    let mut joining =
        thalweg("serve --listen 127.0.0.1:0 --set process.roles=broker --set node.id=2 --data-dir");
    joining.arg(dir.path()).args(["--set", "initial.broker.registration.timeout.ms=1000", "--set"]);
    let (code, _, error) = run(joining.arg(format!("controller.quorum.bootstrap.servers={}", node.address)));
    let expected =
        "it is a broker's listener; expected a controller's (one of its controller.listener.names)\n";
    assert!(code == Some(1) && error.ends_with(expected), "{code:?} {error}");
    // Another address in the list may be a broker's.
    let mut both = thalweg("topic list -b");
    let (code, _, error) = run(both.arg(format!("{controller},{}", node.address)));
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

#[test]
fn a_filter_of_logs_that_means_nothing_is_named() {
    let broker = Broker::start();
    let mut command = thalweg("topic list");
    let (code, _, error) =
        run(command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address).env("RUST_LOG", "nonsense"));
    assert_eq!(code, Some(0), "{error}");
    let expected =
        "thalweg: RUST_LOG: \"nonsense\" is neither a level nor a part of this program and has no effect: ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn the_first_line_of_a_node_has_its_version_and_the_last_a_controlled_shutdown() {
    let dir = tempfile::tempdir().expect("a directory");
    for damage in [false, true] {
        let mut node = Node::start(dir.path(), &["listeners=PLAINTEXT://127.0.0.1:0"]);
        let version = format!("Thalweg {} starts", env!("CARGO_PKG_VERSION"));
        assert!(
            node.output().lines().next().is_some_and(|line| line.contains(&version)),
            "{}",
            node.output()
        );
        let mut create = thalweg("topic create t");
        run(create.env("THALWEG_BOOTSTRAP_SERVER", &node.address));
        let mut produce = thalweg("produce t");
        let (code, _, error) = run_with_input(produce.env("THALWEG_BOOTSTRAP_SERVER", &node.address), b"x\n");
        assert_eq!(code, Some(0), "{error}");
        if damage {
            // The final writes have no directory.
            std::fs::remove_dir_all(dir.path().join("t-0")).expect("it is there");
        }
        let code = node.exit_code(Signal::TERM);
        let end = if damage { "thalweg: stopped, but not cleanly" } else { "Stopped cleanly" };
        until("its last line", || node.output().lines().last().is_some_and(|line| line.contains(end)));
        let said = node.output();
        let last = said.lines().last().expect("a line");
        assert_eq!(code, Some(i32::from(damage)), "{said}");
        assert_eq!(last.ends_with("Stopped cleanly"), !damage, "{said}");
        assert_eq!(last.starts_with("thalweg: stopped, but not cleanly"), damage, "{said}");
    }
}

#[test]
fn the_wrong_question_ends_with_2() {
    for line in [
        "",
        "nonsense",
        "topic",
        "topic create",
        "topic list --nonsense",
        "topic list --bootstrap-server localhost",
        "topic list --set nonsense",
        "topic list --set request.timeout.ms=soon",
        "group describe",
        "consume t --offset nowhere --bootstrap-server localhost",
        "serve --listen nowhere",
        "serve --set num.partitions=many",
        "serve --set num.partitions",
    ] {
        let (code, out, error) = run(&mut thalweg(line));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}: {error}");
        assert!(!error.is_empty(), "{line}");
    }
    for line in ["--help", "--version", "help topic create", "topic create --help"] {
        let (code, out, error) = run(&mut thalweg(line));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
        assert!(!out.is_empty(), "{line}");
        assert!(!out.contains('\u{1b}'), "{line}: colours where there is no terminal");
    }
}
