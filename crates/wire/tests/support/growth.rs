//! Times requests of two lengths, to check that an API's cost does not grow faster than its requests.

use std::time::Duration;

/// Elements of the shorter requests.
pub const FEW: usize = 2_000;
/// Elements of the longer requests.
pub const MANY: usize = FEW * FACTOR as usize;

/// How many times as many elements the longer requests have.
const FACTOR: u32 = 8;
/// Allowance for a longer request beside its share: the machine has other work too.
const NOISE: Duration = Duration::from_millis(60);
/// Number of tries before a time counts as too long.
const TRIES: usize = 4;

/// The maximum time of a request of [`MANY`] elements, if one of [`FEW`] takes `short`.
fn limit(short: Duration) -> Duration {
    short * FACTOR * 2 + NOISE
}

/// The shapes of requests whose time grew faster than their length.
#[derive(Default)]
pub struct Growth {
    steep: Vec<String>,
}

impl Growth {
    /// Times a shape's two requests: `many` has [`FACTOR`] times as many elements as `few`.
    pub async fn compare(
        &mut self,
        shape: &str,
        few: &[u8],
        many: &[u8],
        mut time: impl AsyncFnMut(&[u8]) -> Duration,
    ) {
        let (mut short, mut long) = (Duration::MAX, Duration::MAX);
        for _ in 0..TRIES {
            short = short.min(time(few).await);
            long = long.min(time(many).await);
            // A time far beyond the limit is not noise.
            if long <= limit(short) || long > 4 * limit(short) {
                break;
            }
        }
        if std::env::var_os("COST_TABLE").is_some() {
            eprintln!("{shape}: {short:?} {long:?}");
        }
        if long > limit(short) {
            self.steep.push(format!("{shape}: {short:?}, with {FACTOR} times as many {long:?}"));
        }
    }

    /// # Panics
    /// When a shape was steep; names them all.
    pub fn assert_linear(&self) {
        assert!(self.steep.is_empty(), "time grows faster than the request:\n{}", self.steep.join("\n"));
    }
}
