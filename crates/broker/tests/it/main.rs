//! A whole broker with its embedded controller, tested from outside through its listener.

mod admin;
mod apache;
mod child;
mod cluster;
mod compacting;
mod connections;
mod cost;
mod descriptors;
mod fetch_sessions;
mod fetching;
mod flushing;
mod large_groups;
mod memory;
mod moves;
mod producing;
mod quotas;
mod raw;
mod records;
mod replication;
mod restart;
mod running;
mod stopping;
mod transactions;
mod transport;
mod validation;
mod versions;
