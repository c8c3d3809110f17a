//! The summary of a point's repetitions. Figures are calculated per repetition, then summarised; histograms
//! are merged, so that percentiles are never averaged. Pure.

use std::collections::BTreeMap;

use crate::result::{Histogram, HistogramUnreadable, Repetition, Spread, Summary};

/// Figures over all repetitions.
pub fn summarize(repetitions: &[Repetition]) -> Result<Summary, HistogramUnreadable> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for repetition in repetitions {
        for (figure, value) in repetition.figures.each() {
            if let Some(value) = value {
                values.entry(figure.name).or_default().push(value);
            }
        }
    }
    Ok(Summary {
        figures: values.into_iter().map(|(name, values)| (name.to_owned(), spread(&values))).collect(),
        acknowledge_latency: Histogram::merged(
            repetitions.iter().filter_map(|repetition| repetition.acknowledge_latency.as_ref()),
        )?,
        end_to_end_latency: Histogram::merged(
            repetitions.iter().filter_map(|repetition| repetition.end_to_end_latency.as_ref()),
        )?,
    })
}

/// The statistics of values; all zero if there are none.
pub fn spread(values: &[f64]) -> Spread {
    if values.is_empty() {
        return Spread::default();
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mean = sorted.iter().sum::<f64>() / count as f64;
    let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
    let deviation = if count < 2 {
        0.0
    } else {
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count - 1) as f64).sqrt()
    };
    Spread {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        mean,
        median,
        min: sorted[0],
        max: sorted[count - 1],
        variation: if mean == 0.0 { 0.0 } else { deviation / mean.abs() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Figures;

    #[test]
    fn a_spread_tells_mean_median_and_variation_of_a_sample() {
        let of = spread(&[4.0, 1.0, 2.0, 3.0]);
        assert_eq!((of.count, of.mean, of.median, of.min, of.max), (4, 2.5, 2.5, 1.0, 4.0));
        assert!((of.variation - 0.516_397_8).abs() < 1e-6, "{}", of.variation);
        assert_eq!(spread(&[7.0]).variation, 0.0);
        assert_eq!(spread(&[]), Spread::default());
    }

    #[test]
    fn figures_that_do_not_apply_are_left_out_and_histograms_are_merged() {
        let repetition = |rate, latency_us| {
            let mut recorded = Histogram::recorder();
            recorded.record_n(latency_us, 10).expect("within the bounds");
            Repetition {
                figures: Figures { produced_records_per_s: Some(rate), ..Figures::default() },
                acknowledge_latency: Histogram::of(&recorded),
                ..crate::run::testing::repetition()
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
