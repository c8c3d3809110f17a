//! Objections to quoting a figure: their texts, and their effect on ratios.
//!
//! A result stores objections as text. Writing and recognising are both in this file, so that the texts of
//! all versions are recognised.

use std::fmt;

/// The kind of an objection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The figure varies between repetitions. The interval of a ratio takes that into account.
    Varies,
    /// There is only one repetition. Without pairs a ratio has no interval, which is its own objection.
    Once,
    /// The clients were the limit: the target may sustain more.
    Generator,
    /// Any other objection, which forbids ratios, too.
    Other,
}

/// Maximum variation of a figure that may be quoted.
pub(crate) const VARIATION_MAX: f64 = 0.10;

/// The text of [`Objection::Generator`].
pub(crate) const GENERATOR: &str = "the generator was the limit: the target may sustain more";

/// The text of [`Objection::Once`].
pub(crate) const ONCE: &str = "there is only one repetition, so the variation is unknown";

/// The text of [`Objection::Varies`].
pub(crate) fn varies(figure: impl fmt::Display, variation: f64, repetitions: u32, limit: f64) -> String {
    format!(
        "{figure} varies by {:.1} % over {repetitions} repetitions; the limit is {:.0} %",
        variation * 100.0,
        limit * 100.0
    )
}

impl Objection {
    /// The kind of objection in a text, of this or an earlier version.
    pub fn of(text: &str) -> Objection {
        match text {
            text if text.contains(" varies by ") => Objection::Varies,
            text if text == ONCE => Objection::Once,
            text if text.starts_with("the generator was the limit") => Objection::Generator,
            _ => Objection::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_this_and_of_the_first_version_are_recognised() {
        for (text, objection) in [
            (varies("produced_records_per_s", 0.145, 3, 0.1).as_str(), Objection::Varies),
            (
                "end_to_end_p99_us varies by 25.3 % over 3 repetitions: at most 10 % would do",
                Objection::Varies,
            ),
            (ONCE, Objection::Once),
            (GENERATOR, Objection::Generator),
            ("the generator was the limit: the target may well take more", Objection::Generator),
            ("the hypervisor took 8.0 % of the processors", Objection::Other),
        ] {
            assert_eq!(Objection::of(text), objection, "{text}");
        }
    }
}
