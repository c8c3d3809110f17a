//! The settings that transactions obey, with Kafka's defaults (`TransactionStateManagerConfig`, `TransactionLogConfig`).

/// How transactions behave. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionConfig {
    /// `transaction.max.timeout.ms`.
    pub timeout_ms_max: i32,
    /// `transactional.id.expiration.ms`.
    pub id_expiration_ms: i64,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
    pub abort_timed_out_interval_ms: i64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`.
    pub remove_expired_interval_ms: i64,
    /// `transaction.two.phase.commit.enable`.
    pub two_phase_commit: bool,
    /// `transaction.state.log.num.partitions`: partitions of `__transaction_state` until the topic exists.
    pub state_topic_partitions: i32,
}

impl Default for TransactionConfig {
    fn default() -> TransactionConfig {
        TransactionConfig {
            timeout_ms_max: 15 * 60 * 1000,
            id_expiration_ms: 7 * 24 * 60 * 60 * 1000,
            abort_timed_out_interval_ms: 10_000,
            remove_expired_interval_ms: 60 * 60 * 1000,
            two_phase_commit: false,
            state_topic_partitions: 50,
        }
    }
}
