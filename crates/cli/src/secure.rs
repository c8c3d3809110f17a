//! A secured node or cluster while it runs: its first users, and how to connect to it.

pub mod quick_start;
pub mod users;
