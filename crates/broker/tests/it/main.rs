//! A whole broker with its embedded controller, tested from outside through its listener. The head of each
//! module has its subject in full.
//!
//! - Records: `producing`, `producing_together`, `validation`, `fetching`, `fetch_sessions`, `flushing` and
//!   `compacting`: what clients get for their batches.
//! - Groups: `large_groups` and `damaged_groups` (records of `__consumer_offsets` that do not fit, or are
//!   damaged), `share_groups`, `share_states`, `shares`, `share_consumers` and `streams_groups`.
//! - Transactions: `transactions` and `transactional_offsets`: visibility, and refusals with Kafka's codes.
//! - Clusters: `cluster` and `replication` run several nodes in this process; `apache` runs brokers under
//!   controllers of Apache Kafka.
//! - Protocol: `versions` sends each API at each version, `refusals` sends wrong fields.
//! - Access: `authorization`, `sasl`, `tls`, `revocation`, `delegation_tokens` and `audit`: logins, rights
//!   and their trail.
//! - Administration: `admin`, `moves`, `metrics` and `telemetry`: changes and figures at run time.
//! - Limits: `quotas`, `mutation_quotas`, `connection_quotas`, `connections`, `limits` and `transport`: the
//!   share of each client.
//! - Faults: `restart`, `stopping`, `full_disk` and `descriptors`: acknowledged records survive.
//! - Costs: `cost`, `memory`, `metrics_cost` and `share_cost`: time and memory stay within their bars.
//! - Support: `child`, `raw`, `records`, `running` and `sharing`.

mod admin;
mod apache;
mod audit;
mod authorization;
mod child;
mod cluster;
mod compacting;
mod connection_quotas;
mod connections;
mod cost;
mod damaged_groups;
mod delegation_tokens;
mod descriptors;
mod fetch_sessions;
mod fetching;
mod flushing;
mod full_disk;
mod large_groups;
mod limits;
mod memory;
mod metrics;
mod metrics_cost;
mod moves;
mod mutation_quotas;
mod producing;
mod producing_together;
mod quotas;
mod raw;
mod records;
mod refusals;
mod replication;
mod restart;
mod revocation;
mod running;
mod sasl;
mod share_consumers;
mod share_cost;
mod share_groups;
mod share_states;
mod shares;
#[path = "../../../client/tests/support/sharing.rs"]
mod sharing;
mod stopping;
mod streams_groups;
mod telemetry;
mod tls;
mod transactional_offsets;
mod transactions;
mod transport;
mod validation;
mod versions;
