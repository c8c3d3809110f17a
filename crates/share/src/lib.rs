//! Share groups (KIP-932): what the members of a group have acquired of a partition, and the part of it that survives.
//!
//! Pure: time and records come from the caller. Owns no partition, no connection and no file.

mod state;

pub use state::{DeliveryState, ShareKey, ShareState, StateBatch, StateSummary, StateUpdate};
