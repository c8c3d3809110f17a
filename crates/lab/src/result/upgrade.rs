//! Brings results of earlier versions up to the current schema: figures and objections that these versions
//! lacked, as far as the figures of their repetitions tell.

use super::objection::{DRAIN_IN_STEPS, VARIATION_MAX, consumers_fell_behind, varies};
use super::{PointResult, RunResult, SCHEMA, Spread, Subject};
use crate::workload::Measure;

// Results of version 3 and earlier have no agents: their clients ran on the lab's machine.

/// Until this version, points with consumers were quoted by their producers, and drains were timed in steps.
const PRODUCERS_QUOTED: u64 = 2;

/// Upgrades a result of this version of the schema.
pub(super) fn upgrade(run: &mut RunResult, version: u64) {
    if version <= PRODUCERS_QUOTED {
        run.workloads.iter_mut().flat_map(|workload| &mut workload.points).for_each(upgrade_point);
    }
    SCHEMA.clone_into(&mut run.schema);
}

fn upgrade_point(point: &mut PointResult) {
    match point.point.measure {
        Measure::Produce if point.point.consumers.count > 0 => quote_the_lesser(point),
        Measure::Drain if !point.repetitions.is_empty() => {
            point.verdict.no_headline.push(DRAIN_IN_STEPS.to_owned());
        }
        _ => {}
    }
}

/// Adds the carried rates of a point with consumers, and the objections to them.
fn quote_the_lesser(point: &mut PointResult) {
    let before = Subject::of(&point.point).figure(&point.summary);
    for repetition in &mut point.repetitions {
        repetition.figures.set_carried(point.point.consumer_groups);
    }
    for (name, spread) in Spread::of_figures(&point.repetitions) {
        point.summary.figures.entry(name).or_insert(spread);
    }
    let main = Subject::of(&point.point).figure(&point.summary);
    let against = &mut point.verdict.no_headline;
    if main != before {
        against.retain(|text| !text.starts_with(&format!("{before} varies by ")));
        if let Some(spread) = point.summary.figures.get(main).filter(|one| one.variation > VARIATION_MAX) {
            against.insert(0, varies(main, spread.variation, spread.count, VARIATION_MAX));
        }
    }
    against.extend(point.repetitions.iter().filter_map(|repetition| {
        let why = consumers_fell_behind(&repetition.figures)?;
        Some(format!("repetition {}: {why}", repetition.number + 1))
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Repetition;
    use crate::result::testing::{point, repetition, result};

    /// A point that produced 1,000 to 1,400 records a second, upgraded.
    fn upgraded(change: impl FnOnce(&mut PointResult)) -> PointResult {
        let of = |(number, rate)| {
            let mut one = Repetition { number, ..repetition() };
            one.figures.produced_records_per_s = Some(rate);
            one
        };
        let repetitions: Vec<Repetition> = (0..).zip([1000.0, 1400.0, 1000.0]).map(of).collect();
        let mut result = result(point(), "embedded", repetitions);
        change(&mut result);
        upgrade_point(&mut result);
        result
    }

    #[test]
    fn a_point_with_consumers_is_quoted_by_what_they_got() {
        let point = upgraded(|result| {
            result.point.consumers.count = 1;
            result.verdict.no_headline =
                vec![varies("produced_records_per_s", 0.2, 3, 0.1), "calm".to_owned()];
            for repetition in &mut result.repetitions {
                repetition.figures.consumed_records_per_s = Some(990.0);
            }
        });
        let spread = point.summary.figures["carried_records_per_s"];
        assert_eq!((spread.mean, spread.variation), (990.0, 0.0));
        assert_eq!(
            point.verdict.no_headline,
            ["calm", "repetition 2: consumers fell behind: 990 of 1,400 records/s were consumed (71 %)"]
        );
        let alone = upgraded(|_| ());
        assert!(!alone.summary.figures.contains_key("carried_records_per_s"));
    }

    #[test]
    fn a_drain_in_steps_is_no_headline() {
        let point = upgraded(|result| result.point.measure = Measure::Drain);
        assert_eq!(point.verdict.no_headline, [DRAIN_IN_STEPS]);
    }
}
