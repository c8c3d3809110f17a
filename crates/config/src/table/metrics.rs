//! Keys of metrics: the limit on their number, and the receivers. Kafka has no such keys: it leaves metrics
//! to Java's JMX.

use std::fmt;
use std::time::Duration;

use super::declare::settings;
use crate::check::{ANY, HTTP_HEADERS, HTTP_URL, at_least, between, http_headers};
use crate::key::Support::Served;
use crate::setting::{SecretText, unless_empty};

settings! {
    MetricsSettings, METRICS "Metrics";

    "thalweg.metrics.series.max": Int = "20000", at_least(0), Medium, ClusterWide, Served => series_max: usize,
        "How many samples of topics, partitions, groups and clients a page of metrics has at most (`docs/metrics.md`). A family that does not fit is left out whole, so that no sum over it is wrong, and counted in `thalweg_metrics_dropped_series`. Totals of the broker are always there.",
        differs = "Kafka has no such key.";
    "thalweg.metrics.partitions": Boolean = "true", ANY, Medium, ClusterWide, Served => partitions: bool,
        "Whether metrics have samples of single partitions. Those of topics, groups and the broker are always there.",
        differs = "Kafka has no such key.";
    "thalweg.metrics.group.partitions": Boolean = "true", ANY, Medium, ClusterWide, Served => group_partitions: bool,
        "Whether metrics have the offsets and the lag of groups for each partition, besides the lag for each topic.",
        differs = "Kafka has no such key; it leaves lag to separate exporters.";
    "thalweg.otlp.endpoint": String = null, HTTP_URL, Medium, ReadOnly, Served => otlp_endpoint: Option<String> = unless_empty,
        "The URL of a receiver of OTLP over HTTP, such as an OpenTelemetry collector: `http://localhost:4318`. All metrics but those of streams are sent to it as protobuf, to `/v1/metrics` if the URL has no path. Off by default.",
        differs = "Kafka has no such key.";
    "thalweg.otlp.interval.ms": Int[Ms] = "15000", between(1_000, 3_600_000), Low, ReadOnly, Served => otlp_interval: Duration,
        "How often metrics are sent to `thalweg.otlp.endpoint`.",
        differs = "Kafka has no such key.";
    "thalweg.otlp.headers": Password = null, HTTP_HEADERS, Low, ReadOnly, Served => otlp_headers: OtlpHeaders = headers,
        "HTTP headers for `thalweg.otlp.endpoint`, as `NAME=VALUE` separated by commas: `authorization=Bearer TOKEN`.",
        differs = "Kafka has no such key.";
}

/// HTTP headers of requests to an OTLP receiver, which may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpHeaders(pub Vec<(String, String)>);

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} headers", self.0.len())
    }
}

fn headers(text: Option<SecretText>) -> OtlpHeaders {
    let pairs = text.map(|text| http_headers(&text.0).expect("the key's check parsed them"));
    OtlpHeaders(pairs.unwrap_or_default())
}
