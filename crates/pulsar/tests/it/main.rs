//! The client against Apache Pulsar.
//!
//! `PULSAR_SERVICE_URL` is that of a broker, such as `pulsar://127.0.0.1:6650`, and `PULSAR_WEB_URL` that of
//! its admin API, such as `http://127.0.0.1:8080`; without them the tests are skipped. Each test has its own
//! topics, in the namespace `public/default`, or in a new one.

mod admin;
mod broker;
mod cut;
mod messages;
mod positions;
mod reconnection;
mod refusals;
mod subscriptions;
