//! The text of the streams: from the command line or a file.

use std::path::PathBuf;

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use thalweg_client::{BootstrapError, bootstrap_servers};
use thalweg_stream::deployment::Deployment;
use thalweg_stream::language::is_name;
use thalweg_stream::plan::Plan;
use thalweg_stream::transport::{TopicScope, Topics, Transport};
use thalweg_stream::{Cluster, Guarantee, OnError};

use crate::profile;

/// The transport between stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum StageTransport {
    /// Memory: stages call each other.
    Direct,
    /// Topics of a cluster: each stage is a consumer group.
    Kafka,
}

/// Checks a name of a stream or of a process.
pub fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("use at most 100 letters, digits, `_` and `-`".to_owned()),
    }
}

/// The text of streams.
#[derive(Args, Debug)]
pub struct Text {
    /// The streams: `source | processor | sink`, one per line or separated by `;`.
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    text: Option<String>,
    /// A file with the streams.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// The name of the first stream, if the text gives none.
    #[arg(long, value_name = "NAME", default_value = "stream", value_parser = name)]
    name: String,
    /// The transport between stages.
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value_t = StageTransport::Direct)]
    transport: StageTransport,
    /// The number of instances per stage, such as module.filter.count=3,module.*.count=0. A stage with
    /// several has topics on both sides, and its instances share the partitions; 0 and 1 bind a stage
    /// directly. onError=POLICY and guarantee=GUARANTEE are the same as --on-error and --guarantee.
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    properties: String,
    /// Handling of bad messages, which a stage cannot process: fail, skip, dead-letter:FILE or
    /// dead-letter:topic:NAME [default: fail].
    #[arg(long, value_name = "POLICY")]
    on_error: Option<OnError>,
    /// The delivery guarantee of kafka sources with a group: at-least-once, at-most-once or, from kafka to
    /// kafka, exactly-once [default: at-least-once].
    #[arg(long, value_name = "GUARANTEE")]
    guarantee: Option<Guarantee>,
    /// The bootstrap servers of kafka stages without --bootstrap, of topics between stages and of a topic of
    /// bad messages [default: those of the profile, or localhost:9092].
    #[arg(
        long,
        short = 'b',
        value_name = "HOST:PORT,...",
        env = "THALWEG_BOOTSTRAP_SERVER",
        value_parser = brokers
    )]
    bootstrap_server: Option<String>,
    /// A file of client properties, such as those for TLS and SASL, for kafka stages without --bootstrap and
    /// --properties, for topics between stages and for a topic of bad messages; the format is that of a kafka
    /// stage's --properties.
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    transport_properties: Option<String>,
    /// The partitions of created topics between stages [default: one per reading instance, or else the
    /// broker's num.partitions].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    transport_partitions: Option<i32>,
}

impl Text {
    /// The plan to run.
    pub fn plan(&self) -> anyhow::Result<Plan> {
        let (cluster, over_topics) = (self.cluster(), self.transport == StageTransport::Kafka);
        let read = |text: &str, origin: Option<&str>, name: &str| {
            Plan::read_for(&cluster, text, origin, name, over_topics)
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

    /// The cluster for stages without an address, for the transport and for dead letters.
    pub fn cluster(&self) -> Cluster {
        let profile = profile::active();
        let of_profile = || profile.command_config.as_ref().map(|path| path.display().to_string());
        let bootstrap = self.bootstrap_server.clone().or_else(|| profile.bootstrap_server.clone());
        if !profile.settings.is_empty() && self.transport_properties.is_none() {
            let right = "use its command-config, or --transport-properties";
            tracing::warn!("Settings of profile {} have no effect on streams: {right}", profile.name);
        }
        Cluster {
            bootstrap: bootstrap.unwrap_or_else(|| "localhost:9092".to_owned()),
            properties: self.transport_properties.clone().or_else(of_profile),
        }
    }

    /// The deployment by `--properties`, overridden by other options.
    pub fn deployment(&self, plan: &Plan) -> anyhow::Result<Deployment> {
        let mut deployment = Deployment::parse(&self.properties)?;
        deployment.check(plan)?;
        deployment.on_error = self.on_error.clone().unwrap_or(deployment.on_error);
        deployment.guarantee = self.guarantee.unwrap_or(deployment.guarantee);
        Ok(deployment)
    }

    /// The plan with inserted topics, if requested, and the transport with these topics.
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
        let is_wanted = self.transport == StageTransport::Kafka || !deployment.counts.are_single();
        is_wanted.then(|| Transport {
            cluster: self.cluster(),
            partitions: self.transport_partitions,
            lies: match self.transport {
                StageTransport::Direct => TopicScope::AroundInstances,
                StageTransport::Kafka => TopicScope::Everywhere,
            },
        })
    }
}

/// Parses a list of brokers.
fn brokers(list: &str) -> Result<String, BootstrapError> {
    bootstrap_servers(list).map(|_| list.to_owned())
}
