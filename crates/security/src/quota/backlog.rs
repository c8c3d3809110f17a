//! The debt of a throttled client beyond the window of its rate.
//!
//! A rate forgets use outside its window. Therefore Kafka lets a client with unlimited data send one window's
//! worth at a time: a burst, a pause of ten seconds, the next burst. The average is right, but intervals of
//! 30 seconds are off by a tenth. A backlog holds a throttled client to its limit from then on, as if the
//! window reached back to the burst, until the client has been idle long enough to earn another burst.
//!
//! A client that stays within its rate has no backlog, and is never throttled unless Kafka would throttle
//! too. The pauses of the first window are Kafka's.

use super::Rate;

/// The backlog of one client; none initially.
#[derive(Clone, Debug, Default)]
pub struct Backlog(Option<Debt>);

#[derive(Clone, Copy, Debug)]
struct Debt {
    /// Start of the counted use, in milliseconds of the caller's clock.
    since_ms: i64,
    /// Time at which the limit permits all counted use. In the past for a client below its limit.
    due_ms: f64,
}

impl Backlog {
    /// Adds use that is also recorded in the rate. Returns the throttle time in milliseconds.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "times are far below 2^53 milliseconds"
    )]
    pub fn charge(&mut self, rate: &mut Rate, value: f64, limit: f64, now_ms: i64) -> i64 {
        let throttle_ms = rate.throttle_ms(limit, now_ms).unwrap_or(0);
        let (now, window) = (now_ms as f64, rate.window());
        let owed = match self.0 {
            Some(owed) => Debt { due_ms: owed.due_ms + value / limit * 1000.0, ..owed },
            None if throttle_ms > 0 => {
                let (sum, since_ms) = rate.sum(now_ms);
                Debt { since_ms, due_ms: since_ms as f64 + sum / limit * 1000.0 }
            }
            None => return 0,
        };
        // Bounds the debt of a client that ignores its pauses.
        let longest_ms = throttle_ms.max(2 * window.length_ms());
        let due_ms = owed.due_ms.min(now + longest_ms as f64);
        let has_earned_a_burst = now - due_ms >= window.burst(1.0) * 1000.0;
        self.0 = (!has_earned_a_burst).then_some(Debt { due_ms, ..owed });
        let is_forgotten_by_rate = now_ms - owed.since_ms >= window.length_ms();
        let own_ms = if is_forgotten_by_rate { (due_ms - now).round() as i64 } else { 0 };
        throttle_ms.max(own_ms)
    }

    /// Subtracts use that did not happen.
    pub fn take_back(&mut self, value: f64, limit: f64) {
        if let Some(owed) = &mut self.0 {
            owed.due_ms -= value / limit * 1000.0;
        }
    }

    /// Drops the debt.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Window;

    const WINDOW: Window = Window { samples: 11, sample_ms: 1000 };
    const LIMIT: f64 = 1_000_000.0;

    struct Client {
        rate: Rate,
        backlog: Backlog,
    }

    impl Client {
        fn new() -> Client {
            Client { rate: Rate::new(WINDOW), backlog: Backlog::default() }
        }

        fn send(&mut self, bytes: f64, now_ms: i64) -> i64 {
            self.rate.record(bytes, now_ms);
            self.backlog.charge(&mut self.rate, bytes, LIMIT, now_ms)
        }
    }

    #[test]
    fn a_client_with_more_to_send_is_at_its_limit_over_any_half_minute() {
        for size in [2_000.0, 20_000.0, 300_000.0] {
            let (mut client, mut now_ms, mut sent) = (Client::new(), 5_000, Vec::new());
            while now_ms < 125_000 {
                sent.push((now_ms, size));
                now_ms += client.send(size, now_ms);
            }
            // Kafka permits the first burst too; the rest of the first window compensates for it.
            for begin_ms in std::iter::once(5_000).chain((20_000..95_000).step_by(100)) {
                let within = |at_ms: i64| (begin_ms..begin_ms + 30_000).contains(&at_ms);
                let bytes: f64 =
                    sent.iter().filter(|(at_ms, _)| within(*at_ms)).map(|(_, bytes)| bytes).sum();
                let share = bytes / LIMIT / 30.0;
                assert!((0.98..1.02).contains(&share), "{share} from {begin_ms} ms, {size} bytes each");
            }
        }
    }

    #[test]
    fn a_client_within_its_rate_never_pauses() {
        let mut client = Client::new();
        // Nine seconds' worth at once, every eleven seconds.
        for burst in 0..20 {
            for _ in 0..9 {
                assert_eq!(client.send(LIMIT, burst * 11_000), 0);
            }
        }
    }

    #[test]
    fn the_pauses_of_the_first_window_are_those_of_the_rate() {
        let (mut client, mut rate, mut now_ms) = (Client::new(), Rate::new(WINDOW), 0);
        while now_ms < 10_999 {
            rate.record(200_000.0, now_ms);
            let throttle_ms = rate.throttle_ms(LIMIT, now_ms).unwrap_or(0);
            assert_eq!(client.send(200_000.0, now_ms), throttle_ms, "at {now_ms} ms");
            now_ms += throttle_ms;
        }
    }

    #[test]
    fn a_client_that_was_idle_may_burst_again() {
        let mut client = Client::new();
        assert_eq!(client.send(12.0 * LIMIT, 0), 2000);
        assert!(client.send(LIMIT, 12_000) > 900, "the burst has left the window, and counts");
        assert_eq!(client.send(1.0, 13_000 + 10_001), 0, "ten seconds more than it owed");
        assert_eq!(client.send(9.0 * LIMIT, 13_000 + 10_001), 0);
    }

    #[test]
    fn pauses_that_are_ignored_do_not_add_up_for_ever() {
        let mut client = Client::new();
        for now_ms in 0..1000 {
            client.send(LIMIT, now_ms);
        }
        assert!(client.send(0.0, 1000 + 11_001) <= 22_000);
        assert_eq!(client.send(0.0, 1000 + 33_001), 0);
    }
}
