//! The settings of transactions (Kafka's `TransactionStateManagerConfig` and `TransactionLogConfig`), in the
//! units that the coordinator uses.

use std::time::Duration;
use thalweg_config::BrokerConfig;

/// Settings of transactions. Each field names the property it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionConfig {
    /// `transaction.max.timeout.ms`.
    pub timeout_ms_max: i32,
    /// `request.timeout.ms`: maximum wait of a write for the replicas.
    pub write_timeout_ms: i64,
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

impl From<&BrokerConfig> for TransactionConfig {
    fn from(config: &BrokerConfig) -> TransactionConfig {
        let transactions = &config.transactions;
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        TransactionConfig {
            timeout_ms_max: transactions.max_timeout_ms,
            write_timeout_ms: ms(config.network.request_timeout),
            id_expiration_ms: ms(transactions.id_expiration),
            abort_timed_out_interval_ms: ms(transactions.abort_timed_out_interval),
            remove_expired_interval_ms: ms(transactions.remove_expired_interval),
            two_phase_commit: transactions.two_phase_commit,
            state_topic_partitions: transactions.state_topic_partitions,
        }
    }
}

impl Default for TransactionConfig {
    fn default() -> TransactionConfig {
        TransactionConfig::from(&BrokerConfig::default())
    }
}
