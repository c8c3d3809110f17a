//! Streams groups, at every version.

use super::Trial;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::*;

pub async fn ask(trial: &mut Trial) {
    let group_id = || "an-application".to_owned();
    let topology = |topic: &str| {
        use streams_group_heartbeat_request::{Subtopology, Topology};
        let source_topics = vec![topic.to_owned()];
        let subtopology = Subtopology { subtopology_id: "0".to_owned(), source_topics, ..Default::default() };
        Some(Topology { epoch: 0, subtopologies: vec![subtopology] })
    };
    let make = |_| StreamsGroupHeartbeatRequest {
        group_id: group_id(),
        member_id: "member".to_owned(),
        member_epoch: 0,
        rebalance_timeout_ms: 60_000,
        topology: topology("known"),
        active_tasks: Some(Vec::new()),
        standby_tasks: Some(Vec::new()),
        warmup_tasks: Some(Vec::new()),
        process_id: Some("process".to_owned()),
        ..Default::default()
    };
    let good = |_, answer: &StreamsGroupHeartbeatResponse| answer.error_code == 0 && answer.member_epoch > 0;
    trial.each("a member", make, good).await;
    let invalid = ErrorCode::StreamsInvalidTopology.code();
    let make = |_| StreamsGroupHeartbeatRequest {
        member_id: "other".to_owned(),
        topology: topology("__consumer_offsets"),
        ..make(0)
    };
    let refused = |_, answer: &StreamsGroupHeartbeatResponse| answer.error_code == invalid;
    trial.each("an internal topic", make, refused).await;
    let make = |_| StreamsGroupDescribeRequest { group_ids: vec![group_id()], ..Default::default() };
    let good = |_, answer: &StreamsGroupDescribeResponse| {
        let group = &answer.groups[0];
        group.members.len() == 1 && group.topology.is_some()
    };
    trial.each("a group", make, good).await;
}
