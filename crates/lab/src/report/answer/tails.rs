//! Latencies that contrast with a headline: percentiles that cross, such as a lower p50 and a higher p99.9,
//! and latencies of which the loser's is lower. A difference counts beyond the noise only.

use super::{ComparedFigure, Scope};
use crate::result::{Figure, Judgement, PointResult, Subject, ratio_of, system, values};

/// The percentiles that are compared, in order.
const PERCENTILES: [(&str, &str); 3] = [("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us")];

/// One latency of two systems at a point.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct ComparedLatency {
    pub kind: LatencyKind,
    /// The percentiles that differ, in order; true if ours is lower.
    pub percentiles: Vec<(&'static str, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum LatencyKind {
    UntilAcknowledged,
    EndToEnd,
}

impl LatencyKind {
    fn prefix(self) -> &'static str {
        match self {
            LatencyKind::UntilAcknowledged => "acknowledge",
            LatencyKind::EndToEnd => "end_to_end",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            LatencyKind::UntilAcknowledged => "acknowledges",
            LatencyKind::EndToEnd => "delivers",
        }
    }
}

impl ComparedLatency {
    /// The latencies of two systems at a point that differ at some percentile.
    pub fn all(ours: &PointResult, theirs: &PointResult) -> Vec<ComparedLatency> {
        let kinds = [LatencyKind::UntilAcknowledged, LatencyKind::EndToEnd];
        let found = kinds.into_iter().map(|kind| {
            let percentiles = PERCENTILES.into_iter().filter_map(|(name, end)| {
                let figure = Figure::named(&format!("{}_{end}", kind.prefix()))?;
                let values = values(&theirs.repetitions, &ours.repetitions, figure.name);
                match ratio_of(figure, &values)?.judgement {
                    Judgement::Faster => Some((name, true)),
                    Judgement::Slower => Some((name, false)),
                    _ => None,
                }
            });
            ComparedLatency { kind, percentiles: percentiles.collect() }
        });
        found.filter(|latency| !latency.percentiles.is_empty()).collect()
    }

    /// The first percentile, and the next one at which the other system is lower.
    fn crossing(&self) -> Option<[(&'static str, bool); 2]> {
        let first = *self.percentiles.first()?;
        let other = self.percentiles.iter().find(|(_, is_ours)| *is_ours != first.1)?;
        Some([first, *other])
    }
}

/// A sentence about latencies that cross, and about those of which `winner` has the higher one; empty without
/// such latencies. Points whose ratio may not be quoted contribute nothing.
pub(super) fn contrast(all: &[&ComparedFigure], winner: Option<&str>, scope: &Scope) -> String {
    let mut notes: Vec<(String, Vec<String>)> = Vec::new();
    for one in all.iter().filter(|one| one.obstacles.is_empty()) {
        for latency in &one.latencies {
            let Some(note) = note(one, latency, winner) else { continue };
            let name = scope.name(one);
            match notes.iter_mut().find(|(known, _)| *known == note) {
                Some((_, names)) => names.push(name),
                None => notes.push((note, vec![name])),
            }
        }
    }
    let sentences = notes.into_iter().map(|(note, names)| {
        let at = match names.len() {
            1 => names[0].clone(),
            2 => names.join(" and "),
            count => format!("{} and {} more points", names[0], count - 1),
        };
        format!("{note} at {at}")
    });
    let sentences: Vec<String> = sentences.collect();
    if sentences.is_empty() { String::new() } else { format!(" But {}.", sentences.join("; ")) }
}

fn note(one: &ComparedFigure, latency: &ComparedLatency, winner: Option<&str>) -> Option<String> {
    let of = |is_ours: bool| if is_ours { one.ours.as_str() } else { one.theirs.as_str() };
    let verb = latency.kind.verb();
    // Systems at their own maxima have latencies of different rates.
    let load = if one.subject == Subject::Latency { "" } else { ", each at its own rate," };
    if let Some([(low, first), (high, other)]) = latency.crossing() {
        let (first, other) = (system(of(first)), system(of(other)));
        return Some(format!("{first} {verb} sooner at {low}, {other} at {high}{load}"));
    }
    let leader = of(latency.percentiles.first()?.1);
    let names: Vec<&str> = latency.percentiles.iter().map(|(name, _)| *name).collect();
    winner.filter(|winner| *winner != leader)?;
    Some(format!("{} {verb} sooner ({}){load}", system(leader), names.join(", ")))
}
