//! The YAML of the OpenMessaging Benchmark's Kafka driver: replication, and the settings of topics and
//! clients as property text within YAML.

use std::collections::BTreeMap;

use thalweg_client::Properties;

use super::Fields;
use crate::workload::document;
use crate::workload::mistake::InvalidFile;

/// The class that reads such files.
const CLASS: &str = "io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver";

/// `reset` makes the benchmark delete topics of earlier runs; the lab uses its own topics, so there is
/// nothing to delete.
const KEYS: [&str; 8] = [
    "name",
    "driverClass",
    "replicationFactor",
    "reset",
    "topicConfig",
    "commonConfig",
    "producerConfig",
    "consumerConfig",
];

/// The contents of the driver's file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) replication_factor: u16,
    pub(super) topic: BTreeMap<String, String>,
    pub(super) producer: BTreeMap<String, String>,
    pub(super) consumer: BTreeMap<String, String>,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver {
            name: "none given, one replica and the clients' defaults".to_owned(),
            replication_factor: 1,
            topic: BTreeMap::new(),
            producer: BTreeMap::new(),
            consumer: BTreeMap::new(),
        }
    }
}

impl Driver {
    /// Parses the driver's YAML.
    pub(super) fn parse(file: &str, text: &str) -> Result<Driver, InvalidFile> {
        let invalid = |mistakes| InvalidFile::of(file, text, mistakes);
        let root = document::yaml::parse(text).map_err(|mistake| invalid(vec![mistake]))?;
        let mut fields = Fields::of(root, &KEYS);
        match fields.text("driverClass") {
            Some(class) if class != CLASS => {
                fields.refuse("driverClass", format!("{class:?} is not Kafka's driver"), CLASS);
            }
            _ => {}
        }
        let replication_factor = fields.whole("replicationFactor", None, 1, 1000);
        fields.flag("reset");
        let mut properties = |key: &str| -> BTreeMap<String, String> {
            let text = fields.text(key).unwrap_or_default();
            let mut taken = Properties::parse(&text);
            let names: Vec<String> = taken.rest().map(str::to_owned).collect();
            names.into_iter().filter_map(|name| taken.take(&name).map(|value| (name, value))).collect()
        };
        let topic = properties("topicConfig");
        let mut common = properties("commonConfig");
        // The target and the client names are set elsewhere.
        common.retain(|key, _| key != "bootstrap.servers" && key != "client.id");
        let with_common = |own: BTreeMap<String, String>| {
            let mut all = common.clone();
            all.extend(own);
            all
        };
        let mut producer = with_common(properties("producerConfig"));
        let mut consumer = with_common(properties("consumerConfig"));
        for (key, settings) in [("producerConfig", &mut producer), ("consumerConfig", &mut consumer)] {
            // References are resolved as by Kafka's clients, to which the driver passes them.
            if let Err(error) = thalweg_client::resolve(settings) {
                let remedy = "name the provider in config.providers, or write the value";
                fields.refuse(key, error.to_string(), remedy);
            }
            settings.retain(|setting, _| !thalweg_client::is_provider_setting(setting));
        }
        let name = fields.text("name").unwrap_or_else(|| "Kafka".to_owned());
        if !fields.mistakes.is_empty() {
            return Err(invalid(fields.mistakes));
        }
        let replication_factor = u16::try_from(replication_factor).unwrap_or(u16::MAX);
        Ok(Driver { name, replication_factor, topic, producer, consumer })
    }
}
