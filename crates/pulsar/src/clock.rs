//! The wall clock, for the publish times of messages. Pulsar's broker stores the producer's time, so that a
//! consumer on the same machine can compute the latency from it.

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "publish times are wall clock, as Pulsar's clients write them"
    )]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
