//! The sources whose messages reach a stage, also through named destinations and taps, so that a stage can
//! wait for sources that have not sent anything yet. A processor that makes new messages from several is the
//! source of its output.

use std::collections::BTreeSet;

use crate::message::SourceId;
use crate::plan::{Input, Output, Plan, StagePlan};

/// The numbers of all sources of a plan.
pub struct Origins<'a> {
    plan: &'a Plan,
    /// By stream, place (0 is the source, others are processors) and instance; none for a place that passes
    /// its input on.
    sources: Vec<Vec<Vec<SourceId>>>,
}

/// True if the output of a processor has no partition of its input.
fn regroups(stage: &StagePlan) -> bool {
    matches!(stage.module.name, "aggregate" | "batch" | "exec")
}

impl<'a> Origins<'a> {
    pub fn of(plan: &'a Plan) -> Origins<'a> {
        let unique = |count: usize| (0..count).map(|_| SourceId::unique()).collect::<Vec<_>>();
        let sources = plan.streams.iter().map(|stream| {
            let is_source = matches!(stream.input, Input::Stage(_));
            let first = unique(if is_source { stream.instances } else { 0 });
            let processors = stream.processors.iter();
            let later = processors.map(|stage| unique(if regroups(stage) { stream.instances } else { 0 }));
            std::iter::once(first).chain(later).collect()
        });
        Origins { plan, sources: sources.collect() }
    }

    /// The number of a source or processor, if its output has one.
    pub fn source(&self, stream: usize, place: usize, instance: usize) -> Option<SourceId> {
        self.sources[stream][place].get(instance).copied()
    }

    /// The sources of the messages that leave a place. Sources of other runs are not known.
    pub fn reaching(&self, stream: usize, place: usize) -> BTreeSet<SourceId> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut next = vec![(stream, place)];
        while let Some((stream, place)) = next.pop() {
            if !seen.insert((stream, place)) {
                continue;
            }
            if let Some(ids) = self.sources[stream][..=place].iter().rev().find(|ids| !ids.is_empty()) {
                found.extend(ids);
                continue;
            }
            match &self.plan.streams[stream].input {
                Input::Topic(name) => {
                    let streams = self.plan.streams.iter().enumerate();
                    next.extend(streams.filter_map(|(index, writer)| match &writer.output {
                        Output::Topic(written) if written == name => Some((index, writer.processors.len())),
                        _ => None,
                    }));
                }
                Input::Tap { stream, stage } => next.push((*stream, *stage)),
                Input::Stage(_) | Input::Beside { .. } => {}
            }
        }
        found
    }

    /// True if a stage of the plan tracks partitions.
    pub fn are_tracked(&self) -> bool {
        let mut stages = self.plan.streams.iter().flat_map(|stream| &stream.processors);
        stages.any(|stage| stage.module.name == "aggregate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn all_sources_that_reach_a_stage_are_known() {
        let plan = plan(
            "a = time | filter --expression=true | topic:t\nb = time | batch --size=2 | topic:t\n\
             topic:t > aggregate --window=1s | log\ntap:stream:b > log",
        );
        let origins = Origins::of(&plan);
        assert!(origins.are_tracked());
        let id = |stream, place| origins.source(stream, place, 0);
        let ids = |ids: &[Option<SourceId>]| ids.iter().map(|id| id.expect("it has one")).collect();
        assert_eq!((id(0, 1), id(2, 0)), (None, None), "their output is their input");
        assert_eq!(origins.reaching(2, 0), ids(&[id(0, 0), id(1, 1)]));
        assert_eq!(origins.reaching(2, 1), ids(&[id(2, 1)]));
        assert_eq!(origins.reaching(3, 0), ids(&[id(1, 0)]));
    }
}
