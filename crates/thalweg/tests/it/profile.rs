//! Profiles: what a command uses, in the order option, environment, profile, default; and where secrets may
//! be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binary::{Broker, run, thalweg};
use super::node::Node;

/// A home directory without a profile.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        Home { dir: tempfile::tempdir().expect("a directory") }
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("thalweg/config.toml")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = thalweg(line);
        command.env_remove("THALWEG_CONFIG").env("XDG_CONFIG_HOME", self.dir.path());
        command
    }

    /// Its output, without a word on standard error.
    fn succeeds(&self, line: &str) -> String {
        let (code, out, error) = run(&mut self.command(line));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}: {out}");
        out
    }

    fn fails(&self, line: &str, code: i32, expected: &str) {
        let (ended, out, error) = run(&mut self.command(line));
        assert_eq!(ended, Some(code), "{line}: {out}{error}");
        assert!(error.contains(expected), "{line}: {error}");
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        path
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_profile_is_created_used_shown_and_deleted() {
    let home = Home::new();
    assert_eq!(home.succeeds("profile list"), "PROFILE  IN USE  BROKERS  SERVER\n");
    home.fails("profile show", 1, "no profile is in use");
    let settings = home.write("dev.properties", "security.protocol=PLAINTEXT\n", 0o644);
    let create =
        "profile create dev -b localhost:9,localhost:10 --server http://localhost:11 --set acks=all --use";
    let (code, out, error) = run(home.command(create).arg("--command-config").arg(&settings));
    assert_eq!(
        (code, out.as_str(), error.as_str()),
        (Some(0), "Created profile dev, which is in use now.\n", "")
    );
    assert_eq!(mode(&home.config()), 0o600);
    home.fails("profile create dev", 1, "there is a profile dev already: --replace replaces it");
    home.succeeds("profile create other -b localhost:1");
    let expected = "\
PROFILE  IN USE  BROKERS                   SERVER
dev      true    localhost:9,localhost:10  http://localhost:11
other    false   localhost:1               -
";
    assert_eq!(home.succeeds("profile list"), expected);
    let shown = home.succeeds("profile show --json");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["settings"], serde_json::json!({ "acks": "all" }));
    assert_eq!(shown["command_config"], settings.canonicalize().expect("a path").to_str().expect("text"));
    home.succeeds("profile use other");
    assert!(home.succeeds("profile show").contains("localhost:1\n"));
    assert_eq!(home.succeeds("profile use none"), "No profile is in use.\n");
    assert_eq!(home.succeeds("profile delete dev"), "Deleted profile dev.\n");
    home.fails("profile delete dev", 7, "there is no profile dev; it has other");
    home.fails("profile use dev", 7, "there is no profile dev");
    home.fails("topic list --profile dev", 2, "there is no profile dev");
}

#[test]
fn options_come_before_the_environment_the_profile_and_defaults() {
    let (of_option, of_environment, of_profile) = (Broker::start(), Broker::start(), Broker::start());
    for (broker, topic) in
        [(&of_option, "option"), (&of_environment, "environment"), (&of_profile, "profile")]
    {
        let created = run(thalweg("topic create").args([topic, "-b", &broker.address]));
        assert_eq!(created.0, Some(0), "{}", created.2);
    }
    let home = Home::new();
    home.succeeds(&format!("profile create p -b {}", of_profile.address));
    let listed = |line: &str, variables: &[(&str, &str)]| {
        let (code, out, error) = run(home.command(line).envs(variables.iter().copied()));
        assert_eq!(code, Some(0), "{line}: {error}");
        out
    };
    let environment = ("THALWEG_BOOTSTRAP_SERVER", of_environment.address.as_str());
    let with_option = format!("topic list -q --profile p -b {}", of_option.address);
    assert_eq!(listed(&with_option, &[environment]), "option\n");
    let with_setting = format!("topic list -q --profile p --set bootstrap.servers={}", of_option.address);
    assert_eq!(listed(&with_setting, &[environment]), "option\n");
    assert_eq!(listed("topic list -q --profile p", &[environment]), "environment\n");
    assert_eq!(listed("topic list -q --profile p", &[]), "profile\n");
    assert_eq!(listed("--profile p topic list -q", &[]), "profile\n");
    assert_eq!(listed("topic list -q", &[("THALWEG_PROFILE", "p")]), "profile\n");
    home.succeeds("profile use p");
    assert_eq!(listed("topic list -q", &[]), "profile\n");
    // A file of settings replaces those of the profile, and may name other brokers.
    let file = home.write("other.properties", &format!("bootstrap.servers={}\n", of_option.address), 0o600);
    let with_file = format!("topic list -q --command-config {}", file.display());
    assert_eq!(listed(&with_file, &[]), "option\n");
    home.fails("topic list --profile none -b localhost:1", 5, "localhost:1");
    // The format of results, too.
    home.write(
        "thalweg/config.toml",
        &format!(
            "profile = 'p'\n[profiles.p]\nbootstrap-server = '{}'\nformat = 'yaml'\n",
            of_profile.address
        ),
        0o600,
    );
    assert_eq!(listed("topic list -q", &[]), "- profile\n");
    assert_eq!(listed("topic list -q --json", &[]), "[\"profile\"]\n");
    assert_eq!(listed("topic list -q --format table", &[]), "profile\n");
}

#[test]
fn secrets_belong_to_their_owner_alone() {
    let home = Home::new();
    home.fails("profile create p --set sasl.password=hunter2", 2, "secrets are no arguments");
    let text = "[profiles.inline.settings]\n'ssl.key.password' = 'hunter2'\n\
                [profiles.named]\ncommand-config = '../login.properties'\n";
    home.write("thalweg/config.toml", text, 0o644);
    let login = home.write("login.properties", "ssl.key.password=hunter2\n", 0o644);
    let (code, out, error) = run(&mut home.command("profile show inline"));
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("[hidden]") && !out.contains("hunter2"), "{out}");
    let warning =
        |path: &Path| format!("has secrets, and other users may read it: `chmod 600 {}`\n", path.display());
    assert!(error.ends_with(&warning(&home.config())), "{error}");
    let (_, _, error) = run(&mut home.command("profile show named"));
    assert!(error.contains("login.properties has secrets, and other users may read it"), "{error}");
    for path in [&home.config(), &login] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    }
    home.succeeds("profile show inline");
    home.succeeds("profile show named");
}

#[test]
fn a_broken_file_stops_only_commands_that_use_it() {
    let home = Home::new();
    home.write("thalweg/config.toml", "[profiles.p]\nbootstrap = 'a:1'\n[profiles.q]\n", 0o600);
    home.fails("topic list --profile p", 2, "profiles.p.bootstrap: unknown: expected bootstrap-server, ");
    home.write("thalweg/config.toml", "profile = \n", 0o600);
    home.fails("topic list", 2, "TOML parse error at line 1");
    home.succeeds("lab list");
    // An editor that mends it.
    let editor = home.write("editor", "#!/bin/sh\necho \"[profiles.p]\" > \"$2\"\n", 0o755);
    let (code, _, error) =
        run(home.command("profile edit").env("EDITOR", format!("{} --wait", editor.display())));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(home.succeeds("profile list").contains("\np        false"), "it is there");
}

#[test]
fn a_secured_node_makes_a_profile() {
    let (data, home) = (tempfile::tempdir().expect("a directory"), Home::new());
    let node =
        Node::start_with(&data.path().join("data"), &["--secure"], &["listeners=SASL_SSL://127.0.0.1:0"]);
    let said = node.output();
    let settings = data.path().join("data-security/client.properties");
    let command = format!("thalweg profile create local --use --command-config {}", settings.display());
    assert!(said.contains(&command), "{said}");
    let line = command.strip_prefix("thalweg ").expect("it begins with the program");
    home.succeeds(line);
    home.succeeds("topic create orders");
    assert_eq!(home.succeeds("topic list -q"), "orders\n");
}
