//! The transaction coordinator: the producer of a transactional id, the partitions of its transaction, and
//! the end of the transaction in all of them.
//!
//! Compatible with Kafka's `TransactionCoordinator` and both of its protocols: KIP-98, in which the producer
//! names its partitions first, and KIP-890 (transaction.version 2), in which the leaders do and each
//! transaction has its own epoch.
//!
//! ```text
//! TransactionCoordinator   requests, and producer ids for them; the driver below it is `thalweg_shard`
//!   TransactionShard       all transactional ids of one partition of `__transaction_state`; no clock, no I/O
//!     TransactionMetadata  one id: its producer, its state, its partitions, and every transition
//! markers                  sends the markers that end a transaction to the leaders of its partitions
//! Verifier                 a leader's query whether a transaction may write to its partitions
//! ```
//!
//! A change is decided, written to the log, and applied when the log acknowledges it. Meanwhile the id is
//! busy, and every other request for it gets a retriable error (CONCURRENT_TRANSACTIONS). The end of a
//! transaction has two changes: the decision, which is final and answers the client, and the completion, once
//! all markers are in their partitions. A newly elected coordinator completes decided transactions.

mod answer;
mod config;
mod coordinator;
mod error;
mod markers;
mod metadata;
mod producer_ids;
mod record;
mod shard;
mod state;
#[cfg(test)]
mod tests;
mod verifier;

pub use answer::{Producer, TransactionAnswer, VerificationResult};
pub use config::TransactionConfig;
pub use coordinator::{TransactionCoordinator, TwoPhaseCommit};
pub use error::{MarkerError, NoProducerIds, TransactionError, VerificationError};
pub use markers::{MarkerSender, MarkerWriter};
pub use metadata::{TransactionMetadata, TransactionPartitions};
pub use producer_ids::ProducerIds;
pub use shard::{
    EndRequest, InitRequest, Marker, MarkerOrder, TransactionFigures, TransactionFilter, TransactionsView,
};
pub use state::TransactionState;
pub use verifier::{
    GuardedPartition, Verification, Verifier, begin as begin_verification, needs_verification,
};
