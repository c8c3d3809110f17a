//! Latency histograms: percentiles come from merged histograms, never from averages.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram as Recorded;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// The percentiles of [`Histogram`].
const PERCENTILES: [f64; 7] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// A histogram of microseconds with three significant digits: the usual percentiles and the raw counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    pub min_us: u64,
    pub mean_us: f64,
    /// The 50th percentile.
    pub p50_us: u64,
    /// The 75th percentile.
    pub p75_us: u64,
    /// The 90th percentile.
    pub p90_us: u64,
    /// The 95th percentile.
    pub p95_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
    /// The 99.9th percentile.
    pub p999_us: u64,
    /// The 99.99th percentile.
    pub p9999_us: u64,
    pub max_us: u64,
    /// All counts: HdrHistogram's V2 encoding, deflated, in Base64. Any HdrHistogram library reads it.
    pub hdr_v2_deflate_base64: String,
}

/// Invalid raw counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A histogram's hdr_v2_deflate_base64 is no HdrHistogram V2 in Base64: {reason}")]
pub struct HistogramUnreadable {
    pub reason: String,
}

impl Histogram {
    /// An empty recorder: 1 µs to an hour, three significant digits.
    pub fn recorder() -> Recorded<u64> {
        Recorded::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are valid")
    }

    /// The histogram of a recorder; `None` if empty.
    pub fn of(recorded: &Recorded<u64>) -> Option<Histogram> {
        if recorded.is_empty() {
            return None;
        }
        let at = |quantile| recorded.value_at_quantile(quantile);
        Some(Histogram {
            count: recorded.len(),
            min_us: recorded.min(),
            mean_us: recorded.mean(),
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: recorded.max(),
            hdr_v2_deflate_base64: encoded(recorded),
        })
    }

    /// The same with fewer distinct values: each value between those of the percentiles `drawn` counts as the
    /// next of these. The number of values, minimum, mean, maximum, all percentiles of the fields and those
    /// at `drawn` stay as they are.
    pub fn thinned(&self, drawn: impl IntoIterator<Item = f64>) -> Result<Histogram, HistogramUnreadable> {
        let all = self.recorded()?;
        let mut kept: BTreeSet<u64> =
            drawn.into_iter().map(|quantile| all.value_at_quantile(quantile)).collect();
        kept.extend(PERCENTILES.map(|quantile| all.value_at_quantile(quantile)));
        kept.extend([all.highest_equivalent(all.min()), all.highest_equivalent(all.max())]);
        let mut thin = Histogram::recorder();
        for bin in all.iter_recorded() {
            let value = all.highest_equivalent(bin.value_iterated_to());
            let kept = kept.range(value..).next().expect("the maximum is kept");
            thin.record_n(*kept, bin.count_at_value())
                .map_err(|error| HistogramUnreadable { reason: error.to_string() })?;
        }
        Ok(Histogram { hdr_v2_deflate_base64: encoded(&thin), ..self.clone() })
    }

    /// Decodes all counts.
    pub fn recorded(&self) -> Result<Recorded<u64>, HistogramUnreadable> {
        let unreadable = |reason: String| HistogramUnreadable { reason };
        let bytes =
            STANDARD.decode(&self.hdr_v2_deflate_base64).map_err(|error| unreadable(error.to_string()))?;
        Deserializer::new().deserialize(&mut &bytes[..]).map_err(|error| unreadable(format!("{error:?}")))
    }

    /// Merges several histograms; `None` if there are none.
    pub fn merged<'a>(
        parts: impl IntoIterator<Item = &'a Histogram>,
    ) -> Result<Option<Histogram>, HistogramUnreadable> {
        let mut all = Histogram::recorder();
        for part in parts {
            all.add(part.recorded()?)
                .map_err(|error| HistogramUnreadable { reason: format!("{error:?}") })?;
        }
        Ok(Histogram::of(&all))
    }
}

fn encoded(recorded: &Recorded<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(recorded, &mut bytes).expect("a Vec takes every byte");
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_histogram_has_the_same_percentiles() {
        let mut recorded = Histogram::recorder();
        for step in 0..50_000u64 {
            recorded.record(50 + step * step % 1_000_003).expect("within the bounds");
        }
        let whole = Histogram::of(&recorded).expect("not empty");
        let drawn = || (0..=60).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 12.0));
        let thin = whole.thinned(drawn()).expect("readable");
        assert!(thin.hdr_v2_deflate_base64.len() * 10 < whole.hdr_v2_deflate_base64.len());
        let again = thin.recorded().expect("readable");
        for quantile in drawn().chain(PERCENTILES) {
            assert_eq!(again.value_at_quantile(quantile), recorded.value_at_quantile(quantile), "{quantile}");
        }
        assert_eq!((again.len(), again.min(), again.max()), (recorded.len(), recorded.min(), recorded.max()));
        let fields = Histogram { hdr_v2_deflate_base64: whole.hdr_v2_deflate_base64.clone(), ..thin.clone() };
        assert_eq!(fields, whole);
        assert_eq!(thin.thinned(drawn()).expect("readable"), thin);
    }

    #[test]
    fn percentiles_come_from_the_merged_counts() {
        let (mut quick, mut slow) = (Histogram::recorder(), Histogram::recorder());
        quick.record_n(100, 990).expect("within the bounds");
        slow.record_n(20_000, 10).expect("within the bounds");
        let parts = [Histogram::of(&quick).expect("not empty"), Histogram::of(&slow).expect("not empty")];
        let merged = Histogram::merged(&parts).expect("readable").expect("not empty");
        assert_eq!((merged.count, merged.p50_us, merged.p99_us), (1000, 100, 100));
        assert!(merged.p999_us.abs_diff(20_000) <= 20, "{}", merged.p999_us);
    }

    #[test]
    fn an_empty_recorder_gives_no_histogram() {
        assert_eq!(Histogram::of(&Histogram::recorder()), None);
        assert_eq!(Histogram::merged([]), Ok(None));
    }

    #[test]
    fn damaged_counts_are_refused() {
        let mut recorded = Histogram::recorder();
        recorded.record(7).expect("within the bounds");
        let mut histogram = Histogram::of(&recorded).expect("not empty");
        histogram.hdr_v2_deflate_base64.replace_range(0..4, "AAAA");
        assert!(histogram.recorded().is_err());
    }
}
