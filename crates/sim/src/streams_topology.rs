//! The topology of the simulated streams group, and the group as described by its coordinator.
//!
//! ```text
//! events ──► 0 splits ──► counts-repartition ──► 1 counts ──► counts-changelog
//! ```

use crate::history::TOPIC;
use crate::streams_ledger::{DescribedMember, Description, Task};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_config::EffectiveTopicConfig;
use thalweg_wire::request::streams_group_describe_response as described;
use thalweg_wire::request::streams_group_heartbeat_request::{
    KeyValue, Subtopology, TaskIds, TopicInfo, Topology,
};

/// The id of the streams group.
pub(crate) const COUNTS: &str = "counts";
/// The topic from the first subtopology to the second.
pub(crate) const REPARTITION: &str = "counts-repartition";
/// The topic of the state.
pub(crate) const CHANGELOG: &str = "counts-changelog";
/// The topics that the subtopologies read.
const SOURCES: [&str; 2] = [TOPIC, REPARTITION];
/// The subtopology that has state.
const STATEFUL: usize = 1;

/// The shape of the group's topology.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Partition count of the source topic.
    pub(crate) partitions: i32,
    /// Partition count of the repartition topic; 0 for that of the source topic.
    pub(crate) repartitions: i32,
}

impl Shape {
    /// The expected partition count of the internal topics.
    pub(crate) fn internal_partitions(self) -> i32 {
        if self.repartitions == 0 { self.partitions } else { self.repartitions }
    }

    /// All tasks, with true for tasks with state.
    pub(crate) fn tasks(self) -> impl Iterator<Item = (Task, bool)> {
        let counts = [self.partitions, self.internal_partitions()];
        counts.into_iter().enumerate().flat_map(|(subtopology, count)| {
            (0..count).map(move |partition| (Task { subtopology, partition }, subtopology == STATEFUL))
        })
    }

    /// The topology in the form of a request.
    pub(crate) fn topology(self) -> Topology {
        let names = |name: &str| vec![name.to_owned()];
        let split = Subtopology {
            subtopology_id: "0".to_owned(),
            source_topics: names(TOPIC),
            repartition_sink_topics: names(REPARTITION),
            ..Subtopology::default()
        };
        let count = Subtopology {
            subtopology_id: STATEFUL.to_string(),
            repartition_source_topics: vec![internal(REPARTITION, self.repartitions, "delete")],
            state_changelog_topics: vec![internal(CHANGELOG, 0, "compact")],
            ..Subtopology::default()
        };
        Topology { epoch: 0, subtopologies: vec![split, count] }
    }
}

fn internal(name: &str, partitions: i32, cleanup: &str) -> TopicInfo {
    let config = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: value.to_owned() };
    TopicInfo {
        name: name.to_owned(),
        partitions,
        replication_factor: 3,
        topic_configs: vec![
            config(EffectiveTopicConfig::cleanup_policy.name(), cleanup),
            config(EffectiveTopicConfig::min_insync_replicas.name(), "2"),
        ],
    }
}

/// The input topic of a task.
pub(crate) fn source(task: Task) -> &'static str {
    SOURCES[task.subtopology]
}

/// Tasks in the form of a request.
pub(crate) fn ids(tasks: impl Iterator<Item = Task>) -> Vec<TaskIds> {
    let mut by_id: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
    for task in tasks {
        by_id.entry(task.subtopology).or_default().push(task.partition);
    }
    let ids =
        by_id.into_iter().map(|(id, partitions)| TaskIds { subtopology_id: id.to_string(), partitions });
    ids.collect()
}

/// Tasks of an answer, by subtopology id.
pub(crate) fn tasks(ids: impl Iterator<Item = (String, Vec<i32>)>) -> BTreeSet<Task> {
    let of_one = |(id, partitions): (String, Vec<i32>)| {
        // An unknown id results in tasks that fail the checks.
        let subtopology = id.parse().unwrap_or(usize::MAX);
        partitions.into_iter().map(move |partition| Task { subtopology, partition })
    };
    ids.flat_map(of_one).collect()
}

/// The group of an answer.
pub(crate) fn description(group: described::DescribedGroup) -> Description {
    let all =
        |ids: Vec<described::TaskIds>| tasks(ids.into_iter().map(|ids| (ids.subtopology_id, ids.partitions)));
    let members = group.members.into_iter().map(|member| DescribedMember {
        id: member.member_id,
        epoch: member.member_epoch,
        process: member.process_id,
        active: all(member.assignment.active_tasks),
        standby: all(member.assignment.standby_tasks),
    });
    Description {
        state: group.group_state,
        epoch: group.group_epoch,
        target_epoch: group.assignment_epoch,
        members: members.collect(),
    }
}
