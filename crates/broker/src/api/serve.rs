//! Helpers of several APIs: access, forwarding to the controller, automatic topic creation, requests that
//! take long.
//!
//! An API's own file has its entry and its function; a file here has none, and is used by two APIs at least.

pub mod access;
pub mod auto_create;
pub mod described_groups;
pub mod elsewhere;
pub mod forward;
pub mod large;
pub mod loggers;
pub mod slow;
pub mod verdicts;
