//! The HTTP listener of a node with TLS, logins and ACLs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use thalweg_client::TlsFault;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::binary::{run, run_with_input, thalweg, until};
use super::http_client::{HttpClient, login};
use super::node::{AUTHORIZER, Answer, FREE_PORT, Node};

/// Its broker's listener asks nobody for a name, so that the tests can add users and ACLs.
const SUPER_USERS: &str = "super.users=User:root;User:ANONYMOUS";
const PASSWORD: &str = "correct horse";

/// A directory with an authority, and what it has signed.
struct Authority(TempDir);

impl Authority {
    fn new() -> Authority {
        let authority = Authority(tempfile::tempdir().expect("a directory"));
        authority.sign("node broker --host 127.0.0.1 --host localhost");
        authority
    }

    fn sign(&self, line: &str) {
        let mut command = thalweg(&format!("security certificate {line} --dir"));
        let (code, _, error) = run(command.arg(self.0.path()));
        assert_eq!(code, Some(0), "{error}");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text_of(&self, name: &str) -> String {
        self.file(name).to_str().expect("UTF-8").to_owned()
    }

    /// Starts a node whose HTTP listener has TLS, and these settings.
    fn node(&self, dir: &Path, settings: &[&str]) -> Node {
        let keystore = format!("listener.name.http.ssl.keystore.location={}", self.text_of("broker.pem"));
        let truststore = format!("ssl.truststore.location={}", self.text_of("ca.crt"));
        let tls = [FREE_PORT, "http.security.protocol=SSL", &keystore, &truststore];
        Node::start(dir, &[&tls[..], settings].concat())
    }

    async fn connect(&self, node: &Node) -> HttpClient {
        let ca = self.text_of("ca.crt");
        let connected = HttpClient::connect(&node.http, &[("ssl.truststore.location", &ca)]).await;
        connected.expect("a handshake")
    }
}

fn security(node: &Node, line: &str) {
    let (code, _, error) = run(thalweg(&format!("security {line} --bootstrap-server")).arg(&node.address));
    assert_eq!(code, Some(0), "{error}");
}

fn set_password(node: &Node, user: &str, password: &str) {
    let mut command = thalweg(&format!("security user add {user} --password-stdin --bootstrap-server"));
    let (code, _, error) = run_with_input(command.arg(&node.address), password.as_bytes());
    assert_eq!(code, Some(0), "{error}");
}

async fn status(client: &mut HttpClient, method: &str, path: &str, headers: &str) -> u16 {
    client.ask(method, path, headers).await.expect("an answer").status
}

#[tokio::test]
async fn users_log_in_and_may_do_what_the_acls_allow() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    let delay = "connection.failed.authentication.delay.ms=700";
    let node = authority.node(dir.path(), &["http.authentication=basic", AUTHORIZER, SUPER_USERS, delay]);
    set_password(&node, "ann", PASSWORD);
    let ann = login("ann", PASSWORD);
    let mut client = authority.connect(&node).await;

    let answer = client.ask("GET", "/metrics", "").await.expect("an answer");
    assert_eq!(answer.status, 401, "{}", answer.body);
    assert!(answer.head.contains("www-authenticate: basic realm=\"thalweg\""), "{}", answer.head);
    for header in ["content-security-policy", "x-frame-options: deny", "cache-control: no-store", "nosniff"] {
        assert!(answer.head.contains(header), "{header} is missing: {}", answer.head);
    }
    let strict = "strict-transport-security: max-age=2592000";
    assert!(answer.head.contains(strict), "{}", answer.head);
    let local = client.ask("GET", "/livez", "Host: localhost\r\n").await.expect("an answer");
    assert!(!local.head.contains("strict-transport"), "{}", local.head);
    for path in ["/", "/api/v1/streams", "/api/v1/topics", "/elsewhere"] {
        assert_eq!(status(&mut client, "GET", path, "").await, 401, "{path} is open");
    }
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(status(&mut client, "GET", path, "").await, 200, "{path} is not open");
    }
    let answer = client.ask("GET", "/metrics", &ann).await.expect("the same connection");
    assert_eq!(answer.status, 403, "{}", answer.body);
    for words in ["User:ann", "GET /metrics", "DESCRIBE", "Cluster:kafka-cluster"] {
        assert!(answer.body.contains(words), "{words} is missing: {}", answer.body);
    }

    security(&node, "acl add User:ann --cluster --allow describe");
    let answer = client.ask("GET", "/metrics", &ann).await.expect("the same connection");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains("kafka_server_brokertopicmetrics"), "{}", answer.body);
    assert_eq!(status(&mut client, "HEAD", "/nothing", &ann).await, 404);
    let answer = client.ask("DELETE", "/metrics", &ann).await.expect("the same connection");
    assert!(answer.status == 403 && answer.body.contains("ALTER"), "{}", answer.body);
    security(&node, "acl add User:ann --cluster --allow alter");
    assert_eq!(status(&mut client, "DELETE", "/metrics", &ann).await, 405, "there is no such request");
    security(&node, "acl add User:ann --cluster --deny describe --host 127.0.0.1");
    assert_eq!(status(&mut client, "GET", "/metrics", &ann).await, 403, "a denial wins");

    let before = Instant::now();
    for (user, password) in [("ann", "wrong"), ("nobody", PASSWORD), ("ann", "")] {
        let mut client = authority.connect(&node).await;
        let answer = client.ask("GET", "/metrics", &login(user, password)).await.expect("an answer");
        assert_eq!(answer.status, 401, "{user}");
        assert!(answer.body.contains("invalid user or password"), "{}", answer.body);
        client.end().await;
    }
    assert!(before.elapsed() >= 3 * Duration::from_millis(700), "{:?}", before.elapsed());
    let said = node.output();
    assert!(said.contains("HTTP login failed") && !said.contains(PASSWORD), "{said}");
}

#[tokio::test]
async fn another_password_counts_at_once_and_a_removed_user_has_none() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    let node = authority.node(dir.path(), &["http.authentication=basic"]);
    set_password(&node, "ann", PASSWORD);
    let mut client = authority.connect(&node).await;
    for _ in 0..3 {
        assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", PASSWORD)).await, 200);
    }
    set_password(&node, "ann", "another");
    assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", PASSWORD)).await, 401);
    let mut client = authority.connect(&node).await;
    assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", "another")).await, 200);
    security(&node, "user remove ann");
    assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", "another")).await, 401);
}

#[tokio::test]
async fn a_client_certificate_is_a_login() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    authority.sign("client scraper");
    let mapping = "listener.name.http.ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/";
    let required = "listener.name.http.ssl.client.auth=required";
    let node = authority.node(dir.path(), &[required, mapping, AUTHORIZER, SUPER_USERS]);
    security(&node, "acl add User:scraper --cluster --allow describe");
    let (ca, own) = (authority.text_of("ca.crt"), authority.text_of("scraper.pem"));
    let settings = [("ssl.truststore.location", ca.as_str()), ("ssl.keystore.location", own.as_str())];
    let mut client = HttpClient::connect(&node.http, &settings).await.expect("a handshake");
    assert_eq!(status(&mut client, "GET", "/metrics", "").await, 200);
    let answer = client.ask("POST", "/api/v1/streams", "").await.expect("the same connection");
    assert!(
        answer.status == 403 && answer.body.contains("User:scraper may not POST /api/v1/streams"),
        "{}",
        answer.body
    );
    // A client of TLS 1.3 learns it behind its own handshake.
    match HttpClient::connect(&node.http, &settings[..1]).await {
        Ok(mut client) => assert!(client.ask("GET", "/metrics", "").await.is_none(), "it has no certificate"),
        Err(fault) => assert_eq!(fault, TlsFault::ClientCertificate),
    }
    until("a line about the missing certificate", || {
        node.output().contains("the client shows no certificate")
    });
}

#[tokio::test]
async fn logins_over_http_are_in_the_audit_trail() {
    let (authority, trail) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    authority.sign("client scraper");
    let start = |dir: &TempDir, name: &str, settings: &[&str]| {
        let path = trail.path().join(name);
        let file = format!("thalweg.audit.file={}", path.display());
        let common = [AUTHORIZER, SUPER_USERS, file.as_str()];
        (authority.node(dir.path(), &[&common[..], settings].concat()), path)
    };
    let events = |path: &Path, code: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(path).expect("there is a trail");
        assert!(!text.contains(PASSWORD) && !text.contains("guess"), "no passwords");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines
            .filter(|line| line["metadata"]["event_code"] == code)
            .filter(|line| line["dst_endpoint"]["interface_name"] == "HTTP")
            .collect()
    };

    let dir = tempfile::tempdir().expect("a directory");
    let (mut node, path) = start(&dir, "passwords.log", &["http.authentication=basic"]);
    set_password(&node, "ann", PASSWORD);
    let mut client = authority.connect(&node).await;
    for _ in 0..3 {
        assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", PASSWORD)).await, 403);
    }
    let mut client = authority.connect(&node).await;
    assert_eq!(status(&mut client, "GET", "/metrics", &login("mallory", "guess")).await, 401);
    node.end(Signal::TERM);
    let [accepted] = &events(&path, "login.succeeded")[..] else { panic!("one for a connection") };
    assert_eq!((&accepted["user"]["uid"], &accepted["auth_protocol"]), (&"User:ann".into(), &"BASIC".into()));
    let [failed] = &events(&path, "login.failed")[..] else { panic!("one") };
    assert_eq!(
        (&failed["user"]["uid"], &failed["src_endpoint"]["ip"]),
        (&"User:mallory".into(), &"127.0.0.1".into())
    );
    let denied = events(&path, "authorization.denied");
    assert!(denied.iter().all(|line| line["api"]["operation"] == "GET /metrics"), "{denied:?}");

    let dir = tempfile::tempdir().expect("a directory");
    let required = "listener.name.http.ssl.client.auth=required";
    let (mut node, path) = start(&dir, "certificates.log", &[required]);
    let (ca, own) = (authority.text_of("ca.crt"), authority.text_of("scraper.pem"));
    let settings = [("ssl.truststore.location", ca.as_str()), ("ssl.keystore.location", own.as_str())];
    let mut client = HttpClient::connect(&node.http, &settings).await.expect("a handshake");
    assert_eq!(status(&mut client, "GET", "/metrics", "").await, 403);
    // Without a certificate; a client of TLS 1.3 learns it behind its own handshake.
    if let Ok(mut client) = HttpClient::connect(&node.http, &settings[..1]).await {
        assert!(client.ask("GET", "/metrics", "").await.is_none());
    }
    until("a line about the missing certificate", || {
        node.output().contains("the client shows no certificate")
    });
    node.end(Signal::TERM);
    let [accepted] = &events(&path, "login.succeeded")[..] else { panic!("one for a connection") };
    assert_eq!(accepted["auth_protocol"], "SSL");
    assert!(accepted["user"]["name"].as_str().is_some_and(|name| name.contains("scraper")), "{accepted}");
    let [failed] = &events(&path, "login.failed")[..] else { panic!("one") };
    assert!(failed["status_detail"].as_str().is_some_and(|why| why.contains("no certificate")), "{failed}");
}

#[tokio::test]
async fn a_flood_of_strangers_shuts_nobody_out() {
    const FLOOD: usize = 300;
    const SOON: Duration = Duration::from_secs(8);
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    let node = authority.node(dir.path(), &["http.authentication=basic"]);
    set_password(&node, "ann", PASSWORD);
    let ann = login("ann", PASSWORD);
    let mut guest = authority.connect(&node).await;
    let open = |answer: Option<Answer>| {
        let answer = answer.expect("an answer");
        let files = answer.body.lines().find_map(|line| line.strip_prefix("process_open_fds "));
        files.and_then(|number| number.parse::<usize>().ok()).unwrap_or_else(|| panic!("{}", answer.body))
    };
    let open_before = open(guest.ask("GET", "/metrics", &ann).await);

    // Most of them say nothing, the others stop in the middle of a request.
    let mut flood = Vec::new();
    for at in 0..FLOOD {
        let stream = TcpStream::connect(&node.http).await.expect("it accepts");
        if at % 16 == 0 {
            let mut client = authority.connect(&node).await;
            client.send(b"GET /metrics HTTP/1.1\r\nHost").await;
            drop(stream);
            flood.push(Err(client));
        } else {
            flood.push(Ok(stream));
        }
    }
    let before = Instant::now();
    let open_after = open(guest.ask("GET", "/metrics", &ann).await);
    assert!(open_after < open_before + FLOOD / 2, "{open_before} connections and files became {open_after}");
    let mut neighbour = authority.connect(&node).await;
    assert_eq!(status(&mut neighbour, "GET", "/metrics", &ann).await, 200, "one of the same address");
    let ca = authority.text_of("ca.crt");
    let settings = [("ssl.truststore.location", ca.as_str())];
    let mut other = HttpClient::connect_from("127.0.0.2", &node.http, &settings).await;
    assert_eq!(status(&mut other, "GET", "/metrics", &ann).await, 200);
    assert!(before.elapsed() < SOON, "{:?}", before.elapsed());

    // The newest of the flood are closed in time, too.
    let Some(Ok(last)) = flood.pop() else { panic!("the last one says nothing") };
    let closed = async { last.readable().await.map(|()| last.try_read(&mut [0; 8])) };
    let closed = tokio::time::timeout(Duration::from_secs(30), closed).await;
    assert!(matches!(closed, Ok(Ok(Ok(0)))), "{closed:?}");
}

#[tokio::test]
async fn requests_with_large_heads_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "http.authentication=basic"]);
    for (headers, expected) in [
        (format!("X: {}\r\n", "x".repeat(64 * 1024)), 431),
        ("X: x\r\n".repeat(500), 431),
        (login("ann", &"x".repeat(10 * 1024)), 401),
    ] {
        let is_read = headers.len() < 32 * 1024;
        let mut client = HttpClient::connect(&node.http, &[]).await.expect("no handshake");
        let answer = client.ask("GET", "/metrics", &headers).await;
        // Closed with unread bytes, the answer may be lost.
        assert!(answer.map_or(!is_read, |answer| answer.status == expected), "{expected}");
    }
    set_password(&node, "ann", PASSWORD);
    let mut client = HttpClient::connect(&node.http, &[]).await.expect("no handshake");
    assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", PASSWORD)).await, 200);
}

#[tokio::test]
async fn certificates_are_read_again() {
    let (old, new) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().expect("a directory");
    let node = old.node(dir.path(), &[]);
    let mut client = old.connect(&node).await;
    assert_eq!(status(&mut client, "GET", "/metrics", "").await, 200);
    std::fs::copy(new.file("broker.pem"), old.file("broker.pem")).expect("a copy");
    let ca = new.text_of("ca.crt");
    let limit = Instant::now() + Duration::from_secs(30);
    let mut renewed = loop {
        match HttpClient::connect(&node.http, &[("ssl.truststore.location", &ca)]).await {
            Ok(client) => break client,
            Err(fault) => {
                assert_eq!(fault, TlsFault::UnknownIssuer);
                assert!(Instant::now() < limit, "the certificate stays: {}", node.output());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    assert_eq!(status(&mut renewed, "GET", "/metrics", "").await, 200);
    assert_eq!(status(&mut client, "GET", "/metrics", "").await, 200, "open connections stay");
}

#[tokio::test]
async fn a_controller_alone_requires_logins_too() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    let jaas = "listener.name.http.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
                required user_root=\"toor\" user_ann=\"pw\";";
    let roles = ["process.roles=controller", "node.id=100", "listeners=CONTROLLER://127.0.0.1:0"];
    let access = ["http.authentication=basic", jaas, AUTHORIZER, SUPER_USERS];
    let mut node = authority.node(dir.path(), &[&roles[..], &access].concat());
    let mut client = authority.connect(&node).await;
    let answer = client.ask("GET", "/metrics", &login("root", "toor")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(
        answer.body.contains("kafka_controller_kafkacontroller_activecontrollercount 1"),
        "{}",
        answer.body
    );
    assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", "pw")).await, 403);
    assert_eq!(status(&mut client, "GET", "/metrics", &login("ann", "toor")).await, 401);
    node.end(Signal::TERM);
}

#[test]
fn stream_commands_log_in_and_print_why_they_may_not() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    let access = ["http.authentication=basic", "streams.enabled=true", AUTHORIZER, SUPER_USERS];
    let node = authority.node(dir.path(), &access);
    set_password(&node, "ann", PASSWORD);
    let password = dir.path().join("password");
    std::fs::write(&password, format!("{PASSWORD}\n")).expect("written");
    let (ca, password) = (authority.text_of("ca.crt"), password.to_str().expect("UTF-8"));
    let (https, http) = (format!("https://{}", node.http), format!("http://{}", node.http));
    let stream = |server: &str, verb: &str, arguments: &[&str]| {
        let mut command = thalweg(&format!("stream {verb} --server {server}"));
        command.env_remove("THALWEG_USER").env_remove("THALWEG_PASSWORD");
        run(command.args(arguments))
    };
    let by_file = ["--ca", &ca, "--user", "ann", "--password-file", password];
    let refused = |(code, _, error): (Option<i32>, String, String), expected: i32, words: &str| {
        assert!(code == Some(expected) && error.contains(words), "{code:?}, {words}: {error}");
    };
    refused(stream(&https, "list", &[]), 1, "signed by none that is trusted here");
    refused(stream(&https, "list", &["--ca", &ca]), 6, "asks for a login: log in with --user");
    refused(stream(&https, "list", &by_file), 6, "User:ann may not GET /api/v1/streams");
    refused(stream(&http, "list", &[]), 1, "its address begins with https://");
    refused(
        stream(&https, "list", &["--ca", &ca, "--user", "ann"]),
        2,
        "--password-file, or THALWEG_PASSWORD",
    );
    refused(stream("http://10.0.0.7:9090", "list", &by_file), 2, "would get the password in plain text");
    refused(stream("ftp://x", "list", &[]), 2, "use http://HOST:PORT or https://HOST:PORT");
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, "wrong").expect("written");
    let wrong = ["--ca", &ca, "--user", "ann", "--password-file", wrong.to_str().expect("UTF-8")];
    refused(stream(&https, "list", &wrong), 6, "invalid user or password");

    security(&node, "acl add User:ann --cluster --allow describe");
    let listed = || stream(&https, "list", &by_file);
    until("the host has started", || listed().0 == Some(0));
    let create = "create ticks --definition time|log";
    refused(stream(&https, create, &by_file), 6, "needs the operation ALTER");
    security(&node, "acl add User:ann --cluster --allow alter");
    // By the settings that the other tools take.
    let settings = dir.path().join("client.properties");
    let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
    let text = format!(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.location={ca}\n\
         sasl.jaas.config={module} required username=\"ann\" password=\"{PASSWORD}\";\n"
    );
    std::fs::write(&settings, text).expect("written");
    let (code, out, error) = stream(&https, create, &["--command-config", settings.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(0), "{out}{error}");
    let mut command = thalweg(&format!("stream list --server {https} --ca {ca} --user ann"));
    let (code, out, error) = run(command.env("THALWEG_PASSWORD", PASSWORD));
    assert!(code == Some(0) && out.contains("ticks"), "{out}{error}");
}

#[test]
fn passwords_in_plain_text_are_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |settings: &[&str], words: &str| {
        let mut command = thalweg("serve --listen 127.0.0.1:0 --data-dir");
        command.arg(dir.path().join("data"));
        for setting in settings {
            command.args(["--set", setting]);
        }
        let (code, _, error) = run(&mut command);
        assert!(code != Some(0) && error.contains(words), "{words}: {error}");
        assert!(!dir.path().join("data").exists(), "nothing was opened");
    };
    let basic = "http.authentication=basic";
    refused(&[basic, "http.listener=:0"], "Passwords would be sent in plain text to HTTP://:0");
    let tls = "http.security.protocol=SSL";
    refused(&[tls, "http.listener=127.0.0.1:0"], "Listener HTTP: ssl.keystore.location");
}
