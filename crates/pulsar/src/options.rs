//! Settings of a client's connections and requests.

use std::time::Duration;

/// Limits and timeouts of a client. The defaults are those of Pulsar's Java client, where it has one.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time limit for opening a connection, and again for the answer to CONNECT; `connectionTimeoutMs`.
    pub connect_timeout: Duration,
    /// Time limit for an answer, and for opening a producer or consumer with all attempts;
    /// `operationTimeoutMs`.
    pub operation_timeout: Duration,
    /// Time without a command from the broker after which it is asked for a sign of life; it gets the same
    /// time for the answer. `keepAliveIntervalSeconds`.
    pub keep_alive: Duration,
    /// First pause between attempts; `initialBackoffIntervalNanos`.
    pub backoff_min: Duration,
    /// Longest pause between attempts. (Java's client waits up to a minute, which would outlast a
    /// measurement.)
    pub backoff_max: Duration,
    /// Time for which a producer or consumer tries to reconnect before it fails for good. (Java's client
    /// never stops.)
    pub reconnect_timeout: Duration,
    /// Largest number of referrals of a lookup; `maxLookupRedirects`.
    pub lookup_redirects_max: usize,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(30),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(1),
            reconnect_timeout: Duration::from_secs(60),
            lookup_redirects_max: 20,
        }
    }
}
