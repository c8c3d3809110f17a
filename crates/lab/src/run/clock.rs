//! The clock of the lab, which its workers share.

use crate::worker::clock::Clock;

/// Microseconds since the Unix epoch.
pub(crate) fn now_us() -> u64 {
    Clock::of_process().now_us()
}

/// The current time as RFC 3339 in UTC, in seconds.
pub fn now_rfc_3339() -> String {
    rfc_3339(now_us())
}

/// A time as RFC 3339 in UTC, in seconds.
fn rfc_3339(us: u64) -> String {
    let seconds = i64::try_from(us / 1_000_000).unwrap_or(i64::MAX);
    chrono::DateTime::from_timestamp(seconds, 0)
        .unwrap_or_default()
        .to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_printed_in_rfc_3339() {
        assert_eq!(rfc_3339(1_700_000_000_999_999), "2023-11-14T22:13:20Z");
    }
}
