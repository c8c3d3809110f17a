//! The same requests to a broker of Apache Kafka with the same ACLs: the answers are compared.
//! They need Kafka's jars: set `KAFKA_CLASSPATH`, for instance to `/path/to/kafka/libs/*`.

use super::{OPEN, USERS, address_of_admin, admin, allow, fill, start};
use crate::authorization::probes::{Names, probes};
use crate::records::Topic;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use thalweg_broker::api::SERVED;
use thalweg_client::{Connection, ConnectionOptions};
use thalweg_ports::free_port;
use thalweg_security::acl::{CLUSTER_NAME, Operation, ResourceType};
use thalweg_wire::{ApiKey, Uuid};

const JVM_OPTIONS: [&str; 4] =
    ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true"];

/// A node of Apache Kafka that is broker and controller, as a child process.
struct Node {
    _dir: TempDir,
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
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.retention.ms=-1\n",
            dir.path().join("data").display(),
        );
        for listener in ["admin", "controller"] {
            text.push_str(&format!("listener.name.{listener}.plain.sasl.jaas.config={USERS}\n"));
        }
        let properties = dir.path().join("server.properties");
        std::fs::write(&properties, text).expect("it can be written");
        let java = |class: &str| {
            let mut command = Command::new("java");
            command.env("CLASSPATH", classpath).current_dir(dir.path()).args(JVM_OPTIONS).arg(class);
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
        let node = Node { process, clients, admin, _dir: dir };
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

/// APIs that brokers forward.
const OF_CONTROLLER: [ApiKey; 17] = [
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::CreatePartitions,
    ApiKey::CreateAcls,
    ApiKey::DeleteAcls,
    ApiKey::AlterConfigs,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::ElectLeaders,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
    ApiKey::AlterClientQuotas,
    ApiKey::AlterUserScramCredentials,
    ApiKey::DescribeQuorum,
    ApiKey::UpdateFeatures,
    ApiKey::UnregisterBroker,
    ApiKey::AddRaftVoter,
    ApiKey::RemoveRaftVoter,
];

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
        let asked = |key: ApiKey| !OPEN.contains(&key) && (is_whole || !OF_CONTROLLER.contains(&key));
        for api in SERVED.iter().filter(|api| asked(api.key)) {
            let of_missing = || probes(api.key, &missing);
            let all = [&names[0], &names[1]].map(|names| [probes(api.key, names), of_missing()].concat());
            let [theirs, own] = all;
            for (theirs, own) in theirs.iter().zip(&own) {
                let text = |answer: String, id: Uuid| answer.replace(&format!("{id:?}"), "ID");
                let expected = text(theirs.ask(&kafka.clients).await, names[0].topic.id);
                let answer = text(own.ask(ours.address()).await, names[1].topic.id);
                compared += 1;
                if expected != answer {
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
