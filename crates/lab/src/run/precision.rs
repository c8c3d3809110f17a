//! Decides if a round continues: until its ratios are known precisely enough, or its repetitions are used up.
//! Pure.
//!
//! Targets of a round take turns, so that their repetitions are pairs. As long as the 95 % interval of the
//! paired ratio of any driver's targets is too wide, each of these targets gets another repetition. Single
//! targets have no ratio, and keep their number of repetitions.

use super::contender::Contender;
use super::plan::Precision;
use crate::result::{Figure, PAIRS_MIN, ratio_of, values};

/// The members of a group that get another repetition, after all of theirs are done.
pub(super) fn imprecise(contenders: &[Contender], members: &[usize], precision: Precision) -> Vec<usize> {
    let mut found = Vec::new();
    for &place in members {
        let mut rivals = members.iter().copied().filter(|rival| {
            let (a, b) = (&contenders[place], &contenders[*rival]);
            *rival != place && a.driver() == b.driver() && !a.has_failed() && !b.has_failed()
        });
        let one = &contenders[place];
        let has_more = one.number() < precision.repetitions_max;
        if has_more && rivals.any(|rival| !is_precise(one, &contenders[rival], precision)) {
            found.push(place);
        }
    }
    found
}

fn is_precise(a: &Contender, b: &Contender, precision: Precision) -> bool {
    // The rival has no repetitions left: more of this one would have no pairs.
    if b.number() >= precision.repetitions_max {
        return true;
    }
    let Some(figure) = Figure::named(a.figure()) else { return true };
    match ratio_of(figure, &values(a.repetitions(), b.repetitions(), figure.name)) {
        Some(ratio) => ratio.half_width().is_some_and(|half| half <= precision.half_width),
        // A figure that is missing after enough repetitions will be missing after more.
        None => a.repetitions().len().min(b.repetitions().len()) >= PAIRS_MIN,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::result::testing::{point, repetition};
    use crate::result::{Figures, Repetition};
    use crate::worker::Driver;
    use crate::workload::Workload;

    fn contender(target: &str, driver: Driver, rates: &[f64]) -> Contender {
        let mut point = point();
        point.repetitions = rates.len() as u32;
        let workload = Workload {
            name: "w".to_owned(),
            title: String::new(),
            description: String::new(),
            drivers: Vec::new(),
            targets: Vec::new(),
            has_steps: false,
            why: BTreeMap::new(),
            scale: 1.0,
            points: Vec::new(),
            published: Vec::new(),
        };
        let mut made = Contender::new(0, target.to_owned(), driver, &workload, &point, 1);
        made.skip_warm_up(0);
        for (turn, rate) in (1..).zip(rates) {
            let figures = Figures { produced_records_per_s: Some(*rate), ..Figures::default() };
            made.taken(Repetition { began_at_us: turn, figures, ..repetition() }, String::new(), 4);
        }
        assert!(!made.wants_more());
        made
    }

    fn more(of: &[(&str, Driver, &[f64])], precision: Precision) -> Vec<usize> {
        let contenders: Vec<Contender> =
            of.iter().map(|(target, driver, rates)| contender(target, *driver, rates)).collect();
        let members: Vec<usize> = (0..contenders.len()).collect();
        imprecise(&contenders, &members, precision)
    }

    #[test]
    fn repetitions_go_on_until_the_paired_ratio_is_known() {
        let own = Driver::Thalweg;
        let steady: [(&str, Driver, &[f64]); 2] =
            [("a", own, &[10.0, 20.0, 40.0]), ("b", own, &[5.0, 10.0, 20.0])];
        assert_eq!(more(&steady, Precision::DEFAULT), [0; 0], "both vary, their ratio does not");
        let few: [(&str, Driver, &[f64]); 2] = [("a", own, &[10.0, 10.0]), ("b", own, &[5.0, 5.0])];
        assert_eq!(more(&few, Precision::DEFAULT), [0, 1], "two pairs have no interval");
        let noisy: [(&str, Driver, &[f64]); 2] =
            [("a", own, &[10.0, 14.0, 10.0]), ("b", own, &[5.0, 5.0, 6.0])];
        assert_eq!(more(&noisy, Precision::DEFAULT), [0, 1]);
        assert_eq!(more(&noisy, Precision { repetitions_max: 3, ..Precision::DEFAULT }), [0; 0], "spent");
        assert_eq!(more(&noisy, Precision { half_width: 2.0, ..Precision::DEFAULT }), [0; 0]);
    }

    #[test]
    fn single_targets_and_other_drivers_are_no_rivals() {
        let noisy: &[f64] = &[10.0, 14.0, 30.0];
        assert_eq!(more(&[("a", Driver::Thalweg, noisy)], Precision::DEFAULT), [0; 0]);
        let two = [("a", Driver::Thalweg, noisy), ("a", Driver::Java, &[5.0, 5.0, 6.0][..])];
        assert_eq!(more(&two, Precision::DEFAULT), [0; 0]);
    }
}
