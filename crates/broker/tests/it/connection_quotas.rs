//! Limits of connections: their number and the rate of new ones, of the broker, of a listener and of an
//! address, in the file and changed at run time.

use crate::quotas::alter;
use crate::raw::Raw;
use crate::running::RunningBroker;
use std::time::{Duration, Instant};
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::*;

/// Long enough for anything that happens at once.
const SOON: Duration = Duration::from_secs(30);
/// Long enough to see that nothing happens.
const A_WHILE: Duration = Duration::from_millis(300);

async fn start(dir: &tempfile::TempDir, properties: &[(&str, &str)]) -> RunningBroker {
    let two = [
        ("listeners", "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"),
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("quota.window.num", "2"),
    ];
    RunningBroker::start(dir.path(), &[&two, properties].concat()).await
}

/// A connection to the listener that is not the one between brokers.
async fn external(broker: &RunningBroker) -> Raw {
    Raw::connect_to(broker.server().addresses[1].1[0]).await
}

/// Whether the connection is served within a time. An answer that comes later is still read with the next.
async fn is_served(raw: &mut Raw, within: Duration) -> bool {
    let id = raw.send(&ApiVersionsRequest::default(), 0).await;
    let answer = raw.answer::<ApiVersionsRequest>(id, 0);
    matches!(tokio::time::timeout(within, answer).await, Ok(Some(_)))
}

/// Sets a property of all brokers, or of this one.
async fn configure(broker: &RunningBroker, of: &str, name: &str, value: &str) -> i16 {
    let config =
        AlterableConfig { name: name.to_owned(), value: Some(value.to_owned()), ..Default::default() };
    let resource =
        AlterConfigsResource { resource_type: 4, resource_name: of.to_owned(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    broker.ask(&request).await.responses.remove(0).error_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_listener_lets_new_connections_wait() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir, &[("listener.name.external.max.connections", "2")]).await;
    let mut held = [external(&broker).await, external(&broker).await];
    for raw in &mut held {
        assert!(is_served(raw, SOON).await);
    }
    let mut waiting = external(&broker).await;
    assert!(!is_served(&mut waiting, A_WHILE).await, "two are open");
    assert!(is_served(&mut Raw::connect(&broker).await, SOON).await, "another listener has its own limit");
    let [first, mut second] = held;
    drop(first);
    assert!(waiting.frame().await.is_some(), "it has the place of the one that ended");
    let mut third = external(&broker).await;
    assert!(!is_served(&mut third, A_WHILE).await);
    let name = "listener.name.external.max.connections";
    assert_eq!(configure(&broker, "", name, "3").await, 0);
    assert!(third.frame().await.is_some(), "the limit was raised");
    assert!(is_served(&mut second, SOON).await);
    assert_ne!(configure(&broker, "", name, "0").await, 0, "nobody could connect any more");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_between_brokers_come_first() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The test's own connection is one, on the listener between brokers.
    let broker = start(&dir, &[]).await;
    let own = broker.server().broker.connections.open();
    assert_eq!(configure(&broker, "", "max.connections", &(own + 2).to_string()).await, 0);
    let (mut resting, mut busy) = (external(&broker).await, external(&broker).await);
    assert!(is_served(&mut resting, SOON).await && is_served(&mut busy, SOON).await);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(is_served(&mut busy, SOON).await);
    let mut turned_away = external(&broker).await;
    assert!(!is_served(&mut turned_away, A_WHILE).await, "the broker has as many as it may");
    drop(turned_away);
    let mut other_broker = Raw::connect(&broker).await;
    assert!(is_served(&mut other_broker, SOON).await);
    assert!(resting.is_closed_within(SOON).await, "the one that was used least recently made room");
    assert!(is_served(&mut busy, SOON).await);
    // A limit of one listener holds for that between brokers, too.
    let limit = (own + 1).to_string();
    assert_eq!(configure(&broker, "1", "listener.name.plaintext.max.connections", &limit).await, 0);
    assert!(!is_served(&mut Raw::connect(&broker).await, A_WHILE).await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the time of a real client")]
async fn the_rate_of_new_connections_is_limited() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir, &[("max.connection.creation.rate", "5")]).await;
    let open = async |count| {
        let began = Instant::now();
        for _ in 0..count {
            assert!(is_served(&mut external(&broker).await, SOON).await);
        }
        began.elapsed()
    };
    let took = open(15).await;
    // Five at once, and ten at five per second; not all of the time until a window has passed is exact.
    assert!((Duration::from_millis(1200)..Duration::from_secs(6)).contains(&took), "{took:?}");
    let began = Instant::now();
    for _ in 0..15 {
        assert!(is_served(&mut Raw::connect(&broker).await, SOON).await);
    }
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1200), "the value of the file is each listener's, too: {took:?}");

    let name = "listener.name.external.max.connection.creation.rate";
    assert_eq!(configure(&broker, "1", name, "100000").await, 0);
    assert_eq!(configure(&broker, "", "max.connection.creation.rate", "100000").await, 0);
    assert_ne!(configure(&broker, "", "max.connection.creation.rate", "0").await, 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let took = open(15).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    let mut page = thalweg_broker::metrics::Exposition::default();
    broker.server().metrics.expose(&mut page);
    let text = page.into_text();
    for name in ["broker_connection_accept_rate ", "connection_accept_rate{listener=\"EXTERNAL\"} "] {
        assert!(text.contains(&format!("kafka_server_socket_server_metrics_{name}")), "{name} in {text}");
    }
    let throttled = "metrics_connection_accept_throttle_time{listener=\"EXTERNAL\"} ";
    let (_, value) = text.split_once(throttled).expect("a sample");
    assert!(value.lines().next().expect("a value").parse::<f64>().expect("a number") > 0.0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_connects_too_fast_is_closed_after_a_pause() {
    const KEY: &str = "connection_creation_rate";
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir, &[]).await;
    alter(&broker, &[("ip", None)], KEY, Some(1.0)).await;
    assert!(is_served(&mut external(&broker).await, SOON).await, "a second's worth");
    let mut fast = external(&broker).await;
    assert!(
        !fast.is_closed_within(A_WHILE).await,
        "it is kept for a while, so that it does not return at once"
    );
    assert!(fast.is_closed_within(SOON).await);
    let text = {
        let mut page = thalweg_broker::metrics::Exposition::default();
        broker.server().metrics.expose(&mut page);
        page.into_text()
    };
    for sample in [
        "kafka_server_socket_server_metrics_connection_accept_rate{ip=\"127.0.0.1\"} ",
        "kafka_server_socket_server_metrics_ip_connection_accept_throttle_time{listener=\"EXTERNAL\"} ",
        "thalweg_connections_throttled_total 1\n",
    ] {
        assert!(text.contains(sample), "{sample} in {text}");
    }
    // The quota of the address goes before the default.
    alter(&broker, &[("ip", Some("127.0.0.1"))], KEY, Some(1000.0)).await;
    for _ in 0..5 {
        assert!(is_served(&mut external(&broker).await, SOON).await);
    }
    alter(&broker, &[("ip", Some("127.0.0.1"))], KEY, None).await;
    alter(&broker, &[("ip", None)], KEY, None).await;
    assert!(is_served(&mut external(&broker).await, SOON).await, "no limit any more");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_with_an_unknown_host_leave_the_earlier_ones() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let name = "max.connections.per.ip.overrides";
    let broker = start(&dir, &[("max.connections.per.ip", "3"), (name, "127.0.0.1:100")]).await;
    assert_eq!(configure(&broker, "", name, "127.0.0.1:5,unknown.invalid:7").await, 0, "as Kafka");
    // The next change is made after this one.
    assert_eq!(configure(&broker, "", "max.connections.per.ip", "2").await, 0);
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut raw = external(&broker).await;
        assert!(is_served(&mut raw, SOON).await, "connection {} of 100", held.len());
        held.push(raw);
    }
    assert_eq!(configure(&broker, "", name, "127.0.0.1:9").await, 0);
    let mut one_more = external(&broker).await;
    while is_served(&mut one_more, SOON).await {
        held.push(one_more);
        assert!(held.len() < 20, "the new limit is in force");
        one_more = external(&broker).await;
    }
    broker.stop().await;
}
