//! A node with an HTTP server, and its answers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use super::binary::{run_with_input, thalweg};

/// Properties of a node.
pub const AUTHORIZER: &str = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer";
pub const FREE_PORT: &str = "listeners=PLAINTEXT://127.0.0.1:0";
/// Headers of a request.
pub const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
pub const JSON: &str = "Content-Type: application/json\r\n";

/// A node, killed when it is dropped.
pub struct Node {
    child: Child,
    /// The address of its first listener.
    pub address: String,
    /// The line with all listeners.
    listens: String,
    /// The address of its HTTP server.
    pub http: String,
    said: Arc<Mutex<String>>,
}

/// An answer over HTTP.
pub struct Answer {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

/// Sends a request to a server. `headers` are whole lines.
pub fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}");
    raw(address, &format!("{head}Content-Length: {length}\r\n\r\n{body}"))
}

/// Sends these bytes, a request that closes the connection.
pub fn raw(address: &str, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("it listens");
    // A refused body need not be read.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{read:?}: {answer}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let head = head.to_lowercase();
    let body = if head.contains("transfer-encoding: chunked") { dechunked(body) } else { body.to_owned() };
    Answer { status, head, body }
}

/// A body without the lengths of its chunks. An answer that was cut off has no last one.
fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("the length of a chunk");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return whole;
        }
        whole.push_str(&rest[..length]);
        body = &rest[length + 2..];
    }
}

impl Node {
    /// Starts one with its data in `dir`, on a free port if no listeners are given.
    pub fn start(dir: &Path, properties: &[&str]) -> Node {
        Node::start_with(dir, &[], properties)
    }

    /// The same, with other options too.
    pub fn start_with(dir: &Path, options: &[&str], properties: &[&str]) -> Node {
        let mut command = thalweg("serve --set http.listener=127.0.0.1:0 --data-dir");
        command.arg(dir).args(options);
        if !options.contains(&"--listen") && !properties.iter().any(|set| set.starts_with("listeners=")) {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        for property in properties {
            command.args(["--set", property]);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let stderr = child.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(stderr).lines().map(|line| line.expect("text"));
        let said = Arc::new(Mutex::new(String::new()));
        let keeps = Arc::clone(&said);
        let keep = move |line: &str| {
            let mut said = keeps.lock().expect("nobody panics with the lock");
            said.push_str(line);
            said.push('\n');
        };
        let mut after = |words: &str| {
            let found = lines.by_ref().inspect(|line| keep(line)).find_map(|line| {
                let (_, rest) = line.split_once(words)?;
                Some(rest.to_owned())
            });
            found
                .unwrap_or_else(|| panic!("it does not say {words}: {}", said.lock().expect("nobody panics")))
        };
        let listens = after("listens on ");
        let url = after("Metrics are at ");
        let (_, http) = url.split_once("://").expect("a scheme before it");
        let http = http.trim_end_matches("/metrics").to_owned();
        // Read later output, so that it never blocks.
        std::thread::spawn(move || lines.for_each(|line| keep(&line)));
        let mut node = Node { child, address: String::new(), listens, http, said };
        let (first, _) = node.listens.split_once("://").expect("a name before it");
        node.address = node.listener(first);
        node
    }

    /// The address of a listener.
    pub fn listener(&self, name: &str) -> String {
        let (_, rest) = self.listens.split_once(&format!("{name}://")).expect("it has the listener");
        rest.split([',', ' ', ';']).next().expect("an address").to_owned()
    }

    /// All output so far.
    pub fn output(&self) -> String {
        self.said.lock().expect("nobody panics with the lock").clone()
    }

    /// Runs a command against the node, which must succeed, and returns its output.
    pub fn tool(&self, line: &str, input: &str) -> String {
        let mut command = thalweg(&format!("{line} --bootstrap-server {}", self.address));
        let (code, output, error) = run_with_input(&mut command, input.as_bytes());
        assert_eq!(code, Some(0), "{line}: {error}");
        output
    }

    pub fn get(&self, path: &str) -> Answer {
        ask(&self.http, "GET", path, "", "")
    }

    /// Every sample by name and labels, as text.
    pub fn metrics(&self) -> BTreeMap<String, String> {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200);
        let samples = answer.body.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The id of its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops it, and returns its exit code.
    pub fn exit_code(&mut self, signal: Signal) -> Option<i32> {
        kill_process(self.pid(), signal).expect("it runs");
        self.child.wait().expect("it ends").code()
    }

    pub fn end(&mut self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
        let ended = self.child.wait().expect("it ends");
        assert_eq!(ended.success(), signal == Signal::TERM, "{ended}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
