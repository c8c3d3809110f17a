//! Where a text comes from: the command line or a file.

use std::path::PathBuf;

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use thalweg_client::{BootstrapError, bootstrap_servers};
use thalweg_stream::deployment::Deployment;
use thalweg_stream::language::is_name;
use thalweg_stream::plan::Plan;
use thalweg_stream::transport::{Lies, Topics, Transport};
use thalweg_stream::{Cluster, Guarantee, OnError};

/// What is between stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Between {
    /// Memory: stages call each other.
    Direct,
    /// Topics of a cluster: each stage is a consumer group.
    Kafka,
}

/// A name of a stream, or of what runs it.
pub fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("letters, digits, `_` and `-`, at most 100 of them, would be right".to_owned()),
    }
}

/// The text of streams.
#[derive(Args, Debug)]
pub struct Text {
    /// The streams: `source | processor | sink`, each on a line of its own or with a ; between them.
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    text: Option<String>,
    /// A file with the streams.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// What the first stream is called, if the text does not say.
    #[arg(long, value_name = "NAME", default_value = "stream", value_parser = name)]
    name: String,
    /// What is between stages.
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value_t = Between::Direct)]
    transport: Between,
    /// How many instances stages have, such as module.filter.count=3,module.*.count=0: a stage with several has topics on both
    /// sides, and its instances share their partitions; 0 and 1 bind a stage directly. onError=POLICY and
    /// guarantee=GUARANTEE are what --on-error and --guarantee say.
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    properties: String,
    /// What is done with a message that cannot be worked on: fail, skip, dead-letter:FILE or dead-letter:topic:NAME [default:
    /// fail].
    #[arg(long, value_name = "POLICY")]
    on_error: Option<OnError>,
    /// How often a record of a kafka source with a group may arrive, whatever fails: at-least-once, at-most-once or, from kafka to
    /// kafka, exactly-once [default: at-least-once].
    #[arg(long, value_name = "GUARANTEE")]
    guarantee: Option<Guarantee>,
    /// With topics between stages, or a topic for bad messages: the brokers to connect to first.
    #[arg(
        long,
        short = 'b',
        value_name = "HOST:PORT,...",
        env = "THALWEG_BOOTSTRAP_SERVER",
        default_value = "localhost:9092",
        value_parser = brokers
    )]
    bootstrap_server: String,
    /// With topics between stages, or a topic for bad messages: a file of client properties, such as those for TLS and SASL; as
    /// --properties of a kafka stage takes it.
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    transport_properties: Option<String>,
    /// With topics between stages: the partitions of those that are created [default: one for each instance that reads, else
    /// the broker's num.partitions].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    transport_partitions: Option<i32>,
}

impl Text {
    /// What is to be run.
    pub fn plan(&self) -> anyhow::Result<Plan> {
        let read = match self.transport {
            Between::Direct => Plan::read,
            Between::Kafka => Plan::read_over_topics,
        };
        let plan = match (&self.text, &self.file) {
            (_, Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("Cannot read {}", file.display()))?;
                read(&text, Some(&file.display().to_string()), &self.name)
            }
            (text, None) => read(text.as_deref().unwrap_or_default(), None, &self.name),
        };
        Ok(plan?)
    }

    /// The cluster of the transport and of dead letters.
    pub fn cluster(&self) -> Cluster {
        Cluster { bootstrap: self.bootstrap_server.clone(), properties: self.transport_properties.clone() }
    }

    /// What --properties say, and the options that stand above them.
    pub fn deployment(&self, plan: &Plan) -> anyhow::Result<Deployment> {
        let mut deployment = Deployment::parse(&self.properties)?;
        deployment.check(plan)?;
        deployment.on_error = self.on_error.clone().unwrap_or(deployment.on_error);
        deployment.guarantee = self.guarantee.unwrap_or(deployment.guarantee);
        Ok(deployment)
    }

    /// The plan with topics between its stages, if there are to be any; these topics, and where they are.
    pub fn laid(
        &self,
        plan: Plan,
        deployment: &Deployment,
    ) -> anyhow::Result<(Plan, Option<(Transport, Topics)>)> {
        let (plan, over) = match self.transport(deployment) {
            Some(transport) => {
                let (plan, topics) = transport.lay(plan, &deployment.counts);
                (plan, Some((transport, topics)))
            }
            None => (plan, None),
        };
        deployment.guarantee.check(&plan, &deployment.on_error)?;
        Ok((plan, over))
    }

    fn transport(&self, deployment: &Deployment) -> Option<Transport> {
        let is_wanted = self.transport == Between::Kafka || !deployment.counts.are_single();
        is_wanted.then(|| Transport {
            cluster: self.cluster(),
            partitions: self.transport_partitions,
            lies: match self.transport {
                Between::Direct => Lies::AroundInstances,
                Between::Kafka => Lies::Everywhere,
            },
        })
    }
}

/// A list of brokers, as it was given.
fn brokers(list: &str) -> Result<String, BootstrapError> {
    bootstrap_servers(list).map(|_| list.to_owned())
}
