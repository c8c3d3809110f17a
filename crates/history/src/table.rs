//! Series by name: the largest have their own, the others have one sum.
//!
//! A name gets a series while there is room. After that, a name among the others takes the place of the
//! smallest series once it is larger by a quarter. The points of the series that gives way are added to the
//! others, so that no value is lost. Sizes are weights that decay over the length of the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::POINTS;
use crate::column::Column;

/// Changes of places in one round.
const CHANGES_MAX: usize = 8;
/// Names among the others whose weight is known, and their bytes. Further ones are counted, and get no series
/// meanwhile.
const CANDIDATES_MAX: usize = 4_000;
const CANDIDATE_BYTES_MAX: usize = 256 << 10;

/// The values of a name in one round.
pub struct NamedValues<'a, const N: usize> {
    /// None for a name that gets no series.
    pub name: Option<&'a str>,
    pub values: [Option<u64>; N],
    /// The size by which names are compared.
    pub weight: u64,
}

/// The series of one name.
#[derive(Debug)]
pub struct Series<const N: usize> {
    /// The first round that is not among the others.
    pub since: u64,
    pub columns: [Column; N],
    weight: u64,
    /// Rounds without a value in a row.
    absent: usize,
}

/// The series of names, and the sum of all others.
#[derive(Debug)]
pub struct SeriesTable<const N: usize> {
    limit: usize,
    series: BTreeMap<Arc<str>, Series<N>>,
    /// Weights of names among the others.
    candidates: BTreeMap<Arc<str>, u64>,
    /// Names among the others in the last round.
    others_count: usize,
    others: [Column; N],
    totals: [Column; N],
}

fn columns<const N: usize>() -> [Column; N] {
    std::array::from_fn(|_| Column::default())
}

/// Zero is reached in the end, because at least one is subtracted.
fn decayed(weight: u64) -> u64 {
    weight - weight.div_ceil(POINTS as u64)
}

impl<const N: usize> SeriesTable<N> {
    pub fn new(limit: usize) -> SeriesTable<N> {
        SeriesTable {
            limit,
            series: BTreeMap::new(),
            candidates: BTreeMap::new(),
            others_count: 0,
            others: columns(),
            totals: columns(),
        }
    }

    /// Records the next round. The names of the samples are distinct.
    pub fn record<'a>(&mut self, round: u64, samples: impl IntoIterator<Item = NamedValues<'a, N>>) {
        self.begin(round);
        let mut candidates = std::mem::take(&mut self.candidates);
        self.others_count = 0;
        let mut candidate_bytes = 0;
        for NamedValues { name, values, weight } in samples {
            let known = values.map(|value| Some(value.unwrap_or(0)));
            add(&mut self.totals, round, known);
            let Some(name) = name else {
                self.others_count += 1;
                add(&mut self.others, round, known);
                continue;
            };
            let of_candidate = match self.series.contains_key(name) {
                true => None,
                false => candidates.remove_entry(name),
            };
            if let Some(series) = self.series_for(name, round, of_candidate.as_ref()) {
                series.weight = series.weight.saturating_add(weight);
                series.absent = 0;
                add(&mut series.columns, round, values);
                continue;
            }
            self.others_count += 1;
            add(&mut self.others, round, known);
            let (name, before) = of_candidate.unwrap_or_else(|| (Arc::from(name), 0));
            let weight = decayed(before).saturating_add(weight);
            let has_room =
                self.candidates.len() < CANDIDATES_MAX && candidate_bytes + name.len() <= CANDIDATE_BYTES_MAX;
            if weight > 0 && has_room {
                candidate_bytes += name.len();
                self.candidates.insert(name, weight);
            }
        }
        self.series.retain(|_, series| series.absent < POINTS);
        self.change_places(round);
    }

    fn begin(&mut self, round: u64) {
        self.others.iter_mut().chain(&mut self.totals).for_each(|column| column.begin(round));
        for series in self.series.values_mut() {
            series.columns.iter_mut().for_each(|column| column.begin(round));
            series.weight = decayed(series.weight);
            series.absent += 1;
        }
    }

    /// The series of a name, which a new name gets while there is room.
    fn series_for(
        &mut self,
        name: &str,
        round: u64,
        candidate: Option<&(Arc<str>, u64)>,
    ) -> Option<&mut Series<N>> {
        if !self.series.contains_key(name) {
            if self.series.len() >= self.limit {
                return None;
            }
            let (key, weight) = match candidate {
                Some((key, weight)) => (Arc::clone(key), *weight),
                None => (Arc::from(name), 0),
            };
            self.series.insert(key, Series { since: round, columns: columns(), weight, absent: 0 });
        }
        self.series.get_mut(name)
    }

    /// Gives the places of the smallest series to larger names among the others, from the next round on.
    fn change_places(&mut self, round: u64) {
        for _ in 0..CHANGES_MAX {
            let largest = self.candidates.iter().max_by_key(|(_, weight)| **weight);
            let smallest = self.series.iter().min_by_key(|(_, series)| series.weight);
            let (Some((larger, weight)), Some((smaller, series))) = (largest, smallest) else { return };
            if *weight <= series.weight.saturating_add(series.weight / 4) {
                return;
            }
            let (larger, weight, smaller) = (Arc::clone(larger), *weight, Arc::clone(smaller));
            self.candidates.remove(&larger);
            let Some(gone) = self.series.remove(&smaller) else { return };
            self.fold(round, &gone);
            // A name without a value in this round does not count among the others.
            if gone.absent == 0 {
                self.candidates.insert(smaller, gone.weight);
            } else {
                self.others_count -= 1;
            }
            self.series.insert(larger, Series { since: round + 1, columns: columns(), weight, absent: 0 });
        }
    }

    /// Adds the points of a series to the others.
    fn fold(&mut self, round: u64, gone: &Series<N>) {
        let oldest = (round + 1).saturating_sub(POINTS as u64).max(gone.since);
        for (others, own) in self.others.iter_mut().zip(&gone.columns) {
            for at in oldest..=round {
                others.add(at, Some(own.get(at).unwrap_or(0)));
            }
        }
    }

    /// The series of a name.
    pub fn get(&self, name: &str) -> Option<&Series<N>> {
        self.series.get(name)
    }

    /// All series, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Series<N>)> {
        self.series.iter()
    }

    /// Names among the others in the last round.
    pub fn others_count(&self) -> usize {
        self.others_count
    }

    /// The sums over all names. Unknown values are not in them.
    pub fn totals(&self) -> &[Column; N] {
        &self.totals
    }

    /// The sums over the names without a series.
    #[cfg(test)]
    pub fn others(&self) -> &[Column; N] {
        &self.others
    }

    /// Memory behind this value, in bytes: columns, names, and the nodes of maps, which are half full at
    /// worst.
    pub fn allocated(&self) -> usize {
        let of_columns = |columns: &[Column; N]| columns.iter().map(Column::allocated).sum::<usize>();
        // A name has two counters in front of its text.
        let of_name = |name: &Arc<str>| size_of::<Arc<str>>() + 2 * size_of::<usize>() + name.len();
        let series = self
            .series
            .iter()
            .map(|(name, series)| of_name(name) + of_columns(&series.columns) + 2 * size_of::<Series<N>>());
        let candidates = self.candidates.keys().map(|name| of_name(name) + 2 * size_of::<u64>());
        series.chain(candidates).sum::<usize>() + of_columns(&self.others) + of_columns(&self.totals)
    }
}

fn add<const N: usize>(columns: &mut [Column; N], round: u64, values: [Option<u64>; N]) {
    for (column, value) in columns.iter_mut().zip(values) {
        column.add(round, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn sample(name: &str, value: u64) -> NamedValues<'_, 1> {
        NamedValues { name: Some(name), values: [Some(value)], weight: value }
    }

    fn own(table: &SeriesTable<1>, name: &str, round: u64) -> Option<u64> {
        let series = table.get(name)?;
        (series.since <= round).then(|| series.columns[0].get(round))?
    }

    /// The sum of the series and the others, at one point.
    fn sum(table: &SeriesTable<1>, round: u64) -> u64 {
        let own = table.iter().filter(|(_, series)| series.since <= round);
        let own: u64 = own.filter_map(|(_, series)| series.columns[0].get(round)).sum();
        own + table.others()[0].get(round).expect("others are known")
    }

    #[test]
    fn series_and_others_are_the_total_at_each_point() {
        for seed in 0..8 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut table = SeriesTable::<1>::new(5);
            let names: Vec<String> = (0..30).map(|number| format!("topic-{number}")).collect();
            let mut expected = Vec::new();
            for round in 0..900_u64 {
                // Names come and go, and the large ones change.
                let shift = random.random_range(0..3) + round / 100;
                let mut present: Vec<(&String, u64)> = Vec::new();
                for (number, name) in (0_u64..).zip(&names) {
                    if random.random_bool(0.8) {
                        let bits = 20 + 2 * ((number + shift) % 15);
                        present.push((name, random.random::<u64>() >> bits));
                    }
                }
                expected.push(present.iter().map(|(_, value)| value).sum::<u64>());
                table.record(round, present.iter().map(|(name, value)| sample(name, *value)));
                let oldest = (round + 1).saturating_sub(POINTS as u64);
                let is_checked = round % 13 == 0;
                for at in (oldest..=round).filter(|_| is_checked) {
                    let total = table.totals()[0].get(at).expect("a total is known");
                    let of_round = expected[usize::try_from(at).expect("small")];
                    assert_eq!(
                        (sum(&table, at), total),
                        (of_round, of_round),
                        "seed {seed}, {at} of {round}"
                    );
                }
                let in_series = present.iter().filter(|(name, _)| table.get(name).is_some()).count();
                // A name that has just got a place was among the others in this round.
                let in_others = present.len() - in_series;
                assert_eq!(table.others_count(), in_others, "seed {seed}, round {round}");
                assert!(table.iter().count() <= 5);
            }
        }
    }

    #[test]
    fn the_largest_have_the_series() {
        let mut table = SeriesTable::<1>::new(2);
        for round in 0..100 {
            let late = if round < 50 { 0 } else { 1_000 };
            table.record(round, [sample("a", 100), sample("b", 10), sample("c", 20), sample("late", late)]);
        }
        assert!(table.get("a").is_none() || table.get("b").is_none());
        assert!(table.get("late").is_some(), "it has become the largest");
        assert!(table.get("a").is_some() && table.get("b").is_none() && table.get("c").is_none());
        assert_eq!((own(&table, "late", 99), own(&table, "late", 0)), (Some(1_000), None));
        assert_eq!(table.others_count(), 2);
        assert_eq!(sum(&table, 49), 130);
    }

    #[test]
    fn a_name_that_stays_away_loses_its_series() {
        let mut table = SeriesTable::<1>::new(5);
        table.record(0, [sample("gone", 100), sample("here", 1)]);
        for round in 1..=POINTS as u64 {
            assert!(table.get("gone").is_some(), "its points are in the history");
            table.record(round, [sample("here", 1)]);
        }
        assert!(table.get("gone").is_none() && table.get("here").is_some());
    }

    #[test]
    fn an_unknown_value_is_in_no_sum() {
        let mut table = SeriesTable::<1>::new(1);
        let unknown = NamedValues { name: Some("a"), values: [None], weight: 0 };
        table.record(0, [unknown, sample("b", 5)]);
        assert_eq!((own(&table, "a", 0), table.totals()[0].get(0), sum(&table, 0)), (None, Some(5), 5));
    }
}
