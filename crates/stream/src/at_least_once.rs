//! At-least-once streams: their condition. A source commits offsets once all that came of its messages is
//! stored, so each stage must know which messages are inside it.

use std::collections::BTreeSet;

use crate::plan::{Input, Output, Plan, StagePlan};

/// A stage that cannot tell which messages it has finished, with its stream.
pub struct UntrackedStage<'a> {
    pub stream: usize,
    pub stage: &'a StagePlan,
}

/// The first stage that breaks the guarantee of a source with committed offsets.
pub fn untracked(plan: &Plan) -> Option<UntrackedStage<'_>> {
    let is_untracked =
        |stage: &&StagePlan| stage.module.name == "exec" && stage.settings.text("replies") != "each";
    reached_by_groups(plan).into_iter().find_map(|index| {
        let stage = plan.streams[index].processors.iter().find(is_untracked)?;
        Some(UntrackedStage { stream: index, stage })
    })
}

/// The first sink that loses stored messages of a source with committed offsets at each start.
pub fn replaced(plan: &Plan) -> Option<UntrackedStage<'_>> {
    reached_by_groups(plan).into_iter().find_map(|index| match &plan.streams[index].output {
        Output::Stage(stage)
            if stage.module.name == "file" && stage.settings.optional_text("mode") == Some("replace") =>
        {
            Some(UntrackedStage { stream: index, stage })
        }
        _ => None,
    })
}

/// The streams that get messages of a source with committed offsets, also through topics in memory.
fn reached_by_groups(plan: &Plan) -> BTreeSet<usize> {
    let committing = plan.streams.iter().enumerate().filter(|(_, stream)| match &stream.input {
        Input::Stage(stage) => {
            stage.module.name == "kafka" && stage.settings.optional_text("group").is_some()
        }
        _ => false,
    });
    let mut next: Vec<usize> = committing.map(|(index, _)| index).collect();
    let mut reached = BTreeSet::new();
    while let Some(index) = next.pop() {
        if !reached.insert(index) {
            continue;
        }
        let Output::Topic(written) = &plan.streams[index].output else { continue };
        next.extend(plan.streams.iter().enumerate().filter_map(|(index, reader)| match &reader.input {
            Input::Topic(read) if read == written => Some(index),
            _ => None,
        }));
    }
    reached
}
