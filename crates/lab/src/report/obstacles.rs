//! The reasons why a point may not be quoted.

use crate::result::{Figure, FigureUnit, PointResult};

/// Why a point is not quotable; empty if it is.
pub(super) fn obstacles(point: &PointResult) -> Vec<String> {
    let mut found = Vec::new();
    // The verdict contains the failure if there is one.
    if let Some(failure) = &point.failure
        && !point.verdict.no_headline.iter().any(|reason| reason.contains(failure.as_str()))
    {
        found.push(failure.clone());
    }
    found.extend(point.verdict.no_headline.iter().map(|reason| in_words(reason)));
    if contradicted(point) {
        found.push("the evidence indicates lost records".to_owned());
    }
    found
}

/// A reason with the words of a figure in place of its name in results.
pub(crate) fn in_words(reason: &str) -> String {
    let figure = reason.split_once(' ').and_then(|(name, rest)| Some((Figure::named(name)?, rest)));
    match figure {
        Some((figure, rest)) if figure.unit == FigureUnit::RecordsPerSecond => format!("the rate {rest}"),
        Some((figure, rest)) if figure.unit == FigureUnit::LatencyUs => {
            format!("latency {} {rest}", figure.title)
        }
        Some((figure, rest)) => format!("{} {rest}", figure.title),
        None => reason.to_owned(),
    }
}

/// True if the evidence contradicts the claim that nothing was lost.
pub(super) fn contradicted(point: &PointResult) -> bool {
    point.repetitions.iter().map(|repetition| &repetition.evidence).any(|evidence| {
        let lost = evidence.check.as_ref().is_some_and(|check| check.lost > 0 || check.damaged > 0);
        lost || !evidence.faults.is_empty()
    })
}
