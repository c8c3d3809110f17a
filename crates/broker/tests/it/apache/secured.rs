//! A cluster of Apache Kafka whose nodes speak to each other over TLS, with a password and a certificate
//! each: a broker of ours joins its controllers and follows its leader.

use super::controllers::{Controllers, Quorum};
use super::mixed::Jvm;
use super::{jars, join, until};
use crate::records::{Topic, batch, produce};
use crate::replication::contents;
use crate::running::configuration;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use thalweg_broker::start;
use thalweg_dial::{Connection, ConnectionOptions, Properties};
use thalweg_metadata::PartitionIndex;
use thalweg_wire::request::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use thalweg_wire::request::*;

const LOGIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"node\" \
                     password=\"node-secret\" user_node=\"node-secret\";";

/// An authority, and a certificate with its key for all nodes on this machine.
fn stores(dir: &TempDir) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let node = KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let signed = CertificateParams::new(names).expect("host names").signed_by(&node, &issuer);
    let signed = signed.expect("a certificate").pem();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    (write("ca.pem", authority.pem()), write("node.pem", node.serialize_pem() + &signed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_joins_controllers_and_follows_a_leader_over_sasl_and_tls() {
    let Some(jars) = jars() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (ca, node) = stores(&dir);
    let of_all = format!(
        "ssl.truststore.type=PEM\nssl.truststore.location={ca}\nssl.keystore.type=PEM\nssl.keystore.location={node}\n\
         ssl.client.auth=required\nsasl.enabled.mechanisms=PLAIN\nsasl.mechanism.controller.protocol=PLAIN\n\
         listener.name.controller.plain.sasl.jaas.config={LOGIN}\n\
         listener.name.controller.ssl.client.auth=required\n"
    );
    let map = "CLIENTS:PLAINTEXT,INSIDE:SASL_SSL,CONTROLLER:SASL_SSL";
    let mut secured = Properties::new();
    for (key, value) in [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", LOGIN),
        ("ssl.truststore.location", &ca),
        ("ssl.keystore.location", &node),
    ] {
        secured.set(key, value);
    }
    let options = ConnectionOptions::take(&mut secured, "test").expect("settings");
    let more = format!("{of_all}listener.security.protocol.map=CONTROLLER:SASL_SSL\n");
    let controllers = Controllers::start_with(jars.clone(), Quorum::OfKafkasDefaults, &more, options).await;
    let more = format!(
        "{of_all}listener.security.protocol.map={map}\nlisteners=CLIENTS://ADDRESS,INSIDE://127.0.0.1:0\n\
         inter.broker.listener.name=INSIDE\nsasl.mechanism.inter.broker.protocol=PLAIN\n\
         listener.name.inside.plain.sasl.jaas.config={LOGIN}\n"
    );
    let mut jvm = Jvm::new(jars, &controllers, 1, &more);
    jvm.begin();

    let servers = controllers.servers();
    // Our own listeners have no SASL yet: the leader has registered the protocol of its INSIDE listener.
    let ours = [
        ("listeners", "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0"),
        ("listener.security.protocol.map", "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:SASL_SSL"),
        ("inter.broker.listener.name", "INSIDE"),
        ("controller.listener.names", "CONTROLLER"),
        ("sasl.mechanism.controller.protocol", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("listener.name.controller.plain.sasl.jaas.config", LOGIN),
        ("listener.name.inside.plain.sasl.jaas.config", LOGIN),
        ("ssl.truststore.location", &ca),
        ("ssl.keystore.location", &node),
    ];
    a_wrong_password_is_reported(&servers, &ours).await;
    let data = tempfile::tempdir().expect("a temporary directory");
    let broker = join(data.path(), "2", &servers, &ours).await;
    until("both brokers", async || broker.server().broker.image().alive_brokers().count() == 2).await;

    let assignments = vec![CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1, 2] }];
    let topic = CreatableTopic {
        name: "t".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let created = broker.ask(&request).await.topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    let topic = Topic { name: "t".to_owned(), id: created.topic_id };
    until("an acknowledgement of both replicas", async || {
        let Ok(leader) = Connection::connect(&jvm.address, &ConnectionOptions::default()).await else {
            return false;
        };
        let answer = leader.send_at(&produce(12, &topic, 0, -1, batch(&[b"over TLS"])), 12).await;
        answer.is_ok_and(|answer| answer.responses[0].partition_responses[0].error_code == 0)
    })
    .await;
    until("the same bytes on both", async || {
        let ours = broker
            .server()
            .broker
            .partitions
            .get("t", PartitionIndex(0))
            .map(|partition| contents(&partition));
        let theirs = jvm.segment("t", 0);
        !theirs.is_empty() && ours.is_some_and(|ours| ours[..] == theirs[..])
    })
    .await;
    broker.stop().await;
}

async fn a_wrong_password_is_reported(servers: &str, ours: &[(&str, &str)]) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let login = LOGIN.replace("password=\"node-secret\"", "password=\"hunter2\"");
    let mut properties = vec![
        ("process.roles", "broker"),
        ("node.id", "3"),
        ("controller.quorum.bootstrap.servers", servers),
        ("initial.broker.registration.timeout.ms", "1000"),
    ];
    properties.extend(ours);
    properties.push(("listener.name.controller.plain.sasl.jaas.config", &login));
    let refused = start(configuration(data.path(), &properties)).await.err().expect("a wrong password");
    let text = refused.to_string();
    assert!(text.contains("rejects this client by PLAIN: Authentication failed"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    properties.push(("sasl.mechanism.controller.protocol", "GSSAPI"));
    let refused = start(configuration(data.path(), &properties)).await.err().expect("no such mechanism");
    let text = refused.to_string();
    assert!(
        text.starts_with("Connections to controllers: sasl.mechanism.controller.protocol=GSSAPI"),
        "{text}"
    );
}
