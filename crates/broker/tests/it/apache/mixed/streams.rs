//! The coordinator of a streams group moves between the makes: members go on at their epochs, with their
//! tasks, and each make goes on from the records of the other.

use super::transactions::name_in;
use super::*;
use crate::apache::streams::{Group, normal_description, word_count};
use crate::running::is_coming_up;
use thalweg_metadata::topic_name::OFFSETS;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};

/// Commits an offset of another group to the same partition, as soon as the coordinator has loaded it.
///
/// Kafka's loader reads the high watermark before its coordinator listens to it. When the high watermark
/// moves between the two, answers to heartbeats without a change wait for the next record of the partition.
async fn write(mixed: &MixedCluster, lines: &Topic) {
    let partitions = vec![OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() }];
    let request = OffsetCommitRequest {
        group_id: name_in(0, "other"),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic { topic_id: lines.id, partitions, ..Default::default() }],
        ..Default::default()
    };
    until("a committed offset", async || {
        let leader = mixed.leader_of(OFFSETS, 0);
        let answer = mixed.connection(leader).send(&request).await.expect("an answer");
        let error_code = answer.topics[0].partitions[0].error_code;
        assert!(error_code == 0 || is_coming_up(error_code), "{answer:?}");
        error_code == 0
    })
    .await;
}

/// A heartbeat to the coordinator, as soon as it has loaded the group.
async fn beat(mixed: &MixedCluster, group: &mut Group, member: &str) -> StreamsGroupHeartbeatResponse {
    let mut answer = None;
    until("a coordinator that has loaded the group", async || {
        let leader = mixed.leader_of(OFFSETS, 0);
        let told = mixed.connection(leader).send(&group.request(member)).await.expect("an answer");
        let is_final = !is_coming_up(told.error_code);
        answer = Some(told);
        is_final
    })
    .await;
    let answer = answer.expect("one");
    assert_eq!(answer.error_code, 0, "{member}: {answer:?}");
    group.take(member, &answer);
    answer
}

/// Heartbeats of all, until nothing changes any more.
async fn settle(mixed: &MixedCluster, group: &mut Group, members: &[&str]) {
    until("a stable group", async || {
        for member in members {
            beat(mixed, group, member).await;
        }
        let described = describe(mixed, group).await;
        described.contains("group_state: \"Stable\"")
            && described.matches("member_id: ").count() == members.len()
    })
    .await;
}

async fn describe(mixed: &MixedCluster, group: &Group) -> String {
    let request = StreamsGroupDescribeRequest { group_ids: vec![group.id.clone()], ..Default::default() };
    let leader = mixed.leader_of(OFFSETS, 0);
    let mut answer = mixed.connection(leader).send(&request).await.expect("an answer");
    normal_description(&mut answer);
    // After it has loaded a group, Kafka shows the number of partitions that it has decided with the next
    // record.
    let topologies = answer.groups.iter_mut().filter_map(|group| group.topology.as_mut());
    for subtopology in topologies.flat_map(|topology| topology.subtopologies.iter_mut().flatten()) {
        let own = subtopology.repartition_source_topics.iter_mut();
        own.chain(&mut subtopology.state_changelog_topics).for_each(|topic| topic.partitions = 0);
    }
    format!("{:?}", answer.groups)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_streams_group_goes_on_when_its_coordinator_moves_between_the_makes() {
    let Some(jars) = jars() else { return };
    let mixed = MixedCluster::start(jars).await;
    mixed.create(OFFSETS, [[1, 2, 3], [2, 3, 1]]).await;
    let lines = mixed.create("lines", [[1, 2, 3], [2, 3, 1]]).await;
    for topic in ["words-repartition", "words-changelog"] {
        mixed.create(topic, [[1, 2, 3], [2, 3, 1]]).await;
    }
    let mut group = Group::new(&name_in(0, "words"), word_count("words", "lines"));
    settle(&mixed, &mut group, &["a", "b"]).await;
    let mut members = vec!["a", "b"];
    for to in [2, 1, 3, 1, 2] {
        let before = describe(&mixed, &group).await;
        let (epochs, owned) = (group.epochs.clone(), group.owned.clone());
        mixed.move_leader(OFFSETS, 0, to).await;
        write(&mixed, &lines).await;
        for member in &members {
            let answer = beat(&mixed, &mut group, member).await;
            assert_eq!(answer.active_tasks, None, "nothing has changed: {answer:?}");
        }
        assert_eq!((&group.epochs, &group.owned), (&epochs, &owned), "no rebalance, at {to}");
        assert_eq!(describe(&mixed, &group).await, before, "at {to}");
        // The new coordinator writes, too.
        if members.len() == 2 {
            members.push("c");
        } else {
            let last = members.pop().expect("one");
            let farewell =
                StreamsGroupHeartbeatRequest { topology: None, member_epoch: -1, ..group.request(last) };
            let answer = mixed.connection(to).send(&farewell).await.expect("an answer");
            assert_eq!(answer.error_code, 0, "{answer:?}");
            group.epochs.remove(last);
        }
        settle(&mixed, &mut group, &members).await;
    }
    mixed.finish().await;
}
