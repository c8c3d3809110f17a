//! A running secured node or cluster: first users, renewal of certificates, and instructions to connect.

pub mod quick_start;
pub mod renewal;
pub mod users;
