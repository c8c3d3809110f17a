//! Lines in files: bounded in rate, size and number; a disk that fails drops events and nothing else.

use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use thalweg_audit::{Client, DropReason, EventContent, Login, Origin, Trail, TrailFile};
use thalweg_config::{AuditKind, AuditSettings, BrokerConfig, ServerProperties};
use thalweg_log::Clock;
use thalweg_log::disk::{Disk, Faults};
use tokio::task::JoinHandle;

fn settings(more: &[(&str, &str)]) -> AuditSettings {
    let mut properties = ServerProperties::default();
    for (key, value) in more {
        properties.set(key, value);
    }
    BrokerConfig::new(&properties).expect("valid settings").audit
}

/// A trail that writes to a file.
fn begin(disk: &Disk, path: &Path, more: &[(&str, &str)]) -> (Arc<Trail>, JoinHandle<()>) {
    let settings = settings(more);
    let file = TrailFile::open(disk, path, &settings).expect("it can be opened");
    let mut trail = Trail::new(&settings, Clock::system());
    let inbox = trail.add_outlet("file", Origin { node_id: 1, cluster_id: "cluster".to_owned() });
    (Arc::new(trail), tokio::spawn(file.run(inbox)))
}

async fn end(trail: Arc<Trail>, writing: JoinHandle<()>) {
    trail.close("file");
    writing.await.expect("it ends");
}

fn log_in(trail: &Trail, user: &str) {
    trail.record(AuditKind::Logins, user, || {
        let client = Client { principal: format!("User:{user}"), ..Client::default() };
        (client, EventContent::Login(Login { is_again: false, failure: None }))
    });
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("there is a file");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn users(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["user"]["name"].as_str()).collect()
}

fn dropped(trail: &Trail, reason: DropReason) -> u64 {
    let figures = trail.figures().next().expect("there is an outlet");
    figures.dropped.iter().filter(|(_, why, _)| *why == reason).map(|(_, _, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_files_are_renamed_and_the_oldest_are_deleted() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("audit.log");
    let bounds = [("thalweg.audit.file.max.bytes", "4096"), ("thalweg.audit.file.count", "3")];
    let (trail, writing) = begin(&Disk::real(), &path, &bounds);
    for number in 0..100 {
        log_in(&trail, &format!("user-{number}"));
    }
    end(trail, writing).await;
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
    names.sort_by_key(|entry| entry.as_ref().expect("an entry").file_name());
    let names: Vec<_> = names.into_iter().map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2", "audit.log.lock"]);
    let mut kept = Vec::new();
    for name in ["audit.log.2", "audit.log.1", "audit.log"] {
        let path = dir.path().join(name);
        assert!(std::fs::metadata(&path).expect("a file").len() <= 4096, "{name}");
        kept.extend(lines(&path));
    }
    let sequence: Vec<_> =
        kept.iter().map(|line| line["metadata"]["sequence"].as_u64().expect("a number")).collect();
    let first = sequence[0];
    assert!(first > 1, "the first ones are gone");
    assert_eq!(sequence, (first..=100).collect::<Vec<_>>(), "the last ones are there, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_events_of_one_kind_are_counted_and_reported_and_others_go_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("audit.log");
    let (trail, writing) = begin(
        &Disk::real(),
        &path,
        &[("thalweg.audit.events.per.second", "10"), ("thalweg.audit.events", "all")],
    );
    for _ in 0..1000 {
        log_in(&trail, "ann");
    }
    let rest = dropped(&trail, DropReason::Rate);
    assert!((900..=993).contains(&rest), "{rest} of 1000: a quarter of the room is for others");
    trail.record(AuditKind::Administration, "User:ann", || {
        let change = thalweg_audit::Change {
            request: "CreateTopics".to_owned(),
            action: thalweg_audit::Action::Create,
            resource_type: "Topic",
            resource_name: "orders".to_owned(),
            detail: None,
            failure: None,
        };
        (Client::default(), EventContent::Change(change))
    });
    end(trail, writing).await;
    let lines = lines(&path);
    assert_eq!(users(&lines).len() as u64, 1000 - rest);
    assert!(lines.iter().any(|line| line["resources"][0]["name"] == "orders"), "a flood hides no other kind");
    let reported: u64 = lines.iter().filter_map(|line| line["unmapped"]["dropped"]["logins"].as_u64()).sum();
    assert_eq!(reported, rest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_drops_events_until_it_has_room() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("audit.log");
    let faults = Arc::new(Faults::default());
    let (trail, writing) = begin(&Disk::with_faults(Arc::clone(&faults)), &path, &[]);
    let until = async |what: &str, holds: &dyn Fn() -> bool| {
        for _ in 0..600 {
            if holds() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{what}");
    };
    let written = || trail.figures().next().expect("an outlet").written;
    log_in(&trail, "before");
    until("it is written", &|| written() == 1).await;
    faults.set_free_bytes(Some(0));
    for _ in 0..5 {
        log_in(&trail, "meanwhile");
    }
    until("they are dropped", &|| dropped(&trail, DropReason::Unwritten) == 5).await;
    faults.set_free_bytes(None);
    log_in(&trail, "after");
    until("it is written", &|| written() == 2).await;
    end(trail, writing).await;
    let lines = lines(&path);
    assert_eq!(users(&lines), ["before", "after"]);
    let reported: u64 = lines.iter().filter_map(|line| line["unmapped"]["dropped"]["logins"].as_u64()).sum();
    assert_eq!(reported, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trail_goes_on_behind_its_last_whole_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("audit.log");
    std::fs::write(&path, "{\"user\":{\"name\":\"old\"}}\n{\"user\":{\"na").expect("it can be written");
    let (trail, writing) = begin(&Disk::real(), &path, &[]);
    log_in(&trail, "new");
    end(trail, writing).await;
    assert_eq!(users(&lines(&path)), ["old", "new"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_cannot_read_the_trail() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("audit.log");
    let mode = |name: &str| {
        let facts = std::fs::metadata(dir.path().join(name)).expect(name);
        facts.permissions().mode() & 0o777
    };
    // From before: one that everyone may read, and one that a collector's group may.
    for (name, mode) in [("audit.log.1", 0o644), ("audit.log.2", 0o640)] {
        let path = dir.path().join(name);
        std::fs::write(&path, "{}\n").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let bounds = [("thalweg.audit.file.max.bytes", "4096"), ("thalweg.audit.file.count", "5")];
    let (trail, writing) = begin(&Disk::real(), &path, &bounds);
    assert_eq!([mode("audit.log"), mode("audit.log.1"), mode("audit.log.2")], [0o600, 0o640, 0o640]);
    for number in 0..15 {
        log_in(&trail, &format!("user-{number}"));
    }
    end(trail, writing).await;
    assert!(dir.path().join("audit.log.3").exists(), "it was rotated");
    assert_eq!([mode("audit.log"), mode("audit.log.1")], [0o600, 0o600]);
}

#[test]
fn what_cannot_be_a_trail_is_refused_by_the_name_of_the_setting() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let foreign = dir.path().join("server.properties");
    std::fs::write(&foreign, "node.id=1\n").expect("it can be written");
    let directory = dir.path().join("directory");
    std::fs::create_dir(&directory).expect("it can be made");
    let used = dir.path().join("used.log");
    let open = |path: &Path| TrailFile::open(&Disk::real(), path, &settings(&[]));
    let _held = open(&used).expect("nobody uses it");
    for (path, expected) in [
        (dir.path().join("missing/audit.log"), "its directory does not exist"),
        (directory, "it cannot be written"),
        (foreign.clone(), "it begins like no audit trail"),
        (used, "another process writes to it"),
    ] {
        let error = open(&path).expect_err(expected).to_string();
        assert!(error.starts_with(&format!("thalweg.audit.file={}: {expected}", path.display())), "{error}");
    }
    assert_eq!(std::fs::read_to_string(foreign).expect("it is there"), "node.id=1\n");
}
