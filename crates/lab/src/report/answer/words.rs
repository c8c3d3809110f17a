//! Ratios in words, rounded conservatively.

use std::cmp::Ordering;

use crate::quantity;
use crate::result::RESOLUTION;

/// The side of 1 on which an interval is, beyond the noise; `Equal` if on neither.
pub(super) fn clearly((low, high): (f64, f64)) -> Ordering {
    match (low, high) {
        (low, _) if low > 1.0 + RESOLUTION => Ordering::Greater,
        (_, high) if high < 1.0 - RESOLUTION => Ordering::Less,
        _ => Ordering::Equal,
    }
}

/// The interval of the inverse ratio.
pub(super) fn inverse((low, high): (f64, f64)) -> (f64, f64) {
    (1.0 / high, 1.0 / low)
}

/// The end of an interval that is nearer to 1: `≥ 4.1`, `≤ 0.24`; both ends if 1 is between them.
pub(in crate::report) fn bound((low, high): (f64, f64)) -> String {
    match clearly((low, high)) {
        Ordering::Greater => format!("≥ {}", at_least(low)),
        Ordering::Less => format!("≤ {}", at_most(high)),
        Ordering::Equal => format!("{} to {}", quantity::digits(low, 2), quantity::digits(high, 2)),
    }
}

/// A share below 1, rounded up: `0.24`.
pub(super) fn at_most(share: f64) -> String {
    let unit = 10f64.powf(share.max(f64::MIN_POSITIVE).log10().floor() - 1.0);
    quantity::digits((share / unit - 1e-9).ceil() * unit, 2)
}

/// A factor above 1, rounded down: `1.2`, `5.9`, `15`.
pub(super) fn at_least(factor: f64) -> String {
    match factor {
        factor if factor >= 10.0 => quantity::count(factor as u64),
        // A little more keeps 5.9 from becoming 5.8.
        factor if factor >= 1.1 => format!("{:.1}", (factor * 10.0 + 1e-9).floor() / 10.0),
        factor => format!("{:.2}", (factor * 100.0 + 1e-9).floor() / 100.0),
    }
}

/// A share, rounded up, with the article of its whole: `a ninth of the`, `70 % of the`, `1.3 times the`, and
/// `the same` for less than half a percent of difference.
pub(super) fn fraction(share: f64) -> String {
    const NAMES: [&str; 19] = [
        "half",
        "a third of",
        "a quarter of",
        "a fifth of",
        "a sixth of",
        "a seventh of",
        "an eighth of",
        "a ninth of",
        "a tenth of",
        "an eleventh of",
        "a twelfth of",
        "a thirteenth of",
        "a fourteenth of",
        "a fifteenth of",
        "a sixteenth of",
        "a seventeenth of",
        "an eighteenth of",
        "a nineteenth of",
        "a twentieth of",
    ];
    match share {
        share if share > 0.0 && share <= 0.5 => {
            let parts = (1.0 / share + 1e-9).floor() as usize;
            match NAMES.get(parts - 2) {
                Some(name) => format!("{name} the"),
                None => "a twentieth of the".to_owned(),
            }
        }
        share if share < 0.995 => format!("{:.0} % of the", (share * 100.0).ceil()),
        share if share <= 1.005 => "the same".to_owned(),
        share if share <= 1.1 => format!("{:.2} times the", (share * 100.0 - 1e-9).ceil() / 100.0),
        share if share <= 9.9 => format!("{:.1} times the", (share * 10.0 - 1e-9).ceil() / 10.0),
        share => format!("{} times the", quantity::count((share - 1e-9).ceil() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_rounded_down() {
        assert_eq!(
            [1.04, 1.29, 5.9, 5.99, 9.99, 15.8].map(at_least),
            ["1.04", "1.2", "5.9", "5.9", "9.9", "15"]
        );
    }

    #[test]
    fn shares_are_rounded_up() {
        let words = [0.03, 0.05, 0.11, 0.112, 0.34, 0.5, 0.51, 0.999, 1.024, 1.31, 9.95].map(fraction);
        assert_eq!(
            words,
            [
                "a twentieth of the",
                "a twentieth of the",
                "a ninth of the",
                "an eighth of the",
                "half the",
                "half the",
                "51 % of the",
                "the same",
                "1.03 times the",
                "1.4 times the",
                "10 times the"
            ]
        );
    }
    #[test]
    fn bounds_are_the_ends_nearer_to_one() {
        let texts = [(4.19, 6.0), (0.1, 0.231), (0.41, 0.5), (0.9, 1.1), (2.0, 4.0), (1.001, 1.3)].map(bound);
        assert_eq!(texts, ["≥ 4.1", "≤ 0.24", "≤ 0.50", "0.90 to 1.1", "≥ 2.0", "1.0 to 1.3"]);
    }
}
