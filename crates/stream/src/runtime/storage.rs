//! Decides if a stream's messages end up stored, which follows from the plan. The answers of the `http`
//! source depend on it.

use std::collections::BTreeSet;

use crate::plan::{Input, Output, Plan, StreamPlan};

/// Sinks that acknowledge a message when it is stored, or when another server has accepted it.
const STORING: [&str; 3] = ["file", "http", "kafka"];
/// Processors that keep messages, or results of messages, for an unknown time.
const KEEPING: [&str; 2] = ["aggregate", "exec"];

/// The stream and all streams that its messages reach through topics in memory. Taps do not count.
pub fn reached(plan: &Plan, stream: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![stream];
    while let Some(stream) = next.pop() {
        if reached.insert(stream) {
            next.extend(readers(plan, &plan.streams[stream]));
        }
    }
    reached
}

/// The streams that read the topic at the end of a stream.
fn readers<'a>(plan: &'a Plan, stream: &'a StreamPlan) -> impl Iterator<Item = usize> + 'a {
    plan.streams.iter().enumerate().filter_map(|(index, reader)| match (&stream.output, &reader.input) {
        (Output::Topic(written), Input::Topic(read)) if written == read => Some(index),
        _ => None,
    })
}

/// True if messages reach an `aggregate` behind a topic, whose open windows keep them for long.
pub fn reaches_windows(plan: &Plan, stream: usize) -> bool {
    let has_windows =
        |stream: &StreamPlan| stream.processors.iter().any(|stage| stage.module.name == "aggregate");
    reached(plan, stream).into_iter().any(|index| index != stream && has_windows(&plan.streams[index]))
}

/// True if a message is stored once the stream has acknowledged it.
pub fn stores(plan: &Plan, stream: usize) -> bool {
    reached(plan, stream).into_iter().all(|index| {
        let stream = &plan.streams[index];
        let keeps = stream.processors.iter().any(|stage| KEEPING.contains(&stage.module.name));
        let ends = match &stream.output {
            Output::Stage(stage) => STORING.contains(&stage.module.name),
            // A plan guarantees that the topic has readers.
            Output::Topic(_) => true,
        };
        ends && !keeps
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_behind_a_topic_are_known() {
        let text = "a = time | aggregate --window=1s | topic:t\nb = time | topic:u\ntopic:t > log\n\
             topic:u > aggregate --window=1s | log\ntap:stream:a > aggregate --window=1s | log";
        let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        let with_windows = (0..plan.streams.len()).filter(|stream| reaches_windows(&plan, *stream));
        assert_eq!(with_windows.collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_stream_stores_when_all_that_its_messages_reach_does() {
        for (text, stores_them) in [
            ("time | file --path=x", true),
            ("time | batch --size=2 | kafka --topic=t", true),
            ("time | log", false),
            ("time | aggregate --window=1s | file --path=x", false),
            ("time | exec --command=cat | file --path=x", false),
            ("time | topic:t\ntopic:t > file --path=x", true),
            ("time | topic:t\ntopic:t > file --path=x\ntopic:t > log", false),
            ("s = time | file --path=x\ntap:stream:s > log", true),
        ] {
            let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(stores(&plan, 0), stores_them, "{text}");
        }
    }
}
