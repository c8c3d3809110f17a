//! Metrics of the audit trail.

use super::Family;
use super::sample::MetricKind;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "thalweg_audit_events_total",
        kind: MetricKind::Counter,
        help: "Audit events by their kind in thalweg.audit.events, without those above thalweg.audit.events.per.second.",
        labels: &["kind"],
        read: |figures, out| {
            for (kind, count) in figures.trail().into_iter().flat_map(|trail| trail.recorded()) {
                out.add(&[kind.name()], count);
            }
        },
    },
    Family {
        name: "thalweg_audit_events_written_total",
        kind: MetricKind::Counter,
        help: "Audit events written to an outlet: file or topic.",
        labels: &["outlet"],
        read: |figures, out| {
            for outlet in figures.trail().into_iter().flat_map(|trail| trail.figures()) {
                out.add(&[outlet.outlet], outlet.written);
            }
        },
    },
    Family {
        name: "thalweg_audit_events_dropped_total",
        kind: MetricKind::Counter,
        help: "Audit events that an outlet lacks. The reason is rate (thalweg.audit.events.per.second), queue (the outlet is too slow), or unwritten (a full disk, an unavailable topic).",
        labels: &["outlet", "kind", "reason"],
        read: |figures, out| {
            for outlet in figures.trail().into_iter().flat_map(|trail| trail.figures()) {
                for (kind, reason, count) in outlet.dropped {
                    out.add(&[outlet.outlet, kind.name(), reason.name()], count);
                }
            }
        },
    },
];
