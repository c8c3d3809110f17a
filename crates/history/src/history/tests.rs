use super::*;
use crate::reading::TopicSeries;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const INTERVAL: Duration = Duration::from_secs(10);
/// The bar for the memory of a history at 1,000 topics.
const MEMORY_MAX: usize = 4 << 20;

fn topic(topic: &str, messages_in: u64) -> TopicSample<'_> {
    TopicSample {
        topic,
        messages_in,
        bytes_in: messages_in * 100,
        bytes_out: messages_in * 50,
        leader_changes: 0,
    }
}

fn round<'a>(at_ms: i64, topics: &'a [TopicSample<'a>], groups: &'a [GroupSample<'a>]) -> Round<'a> {
    let (cost, figures) = (Duration::ZERO, Figures::default());
    Round { at_ms, span_ms: Some(10_000), cost, topics, groups, figures }
}

fn first<'a>(at_ms: i64, topics: &'a [TopicSample<'a>]) -> Round<'a> {
    Round { span_ms: None, ..round(at_ms, topics, &[]) }
}

#[test]
fn traffic_after_a_gap_is_unknown_and_not_zero() {
    let mut history = History::new(INTERVAL);
    history.record(&first(0, &[topic("orders", 1_000_000)]));
    history.record(&round(10_000, &[topic("orders", 500)], &[]));
    history.record(&first(70_000, &[topic("orders", 900)]));
    history.record(&round(80_000, &[topic("orders", 0)], &[]));
    let orders = history.topic("orders").expect("a series");
    assert_eq!(orders.messages_in, [None, Some(50.0), None, Some(0.0)]);
    assert_eq!(orders.bytes_in, [None, Some(5_000.0), None, Some(0.0)]);
    assert_eq!(history.all_topics(), TopicSeries { since_ms: Some(0), ..orders });
    assert_eq!(history.intervals()[2].span_ms, None);
}

#[test]
fn a_lag_is_known_after_a_gap_and_may_be_unknown() {
    let mut history = History::new(INTERVAL);
    let lags = |lag, other| {
        [GroupSample { group: Some("billing"), lag }, GroupSample { group: Some("audit"), lag: other }]
    };
    history.record(&Round { span_ms: None, ..round(0, &[], &lags(Some(5), Some(1))) });
    history.record(&round(10_000, &[], &lags(None, Some(1))));
    history.record(&round(20_000, &[], &lags(Some(7), None)));
    assert_eq!(history.group("billing").expect("a series").lag, [Some(5), None, Some(7)]);
    assert_eq!(history.all_groups().lag, [Some(6), Some(1), Some(7)]);
    assert_eq!(history.other_groups(|group| group == "billing").0.lag, [Some(1), Some(1), Some(0)]);
    assert_eq!(history.largest_groups()[0], ("billing".into(), Some(7)));
}

#[test]
fn times_ascend_although_the_clock_is_set_back() {
    let mut history = History::new(INTERVAL);
    history.record(&first(100_000, &[]));
    history.note(100_000, EventKind::Started(1));
    history.record(&round(110_000, &[], &[]));
    history.record(&round(50_000, &[], &[]));
    let times: Vec<i64> = history.intervals().iter().map(|interval| interval.at_ms).collect();
    assert_eq!(times, [30_000, 40_000, 50_000]);
    let events: Vec<&Event> = history.events().collect();
    assert_eq!(*events[0], Event { at_ms: 30_000, kind: EventKind::Started(1) });
    assert_eq!(events[1].kind, EventKind::ClockSetBack(70_000));
}

#[test]
fn events_leave_with_their_hour_and_are_bounded() {
    let mut history = History::new(INTERVAL);
    let ms = |number: usize| i64::try_from(number).expect("small") * 10_000;
    history.note(0, EventKind::Started(1));
    for number in 0..POINTS + 10 {
        history.record(&round(ms(number), &[], &[]));
    }
    assert_eq!((history.events().count(), history.intervals().len()), (0, POINTS));
    for number in 0..EVENTS_MAX + 5 {
        history.note(ms(POINTS + 10), EventKind::BrokerUp(i32::try_from(number).expect("small")));
    }
    assert_eq!(history.events().count(), EVENTS_MAX);
}

#[test]
fn visible_series_and_the_others_are_the_total() {
    let names: Vec<String> = (0..TOPICS_MAX + 50).map(|number| format!("topic-{number}")).collect();
    for seed in 0..4 {
        let (mut random, mut history) = (SmallRng::seed_from_u64(seed), History::new(INTERVAL));
        for number in 0..400_i64 {
            let topics: Vec<TopicSample<'_>> =
                names.iter().map(|name| topic(name, random.random_range(0..1 << 20))).collect();
            let span_ms = random.random_bool(0.95).then_some(10_000);
            history.record(&Round { span_ms, ..round(number * 10_000, &topics, &[]) });
        }
        let is_visible = |name: &str| name.ends_with('3');
        let (others, count) = history.other_topics(is_visible);
        let visible: Vec<TopicSeries> =
            names.iter().filter(|name| is_visible(name)).filter_map(|name| history.topic(name)).collect();
        assert_eq!(visible.len() + count, names.len(), "seed {seed}");
        let total = history.all_topics();
        for at in 0..POINTS {
            let Some(all) = total.bytes_in[at] else {
                assert_eq!((others.bytes_in[at], history.intervals()[at].span_ms), (None, None));
                continue;
            };
            let parts = visible.iter().filter_map(|series| series.bytes_in[at]).chain(others.bytes_in[at]);
            assert!((parts.sum::<f64>() - all).abs() <= all * 1e-9, "seed {seed}, round {at}");
        }
    }
}

/// Fills a history with so many topics and as many groups, all busy, with values up to `value_max`.
fn filled(topics: usize, value_max: u64) -> History {
    let mut random = SmallRng::seed_from_u64(7);
    let mut history = History::new(INTERVAL);
    let names: Vec<String> = (0..topics).map(|number| format!("a-topic-of-some-length-{number}")).collect();
    for number in 0..i64::try_from(POINTS + 60).expect("small") {
        let traffic = |topic| TopicSample {
            topic,
            messages_in: random.random_range(1..value_max),
            bytes_in: random.random_range(1..value_max),
            bytes_out: random.random_range(1..value_max),
            leader_changes: random.random_range(1..value_max),
        };
        let of_topics: Vec<TopicSample<'_>> = names.iter().map(String::as_str).map(traffic).collect();
        let lag = |group| GroupSample { group: Some(group), lag: Some(random.random_range(1..value_max)) };
        let of_groups: Vec<GroupSample<'_>> = names.iter().map(String::as_str).map(lag).collect();
        let mut figures = Figures::default();
        Figure::ALL
            .into_iter()
            .for_each(|figure| figures.set(figure, Some(random.random_range(1..value_max))));
        history.record(&Round { figures, ..round(number * 10_000, &of_topics, &of_groups) });
        history.note(number * 10_000, EventKind::BrokerUp(1));
    }
    history
}

#[test]
fn memory_is_bounded_at_a_thousand_busy_topics_and_groups() {
    let (usual, largest) = (filled(1_000, 1 << 30), filled(1_000, 1 << 50));
    assert!(usual.allocated() <= 3 << 20, "{} bytes", usual.allocated());
    assert!(largest.allocated() <= MEMORY_MAX, "{} bytes", largest.allocated());
    let few = filled(3, 1 << 30);
    assert!(few.allocated() <= 128 << 10, "{} bytes with three topics and groups", few.allocated());
    assert!(History::new(INTERVAL).allocated() <= 32 << 10);
}

#[test]
fn memory_is_bounded_with_long_ids_of_groups() {
    let mut history = History::new(INTERVAL);
    let ids: Vec<String> = (0..4_300).map(|number| format!("{number}-{}", "x".repeat(30_000))).collect();
    for number in 0..3 {
        let lag = |(lag, group)| GroupSample { group: Some(group), lag: Some(lag) };
        let groups: Vec<GroupSample<'_>> = (1..).zip(ids.iter().map(String::as_str)).map(lag).collect();
        history.record(&round(number * 10_000, &[], &groups));
    }
    assert!(history.allocated() <= MEMORY_MAX, "{} bytes", history.allocated());
    assert_eq!(history.largest_groups(), []);
    assert_eq!(history.other_groups(|_| true).1, ids.len());
    assert_eq!(history.all_groups().lag.last(), Some(&Some((1..=4_300).sum())));
}
