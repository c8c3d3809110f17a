use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_history::{EventKind, Figures, GroupSample, Round, TopicSample};

use super::*;

/// Two rounds of two topics and two groups, and events.
fn source() -> HistorySource {
    let mut history = History::new(Duration::from_secs(10));
    let topic = |topic, messages_in| TopicSample {
        topic,
        messages_in,
        bytes_in: messages_in * 100,
        bytes_out: 0,
        leader_changes: 0,
    };
    let (topics, groups) = (
        [topic("orders", 50), topic("secrets", 20)],
        [
            GroupSample { group: Some("billing"), lag: Some(3) },
            GroupSample { group: Some("spies"), lag: Some(4) },
        ],
    );
    for (at_ms, span_ms) in [(0, None), (10_000, Some(10_000))] {
        let (cost, figures) = (Duration::from_micros(7), Figures::default());
        history.record(&Round { at_ms, span_ms, cost, topics: &topics, groups: &groups, figures });
    }
    history.note(0, EventKind::Started(4));
    history.note(10_000, EventKind::TopicsCreated(2));
    HistorySource { broker: 4, history: Arc::new(Mutex::new(history)) }
}

fn names(hour: &BrokerHistory) -> (Vec<&str>, Vec<&str>) {
    (
        hour.topics.iter().map(|sum| &*sum.topic).collect(),
        hour.groups.iter().map(|line| &*line.group).collect(),
    )
}

#[test]
fn a_login_sees_the_series_of_its_topics_and_groups_only() {
    let source = source();
    let hour = visible(&source, false, |topic| topic == "orders", |group| group == "billing");
    assert_eq!(names(&hour), (vec!["orders"], vec!["billing"]));
    assert!(hour.total.is_none() && hour.figures.is_none() && hour.lag.is_none());
    assert!(hour.other_topics.is_none() && hour.other_groups.is_none());
    let events: Vec<&str> = hour.events.iter().map(|event| event.kind).collect();
    assert_eq!(events, ["broker-started"], "topics that are hidden are not counted");
    let text = serde_json::to_string(&hour).expect("JSON");
    assert!(!text.contains("secrets") && !text.contains("spies"), "{text}");
}

#[test]
fn hidden_topics_are_among_the_others_of_those_who_see_the_sum() {
    let source = source();
    let hour = visible(&source, true, |topic| topic == "orders", |_| true);
    assert_eq!(names(&hour), (vec!["orders"], vec!["spies", "billing"]));
    let total = hour.total.expect("the sum");
    assert_eq!(total.messages_in_per_second, [None, Some(7.0)]);
    let others = hour.other_topics.expect("the others");
    assert_eq!((others.topics, &others.traffic.bytes_in_per_second[..]), (1, &[None, Some(200.0)][..]));
    assert_eq!(hour.lag, Some(vec![Some(7), Some(7)]));
    assert_eq!(hour.other_groups.map(|others| others.groups), Some(0));
    assert_eq!((hour.events.len(), hour.sample_us, &hour.times.after_gap[..]), (2, 7, &[true, false][..]));
}

#[test]
fn a_topic_without_a_sample_is_not_reported_as_elsewhere() {
    let absent = without_series(4, false, 0, "the last 12 minutes");
    assert_eq!(absent, "Broker 4 had no partition of this topic in the last 12 minutes");
    assert!(without_series(4, true, 0, "the last hour").contains("has not taken a sample of it yet"));
    assert!(without_series(4, true, 3, "the last hour").ends_with("or has not taken a sample of it yet"));
    assert!(without_series(4, false, 3, "the last hour").contains("has no partition of this topic"));
}

#[test]
fn the_span_is_that_of_the_kept_time() {
    let words = |interval_ms| {
        let history = Arc::new(Mutex::new(History::new(Duration::from_millis(interval_ms))));
        HistorySource { broker: 1, history }.span_words()
    };
    assert_eq!(words(10_000), "the last hour");
    assert_eq!(words(2_000), "the last 12 minutes");
    assert_eq!(words(20_000), "the last 2 hours");
    assert_eq!(words(100), "the last 36 seconds");
}
