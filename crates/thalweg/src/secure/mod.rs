//! A secured node or cluster while it runs: its first users, the end of its certificates, and how to connect to it.

pub mod quick_start;
pub mod renewal;
pub mod users;
