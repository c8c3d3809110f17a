//! What the kafka source and sink share: which cluster, and with which properties. TLS and SASL are written as for Kafka's own
//! clients or as for librdkafka; all else has librdkafka's names.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use thalweg_client::{ClientError, ConnectionOptions, Properties, Security, is_secret};

use crate::disk;
use crate::module::{self, Absent, Kind, OptionSpec, Settings, Takes};
use crate::stage::{KafkaFailed, StageError};

/// The largest file of properties.
const PROPERTIES_BYTES_MAX: usize = 1 << 20;
/// How long it may take to find out why a cluster does not answer.
const TROUBLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Which cluster.
pub const BOOTSTRAP: OptionSpec = OptionSpec {
    name: "bootstrap",
    takes: Takes::Brokers,
    default: Absent::Value("localhost:9092"),
    summary: "The brokers to connect to first.",
};

/// With which properties.
pub const PROPERTIES: OptionSpec = OptionSpec {
    name: "properties",
    takes: Takes::Name,
    default: Absent::None,
    summary: "A file of client properties. TLS and SASL are set as for Kafka's clients (`security.protocol`, `ssl.truststore.location`, `sasl.jaas.config`) or by librdkafka's names, all else by librdkafka's names; they stand above what the other options say.",
};

/// A cluster, for what streams need one for beside their kafka stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The brokers to connect to first.
    pub bootstrap: String,
    /// A file of client properties, as `--properties` of a kafka stage takes it.
    pub properties: Option<String>,
}

impl Cluster {
    /// That of a kafka stage.
    pub(crate) fn of(settings: &Settings) -> Cluster {
        Cluster {
            bootstrap: settings.text("bootstrap").to_owned(),
            properties: settings.optional_text("properties").map(str::to_owned),
        }
    }

    /// Why it does not let this program in, if it does not. librdkafka tells little of that, and goes on for ever;
    /// the client of this program knows whether it is of use to go on.
    pub(crate) async fn trouble(&self) -> Option<ClientError> {
        let (bootstrap, options) = self.connection("thalweg-stream").ok()?;
        let connected = thalweg_client::Cluster::connect(&bootstrap, &options);
        tokio::time::timeout(TROUBLE_TIMEOUT, connected).await.ok()?.err()
    }

    /// The same for a thread of librdkafka's, or one that polls it: it waits.
    pub(crate) fn trouble_now(&self) -> Option<ClientError> {
        // A runtime's own thread is waited for by others, and may not wait.
        if tokio::runtime::Handle::try_current().is_ok() {
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(self.trouble())
    }

    /// The brokers to connect to first, and how, for the clients of this program. The file is read for each of them, so that a
    /// certificate or a password can be renewed.
    pub fn connection(&self, client_id: &str) -> Result<(Vec<String>, ConnectionOptions), StageError> {
        let mut properties = self.properties.as_deref().map(read).transpose()?.unwrap_or_default();
        // They stand above what is said elsewhere, as they do for a stage.
        properties.set_default("bootstrap.servers", &self.bootstrap);
        let wrong = |error: &dyn std::error::Error| {
            failed(reading(self.properties.as_deref().unwrap_or_default()), error)
        };
        let bootstrap = properties.take_bootstrap_servers().map_err(|error| wrong(&error))?;
        let options = ConnectionOptions {
            client_id: client_id.to_owned(),
            security: Security::take(&mut properties).map_err(|error| wrong(&error))?,
            ..ConnectionOptions::default()
        };
        Ok((bootstrap, options))
    }

    /// The settings of a kafka stage for it. The options are such as the stage takes.
    pub(crate) fn settings(&self, kind: Kind, options: &[(&str, &str)]) -> Settings {
        let module = module::find(kind, "kafka").expect("kafka is a source and a sink");
        let settings = Settings::read(module, |name| match name {
            "bootstrap" => Some(&self.bootstrap),
            "properties" => self.properties.as_deref(),
            _ => options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value),
        });
        settings.unwrap_or_else(|_| panic!("kafka takes these options"))
    }
}

/// Whether headers are carried.
pub const MODE: OptionSpec = OptionSpec {
    name: "mode",
    takes: Takes::Choice(&["headers", "raw"]),
    default: Absent::Value("headers"),
    summary: "Whether headers are carried, or only keys and values.",
};

/// What [`MODE`] says.
pub fn with_headers(settings: &Settings) -> bool {
    settings.text("mode") == "headers"
}

/// The configuration of a client: what the stage needs, then what the file says. For a stream that runs exactly once,
/// some of it is fixed: the file may say nothing else there.
pub fn config(
    settings: &Settings,
    fixed: &[(&str, &str)],
    needed: &[(&str, &str)],
) -> Result<ClientConfig, StageError> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", settings.text("bootstrap")).set("client.id", "thalweg-stream");
    for (key, value) in needed.iter().chain(fixed) {
        config.set(*key, *value);
    }
    if let Some(path) = settings.optional_text("properties") {
        let mut properties = read(path)?;
        let security = Security::take(&mut properties).map_err(|error| failed(reading(path), error))?;
        for key in properties.rest() {
            let value = properties.get(key).unwrap_or_default();
            if is_idle(key, security.protocol()) {
                tracing::warn!(path, "{key} has no effect with security.protocol={}", security.protocol());
                continue;
            }
            if let Some((_, right)) = fixed.iter().find(|(name, right)| *name == key && *right != value) {
                let reason = format!(
                    "{key}={value} does not go with --guarantee=exactly-once: {right} would be right"
                );
                return Err(failed(reading(path), reason));
            }
            config.set(key, value);
        }
        for (key, value) in security.librdkafka() {
            config.set(key, value);
        }
        // Here, since what librdkafka says of a property has its value in it.
        if let Err(KafkaError::ClientConfig(_, description, key, _)) = config.create_native_config() {
            let reason = match is_secret(&key) {
                true => format!(
                    "librdkafka does not take {key}: without it, or with the security.protocol that needs it, they would be right"
                ),
                false => format!("{description} ({key})"),
            };
            return Err(failed(reading(path), reason));
        }
    }
    Ok(config)
}

/// Whether a setting is of a layer that the protocol does not have. Kafka's clients leave it alone, so that a file
/// may hold more than one protocol needs; librdkafka refuses some.
fn is_idle(key: &str, protocol: &str) -> bool {
    key.starts_with("ssl.") && !protocol.ends_with("SSL")
        || key.starts_with("sasl.") && !protocol.starts_with("SASL")
}

fn reading(path: &str) -> String {
    format!("Reading the properties in {path}")
}

fn read(path: &str) -> Result<Properties, StageError> {
    let bytes = disk::read_whole(Path::new(path), PROPERTIES_BYTES_MAX)?;
    Ok(Properties::parse(&String::from_utf8_lossy(&bytes)))
}

/// What was tried with a cluster, and what came of it.
pub fn failed(action: impl Into<String>, reason: impl ToString) -> StageError {
    KafkaFailed { action: action.into(), reason: reason.to_string() }.into()
}

/// Where to begin in a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Begin {
    /// With the first message that is kept.
    Earliest,
    /// With the next that comes.
    Latest,
    /// With an offset.
    Offset(i64),
    /// With an offset in each of these partitions, and with the first message that is kept in others.
    Offsets(BTreeMap<i32, i64>),
    /// With the first message at or after a time, in milliseconds since 1970.
    Timestamp(i64),
}

impl Begin {
    /// Reads one.
    pub fn read(text: &str) -> Option<Begin> {
        let number = |digits: &str| digits.parse().ok().filter(|number: &i64| *number >= 0);
        let of_partition = |pair: &str| {
            let (partition, offset) = pair.split_once('=')?;
            Some((i32::try_from(number(partition.trim())?).ok()?, number(offset.trim())?))
        };
        match text {
            "earliest" => Some(Begin::Earliest),
            "latest" => Some(Begin::Latest),
            _ => match text.split_once(':')? {
                ("offset", pairs) if pairs.contains('=') => {
                    let offsets: Option<BTreeMap<i32, i64>> = pairs.split(',').map(of_partition).collect();
                    // Named twice, one of them would be forgotten.
                    offsets.filter(|offsets| offsets.len() == pairs.split(',').count()).map(Begin::Offsets)
                }
                ("offset", digits) => number(digits).map(Begin::Offset),
                ("timestamp", digits) => number(digits).map(Begin::Timestamp),
                _ => None,
            },
        }
    }
}

/// Whether a topic can have this name.
pub fn is_topic(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.chars().all(is_letter)
}

/// Numbers of partitions.
pub fn partitions(text: &str) -> Option<Vec<i32>> {
    text.split(',').map(|number| number.trim().parse().ok().filter(|number| *number >= 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_of_properties_has_wrong_is_told_without_its_secrets() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let cluster = Cluster {
            bootstrap: "a:1".to_owned(),
            properties: Some(file.path().to_str().expect("UTF-8").to_owned()),
        };
        let write = |text: &str| std::fs::write(file.path(), text).expect("it is written");
        let config = || {
            config(&cluster.settings(Kind::Sink, &[("topic", "t")]), &[], &[])
                .map_err(|error| error.to_string())
        };
        for (text, part) in [
            (
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=hunter2",
                "sasl.jaas.config=[hidden] is invalid",
            ),
            ("no.such.property=1", "no.such.property"),
            ("security.protocol=TLS", "security.protocol=TLS is invalid"),
        ] {
            write(text);
            let error = config().expect_err(text);
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
            assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
        }
        for idle in [
            "sasl.jaas.config=x password=\"hunter2\";",
            "security.protocol=SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=hunter2",
            "security.protocol=PLAINTEXT\nssl.truststore.location=/nowhere.jks\nssl.keystore.password=hunter2",
        ] {
            write(idle);
            let config = config().unwrap_or_else(|error| panic!("{idle}: {error}"));
            assert!(
                config.get("sasl.jaas.config").is_none() && config.get("ssl.truststore.location").is_none()
            );
        }
        write("bootstrap.servers=b:2,c:3\nqueued.min.messages=10");
        assert_eq!(config().expect("right").get("bootstrap.servers"), Some("b:2,c:3"));
        let (bootstrap, options) = cluster.connection("me").expect("right");
        assert_eq!((bootstrap.join(" "), options.client_id.as_str()), ("b:2 c:3".to_owned(), "me"));
        write("");
        assert_eq!(cluster.connection("me").expect("right").0, ["a:1"]);
    }

    #[test]
    fn beginnings_and_partitions_are_read() {
        assert_eq!(Begin::read("earliest"), Some(Begin::Earliest));
        assert_eq!(Begin::read("offset:17"), Some(Begin::Offset(17)));
        assert_eq!(Begin::read("timestamp:1700000000000"), Some(Begin::Timestamp(1_700_000_000_000)));
        let offsets = [(0, 17), (2, 5)].into_iter().collect();
        assert_eq!(Begin::read("offset:0=17, 2=5"), Some(Begin::Offsets(offsets)));
        let twice = "offset:0=1,0=2";
        for wrong in
            ["", "first", "offset:", "offset:-1", "offset", "time:1", "offset:0=", "offset:a=1", twice]
        {
            assert_eq!(Begin::read(wrong), None, "{wrong}");
        }
        assert!(is_topic("a.b_c-1") && !is_topic("") && !is_topic("..") && !is_topic("a b"));
        assert_eq!(partitions("0, 2"), Some(vec![0, 2]));
        for wrong in ["", "a", "1,", "-1"] {
            assert_eq!(partitions(wrong), None, "{wrong}");
        }
    }
}
