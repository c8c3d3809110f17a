//! The summary of a point's repetitions. Figures are calculated per repetition, then summarised; histograms
//! are merged, so that percentiles are never averaged. Pure.

use crate::result::{Histogram, HistogramUnreadable, Repetition, Spread, Summary};

/// Figures over all repetitions.
pub fn summarize(repetitions: &[Repetition]) -> Result<Summary, HistogramUnreadable> {
    Ok(Summary {
        figures: Spread::of_figures(repetitions),
        acknowledge_latency: Histogram::merged(
            repetitions.iter().filter_map(|repetition| repetition.acknowledge_latency.as_ref()),
        )?,
        end_to_end_latency: Histogram::merged(
            repetitions.iter().filter_map(|repetition| repetition.end_to_end_latency.as_ref()),
        )?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Figures;

    #[test]
    fn a_spread_has_mean_median_and_variation_of_a_sample() {
        let of = Spread::of(&[4.0, 1.0, 2.0, 3.0]);
        assert_eq!((of.count, of.mean, of.median, of.min, of.max), (4, 2.5, 2.5, 1.0, 4.0));
        assert!((of.variation - 0.516_397_8).abs() < 1e-6, "{}", of.variation);
        assert_eq!(Spread::of(&[7.0]).variation, 0.0);
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn figures_that_do_not_apply_are_left_out_and_histograms_are_merged() {
        let repetition = |rate, latency_us| {
            let mut recorded = Histogram::recorder();
            recorded.record_n(latency_us, 10).expect("within the bounds");
            Repetition {
                figures: Figures { produced_records_per_s: Some(rate), ..Figures::default() },
                acknowledge_latency: Histogram::of(&recorded),
                ..crate::result::testing::repetition()
            }
        };
        let summary = summarize(&[repetition(10.0, 100), repetition(20.0, 300)]).expect("readable");
        assert_eq!(summary.figures.keys().collect::<Vec<_>>(), ["produced_records_per_s"]);
        assert_eq!(summary.figures["produced_records_per_s"].mean, 15.0);
        let merged = summary.acknowledge_latency.expect("there are latencies");
        assert_eq!((merged.count, merged.p50_us, merged.max_us), (20, 100, 300));
        assert_eq!(summary.end_to_end_latency, None);
    }
}
