//! Kafka as the transport between stages: inserts a topic between two stages that are not bound directly.
//!
//! A directly bound part of a stream becomes a separate stream, from topic to topic. The output of stage 0 of
//! the stream `orders`, its source, goes through the topic `orders.0`, that of the next stage through
//! `orders.1`, and so on; named destinations that use the cluster are topics with the same names. A part is
//! named `orders.LABEL` after its first stage, and this name is also its consumer group: its instances, in
//! this or other processes, share the partitions by the group protocol. The text of the streams does not
//! change.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use thalweg_client::NewTopic;

use crate::deployment::{Counts, counts_along};
use crate::kafka::{self, Cluster, CreationFailed};
use crate::module::{Kind, find};
use crate::plan::{Input, Origin, Output, Plan, StagePlan, StreamPlan};
use crate::stage::StageError;

/// The session timeout of an instance.
const SESSION_TIMEOUT: &str = "10s";

/// The transport over a cluster.
#[derive(Clone, Debug)]
pub struct Transport {
    pub cluster: Cluster,
    /// Number of partitions of created topics; by default the broker's default, or one per reading instance.
    pub partitions: Option<i32>,
    /// The connections that use topics.
    pub lies: TopicScope,
}

/// The connections that use topics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicScope {
    /// All connections, including named destinations and taps.
    Everywhere,
    /// Connections of stages with several instances. Streams are connected in memory.
    AroundInstances,
    /// Connections of stages with several instances, and named destinations.
    AroundInstancesAndAtNames,
}

/// The topics of a plan, each with the number of reading instances.
pub type Topics = BTreeMap<String, usize>;

impl TopicScope {
    fn at_names(self) -> bool {
        self != TopicScope::AroundInstances
    }
}

impl Transport {
    /// Inserts topics into a plan, and returns them.
    pub fn lay(&self, plan: Plan, counts: &Counts) -> (Plan, Topics) {
        let laying = TopicInsertion { transport: self, counts, plan: &plan };
        let (mut topics, mut streams) = (Topics::new(), Vec::new());
        // The part that contains each stage, by stream and stage, for taps in memory.
        let mut parts = BTreeMap::new();
        for (index, stream) in plan.streams.iter().enumerate() {
            for range in laying.ranges(index) {
                let Some(part) = laying.part(index, range.clone(), &mut topics) else { continue };
                // A topic that replaces the preceding stage has index 0.
                let place = usize::from(*range.start() > 0);
                parts.extend(
                    range.zip(place..).map(|(stage, place)| ((index, stage), (streams.len(), place))),
                );
                streams.push(part);
            }
            if let (Output::Topic(name), true) = (&stream.output, self.lies.at_names()) {
                topics.entry(name.to_string()).or_default();
            }
        }
        for stream in &mut streams {
            if let Input::Tap { stream, stage } = &mut stream.input {
                (*stream, *stage) = parts[&(*stream, *stage)];
            }
        }
        (Plan { streams }, topics)
    }

    fn source(&self, topic: &str, group: &str) -> StagePlan {
        let options = [("topics", topic), ("group", group), ("sessionTimeout", SESSION_TIMEOUT)];
        self.stage(Kind::Source, topic, &options)
    }

    fn sink(&self, topic: &str) -> StagePlan {
        self.stage(Kind::Sink, topic, &[("topic", topic)])
    }

    fn stage(&self, kind: Kind, topic: &str, options: &[(&str, &str)]) -> StagePlan {
        let module = find(kind, "kafka").expect("kafka is a source and a sink");
        let settings = self.cluster.settings(module, options);
        StagePlan { label: format!("topic:{topic}").into(), module, settings }
    }

    /// Creates missing topics.
    pub async fn create_topics(&self, topics: &Topics) -> Result<(), StageError> {
        if topics.is_empty() {
            return Ok(());
        }
        let cluster = self.cluster.client()?;
        // Existing topics are not created: the stream may lack the right to create topics.
        let names: Vec<String> = topics.keys().cloned().collect();
        let metadata =
            cluster.refresh(&names, false).await.map_err(|error| kafka::failed("Finding topics", error))?;
        let is_there = |topic: &str| metadata.topics.get(topic).is_some_and(|known| known.error.is_none());
        let missing = topics.iter().filter(|(topic, _)| !is_there(topic));
        let new = missing.map(|(topic, instances)| {
            let instances = i32::try_from(*instances).ok().filter(|count| *count > 1);
            NewTopic { partitions: self.partitions.max(instances), ..NewTopic::new(topic) }
        });
        let new: Vec<NewTopic> = new.collect();
        let refused = |CreationFailed { topic, error }| {
            let Some(topic) = topic else { return kafka::failed("Creating topics", error) };
            let right = format!("--topic {topic} --allow create,read,write");
            let reason = kafka::with_grant(error, &cluster, &right);
            kafka::failed(format!("Creating the topic {topic}"), reason)
        };
        kafka::create_topics(&cluster, &new).await.map_err(refused)?;
        for topic in topics.keys() {
            let shown = kafka::wait_for_topic(&cluster, topic).await;
            shown.map_err(|error| kafka::failed(format!("Waiting for the created topic {topic}"), error))?;
        }
        Ok(())
    }
}

/// A plan while topics are inserted.
struct TopicInsertion<'a> {
    transport: &'a Transport,
    counts: &'a Counts,
    plan: &'a Plan,
}

impl TopicInsertion<'_> {
    /// The directly bound parts of a stream, each a range of stages.
    fn ranges(&self, stream: usize) -> Vec<RangeInclusive<usize>> {
        let counts = counts_along(&self.plan.streams[stream], self.counts);
        let mut ranges = Vec::new();
        let mut first = 0;
        for stage in 1..counts.len() {
            let is_cut =
                self.transport.lies == TopicScope::Everywhere || counts[stage - 1] > 1 || counts[stage] > 1;
            if is_cut {
                ranges.push(first..=stage - 1);
                first = stage;
            }
        }
        ranges.push(first..=counts.len() - 1);
        ranges
    }

    /// A part as a stream. `None` if it is only a named destination, which is already a topic.
    fn part(&self, index: usize, range: RangeInclusive<usize>, topics: &mut Topics) -> Option<StreamPlan> {
        let stream = &self.plan.streams[index];
        let (first, last, end) = (*range.start(), *range.end(), stream.processors.len() + 1);
        let begins_with_topic = matches!(
            (&stream.input, self.transport.lies),
            (Input::Topic(_), TopicScope::Everywhere | TopicScope::AroundInstancesAndAtNames)
                | (Input::Tap { .. }, TopicScope::Everywhere)
        );
        if last == 0 && begins_with_topic {
            return None;
        }
        if first == end
            && let Output::Topic(name) = &stream.output
            && self.transport.lies.at_names()
            && self.leaves(index, end - 1) == *name
        {
            return None;
        }
        let instances = counts_along(stream, self.counts)[first];
        let stages = &stream.processors[first.max(1) - 1..last.min(end - 1)];
        let label = match (&stream.input, stages, &stream.output) {
            (Input::Stage(stage), _, _) if first == 0 => Some(&stage.label),
            (_, [stage, ..], _) => Some(&stage.label),
            (_, [], Output::Stage(stage)) if last == end => Some(&stage.label),
            _ => None,
        };
        let is_whole = first == 0 && last == end && self.transport.lies != TopicScope::Everywhere;
        let name: Arc<str> = match label {
            Some(label) if !is_whole => format!("{}.{label}", stream.name).into(),
            _ => stream.name.clone(),
        };
        let mut read = |topic: &str| {
            let readers = topics.entry(topic.to_owned()).or_default();
            *readers = (*readers).max(instances);
            Input::Stage(self.transport.source(topic, &name))
        };
        let input = match &stream.input {
            _ if first > 0 => read(&self.leaves(index, first - 1)),
            _ if begins_with_topic => read(&self.leaves(index, 0)),
            input => input.clone(),
        };
        let output = match &stream.output {
            _ if last < end => Output::Stage(self.transport.sink(&self.leaves(index, last))),
            Output::Topic(name) if self.transport.lies.at_names() => Output::Stage(self.transport.sink(name)),
            output => output.clone(),
        };
        // A named destination that is a topic counts the output of the stage with its name.
        let first = if first == 1 && begins_with_topic { 0 } else { first };
        let origin = Origin { stream: stream.name.clone(), first };
        Some(StreamPlan { name, origin, instances, input, processors: stages.to_vec(), output })
    }

    /// The topic for the output of a stage.
    fn leaves(&self, stream: usize, stage: usize) -> Arc<str> {
        let of = &self.plan.streams[stream];
        let lies = self.transport.lies;
        match (&of.input, &of.output) {
            (Input::Topic(topic), _) if stage == 0 && lies.at_names() => topic.clone(),
            (Input::Tap { stream: tapped, stage: at }, _) if stage == 0 && lies == TopicScope::Everywhere => {
                self.leaves(*tapped, *at)
            }
            (_, Output::Topic(topic)) if stage == of.processors.len() && lies.at_names() => topic.clone(),
            _ => format!("{}.{stage}", of.name).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::Deployment;

    fn laid(text: &str, lies: TopicScope, properties: &str) -> (Vec<String>, Vec<String>) {
        let read = if lies == TopicScope::Everywhere { Plan::read_over_topics } else { Plan::read };
        let plan = read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        let cluster = Cluster { bootstrap: "b:1".to_owned(), properties: None };
        let transport = Transport { cluster, partitions: None, lies };
        let counts = Deployment::parse(properties).unwrap_or_else(|error| panic!("{error}")).counts;
        let (plan, topics) = transport.lay(plan, &counts);
        let streams = plan.streams.iter().map(|stream| {
            let mut parts = match &stream.input {
                Input::Stage(_) => vec![],
                Input::Topic(name) => vec![format!("memory:{name}")],
                Input::Tap { stream, stage } => vec![format!("tap:{}/{stage}", plan.streams[*stream].name)],
                Input::Beside { stream, stage } => vec![format!("beside:{stream}/{stage}")],
            };
            parts.extend(stream.stages().map(|stage| stage.label.to_string()));
            if let Output::Topic(name) = &stream.output {
                parts.push(format!("memory:{name}"));
            }
            let times = if stream.instances > 1 { format!(" x{}", stream.instances) } else { String::new() };
            format!("{} = {}{times}", stream.name, parts.join(" | "))
        });
        let topics = topics.iter().map(|(topic, readers)| match readers {
            0 | 1 => topic.clone(),
            readers => format!("{topic}:{readers}"),
        });
        (streams.collect(), topics.collect())
    }

    #[test]
    fn stages_are_groups_with_a_topic_between_them() {
        let (streams, topics) = laid("time | a: filter --expression=true | log", TopicScope::Everywhere, "");
        assert_eq!(
            streams,
            ["s.time = time | topic:s.0", "s.a = topic:s.0 | a | topic:s.1", "s.log = topic:s.1 | log"]
        );
        assert_eq!(topics, ["s.0", "s.1"]);
    }

    #[test]
    fn named_destinations_and_taps_need_no_other_topics() {
        let text = "a = time | topic:t\nb = topic:t > f: filter --expression=true | topic:u\ntap:stream:a > null\n\
                    tap:stream:b.f > log\nc = topic:u > topic:v";
        let (streams, topics) = laid(text, TopicScope::Everywhere, "");
        assert_eq!(
            streams,
            [
                "a.time = time | topic:t",
                "b.f = topic:t | f | topic:u",
                "s-3.null = topic:t | null",
                "s-4.log = topic:u | log",
                "c = topic:u | topic:v",
            ]
        );
        assert_eq!(topics, ["t", "u", "v"]);
        let (streams, topics) = laid(
            "a = time | topic:t; topic:t > x: filter --expression=true | log",
            TopicScope::AroundInstancesAndAtNames,
            "",
        );
        assert_eq!(streams, ["a = time | topic:t", "s-2 = topic:t | x | log"]);
        assert_eq!(topics, ["t"]);
    }

    #[test]
    fn only_stages_with_several_instances_have_topics_around_them() {
        let text = "time | a: filter --expression=true | b: filter --expression=true | c: filter --expression=true | log";
        let (streams, topics) = laid(text, TopicScope::AroundInstances, "module.b.count=3,module.*.count=0");
        assert_eq!(
            streams,
            [
                "s.time = time | a | topic:s.1",
                "s.b = topic:s.1 | b | topic:s.2 x3",
                "s.c = topic:s.2 | c | log"
            ]
        );
        assert_eq!(topics, ["s.1:3", "s.2"]);
        let (streams, topics) = laid(text, TopicScope::AroundInstances, "module.*.count=1");
        assert_eq!(streams, ["s = time | a | b | c | log"]);
        assert_eq!(topics, [""; 0]);
        let (streams, topics) = laid("time | log", TopicScope::Everywhere, "module.log.count=2");
        assert_eq!(streams, ["s.time = time | topic:s.0", "s.log = topic:s.0 | log x2"]);
        assert_eq!(topics, ["s.0:2"]);
    }

    #[test]
    fn in_memory_connections_between_streams_are_kept() {
        let text = "a = time | f: filter --expression=true | topic:t; b = topic:t > g: filter --expression=true | log\n\
                    tap:stream:a.f > null; tap:stream:b.g > counter";
        let (streams, topics) = laid(text, TopicScope::AroundInstances, "module.f.count=2,module.g.count=2");
        assert_eq!(
            streams,
            [
                "a.time = time | topic:a.0",
                "a.f = topic:a.0 | f | topic:a.1 x2",
                "a = topic:a.1 | memory:t",
                "b = memory:t | topic:b.0",
                "b.g = topic:b.0 | g | topic:b.1 x2",
                "b.log = topic:b.1 | log",
                "s-3 = tap:a.f/1 | null",
                "s-4 = tap:b.g/1 | counter",
            ]
        );
        assert_eq!(topics, ["a.0:2", "a.1", "b.0:2", "b.1"]);
    }
}
