//! Histograms by API: times of requests by stage, and sizes.

use super::exposition::Samples;
use super::figures::Figures;
use super::sample::{Exemplar, scaled};
use crate::request_metrics::{ApiMetrics, SlowFigures};
use thalweg_histogram::Histogram;
use thalweg_net::ApiFlow;
use thalweg_wire::ApiKey;

/// Times are counted in microseconds.
const PER_SECOND: f64 = 1e6;

/// `thalweg_request_time_seconds`.
pub(super) fn times(figures: &Figures, out: &mut Samples<'_>) {
    flows(figures, |api, flow| {
        add(out, &[api, "queue"], &flow.queued, PER_SECOND);
        add(out, &[api, "send"], &flow.sending, PER_SECOND);
    });
    let Some(broker) = figures.broker() else { return };
    for api in &broker.requests.apis {
        let name = api.name();
        add(out, &[&name, "local"], &api.local, PER_SECOND);
        add(out, &[&name, "remote"], &api.remote, PER_SECOND);
        add(out, &[&name, "throttle"], &api.throttle, PER_SECOND);
        total(out, &name, api);
    }
}

/// Total times, with slow requests as exemplars.
fn total(out: &mut Samples<'_>, name: &str, api: &ApiMetrics) {
    let read = api.total.snapshot();
    if read.count() == 0 {
        return;
    }
    let exemplar = |slow: SlowFigures| Exemplar {
        client_hash: slow.client_hash,
        value: scaled(slow.us, PER_SECOND),
        at_ms: slow.at_ms,
    };
    let exemplars: Vec<_> = api.slow().map(|slow| slow.map(exemplar)).collect();
    out.histogram(&[name, "total"], &read, PER_SECOND, &exemplars);
}

/// `thalweg_request_size_bytes`.
pub(super) fn request_sizes(figures: &Figures, out: &mut Samples<'_>) {
    flows(figures, |api, flow| add(out, &[api], &flow.request_bytes, 1.0));
}

/// `thalweg_response_size_bytes`.
pub(super) fn response_sizes(figures: &Figures, out: &mut Samples<'_>) {
    flows(figures, |api, flow| add(out, &[api], &flow.response_bytes, 1.0));
}

fn flows(figures: &Figures, mut each: impl FnMut(&str, &ApiFlow)) {
    for (key, flow) in figures.flow.apis() {
        match ApiKey::from_i16(key) {
            Some(key) => each(&format!("{key:?}"), flow),
            None => each("unknown", flow),
        }
    }
}

fn add(out: &mut Samples<'_>, labels: &[&str], histogram: &Histogram, per_unit: f64) {
    let read = histogram.snapshot();
    if read.count() > 0 {
        out.histogram(labels, &read, per_unit, &[]);
    }
}
