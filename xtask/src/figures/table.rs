//! Published results, and the code that each of them measures.

/// A result, the figures quoted from it, and the code whose changes may change them.
pub struct MeasuredResult {
    /// Its file: the JSON, or the page of a result without one.
    pub result: &'static str,
    pub figures: &'static str,
    /// Files or folders.
    pub code: &'static [&'static str],
}

/// Produce and Fetch from the socket to the log.
const DATA_PATH: &[&str] = &[
    "crates/broker/src/api/fetch",
    "crates/broker/src/api/produce",
    "crates/broker/src/api/produce.rs",
    "crates/log/src/partition",
    "crates/log/src/segment",
    "crates/net/src",
    "crates/record/src",
];
/// The same, with followers, groups and the lab's own clients.
const CLUSTER: &[&str] = &[
    "crates/broker/src/api/fetch",
    "crates/broker/src/api/produce",
    "crates/broker/src/api/produce.rs",
    "crates/groups/src",
    "crates/lab/src/worker",
    "crates/log/src/partition",
    "crates/log/src/segment",
    "crates/net/src",
    "crates/record/src",
    "crates/replica/src",
];
/// Produce, Fetch and logins over TLS, under ACLs and quotas.
const SECURED: &[&str] = &[
    "crates/broker/src/api/fetch",
    "crates/broker/src/api/produce",
    "crates/broker/src/api/produce.rs",
    "crates/broker/src/authentication",
    "crates/broker/src/authorization",
    "crates/broker/src/quotas",
    "crates/net/src",
    "crates/security/src",
];
/// Topics that come and go, and many partitions.
const GROWTH: &[&str] = &[
    "crates/broker/src/api/fetch",
    "crates/broker/src/fetch_sessions",
    "crates/controller/src",
    "crates/groups/src",
    "crates/log/src",
    "crates/metadata/src",
    "crates/replica/src",
];

/// Every result under docs/results, by name.
pub const TABLE: &[MeasuredResult] = &[
    MeasuredResult {
        result: "docs/results/2026-11-22-compare-kafka.json",
        figures: "README.md: headline, chart, table; docs/results/README.md: table",
        code: &[
            "crates/broker/src/api/fetch",
            "crates/broker/src/api/produce",
            "crates/broker/src/api/produce.rs",
            "crates/broker/src/opening.rs",
            "crates/log/src/partition",
            "crates/log/src/segment",
            "crates/net/src",
            "crates/record/src",
            "crates/thalweg/src/cli/serve.rs",
        ],
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-aiven.json",
        figures: "saturation of a cluster",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-drivers.json",
        figures: "the lab's drivers against Apache Kafka",
        code: &["crates/lab/src/worker"],
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-latency.json",
        figures: "latency of replicated records",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-replicated.json",
        figures: "docs/results/README.md: three replicas, acks=all, 3 to 9 brokers",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-scale.json",
        figures: "rates and latencies over 1 to 6 brokers",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-xd-kafka.json",
        figures: "one topic over brokers and record sizes",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab-xd-stream.json",
        figures: "pipelines in memory",
        code: &["crates/lab/src/worker/stream.rs", "crates/stream/src"],
    },
    MeasuredResult {
        result: "docs/results/2026-11-22-lab.json",
        figures: "docs/results/README.md: one replica, 3 and 6 brokers",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-23-validation.md",
        figures: "docs/results/README.md: small gzip batches",
        code: &["crates/record/src"],
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-compare-kafka-acls.json",
        figures: "cost of logins and ACLs",
        code: SECURED,
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-compare-kafka-secured.json",
        figures: "TLS, logins, ACLs and quotas",
        code: SECURED,
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-console.md",
        figures: "time and memory of the console's pages",
        code: &["crates/console/src"],
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-cost-of-security.md",
        figures: "instructions of logins, ACLs and quotas",
        code: SECURED,
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-floods.md",
        figures: "handshakes and logins per second of broker CPU",
        code: &["crates/net/src", "crates/security/src"],
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-growth.md",
        figures: "cost of a record over partitions and producers",
        code: DATA_PATH,
    },
    MeasuredResult {
        result: "docs/results/2026-11-25-throttling.md",
        figures: "distance of clients to their quotas",
        code: &["crates/broker/src/quotas", "crates/net/src"],
    },
    MeasuredResult {
        result: "docs/results/2026-11-27-lab-idle.json",
        figures: "up to 100,000 idle partitions",
        code: GROWTH,
    },
    MeasuredResult {
        result: "docs/results/2026-11-27-lab-latency.json",
        figures: "latency of replicated records, producers out of step",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-27-lab-producers.json",
        figures: "producers that do not batch",
        code: CLUSTER,
    },
    MeasuredResult {
        result: "docs/results/2026-11-27-lab-topics.json",
        figures: "topics that come and go",
        code: GROWTH,
    },
    MeasuredResult {
        result: "docs/results/2026-11-27-tails.md",
        figures: "latency tail beside the null server",
        code: DATA_PATH,
    },
];
