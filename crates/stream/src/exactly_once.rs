//! The check of guarantees. Exactly-once streams: their conditions, and their transactional ids.
//!
//! Exactly once means that the sink's output, the state of the stages and the source's offsets form one
//! transaction of the cluster. Source and sink must therefore use one Kafka cluster, or the result is the
//! state of the sink itself, as in `counter`. The stages between must not keep state that a failure would
//! lose: aborted messages are read again and must give the same output.

use std::sync::Arc;

use crate::at_least_once;
use crate::bad::OnError;
use crate::durability::{StateKeeping, has_state, keeping};
use crate::guarantee::Guarantee;
use crate::plan::{Input, Output, Plan, StagePlan, StreamPlan};

/// Processors whose output depends on one message alone, and on a table of which the cluster has all.
/// Processors that delay messages track and keep their order.
const WITHOUT_MEMORY: [&str; 5] = ["enrich", "filter", "rate-limit", "splitter", "transform"];

/// A stream that cannot have the guarantee of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The stream {stream} cannot run {guarantee}: {reason}; {right}")]
pub struct NotGuaranteed {
    /// The stream, or the part of a stream between topics.
    pub stream: Arc<str>,
    /// The guarantee in words.
    pub guarantee: &'static str,
    pub reason: String,
    /// The remedy, for the message.
    pub right: String,
}

impl Guarantee {
    /// Checks that all streams of a plan, with their topics between stages in place, can have the guarantee.
    pub fn check(self, plan: &Plan, on_error: &OnError) -> Result<(), NotGuaranteed> {
        match self {
            Guarantee::AtMostOnce => return check_replaced(plan, "at most once"),
            Guarantee::AtLeastOnce => {
                check_replaced(plan, "at least once")?;
                return check_at_least_once(plan);
            }
            Guarantee::ExactlyOnce => {}
        }
        for stream in &plan.streams {
            check(stream, on_error).map_err(|(reason, right)| NotGuaranteed {
                stream: stream.name.clone(),
                guarantee: "exactly once",
                reason,
                right,
            })?;
        }
        Ok(())
    }

    /// The transactional id of an instance of a stream, if it has transactions: the group, whose members
    /// share the work; the stream and its sink, or `state` if the transactions have no output; the process;
    /// and the instance in it.
    pub(crate) fn transactional_id(
        self,
        stream: &StreamPlan,
        process: &str,
        instance: usize,
    ) -> Option<Arc<str>> {
        let writer = match self.sink_has_transactions(stream) {
            true => &*kafka_sink(stream)?.label,
            false if keeping(stream, self).is_durable() => "state",
            false => return None,
        };
        let group = source(stream).ok()?.settings.optional_text("group")?;
        Some(format!("{group}-{}-{writer}-{process}.{instance}", stream.name).into())
    }

    /// True if the output of the sink is part of transactions.
    pub(crate) fn sink_has_transactions(self, stream: &StreamPlan) -> bool {
        self == Guarantee::ExactlyOnce && kafka_sink(stream).is_some()
    }
}

fn check_at_least_once(plan: &Plan) -> Result<(), NotGuaranteed> {
    let Some(untracked) = at_least_once::untracked(plan) else { return Ok(()) };
    Err(NotGuaranteed {
        stream: plan.streams[untracked.stream].name.clone(),
        guarantee: "at least once",
        reason: format!(
            "{} does not tell which messages it has finished, and a failure would lose the others",
            describe(untracked.stage)
        ),
        right:
            "use --replies=each if the program writes one message for each that it reads, in order, or run \
                the stream at most once (--guarantee=at-most-once, or the property guarantee=at-most-once)"
                .to_owned(),
    })
}

/// A group does not send messages again whose offsets are committed.
fn check_replaced(plan: &Plan, guarantee: &'static str) -> Result<(), NotGuaranteed> {
    let Some(replaced) = at_least_once::replaced(plan) else { return Ok(()) };
    Err(NotGuaranteed {
        stream: plan.streams[replaced.stream].name.clone(),
        guarantee,
        reason: format!(
            "{} empties its file at each start (--mode=replace), and the consumer group does not send the lost \
             messages again",
            describe(replaced.stage)
        ),
        right: "use --mode=append".to_owned(),
    })
}

/// The reason and the remedy.
type Wrong = (String, String);

fn check(stream: &StreamPlan, on_error: &OnError) -> Result<(), Wrong> {
    let source = source(stream)?;
    let kept = keeping(stream, Guarantee::ExactlyOnce);
    if let StateKeeping::Memory { stage, reason, is_in_group: true } = &kept {
        let stage = stream.stages().find(|with_state| with_state.label == *stage);
        let reason = format!("{} keeps state in memory: {reason}", stage.map(describe).unwrap_or_default());
        return Err((reason, "put no such stage between source and sink".to_owned()));
    }
    let sink = sink(stream)?;
    if source.settings.optional_text("group").is_none() {
        let reason = format!("{} has no consumer group to commit its offsets", source.label);
        return Err((reason, "use `kafka --topics=... --group=NAME`".to_owned()));
    }
    let (from, to) = (source.settings.text("bootstrap"), sink.settings.optional_text("bootstrap"));
    if let Some(to) = to.filter(|to| *to != from) {
        let reason = format!("a transaction cannot span two clusters, and its ends are at {from} and {to}");
        return Err((reason, "use the same --bootstrap for both".to_owned()));
    }
    let is_sound = |stage: &&StagePlan| WITHOUT_MEMORY.contains(&stage.module.name) || has_state(stage);
    if let Some(stage) = stream.processors.iter().find(|stage| !is_sound(stage)) {
        let reason = format!("{} keeps state in memory", describe(stage));
        let right =
            format!("use only {}, aggregate and dedup between source and sink", WITHOUT_MEMORY.join(", "));
        return Err((reason, right));
    }
    let joins = |stage: &StagePlan| stage.module.name == "splitter" || has_state(stage);
    let mut behind = stream.processors.iter().skip_while(|stage| !joins(stage));
    if let Some(first) = behind.next()
        && let Some(limit) = behind.find(|stage| stage.module.name == "rate-limit")
    {
        let (first_name, limit) = (describe(first), describe(limit));
        let effect = match first.module.name {
            "splitter" => "makes several messages of one, which are written",
            _ => "has state that is written with its output",
        };
        let reason = format!(
            "{first_name} {effect} in one transaction, and {limit} may delay them for longer than a transaction may take"
        );
        return Err((reason, format!("put {limit} before {first_name}")));
    }
    match on_error {
        OnError::Fail | OnError::Skip => Ok(()),
        OnError::DeadLetter(_) | OnError::DeadLetterTopic(_) => {
            let reason = "dead letters are not part of the transaction, and may be written twice".to_owned();
            Err((reason, "use onError=fail or onError=skip".to_owned()))
        }
    }
}

fn source(stream: &StreamPlan) -> Result<&StagePlan, Wrong> {
    let over_topics = "use --transport=kafka, which puts topics between streams".to_owned();
    match &stream.input {
        Input::Stage(stage) if stage.module.name == "kafka" => Ok(stage),
        Input::Stage(stage) => {
            let reason =
                format!("its source is {}, which cannot take part in a transaction", describe(stage));
            Err((reason, "use `kafka --topics=... --group=NAME`".to_owned()))
        }
        Input::Topic(name) => {
            Err((format!("it reads topic:{name} in memory, which a failure loses"), over_topics))
        }
        Input::Tap { .. } => {
            let reason = "a tap in memory sees aborted messages, and a failure loses its messages".to_owned();
            Err((reason, over_topics))
        }
        Input::Beside { stream, .. } => {
            let reason = format!("a tap of {stream} sees aborted messages, and a failure loses its messages");
            Err((reason, "put a named destination, topic:NAME, between them".to_owned()))
        }
    }
}

fn sink(stream: &StreamPlan) -> Result<&StagePlan, Wrong> {
    match &stream.output {
        Output::Stage(stage) if stage.module.name == "kafka" || has_state(stage) => Ok(stage),
        Output::Stage(stage) => {
            let reason = format!("its sink is {}, which cannot abort a transaction", describe(stage));
            Err((reason, "use `kafka --topic=...`".to_owned()))
        }
        Output::Topic(name) => {
            let reason = format!("it writes topic:{name} in memory, which a failure loses");
            Err((reason, "use --transport=kafka, which puts topics between streams".to_owned()))
        }
    }
}

/// The sink, if it writes to a topic.
fn kafka_sink(stream: &StreamPlan) -> Option<&StagePlan> {
    sink(stream).ok().filter(|sink| sink.module.name == "kafka")
}

/// A stage's label, followed by its module if that differs.
fn describe(stage: &StagePlan) -> String {
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
        let rejection = |text: &str, on_error: OnError| {
            let plan = plan(text);
            assert_eq!(Guarantee::AtLeastOnce.check(&plan, &on_error), Ok(()));
            Guarantee::ExactlyOnce.check(&plan, &on_error).err().map(|error| error.to_string())
        };
        assert_eq!(rejection(moved, OnError::Skip), None);
        for sound in [
            "kafka --topics=a --group=g | rate-limit --rate=1 | splitter | kafka --topic=b",
            "kafka --topics=a --group=g | rate-limit --rate=1 | splitter | dedup | aggregate | kafka --topic=b",
            "kafka --topics=a --group=g | dedup | counter",
            "kafka --topics=a --group=g | histogram --of='1'",
        ] {
            assert_eq!(rejection(sound, OnError::Skip), None, "{sound}");
        }
        for (text, reason, right) in [
            ("time | kafka --topic=b", "its source is time", "--group=NAME"),
            ("kafka --topics=a | kafka --topic=b", "has no consumer group", "--group=NAME"),
            ("kafka --topics=a --group=g | x: log", "its sink is x (log)", "`kafka --topic=...`"),
            (
                "kafka --topics=a --group=g | batch --size=2 | kafka --topic=b",
                "batch keeps state",
                "filter, rate-limit",
            ),
            ("kafka --topics=a --group=g | kafka --topic=b --bootstrap=x:1", "x:1", "same --bootstrap"),
            (
                "kafka --topics=a --group=g | aggregate | w: aggregate | kafka --topic=b",
                "aggregate keeps state in memory: w is behind aggregate",
                "--transport=kafka",
            ),
            (
                "kafka --topics=a --group=g | dedup | rate-limit --rate=1 | kafka --topic=b",
                "rate-limit may delay them",
                "put rate-limit before dedup",
            ),
            (
                "kafka --topics=a --group=g | splitter | filter --expression=true | slow: rate-limit --rate=1 \
                 | kafka --topic=b",
                "slow (rate-limit) may delay them",
                "put slow (rate-limit) before splitter",
            ),
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
            let rejection = rejection(text, OnError::Fail).unwrap_or_else(|| panic!("{text} is taken"));
            assert!(rejection.contains(reason) && rejection.contains(right), "{text}: {rejection}");
        }
        let dead_letters =
            rejection(moved, OnError::DeadLetter("x".into())).expect("they are in no transaction");
        assert!(dead_letters.contains("or onError=skip"), "{dead_letters}");
    }

    #[test]
    fn programs_that_reply_to_no_message_cannot_run_at_least_once() {
        let check = |text: &str, guarantee: Guarantee| guarantee.check(&plan(text), &OnError::Fail);
        for (text, is_taken) in [
            ("kafka --topics=a --group=g | exec --command=cat | kafka --topic=b", false),
            ("kafka --topics=a --group=g | exec --command=cat --replies=each | kafka --topic=b", true),
            ("kafka --topics=a | exec --command=cat | kafka --topic=b", true),
            ("time | exec --command=cat | log", true),
            ("kafka --topics=a --group=g | topic:t\ntopic:t > exec --command=cat | log", false),
            ("a = kafka --topics=a --group=g | log\ntap:stream:a > exec --command=cat | log", true),
        ] {
            let checked = check(text, Guarantee::AtLeastOnce);
            assert_eq!(checked.is_ok(), is_taken, "{text}");
            assert_eq!(check(text, Guarantee::AtMostOnce), Ok(()));
            if let Err(error) = checked {
                let error = error.to_string();
                assert!(error.contains("at least once: exec does not tell"), "{error}");
                assert!(error.contains("use --replies=each") && error.contains("at-most-once"), "{error}");
            }
        }
    }

    #[test]
    fn a_file_is_not_emptied_behind_a_group() {
        let file = "file --path=x --mode=replace";
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            let check = |text: String| guarantee.check(&plan(&text), &OnError::Fail);
            assert_eq!(check(format!("kafka --topics=a | {file}")), Ok(()));
            for text in [
                format!("kafka --topics=a --group=g | {file}"),
                format!("kafka --topics=a --group=g | topic:t\ntopic:t > {file}"),
            ] {
                let error = check(text).expect_err("it would lose messages").to_string();
                assert!(
                    error.contains("file empties its file") && error.contains("--mode=append"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_restarted_instance_keeps_its_transactional_id() {
        let stream = &plan("kafka --topics=a --group=g | out: kafka --topic=b").streams[0];
        let id = |guarantee: Guarantee| guarantee.transactional_id(stream, "left", 2);
        assert_eq!(id(Guarantee::ExactlyOnce).as_deref(), Some("g-s-out-left.2"));
        assert_eq!(id(Guarantee::AtLeastOnce), None);
        let stream = &plan("kafka --topics=a --group=g | dedup | kafka --topic=b").streams[0];
        let id = |guarantee: Guarantee| guarantee.transactional_id(stream, "left", 0);
        assert_eq!(id(Guarantee::ExactlyOnce).as_deref(), Some("g-s-kafka-2-left.0"));
        assert_eq!(id(Guarantee::AtLeastOnce).as_deref(), Some("g-s-state-left.0"));
        assert_eq!(id(Guarantee::AtMostOnce), None);
    }
}
