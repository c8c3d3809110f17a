//! Transactions of `producer-perf-test`: one after the other, each for a while.

use std::time::Duration;

use thalweg_client::{Producer, TransactionError};
use tokio::time::Instant;

/// The default of kafka-producer-perf-test.
pub(super) const DEFAULT_DURATION_MS: u64 = 3000;

/// The transactions of one producer.
#[derive(Debug)]
pub(super) struct Transactions {
    duration: Duration,
    /// The start of the open transaction.
    began: Option<Instant>,
    committed: u64,
}

impl Transactions {
    /// Takes over the producer's transactional id.
    pub(super) async fn init(producer: &mut Producer, duration: Duration) -> Result<Self, TransactionError> {
        producer.init_transactions().await?;
        Ok(Transactions { duration, began: None, committed: 0 })
    }

    /// Opens a transaction if none is open. Call before each run of records.
    pub(super) fn begin(&mut self, producer: &mut Producer, now: Instant) -> Result<(), TransactionError> {
        if self.began.is_none() {
            producer.begin_transaction()?;
            self.began = Some(now);
        }
        Ok(())
    }

    /// Commits the open transaction if it is old enough. Call after each run of records.
    pub(super) async fn commit_old(&mut self, producer: &mut Producer) -> Result<(), TransactionError> {
        match self.began {
            Some(began) if began.elapsed() >= self.duration => self.commit(producer).await,
            _ => Ok(()),
        }
    }

    /// Commits the open transaction, if there is one. Call at the end.
    pub(super) async fn commit(&mut self, producer: &mut Producer) -> Result<(), TransactionError> {
        if self.began.take().is_some() {
            producer.commit_transaction().await?;
            self.committed += 1;
        }
        Ok(())
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }
}
