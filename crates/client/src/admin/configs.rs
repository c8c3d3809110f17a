//! Configurations of topics, brokers, loggers, groups and subscriptions to clients' metrics.

use std::collections::BTreeMap;

use thalweg_dial::{ClientError, RequestOptions};
use thalweg_wire::Request;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_configs_response::DescribeConfigsResourceResult;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
};

use super::nodes::connect_within;
use super::{Admin, Outcomes, refused};
use crate::parallel::in_parallel;

/// A resource with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    Topic(String),
    Broker(i32),
    /// The defaults of all brokers.
    BrokerDefaults,
    /// The log levels of a broker (KIP-412).
    BrokerLogger(i32),
    /// A subscription to clients' metrics (KIP-714).
    ClientMetrics(String),
    Group(String),
}

impl ConfigResource {
    /// Type and name of the resource in the protocol.
    fn named(&self) -> (i8, String) {
        match self {
            ConfigResource::Topic(name) => (2, name.clone()),
            ConfigResource::Broker(id) => (4, id.to_string()),
            ConfigResource::BrokerDefaults => (4, String::new()),
            ConfigResource::BrokerLogger(id) => (8, id.to_string()),
            ConfigResource::ClientMetrics(name) => (16, name.clone()),
            ConfigResource::Group(name) => (32, name.clone()),
        }
    }

    /// The resource with this type and name in the protocol.
    fn from_named(kind: i8, name: String) -> Option<ConfigResource> {
        match kind {
            2 => Some(ConfigResource::Topic(name)),
            4 if name.is_empty() => Some(ConfigResource::BrokerDefaults),
            4 => name.parse().ok().map(ConfigResource::Broker),
            8 => name.parse().ok().map(ConfigResource::BrokerLogger),
            16 => Some(ConfigResource::ClientMetrics(name)),
            32 => Some(ConfigResource::Group(name)),
            _ => None,
        }
    }

    /// The broker that serves the resource; `None` if any broker can.
    fn broker(&self) -> Option<i32> {
        match self {
            ConfigResource::Broker(id) | ConfigResource::BrokerLogger(id) => Some(*id),
            ConfigResource::Topic(_)
            | ConfigResource::BrokerDefaults
            | ConfigResource::ClientMetrics(_)
            | ConfigResource::Group(_) => None,
        }
    }

    /// The source of a value set for the resource itself.
    pub fn own_source(&self) -> ConfigSource {
        match self {
            ConfigResource::Topic(_) => ConfigSource::Topic,
            ConfigResource::Broker(_) => ConfigSource::DynamicBroker,
            ConfigResource::BrokerDefaults => ConfigSource::DynamicBrokerDefaults,
            ConfigResource::BrokerLogger(_) => ConfigSource::BrokerLogger,
            ConfigResource::ClientMetrics(_) => ConfigSource::ClientMetrics,
            ConfigResource::Group(_) => ConfigSource::Group,
        }
    }
}

impl std::fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigResource::Topic(name) => write!(f, "topic {name}"),
            ConfigResource::Broker(id) => write!(f, "broker {id}"),
            ConfigResource::BrokerDefaults => f.write_str("all brokers"),
            ConfigResource::BrokerLogger(id) => write!(f, "the loggers of broker {id}"),
            ConfigResource::ClientMetrics(name) => write!(f, "client metrics {name}"),
            ConfigResource::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// The kinds of resources that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigResourceKind {
    Topics,
    Brokers,
    /// The loggers of brokers.
    BrokerLoggers,
    /// Subscriptions to clients' metrics.
    ClientMetrics,
    Groups,
}

impl ConfigResourceKind {
    fn code(self) -> i8 {
        match self {
            ConfigResourceKind::Topics => 2,
            ConfigResourceKind::Brokers => 4,
            ConfigResourceKind::BrokerLoggers => 8,
            ConfigResourceKind::ClientMetrics => 16,
            ConfigResourceKind::Groups => 32,
        }
    }
}

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set for the topic.
    Topic,
    /// Set for the broker, at run time.
    DynamicBroker,
    /// Set for all brokers, at run time.
    DynamicBrokerDefaults,
    /// Set in the broker's file.
    StaticBroker,
    /// Set nowhere: Kafka's default applies.
    Default,
    /// Set for a logger of the broker.
    BrokerLogger,
    /// Set for the subscription to clients' metrics.
    ClientMetrics,
    /// Set for the group.
    Group,
    /// A source unknown to this release.
    Unknown,
}

impl ConfigSource {
    fn from_code(code: i8) -> ConfigSource {
        match code {
            1 => ConfigSource::Topic,
            2 => ConfigSource::DynamicBroker,
            3 => ConfigSource::DynamicBrokerDefaults,
            4 => ConfigSource::StaticBroker,
            5 => ConfigSource::Default,
            6 => ConfigSource::BrokerLogger,
            7 => ConfigSource::ClientMetrics,
            8 => ConfigSource::Group,
            _ => ConfigSource::Unknown,
        }
    }

    /// Kafka's name of the source.
    pub fn name(self) -> &'static str {
        match self {
            ConfigSource::Topic => "DYNAMIC_TOPIC_CONFIG",
            ConfigSource::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            ConfigSource::DynamicBrokerDefaults => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            ConfigSource::StaticBroker => "STATIC_BROKER_CONFIG",
            ConfigSource::Default => "DEFAULT_CONFIG",
            ConfigSource::BrokerLogger => "DYNAMIC_BROKER_LOGGER_CONFIG",
            ConfigSource::ClientMetrics => "DYNAMIC_CLIENT_METRICS_CONFIG",
            ConfigSource::Group => "DYNAMIC_GROUP_CONFIG",
            ConfigSource::Unknown => "UNKNOWN",
        }
    }
}

/// A value of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The value; `None` if sensitive.
    pub value: Option<String>,
    /// The source of the value.
    pub source: ConfigSource,
    /// True if the value is not set for this resource.
    pub is_default: bool,
    /// True if a change needs a restart.
    pub read_only: bool,
    /// True if the value is hidden from clients.
    pub is_sensitive: bool,
    /// The type of the value in capitals, such as `LONG`, if the broker reports it.
    pub value_type: Option<&'static str>,
    /// The documentation of the property, if requested and known.
    pub documentation: Option<String>,
    /// The values that apply if the first is removed: name, value and source. Only if requested.
    pub synonyms: Vec<(String, Option<String>, ConfigSource)>,
}

/// The scope of a description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribeConfigs {
    /// These properties; `None` for all.
    pub names: Option<Vec<String>>,
    /// Also describe the values behind each value.
    pub synonyms: bool,
    /// Also return documentation, if the broker has any; from version 3 on.
    pub documentation: bool,
}

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Sets the value.
    Set(String),
    /// Resets the value to the default.
    Delete,
    /// Appends to a list.
    Append(String),
    /// Removes from a list.
    Subtract(String),
}

/// A change of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The property's name.
    pub name: String,
    /// The operation on its value.
    pub operation: ConfigOperation,
}

/// The first version of DescribeConfigs with types and documentation.
const DOCUMENTATION_FROM: i16 = 3;
/// Maximum number of resources in a request: each has tens to hundreds of properties.
const RESOURCES_PER_REQUEST: usize = 500;

/// The type of a value, by Kafka's number.
fn value_type(code: i8) -> Option<&'static str> {
    let names = ["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"];
    names.get(usize::try_from(code).ok()?.checked_sub(1)?).copied()
}

impl Admin {
    /// Describes configurations: all properties of each resource.
    pub async fn describe_configs(
        &self,
        resources: &[ConfigResource],
    ) -> Result<Outcomes<ConfigResource, BTreeMap<String, ConfigEntry>>, ClientError> {
        self.describe_configs_with(resources, &DescribeConfigs::default()).await
    }

    /// Describes configurations like [`Admin::describe_configs`], with a choice of properties and details.
    /// Sends requests to many brokers at the same time. An unreachable broker fails its own resources only.
    pub async fn describe_configs_with(
        &self,
        resources: &[ConfigResource],
        wanted: &DescribeConfigs,
    ) -> Result<Outcomes<ConfigResource, BTreeMap<String, ConfigEntry>>, ClientError> {
        let describing = by_broker(resources.iter().cloned()).into_iter().map(|(broker, resources)| {
            let (admin, wanted) = (self.clone(), wanted.clone());
            async move { admin.describe_configs_of(broker, &resources, &wanted).await }
        });
        let mut outcomes = Outcomes::new();
        for of_broker in in_parallel(describing.collect()).await {
            outcomes.extend(of_broker?);
        }
        Ok(outcomes)
    }

    /// Describes the configurations that a broker serves, or any broker.
    async fn describe_configs_of(
        &self,
        broker: Option<i32>,
        resources: &[ConfigResource],
        wanted: &DescribeConfigs,
    ) -> Result<Outcomes<ConfigResource, BTreeMap<String, ConfigEntry>>, ClientError> {
        let mut outcomes = Outcomes::new();
        for resources in resources.chunks(RESOURCES_PER_REQUEST) {
            let response = match self.describe_configs_at(broker, resources, wanted).await {
                Ok(response) => response,
                Err(error) if broker.is_some() => {
                    outcomes.extend(resources.iter().map(|one| (one.clone(), Err(error.clone()))));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut named = by_name(resources);
            for result in response.results {
                let name = (result.resource_type, result.resource_name);
                let Some(resource) = named.remove(&name) else { continue };
                let what = || format!("Describing the configuration of {resource}");
                let outcome = refused(result.error_code, result.error_message.as_deref(), what);
                let own = resource.own_source();
                let entries =
                    result.configs.into_iter().map(|config| (config.name.clone(), entry(config, own)));
                let entries = entries.collect();
                outcomes.insert(resource, outcome.map(|()| entries));
            }
        }
        Ok(outcomes)
    }

    async fn describe_configs_at(
        &self,
        broker: Option<i32>,
        resources: &[ConfigResource],
        wanted: &DescribeConfigs,
    ) -> Result<DescribeConfigsResponse, ClientError> {
        let resources = resources.iter().map(|resource| {
            let (resource_type, resource_name) = resource.named();
            let configuration_keys = wanted.names.clone();
            DescribeConfigsResource { resource_type, resource_name, configuration_keys }
        });
        let mut request = DescribeConfigsRequest {
            resources: resources.collect(),
            include_synonyms: wanted.synonyms,
            include_documentation: wanted.documentation,
        };
        let connecting = async {
            match broker {
                Some(id) => self.cluster.broker(id).await,
                None => self.cluster.any().await,
            }
        };
        let name = || broker.map_or_else(|| "a broker".to_owned(), |id| format!("broker {id}"));
        let (connection, timeout) = connect_within(self.answer_limit, name, connecting).await?;
        request.include_documentation &=
            connection.version_of::<DescribeConfigsRequest>()? >= DOCUMENTATION_FROM;
        connection.send_with(&request, RequestOptions { version: None, timeout }).await
    }

    /// The resources of these kinds that have a configuration. Before version 1 of the API, only
    /// subscriptions to clients' metrics are listed.
    pub async fn list_config_resources(
        &self,
        kinds: &[ConfigResourceKind],
    ) -> Result<Vec<ConfigResource>, ClientError> {
        let connection = self.cluster.any().await?;
        let only_metrics = kinds == [ConfigResourceKind::ClientMetrics];
        let version = connection.version_of::<ListConfigResourcesRequest>()?;
        let resource_types = match only_metrics && version == 0 {
            true => Vec::new(),
            false => kinds.iter().map(|kind| kind.code()).collect(),
        };
        let response = connection.send(&ListConfigResourcesRequest { resource_types }).await?;
        refused(response.error_code, None, || "Listing the resources with a configuration".to_owned())?;
        let found = response.config_resources.into_iter();
        let mut found: Vec<ConfigResource> = found
            .filter_map(|one| ConfigResource::from_named(one.resource_type, one.resource_name))
            .collect();
        found.sort();
        Ok(found)
    }

    /// Changes configurations; with `validate_only`, only checks the change. Other properties do not change.
    pub async fn alter_configs(
        &self,
        changes: &BTreeMap<ConfigResource, Vec<ConfigChange>>,
        validate_only: bool,
    ) -> Result<Outcomes<ConfigResource>, ClientError> {
        let mut outcomes = Outcomes::new();
        for (broker, resources) in by_broker(changes.keys().cloned()) {
            let wanted = resources.iter().map(|resource| {
                let (resource_type, resource_name) = resource.named();
                let configs = changes[resource].iter().map(alterable).collect();
                AlterConfigsResource { resource_type, resource_name, configs }
            });
            let request = IncrementalAlterConfigsRequest { resources: wanted.collect(), validate_only };
            let response = self.send_to(broker, &request).await?;
            let mut named = by_name(&resources);
            for result in response.responses {
                let name = (result.resource_type, result.resource_name);
                let Some(resource) = named.remove(&name) else { continue };
                let what = || format!("Changing the configuration of {resource}");
                let outcome = refused(result.error_code, result.error_message.as_deref(), what);
                outcomes.insert(resource, outcome);
            }
        }
        Ok(outcomes)
    }

    async fn send_to<R: Request>(
        &self,
        broker: Option<i32>,
        request: &R,
    ) -> Result<R::Response, ClientError> {
        match broker {
            Some(id) => self.cluster.broker(id).await?.send(request).await,
            None => self.change(request, |_| Ok(())).await,
        }
    }
}

fn by_broker(resources: impl Iterator<Item = ConfigResource>) -> BTreeMap<Option<i32>, Vec<ConfigResource>> {
    let mut by_broker: BTreeMap<Option<i32>, Vec<ConfigResource>> = BTreeMap::new();
    for resource in resources {
        by_broker.entry(resource.broker()).or_default().push(resource);
    }
    by_broker
}

/// The resources by their type and name in answers.
fn by_name(resources: &[ConfigResource]) -> BTreeMap<(i8, String), ConfigResource> {
    resources.iter().map(|resource| (resource.named(), resource.clone())).collect()
}

fn entry(config: DescribeConfigsResourceResult, own: ConfigSource) -> ConfigEntry {
    let source = ConfigSource::from_code(config.config_source);
    let synonyms = config.synonyms.into_iter();
    ConfigEntry {
        value: config.value,
        source,
        is_default: source != own,
        read_only: config.read_only,
        is_sensitive: config.is_sensitive,
        value_type: value_type(config.config_type),
        documentation: config.documentation,
        synonyms: synonyms
            .map(|synonym| (synonym.name, synonym.value, ConfigSource::from_code(synonym.source)))
            .collect(),
    }
}

fn alterable(change: &ConfigChange) -> AlterableConfig {
    let (config_operation, value) = match &change.operation {
        ConfigOperation::Set(value) => (0, Some(value.clone())),
        ConfigOperation::Delete => (1, None),
        ConfigOperation::Append(value) => (2, Some(value.clone())),
        ConfigOperation::Subtract(value) => (3, Some(value.clone())),
    };
    AlterableConfig { name: change.name.clone(), config_operation, value }
}
