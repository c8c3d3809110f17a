//! The workloads that every binary carries: a first look, the latency of replicated records, and those of
//! the published reports that this project answers to.

/// Name and text of each, in the order in which they are listed.
const WORKLOADS: [(&str, &str); 12] = [
    ("quick", include_str!("../../../../workloads/quick.toml")),
    ("ibm-resilient", include_str!("../../../../workloads/ibm-resilient.toml")),
    ("ibm-fast", include_str!("../../../../workloads/ibm-fast.toml")),
    ("ibm-payload", include_str!("../../../../workloads/ibm-payload.toml")),
    ("z-tuning", include_str!("../../../../workloads/z-tuning.toml")),
    ("xd-kafka", include_str!("../../../../workloads/xd-kafka.toml")),
    ("xd-direct", include_str!("../../../../workloads/xd-direct.toml")),
    ("xd-stream", include_str!("../../../../workloads/xd-stream.toml")),
    ("aiven-saturation", include_str!("../../../../workloads/aiven-saturation.toml")),
    ("queue-kafka", include_str!("../../../../workloads/queue-kafka.toml")),
    ("replicated-latency", include_str!("../../../../workloads/replicated-latency.toml")),
    ("replicated-scale", include_str!("../../../../workloads/replicated-scale.toml")),
];

/// The names of the workloads that are built in.
pub fn names() -> Vec<&'static str> {
    WORKLOADS.iter().map(|(name, _)| *name).collect()
}

/// The file of a workload that is built in, as it was written.
pub fn source(name: &str) -> Option<&'static str> {
    WORKLOADS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
