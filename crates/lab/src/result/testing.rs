//! Points and repetitions of made-up results.

use std::collections::BTreeMap;

use super::{Evidence, Figures, HostUse, PointResult, Repetition, Spread, Summary, Verdict};
use crate::worker::Driver;
use crate::workload::{
    Clients, ClusterSpec, Extent, Load, Measure, Payload, Point, RecordSpec, Topics, Unit, Verification,
};

/// An empty repetition.
pub(crate) fn repetition() -> Repetition {
    Repetition {
        number: 0,
        began_at_us: 0,
        measured_s: 0.0,
        figures: Figures::default(),
        acknowledge_latency: None,
        end_to_end_latency: None,
        produced: Vec::new(),
        consumed: Vec::new(),
        processes: Vec::new(),
        host: HostUse::default(),
        agents: Vec::new(),
        broker_machines: Vec::new(),
        unwatched_brokers: Vec::new(),
        samples: Vec::new(),
        profile: None,
        evidence: Evidence::default(),
        given_up: 0,
        notes: Vec::new(),
    }
}

/// The result of a point that Thalweg's driver measured, with these repetitions.
pub(crate) fn result(point: Point, target: &str, repetitions: Vec<Repetition>) -> PointResult {
    PointResult {
        point,
        target: target.to_owned(),
        driver: Driver::Thalweg,
        client: String::new(),
        security: None,
        summary: Summary { figures: Spread::of_figures(&repetitions), ..Summary::default() },
        repetitions,
        steps: Vec::new(),
        knee: None,
        verdict: Verdict::default(),
        failure: None,
    }
}

/// A small point.
pub(crate) fn point() -> Point {
    let clients = |count| Clients {
        count,
        processes: 1,
        threads: 1,
        properties: BTreeMap::new(),
        pulsar: BTreeMap::new(),
    };
    Point {
        label: "a point".to_owned(),
        cluster: ClusterSpec::plaintext(1, BTreeMap::new()),
        topics: Topics {
            count: 1,
            partitions: 1,
            replication_factor: 1,
            created_per_s: 0,
            properties: BTreeMap::new(),
        },
        records: RecordSpec { size_bytes: 100, payload: Payload::Random, keys: None },
        producers: clients(1),
        consumers: clients(0),
        consumer_groups: 1,
        measure: Measure::Produce,
        load: Load::Maximum,
        extent: Extent { warm_up_s: 0.0, unit: Unit::Seconds(10.0) },
        repetitions: 3,
        verify: Verification::Off,
    }
}
