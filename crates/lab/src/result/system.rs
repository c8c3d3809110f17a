//! Names of the measured systems, for people. Results and arguments keep the short names of targets.

/// The name of the target that a result calls `target`; a running cluster is its address.
pub fn system(target: &str) -> &str {
    match target {
        "embedded" => "Thalweg",
        "apache-kafka" => "Apache Kafka",
        "pulsar" => "Apache Pulsar",
        "in memory" => "Thalweg, in memory",
        other => other,
    }
}
