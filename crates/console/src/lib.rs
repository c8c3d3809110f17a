//! The console: pages and a JSON API for people who run a cluster, over any cluster that speaks Kafka's
//! protocol.
//!
//! The console owns HTML, the API under `/api/v1`, its OpenAPI document, sessions, and a bounded cache of
//! readings. A connection to the cluster uses the login of the person, so that the cluster itself decides
//! that person's rights, and its own audit trail records the requests. The console refuses knowledge of the
//! broker's code, files on disk other than lab results, and scripts or styles from elsewhere.
//!
//! A request passes `guard` (headers, host, origin, login, read-only), then a handler under `pages` or `api`.
//! Both kinds of handlers read through a `cluster::View`, so that a page and the API never disagree.

mod amounts;
mod api;
mod arrival;
mod assets;
mod chart;
mod client_settings;
mod clients;
mod cluster;
mod columns;
mod confirm;
mod csv;
mod download;
mod format;
mod guard;
mod history;
mod json_text;
mod lab;
mod measuring;
mod page;
mod pages;
mod partition_index;
mod problem;
mod reading;
mod restoration;
mod session;
mod settings;
mod sorting;
mod state;
mod streams;
mod tail;
mod taps;
mod units;
mod unseen;

pub use arrival::Arrival;
pub use clients::{ClientConnection, ClientSource};
pub use guard::{Guard, set_headers};
pub use history::HistorySource;
pub use settings::{ConsoleSettings, Credentials, Hosts, LabSettings, Login, Mechanism};
pub use state::Console;
pub use taps::hide;
