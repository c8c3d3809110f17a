//! Where the stages of a stream keep their state. Pure: follows from the plan.

use std::sync::Arc;

use crate::guarantee::Guarantee;
use crate::plan::{Input, Output, StagePlan, StreamPlan};
use crate::topics;

/// Stages whose output or result depends on earlier messages.
const WITH_STATE: [&str; 4] = ["aggregate", "counter", "dedup", "histogram"];
/// Processors whose output belongs to no partition of the source.
const REGROUPING: [&str; 3] = ["aggregate", "batch", "exec"];

/// Where the stages of a stream keep their state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateKeeping {
    /// No stage has state.
    None,
    /// In memory: the end of the process is the end of the state.
    Memory {
        /// The first stage with state.
        stage: Arc<str>,
        reason: String,
        /// True if the source is read by a group, whose streams are expected to go on after a restart.
        is_in_group: bool,
    },
    /// In topics of the source's cluster, by place: 0 is the source.
    Topics(Vec<(usize, Arc<str>)>),
}

/// Where the stages of a stream keep their state.
pub fn keeping(stream: &StreamPlan, guarantee: Guarantee) -> StateKeeping {
    let stages: Vec<(usize, &StagePlan)> = stream.stages().enumerate().collect();
    let with_state: Vec<_> = stages.iter().filter(|(_, stage)| has_state(stage)).copied().collect();
    let Some((_, first)) = with_state.first() else { return StateKeeping::None };
    let in_memory = |reason: &str, is_in_group| StateKeeping::Memory {
        stage: first.label.clone(),
        reason: reason.to_owned(),
        is_in_group,
    };
    let source = match &stream.input {
        Input::Stage(source) => source,
        _ => return in_memory("the stream has no source of its own that could repeat messages", false),
    };
    let Some(group) = source.settings.optional_text("group").filter(|_| source.module.name == "kafka") else {
        return in_memory("the source has no committed offsets to go on from", false);
    };
    let not_durable = |reason: &str| in_memory(reason, true);
    if guarantee == Guarantee::AtMostOnce {
        return not_durable("at-most-once commits offsets before the state is known");
    }
    if source.settings.text("groupProtocol") != "classic" {
        return not_durable("durable state needs --groupProtocol=classic at the source");
    }
    if topics::pattern(source.settings.text("topics")).is_some() {
        return not_durable(
            "durable state needs the names of the source's topics, and --topics is a pattern",
        );
    }
    if let Output::Topic(name) = &stream.output {
        return not_durable(&format!("topic:{name} is in memory; use --transport=kafka"));
    }
    let regrouping = stages.iter().find(|(_, stage)| REGROUPING.contains(&stage.module.name));
    if let Some((at, regrouping)) = regrouping
        && let Some((_, behind)) = with_state.iter().find(|(place, _)| place > at)
    {
        let reason = format!(
            "{} is behind {}, whose output belongs to no partition; use --transport=kafka, which puts a topic \
             between them",
            behind.label, regrouping.label
        );
        return not_durable(&reason);
    }
    let topics: Vec<_> =
        with_state.iter().map(|(place, stage)| (*place, topic(group, &stage.label))).collect();
    if let Some((_, topic)) = topics.iter().find(|(_, topic)| !topics::is_topic(topic)) {
        return not_durable(&format!("{topic} is not a valid name of a topic; use another --group"));
    }
    StateKeeping::Topics(topics)
}

impl StateKeeping {
    /// True if the state outlives the process.
    pub fn is_durable(&self) -> bool {
        matches!(self, StateKeeping::Topics(_))
    }

    /// The topics of the state, by place.
    pub fn topics(&self) -> &[(usize, Arc<str>)] {
        match self {
            StateKeeping::Topics(topics) => topics,
            StateKeeping::None | StateKeeping::Memory { .. } => &[],
        }
    }
}

/// The topic of a stage's state: named after the group, whose offsets it belongs to, and the stage.
fn topic(group: &str, stage: &str) -> Arc<str> {
    format!("{group}-{stage}-changelog").into()
}

/// True if a stage keeps state.
pub fn has_state(stage: &StagePlan) -> bool {
    WITH_STATE.contains(&stage.module.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn kept(text: &str, guarantee: Guarantee) -> StateKeeping {
        let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        keeping(&plan.streams[0], guarantee)
    }

    #[test]
    fn state_behind_a_group_is_in_a_topic_for_each_stage() {
        let text = "kafka --topics=a --group=g | dedup | filter --expression=true | w: aggregate | log";
        let topics = [(1, "g-dedup-changelog".into()), (3, "g-w-changelog".into())];
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::ExactlyOnce] {
            assert_eq!(kept(text, guarantee), StateKeeping::Topics(topics.to_vec()));
        }
        assert_eq!(kept("kafka --topics=a --group=g | counter", Guarantee::AtLeastOnce).topics().len(), 1);
    }

    #[test]
    fn other_state_is_in_memory_for_a_reason() {
        let kafka = "kafka --topics=a --group=g";
        for (text, part) in [
            ("time | counter".to_owned(), "no committed offsets"),
            ("kafka --topics=a | dedup | log".to_owned(), "no committed offsets"),
            (format!("{kafka} --groupProtocol=consumer | dedup | log"), "--groupProtocol=classic"),
            ("kafka --topics='^a' --group=g | counter".to_owned(), "--topics is a pattern"),
            (format!("{kafka} | dedup | topic:t\ntopic:t > log"), "topic:t is in memory"),
            (format!("{kafka} | aggregate | counter"), "counter is behind aggregate"),
            (format!("{kafka} | batch | d: dedup | log"), "d is behind batch"),
            ("kafka --topics=a --group='my group' | counter".to_owned(), "another --group"),
        ] {
            match kept(&text, Guarantee::AtLeastOnce) {
                StateKeeping::Memory { reason, .. } => assert!(reason.contains(part), "{text}: {reason}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let at_most_once = kept(&format!("{kafka} | counter"), Guarantee::AtMostOnce);
        assert!(matches!(at_most_once, StateKeeping::Memory { is_in_group: true, .. }));
        assert_eq!(kept(&format!("{kafka} | log"), Guarantee::AtLeastOnce), StateKeeping::None);
    }
}
