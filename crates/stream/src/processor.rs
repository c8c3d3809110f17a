//! Processors, one file each.

pub mod aggregate;
mod backlog;
pub mod batch;
pub mod dedup;
pub mod enrich;
pub mod exec;
pub mod filter;
mod quantiles;
pub mod rate_limit;
pub mod splitter;
pub mod transform;
mod watermarks;
mod windows;
