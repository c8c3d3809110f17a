//! Partition counts of internal topics, which depend on the order in which Kafka visits subtopologies.

use super::streams::{Member, Scene, names, topic, word_count};
use std::collections::BTreeMap;
use thalweg_wire::request::streams_group_heartbeat_request::{CopartitionGroup, Subtopology, Topology};

/// A subtopology by its id, source topics, repartition source topics and repartition sink topics.
fn subtopology(id: &str, external: &[&str], repartition: &[&str], sinks: &[&str]) -> Subtopology {
    Subtopology {
        subtopology_id: id.to_owned(),
        source_topics: names(external),
        repartition_source_topics: repartition.iter().map(|name| topic(name, 0)).collect(),
        repartition_sink_topics: names(sinks),
        ..Subtopology::default()
    }
}

/// The same with all repartition source topics in one copartition group.
fn copartitioned(subtopology: Subtopology) -> Subtopology {
    let repartition_source_topics =
        (0..).zip(&subtopology.repartition_source_topics).map(|(at, _)| at).collect();
    let group = CopartitionGroup { repartition_source_topics, ..CopartitionGroup::default() };
    Subtopology { copartition_groups: vec![group], ..subtopology }
}

/// A scene in which topic `t` has two partitions and topic `u` has eight.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.harness.topics.set("u", 8, 8);
    scene
}

/// Partition counts of the internal topics of a new group with this topology.
fn counts(subtopologies: Vec<Subtopology>) -> Vec<(String, i32)> {
    let member = Member::new("one", Topology { epoch: 0, subtopologies });
    let (response, topics) = scene().send(&member.request());
    assert_eq!(response.error_code, 0, "{response:?}");
    let counts: BTreeMap<String, i32> =
        topics.into_iter().map(|topic| (topic.name, topic.num_partitions)).collect();
    counts.into_iter().collect()
}

fn expected(counts: &[(&str, i32)]) -> Vec<(String, i32)> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Twelve subtopologies, which Kafka visits in the order 0 11 1 2 to 10.
fn twelve(joins: Subtopology) -> Vec<Subtopology> {
    let mut all = vec![
        subtopology("0", &["t"], &[], &["a"]),
        subtopology("1", &["t"], &[], &[]),
        subtopology("2", &["u"], &[], &["b"]),
    ];
    all.extend((3..10).map(|id| subtopology(&id.to_string(), &["t"], &[], &[])));
    all.extend([joins, subtopology("11", &[], &["x"], &[])]);
    all
}

#[test]
fn subtopologies_are_visited_in_the_order_of_kafkas_map() {
    let joins = subtopology("10", &[], &["a", "b"], &["x"]);
    assert_eq!(counts(twelve(joins.clone())), expected(&[("a", 2), ("b", 8), ("x", 8)]));
    assert_eq!(counts(twelve(copartitioned(joins))), expected(&[("a", 8), ("b", 8), ("x", 8)]));
}

#[test]
fn a_sink_gets_the_count_of_the_sources_known_in_its_round() {
    // The second round visits 0 before 1, so that topic b is not known yet.
    let short = vec![
        subtopology("0", &[], &["a", "b"], &["x"]),
        subtopology("1", &[], &["c"], &["b"]),
        subtopology("2", &["u"], &[], &["c"]),
        subtopology("3", &["t"], &[], &["a"]),
        subtopology("4", &[], &["x"], &[]),
    ];
    assert_eq!(counts(short), expected(&[("a", 2), ("b", 8), ("c", 8), ("x", 2)]));
    // The first round decides both sources of 3.
    let long = vec![
        subtopology("0", &["u"], &[], &["c"]),
        subtopology("1", &["t"], &[], &["a"]),
        subtopology("2", &[], &["c"], &["b"]),
        subtopology("3", &[], &["a", "b"], &["x"]),
        subtopology("4", &[], &["x"], &[]),
    ];
    assert_eq!(counts(long), expected(&[("a", 2), ("b", 8), ("c", 8), ("x", 8)]));
}

#[test]
fn copartition_groups_are_enforced_in_the_order_of_kafkas_map() {
    // Kafka visits 2 before 10, which makes topic b as large as topic a before topic c follows topic b.
    let shared = vec![
        subtopology("0", &["u"], &[], &["a"]),
        subtopology("1", &["t"], &[], &["b", "c"]),
        copartitioned(subtopology("2", &[], &["a", "b"], &[])),
        copartitioned(subtopology("10", &[], &["b", "c"], &[])),
    ];
    assert_eq!(counts(shared), expected(&[("a", 8), ("b", 8), ("c", 8)]));
}

#[test]
fn internal_topics_are_named_in_the_order_of_kafkas_map() {
    let status_of = |mut scene: Scene| {
        let (response, _) = scene.send(&Member::new("one", word_count()).request());
        let mut statuses = response.status.expect("a status").into_iter();
        statuses.next().map(|status| (status.status_code, status.status_detail))
    };
    let missing = "Internal topics are missing: r, c".to_owned();
    assert_eq!(status_of(scene()), Some((3, missing)));
    let wrong = scene();
    wrong.harness.topics.set("c", 9, 5);
    wrong.harness.topics.set("r", 10, 3);
    let detail = "Existing topic r has different number of partitions: expected 2, found 3".to_owned();
    assert_eq!(status_of(wrong), Some((2, detail)));
}
