//! Configurations of topics, brokers and groups.

use std::collections::BTreeMap;

use thalweg_wire::Request;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

use super::{Admin, Outcomes, refused};
use crate::error::ClientError;

/// A resource with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    /// A topic.
    Topic(String),
    /// A broker.
    Broker(i32),
    /// The defaults of all brokers.
    BrokerDefaults,
    /// A group.
    Group(String),
}

impl ConfigResource {
    /// As the protocol names it.
    fn named(&self) -> (i8, String) {
        match self {
            ConfigResource::Topic(name) => (2, name.clone()),
            ConfigResource::Broker(id) => (4, id.to_string()),
            ConfigResource::BrokerDefaults => (4, String::new()),
            ConfigResource::Group(name) => (32, name.clone()),
        }
    }

    /// The broker that serves it, if not any can.
    fn broker(&self) -> Option<i32> {
        match self {
            ConfigResource::Broker(id) => Some(*id),
            ConfigResource::Topic(_) | ConfigResource::BrokerDefaults | ConfigResource::Group(_) => None,
        }
    }
}

/// A value of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The value; none when it is sensitive.
    pub value: Option<String>,
    /// Whether it is a default, not set for this resource.
    pub is_default: bool,
    /// Whether it can only be changed by a restart.
    pub read_only: bool,
    /// Whether the value is kept from clients.
    pub is_sensitive: bool,
}

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    /// Sets it.
    Set(String),
    /// Resets to the default.
    Delete,
    /// Adds to a list.
    Append(String),
    /// Subtracts from a list.
    Subtract(String),
}

/// A change of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The property.
    pub name: String,
    /// The change.
    pub operation: ConfigOperation,
}

/// The sources of values that are set for the resource itself: a topic's, a broker's, a group's.
const OWN_SOURCES: [i8; 3] = [1, 2, 8];

impl Admin {
    /// Describes configurations: all properties of each resource.
    pub async fn describe_configs(
        &self,
        resources: &[ConfigResource],
    ) -> Result<Outcomes<ConfigResource, BTreeMap<String, ConfigEntry>>, ClientError> {
        let mut outcomes = Outcomes::new();
        for (broker, resources) in by_broker(resources.iter().cloned()) {
            let wanted = resources.iter().map(|resource| {
                let (resource_type, resource_name) = resource.named();
                DescribeConfigsResource { resource_type, resource_name, configuration_keys: None }
            });
            let request =
                DescribeConfigsRequest { resources: wanted.collect(), ..DescribeConfigsRequest::default() };
            let response = self.send_to(broker, &request).await?;
            let mut named = by_name(resources);
            for result in response.results {
                let name = (result.resource_type, result.resource_name);
                let Some(resource) = named.remove(&name) else { continue };
                let what = || format!("Configuration of {resource:?}");
                let outcome = refused(result.error_code, result.error_message.as_deref(), what);
                let entries = result.configs.into_iter().map(|config| {
                    let entry = ConfigEntry {
                        value: config.value,
                        is_default: !OWN_SOURCES.contains(&config.config_source),
                        read_only: config.read_only,
                        is_sensitive: config.is_sensitive,
                    };
                    (config.name, entry)
                });
                let entries = entries.collect();
                outcomes.insert(resource, outcome.map(|()| entries));
            }
        }
        Ok(outcomes)
    }

    /// Changes configurations, or with `validate_only` checks whether it could. Other properties do not change.
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
            let mut named = by_name(resources);
            for result in response.responses {
                let name = (result.resource_type, result.resource_name);
                let Some(resource) = named.remove(&name) else { continue };
                let what = || format!("Changing the configuration of {resource:?}");
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

/// The resources by their names in answers.
fn by_name(resources: Vec<ConfigResource>) -> BTreeMap<(i8, String), ConfigResource> {
    resources.into_iter().map(|resource| (resource.named(), resource)).collect()
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
