//! Configurations of topics, brokers and groups: each value with default, source and documentation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_client::{
    ClientError, ConfigChange, ConfigOperation, ConfigResource, RefusedRequest, RequestTimedOut,
};
use thalweg_wire::ApiKey;
use thalweg_wire::request::DescribeConfigsRequest;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::describe_configs_response::DescribeConfigsResourceResult;
use utoipa::ToSchema;

use super::{PART_WAIT, View};
use crate::problem::Problem;

/// A resource with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredResource {
    Topic(String),
    Broker(i32),
    /// Defaults for brokers without a value of their own.
    AllBrokers,
}

impl ConfiguredResource {
    fn resource(&self) -> ConfigResource {
        match self {
            ConfiguredResource::Topic(name) => ConfigResource::Topic(name.clone()),
            ConfiguredResource::Broker(id) => ConfigResource::Broker(*id),
            ConfiguredResource::AllBrokers => ConfigResource::BrokerDefaults,
        }
    }

    /// Resource type and name in the protocol.
    fn named(&self) -> (i8, String) {
        match self {
            ConfiguredResource::Topic(name) => (2, name.clone()),
            ConfiguredResource::Broker(id) => (4, id.to_string()),
            ConfiguredResource::AllBrokers => (4, String::new()),
        }
    }

    fn words(&self) -> String {
        match self {
            ConfiguredResource::Topic(name) => format!("topic {name}"),
            ConfiguredResource::Broker(id) => format!("broker {id}"),
            ConfiguredResource::AllBrokers => "all brokers".to_owned(),
        }
    }
}

/// A value of a configuration.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ConfigLine {
    /// The property name.
    pub name: String,
    /// The value. None for a secret, or if there is neither a value nor a default.
    pub value: Option<String>,
    /// The default, if reported by the cluster.
    pub default: Option<String>,
    /// The source of the value.
    pub source: ConfigSource,
    /// True if the value is set on this resource.
    pub is_set: bool,
    /// True if a change needs a restart.
    pub is_read_only: bool,
    /// True if the value is secret.
    pub is_sensitive: bool,
    /// Documentation of the property.
    pub documentation: Option<String>,
}

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigSource {
    /// Set for this topic.
    Topic,
    /// Dynamic value of this broker.
    Broker,
    /// Dynamic default for all brokers.
    BrokerDefault,
    /// Set in the broker's properties file.
    PropertiesFile,
    /// The default of the release.
    Default,
    /// A source code that this console does not know.
    Other,
}

impl ConfigSource {
    fn of(code: i8) -> ConfigSource {
        match code {
            1 => ConfigSource::Topic,
            2 => ConfigSource::Broker,
            3 => ConfigSource::BrokerDefault,
            4 => ConfigSource::PropertiesFile,
            5 => ConfigSource::Default,
            _ => ConfigSource::Other,
        }
    }

    /// The source in words.
    pub fn words(self) -> &'static str {
        match self {
            ConfigSource::Topic => "this topic",
            ConfigSource::Broker => "this broker",
            ConfigSource::BrokerDefault => "all brokers",
            ConfigSource::PropertiesFile => "properties file",
            ConfigSource::Default => "default",
            ConfigSource::Other => "other",
        }
    }
}

/// Changes to a configuration.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigChanges {
    /// Values to set.
    pub set: BTreeMap<String, String>,
    /// Properties to reset to their defaults.
    pub reset: Vec<String>,
}

/// Maps an error to a problem. An unknown broker is a 404, because the broker is the requested resource.
pub fn problem(error: ClientError) -> Problem {
    match error {
        ClientError::BrokerUnknown(unknown) => Problem::missing(unknown.to_string()),
        error => error.into(),
    }
}

/// Reads a configuration, sorted by name.
pub async fn read(view: &View, resource: &ConfiguredResource) -> Result<Vec<ConfigLine>, ClientError> {
    let (resource_type, resource_name) = resource.named();
    let wanted = DescribeConfigsResource { resource_type, resource_name, configuration_keys: None };
    let request = DescribeConfigsRequest {
        resources: vec![wanted],
        include_synonyms: true,
        include_documentation: true,
    };
    let asked = async {
        match resource {
            ConfiguredResource::Broker(id) => {
                view.catalog().await?;
                view.cluster().broker(*id).await?.send(&request).await
            }
            _ => view.cluster().send_any(&request).await,
        }
    };
    let Ok(response) = tokio::time::timeout(PART_WAIT, asked).await else {
        let peer = match resource {
            ConfiguredResource::Broker(id) => format!("broker {id}"),
            _ => "the cluster".to_owned(),
        };
        let api = ApiKey::DescribeConfigs;
        return Err(RequestTimedOut { peer: peer.into(), api, timeout: PART_WAIT }.into());
    };
    let response = response?;
    let mut lines = Vec::new();
    for result in response.results {
        let what = || format!("The configuration of {}", resource.words());
        RefusedRequest::check(result.error_code, result.error_message.as_deref(), what)?;
        lines.extend(result.configs.into_iter().map(|config| {
            let source = ConfigSource::of(config.config_source);
            let is_set = matches!(
                (resource, source),
                (ConfiguredResource::Topic(_), ConfigSource::Topic)
                    | (ConfiguredResource::Broker(_), ConfigSource::Broker)
                    | (ConfiguredResource::AllBrokers, ConfigSource::BrokerDefault)
            );
            ConfigLine {
                default: default(&config, source),
                value: config.value,
                source,
                is_set,
                is_read_only: config.read_only,
                is_sensitive: config.is_sensitive,
                documentation: config.documentation.filter(|text| !text.trim().is_empty()),
                name: config.name,
            }
        }));
    }
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(lines)
}

/// The default value. If a broker property in another unit holds the default, its name follows in
/// parentheses.
fn default(config: &DescribeConfigsResourceResult, source: ConfigSource) -> Option<String> {
    if source == ConfigSource::Default {
        return config.value.clone();
    }
    let found =
        config.synonyms.iter().rfind(|synonym| ConfigSource::of(synonym.source) == ConfigSource::Default)?;
    let unit = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let value = found.value.clone()?;
    Some(if unit(&found.name) == unit(&config.name) { value } else { format!("{value} ({})", found.name) })
}

/// Changes a configuration.
pub async fn alter(
    view: &View,
    resource: &ConfiguredResource,
    changes: ConfigChanges,
) -> Result<(), ClientError> {
    let set = changes.set.into_iter().map(|(name, value)| (name, ConfigOperation::Set(value)));
    let reset = changes.reset.into_iter().map(|name| (name, ConfigOperation::Delete));
    let changes = set.chain(reset).map(|(name, operation)| ConfigChange { name, operation }).collect();
    if let ConfiguredResource::Broker(_) = resource {
        view.catalog().await?;
    }
    let outcomes =
        view.admin().alter_configs(&BTreeMap::from([(resource.resource(), changes)]), false).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    view.forget().await;
    Ok(())
}
