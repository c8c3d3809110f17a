//! Helpers of several APIs: forwarding to the controller, automatic topic creation, large requests, rights.
//!
//! An API's own file has its entry and its function; a file here has none, and is used by two APIs at least.

pub mod auto_create;
pub mod described_groups;
pub mod elsewhere;
pub mod forward;
pub mod large_requests;
pub mod loggers;
pub mod topic_rights;
pub mod verdicts;
