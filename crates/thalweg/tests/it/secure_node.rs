//! `serve --secure` and the commands of `security`, as their user runs them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::binary::{run, run_with_input, thalweg, until};
use super::node::Node;

/// A secured node, and a user's way to it.
struct Secured {
    node: Node,
    dir: TempDir,
}

impl Secured {
    fn start() -> Secured {
        let dir = tempfile::tempdir().expect("a directory");
        let node = Secured::serve(dir.path());
        Secured { node, dir }
    }

    fn serve(dir: &Path) -> Node {
        Node::start_with(&dir.join("data"), &["--secure", "--listen", "127.0.0.1:0"], &[])
    }

    /// A command with these client settings.
    fn command(&self, settings: &Path, line: &str) -> Command {
        let mut command = thalweg(line);
        command.arg("--bootstrap-server").arg(&self.node.address).arg("--command-config").arg(settings);
        command
    }

    fn admin(&self, line: &str) -> Command {
        self.command(&self.dir.path().join("data-security/client.properties"), line)
    }

    /// The settings of another user.
    fn settings_of(&self, user: &str, password: &str) -> std::path::PathBuf {
        let admin = std::fs::read_to_string(self.dir.path().join("data-security/client.properties"));
        let admin = admin.expect("they were written");
        let others = admin.lines().filter(|line| !line.starts_with("sasl.jaas.config"));
        let login = format!(
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{user}\" \
             password=\"{password}\";"
        );
        let text = others.chain([login.as_str()]).collect::<Vec<_>>().join("\n");
        let file = self.dir.path().join(format!("{user}.properties"));
        std::fs::write(&file, text).expect("written");
        file
    }
}

fn succeeds(command: &mut Command) -> String {
    let (code, out, error) = run(command);
    assert_eq!(code, Some(0), "{command:?}: {out}{error}");
    out
}

fn is_refused(command: &mut Command, why: &str) {
    let (code, out, error) = run(command);
    assert_eq!(code, Some(1), "{command:?}: {out}{error}");
    assert!(error.contains(why), "{command:?}: {error}");
}

#[test]
fn users_may_do_what_the_administrator_lets_them() {
    let secured = Secured::start();
    assert!(secured.node.address.starts_with("127.0.0.1:"), "{}", secured.node.address);
    succeeds(&mut secured.admin("topic create orders secrets"));
    let password = succeeds(&mut secured.admin("security user add alice"));
    let alice = secured.settings_of("alice", password.trim());
    is_refused(&mut secured.command(&alice, "topic describe orders"), "TOPIC_AUTHORIZATION_FAILED");
    let acl = "security acl add User:alice --topic orders --allow read,write";
    succeeds(&mut secured.admin(acl));
    let (code, _, error) = run_with_input(&mut secured.command(&alice, "produce orders"), b"one\n");
    assert_eq!(code, Some(0), "{error}");
    let read = "consume orders --from-beginning --max-messages 1";
    assert_eq!(succeeds(&mut secured.command(&alice, read)), "one\n");
    assert_eq!(succeeds(&mut secured.command(&alice, "topic list")), "orders\n", "the other is not hers");
    is_refused(&mut secured.command(&alice, "security user add bob"), "CLUSTER_AUTHORIZATION_FAILED");

    let listed = succeeds(&mut secured.admin("security acl list --topic orders --json"));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let removed = succeeds(&mut secured.admin("security acl remove --principal User:alice"));
    assert_eq!(removed.lines().count(), 3, "{removed}");
    is_refused(&mut secured.command(&alice, "topic describe orders"), "TOPIC_AUTHORIZATION_FAILED");

    let wrong = secured.settings_of("alice", "wrong");
    is_refused(&mut secured.command(&wrong, "topic list"), "rejects this client by SCRAM-SHA-512");
    succeeds(&mut secured.admin("security user remove alice"));
    let gone = secured.settings_of("alice", password.trim());
    is_refused(&mut secured.command(&gone, "topic list"), "rejects this client by SCRAM-SHA-512");
}

#[test]
fn a_secured_node_starts_again_with_the_same_secrets() {
    let secured = Secured::start();
    succeeds(&mut secured.admin("topic create kept"));
    let file = |name: &str| std::fs::read(secured.dir.path().join("data-security").join(name)).expect(name);
    let before = ["ca.crt", "ca.key", "node.key", "admin.password"].map(file);
    let Secured { node, dir } = secured;
    drop(node);
    let secured = Secured { node: Secured::serve(dir.path()), dir };
    assert_eq!(succeeds(&mut secured.admin("topic list")), "kept\n");
    let file = |name: &str| std::fs::read(secured.dir.path().join("data-security").join(name)).expect(name);
    assert!(before == ["ca.crt", "ca.key", "node.key", "admin.password"].map(file));
}

#[test]
fn secrets_are_their_owners() {
    use std::os::unix::fs::PermissionsExt;
    let secured = Secured::start();
    let dir = secured.dir.path().join("data-security");
    for entry in std::fs::read_dir(&dir).expect("it is there") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("it is there").permissions().mode() & 0o777;
        let is_public = entry.file_name() == "ca.crt";
        assert!(is_public || mode == 0o600, "{:?} has mode {mode:o}", entry.file_name());
    }
    let password = std::fs::read_to_string(dir.join("admin.password")).expect("it is there");
    assert!(!secured.node.said().contains(password.trim()), "no log line has it");
}

#[test]
fn an_authority_signs_for_nodes_and_clients() {
    let dir = tempfile::tempdir().expect("a directory");
    let sign = |line: &str| {
        let mut command = thalweg(&format!("security certificate {line}"));
        run(command.arg("--dir").arg(dir.path().join("ca")))
    };
    let (code, out, error) = sign("node broker-1 --host broker-1.example.org --host 10.0.0.1");
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("ssl.keystore.location=") && out.contains("broker-1.pem"), "{out}");
    assert_eq!(sign("client alice").0, Some(0));
    let (code, _, error) = sign("node broker-2");
    assert_eq!(code, Some(2));
    assert!(error.contains("--host is missing"), "{error}");
    let (code, _, error) = sign("client ../alice");
    assert_eq!(code, Some(2));
    assert!(error.contains("the name ../alice: expected letters"), "{error}");
}

#[test]
fn hosted_streams_need_a_login_and_run_with_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut command = thalweg("serve --secure --listen 127.0.0.1:0 --set streams.enabled=true --data-dir");
    let (code, _, error) = run(command.arg(&data));
    assert_ne!(code, Some(0), "{error}");
    assert!(error.contains("first listener is SASL_SSL. Set streams.client.config"), "{error}");
    let login = dir.path().join("data-security/client.properties");
    let login = format!("streams.client.config={}", login.display());
    let options =
        ["--secure", "--listen", "127.0.0.1:0", "--set", "streams.enabled=true", "--set", login.as_str()];
    let node = Node::start_with(&data, &options, &[]);
    let settings = dir.path().join("data-security/client.properties");
    let listed = || {
        let mut command = thalweg("topic list --bootstrap-server");
        succeeds(command.arg(&node.address).arg("--command-config").arg(&settings))
    };
    // The host makes the topic of its definitions once it has logged in.
    until("the stream definitions have a topic", || listed().contains("__stream_definitions"));
    // The listener of their API is secured too, and the same settings open it.
    let ask = |scheme: &str| thalweg(&format!("stream list --server {scheme}://{}", node.http));
    let mut command = ask("https");
    command.arg("--command-config").arg(&settings);
    until("the host answers", || run(&mut command).0 == Some(0));
    is_refused(ask("https").arg("--ca").arg(dir.path().join("data-security/ca.crt")), "asks for a login");
    is_refused(&mut ask("http"), "its address begins with https://");
}
