use thalweg_client::verdict::{Absence, Cause, Reach};
use tokio::time::Instant;

use super::*;
use crate::top::reading::testing::{add_group, add_topic, reading};

fn topic<'a>(figures: &'a Figures, name: &str) -> &'a TopicFigures {
    figures.topics.iter().find(|topic| &*topic.name == name).expect("it is there")
}

fn whole(value: f64) -> Option<Sum> {
    Some(Sum { value, is_whole: true })
}

fn partial(value: f64) -> Option<Sum> {
    Some(Sum { value, is_whole: false })
}

/// Two readings, two seconds apart.
fn two() -> (Reading, Reading) {
    let began = Instant::now();
    (reading(began, 0.0), reading(began, 2.0))
}

#[test]
fn rates_are_growths_between_two_readings() {
    let (mut before, mut now) = two();
    add_topic(&mut before, "orders", &[(Some(100), Some(1000)), (Some(5), Some(50))]);
    add_topic(&mut now, "orders", &[(Some(300), Some(3000)), (Some(5), Some(50))]);
    add_topic(&mut before, "idle", &[(Some(7), Some(70))]);
    add_topic(&mut now, "idle", &[(Some(7), Some(70))]);
    let figures = Figures::of(Some(&before), &now);
    assert_eq!(figures.interval, Some(Duration::from_secs(2)));
    let orders = topic(&figures, "orders");
    assert_eq!((orders.messages_per_s, orders.bytes_per_s), (whole(100.0), whole(1000.0)));
    assert_eq!(orders.log_bytes, whole(6100.0));
    assert_eq!(topic(&figures, "idle").messages_per_s, whole(0.0), "a known zero");
    assert_eq!(figures.cluster.messages_per_s, whole(100.0));
    assert_eq!(figures.cluster.brokers_up, 2);
    assert!(figures.notes.is_empty(), "{:?}", figures.notes);
}

#[test]
fn the_first_reading_has_no_rates() {
    let (_, mut now) = two();
    add_topic(&mut now, "orders", &[(Some(300), Some(3000))]);
    add_group(&mut now, "billing", "orders", Some(100));
    let figures = Figures::of(None, &now);
    let orders = topic(&figures, "orders");
    assert_eq!((orders.messages_per_s, orders.bytes_per_s, figures.interval), (None, None, None));
    assert_eq!(figures.brokers[0].log_bytes_per_s, None);
    let group = &figures.groups.as_ref().expect("groups")[0];
    assert_eq!((group.lag, group.lag_per_s, group.consumed_per_s), (whole(200.0), None, None));
    assert!(figures.notes[0].contains("second reading"), "{:?}", figures.notes);
}

#[test]
fn unknown_parts_are_no_zeros() {
    let (mut before, mut now) = two();
    // The end of partition 1 is unknown now, a segment of partition 0 was deleted, and partition 2 is new.
    add_topic(&mut before, "orders", &[(Some(100), Some(1000)), (Some(5), Some(50))]);
    add_topic(&mut now, "orders", &[(Some(300), Some(10)), (None, Some(70)), (Some(9), Some(90))]);
    // No end is known.
    add_topic(&mut before, "lost", &[(None, None)]);
    add_topic(&mut now, "lost", &[(None, None)]);
    let figures = Figures::of(Some(&before), &now);
    let orders = topic(&figures, "orders");
    assert_eq!((orders.messages_per_s, orders.bytes_per_s), (partial(100.0), partial(10.0)));
    let lost = topic(&figures, "lost");
    assert_eq!((lost.messages_per_s, lost.bytes_per_s, lost.log_bytes), (None, None, None));
    assert_eq!(figures.cluster.messages_per_s, partial(100.0));
    assert!(figures.notes.iter().any(|note| note.contains("2 of 4 partitions")), "{:?}", figures.notes);
}

#[test]
fn a_topic_of_the_same_name_and_a_truncated_log_have_no_rate() {
    let (mut before, mut now) = two();
    add_topic(&mut before, "again", &[(Some(100), Some(1000))]);
    add_topic(&mut now, "again", &[(Some(300), Some(3000))]);
    now.topics.get_mut("again").expect("there").id = thalweg_wire::Uuid(2);
    add_topic(&mut before, "cut", &[(Some(100), Some(1000))]);
    add_topic(&mut now, "cut", &[(Some(90), Some(900))]);
    let figures = Figures::of(Some(&before), &now);
    assert_eq!(topic(&figures, "again").messages_per_s, None);
    assert_eq!(topic(&figures, "cut").messages_per_s, None);
}

#[test]
fn a_group_has_lag_its_change_and_consumed_records() {
    let (mut before, mut now) = two();
    add_topic(&mut before, "orders", &[(Some(100), Some(1000))]);
    add_topic(&mut now, "orders", &[(Some(300), Some(3000))]);
    for (name, then, later) in
        [("billing", Some(90), Some(150)), ("new", None, Some(7)), ("reset", Some(90), Some(0))]
    {
        add_group(&mut before, name, "orders", then);
        add_group(&mut now, name, "orders", later);
    }
    let figures = Figures::of(Some(&before), &now);
    let groups = figures.groups.expect("groups");
    let found: Vec<_> = groups.iter().map(|one| (one.lag, one.lag_per_s, one.consumed_per_s)).collect();
    assert_eq!(found[0], (whole(150.0), Some(70.0), whole(30.0)));
    assert_eq!(found[1], (whole(293.0), None, None), "the first commit tells no rate");
    assert_eq!(found[2], (whole(300.0), Some(145.0), None), "a reset consumes nothing");
    assert_eq!(groups[0].members, Some(1));
}

#[test]
fn a_lag_without_a_commit_or_an_end_is_unknown_with_a_reason() {
    let (_, mut now) = two();
    add_topic(&mut now, "orders", &[(Some(300), None)]);
    add_topic(&mut now, "lost", &[(None, None)]);
    add_group(&mut now, "silent", "orders", None);
    add_group(&mut now, "blind", "lost", Some(4));
    add_group(&mut now, "unread", "orders", Some(4));
    now.groups.as_mut().expect("groups").groups[2].positions = None;
    let figures = Figures::of(None, &now);
    let groups = figures.groups.expect("groups");
    let found: Vec<_> = groups.iter().map(|one| (one.lag, one.problem)).collect();
    assert_eq!(found, [(None, Some(NO_COMMIT)), (None, Some(NO_ENDS)), (None, Some(NOT_READ))]);
    for reason in ["has committed nothing", "offsets of 1 group were not read"] {
        assert!(figures.notes.iter().any(|note| note.contains(reason)), "{reason}: {:?}", figures.notes);
    }
}

#[test]
fn a_dead_broker_hides_only_its_own_figures() {
    let (mut before, mut now) = two();
    add_topic(&mut before, "orders", &[(Some(100), Some(1000))]);
    add_topic(&mut now, "orders", &[(Some(300), Some(3000))]);
    let dead = now.brokers.get_mut(&2).expect("there");
    dead.reach = Reach::Silent;
    dead.directories = Err(Absence::silent("broker 2 did not answer within 500 ms"));
    dead.logs = None;
    let figures = Figures::of(Some(&before), &now);
    assert_eq!(topic(&figures, "orders").messages_per_s, whole(100.0));
    assert_eq!(topic(&figures, "orders").under_replicated, 1);
    assert_eq!((figures.cluster.brokers_up, figures.cluster.health), (1, Health::Degraded));
    let broker = &figures.brokers[1];
    assert_eq!((broker.state, broker.out_of_sync, broker.leaders), ("not reached", Some(1), Some(0)));
    assert_eq!((broker.log_bytes, broker.log_bytes_per_s), (None, None));
    assert!(
        figures.verdicts[0].text.starts_with("1 of 2 brokers does not answer (2)"),
        "{:?}",
        figures.verdicts
    );
    assert!(
        figures.notes.iter().any(|note| note.contains("did not answer within 500 ms")),
        "{:?}",
        figures.notes
    );
}

#[test]
fn a_login_without_rights_sees_no_zeros() {
    let (_, mut now) = two();
    let denied = || Absence { cause: Cause::Denied, why: "no right".to_owned() };
    for broker in now.brokers.values_mut() {
        broker.directories = Err(denied());
        broker.logs = None;
    }
    now.facts.hidden_topics = Err(denied());
    now.facts.quorum = Err(denied());
    let figures = Figures::of(None, &now);
    assert!(figures.cluster.partitions.is_none() && figures.cluster.controller.is_none());
    assert_eq!((figures.brokers[0].leaders, figures.brokers[0].log_bytes), (None, None));
    assert_eq!(figures.cluster.health, Health::Unknown);
    let notes = figures.notes.join("\n");
    assert!(notes.contains("Log directories of brokers 1, 2: not visible to this login"), "{notes}");
    assert!(notes.contains("Controller: not visible to this login"), "{notes}");
}

#[test]
fn totals_are_parts_if_topics_are_hidden_or_were_deleted() {
    let (mut before, mut now) = two();
    for name in ["kept", "deleted", "again"] {
        add_topic(&mut before, name, &[(Some(100), Some(1000))]);
        add_topic(&mut now, name, &[(Some(300), Some(3000))]);
    }
    let messages = |now: &Reading| Figures::of(Some(&before), now).cluster.messages_per_s;
    assert_eq!(messages(&now), whole(300.0));
    now.facts.hidden_topics = Ok(1);
    assert_eq!(messages(&now), partial(300.0));
    now.facts.hidden_topics = Err(Absence { cause: Cause::Denied, why: "no right".to_owned() });
    assert_eq!(messages(&now), partial(300.0));
    now.facts.hidden_topics = Ok(0);
    let deleted = now.topics.remove("deleted");
    assert_eq!(messages(&now), partial(200.0), "records of it before its end are unknown");
    now.topics.extend(deleted.map(|topic| ("deleted".into(), topic)));
    now.topics.get_mut("again").expect("there").id = thalweg_wire::Uuid(2);
    assert_eq!(messages(&now), partial(200.0));
    // The last topic.
    now.topics.clear();
    let cluster = Figures::of(Some(&before), &now).cluster;
    assert_eq!(
        (cluster.messages_per_s, cluster.topics, cluster.has_all_topics),
        (partial(0.0), Some(0), true)
    );
}

#[test]
fn the_groups_of_a_silent_broker_are_missing_from_their_number() {
    let (_, mut now) = two();
    assert!(Figures::of(None, &now).cluster.has_all_groups);
    now.groups.as_mut().expect("groups").gaps.push("The groups of broker 2 are missing".to_owned());
    let figures = Figures::of(None, &now);
    assert_eq!((figures.groups.map(|groups| groups.len()), figures.cluster.has_all_groups), (Some(0), false));
    assert!(figures.notes.iter().any(|note| note.starts_with("+ marks")), "{:?}", figures.notes);
}

#[test]
fn the_lag_of_visible_topics_is_a_part_if_others_may_be_hidden() {
    let (_, mut now) = two();
    add_topic(&mut now, "orders", &[(Some(300), None)]);
    add_group(&mut now, "seen in part", "orders", Some(200));
    add_group(&mut now, "without a visible offset", "orders", None);
    now.facts.hidden_topics = Ok(1);
    let groups = Figures::of(None, &now).groups.expect("groups");
    assert_eq!((groups[0].lag, groups[1].lag), (Some(Sum { value: 100.0, is_whole: false }), None));
    assert_eq!(groups[1].problem, Some(HIDDEN));
}

#[test]
fn bytes_beside_deleted_segments_are_a_part() {
    let (mut before, mut now) = two();
    for name in ["kept", "trimmed", "unknown"] {
        add_topic(&mut before, name, &[(Some(100), Some(1000)), (Some(5), Some(50))]);
        add_topic(&mut now, name, &[(Some(300), Some(3000)), (Some(5), Some(50))]);
    }
    now.topics.get_mut("trimmed").expect("there").partitions[0].start = Some(40);
    before.topics.get_mut("unknown").expect("there").partitions[1].start = None;
    let figures = Figures::of(Some(&before), &now);
    let bytes = |name| topic(&figures, name).bytes_per_s;
    assert_eq!(bytes("kept"), whole(1000.0));
    assert_eq!(bytes("trimmed"), partial(1000.0), "40 records were deleted meanwhile");
    assert_eq!(bytes("unknown"), partial(1000.0));
    assert_eq!(topic(&figures, "trimmed").messages_per_s, whole(100.0));
}

#[test]
fn rates_are_taken_by_the_times_of_answers() {
    let (mut before, mut now) = two();
    add_topic(&mut before, "orders", &[(Some(100), Some(1000))]);
    add_topic(&mut now, "orders", &[(Some(300), Some(3000))]);
    add_group(&mut before, "billing", "orders", Some(100));
    add_group(&mut now, "billing", "orders", Some(200));
    // Each answer of the second reading is late by two seconds.
    let late = now.at + Duration::from_secs(2);
    now.topics.get_mut("orders").expect("there").partitions[0].end_at = Some(late);
    now.brokers.get_mut(&1).expect("there").sized_at = Some(late);
    now.groups.as_mut().expect("groups").groups[0].positions_at = late;
    let figures = Figures::of(Some(&before), &now);
    let orders = topic(&figures, "orders");
    assert_eq!((orders.messages_per_s, orders.bytes_per_s), (whole(50.0), whole(500.0)));
    let group = &figures.groups.as_ref().expect("groups")[0];
    assert_eq!((group.consumed_per_s, group.lag_per_s), (whole(25.0), Some(25.0)));
}

#[test]
fn a_failed_log_directory_is_no_shrinking() {
    let (mut before, mut now) = two();
    let logs = |second| Some([("/a".to_owned(), Some(1000)), ("/b".to_owned(), second)].into());
    before.brokers.get_mut(&1).expect("there").logs = logs(Some(5000));
    let broker = now.brokers.get_mut(&1).expect("there");
    broker.logs = logs(None);
    let figures = Figures::of(Some(&before), &now);
    let found = &figures.brokers[0];
    assert_eq!((found.log_bytes, found.log_bytes_per_s), (partial(1000.0), partial(0.0)));
    assert!(figures.notes.iter().any(|note| note.contains("failed log directories")), "{:?}", figures.notes);
}
