//! The archive for bug reports: what is in it, what never is, and what is said to be missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::binary::{run, run_with_input, thalweg};
use super::node::Node;

/// Part of every planted secret.
const PLANTED: &str = "PLANTED";

/// The files of an archive, by their names below its directory.
fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let bytes = fs::read(path).expect("the archive");
    let mut archive = tar::Archive::new(GzDecoder::new(&bytes[..]));
    let entries = archive.entries().expect("an archive");
    let files = entries.map(|entry| {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").to_string_lossy().into_owned();
        let (directory, name) = path.split_once('/').expect("all files are in a directory");
        assert!(directory.starts_with("thalweg-debug-"), "{path}");
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name.to_owned(), text)
    });
    files.collect()
}

fn missing(files: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let contents: Value = serde_json::from_str(&files["contents.json"]).expect("JSON");
    let all = contents["missing"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    all.map(|one| (text(&one["part"]), text(&one["reason"]))).collect()
}

#[test]
fn a_bundle_of_a_running_node_has_everything_but_records_and_secrets() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let node = Node::start(&data, &["listeners=PLAINTEXT://127.0.0.1:0"]);
    let at = [("THALWEG_BOOTSTRAP_SERVER", node.address.as_str())];
    assert_eq!(run(thalweg("topic create orders").envs(at)).0, Some(0));
    let record = format!("{PLANTED}-record\n");
    assert_eq!(run_with_input(thalweg("produce orders").envs(at), record.as_bytes()).0, Some(0));

    // A secret wherever one can be.
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let jaas = |name: &str| {
        format!(
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" password=\"{PLANTED}-{name}\";"
        )
    };
    let properties = write(
        "server.properties",
        format!(
            "# password={PLANTED}-comment\nnode.id=1\nlog.dirs={}\nssl.keystore.password={PLANTED}-a\n\
             listener.name.internal.ssl.key.password={PLANTED}-b\nssl.keystore.key={PLANTED}-c\n\
             listener.name.x.ssl.keystore.key={PLANTED}-d\nlistener.name.x.scram-sha-512.sasl.jaas.config={}\n\
             delegation.token.secret.key={PLANTED}-e\nmy.client.secret={PLANTED}-f\nproxy.url=http://bob:{PLANTED}-g@proxy:1/\n",
            data.display(),
            jaas("h"),
        ),
    );
    let client = write(
        "client.properties",
        format!("client.id=me\nsasl.jaas.config={}\nssl.key.password={PLANTED}-i\n", jaas("j")),
    );
    let config = write(
        "config.toml",
        format!(
            "profile = 'p'\n[profiles.p]\nuser = 'alice'\n[profiles.p.settings]\n'sasl.password' = '{PLANTED}-k'\n"
        ),
    );
    let password = write("password", format!("{PLANTED}-l\n"));
    let log = write(
        "node.log",
        format!(
            "INFO Thalweg starts\nWARN password={PLANTED}-m user=x\nDEBUG Authorization: Bearer {PLANTED}mmmm\n\
             ERROR refused {PLANTED}-b, {PLANTED}-l and {PLANTED}-j for alice\n{{\"sasl.jaas.config\":\"x password=\\\"{PLANTED}-n\\\"\"}}\n\
             -----BEGIN PRIVATE KEY-----\n{PLANTED}-o\n-----END PRIVATE KEY-----\nthe last line\n"
        ),
    );
    let archive = dir.path().join("bundle.tar.gz");
    let server = format!("http://{}", node.http);
    let mut command = thalweg("debug bundle --interval 1 --format json --server");
    command
        .arg(&server)
        .envs(at)
        .env("THALWEG_CONFIG", &config)
        .env("THALWEG_PASSWORD", format!("{PLANTED}-p"));
    for (option, value) in
        [("--properties", &properties), ("--command-config", &client), ("--log", &log), ("--out", &archive)]
    {
        command.arg(option).arg(value);
    }
    command.args(["--user", "alice", "--password-file"]).arg(&password);
    let (code, out, error) = run(&mut command);
    assert_eq!(code, Some(0), "{error}");
    assert!(!out.contains(PLANTED) && !error.contains(PLANTED), "{out}{error}");

    let files = unpacked(&archive);
    for (name, text) in &files {
        assert!(!text.contains(PLANTED), "{name}: {text}");
    }
    assert_eq!(missing(&files), BTreeMap::new());
    let expected = [
        "about.json",
        "brokers.json",
        "client.json",
        "cluster.json",
        "contents.json",
        "layout-1.tsv",
        "logs/1-node.log",
        "machine.json",
        "metrics-1.txt",
        "metrics-2.txt",
        "node.properties",
        "topics.json",
    ];
    assert_eq!(files.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    let document = |name: &str| -> Value { serde_json::from_str(&files[name]).expect("JSON") };
    assert_eq!(document("cluster.json")["health"], "healthy");
    assert_eq!(document("topics.json")[0]["topic"], "orders");
    assert_eq!(document("about.json")["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document("about.json")["environment"]["THALWEG_PASSWORD"], "[hidden]");
    assert!(document("machine.json")["machine"]["cpus"].as_u64() > Some(0));
    let settings = document("client.json")["settings"].clone();
    let settings = settings.as_array().expect("a list");
    let source = |key: &str| settings.iter().find(|one| !one[key].is_null()).map(|one| one["source"].clone());
    assert_eq!(source("bootstrap.servers"), Some("environment variable THALWEG_BOOTSTRAP_SERVER".into()));
    assert_eq!(source("client.id"), Some(client.to_str().expect("text").into()));
    let brokers = document("brokers.json");
    let mut all = brokers["1"].as_array().expect("a list").iter();
    let retention = all.find(|one| one.get("log.retention.ms").is_some());
    assert!(retention.is_some_and(|one| one["source"] == "default"), "{brokers}");
    assert!(files["layout-1.tsv"].contains("\torders-0/"), "{}", files["layout-1.tsv"]);
    assert!(files["metrics-1.txt"].contains("# TYPE"), "{}", files["metrics-1.txt"]);
    let log = &files["logs/1-node.log"];
    assert!(log.starts_with("INFO Thalweg starts\n") && log.ends_with("the last line\n"), "{log}");
    assert!(files["node.properties"].contains("node.id=1\n"), "{}", files["node.properties"]);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&archive).expect("it is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    // It replaces nothing.
    let (code, _, error) = run(&mut command);
    assert!(code == Some(1) && error.contains("Cannot write"), "{error}");
}

#[test]
fn a_bundle_of_a_dead_node_lists_the_missing_parts() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("orders-0")).expect("a directory");
    fs::write(data.join("orders-0/00000000000000000000.log"), "x").expect("a file");
    let archive = dir.path().join("bundle.tar.gz");
    let port = thalweg_ports::free_port();
    let mut command = thalweg("debug bundle");
    command.args(["-b", &format!("127.0.0.1:{port}"), "--server", &format!("http://127.0.0.1:{port}")]);
    command.arg("--data-dir").arg(&data).arg("--out").arg(&archive);
    command.arg("--log").arg(dir.path().join("none.log"));
    let (code, out, error) = run(&mut command);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("missing: cluster.json: No broker answers: Cannot connect to 127.0.0.1"), "{out}");
    let files = unpacked(&archive);
    let missing = missing(&files);
    let expected =
        ["brokers.json", "cluster.json", "logs/1-none.log", "metrics-1.txt", "metrics-2.txt", "topics.json"];
    assert_eq!(missing.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    assert!(missing["logs/1-none.log"].contains("No such file"), "{missing:?}");
    assert!(files["layout-1.tsv"].contains("1\t"), "{}", files["layout-1.tsv"]);
    assert!(files.contains_key("machine.json"));
}
