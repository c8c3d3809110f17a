//! The same requests to a broker of Apache Kafka with the same ACLs: the answers are compared.
//! They need Kafka's jars: set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`.

use super::{OPEN, USERS, address_of_admin, admin, allow, fill, start};
use crate::authorization::probes::{Names, probes};
use crate::records::Topic;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use thalweg_broker::api::all_served;
use thalweg_controller::takes_forwarded;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_ports::free_port;
use thalweg_security::acl::{CLUSTER_NAME, Operation, ResourceType};
use thalweg_wire::{ApiKey, Uuid};

const JVM_OPTIONS: [&str; 4] =
    ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true"];

/// Decisions that grant or refuse something, and errors.
const LOGGING: &str = r#"<Configuration>
  <Appenders><Console name="out"><PatternLayout pattern="%m%n"/></Console></Appenders>
  <Loggers>
    <Root level="ERROR"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.authorizer.logger" level="DEBUG"/>
  </Loggers>
</Configuration>"#;

/// A node of Apache Kafka that is broker and controller, as a child process.
struct Node {
    dir: TempDir,
    process: Child,
    clients: String,
    admin: String,
}

impl Node {
    #[expect(clippy::disallowed_types, reason = "the log of a child process is no data of a broker")]
    async fn start(classpath: &str) -> Node {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [clients, admin, controller] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
        let mut text = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             listeners=PLAINTEXT://{clients},ADMIN://{admin},CONTROLLER://{controller}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=ADMIN\n\
             controller.quorum.bootstrap.servers={controller}\nlog.dirs={}\nsuper.users=User:admin\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n\
             sasl.mechanism.controller.protocol=PLAIN\noffsets.topic.num.partitions=1\n\
             offsets.topic.replication.factor=1\ntransaction.state.log.num.partitions=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.retention.ms=-1\n\
             share.coordinator.state.topic.num.partitions=1\nshare.coordinator.state.topic.min.isr=1\n\
             share.coordinator.state.topic.replication.factor=1\n",
            dir.path().join("data").display(),
        );
        for listener in ["admin", "controller"] {
            text.push_str(&format!("listener.name.{listener}.plain.sasl.jaas.config={USERS}\n"));
        }
        let properties = dir.path().join("server.properties");
        std::fs::write(&properties, text).expect("it can be written");
        std::fs::write(dir.path().join("log4j2.xml"), LOGGING).expect("it can be written");
        let java = |class: &str| {
            let mut command = Command::new("java");
            command.env("CLASSPATH", classpath).current_dir(dir.path()).args(JVM_OPTIONS);
            command.arg("-Dlog4j2.configurationFile=log4j2.xml").arg(class);
            command
        };
        let mut format = java("kafka.tools.StorageTool");
        format.args(["format", "--cluster-id", "authorized-authorized-", "--standalone", "--config"]);
        let output = format.arg(&properties).output().expect("java is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let log = std::fs::File::create(dir.path().join("log")).expect("a log can be opened");
        let mut command = java("kafka.Kafka");
        command.arg(&properties).stdin(Stdio::null());
        command.stderr(log.try_clone().expect("a descriptor")).stdout(log);
        let process = command.spawn().expect("java is installed");
        let node = Node { process, clients, admin, dir };
        super::until("Apache Kafka listens", async || {
            Connection::connect(&node.clients, &ConnectionOptions::default()).await.is_ok()
        })
        .await;
        node
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// ACLs that are added, one set after the other.
const SETS: [&[(ResourceType, &str, Operation)]; 6] = {
    use Operation::*;
    use ResourceType::*;
    [
        &[],
        &[(Topic, "topic", Describe), (Group, "group", Describe), (TransactionalId, "id", Describe)],
        &[(Topic, "topic", Read), (Group, "group", Read)],
        &[(Topic, "topic", Write), (TransactionalId, "id", Write), (Topic, "topic", DescribeConfigs)],
        &[(Cluster, CLUSTER_NAME, Describe), (Group, "group", DescribeConfigs)],
        &[(Cluster, CLUSTER_NAME, DescribeConfigs), (Cluster, CLUSTER_NAME, Create)],
    ]
};

/// The APIs that brokers forward.
fn of_controller() -> impl Iterator<Item = ApiKey> {
    all_served().map(|api| api.key).filter(|key| takes_forwarded(*key))
}

/// Whether Kafka has accepted the member, and says nothing of the partition, because it is still loading its
/// state.
fn is_unloaded(key: ApiKey, answer: &str) -> bool {
    key == ApiKey::ShareFetch && answer.contains(" error_code: 0, ") && answer.contains(" responses: [], ")
}

/// The answers are as Kafka's, for every API, with each set of ACLs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_apache_kafka_with_the_same_acls() {
    let Some(classpath) = crate::apache::jars() else { return };
    let kafka = Node::start(&classpath).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ours = start(dir.path(), &[]).await;
    let admins = [admin(&kafka.admin).await, admin(&address_of_admin(&ours)).await];
    let names =
        [fill(&admins[0], "topic", "group", "id").await, fill(&admins[1], "topic", "group", "id").await];
    let missing = Names {
        topic: Topic { name: "absent".to_owned(), id: Uuid(0x0123_4567_89ab_4def_8123_4567_89ab_cdef) },
        group: "absent".to_owned(),
        id: "absent".to_owned(),
    };
    let mut different = Vec::new();
    let mut compared = 0;
    for (set, acls) in SETS.iter().enumerate() {
        for admin in &admins {
            allow(admin, acls).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        // What the controller decides is compared with no ACLs and with all of them.
        let is_whole = set == 0 || set == SETS.len() - 1;
        let asked = |key: ApiKey| !OPEN.contains(&key) && (is_whole || !takes_forwarded(key));
        for api in all_served().filter(|api| asked(api.key)) {
            let of_missing = || probes(api.key, &missing);
            let all = [&names[0], &names[1]].map(|names| [probes(api.key, names), of_missing()].concat());
            let [theirs, own] = all;
            for (theirs, own) in theirs.iter().zip(&own) {
                let text = |answer: String, id: Uuid| answer.replace(&format!("{id:?}"), "ID");
                let expected = text(theirs.ask(&kafka.clients).await, names[0].topic.id);
                let answer = text(own.ask(ours.address()).await, names[1].topic.id);
                compared += 1;
                if expected != answer && !is_unloaded(own.key, &expected) {
                    let (key, version) = (own.key, own.version);
                    different.push(format!(
                        "{key:?} {version}, set {set}\n  Kafka: {expected}\n  ours:  {answer}"
                    ));
                }
            }
        }
    }
    assert!(different.is_empty(), "{} of {compared} differ:\n{}", different.len(), different.join("\n"));
    admins.iter().for_each(Connection::close);
    ours.stop().await;
}

/// The decisions about clients without a name that Kafka has logged, by API.
fn logged(node: &Node) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(node.dir.path().join("log")).expect("it has a log");
    by_api(text.lines().map(str::to_owned))
}

/// The decisions that are in a trail, in the words of Kafka's log.
fn recorded(trail: &Path) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(trail).expect("there is a trail");
    let line = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = |pointer: &str| event.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default();
        let policy = text("/actor/authorizations/0/policy/name");
        let rule = match policy {
            "MatchingAcl" => format!("MatchingAcl(acl={})", text("/actor/authorizations/0/policy/desc")),
            other => other.to_owned(),
        };
        let decided = match text("/metadata/event_code") {
            "authorization.denied" => "Denied",
            "authorization.allowed" => "Allowed",
            _ => return None,
        };
        Some(format!(
            "Principal = {} is {decided} operation = {} from host = {} on resource = {}:{}:{} for request = {} with \
             resourceRefCount = {} based on rule {rule}",
            text("/actor/user/uid"),
            text("/unmapped/operation"),
            text("/src_endpoint/ip"),
            text("/resources/0/type"),
            text("/unmapped/pattern_type"),
            text("/resources/0/name"),
            text("/api/operation"),
            event["unmapped"]["resource_ref_count"],
        ))
    };
    by_api(text.lines().filter_map(line))
}

fn by_api(lines: impl Iterator<Item = String>) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines.filter(|line| line.starts_with("Principal = User:ANONYMOUS ")) {
        let api = line.split("for request = ").nth(1).and_then(|rest| rest.split(' ').next());
        found.entry(api.unwrap_or_default().to_owned()).or_default().push(line);
    }
    found.values_mut().for_each(|lines| lines.sort());
    found
}

/// The decisions of the controller are Kafka's, in number and words, when it is asked for the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_of_the_controller_are_logged_as_by_apache_kafka() {
    let Some(classpath) = crate::apache::jars() else { return };
    let kafka = Node::start(&classpath).await;
    let (dir, trail) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = trail.path().join("audit.log");
    let audit = [
        ("thalweg.audit.file", path.to_str().expect("UTF-8")),
        ("thalweg.audit.events", "all"),
        ("thalweg.audit.events.per.second", "1000000"),
    ];
    let ours = start(dir.path(), &audit).await;
    let admins = [admin(&kafka.admin).await, admin(&address_of_admin(&ours)).await];
    let names =
        [fill(&admins[0], "topic", "group", "id").await, fill(&admins[1], "topic", "group", "id").await];
    let id = Uuid(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
    let missing = Names {
        topic: Topic { name: "absent".to_owned(), id },
        group: "absent".to_owned(),
        id: "absent".to_owned(),
    };
    for acls in [SETS[0], SETS[1], SETS[5]] {
        for admin in &admins {
            allow(admin, acls).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        for key in of_controller() {
            let all =
                [&names[0], &names[1]].map(|names| [probes(key, names), probes(key, &missing)].concat());
            for (theirs, own) in all[0].iter().zip(&all[1]) {
                theirs.ask(&kafka.clients).await;
                own.ask(ours.address()).await;
            }
        }
    }
    admins.iter().for_each(Connection::close);
    ours.stop().await;
    let (expected, found) = (logged(&kafka), recorded(&path));
    let mut compared = 0;
    for key in of_controller() {
        let of = |lines: &BTreeMap<String, Vec<String>>| {
            lines.get(&format!("{key:?}")).cloned().unwrap_or_default()
        };
        let (expected, found) = (of(&expected), of(&found));
        assert_eq!(found, expected, "{key:?}");
        compared += found.len();
    }
    assert!(compared > 100, "{compared} decisions");
}
