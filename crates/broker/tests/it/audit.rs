//! The audit trail: what a client does, and may not do, is in the file and in the topic, once.

use crate::records::{Topic, batch, fetch, fetch_partition, fetched_bytes, produce, values_of};
use crate::running::{RunningBroker, configuration};
use crate::sasl::log_in;
use crate::tls::{self, Certificates};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use thalweg_broker::metrics::Exposition;
use thalweg_dial::Connection;
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::create_acls_request::AclCreation;
use thalweg_wire::request::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use thalweg_wire::request::*;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const AUTHORIZER: (&str, &str) =
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
const SUPER_USERS: (&str, &str) = ("super.users", "User:admin");

/// A broker with an authorizer, where clients without a name have one listener, and users have another.
async fn start(dir: &Path, more: &[(&str, &str)]) -> RunningBroker {
    let own = [AUTHORIZER, SUPER_USERS, ("auto.create.topics.enable", "false")];
    let properties = [&own[..], more].concat();
    crate::sasl::start(dir, &properties).await
}

async fn admin(broker: &RunningBroker) -> Connection {
    log_in(broker, "PLAIN", "admin", "admin-secret").await.expect("the administrator is known")
}

fn creation(name: &str) -> CreateTopicsRequest {
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() }
}

/// An ACL about a topic for clients without a name: 2 denies, 3 allows.
async fn add_acl(admin: &Connection, topic: &str, operation: i8, permission_type: i8) {
    let creation = AclCreation {
        resource_type: 2,
        resource_name: topic.to_owned(),
        resource_pattern_type: 3,
        principal: "User:ANONYMOUS".to_owned(),
        host: "*".to_owned(),
        operation,
        permission_type,
    };
    let answer = admin.send(&CreateAclsRequest { creations: vec![creation] }).await.expect("an answer");
    assert_eq!(answer.results[0].error_code, 0);
}

async fn try_to_produce(broker: &RunningBroker, topic: &Topic) -> i16 {
    let mut answer = broker.ask_at(&produce(12, topic, 0, -1, batch(&[b"value"])), 12).await;
    answer.responses.remove(0).partition_responses.remove(0).error_code
}

fn by_name(name: &str) -> Topic {
    Topic { name: name.to_owned(), ..Topic::unknown() }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("there is a file");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// The events in a topic; none while it cannot be read.
async fn events(connection: &Connection, topic: &str) -> Vec<Value> {
    let fetch = fetch(12, &by_name(topic), vec![fetch_partition(0, 0)]);
    let mut answer = connection.send_at(&fetch, 12).await.expect("an answer");
    let data = answer.responses.remove(0).partitions.remove(0);
    if data.error_code != 0 {
        return Vec::new();
    }
    let values = values_of(&fetched_bytes(&data)).into_iter();
    values.map(|(_, value)| serde_json::from_slice(&value).expect("JSON")).collect()
}

/// The same, once there is one of a kind about a resource.
async fn events_with(connection: &Connection, topic: &str, code: &str, name: &str) -> Vec<Value> {
    for _ in 0..400 {
        let found = events(connection, topic).await;
        if !about(&found, code, name).is_empty() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no event {code} about {name} in {topic}");
}

/// The lines of a kind about a resource or a user.
fn about<'a>(lines: &'a [Value], code: &str, name: &str) -> Vec<&'a Value> {
    let is_about = |line: &&Value| {
        line["metadata"]["event_code"] == code
            && (line["resources"][0]["name"] == name || line["user"]["name"] == name)
    };
    lines.iter().filter(is_about).collect()
}

fn only<'a>(lines: &'a [Value], code: &str, name: &str) -> &'a Value {
    let found = about(lines, code, name);
    assert_eq!(found.len(), 1, "{code} about {name} in {lines:#?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_logins_and_changes_are_in_the_file_once_each() {
    let (dir, trail) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = trail.path().join("audit.log");
    let file = ("thalweg.audit.file", path.to_str().expect("UTF-8"));
    let broker = start(dir.path(), &[file]).await;
    let administrator = admin(&broker).await;
    let created = administrator.send(&creation("orders")).await.expect("an answer");
    assert_eq!(created.topics[0].error_code, 0);

    assert_eq!(try_to_produce(&broker, &by_name("orders")).await, 29);
    assert_eq!(broker.ask(&creation("secret")).await.topics[0].error_code, 29);
    add_acl(&administrator, "ledger", 4, 2).await;
    assert_eq!(try_to_produce(&broker, &by_name("ledger")).await, 29);
    let wrong = log_in(&broker, "SCRAM-SHA-512", "mallory", "guess").await;
    assert!(wrong.is_err(), "there is no such user");
    assert!(log_in(&broker, "PLAIN", "ann", "guess").await.is_err(), "it is another password");
    administrator.close();
    broker.stop().await;

    let lines = lines(&path);
    let denied = only(&lines, "authorization.denied", "orders");
    assert_eq!(denied["actor"]["user"]["uid"], "User:ANONYMOUS");
    assert_eq!(denied["actor"]["authorizations"][0]["policy"]["name"], "DefaultDeny");
    assert_eq!(
        (&denied["api"]["operation"], &denied["unmapped"]["operation"]),
        (&"Produce".into(), &"WRITE".into())
    );
    assert_eq!((&denied["src_endpoint"]["ip"], &denied["status"]), (&"127.0.0.1".into(), &"Failure".into()));
    assert_eq!(denied["dst_endpoint"]["interface_name"], "PLAINTEXT");
    assert_eq!(denied["dst_endpoint"]["uid"], "1");

    let by_controller = only(&lines, "authorization.denied", "secret");
    assert_eq!(by_controller["actor"]["user"]["uid"], "User:ANONYMOUS");
    assert_eq!(by_controller["api"]["operation"], "CreateTopics");
    assert_eq!(by_controller["unmapped"]["operation"], "CREATE");
    assert_eq!(by_controller["actor"]["authorizations"][0]["policy"]["name"], "DefaultDeny");
    let not_created = only(&lines, "administration", "secret");
    assert_eq!(not_created["status_code"], "TOPIC_AUTHORIZATION_FAILED");

    let by_acl = only(&lines, "authorization.denied", "ledger");
    let policy = &by_acl["actor"]["authorizations"][0]["policy"];
    assert_eq!(policy["name"], "MatchingAcl");
    let acl = "StandardAcl[resourceType=TOPIC, resourceName=ledger, patternType=LITERAL, principal=User:ANONYMOUS, host=*, \
               operation=WRITE, permissionType=DENY]";
    assert_eq!(policy["desc"], acl);

    let created = only(&lines, "administration", "orders");
    assert_eq!((&created["activity_name"], &created["status"]), (&"Create".into(), &"Success".into()));
    assert_eq!(created["actor"]["user"]["uid"], "User:admin");
    assert_eq!(created["unmapped"]["mechanism"], "PLAIN");
    assert_eq!(created["dst_endpoint"]["interface_name"], "CLIENTS");
    assert_eq!(created["unmapped"]["detail"], "partitions=1 replication.factor=1");
    let added = only(&lines, "administration", "User:ANONYMOUS");
    assert_eq!((&added["resources"][0]["type"], &added["unmapped"]["detail"]), (&"Acl".into(), &acl.into()));

    let failed = only(&lines, "login.failed", "mallory");
    assert_eq!(failed["auth_protocol"], "SCRAM-SHA-512");
    assert!(failed["status_detail"].as_str().is_some_and(|reason| !reason.is_empty()), "{failed}");
    assert_eq!(only(&lines, "login.failed", "ann")["auth_protocol"], "PLAIN");
    let logged_in = only(&lines, "login.succeeded", "admin");
    assert_eq!((&logged_in["class_uid"], &logged_in["status"]), (&3002.into(), &"Success".into()));
    let permissions = lines.iter().filter(|line| line["metadata"]["event_code"] == "authorization.allowed");
    assert_eq!(permissions.count(), 0, "they were not asked for");
    let text = std::fs::read_to_string(&path).expect("there is a file");
    for secret in ["admin-secret", "guess"] {
        assert!(!text.contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_at_once_hides_nothing() {
    let (dir, trail) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = trail.path().join("audit.log");
    let broker = start(
        dir.path(),
        &[("thalweg.audit.file", path.to_str().expect("UTF-8")), ("allow.everyone.if.no.acl.found", "true")],
    )
    .await;
    for number in 0..20 {
        let mut stream = TcpStream::connect(broker.address()).await.expect("it listens");
        let request = creation(&format!("hit-{number}"));
        let frame = encode_request(&request, 7, 1, Some("runner")).expect("a request");
        stream.write_all(&frame).await.expect("it reads");
        drop(stream);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let image = broker.server().broker.image();
    let created: Vec<_> = (0..20).filter(|number| image.topic(&format!("hit-{number}")).is_some()).collect();
    broker.stop().await;
    let lines = lines(&path);
    for number in created {
        let change = only(&lines, "administration", &format!("hit-{number}"));
        assert_eq!(change["actor"]["app_name"], "runner");
    }
}

fn metrics(broker: &RunningBroker) -> String {
    let mut page = Exposition::default();
    broker.server().metrics.expose(&mut page);
    page.into_text()
}

fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_denials_is_bounded_and_what_is_missing_is_counted() {
    let (dir, trail) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = trail.path().join("audit.log");
    let file = ("thalweg.audit.file", path.to_str().expect("UTF-8"));
    let broker = start(dir.path(), &[file, ("thalweg.audit.events.per.second", "3")]).await;
    for _ in 0..60 {
        assert_eq!(try_to_produce(&broker, &by_name("orders")).await, 29);
    }
    // The next second has room again.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(try_to_produce(&broker, &by_name("orders")).await, 29);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let page = metrics(&broker);
    broker.stop().await;
    let lines = lines(&path);
    let written = about(&lines, "authorization.denied", "orders").len() as u64;
    let reported: u64 = lines.iter().filter_map(|line| line["unmapped"]["dropped"]["denied"].as_u64()).sum();
    assert_eq!(written + reported, 61);
    assert!(reported > 0 && written >= 3, "{written} written, {reported} dropped");
    let of = |reason| {
        format!("thalweg_audit_events_dropped_total{{outlet=\"file\",kind=\"denied\",reason=\"{reason}\"}}")
    };
    assert_eq!((metric(&page, &of("rate")), metric(&page, &of("queue"))), (reported, 0));
    assert_eq!(metric(&page, "thalweg_audit_events_total{kind=\"denied\"}"), written);
    let reports = lines.iter().filter(|line| line["metadata"]["event_code"] == "audit.dropped").count();
    assert!(reports <= 4, "{reports} reports");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_in_a_topic_are_read_by_its_consumers_and_cause_no_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = ("thalweg.audit.events", "all");
    let broker = start(dir.path(), &[("thalweg.audit.topic", "audit"), all]).await;
    let administrator = admin(&broker).await;
    assert_eq!(try_to_produce(&broker, &by_name("orders")).await, 29);
    let found = events_with(&administrator, "audit", "authorization.denied", "orders").await;
    assert_eq!(only(&found, "authorization.denied", "orders")["unmapped"]["operation"], "WRITE");
    // Reading the trail, and writing it, is no event: nothing more comes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = events(&administrator, "audit").await.len();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(events(&administrator, "audit").await.len(), before);
    }
    administrator.close();
    broker.stop().await;
}

/// A broker of a cluster whose events go to the topic `audit`: it joins a controller, or has it.
async fn member(dir: &Path, node_id: &str, controller: Option<&str>) -> RunningBroker {
    let mut properties = vec![("node.id", node_id), ("thalweg.audit.topic", "audit")];
    match controller {
        None => properties.extend([
            ("process.roles", "broker,controller"),
            ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
        ]),
        Some(address) => {
            properties.extend([("process.roles", "broker"), ("controller.quorum.bootstrap.servers", address)])
        }
    }
    RunningBroker::start(dir, &properties).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_a_topic_of_another_broker_and_are_counted_while_it_is_away() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let first = member(dirs[0].path(), "1", None).await;
    let controller = tls::address(&first, "CONTROLLER");
    let second = member(dirs[1].path(), "2", Some(&controller)).await;
    let third = member(dirs[2].path(), "3", Some(&controller)).await;
    let all_are_alive = || first.server().broker.image().alive_brokers().count() == 3;
    for _ in 0..400 {
        if all_are_alive() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let assignments = vec![CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![2] }];
    let topic = CreatableTopic {
        name: "audit".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
    let created = first.ask(&request).await.topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);

    for (broker, id, name) in [(&first, "1", "by-first"), (&third, "3", "by-third")] {
        assert_eq!(broker.ask(&creation(name)).await.topics[0].error_code, 0);
        let found = events_with(second.connection(), "audit", "administration", name).await;
        assert_eq!(only(&found, "administration", name)["dst_endpoint"]["uid"], id);
    }

    second.stop().await;
    assert_eq!(first.ask(&creation("meanwhile")).await.topics[0].error_code, 0, "the broker goes on");
    let of =
        "thalweg_audit_events_dropped_total{outlet=\"topic\",kind=\"administration\",reason=\"unwritten\"}";
    for _ in 0..300 {
        if metric(&metrics(&first), of) > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((metric(&metrics(&first), of), metric(&metrics(&third), of)), (1, 0));

    let second = member(dirs[1].path(), "2", Some(&controller)).await;
    assert_eq!(first.ask(&creation("after")).await.topics[0].error_code, 0);
    let found = events_with(second.connection(), "audit", "administration", "after").await;
    assert_eq!(about(&found, "administration", "meanwhile").len(), 0, "it was dropped");
    let reported = async || {
        let found = events(second.connection(), "audit").await;
        found.iter().filter_map(|line| line["unmapped"]["dropped"]["administration"].as_u64()).sum::<u64>()
    };
    for _ in 0..100 {
        if reported().await > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(reported().await, 1);
    for broker in [third, second, first] {
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_by_client_certificate_are_in_the_file() {
    let certificates = Certificates::new();
    let (data, trail) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = trail.path().join("audit.log");
    let broker =
        certificates.start(data.path(), &[("thalweg.audit.file", path.to_str().expect("UTF-8"))]).await;
    let required = tls::address(&broker, "REQUIRED");
    let ask = async |own: Option<&str>| tls::ask(&required, &certificates.options("ca.pem", own, &[])).await;
    ask(Some("client.pem")).await.expect("its certificate is good").close();
    for own in [Some("stranger.pem"), Some("expired.pem"), None] {
        assert!(ask(own).await.is_err(), "{own:?}");
    }
    broker.stop().await;

    let lines = lines(&path);
    let accepted = only(&lines, "login.succeeded", "CN=client");
    assert_eq!((&accepted["auth_protocol"], &accepted["class_uid"]), (&"SSL".into(), &3002.into()));
    assert_eq!(accepted["user"]["uid"], "User:CN=client");
    assert_eq!(accepted["dst_endpoint"]["interface_name"], "REQUIRED");
    assert_eq!(accepted["unmapped"]["tls_version"], "TLSv1.3");
    let failed: Vec<_> =
        lines.iter().filter(|line| line["metadata"]["event_code"] == "login.failed").collect();
    for words in ["signed by none that ssl.truststore.location trusts", "has expired", "shows no certificate"]
    {
        let with_it = failed.iter().filter(|line| {
            line["status_detail"].as_str().is_some_and(|detail| detail.contains(words))
                && line["auth_protocol"] == "SSL"
                && line["dst_endpoint"]["interface_name"] == "REQUIRED"
                && line["src_endpoint"]["ip"] == "127.0.0.1"
        });
        assert_eq!(with_it.count(), 1, "{words}: {lines:#?}");
    }
    assert_eq!(failed.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_cannot_be_written_drops_events_and_the_broker_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    // One broker cannot have three replicas.
    let topic = [("thalweg.audit.topic", "audit"), ("default.replication.factor", "3")];
    let broker = start(dir.path(), &topic).await;
    assert_eq!(try_to_produce(&broker, &by_name("orders")).await, 29);
    let of = "thalweg_audit_events_dropped_total{outlet=\"topic\",kind=\"denied\",reason=\"unwritten\"}";
    for _ in 0..300 {
        if metric(&metrics(&broker), of) == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(metric(&metrics(&broker), of), 1);
    assert_eq!(try_to_produce(&broker, &by_name("orders")).await, 29);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written_is_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("directory")).expect("it can be made");
    for (file, reason) in
        [("missing/audit.log", "its directory does not exist"), ("directory", "it cannot be written")]
    {
        let path = dir.path().join(file);
        let path = path.to_str().expect("UTF-8");
        let config = configuration(&dir.path().join("data"), &[("thalweg.audit.file", path)]);
        let error = match thalweg_broker::start(config).await {
            Ok(_) => panic!("{path} was taken"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("thalweg.audit.file") && error.contains(reason), "{error}");
    }
}
