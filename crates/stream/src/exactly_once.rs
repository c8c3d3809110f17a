//! Which streams can run exactly once, and under which names they do.
//!
//! Exactly once means that what a sink writes and how far its source has come are one transaction of the cluster. So both are
//! Kafka's, in one cluster, and what is between them keeps nothing that a failure would lose: messages that are taken back come
//! again, and become the same.

use std::sync::Arc;

use crate::bad::OnError;
use crate::guarantee::Guarantee;
use crate::plan::{Input, Output, Plan, StagePlan, StreamPlan};

/// The processors whose output depends on one message alone; of those that hold messages back, which ones and in their order.
const WITHOUT_MEMORY: [&str; 4] = ["filter", "rate-limit", "splitter", "transform"];

/// A stream cannot run exactly once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The stream {stream} cannot run exactly once: {reason}; {right}")]
pub struct NotExactlyOnce {
    /// The stream, or the part of it that a topic before or behind it makes a stream of its own.
    pub stream: Arc<str>,
    /// Why not.
    pub reason: String,
    /// What would be right.
    pub right: String,
}

impl Guarantee {
    /// Whether the streams of a plan, with all topics laid between stages that are to be there, can have it.
    pub fn check(self, plan: &Plan, on_error: &OnError) -> Result<(), NotExactlyOnce> {
        if self != Guarantee::ExactlyOnce {
            return Ok(());
        }
        for stream in &plan.streams {
            check(stream, on_error).map_err(|(reason, right)| NotExactlyOnce {
                stream: stream.name.clone(),
                reason,
                right,
            })?;
        }
        Ok(())
    }

    /// What the cluster knows the transactions of an instance of a stream by: the group, for its members share the work; the
    /// stream and its sink; the process, and the instance in it.
    pub(crate) fn transactional_id(
        self,
        stream: &StreamPlan,
        process: &str,
        instance: usize,
    ) -> Option<Arc<str>> {
        if self != Guarantee::ExactlyOnce {
            return None;
        }
        let (source, sink) = (source(stream).ok()?, sink(stream).ok()?);
        let group = source.settings.optional_text("group")?;
        Some(format!("{group}-{}-{}-{process}.{instance}", stream.name, sink.label).into())
    }
}

/// What is wrong, and what would be right.
type Wrong = (String, String);

fn check(stream: &StreamPlan, on_error: &OnError) -> Result<(), Wrong> {
    let (source, sink) = (source(stream)?, sink(stream)?);
    if source.settings.optional_text("group").is_none() {
        let reason =
            format!("{} is in no consumer group, which would remember how far it has come", source.label);
        return Err((reason, "`kafka --topics=... --group=NAME` would be right".to_owned()));
    }
    let (from, to) = (source.settings.text("bootstrap"), sink.settings.text("bootstrap"));
    if from != to {
        let reason = format!("a transaction is of one cluster, and its ends are at {from} and {to}");
        return Err((reason, "the same --bootstrap for both would be right".to_owned()));
    }
    if let Some(stage) = stream.processors.iter().find(|stage| !WITHOUT_MEMORY.contains(&stage.module.name)) {
        let reason = format!("{} keeps messages or what it has seen of them in memory", told(stage));
        let right = format!("{} between its ends would be right", WITHOUT_MEMORY.join(", "));
        return Err((reason, right));
    }
    match on_error {
        OnError::Fail | OnError::Skip => Ok(()),
        OnError::DeadLetter(_) | OnError::DeadLetterTopic(_) => {
            let reason = "dead letters are part of no transaction, and may be written twice".to_owned();
            Err((reason, "onError=fail or onError=skip would be right".to_owned()))
        }
    }
}

fn source(stream: &StreamPlan) -> Result<&StagePlan, Wrong> {
    let over_topics = "--transport=kafka, which puts topics between streams, would be right".to_owned();
    match &stream.input {
        Input::Stage(stage) if stage.module.name == "kafka" => Ok(stage),
        Input::Stage(stage) => {
            let reason = format!("its source is {}, which remembers nothing of a transaction", told(stage));
            Err((reason, "`kafka --topics=... --group=NAME` would be right".to_owned()))
        }
        Input::Topic(name) => {
            Err((format!("it reads topic:{name} in memory, and a failure loses what is there"), over_topics))
        }
        Input::Tap { .. } => {
            let reason =
                "a tap in memory hears what is taken back, and a failure loses what it has".to_owned();
            Err((reason, over_topics))
        }
        Input::Beside { stream, .. } => {
            let reason =
                format!("a tap of {stream} hears what is taken back, and a failure loses what it has");
            Err((reason, "a named destination, topic:NAME, between them would be right".to_owned()))
        }
    }
}

fn sink(stream: &StreamPlan) -> Result<&StagePlan, Wrong> {
    match &stream.output {
        Output::Stage(stage) if stage.module.name == "kafka" => Ok(stage),
        Output::Stage(stage) => {
            let reason = format!("its sink is {}, which cannot take back what was written", told(stage));
            Err((reason, "`kafka --topic=...` would be right".to_owned()))
        }
        Output::Topic(name) => {
            let reason = format!("it writes topic:{name} in memory, and a failure loses what is there");
            Err((reason, "--transport=kafka, which puts topics between streams, would be right".to_owned()))
        }
    }
}

/// A stage by its label, and by its module where that is another.
fn told(stage: &StagePlan) -> String {
    match *stage.label == *stage.module.name {
        true => stage.label.to_string(),
        false => format!("{} ({})", stage.label, stage.module.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn streams_from_kafka_to_kafka_without_memory_can_run_exactly_once() {
        let moved = "kafka --topics=a --group=g | filter --expression=true | transform --expression=text \
                     | kafka --topic=b";
        let told = |text: &str, on_error: OnError| {
            let plan = plan(text);
            assert_eq!(Guarantee::AtLeastOnce.check(&plan, &on_error), Ok(()));
            Guarantee::ExactlyOnce.check(&plan, &on_error).err().map(|error| error.to_string())
        };
        assert_eq!(told(moved, OnError::Skip), None);
        for (text, reason, right) in [
            ("time | kafka --topic=b", "its source is time", "--group=NAME"),
            ("kafka --topics=a | kafka --topic=b", "in no consumer group", "--group=NAME"),
            ("kafka --topics=a --group=g | x: log", "its sink is x (log)", "`kafka --topic=...`"),
            (
                "kafka --topics=a --group=g | batch --size=2 | kafka --topic=b",
                "batch keeps",
                "filter, rate-limit",
            ),
            ("kafka --topics=a --group=g | kafka --topic=b --bootstrap=x:1", "x:1", "same --bootstrap"),
            (
                "kafka --topics=a --group=g | topic:t\ntopic:t > kafka --topic=b",
                "writes topic:t in memory",
                "--transport=kafka",
            ),
            (
                "s = kafka --topics=a --group=g | kafka --topic=b\ntap:stream:s > kafka --topic=c",
                "The stream s-2 cannot run exactly once: a tap in memory",
                "--transport=kafka",
            ),
        ] {
            let told = told(text, OnError::Fail).unwrap_or_else(|| panic!("{text} is taken"));
            assert!(told.contains(reason) && told.contains(right), "{text}: {told}");
        }
        let dead_letters = told(moved, OnError::DeadLetter("x".into())).expect("they are in no transaction");
        assert!(dead_letters.contains("onError=skip would be right"), "{dead_letters}");
    }

    #[test]
    fn an_instance_that_begins_anew_has_the_name_of_the_one_before() {
        let stream = &plan("kafka --topics=a --group=g | out: kafka --topic=b").streams[0];
        let id = |guarantee: Guarantee| guarantee.transactional_id(stream, "left", 2);
        assert_eq!(id(Guarantee::ExactlyOnce).as_deref(), Some("g-s-out-left.2"));
        assert_eq!(id(Guarantee::AtLeastOnce), None);
    }
}
