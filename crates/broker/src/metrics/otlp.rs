//! OTLP's metrics in protobuf (`opentelemetry/proto/metrics/v1`), limited to the needs of a page. Written by
//! hand, because the dependencies of OTLP crates take longer to build than this broker's exposition.
//!
//! Adding a sample writes a data point. [`metric`] wraps the data points of a family, [`request`] all
//! families.

use super::sample::{Exemplar, Label, MetricKind, Number, family_name, scaled, unit};
use thalweg_histogram::Snapshot;

/// The start of the counters, and the time of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub started_ms: i64,
    pub now_ms: i64,
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u64 = 2;

/// `NumberDataPoint`.
pub(super) fn number(out: &mut Vec<u8>, labels: &[&str], values: &[Label<'_>], number: Number, times: Times) {
    nested(out, 1, |out| {
        attributes(out, 7, labels, values);
        stamps(out, times);
        match number {
            Number::Whole(whole) => {
                let whole = i64::try_from(whole).unwrap_or(i64::MAX);
                fixed(out, 6, whole.cast_unsigned());
            }
            Number::Real(real) => double(out, 4, real),
        }
    });
}

/// `HistogramDataPoint`.
pub(super) fn histogram(
    out: &mut Vec<u8>,
    labels: &[&str],
    values: &[Label<'_>],
    (read, per_unit): (&Snapshot, f64),
    exemplars: &[Option<Exemplar>],
    times: Times,
) {
    nested(out, 1, |out| {
        stamps(out, times);
        fixed(out, 4, read.count());
        double(out, 5, scaled(read.sum, per_unit));
        nested(out, 6, |out| {
            read.counts[..=read.bounds.len()].iter().for_each(|count| out.extend(count.to_le_bytes()));
        });
        nested(out, 7, |out| {
            read.bounds.iter().for_each(|bound| out.extend(scaled(*bound, per_unit).to_le_bytes()));
        });
        for exemplar in exemplars.iter().flatten() {
            nested(out, 8, |out| {
                fixed(out, 2, nanoseconds(exemplar.at_ms));
                double(out, 3, exemplar.value);
                let hash = format!("{:08x}", exemplar.client_hash);
                attribute(out, 7, "client_hash", Label::Text(&hash));
            });
        }
        attributes(out, 9, labels, values);
    });
}

/// `SummaryDataPoint`. Quantiles without observations are left out.
pub(super) fn summary(
    out: &mut Vec<u8>,
    labels: &[&str],
    values: &[Label<'_>],
    quantiles: &[(&str, f64, f64)],
    (count, sum): (u64, f64),
    times: Times,
) {
    nested(out, 1, |out| {
        stamps(out, times);
        fixed(out, 4, count);
        double(out, 5, sum);
        for (_, share, value) in quantiles.iter().filter(|(_, _, value)| !value.is_nan()) {
            nested(out, 6, |out| {
                double(out, 1, *share);
                double(out, 2, *value);
            });
        }
        attributes(out, 7, labels, values);
    });
}

/// Makes the data points from `start` on a `Metric`, as a field of `ScopeMetrics`.
pub(super) fn metric(out: &mut Vec<u8>, start: usize, (name, kind, help): (&str, MetricKind, &str)) {
    let points = out.split_off(start);
    nested(out, 2, |out| {
        text(out, 1, family_name(name));
        text(out, 2, help);
        match unit(name) {
            Some("seconds") => text(out, 3, "s"),
            Some("bytes") => text(out, 3, "By"),
            _ => {}
        }
        let field = match kind {
            MetricKind::Gauge => 5,
            MetricKind::Counter => 7,
            MetricKind::Histogram => 9,
            MetricKind::Summary => 11,
        };
        nested(out, field, |out| {
            out.extend_from_slice(&points);
            if matches!(kind, MetricKind::Counter | MetricKind::Histogram) {
                varint_field(out, 2, CUMULATIVE);
            }
            if kind == MetricKind::Counter {
                varint_field(out, 3, 1);
            }
        });
    });
}

/// `ExportMetricsServiceRequest` of one resource with these metrics.
pub(super) fn request(resource: &[(&str, &str)], metrics: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(metrics.len() + 512);
    nested(&mut out, 1, |out| {
        nested(out, 1, |out| {
            resource.iter().for_each(|(key, value)| attribute(out, 1, key, Label::Text(value)));
        });
        nested(out, 2, |out| {
            nested(out, 1, |out| {
                text(out, 1, "thalweg");
                text(out, 2, env!("CARGO_PKG_VERSION"));
            });
            out.extend_from_slice(metrics);
        });
    });
    out
}

fn stamps(out: &mut Vec<u8>, times: Times) {
    fixed(out, 2, nanoseconds(times.started_ms));
    fixed(out, 3, nanoseconds(times.now_ms));
}

fn nanoseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

fn attributes(out: &mut Vec<u8>, field: u32, labels: &[&str], values: &[Label<'_>]) {
    for (label, value) in labels.iter().zip(values) {
        if *value != Label::Text("") {
            attribute(out, field, label, *value);
        }
    }
}

/// `KeyValue`. All labels are written as text, as in Prometheus.
fn attribute(out: &mut Vec<u8>, field: u32, key: &str, value: Label<'_>) {
    nested(out, field, |out| {
        text(out, 1, key);
        nested(out, 2, |out| match value {
            Label::Text(value) => text(out, 1, value),
            Label::Whole(value) => nested(out, 1, |out| super::text::push_whole(out, i128::from(value))),
        });
    });
}

fn tag(out: &mut Vec<u8>, field: u32, wire: u32) {
    varint(out, u64::from(field << 3 | wire));
}

fn varint_field(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

fn fixed(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn double(out: &mut Vec<u8>, field: u32, value: f64) {
    fixed(out, field, value.to_bits());
}

fn text(out: &mut Vec<u8>, field: u32, value: &str) {
    tag(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// A field whose length is filled in afterwards. Most fields are short, with a length of one byte.
fn nested(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, BYTES);
    let at = out.len();
    out.push(0);
    write(out);
    let mut length = Vec::with_capacity(10);
    varint(&mut length, (out.len() - at - 1) as u64);
    match length[..] {
        [short] => out[at] = short,
        _ => drop(out.splice(at..=at, length)),
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        let mut out = Vec::new();
        nested(&mut out, 1, |out| nested(out, 2, |out| out.extend([7; 200])));
        assert_eq!(out[..6], [0x0a, 203, 1, 0x12, 200, 1]);
        assert_eq!(out.len(), 206);
    }

    #[test]
    fn a_gauge_is_a_metric_with_a_point() {
        let mut out = Vec::new();
        number(&mut out, &["a"], &[Label::Text("b")], 5u64.into(), Times { started_ms: 0, now_ms: 1 });
        metric(&mut out, 0, ("x", MetricKind::Gauge, "y"));
        let mut point = vec![0x3a, 8, 0x0a, 1, b'a', 0x12, 3, 0x0a, 1, b'b', 0x11];
        point.extend(0u64.to_le_bytes());
        point.push(0x19);
        point.extend(1_000_000u64.to_le_bytes());
        point.push(0x31);
        point.extend(5u64.to_le_bytes());
        let mut expected = vec![0x12, 0, 0x0a, 1, b'x', 0x12, 1, b'y', 0x2a, 0, 0x0a, point.len() as u8];
        expected.extend(&point);
        expected[9] = point.len() as u8 + 2;
        expected[1] = expected.len() as u8 - 2;
        assert_eq!(out, expected);
    }
}
