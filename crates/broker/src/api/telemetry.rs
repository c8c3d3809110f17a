//! GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72), version 0 (KIP-714): clients ask for their
//! subscription, and push metrics. As in Kafka, no permission is needed.
//!
//! Departures: both are always served, while Kafka's broker serves them only with a Java plugin that takes
//! the metrics; a push of more than 4 MiB once decompressed is refused with INVALID_RECORD.

use super::Call;
use super::entry::{Api, Open, now};
use crate::telemetry::{Telemetry, TelemetryClient, TelemetryPush};
use thalweg_config::NetworkSettings;
use thalweg_log::Clock;
use thalweg_record::Compression;
use thalweg_wire::request::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, PushTelemetryRequest,
    PushTelemetryResponse,
};
use thalweg_wire::{ApiKey, ErrorCode, Uuid};

pub(super) const SUBSCRIPTIONS: Api = Api::new(ApiKey::GetTelemetrySubscriptions, 0..=0, Open, |b, c, d| {
    now(b, c, d, |b, c, r| subscriptions(&b.telemetry, &b.clock, &b.config().network, c, r))
});
pub(super) const PUSH: Api = Api::new(ApiKey::PushTelemetry, 0..=0, Open, |b, c, d| {
    now(b, c, d, |b, c, r| push(&b.telemetry, &b.clock, &b.config().network, c, r))
});

/// The accepted codecs in Kafka's order of preference.
const CODECS: [Compression; 4] =
    [Compression::Zstd, Compression::Lz4, Compression::Gzip, Compression::Snappy];

/// The subscription of a client. A client without an instance id gets a new one.
pub fn subscriptions(
    telemetry: &Telemetry,
    clock: &Clock,
    network: &NetworkSettings,
    call: &Call,
    request: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse {
    let requested = request.client_instance_id;
    let instance_id = if requested.is_zero() { Uuid::random() } else { requested };
    let client = client(call, instance_id);
    match telemetry.subscription(&client, clock.now_ms()) {
        Ok(subscribed) => GetTelemetrySubscriptionsResponse {
            client_instance_id: instance_id,
            subscription_id: subscribed.subscription_id,
            accepted_compression_types: CODECS.map(|codec| codec.id().cast_signed()).to_vec(),
            push_interval_ms: subscribed.interval_ms,
            telemetry_max_bytes: network.telemetry_max_bytes,
            delta_temporality: true,
            requested_metrics: subscribed.metrics,
            ..Default::default()
        },
        Err(refusal) => {
            tracing::debug!(%refusal, "Refused a question for telemetry");
            GetTelemetrySubscriptionsResponse { error_code: refusal.code.code(), ..Default::default() }
        }
    }
}

/// Stores a client's metrics.
pub fn push(
    telemetry: &Telemetry,
    clock: &Clock,
    network: &NetworkSettings,
    call: &Call,
    request: PushTelemetryRequest,
) -> PushTelemetryResponse {
    let with = |code: ErrorCode| PushTelemetryResponse { error_code: code.code(), ..Default::default() };
    if request.client_instance_id.is_reserved() {
        return with(ErrorCode::InvalidRequest);
    }
    let push = TelemetryPush {
        subscription_id: request.subscription_id,
        is_terminating: request.terminating,
        compression: request.compression_type,
        metrics: &request.metrics,
        bytes_max: usize::try_from(network.telemetry_max_bytes).unwrap_or(0),
    };
    let client = client(call, request.client_instance_id);
    match telemetry.push(&push, &client, clock.now_ms()) {
        Ok(()) => with(ErrorCode::None),
        Err(refusal) => {
            tracing::debug!(%refusal, "Refused a push of telemetry");
            with(refusal.code)
        }
    }
}

fn client(call: &Call, instance_id: Uuid) -> TelemetryClient<'_> {
    let software = call.peer.software.get();
    TelemetryClient {
        instance_id,
        client_id: call.client_id.as_deref().unwrap_or_default(),
        software_name: software.map(|software| software.name.as_str()),
        software_version: software.map(|software| software.version.as_str()),
        address: call.peer.address,
        connection: &call.peer,
        principal: &call.principal,
    }
}
