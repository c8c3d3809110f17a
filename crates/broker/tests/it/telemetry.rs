//! Metrics that clients send (KIP-714): subscribed to by a configuration, pushed, and shown.

use crate::running::RunningBroker;
use thalweg_broker::metrics::Exposition;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

const CLIENT_METRICS: i8 = 16;

/// A gauge `connections` with the value 3, without attributes.
const METRICS: &[u8] = b"\x0a\x1e\x12\x1c\x12\x1a\x0a\x0bconnections\x2a\x0b\x0a\x09\x21\0\0\0\0\0\0\x08\x40";

async fn subscribe(broker: &RunningBroker, pairs: &[(&str, &str)]) {
    let configs = pairs.iter().map(|(name, value)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: 0,
        value: Some((*value).to_owned()),
    });
    let resource = AlterConfigsResource {
        resource_type: CLIENT_METRICS,
        resource_name: "all".to_owned(),
        configs: configs.collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = broker.ask(&request).await.responses.remove(0);
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
}

fn page(broker: &RunningBroker) -> String {
    let mut page = Exposition::default();
    broker.server().metrics.expose(&mut page);
    page.into_text()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_push_what_is_subscribed_to_and_it_is_shown() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("telemetry.max.bytes", "1000")]).await;
    let ask = GetTelemetrySubscriptionsRequest { client_instance_id: Uuid::ZERO };
    let nothing = broker.ask(&ask).await;
    assert_eq!(
        (nothing.error_code, nothing.push_interval_ms, nothing.requested_metrics.len()),
        (0, 300_000, 0)
    );
    assert!(!nothing.client_instance_id.is_reserved());

    subscribe(&broker, &[("interval.ms", "100"), ("metrics", "conn")]).await;
    let subscribed = broker.ask(&ask).await;
    assert_eq!((subscribed.push_interval_ms, subscribed.telemetry_max_bytes), (100, 1000));
    assert_eq!(subscribed.requested_metrics, ["conn"]);
    assert_eq!(subscribed.accepted_compression_types, [4, 3, 1, 2]);
    assert!(subscribed.delta_temporality);
    let push = PushTelemetryRequest {
        client_instance_id: subscribed.client_instance_id,
        subscription_id: subscribed.subscription_id,
        metrics: METRICS.into(),
        ..Default::default()
    };
    assert_eq!(broker.ask(&push).await.error_code, 0);
    let page = page(&broker);
    let line = page.lines().find(|line| line.starts_with("thalweg_client_telemetry{")).expect("a sample");
    let id = subscribed.client_instance_id.to_string();
    assert!(line.contains(&id) && line.contains("metric=\"connections\"") && line.ends_with(" 3"), "{line}");

    let unknown = PushTelemetryRequest { client_instance_id: Uuid(7), ..push.clone() };
    assert_eq!(broker.ask(&unknown).await.error_code, ErrorCode::InvalidRequest.code());
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
    let large = PushTelemetryRequest { metrics: vec![0; 1001].into(), ..push };
    assert_eq!(broker.ask(&large).await.error_code, ErrorCode::TelemetryTooLarge.code());
    broker.stop().await;
}
