//! `config`: the settings of any resource, and `broker config`, the settings of brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use thalweg_client::{
    Admin, ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigResourceKind, DescribeConfigs,
};

use super::CommandFuture;
use super::connect::Connect;
use super::failure::{NotFound, Usage};
use super::outcomes::{add_outcomes, fail_with};
use super::output::{Column, CommandOutput};

/// Describe, set and remove the settings of topics, brokers, groups and subscriptions to clients' metrics.
///
/// A resource is topic:NAME, broker:ID, brokers (the defaults of all), loggers:ID, group:NAME or
/// client-metrics:NAME.
#[derive(Subcommand, Debug)]
pub enum Config {
    List(List),
    /// Describe the settings of resources.
    Describe(Describe<Resource>),
    /// Set settings of a resource.
    Set(Set<Resource>),
    /// Remove settings of a resource, which puts them back to the default.
    Remove(Remove<Resource>),
}

impl Config {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Config::List(list) => list.run().await,
                Config::Describe(describe) => describe.run().await,
                Config::Set(set) => set.run().await,
                Config::Remove(remove) => remove.run().await,
            }
        })
    }
}

/// Describe, set and remove settings of brokers.
///
/// A broker is named by its id; all stands for the defaults of all.
#[derive(Subcommand, Debug)]
pub enum BrokerConfig {
    /// Describe the settings of brokers.
    Describe(Describe<Broker>),
    /// Set settings of a broker at run time.
    Set(Set<Broker>),
    /// Remove settings of a broker that were set at run time.
    Remove(Remove<Broker>),
}

impl BrokerConfig {
    /// Runs the command.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            BrokerConfig::Describe(describe) => describe.run().await,
            BrokerConfig::Set(set) => set.run().await,
            BrokerConfig::Remove(remove) => remove.run().await,
        }
    }
}

/// A name of a resource on the command line.
pub trait ResourceName: Clone + Send + Sync + 'static {
    /// The resource that the text names.
    fn resource(&self) -> ConfigResource;
}

/// A resource as KIND:NAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource(ConfigResource);

impl ResourceName for Resource {
    fn resource(&self) -> ConfigResource {
        self.0.clone()
    }
}

impl std::str::FromStr for Resource {
    type Err = Usage;

    fn from_str(text: &str) -> Result<Resource, Usage> {
        let read = match text.split_once(':') {
            None if text == "brokers" => Some(ConfigResource::BrokerDefaults),
            Some((_, "")) | None => None,
            Some(("topic", name)) => Some(ConfigResource::Topic(name.to_owned())),
            Some(("broker", id)) => id.parse().ok().map(ConfigResource::Broker),
            Some(("loggers", id)) => id.parse().ok().map(ConfigResource::BrokerLogger),
            Some(("group", name)) => Some(ConfigResource::Group(name.to_owned())),
            Some(("client-metrics", name)) => Some(ConfigResource::ClientMetrics(name.to_owned())),
            Some(_) => None,
        };
        read.map(Resource).ok_or_else(|| {
            Usage(format!(
                "{text:?} is not a resource: expected topic:NAME, broker:ID, brokers, loggers:ID, group:NAME or \
                 client-metrics:NAME"
            ))
        })
    }
}

/// A broker's id, or all brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker(ConfigResource);

impl ResourceName for Broker {
    fn resource(&self) -> ConfigResource {
        self.0.clone()
    }
}

impl std::str::FromStr for Broker {
    type Err = Usage;

    fn from_str(text: &str) -> Result<Broker, Usage> {
        let read = match text {
            "all" => Some(ConfigResource::BrokerDefaults),
            id => id.parse().ok().map(ConfigResource::Broker),
        };
        let wrong = || Usage(format!("{text:?} is not the id of a broker: expected a number, or all"));
        read.map(Broker).ok_or_else(wrong)
    }
}

/// The kinds of resources that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Topics.
    Topic,
    /// Brokers.
    Broker,
    /// The loggers of brokers.
    Loggers,
    /// Groups with settings.
    Group,
    /// Subscriptions to clients' metrics.
    ClientMetrics,
}

impl From<Kind> for ConfigResourceKind {
    fn from(kind: Kind) -> ConfigResourceKind {
        match kind {
            Kind::Topic => ConfigResourceKind::Topics,
            Kind::Broker => ConfigResourceKind::Brokers,
            Kind::Loggers => ConfigResourceKind::BrokerLoggers,
            Kind::Group => ConfigResourceKind::Groups,
            Kind::ClientMetrics => ConfigResourceKind::ClientMetrics,
        }
    }
}

/// A resource as the arguments of these commands name it.
fn named(resource: &ConfigResource) -> String {
    match resource {
        ConfigResource::Topic(name) => format!("topic:{name}"),
        ConfigResource::Broker(id) => format!("broker:{id}"),
        ConfigResource::BrokerDefaults => "brokers".to_owned(),
        ConfigResource::BrokerLogger(id) => format!("loggers:{id}"),
        ConfigResource::ClientMetrics(name) => format!("client-metrics:{name}"),
        ConfigResource::Group(name) => format!("group:{name}"),
    }
}

/// List the resources that have settings.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  thalweg config list --kind client-metrics")]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    /// List only resources of this kind; can be repeated.
    #[arg(long = "kind", value_enum, value_name = "KIND")]
    kinds: Vec<Kind>,
    #[command(flatten)]
    output: CommandOutput,
}

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let kinds = match self.kinds.is_empty() {
            true => Kind::value_variants(),
            false => &self.kinds,
        };
        let kinds: Vec<ConfigResourceKind> = kinds.iter().map(|kind| (*kind).into()).collect();
        let found = admin.list_config_resources(&kinds).await?;
        let rows: Vec<serde_json::Value> =
            found.iter().map(|resource| json!({ "resource": named(resource) })).collect();
        self.output.rows(&[("RESOURCE", "resource")], &rows)
    }
}

/// Describe settings: those that were set for the resource itself, or all.
#[derive(Args, Debug)]
pub struct Describe<N: ResourceName + std::str::FromStr<Err = Usage>> {
    #[command(flatten)]
    connect: Connect,
    /// The resources to describe.
    #[arg(required = true, value_name = "RESOURCE")]
    resources: Vec<N>,
    /// Show all settings, not only those that were set for the resource itself.
    #[arg(long)]
    all_configs: bool,
    /// Show only these settings; can be repeated.
    #[arg(long = "name", value_name = "KEY")]
    names: Vec<String>,
    /// Show what each setting is for, if the broker knows.
    #[arg(long)]
    documentation: bool,
    #[command(flatten)]
    output: CommandOutput,
}

const COLUMNS: [Column<'_>; 5] = [
    ("RESOURCE", "resource"),
    ("NAME", "name"),
    ("VALUE", "value"),
    ("SOURCE", "source"),
    ("READ-ONLY", "read_only"),
];

impl<N: ResourceName + std::str::FromStr<Err = Usage>> Describe<N> {
    /// Prints the settings of the resources.
    pub async fn run(&self) -> anyhow::Result<()> {
        let admin = Admin::new(self.connect.cluster().await?);
        let resources: Vec<ConfigResource> = self.resources.iter().map(ResourceName::resource).collect();
        let wanted = DescribeConfigs {
            names: (!self.names.is_empty()).then(|| self.names.clone()),
            synonyms: true,
            documentation: self.documentation,
        };
        let described = admin.describe_configs_with(&resources, &wanted).await?;
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for (resource, entries) in described {
            match entries {
                Ok(entries) => {
                    let shown = entries.iter().filter(|(_, entry)| self.is_shown(entry));
                    rows.extend(shown.map(|(name, entry)| document(&resource, name, entry)));
                }
                Err(error) => errors.push(error),
            }
        }
        match self.documentation {
            false => self.output.rows(&COLUMNS, &rows)?,
            true => {
                let columns: Vec<Column<'_>> =
                    COLUMNS.into_iter().chain([("DOCUMENTATION", "documentation")]).collect();
                self.output.rows(&columns, &rows)?;
            }
        }
        fail_with(errors)
    }

    fn is_shown(&self, entry: &ConfigEntry) -> bool {
        self.all_configs || !self.names.is_empty() || !entry.is_default
    }
}

fn document(resource: &ConfigResource, name: &str, entry: &ConfigEntry) -> serde_json::Value {
    let synonyms: Vec<serde_json::Value> = entry
        .synonyms
        .iter()
        .map(|(name, value, source)| json!({ "name": name, "value": value, "source": source.name() }))
        .collect();
    json!({
        "resource": named(resource),
        "name": name,
        "value": entry.value,
        "type": entry.value_type,
        "source": entry.source.name(),
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
        "synonyms": synonyms,
    })
}

/// Set settings. Others of the resource stay as they are.
#[derive(Args, Debug)]
#[command(after_help = "A value of a list can be added with KEY+=VALUE and taken out with KEY-=VALUE.")]
pub struct Set<N: ResourceName + std::str::FromStr<Err = Usage>> {
    #[command(flatten)]
    connect: Connect,
    /// The resource to change.
    resource: N,
    /// The settings, with their new values.
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = assignment)]
    changes: Vec<ConfigChange>,
    /// Check the request without changing anything.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    output: CommandOutput,
}

fn assignment(text: &str) -> Result<ConfigChange, Usage> {
    let wrong = || Usage(format!("{text:?} is not a setting: expected KEY=VALUE, KEY+=VALUE or KEY-=VALUE"));
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    let value = value.to_owned();
    let (name, operation) = if let Some(name) = key.strip_suffix('+') {
        (name, ConfigOperation::Append(value))
    } else if let Some(name) = key.strip_suffix('-') {
        (name, ConfigOperation::Subtract(value))
    } else {
        (key, ConfigOperation::Set(value))
    };
    match name.is_empty() {
        true => Err(wrong()),
        false => Ok(ConfigChange { name: name.to_owned(), operation }),
    }
}

impl<N: ResourceName + std::str::FromStr<Err = Usage>> Set<N> {
    /// Changes the settings of the resource.
    pub async fn run(&self) -> anyhow::Result<()> {
        let resource = self.resource.resource();
        alter(&self.connect, &self.output, resource, self.changes.clone(), self.validate_only).await
    }
}

/// Remove settings, which puts them back to the default.
#[derive(Args, Debug)]
pub struct Remove<N: ResourceName + std::str::FromStr<Err = Usage>> {
    #[command(flatten)]
    connect: Connect,
    /// The resource to change.
    resource: N,
    /// The settings to remove.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Check the request without changing anything.
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    output: CommandOutput,
}

impl<N: ResourceName + std::str::FromStr<Err = Usage>> Remove<N> {
    /// Removes the settings of the resource.
    pub async fn run(&self) -> anyhow::Result<()> {
        let delete = |name: &String| ConfigChange { name: name.clone(), operation: ConfigOperation::Delete };
        let changes = self.keys.iter().map(delete).collect();
        alter(&self.connect, &self.output, self.resource.resource(), changes, self.validate_only).await
    }
}

/// Time for a change to reach all brokers, after one broker has confirmed it.
const SETTLING: Duration = Duration::from_secs(1);

/// Fails if a setting to remove is not set on the resource itself, as Kafka's tool does: the name may be
/// misspelled.
pub(crate) async fn check_removals(
    admin: &Admin,
    resource: &ConfigResource,
    removed: impl Iterator<Item = &str>,
) -> anyhow::Result<()> {
    let removed: BTreeSet<&str> = removed.collect();
    let mut missing = not_set(admin, resource, &removed).await?;
    if !missing.is_empty() {
        tokio::time::sleep(SETTLING).await;
        missing = not_set(admin, resource, &removed).await?;
    }
    let right = "`config describe` shows the settings of its own";
    let what = |key: &&str| NotFound(format!("{key} is not set for {resource}: {right}"));
    fail_with(missing.iter().map(what).collect())
}

async fn not_set<'a>(
    admin: &Admin,
    resource: &ConfigResource,
    keys: &BTreeSet<&'a str>,
) -> anyhow::Result<Vec<&'a str>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut described = admin.describe_configs(std::slice::from_ref(resource)).await?;
    let entries = described.remove(resource).transpose()?.unwrap_or_default();
    let own = resource.own_source();
    let is_set = |key: &str| entries.get(key).is_some_and(|entry| entry.source == own);
    Ok(keys.iter().copied().filter(|key| !is_set(key)).collect())
}

/// Changes settings of one resource, and prints the outcome.
pub(crate) async fn alter(
    connect: &Connect,
    output: &CommandOutput,
    resource: ConfigResource,
    changes: Vec<ConfigChange>,
    validate_only: bool,
) -> anyhow::Result<()> {
    let admin = Admin::new(connect.cluster().await?);
    let removed = changes.iter().filter(|change| change.operation == ConfigOperation::Delete);
    check_removals(&admin, &resource, removed.map(|change| &*change.name)).await?;
    output
        .outcomes(async |done| {
            let changes = BTreeMap::from([(resource, changes)]);
            let results = admin.alter_configs(&changes, validate_only).await?;
            add_outcomes(done, results, |resource, ()| {
                let (outcome, did) = match validate_only {
                    true => ("valid", "Could change"),
                    false => ("changed", "Changed"),
                };
                let document = json!({ "resource": named(resource), "outcome": outcome });
                (document, format!("{did} the settings of {resource}."))
            })
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_read_as_it_is_shown() {
        for text in ["topic:a", "broker:1", "brokers", "loggers:1", "group:a:b", "client-metrics:errors"] {
            assert_eq!(named(&text.parse::<Resource>().expect(text).0), text);
        }
        for wrong in ["topic", "topic:", "broker:x", "broker", "x:y", ""] {
            assert!(wrong.parse::<Resource>().is_err(), "{wrong}");
        }
        assert_eq!("all".parse::<Broker>().expect("valid").0, ConfigResource::BrokerDefaults);
        assert!("any".parse::<Broker>().is_err());
    }

    #[test]
    fn a_setting_is_set_or_its_list_changed() {
        let read = |text: &str| assignment(text).map(|change| (change.name, change.operation)).ok();
        let named = |operation| Some(("a".to_owned(), operation));
        assert_eq!(read("a=b=c"), named(ConfigOperation::Set("b=c".to_owned())));
        assert_eq!(read("a="), named(ConfigOperation::Set(String::new())));
        assert_eq!(read("a+=b"), named(ConfigOperation::Append("b".to_owned())));
        assert_eq!(read("a-=b"), named(ConfigOperation::Subtract("b".to_owned())));
        assert_eq!((read("a"), read("=b"), read("+=b")), (None, None, None));
    }
}
