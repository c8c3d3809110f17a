//! The built-in workloads: a first look, the latency of replicated records, and those of published reports.

/// Name and text of each, in list order.
const WORKLOADS: [(&str, &str); 14] = [
    ("quick", include_str!("../../../../workloads/quick.toml")),
    ("ibm-resilient", include_str!("../../../../workloads/ibm-resilient.toml")),
    ("ibm-fast", include_str!("../../../../workloads/ibm-fast.toml")),
    ("ibm-payload", include_str!("../../../../workloads/ibm-payload.toml")),
    ("z-tuning", include_str!("../../../../workloads/z-tuning.toml")),
    ("xd-kafka", include_str!("../../../../workloads/xd-kafka.toml")),
    ("xd-direct", include_str!("../../../../workloads/xd-direct.toml")),
    ("xd-stream", include_str!("../../../../workloads/xd-stream.toml")),
    ("aiven-saturation", include_str!("../../../../workloads/aiven-saturation.toml")),
    ("aiven-plans", include_str!("../../../../workloads/aiven-plans.toml")),
    ("queue", include_str!("../../../../workloads/queue.toml")),
    ("replicated-latency", include_str!("../../../../workloads/replicated-latency.toml")),
    ("replicated-scale", include_str!("../../../../workloads/replicated-scale.toml")),
    ("growth", include_str!("../../../../workloads/growth.toml")),
];

/// The names of the built-in workloads.
pub fn names() -> Vec<&'static str> {
    WORKLOADS.iter().map(|(name, _)| *name).collect()
}

/// The file of a built-in workload.
pub fn source(name: &str) -> Option<&'static str> {
    WORKLOADS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
