//! The binary as a user sees it: start, use, stop; exit codes and output.

mod binary;
mod cluster;
mod embedded_target;
mod failures;
mod http;
mod http_access;
mod http_client;
mod lab;
mod lab_clean_up;
mod lab_drivers;
mod lab_secured;
mod lab_worker;
mod log_limit;
mod logging;
mod node;
mod replicated;
mod secure_node;
mod secured;
mod serve_cluster;
mod stream_hosting;
mod streams;
mod streams_exactly_once;
mod streams_guarantees;
mod streams_kafka;
mod tools;
