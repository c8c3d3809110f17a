//! Latency histograms: percentiles come from merged histograms, never from averages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram as Recorded;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// A histogram of microseconds with three significant digits: the usual percentiles and the raw counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min_us: u64,
    /// The mean.
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
    /// Maximum.
    pub max_us: u64,
    /// All counts: HdrHistogram's V2 encoding, deflated, in Base64. Any HdrHistogram library reads it.
    pub hdr_v2_deflate_base64: String,
}

/// Invalid raw counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A histogram's hdr_v2_deflate_base64 is no HdrHistogram V2 in Base64: {reason}")]
pub struct HistogramUnreadable {
    /// The reason.
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
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(recorded, &mut bytes).expect("a Vec takes every byte");
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
            hdr_v2_deflate_base64: STANDARD.encode(bytes),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

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
