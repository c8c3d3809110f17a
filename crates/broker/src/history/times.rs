//! Quantiles of request times between two samples, from the counts of requests by time.

use crate::metrics::quantile_us;
use crate::request_metrics::{Counts, RequestMetrics};
use thalweg_histogram::Snapshot;
use thalweg_history::{Figure, Figures};
use thalweg_wire::ApiKey;

/// The shares of requests that are faster.
const MEDIAN: f64 = 0.5;
const P99: f64 = 0.99;

/// The counts at the last sample.
#[derive(Debug)]
pub(super) struct RequestTimes {
    produce: Counts,
    fetch: Counts,
    fetch_work: Snapshot,
}

impl RequestTimes {
    pub(super) fn of(requests: &RequestMetrics) -> RequestTimes {
        let api = |key| &requests.apis[requests.label(key).0];
        // The requests of followers have a label of their own.
        let fetch = api(ApiKey::Fetch);
        RequestTimes {
            produce: api(ApiKey::Produce).counts(),
            fetch: fetch.counts(),
            fetch_work: fetch.local.snapshot(),
        }
    }

    /// The quantiles since the last sample.
    pub(super) fn read(&mut self, requests: &RequestMetrics, figures: &mut Figures) {
        let now = RequestTimes::of(requests);
        let produce = difference(&now.produce, &self.produce);
        figures.set(Figure::ProduceP50Us, quantile_us(&produce, MEDIAN));
        figures.set(Figure::ProduceP99Us, quantile_us(&produce, P99));
        let fetch = difference(&now.fetch, &self.fetch);
        figures.set(Figure::FetchP50Us, quantile_us(&fetch, MEDIAN));
        figures.set(Figure::FetchP99Us, quantile_us(&fetch, P99));
        let work = difference(&now.fetch_work.counts, &self.fetch_work.counts);
        figures.set(Figure::FetchWorkP50Us, within(&work, now.fetch_work.bounds, MEDIAN));
        figures.set(Figure::FetchWorkP99Us, within(&work, now.fetch_work.bounds, P99));
        *self = now;
    }
}

fn difference<const N: usize>(now: &[u64; N], before: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|bucket| now[bucket].saturating_sub(before[bucket]))
}

/// The value below which a share of the values lies, as if those of a bucket were evenly spread over it;
/// `None` without values. Values above the last bound count as this bound.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and bounds are far below 2^53"
)]
fn within(counts: &[u64], bounds: &[u64], share: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let rank = total as f64 * share;
    let (mut below, mut lower) = (0, 0);
    for (count, upper) in counts.iter().zip(bounds) {
        if *count > 0 && (below + count) as f64 >= rank {
            let part = (rank - below as f64) / *count as f64;
            return Some(lower + ((upper - lower) as f64 * part) as u64);
        }
        (below, lower) = (below + count, *upper);
    }
    (total > 0).then_some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_their_bucket() {
        let bounds = [100, 200, 1_000];
        assert_eq!(within(&[0, 0, 0, 0], &bounds, P99), None);
        assert_eq!(within(&[10, 0, 0, 0], &bounds, MEDIAN), Some(50));
        assert_eq!(within(&[0, 100, 0, 0], &bounds, P99), Some(199));
        assert_eq!(within(&[50, 40, 10, 0], &bounds, P99), Some(200 + 720));
        assert_eq!(within(&[0, 0, 0, 5], &bounds, MEDIAN), Some(1_000), "there is no upper bound");
    }
}
