//! Objections to quoting a figure: their texts, and their effect on ratios.
//!
//! A result stores objections as text. Writing and recognising are both in this file, so that the texts of
//! all versions are recognised.

use std::fmt;

use crate::figures::Figures;
use crate::quantity;

/// The kind of an objection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The figure varies between repetitions. The interval of a ratio takes that into account.
    Varies,
    /// There is only one repetition. Without pairs a ratio has no interval, which is its own objection.
    Once,
    /// The clients were the limit: the target may sustain more.
    Generator,
    /// The hypervisor or processes outside the run took processors.
    Disturbed,
    /// An earlier version timed the drain by its reports, not by its records.
    DrainInSteps,
    /// The clocks of agents are not known well enough for times between them.
    Clocks,
    /// Any other objection, which forbids ratios, too.
    Other,
}

/// Maximum variation of a figure that may be quoted.
pub(crate) const VARIATION_MAX: f64 = 0.10;

/// Minimum share of the produced records that consumers must have consumed in the same time.
const CONSUMED_MIN: f64 = 0.95;

/// The text of [`Objection::Generator`].
pub(crate) const GENERATOR: &str = "the generator was the limit: the target may sustain more";

/// The text of [`Objection::Once`].
pub(crate) const ONCE: &str = "there is only one repetition, so the variation is unknown";

/// The beginnings of the texts of [`Objection::Disturbed`].
const STEAL: &str = "the hypervisor took ";
const OTHERS: &str = "processes outside the run used ";

/// The beginnings of the texts of [`Objection::Clocks`].
const CLOCK: &str = "the clock of the agent ";
const CLOCKS: &str = "the clocks of the agents ";

/// The text of [`Objection::DrainInSteps`].
pub(super) const DRAIN_IN_STEPS: &str = "an earlier version of the lab timed the drain in steps of a second, until 99.5 % of the backlog were gone";

/// Why consumers fell behind their producers; `None` if they did not, or if there are none.
pub(crate) fn consumers_fell_behind(figures: &Figures) -> Option<String> {
    let (produced, carried) = (figures.produced_records_per_s?, figures.carried_records_per_s?);
    (carried < produced * CONSUMED_MIN).then(|| {
        format!(
            "consumers fell behind: {} of {} records/s were consumed ({:.0} %)",
            quantity::number(carried.round()),
            quantity::number(produced.round()),
            carried / produced * 100.0
        )
    })
}

/// The text of [`Objection::Varies`].
pub(crate) fn varies(figure: impl fmt::Display, variation: f64, repetitions: u32, limit: f64) -> String {
    format!(
        "{figure} varies by {:.1} % over {repetitions} repetitions; the limit is {:.0} %",
        variation * 100.0,
        limit * 100.0
    )
}

/// The text of [`Objection::Clocks`] for a latency from one agent to another.
pub(crate) fn clocks_unknown((a, b): (&str, &str), error_us: u64, latency: &str, median_us: f64) -> String {
    if error_us == u64::MAX {
        return format!("{CLOCKS}{a} and {b} are unknown after the measurement: one did not answer");
    }
    format!(
        "{CLOCKS}{a} and {b} are known to {} together, more than a tenth of the median {latency} ({})",
        quantity::time_us(error_us as f64),
        quantity::time_us(median_us)
    )
}

/// The text of [`Objection::Clocks`] for a drain.
pub(crate) fn clock_unknown(agent: &str, error_us: u64, drain_us: f64) -> String {
    if error_us == u64::MAX {
        return format!("{CLOCK}{agent} is unknown after the measurement: it did not answer");
    }
    format!(
        "{CLOCK}{agent} is known to {} only, more than a tenth of the drain ({})",
        quantity::time_us(error_us as f64),
        quantity::time_us(drain_us)
    )
}

impl Objection {
    /// True if the objection is to a figure of this name. All but one are to each figure of a point.
    pub(crate) fn is_to(self, figure: &str) -> bool {
        let between_clocks = || ["end_to_end_", "drain"].iter().any(|of| figure.starts_with(of));
        self != Objection::Clocks || between_clocks()
    }

    /// The kind of objection in a text, of this or an earlier version.
    pub fn of(text: &str) -> Objection {
        match text {
            text if text.contains(" varies by ") => Objection::Varies,
            text if text == ONCE => Objection::Once,
            text if text == DRAIN_IN_STEPS => Objection::DrainInSteps,
            text if text.starts_with(STEAL) || text.starts_with(OTHERS) => Objection::Disturbed,
            text if text.starts_with(CLOCK) || text.starts_with(CLOCKS) => Objection::Clocks,
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
            (DRAIN_IN_STEPS, Objection::DrainInSteps),
            ("the hypervisor took 8.0 % of the processors", Objection::Disturbed),
            ("processes outside the run used 67 % of the processors", Objection::Disturbed),
            ("the clock of the agent a:7000 is known to 150 µs only, more than a tenth", Objection::Clocks),
            (clocks_unknown(("a:7000", "b:7000"), 150, "end to end", 900.0).as_str(), Objection::Clocks),
            ("7 records lost", Objection::Other),
        ] {
            assert_eq!(Objection::of(text), objection, "{text}");
        }
    }

    #[test]
    fn consumers_that_lag_are_an_objection_to_the_figure() {
        let of = |produced, consumed| {
            let (produced_records_per_s, consumed_records_per_s) = (Some(produced), Some(consumed));
            let mut figures =
                Figures { produced_records_per_s, consumed_records_per_s, ..Figures::default() };
            figures.set_carried(1);
            consumers_fell_behind(&figures)
        };
        assert_eq!(of(1_000_000.0, 960_000.0), None);
        let why = of(1_101_442.0, 367_199.0).expect("a third");
        assert_eq!(why, "consumers fell behind: 367,199 of 1,101,442 records/s were consumed (33 %)");
        let alone = Figures { produced_records_per_s: Some(5.0), ..Figures::default() };
        assert_eq!(consumers_fell_behind(&alone), None, "there are no consumers");
    }
}
