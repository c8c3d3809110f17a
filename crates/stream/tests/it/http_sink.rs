//! Requests of the `http` sink, and the policies for messages that its server refuses. Dead letters that
//! cannot be written are waited for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_stream::OnError;
use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{Figures, RunOptions, start};

use super::{Lines, options};

/// Runs a text to its end.
fn run(text: &str, on_error: OnError) -> Result<Figures, String> {
    let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { on_error, ..options(Arc::new(Lines::default())) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut running = start(&plan, &options).unwrap_or_else(|error| panic!("{error}"));
        running.ended().await.map_err(|error| error.to_string())?;
        Ok(running.figures())
    })
}

/// A server with a connection for each request, which is answered with the status in its body. Returns the
/// address, and the heads of the requests.
fn server() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (sender, heads) = std::sync::mpsc::sync_channel(64);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a connection");
            let mut request = String::new();
            let (head, body) = loop {
                let mut buffer = [0; 4096];
                let count = client.read(&mut buffer).expect("it sends");
                request.push_str(&String::from_utf8_lossy(&buffer[..count]));
                let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
                if body.len() >= 3 {
                    break (head.to_owned(), body.to_owned());
                }
            };
            write!(client, "HTTP/1.1 {body} x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .expect("it reads");
            if sender.send(head).is_err() {
                return;
            }
        }
    });
    (address, heads)
}

fn input(dir: &Path, lines: &str) -> String {
    let path = dir.join("in");
    std::fs::write(&path, lines).expect("it can be written");
    path.display().to_string()
}

#[test]
fn refused_messages_are_bad_messages_and_other_failures_fail() {
    let dir = tempfile::tempdir().expect("a directory");
    let (address, heads) = server();
    let input = input(dir.path(), "200\n400\n204\n422\n413\n200\n");
    let letters = dir.path().join("letters");
    for concurrency in [1, 4] {
        let text = format!("file --path={input} | http --url=http://{address}/ --concurrency={concurrency}");
        let error = run(&text, OnError::Fail).expect_err("a message is refused");
        assert!(error.contains("it answers 4") && error.contains("use --on-error=skip"), "{error}");
        let _ = heads.try_iter().count();
        let figures = run(&text, OnError::Skip).expect("they are skipped");
        assert_eq!((figures.streams[0].bad, heads.try_iter().count()), (3, 6));
        let _ = std::fs::remove_file(&letters);
        run(&text, OnError::DeadLetter(letters.clone())).expect("they are kept");
        let kept = std::fs::read_to_string(&letters).expect("it is there");
        let kept: Vec<serde_json::Value> =
            kept.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let told: Vec<_> =
            kept.iter().map(|letter| (letter["value"].as_str(), letter["stage"].as_str())).collect();
        assert_eq!(told, ["400", "422", "413"].map(|value| (Some(value), Some("http"))));
        let _ = heads.try_iter().count();
    }
    // A wrong address or login is no fault of the messages.
    let input = self::input(dir.path(), "404\n");
    let error = run(&format!("file --path={input} | http --url=http://{address}/"), OnError::Skip);
    assert!(error.expect_err("it fails").contains("it answers 404"));
}

#[test]
fn a_login_in_the_url_is_used_and_never_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let (address, heads) = server();
    for (status, is_right) in [("200", true), ("401", false)] {
        let input = input(dir.path(), status);
        let text = format!("file --path={input} | http --url=http://ann:p%40ss@{address}/a");
        let outcome = run(&text, OnError::Fail);
        assert_eq!(outcome.is_ok(), is_right);
        let head = heads.recv_timeout(Duration::from_secs(10)).expect("a request");
        assert!(head.starts_with("POST /a HTTP/1.1"), "{head}");
        assert!(head.contains("authorization: Basic YW5uOnBAc3M="), "{head}");
        let shown = outcome.err().unwrap_or_default();
        assert!(!shown.contains("p%40ss") && !shown.contains("p@ss"), "{shown}");
    }
}

#[test]
fn secrets_come_from_files_and_are_never_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let (address, heads) = server();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n").expect("it can be written");
    for (status, is_right) in [("200", true), ("401", false)] {
        let input = input(dir.path(), status);
        let secrets = format!("--bearer=file:{0} --apiKey=file:{0} --apiKeyHeader=X-Token", token.display());
        let text = format!("file --path={input} | http --url=http://{address}/a {secrets}");
        let outcome = run(&text, OnError::Fail);
        assert_eq!(outcome.is_ok(), is_right, "{outcome:?}");
        let head = heads.recv_timeout(Duration::from_secs(10)).expect("a request");
        assert!(
            head.contains("authorization: Bearer s3cret\r\n") && head.contains("x-token: s3cret"),
            "{head}"
        );
        assert!(!outcome.err().unwrap_or_default().contains("s3cret"));
    }
    let wrong = |option: &str| {
        let text = format!("stdin | http --url=http://h/ {option}");
        Plan::read(&text, None, "s").expect_err(option).to_string()
    };
    assert!(wrong("--bearer=s3cret").contains("Name its place: file:PATH or env:NAME."));
    assert!(wrong("--bearer=env:A --url=http://a:b@h/").contains("--url is given twice"));
}

#[test]
fn key_headers_and_address_come_from_the_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let (address, heads) = server();
    let input = input(dir.path(), "200\n404\n");
    let text = format!(
        "file --path={input} | transform --key='text + \" k\"' --headers='{{\"trace\": text}}' \
         | http --url=http://{address}/base --headers='{{\"X-Key\": key, \"X-Trace\": headers.trace}}' \
           --address=\"'/orders/' + percentEncode(key) + '?a=b'\""
    );
    let figures = run(&text, OnError::Skip).expect("the address of a message is wrong, not the stage");
    assert_eq!(figures.streams[0].bad, 1);
    let head = heads.recv_timeout(Duration::from_secs(10)).expect("a request");
    assert!(head.starts_with("POST /orders/200%20k?a=b HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("x-key: 200 k") && head.contains("x-trace: 200") && head.contains(&address),
        "{head}"
    );
}

#[test]
fn a_message_whose_retries_are_over_can_be_a_bad_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let (address, heads) = server();
    let input = input(dir.path(), "500\n200\n");
    let text = format!("file --path={input} | http --url=http://{address}/ --retryFor=500ms");
    let error = run(&text, OnError::Skip).expect_err("it fails");
    assert!(error.contains("did not accept a message after"), "{error}");
    let _ = heads.try_iter().count();
    let figures = run(&format!("{text} --exhausted=bad"), OnError::Skip).expect("it goes on");
    assert_eq!(figures.streams[0].bad, 1);
    assert!(heads.try_iter().count() >= 3, "it was tried again");
}

#[test]
fn dead_letters_wait_for_room_on_the_medium() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, full) = (dir.path().join("out"), "/dev/full");
    let input = input(dir.path(), "no JSON\n");
    let text = format!("file --path={input} | filter --expression=payload.x | file --path={}", out.display());
    let plan = Plan::read(&text, None, "s").unwrap_or_else(|error| panic!("{error}"));
    let options =
        RunOptions { on_error: OnError::DeadLetter(full.into()), ..options(Arc::new(Lines::default())) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut running = start(&plan, &options).unwrap_or_else(|error| panic!("{error}"));
        let ended = tokio::time::timeout(Duration::from_secs(1), running.ended()).await;
        assert!(ended.is_err(), "{ended:?}");
    });
}
