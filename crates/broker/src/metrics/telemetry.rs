//! Metrics that clients send to this broker (KIP-714).

use super::sample::{Label, MetricKind};
use super::{Family, Figures};
use crate::telemetry::TelemetryFigures;

macro_rules! counter {
    ($name:literal, $field:ident, $help:literal) => {
        Family {
            name: concat!("thalweg_client_telemetry_", $name),
            kind: MetricKind::Counter,
            help: $help,
            labels: &[],
            read: |figures, out| {
                if let Some(telemetry) = telemetry(figures) {
                    out.add(&[], telemetry.$field);
                }
            },
        }
    };
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "thalweg_client_telemetry",
        kind: MetricKind::Gauge,
        help: "The latest values of metrics that clients sent, by the names that clients give them: gauges as they are, sums added up since the client's first push. Forgotten after three intervals of silence, one minute at the least. At most 10,000 values of all clients.",
        labels: &["clientInstanceId", "clientId", "metric", "attributes"],
        read: |figures, out| {
            for value in telemetry(figures).into_iter().flat_map(|telemetry| &telemetry.values) {
                let id = value.instance_id.to_string();
                let labels =
                    [&id, &value.client_id, &value.metric, &value.attributes].map(|text| Label::Text(text));
                out.add_labelled(&labels, value.value);
            }
        },
    },
    Family {
        name: "thalweg_client_telemetry_instances",
        kind: MetricKind::Gauge,
        help: "Clients that asked for a subscription or pushed metrics lately, at most 16,384.",
        labels: &[],
        read: |figures, out| {
            if let Some(telemetry) = telemetry(figures) {
                out.add(&[], telemetry.instances);
            }
        },
    },
    counter!("pushes_total", pushes, "Pushes of metrics by clients that were taken."),
    counter!("throttled_total", throttled, "Requests of clients before their interval had passed."),
    counter!(
        "unknown_subscriptions_total",
        unknown_subscriptions,
        "Pushes of clients whose subscription had changed: they ask again."
    ),
    counter!(
        "malformed_total",
        malformed,
        "Pushes that could not be read, or were larger than telemetry.max.bytes."
    ),
    counter!(
        "dropped_points_total",
        dropped_points,
        "Values that were left out: beyond 1,000 of a push or 10,000 of all clients, or with a name or attributes of more than 256 bytes."
    ),
];

fn telemetry(figures: &Figures) -> Option<&TelemetryFigures> {
    figures.broker().map(|broker| &broker.client_telemetry)
}
