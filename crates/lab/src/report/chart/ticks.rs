//! Round values for axes.

/// The smallest of 1, 1.5, 2, 2.5, 3, 4, 5, 6 and 8 times a power of ten that is at least `value`; 1 for 0.
pub(crate) fn nice_ceiling(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    // Logarithms of round numbers are slightly inexact.
    let step = steps.iter().find(|step| *step * power >= value * (1.0 - 1e-9));
    step.copied().unwrap_or(10.0) * power
}

/// About `count` round values from 0 to `top`, both included if `top` is round.
pub(crate) fn linear(top: f64, count: usize) -> Vec<f64> {
    let rough = top / count.max(1) as f64;
    let power = 10f64.powf(rough.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps.iter().find(|step| *step * power >= rough * 0.999).copied().unwrap_or(10.0) * power;
    let whole = (top / step + 1e-6).floor() as usize;
    (0..=whole.min(20)).map(|place| place as f64 * step).collect()
}

/// Powers of ten in the range; if there are fewer than three, also 2 and 5 times them.
pub(crate) fn log(low: f64, high: f64) -> Vec<f64> {
    let (low, high) = (low.max(1e-9), high.max(1e-9));
    let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let within = |value: &f64| *value >= low * 0.999 && *value <= high * 1.001;
    let powers: Vec<f64> = exponents.clone().map(|e| 10f64.powi(e)).filter(within).collect();
    if powers.len() >= 3 {
        return powers;
    }
    let finer = exponents.flat_map(|e| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(e)));
    finer.filter(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tops_are_round_and_just_above() {
        assert_eq!([2_307_902.0, 0.31, 10.0, 0.0].map(nice_ceiling), [2_500_000.0, 0.4, 10.0, 1.0]);
    }

    #[test]
    fn ticks_begin_at_nil_and_are_round() {
        assert_eq!(linear(2_500_000.0, 5), [0.0, 500_000.0, 1e6, 1.5e6, 2e6, 2.5e6]);
        assert_eq!(linear(6.0, 6), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(linear(0.0, 4).len() <= 21);
    }

    #[test]
    fn log_ticks_are_powers_of_ten_and_finer_where_these_are_few() {
        assert_eq!(log(1.0, 1000.0), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(log(150.0, 2500.0), [200.0, 500.0, 1000.0, 2000.0]);
    }
}
