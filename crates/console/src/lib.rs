//! The console: pages and a JSON API for people who run a cluster, over any cluster that speaks Kafka's protocol.
//!
//! It owns HTML, the API under `/api/v1`, its OpenAPI document, sessions, and a bounded cache of what it has read. It connects
//! to the cluster as a client with the login of the person who asks, so that the cluster itself decides what that person may
//! see and do, and its own audit trail has it. It refuses knowledge of the broker's code, files on disk other than the lab's results, and
//! scripts or styles from elsewhere.
//!
//! A request passes `guard` (headers, host, origin, login, read-only), then a handler under `pages` or `api`. Both read
//! through a `cluster::View`, so that a page and the API never disagree.

mod api;
mod arrival;
mod assets;
mod chart;
mod cluster;
mod format;
mod guard;
mod lab;
mod measuring;
mod page;
mod pages;
mod problem;
mod reading;
mod session;
mod settings;
mod state;
mod streams;
mod tail;
mod taps;
mod unseen;

pub use arrival::Arrival;
pub use guard::{Guard, set_headers};
pub use settings::{ConsoleSettings, Credentials, Hosts, LabSettings, Login, Mechanism};
pub use state::Console;
pub use taps::hide;
