//! Written by `cargo xtask codegen` from `crates/wire/schema`, except for this list.

pub mod api_key;
pub mod data;
pub mod error_code;
pub mod group;
pub mod metadata;
pub mod metadata_record;
mod refusals;
pub mod registry;
pub mod request;
pub mod share;
mod throttle_time;
pub mod transaction;
