//! Profiles in a configuration file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn file(text: &str) -> (tempfile::TempDir, anyhow::Result<ConfigFile>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config.toml");
    fs::write(&path, text).expect("a file");
    let read = ConfigFile::read_from(path);
    (dir, read)
}

fn failure(text: &str, name: &str) -> String {
    let (_dir, read) = file(text);
    read.and_then(|file| file.profile(name)).expect_err(text).to_string()
}

#[test]
fn a_profile_has_the_defaults_of_options() {
    let (dir, read) = file(
        "profile = 'prod'\n[profiles.prod]\nbootstrap-server = ['b1:9092', 'b2:9092']\ncommand-config = 'prod.properties'\n\
         ca = '/etc/ca.pem'\nformat = 'yaml'\n\
         [profiles.prod.settings]\nsecurity.protocol = 'SSL'\n'request.timeout.ms' = 5000\n[profiles.dev]\n",
    );
    let file = read.expect("a file");
    assert_eq!(file.names(), ["prod", "dev"]);
    let profile = file.in_use().expect("it is there");
    assert_eq!(profile.bootstrap_server.as_deref(), Some("b1:9092,b2:9092"));
    assert_eq!(profile.command_config, Some(dir.path().join("prod.properties")));
    assert_eq!(profile.ca, Some(PathBuf::from("/etc/ca.pem")));
    assert_eq!(profile.format.as_deref(), Some("yaml"));
    let settings: Vec<_> = profile.settings.into_iter().collect();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(settings, [pair("request.timeout.ms", "5000"), pair("security.protocol", "SSL")]);
    assert_eq!(
        file.profile("dev").expect("it is there"),
        Profile { name: "dev".to_owned(), ..Profile::default() }
    );
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, expected) in [
        ("profil = 'x'", "config.toml: profil: unknown: expected profile or [profiles.NAME]"),
        ("profile = 3", "config.toml: profile: expected the name of a profile"),
        ("profiles = 3", "config.toml: profiles: expected tables: [profiles.NAME]"),
        (
            "[profiles.x]\nbootstrap = 'a:1'",
            "config.toml: profiles.x.bootstrap: unknown: expected bootstrap-server, ",
        ),
        (
            "[profiles.x]\nbootstrap-server = 1",
            "config.toml: profiles.x.bootstrap-server: expected a text in quotes",
        ),
        (
            "[profiles.x]\nsettings = 1",
            "config.toml: profiles.x.settings: expected a table of client settings",
        ),
        (
            "[profiles.x.settings]\na.b = []",
            "config.toml: profiles.x.settings.a.b: expected a text, a number, ",
        ),
        ("[profiles.x]\nformat = 'xml'", "config.toml: profiles.x.format: xml: expected table, json, yaml"),
        ("[profiles.y]", "config.toml: there is no profile x; it has y"),
        ("", "config.toml: there is no profile x; it has none"),
        ("[profiles.x", "config.toml: TOML parse error at line 1, column 12"),
    ] {
        let failure = failure(text, "x");
        assert!(failure.contains(expected), "{text}: {failure}");
    }
}

#[test]
fn comments_survive_changes() {
    let (dir, read) =
        file("# mine\nprofile = \"old\" # in use\n\n[profiles.old]\nserver = \"http://a:1\" # the node\n");
    let mut file = read.expect("a file");
    let profile = Profile {
        name: "new".to_owned(),
        bootstrap_server: Some("b:1".to_owned()),
        settings: BTreeMap::from([("security.protocol".to_owned(), "SSL".to_owned())]),
        ..Profile::default()
    };
    file.put(&profile).expect("a name");
    file.set_in_use(Some("new"));
    file.write().expect("it is written");
    let path = dir.path().join("config.toml");
    let text = fs::read_to_string(&path).expect("a file");
    assert!(text.starts_with("# mine\nprofile = \"new\" # in use\n"), "{text}");
    assert!(text.contains("# mine\n") && text.contains("server = \"http://a:1\" # the node\n"), "{text}");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let mut again = ConfigFile::read_from(path).expect("a file");
    assert_eq!(again.in_use().expect("it is there"), profile);
    again.remove("new").expect("it is there");
    assert_eq!((again.names(), again.name_in_use()), (vec!["old".to_owned()], None));
    again.remove("new").expect_err("it is gone");
}

#[test]
fn names_stand_in_a_shell() {
    for name in ["", "none", "a b", "a/b", "ä", &"x".repeat(65)] {
        check_name(name).expect_err(name);
    }
    for name in ["prod", "eu-west.1", "A_b"] {
        check_name(name).expect(name);
    }
}
