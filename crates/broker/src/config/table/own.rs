//! Keys of Thalweg's own, for what Kafka has no key for.
//!
//! One entry per key, as in the tables of Kafka's keys. A key is added here only where Kafka has none: `table::tests` checks it.

use super::super::check::LISTEN_ADDRESS;
use super::super::key::Support::Served;
use super::family;

family! { OWN_KEYS "Thalweg's own";
    "http.listener": String = null, LISTEN_ADDRESS, Medium, ReadOnly, Served,
        "`HOST:PORT` of an HTTP server for operators: `/metrics` in Prometheus' text format (`docs/metrics.md`). Off unless it is set. It has neither TLS nor authentication: keep it to a network that only operators reach. An empty host is every interface, port 0 a free one.",
        differs = "Kafka has no such key; there, metrics come by JMX and an exporter beside it.";
}
