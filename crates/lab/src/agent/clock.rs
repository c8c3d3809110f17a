//! The offset of an agent's clock, by many quick exchanges.
//!
//! The agent reads its clock between the lab's sending of a line and the arrival of the answer. So the offset
//! is known up to half of the round trip, however unequal both ways are; the fastest round trip is used.
//!
//! The agent's clock is that of its workers, and the lab's is that of its commands: both run on the kernel's
//! monotonic clock. So a step of a wall clock is in neither, and a machine that paused is seen.

use std::time::Duration;

use tokio::time::Instant;

use super::protocol::{Channel, ChannelError};
use crate::result::ClockOffset;
use crate::worker::clock::{Clock, micros};

/// Number of exchanges, unless they are slow.
const EXCHANGES: usize = 300;
/// Number of exchanges in any case.
const EXCHANGES_MIN: usize = 5;
/// Time after which no further exchange begins.
const LENGTH: Duration = Duration::from_millis(500);
/// Maximum length of a line with a time.
pub(super) const LINE_BYTES_MAX: u64 = 32;

/// Measures the offset over the connection of a clock request. Returns the fastest round trip, too.
pub(super) async fn measure(
    channel: &mut Channel,
    within: Duration,
) -> Result<(ClockOffset, u64), ChannelError> {
    let clock = Clock::of_process();
    let began = Instant::now();
    let mut fastest: Option<Exchange> = None;
    for number in 0..EXCHANGES {
        if number >= EXCHANGES_MIN && began.elapsed() > LENGTH {
            break;
        }
        let sent = Instant::now();
        channel.send(b"\n", within).await?;
        let line = channel.line(LINE_BYTES_MAX, within).await?;
        let took = sent.elapsed();
        let agent_us: u64 = serde_json::from_slice(&line)?;
        let exchange = Exchange { sent_us: clock.us(sent), agent_us, took_us: micros(took) };
        if fastest.is_none_or(|fastest| exchange.took_us < fastest.took_us) {
            fastest = Some(exchange);
        }
    }
    let fastest = fastest.expect("there are some exchanges");
    Ok((fastest.offset(), fastest.took_us))
}

/// An exchange of lines.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// The lab's clock when it sent its line.
    sent_us: u64,
    /// The agent's clock in between.
    agent_us: u64,
    /// The round trip, rounded down.
    took_us: u64,
}

impl Exchange {
    fn offset(self) -> ClockOffset {
        let middle_us = self.sent_us + self.took_us / 2;
        // Each of the times is rounded by up to a microsecond.
        let uncertainty_us = self.took_us.div_ceil(2) + 1;
        let offset_us = i64::try_from(i128::from(self.agent_us) - i128::from(middle_us)).unwrap_or(i64::MAX);
        ClockOffset { offset_us, uncertainty_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_known_up_to_half_of_the_round_trip() {
        // The agent is 50 ms ahead; the way there takes `there_us` of 10 ms.
        for there_us in [0, 1_000, 5_000, 10_000] {
            let sent_us = 1_700_000_000_000_000;
            let exchange = Exchange { sent_us, agent_us: sent_us + there_us + 50_000, took_us: 10_000 };
            let ClockOffset { offset_us, uncertainty_us } = exchange.offset();
            assert!(offset_us.abs_diff(50_000) <= uncertainty_us, "{offset_us} ± {uncertainty_us}");
            assert_eq!(uncertainty_us, 5_001);
        }
    }

    #[test]
    fn a_clock_that_is_behind_has_a_negative_offset() {
        let exchange = Exchange { sent_us: 5_000_000, agent_us: 4_000_010, took_us: 20 };
        assert_eq!(exchange.offset(), ClockOffset { offset_us: -1_000_000, uncertainty_us: 11 });
    }
}
