//! The order of rows.

use clap::ValueEnum;

use super::figures::{Figures, Sum};

/// The order of topics and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Topics by messages per second, groups by lag.
    #[default]
    Activity,
    /// Topics by messages, groups by consumed records per second.
    Rate,
    /// Groups by lag, topics by messages per second.
    Lag,
    /// Topics by bytes of all replicas, groups by lag.
    Size,
    /// By name.
    Name,
}

impl Sort {
    /// The next order, for a key.
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Activity => Sort::Rate,
            Sort::Rate => Sort::Size,
            Sort::Size => Sort::Name,
            Sort::Name | Sort::Lag => Sort::Activity,
        }
    }

    /// The name of the option's value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Activity => "activity",
            Sort::Rate => "rate",
            Sort::Lag => "lag",
            Sort::Size => "size",
            Sort::Name => "name",
        }
    }
}

/// Sorts topics and groups, the largest first. Unknown values are last.
pub(super) fn sort(figures: &mut Figures, by: Sort) {
    let value = |sum: Option<Sum>| sum.map_or(-1.0, |sum| sum.value);
    figures.topics.sort_by(|a, b| {
        let by_value = match by {
            Sort::Activity | Sort::Rate | Sort::Lag => {
                value(b.messages_per_s).total_cmp(&value(a.messages_per_s))
            }
            Sort::Size => value(b.log_bytes).total_cmp(&value(a.log_bytes)),
            Sort::Name => std::cmp::Ordering::Equal,
        };
        // Without rates, faults first.
        let by_fault = || (b.leaderless, b.under_replicated).cmp(&(a.leaderless, a.under_replicated));
        let by_fault =
            if by == Sort::Name { std::cmp::Ordering::Equal } else { by_value.then_with(by_fault) };
        by_fault.then_with(|| a.name.cmp(&b.name))
    });
    figures.groups.iter_mut().for_each(|groups| {
        groups.sort_by(|a, b| {
            let by_value = match by {
                Sort::Activity | Sort::Lag | Sort::Size => value(b.lag).total_cmp(&value(a.lag)),
                Sort::Rate => value(b.consumed_per_s).total_cmp(&value(a.consumed_per_s)),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            by_value.then_with(|| a.name.cmp(&b.name))
        });
    });
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::top::reading::testing::{add_group, add_topic, reading};

    #[test]
    fn rows_are_sorted_with_unknown_values_last() {
        let began = Instant::now();
        let (mut before, mut now) = (reading(began, 0.0), reading(began, 1.0));
        for (name, then, later, bytes) in
            [("a", Some(1), Some(1), 5), ("b", Some(1), Some(9), 1), ("c", None, Some(99), 7)]
        {
            add_topic(&mut before, name, &[(then, Some(0))]);
            add_topic(&mut now, name, &[(later, Some(bytes))]);
            add_group(&mut before, name, name, Some(0));
            add_group(&mut now, name, name, Some(i64::from(name == "a")));
        }
        let mut figures = Figures::of(Some(&before), &now);
        let mut order = |by| {
            sort(&mut figures, by);
            let topics: String = figures.topics.iter().map(|topic| &*topic.name).collect();
            let groups = figures.groups.as_ref().expect("groups");
            (topics, groups.iter().map(|group| group.name.as_str()).collect::<String>())
        };
        let expected = |topics: &str, groups: &str| (topics.to_owned(), groups.to_owned());
        assert_eq!(order(Sort::Activity), expected("bac", "cba"));
        assert_eq!(order(Sort::Rate), expected("bac", "abc"));
        assert_eq!(order(Sort::Size), expected("cab", "cba"));
        assert_eq!(order(Sort::Name), expected("abc", "abc"));
    }
}
