//! Quotas and limits of connections, set at run time by Kafka's own tools.

use super::jars;
use super::tools::tool;
use crate::raw::Raw;
use crate::running::RunningBroker;
use std::time::Duration;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::{ApiVersionsRequest, CreateTopicsRequest, CreateTopicsResponse};

const CONFIGS: &str = "kafka.admin.ConfigCommand";

async fn create(broker: &RunningBroker, name: &str, partitions: i32) -> CreateTopicsResponse {
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    Raw::connect(broker).await.ask(&request, 7).await.expect("an answer")
}

async fn is_served(raw: &mut Raw) -> bool {
    let request = ApiVersionsRequest::default();
    let answer = raw.ask(&request, 0);
    matches!(tokio::time::timeout(Duration::from_millis(300), answer).await, Ok(Some(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "many starts of Apache Kafka: in the nightly form of scripts/test"]
async fn kafka_configs_alters_quotas_and_limits_of_connections() {
    let Some(jars) = jars() else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let properties = [
        ("listeners", "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"),
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("controller.quota.window.num", "1"),
        ("quota.window.num", "2"),
    ];
    let broker = RunningBroker::start(dir.path(), &properties).await;
    let configs = async |arguments: &[&str]| {
        let to = ["--bootstrap-server", broker.address()];
        tool(&jars, CONFIGS, &[&to, arguments].concat(), "").await
    };

    // The tool is a client without a quota.
    let user = ["--entity-type", "users", "--entity-name", "ANONYMOUS"];
    let client = ["--entity-type", "clients", "--entity-name", "raw"];
    let of_both = [&user[..], &client].concat();
    let alter = ["--alter", "--add-config", "controller_mutation_rate=2"];
    configs(&[&of_both[..], &alter].concat()).await;
    let described = configs(&[&of_both[..], &["--describe"]].concat()).await;
    assert!(described.contains("controller_mutation_rate=2.0"), "{described}");
    assert_eq!(create(&broker, "one", 20).await.topics[0].error_code, 0);
    let refused = create(&broker, "two", 1).await;
    assert_eq!(refused.topics[0].error_code, ErrorCode::ThrottlingQuotaExceeded.code());
    assert!(refused.throttle_time_ms > 1000, "{} ms", refused.throttle_time_ms);
    configs(&[&of_both[..], &["--alter", "--delete-config", "controller_mutation_rate"]].concat()).await;
    assert_eq!(create(&broker, "two", 1).await.topics[0].error_code, 0);

    // Addresses. The tool itself comes through with the rates that are set.
    let ips = ["--entity-type", "ips", "--entity-default"];
    configs(&[&ips[..], &["--alter", "--add-config", "connection_creation_rate=5"]].concat()).await;
    let described = configs(&[&ips[..], &["--describe"]].concat()).await;
    assert!(described.contains("connection_creation_rate=5.0"), "{described}");
    let external = broker.server().addresses[1].1[0];
    // Those above the rate are not served.
    let mut turned_away = 0;
    for _ in 0..20 {
        turned_away += usize::from(!is_served(&mut Raw::connect_to(external).await).await);
    }
    assert!((1..20).contains(&turned_away), "{turned_away} of twenty");
    tokio::time::sleep(Duration::from_secs(3)).await;
    configs(&[&ips[..], &["--alter", "--delete-config", "connection_creation_rate"]].concat()).await;

    // A listener.
    let own = ["--entity-type", "brokers", "--entity-name", "1"];
    let limit =
        "listener.name.external.max.connections=1,listener.name.external.max.connection.creation.rate=50";
    configs(&[&own[..], &["--alter", "--add-config", limit]].concat()).await;
    let described = configs(&[&own[..], &["--describe"]].concat()).await;
    for part in limit.split(',') {
        assert!(described.contains(part), "{part} in {described}");
    }
    let mut first = Raw::connect_to(external).await;
    assert!(is_served(&mut first).await);
    let mut second = Raw::connect_to(external).await;
    assert!(!is_served(&mut second).await, "the listener takes one");
    let all = ["--entity-type", "brokers", "--entity-default"];
    configs(
        &[&all[..], &["--alter", "--add-config", "max.connections=1000,max.connection.creation.rate=500"]]
            .concat(),
    )
    .await;
    assert!(is_served(&mut first).await);
    let delete = "listener.name.external.max.connections,listener.name.external.max.connection.creation.rate";
    configs(&[&own[..], &["--alter", "--delete-config", delete]].concat()).await;
    assert!(second.frame().await.is_some(), "it is served after all");
    broker.stop().await;
}
