//! Kafka as the transport between stages: a plan with a topic wherever messages go from one stage to the next.
//!
//! Each stage becomes a stream of its own, from topic to topic. What leaves stage 0 of the stream `orders`, its source, goes
//! through the topic `orders.0`, what leaves the next through `orders.1`, and so on; named destinations are topics by their own
//! names. A stage is the consumer group `orders.LABEL`: instances of the same text share its partitions by Kafka's group protocol.
//! The text of the streams does not change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig;
use rdkafka::error::RDKafkaErrorCode;

use crate::kafka::{self, Cluster};
use crate::module::{Kind, Module, find};
use crate::plan::{Input, Output, Plan, StagePlan, StreamPlan};
use crate::stage::StageError;

/// How long a cluster may take to create topics.
const CREATE_TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster between stages.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The brokers to connect to first.
    pub bootstrap: String,
    /// A file of librdkafka's properties.
    pub properties: Option<String>,
    /// The partitions of topics that are created; without, as many as the broker creates.
    pub partitions: Option<i32>,
}

impl Transport {
    /// The plan with topics between its stages, and the names of these.
    pub fn lay(&self, plan: Plan) -> (Plan, BTreeSet<String>) {
        let leaves: Vec<Vec<Arc<str>>> =
            (0..plan.streams.len()).map(|stream| leaving(&plan, stream)).collect();
        let mut topics = BTreeSet::new();
        let mut streams = Vec::new();
        for (stream, leaves) in plan.streams.into_iter().zip(&leaves) {
            topics.extend(leaves.iter().map(ToString::to_string));
            self.lay_stream(stream, leaves, &mut streams);
        }
        (Plan { streams }, topics)
    }

    fn lay_stream(&self, stream: StreamPlan, leaves: &[Arc<str>], laid: &mut Vec<StreamPlan>) {
        let StreamPlan { name, input, processors, output } = stream;
        let part = |label: &str| -> Arc<str> { format!("{name}.{label}").into() };
        let is_relay = processors.is_empty() && !matches!(input, Input::Stage(_));
        if let Input::Stage(source) = input {
            let name = part(&source.label);
            let output = Output::Stage(self.sink(&leaves[0]));
            laid.push(StreamPlan { name, input: Input::Stage(source), processors: Vec::new(), output });
        }
        for (index, processor) in processors.into_iter().enumerate() {
            let name = part(&processor.label);
            let input = Input::Stage(self.source(&leaves[index], &name));
            let output = Output::Stage(self.sink(&leaves[index + 1]));
            laid.push(StreamPlan { name, input, processors: vec![processor], output });
        }
        let last = leaves.last().expect("something leaves every source");
        match output {
            Output::Stage(sink) => {
                let name = part(&sink.label);
                let input = Input::Stage(self.source(last, &name));
                laid.push(StreamPlan { name, input, processors: Vec::new(), output: Output::Stage(sink) });
            }
            Output::Topic(topic) if is_relay => {
                let input = Input::Stage(self.source(last, &name));
                let output = Output::Stage(self.sink(&topic));
                laid.push(StreamPlan { name: name.clone(), input, processors: Vec::new(), output });
            }
            // The stage before writes to it already.
            Output::Topic(_) => {}
        }
    }

    fn source(&self, topic: &str, group: &str) -> StagePlan {
        self.stage(Kind::Source, topic, &[("topics", topic), ("group", group)])
    }

    fn sink(&self, topic: &str) -> StagePlan {
        self.stage(Kind::Sink, topic, &[("topic", topic)])
    }

    fn stage(&self, kind: Kind, topic: &str, options: &[(&str, &str)]) -> StagePlan {
        let module: &'static Module = find(kind, "kafka").expect("kafka is a source and a sink");
        let cluster = Cluster { bootstrap: self.bootstrap.clone(), properties: self.properties.clone() };
        let settings = cluster.settings(kind, options);
        StagePlan { label: format!("topic:{topic}").into(), module, settings }
    }

    /// Creates the topics that are not there yet.
    pub async fn create_topics(&self, topics: &BTreeSet<String>) -> Result<(), StageError> {
        let stage = self.sink("any");
        let config = kafka::config(&stage.settings, &[])?;
        let failed = |error: rdkafka::error::KafkaError| kafka::failed("Creating topics", error);
        let admin: AdminClient<DefaultClientContext> = AdminClient::from_config(&config).map_err(failed)?;
        let partitions = self.partitions.unwrap_or(-1);
        let new: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|topic| NewTopic::new(topic, partitions, TopicReplication::Fixed(-1)))
            .collect();
        let options =
            AdminOptions::new().request_timeout(Some(CREATE_TIMEOUT)).operation_timeout(Some(CREATE_TIMEOUT));
        for created in admin.create_topics(&new, &options).await.map_err(failed)? {
            match created {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => return Err(kafka::failed(format!("Creating the topic {topic}"), code)),
            }
        }
        Ok(())
    }
}

/// The topics through which messages leave the source and each processor of a stream.
fn leaving(plan: &Plan, stream: usize) -> Vec<Arc<str>> {
    let count = plan.streams[stream].processors.len();
    (0..=count).map(|stage| leaves(plan, stream, stage)).collect()
}

fn leaves(plan: &Plan, stream: usize, stage: usize) -> Arc<str> {
    let of = &plan.streams[stream];
    match (&of.input, &of.output) {
        (Input::Topic(topic), _) if stage == 0 => topic.clone(),
        (Input::Tap { stream: tapped, stage: at }, _) if stage == 0 && *tapped != stream => {
            leaves(plan, *tapped, *at)
        }
        (_, Output::Topic(topic)) if stage == of.processors.len() => topic.clone(),
        _ => format!("{}.{stage}", of.name).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid(text: &str) -> (Vec<String>, Vec<String>) {
        let plan = Plan::read_over_topics(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        let transport = Transport { bootstrap: "b:1".to_owned(), properties: None, partitions: None };
        let (plan, topics) = transport.lay(plan);
        let told = plan.streams.iter().map(|stream| {
            let labels: Vec<&str> = stream.stages().map(|stage| &*stage.label).collect();
            format!("{} = {}", stream.name, labels.join(" | "))
        });
        (told.collect(), topics.into_iter().collect())
    }

    #[test]
    fn there_is_a_topic_between_stages_and_each_stage_is_a_group() {
        let (streams, topics) = laid("time | a: filter --expression=true | log");
        assert_eq!(
            streams,
            ["s.time = time | topic:s.0", "s.a = topic:s.0 | a | topic:s.1", "s.log = topic:s.1 | log"]
        );
        assert_eq!(topics, ["s.0", "s.1"]);
    }

    #[test]
    fn named_destinations_and_taps_are_topics_without_others_beside_them() {
        let (streams, topics) = laid(
            "a = time | topic:t\nb = topic:t > f: filter --expression=true | topic:u\ntap:stream:a > null\n\
             tap:stream:b.f > log\nc = topic:u > topic:v",
        );
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
        assert_eq!(topics, ["t", "u"]);
    }
}
