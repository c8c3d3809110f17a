//! Ratios in words, rounded conservatively.

/// A factor above 1, rounded down: `1.2`, `5.9`, `15`.
pub(super) fn at_least(factor: f64) -> String {
    match factor {
        factor if factor >= 10.0 => crate::quantity::count(factor as u64),
        // A little more keeps 5.9 from becoming 5.8.
        factor if factor >= 1.1 => format!("{:.1}", (factor * 10.0 + 1e-9).floor() / 10.0),
        factor => format!("{:.2}", (factor * 100.0 + 1e-9).floor() / 100.0),
    }
}

/// A share, rounded up, with the article of its whole: `a ninth of the`, `70 % of the`, `1.3 times the`.
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
                None => "less than a twentieth of the".to_owned(),
            }
        }
        share if share < 0.995 => format!("{:.0} % of the", (share * 100.0).ceil()),
        share if share <= 1.05 => "the same".to_owned(),
        share => format!("{:.1} times the", (share * 10.0 - 1e-9).ceil() / 10.0),
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
        let words = [0.03, 0.05, 0.11, 0.112, 0.34, 0.5, 0.51, 0.999, 1.31].map(fraction);
        assert_eq!(
            words,
            [
                "less than a twentieth of the",
                "a twentieth of the",
                "a ninth of the",
                "an eighth of the",
                "half the",
                "half the",
                "51 % of the",
                "the same",
                "1.4 times the"
            ]
        );
    }
}
