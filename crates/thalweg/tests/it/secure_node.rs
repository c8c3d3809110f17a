//! `serve --secure` and the commands of `security`, as their user runs them.

use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};
use serde_json::Value;
use tempfile::TempDir;
use thalweg_client::{Connection, ConnectionOptions, Properties};
use thalweg_wire::request::MetadataRequest;

use super::binary::{run, run_with_input, thalweg, until};
use super::node::Node;

/// A secured node, and a user's way to it.
struct SecuredNode {
    node: Node,
    dir: TempDir,
}

impl SecuredNode {
    fn start() -> SecuredNode {
        let dir = tempfile::tempdir().expect("a directory");
        let node = SecuredNode::serve(dir.path(), &[]);
        SecuredNode { node, dir }
    }

    fn serve(dir: &Path, properties: &[&str]) -> Node {
        Node::start_with(&dir.join("data"), &["--secure", "--listen", "127.0.0.1:0"], properties)
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

    /// A command about streams, by the administrator.
    fn stream(&self, line: &str) -> Command {
        self.stream_of(&self.dir.path().join("data-security/client.properties"), line)
    }

    /// A command about streams with these client settings.
    fn stream_of(&self, settings: &Path, line: &str) -> Command {
        let mut command = thalweg(&format!("stream {line}"));
        command.args(["--server", &format!("https://{}", self.node.http)]);
        command.arg("--command-config").arg(settings);
        command
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
    assert_eq!(code, Some(6), "{command:?}: {out}{error}");
    assert!(error.contains(why), "{command:?}: {error}");
}

#[test]
fn users_may_do_what_the_administrator_lets_them() {
    let secured = SecuredNode::start();
    assert!(secured.node.address.starts_with("127.0.0.1:"), "{}", secured.node.address);
    let copied = |line: &str| line.starts_with("  export THALWEG_COMMAND_CONFIG=");
    until("the lines to copy", || secured.node.output().lines().any(copied));
    succeeds(&mut secured.admin("topic create orders secrets"));
    let password = succeeds(&mut secured.admin("security user add alice"));
    let alice = secured.settings_of("alice", password.trim());
    is_refused(&mut secured.command(&alice, "topic describe orders"), "TOPIC_AUTHORIZATION_FAILED");
    let acl = "security acl add User:alice --topic orders --allow read,write";
    // Without a right the topic is hidden, and with READ alone there is no producer id.
    for right in [None, Some("security acl add User:alice --topic orders --allow read")] {
        right.into_iter().for_each(|acl| drop(succeeds(&mut secured.admin(acl))));
        for acks in ["", " --acks 1"] {
            let mut produce = secured.command(&alice, &format!("produce orders{acks}"));
            let (code, _, error) = run_with_input(&mut produce, b"one\n");
            assert_eq!(code, Some(6), "{error}");
            assert!(error.contains("Writing to topic orders needs the right WRITE"), "{error}");
        }
    }
    succeeds(&mut secured.admin(acl));
    let (code, _, error) = run_with_input(&mut secured.command(&alice, "produce orders"), b"one\n");
    assert_eq!(code, Some(0), "{error}");
    let read = "consume orders --from-beginning --max-messages 1";
    assert_eq!(succeeds(&mut secured.command(&alice, read)), "one\n");
    assert_eq!(succeeds(&mut secured.command(&alice, "topic list -q")), "orders\n", "the other is not hers");
    let warns = |words: &str| {
        let (code, out, error) = run(&mut secured.command(&alice, "topic list"));
        assert!(code == Some(0) && out.lines().count() == 2 && error.contains(words), "{out} {error}");
    };
    warns("Topics that the login may not describe are not listed. Whether there are any is not known");
    succeeds(&mut secured.admin("security acl add User:alice --cluster --allow describe"));
    until("a right", || run(&mut secured.command(&alice, "topic list")).2.contains("1 topic that"));
    warns("1 topic that the login may not describe is not listed");
    succeeds(&mut secured.admin("security acl remove --principal User:alice --cluster"));
    let (code, _, error) = run(&mut secured.admin("topic list"));
    assert_eq!((code, error.as_str()), (Some(0), ""), "nothing is hidden from the administrator");
    is_refused(&mut secured.command(&alice, "security user add bob"), "CLUSTER_AUTHORIZATION_FAILED");
    // It cannot be judged without rights.
    let unknown =
        "The health of the cluster is unknown: Topics that this login may not describe are not counted.";
    is_refused(&mut secured.command(&alice, "cluster status"), unknown);
    figures_without_rights_are_unknown(&secured, &alice);

    let listed = succeeds(&mut secured.admin("security acl list --topic orders --json"));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let removed = succeeds(&mut secured.admin("security acl remove --principal User:alice"));
    assert_eq!(removed.lines().count(), 3, "{removed}");
    let again = run(&mut secured.admin("security acl remove --principal User:alice"));
    assert_eq!((again.0, again.2.as_str()), (Some(7), "thalweg: no ACL matches\n"));
    let token = run(&mut secured.admin("security token renew nosuch"));
    assert_eq!(token.0, Some(7), "{token:?}");
    is_refused(&mut secured.command(&alice, "topic describe orders"), "TOPIC_AUTHORIZATION_FAILED");

    let wrong = secured.settings_of("alice", "wrong");
    is_refused(&mut secured.command(&wrong, "topic list"), "rejects this client by SCRAM-SHA-512");
    is_refused(&mut secured.command(&wrong, "cluster status"), "rejects this client by SCRAM-SHA-512");
    is_refused(&mut secured.command(&wrong, "top --once"), "rejects this client by SCRAM-SHA-512");
    succeeds(&mut secured.admin("security user remove alice"));
    let gone = secured.settings_of("alice", password.trim());
    is_refused(&mut secured.command(&gone, "topic list"), "rejects this client by SCRAM-SHA-512");

    let trail =
        || std::fs::read_to_string(secured.dir.path().join("data/audit.log")).expect("there is a trail");
    for message in [
        "User:admin has logged in from 127.0.0.1",
        "User:admin has created Topic orders",
        "User:admin has altered User alice",
        "User:admin has created Acl User:alice",
        "User:admin has deleted Acl User:alice",
        "User:alice is denied DESCRIBE on Topic orders",
        "User:alice is denied ALTER on Cluster kafka-cluster",
        "User:alice has not altered User bob",
        "User:alice has failed to log in from 127.0.0.1",
    ] {
        until(message, || trail().contains(message));
    }
    assert!(!trail().contains(password.trim()), "no event has a password");
}

/// A user with rights on one topic sees it in `top`; the rest is unknown, not zero.
fn figures_without_rights_are_unknown(secured: &SecuredNode, user: &Path) {
    let top = succeeds(&mut secured.command(user, "top --once --json --interval 200ms"));
    let top: Value = serde_json::from_str(&top).expect("JSON");
    let cluster = &top["cluster"];
    assert_eq!((&cluster["health"], &cluster["controller"]), (&"unknown".into(), &Value::Null), "{top:#}");
    assert_eq!(cluster["brokers_up"], 1, "{top:#}");
    let topics = top["topics"].as_array().expect("a list");
    assert_eq!(topics.len(), 1, "{top:#}");
    assert_eq!((&topics[0]["topic"], &topics[0]["messages_per_s"]), (&"orders".into(), &0.0.into()));
    assert_eq!((&topics[0]["bytes_per_s"], &topics[0]["log_bytes"]), (&Value::Null, &Value::Null));
    assert_eq!((&top["brokers"][0]["log_bytes"], &top["groups"]), (&Value::Null, &serde_json::json!([])));
    let notes = top["notes"].to_string();
    for note in [
        "Log directories of broker 1: not visible to this login",
        "Controller: not visible to this login",
        "Groups that the login may not describe are not listed",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
}

#[test]
fn a_secured_node_starts_again_with_the_same_secrets() {
    let secured = SecuredNode::start();
    succeeds(&mut secured.admin("topic create kept"));
    let file = |name: &str| std::fs::read(secured.dir.path().join("data-security").join(name)).expect(name);
    let before = ["ca.crt", "ca.key", "node-1.pem", "admin.password"].map(file);
    let SecuredNode { node, dir } = secured;
    drop(node);
    let secured = SecuredNode { node: SecuredNode::serve(dir.path(), &[]), dir };
    assert_eq!(succeeds(&mut secured.admin("topic list -q")), "kept\n");
    let file = |name: &str| std::fs::read(secured.dir.path().join("data-security").join(name)).expect(name);
    assert!(before == ["ca.crt", "ca.key", "node-1.pem", "admin.password"].map(file));
}

#[test]
fn secrets_are_their_owners() {
    use std::os::unix::fs::PermissionsExt;
    let secured = SecuredNode::start();
    let dir = secured.dir.path().join("data-security");
    for entry in std::fs::read_dir(&dir).expect("it is there") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("it is there").permissions().mode() & 0o777;
        let is_public = entry.file_name() == "ca.crt";
        assert!(is_public || mode == 0o600, "{:?} has mode {mode:o}", entry.file_name());
    }
    let mode = |dir: &Path| std::fs::metadata(dir).expect("it is there").permissions().mode() & 0o777;
    let data = secured.dir.path().join("data");
    assert_eq!((mode(&dir), mode(&data)), (0o700, 0o700));
    assert!(!secured.node.output().contains("may read the data"));
    let password = std::fs::read_to_string(dir.join("admin.password")).expect("it is there");
    assert!(!secured.node.output().contains(password.trim()), "no log line has it");
}

#[test]
fn data_that_all_users_may_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("created");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let node = SecuredNode::serve(dir.path(), &[]);
    let said = format!("may read the data in {0}: chmod o= {0}", data.display());
    assert!(node.output().contains(&said), "{}", node.output());
    let mode = std::fs::metadata(&data).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o755, "an operator's rights stay");
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
    let (code, out, _) = sign("client alice");
    assert_eq!(code, Some(0));
    for file in ["alice.crt", "alice.key", "ca.crt"] {
        let path = dir.path().join("ca").join(file);
        assert!(path.is_file() && out.contains(&path.display().to_string()), "{file}: {out}");
    }
    let (code, _, error) = sign("node broker-2");
    assert_eq!(code, Some(2));
    assert!(error.contains("--host is missing"), "{error}");
    let (code, _, error) = sign("client ../alice");
    assert_eq!(code, Some(2));
    assert!(error.contains("the name ../alice: expected letters"), "{error}");
}

#[test]
fn hosted_streams_have_a_user_without_rights_until_these_are_granted() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = SecuredNode::serve(dir.path(), &["streams.enabled=true"]);
    let secured = SecuredNode { node, dir };
    let settings = secured.dir.path().join("data-security/client.properties");
    let server = format!("https://{}", secured.node.http);
    let stream = |line: &str| {
        let mut command = thalweg(&format!("stream {line}"));
        command.args(["--server", &server]).arg("--command-config").arg(&settings);
        command
    };
    // Its API answers once the topic of definitions is there.
    until("the host answers", || run(&mut stream("list")).0 == Some(0));
    succeeds(&mut secured.admin("topic create words"));
    let text = "time --count=3 | kafka --topic=words";
    succeeds(stream("create clock --deploy").args(["--definition", text]));
    let shows = |what: &str| {
        let (_, out, error) = run(&mut stream("list --json"));
        (out.contains(what), format!("{out}{error}"))
    };
    until("the stream fails", || shows("failed").0);
    let command = "thalweg security acl add User:streams --topic words --allow write";
    let (is_named, listed) = shows(command);
    assert!(is_named, "{listed}");
    succeeds(&mut secured.admin(command.strip_prefix("thalweg ").expect("it begins with it")));
    // Brokers learn of an ACL a moment after the controller.
    until("the stream writes", || {
        let _ = run(&mut stream("undeploy clock"));
        let _ = run(&mut stream("deploy clock"));
        run(&mut secured.admin("consume words --from-beginning --max-messages 3 --timeout-ms 2000")).0
            == Some(0)
    });
    let ask = |scheme: &str| thalweg(&format!("stream list --server {scheme}://{}", secured.node.http));
    let ca = secured.dir.path().join("data-security/ca.crt");
    is_refused(ask("https").arg("--ca").arg(ca), "asks for a login");
    let (code, _, error) = run(&mut ask("http"));
    assert!(code == Some(1) && error.contains("its address begins with https://"), "{code:?} {error}");
}

/// A secured node that hosts streams, once they are known.
fn hosting(properties: &[&str]) -> SecuredNode {
    let dir = tempfile::tempdir().expect("a directory");
    let node = SecuredNode::serve(dir.path(), &[&["streams.enabled=true"], properties].concat());
    let secured = SecuredNode { node, dir };
    until("the host answers", || run(&mut secured.stream("list")).0 == Some(0));
    secured
}

/// A record of the topic of definitions that makes node 1 run a line without a principal.
fn record(name: &str, line: &str) -> String {
    let value = serde_json::json!({ "version": 1, "definition": line, "deployed": { "node": 1 } });
    format!("{name}={value}\n")
}

#[test]
fn a_user_who_may_write_to_all_topics_runs_no_streams() {
    let secured = hosting(&[]);
    let secret = secured.dir.path().join("data-security/admin.password");
    let leak = format!("file --path={} | kafka --topic=loot", secret.display());
    let password = succeeds(&mut secured.admin("security user add mallory"));
    let mallory = secured.settings_of("mallory", password.trim());
    succeeds(&mut secured.admin("topic create loot"));
    succeeds(&mut secured.admin("security acl add User:mallory --topic * --allow all"));
    succeeds(&mut secured.admin("security acl add User:streams --topic loot --allow write"));
    let produce = "produce __stream_definitions --key-separator =";
    let forge = |command: &mut Command, name: &str, line: &str| {
        run_with_input(command, record(name, line).as_bytes())
    };
    until("the ACLs", || run_with_input(&mut secured.command(&mallory, "produce loot"), b"x\n").0 == Some(0));
    let (code, out, error) = forge(&mut secured.command(&mallory, produce), "leak", &leak);
    assert!(code != Some(0) && error.contains("TOPIC_AUTHORIZATION_FAILED"), "{code:?} {out}{error}");
    let listed = succeeds(&mut secured.stream("list --json"));
    assert!(!listed.contains("leak"), "{listed}");

    // Records of earlier versions, or behind a leader of another make, give no reach either.
    for (name, line) in [("leak", leak.as_str()), ("clock", "time | log")] {
        let (code, _, error) = forge(&mut secured.admin(produce), name, line);
        assert_eq!(code, Some(0), "{error}");
    }
    let reason = |name: &str| {
        let status = succeeds(&mut secured.stream(&format!("status {name} --json")));
        (status.contains("failed"), status)
    };
    until("both fail", || reason("leak").0 && reason("clock").0);
    let (leaked, clock) = (reason("leak").1, reason("clock").1);
    assert!(leaked.contains("streams.allowed.modules"), "{leaked}");
    assert!(clock.contains("The definition does not say who has the stream run"), "{clock}");
    assert!(clock.contains("deploy it again"), "{clock}");
    // Which an administrator does.
    succeeds(&mut secured.stream("deploy clock"));
    let (_, status) = reason("clock");
    assert!(status.contains("User:admin") && status.contains("\"deployed\""), "{status}");
}

#[test]
fn hosted_streams_of_a_secured_node_reach_what_is_named() {
    let files = tempfile::tempdir().expect("a directory");
    let at = |name: &str| files.path().join(name).display().to_string();
    for dir in ["in", "out"] {
        std::fs::create_dir(at(dir)).expect("a directory");
        std::fs::write(at(&format!("{dir}/words")), "one\n").expect("written");
    }
    std::os::unix::fs::symlink(at("out"), at("in/link")).expect("a link");
    let fails = |secured: &SecuredNode, name: &str, line: &str, why: &str| {
        let mut command = secured.stream(&format!("create {name} --deploy"));
        let (code, out, error) = run(command.arg("--definition").arg(line));
        assert!(code != Some(0) && error.contains(why), "{line}: {code:?} {out}{error}");
    };
    let closed = hosting(&[]);
    let properties = closed.dir.path().join("data-security/client.properties").display().to_string();
    for line in [
        "time | exec --command=id | log".to_owned(),
        format!("file --path={} | log", at("in/words")),
        format!("time | file --path={}", at("in/times")),
        "http --port=0 | log".to_owned(),
        "time | http --url=http://127.0.0.1:1/".to_owned(),
        "kafka --topics=t --bootstrap=127.0.0.1:1 | log".to_owned(),
        format!("time | kafka --topic=t --properties={properties}"),
    ] {
        fails(&closed, "closed", &line, "streams.allowed.modules");
    }
    let letters = format!("onError=dead-letter:{}", at("in/letters"));
    let mut command = closed.stream("create letters --definition time|log --deploy");
    let (code, _, error) = run(command.arg("--properties").arg(&letters));
    assert!(code != Some(0) && error.contains("streams.allowed.modules"), "{code:?} {error}");
    drop(closed);

    let directories = format!("streams.file.directories={}", at("in"));
    let settings = format!("streams.properties.directories={}", at("in"));
    let open = hosting(&["streams.allowed.modules=file,kafka", &directories, &settings]);
    for path in ["out/words", "in/../out/words", "in/link/words"] {
        let line = format!("file --path={} | log", at(path));
        fails(&open, "outside", &line, "streams.file.directories");
        fails(&open, "outside", &format!("time | file --path={}", at(path)), "streams.file.directories");
    }
    let line = format!("time | kafka --topic=t --properties={properties}");
    fails(&open, "login", &line, "streams.properties.directories");
    // A stream could have written it, with the name of any other file in it.
    let line = format!("time | kafka --topic=t --properties={}", at("in/words"));
    fails(&open, "login", &line, "streams of this host may write it");
    let line = format!("file --path={} | file --path={}", at("in/words"), at("in/copy"));
    succeeds(open.stream("create copy --deploy").arg("--definition").arg(line));
    until("the copy", || std::fs::read_to_string(at("in/copy")).is_ok_and(|text| text == "one\n"));
    assert_eq!(std::fs::read_to_string(at("out/words")).expect("it is there"), "one\n");
}

#[test]
fn a_stream_runs_as_long_as_the_one_who_deployed_it_has_its_rights() {
    let secured = hosting(&[]);
    let password = succeeds(&mut secured.admin("security user add ann"));
    let ann = secured.settings_of("ann", password.trim());
    succeeds(&mut secured.admin("topic create words"));
    succeeds(&mut secured.admin("security acl add User:ann --cluster --allow describe,alter"));
    succeeds(&mut secured.admin("security acl add User:streams --topic words --allow write"));
    let create = || {
        let mut command = secured.stream_of(&ann, "create clock --deploy");
        run(command.args(["--definition", "time | kafka --topic=words"]))
    };
    let grant = "security acl add User:ann --topic words --allow write";
    // ALTER on the cluster, then WRITE on the topic: brokers learn of an ACL a moment after the controller.
    until("ann may create streams, but not this one", || create().2.contains(&format!("thalweg {grant}")));
    succeeds(&mut secured.admin(grant));
    until("ann may write", || create().0 == Some(0));
    let status = || succeeds(&mut secured.stream("status clock --json"));
    assert!(status().contains("User:ann") && status().contains("\"deployed\""), "{}", status());
    succeeds(&mut secured.admin("consume words --from-beginning --max-messages 1 --timeout-ms 30000"));
    succeeds(&mut secured.admin("security acl remove --principal User:ann --topic words"));
    until("the stream stops", || status().contains("\"failed\""));
    assert!(
        status().contains("User:ann, who has the stream run, may not write the topic words"),
        "{}",
        status()
    );
    // A user with the rights can deploy the stream again.
    succeeds(&mut secured.stream("deploy clock"));
    assert!(status().contains("User:admin") && status().contains("\"deployed\""), "{}", status());
    // A tap shows what the stream does, with the rights of another.
    let tap = || {
        let mut command = secured.stream_of(&ann, "create tap --deploy");
        run(command.args(["--definition", "tap:stream:clock.time > log"]))
    };
    let refused = tap();
    assert!(
        refused.2.contains("User:ann, who has the stream run, may not write the topic words"),
        "{refused:?}"
    );
    succeeds(&mut secured.admin(grant));
    until("ann may tap it", || tap().0 == Some(0));
    succeeds(&mut secured.admin("security acl remove --principal User:ann --topic words"));
    until("the tap stops", || succeeds(&mut secured.stream("status tap --json")).contains("\"failed\""));
}

#[test]
fn data_from_before_gets_the_administrator_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let plain = Node::start_with(&data, &["--listen", "127.0.0.1:0"], &[]);
    succeeds(thalweg("topic create old --bootstrap-server").arg(&plain.address));
    drop(plain);
    let secured = SecuredNode { node: SecuredNode::serve(dir.path(), &[]), dir };
    assert_eq!(succeeds(&mut secured.admin("topic list -q")), "old\n");
    // A node that is started without --secure afterwards says what that means.
    let SecuredNode { node, dir } = secured;
    drop(node);
    let plain = Node::start_with(&data, &["--listen", "127.0.0.1:0"], &[]);
    assert!(plain.output().contains("--secure is missing: "), "{}", plain.output());
    drop(dir);
}

#[test]
fn a_removed_password_file_resets_the_password() {
    let SecuredNode { node, dir } = SecuredNode::start();
    drop(node);
    let file = dir.path().join("data-security/admin.password");
    let before = std::fs::read_to_string(&file).expect("it is there");
    std::fs::remove_file(&file).expect("removed");
    let secured = SecuredNode { node: SecuredNode::serve(dir.path(), &[]), dir };
    assert_ne!(std::fs::read_to_string(&file).expect("it is there again"), before);
    succeeds(&mut secured.admin("topic list"));
    // A file that does not have the cluster's password is reported, and not imposed on the cluster.
    let SecuredNode { node, dir } = secured;
    drop(node);
    std::fs::write(&file, "stale").expect("written");
    let secured = SecuredNode { node: SecuredNode::serve(dir.path(), &[]), dir };
    assert!(secured.node.output().contains("another password for admin"), "{}", secured.node.output());
}

#[test]
fn a_damaged_directory_is_reported_or_repaired() {
    use std::os::unix::fs::PermissionsExt;
    let SecuredNode { node, dir } = SecuredNode::start();
    drop(node);
    let security = dir.path().join("data-security");
    let serve = |more: &str| {
        let mut command = thalweg(&format!("serve --secure --listen 127.0.0.1:0 {more} --data-dir"));
        command.arg(dir.path().join("data"));
        command
    };
    let fails = |more: &str, why: &str| {
        let (code, _, error) = run(&mut serve(more));
        assert_ne!(code, Some(0), "{error}");
        assert!(error.contains(why), "{why}: {error}");
    };
    std::fs::write(security.join("admin.password"), "").expect("written");
    fails("", "admin.password has no password: remove it, and start again");
    std::fs::remove_file(security.join("admin.password")).expect("removed");
    // Without the authority's key a node goes on, as long as its certificate names its hosts.
    std::fs::rename(security.join("ca.key"), dir.path().join("ca.key")).expect("moved");
    fails("--set http.listener=10.1.2.3:0", "node-1.pem is not valid for 10.1.2.3, and there is no ca.key");
    std::fs::rename(dir.path().join("ca.key"), security.join("ca.key")).expect("moved back");
    // What follows from the key is made again, and what others could read is protected.
    std::fs::remove_file(security.join("ca.crt")).expect("removed");
    std::fs::write(security.join("node-1.pem"), "nonsense").expect("written");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(security.join("ca.key"), open).expect("set");
    let secured = SecuredNode { node: SecuredNode::serve(dir.path(), &[]), dir };
    assert!(
        secured.node.output().contains("Other users of this machine could read"),
        "{}",
        secured.node.output()
    );
    succeeds(&mut secured.admin("topic list"));
}

#[test]
fn a_node_of_another_machine_joins_by_an_exported_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = thalweg_ports::Port::reserve().expect("a port").number();
    let listeners = format!("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}");
    let node = Node::start_with(&dir.path().join("data"), &["--secure"], &[&listeners]);
    let secured = SecuredNode { node, dir };
    let security = secured.dir.path().join("data-security");
    let exported = secured.dir.path().join("box-2-security");
    let servers = format!("controller.quorum.bootstrap.servers=127.0.0.1:{port}");
    let join = || {
        let mut command =
            thalweg("serve --listen 127.0.0.1:0 --set node.id=2 --set process.roles=broker --set");
        command.arg(&servers).arg("--data-dir").arg(secured.dir.path().join("data-2"));
        command.arg(format!("--secure={}", exported.display()));
        command
    };
    let (code, _, error) = run(&mut join());
    assert_ne!(code, Some(0), "{error}");
    assert!(error.contains("`thalweg security certificate node node-2 --host HOST --export"), "{error}");
    let mut export = thalweg("security certificate node node-2 --host 127.0.0.1 --dir");
    let printed = succeeds(export.arg(&security).arg("--export").arg(&exported));
    assert!(printed.contains("--set node.id=2"), "{printed}");
    assert!(!exported.join("ca.key").exists() && !exported.join("admin.password").exists());
    let options = [&format!("--secure={}", exported.display()), "--listen", "127.0.0.1:0"];
    let joins = ["node.id=2", "process.roles=broker", &servers];
    let second = Node::start_with(&secured.dir.path().join("data-2"), &options, &joins);
    succeeds(&mut secured.admin("topic create both --replication-factor 2"));
    let described = || succeeds(&mut secured.admin("topic describe both"));
    until("the second node follows", || {
        let described = described();
        described.contains("Isr: 1,2") || described.contains("Isr: 2,1")
    });
    drop(second);
}

/// The certificate that a listener shows, in PEM; none without openssl.
fn shown_certificate(address: &str, ca: &Path) -> Option<String> {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", address, "-CAfile"]).arg(ca).stdin(Stdio::null());
    let output = openssl.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("-----BEGIN CERTIFICATE-----\n")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    Some(body.to_owned())
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
async fn a_certificate_that_ends_soon_is_signed_again_while_the_node_runs() {
    let secured = SecuredNode::start();
    let security = secured.dir.path().join("data-security");
    let (file, ca) = (security.join("node-1.pem"), security.join("ca.crt"));
    let read = |name: &str| std::fs::read_to_string(security.join(name)).expect(name);
    let plain = |pem: &str| pem.replace("\r\n", "\n");
    let Some(first) = shown_certificate(&secured.node.address, &ca) else {
        eprintln!("SKIPPED: a renewed certificate on a listener: install openssl");
        return;
    };
    assert!(plain(&read("node-1.pem")).contains(&first), "the listener shows the file's");
    let mut properties = Properties::new();
    for (key, value) in read("client.properties").lines().filter_map(|line| line.split_once('=')) {
        if key != "bootstrap.servers" {
            properties.set(key, value);
        }
    }
    let options = ConnectionOptions::take(&mut properties, "test").expect("valid settings");
    let old = Connection::connect(&secured.node.address, &options).await.expect("the administrator");

    // One of the same authority and key that ends in a few days.
    let key = KeyPair::from_pem(&read("ca.key")).expect("the key of the authority");
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), key).expect("the authority");
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
    params.distinguished_name.push(DnType::CommonName, "node-1");
    let soon = chrono::Utc::now() + chrono::Duration::days(20);
    let part = |format: &str| soon.format(format).to_string().parse::<u16>().expect("a number");
    let small = |number: u16| u8::try_from(number).expect("small");
    params.not_after = date_time_ymd(i32::from(part("%Y")), small(part("%m")), small(part("%d")));
    let own = KeyPair::from_pem(&read("node-1.key")).expect("the key of the node");
    let ending = params.signed_by(&own, &issuer).expect("a certificate").pem();
    std::fs::write(&file, format!("{}{ending}{}", own.serialize_pem(), read("ca.crt"))).expect("written");

    until("it is signed again", || secured.node.output().contains("Signed this node's certificate again"));
    let renewed = plain(&read("node-1.pem"));
    assert!(!renewed.contains(&first) && !renewed.contains(&plain(&ending)), "it is another one");
    until("new connections get it", || {
        let shown = shown_certificate(&secured.node.address, &ca).expect("a handshake");
        renewed.contains(&shown)
    });
    let answer = old.send(&MetadataRequest::default()).await.expect("an old connection is kept");
    assert_eq!(answer.brokers.len(), 1);
    let new = Connection::connect(&secured.node.address, &options).await.expect("a new one is trusted");
    new.close();
}
