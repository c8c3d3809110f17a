//! Quantiles of Student's t distribution, for confidence intervals.

/// The 97.5th percentile of Student's t with `freedom` degrees of freedom, at least 1, not necessarily an
/// integer.
pub(crate) fn two_sided_95(freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    let (mut low, mut high) = (1.0, 13.0);
    // The quantile lies between 1.96 (many degrees) and 12.71 (one); 60 bisections exceed the precision of
    // f64.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if upper_tail(middle, freedom) > 0.025 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The chance of a value above `t`, for t > 0.
fn upper_tail(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t)) / 2.0
}

/// The regularised incomplete beta function, as a continued fraction.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges quickly only below the mean; above it, use symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    front * fraction(a, b, x) / a
}

/// The continued fraction, by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let away_from_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut sum = d;
    for m in (1..500).map(f64::from) {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            change = c * d;
            sum *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    sum
}

/// The logarithm of the gamma function: Stirling's series from 10 up, recurrence below.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut correction) = (x, 0.0);
    while x < 10.0 {
        correction -= x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    correction + (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        let table =
            [(1.0, 12.7062), (2.0, 4.3027), (3.0, 3.1824), (4.0, 2.7764), (10.0, 2.2281), (30.0, 2.0423)];
        for (freedom, quantile) in table {
            let found = two_sided_95(freedom);
            assert!((found - quantile).abs() < 1e-4, "{freedom}: {found} instead of {quantile}");
        }
        assert!((two_sided_95(1e6) - 1.959_966).abs() < 1e-4);
        let between = two_sided_95(2.5);
        assert!(between < two_sided_95(2.0) && between > two_sided_95(3.0), "{between}");
    }
}
