//! Client settings of a stage: the file of properties, then the stage's own defaults.

use thalweg_client::{
    Cluster, ConnectionOptions, ConsumerConfig, InvalidSetting, ProducerConfig, Properties,
};

use super::{CLIENT_ID, clusters, failed, read, reading};
use crate::declaration::Settings;
use crate::stage::StageError;

/// `batch.size`: larger than Kafka's default, for less work per message in busy streams.
const BATCH_BYTES: &str = "131072";

/// The reason for settings that transactions fix.
const TRANSACTED: &str = "--guarantee=exactly-once, or with state in the cluster";

/// Settings that every stage fixes.
const FIXED: [(&str, &str); 1] = [("enable.auto.commit", "false")];

/// A client's settings and bootstrap servers.
pub struct ClientSettings<C> {
    pub config: C,
    /// The bootstrap servers.
    pub bootstrap: Vec<String>,
    connection: ConnectionOptions,
    /// The TLS and SASL settings, as written.
    security: Vec<(String, String)>,
}

impl<C> ClientSettings<C> {
    /// The cluster, shared by stages with the same settings. Call it on a runtime.
    pub fn cluster(&self) -> Cluster {
        clusters::shared(&self.bootstrap, &self.connection, &self.security)
    }
}

/// The settings of a consumer. The properties file may override the defaults `needed`, and `classic`, the
/// defaults for members of classic groups. In an exactly-once stream, the file may not override `fixed`.
pub fn consumer(
    settings: &Settings,
    fixed: &[(&str, &str)],
    needed: &[(&str, &str)],
    classic: &[(&str, &str)],
) -> Result<ClientSettings<ConsumerConfig>, StageError> {
    let take = |properties: &mut Properties| {
        let protocol = properties.get("group.protocol").unwrap_or("classic").trim().to_ascii_lowercase();
        for (key, value) in classic.iter().filter(|_| protocol == "classic") {
            properties.set_default(key, value);
        }
        let config = ConsumerConfig::take(properties)?;
        Ok((config.connection.clone(), config))
    };
    // One file may serve consumers and producers.
    client(bootstrap(settings), fixed, needed, take, |others| ProducerConfig::take(others).map(drop))
}

/// The settings of a producer, from the options of the `kafka` sink.
pub fn producer(
    settings: &Settings,
    fixed: &[(&str, &str)],
    more: &[(&str, &str)],
) -> Result<ClientSettings<ProducerConfig>, StageError> {
    let linger_ms = settings.duration("linger").as_millis().to_string();
    let timeout_ms = settings.duration("deliveryTimeout").as_millis().to_string();
    let buffer_bytes = settings.integer("buffer").to_string();
    let options = [
        ("enable.idempotence", "true"),
        ("linger.ms", &*linger_ms),
        ("delivery.timeout.ms", &*timeout_ms),
        ("compression.type", settings.text("compression")),
        ("buffer.memory", &*buffer_bytes),
        ("batch.size", BATCH_BYTES),
    ];
    let take = |properties: &mut Properties| {
        let config = ProducerConfig::take(properties)?;
        Ok((config.connection.clone(), config))
    };
    // The first entry for a setting wins.
    let needed = [more, &options].concat();
    client(bootstrap(settings), fixed, &needed, take, |others| ConsumerConfig::take(others).map(drop))
}

/// The settings of a client that neither produces nor consumes.
pub fn admin(cluster: &super::Cluster) -> Result<ClientSettings<()>, StageError> {
    let take = |properties: &mut Properties| Ok((ConnectionOptions::take(properties, "stream")?, ()));
    let take_others = |others: &mut Properties| {
        ConsumerConfig::take(others)?;
        ProducerConfig::take(others).map(drop)
    };
    client((&cluster.bootstrap, cluster.properties.as_deref()), &[], &[], take, take_others)
}

fn client<C>(
    (bootstrap, path): (&str, Option<&str>),
    fixed: &[(&str, &str)],
    needed: &[(&str, &str)],
    take: impl FnOnce(&mut Properties) -> Result<(ConnectionOptions, C), InvalidSetting>,
    take_others: impl FnOnce(&mut Properties) -> Result<(), InvalidSetting>,
) -> Result<ClientSettings<C>, StageError> {
    let wrong = |reason: &dyn ToString| failed(reading(path.unwrap_or_default()), reason.to_string());
    let mut properties = path.map(read).transpose()?.unwrap_or_default();
    for (key, instead) in properties.rename_librdkafka().map_err(|error| wrong(&error))? {
        let instead = instead.map(|instead| format!("; use {instead} instead")).unwrap_or_default();
        tracing::warn!(path, "{key} has no effect in streams{instead}");
    }
    for (pairs, with) in [(&FIXED[..], "a stream"), (fixed, TRANSACTED)] {
        for (key, right) in pairs {
            match properties.get(key) {
                Some(value) if value != *right => {
                    let reason = format!("{key}={value} cannot be combined with {with}: use {right}");
                    return Err(wrong(&reason));
                }
                _ => properties.set(key, right),
            }
        }
    }
    let usual = [("bootstrap.servers", bootstrap), ("client.id", CLIENT_ID)];
    for (key, value) in needed.iter().chain(&usual) {
        properties.set_default(key, value);
    }
    let of_security = |key: &str| ["security.", "ssl.", "sasl."].iter().any(|layer| key.starts_with(layer));
    let security = properties.rest().filter(|key| of_security(key));
    let security = security.map(|key| (key.to_owned(), properties.get(key).unwrap_or_default().to_owned()));
    let security: Vec<_> = security.collect();
    let bootstrap = properties.take_bootstrap_servers().map_err(|error| wrong(&error))?;
    let (connection, config) = take(&mut properties).map_err(|error| wrong(&error))?;
    take_others(&mut properties).map_err(|error| wrong(&error))?;
    let protocol = connection.security.protocol();
    for key in properties.rest() {
        if !is_idle(key, protocol) {
            let reason = format!(
                "{key} is not a setting of Kafka's consumers and producers or of librdkafka: remove it, or correct its name"
            );
            return Err(wrong(&reason));
        }
        tracing::warn!(path, "{key} has no effect with security.protocol={protocol}");
    }
    Ok(ClientSettings { config, bootstrap, connection, security })
}

/// The bootstrap servers from a stage's options.
fn bootstrap(settings: &Settings) -> (&str, Option<&str>) {
    (settings.text("bootstrap"), settings.optional_text("properties"))
}

/// True if a setting belongs to a layer that the protocol lacks. Kafka's clients ignore such settings, so
/// that one file can serve several protocols.
fn is_idle(key: &str, protocol: &str) -> bool {
    key.starts_with("ssl.") && !protocol.ends_with("SSL")
        || key.starts_with("sasl.") && !protocol.starts_with("SASL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::Cluster;

    #[test]
    fn mistakes_in_a_properties_file_are_reported_without_secrets() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let cluster = Cluster {
            bootstrap: "a:1".to_owned(),
            properties: Some(file.path().to_str().expect("UTF-8").to_owned()),
        };
        let write = |text: &str| std::fs::write(file.path(), text).expect("it is written");
        let fixed = [("isolation.level", "read_committed")];
        let config = || {
            let take = |properties: &mut Properties| {
                let config = ProducerConfig::take(properties)?;
                Ok((config.connection.clone(), config))
            };
            let take_others = |others: &mut Properties| ConsumerConfig::take(others).map(drop);
            let place = (&*cluster.bootstrap, cluster.properties.as_deref());
            client(place, &fixed, &[], take, take_others).map_err(|error| error.to_string())
        };
        for (text, part) in [
            (
                "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=hunter2",
                "sasl.jaas.config=[hidden] is invalid",
            ),
            ("no.such.property=hunter2", "no.such.property is not a setting of Kafka's"),
            ("security.protocol=TLS", "security.protocol=TLS is invalid"),
            (
                "enable.auto.commit=true",
                "enable.auto.commit=true cannot be combined with a stream: use false",
            ),
            (
                "isolation.level=read_uncommitted",
                "isolation.level=read_uncommitted cannot be combined with --guarantee=exactly-once, or with state in the cluster: use read_committed",
            ),
        ] {
            write(text);
            let error = config().map(drop).expect_err(text);
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
            assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
        }
        for idle in [
            "sasl.jaas.config=x password=\"hunter2\";",
            "security.protocol=SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=hunter2",
            "security.protocol=PLAINTEXT\nssl.truststore.location=/nowhere.jks\nssl.keystore.password=hunter2",
        ] {
            write(idle);
            config().map(drop).unwrap_or_else(|error| panic!("{idle}: {error}"));
        }
        write(
            "bootstrap.servers=b:2,c:3\nfetch.message.max.bytes=10\nqueued.min.messages=10\nqueue.buffering.max.ms=7",
        );
        let read = config().expect("settings of either client");
        assert_eq!((read.bootstrap.join(" "), read.config.linger.as_millis()), ("b:2 c:3".to_owned(), 7));
        let (bootstrap, options) = cluster.connection("me").expect("right");
        assert_eq!((bootstrap.join(" "), options.client_id.as_str()), ("b:2 c:3".to_owned(), "me"));
        write("");
        assert_eq!(cluster.connection("me").expect("right").0, ["a:1"]);
    }

    #[test]
    fn values_of_config_providers_are_put_in_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
        let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("it is written");
        let cluster = Cluster { bootstrap: "a:1".to_owned(), properties: Some(path("client")) };
        write("passwords", "password=hunter2\n");
        let sasl = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=";
        let by = "config.providers=file\n\
                  config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n";
        write("client", &format!("{by}{sasl}${{file:{}:password}}\n", path("passwords")));
        cluster.connection("me").map(drop).expect("it is resolved");
        let resolved = admin(&cluster).expect("no setting is left over").security;
        assert!(resolved.contains(&("sasl.password".to_owned(), "hunter2".to_owned())), "{resolved:?}");

        write("client", &format!("{sasl}${{env:PW}}\n"));
        for error in [cluster.connection("me").map(drop), admin(&cluster).map(drop)] {
            let error = error.expect_err("the password would be sent as it is written").to_string();
            assert!(error.contains("config.providers does not name env"), "{error}");
            assert!(error.contains(&path("client")), "{error}");
        }
    }

    #[tokio::test]
    async fn stages_with_the_same_settings_share_a_cluster() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("UTF-8").to_owned();
        let shared = |bootstrap: &str, properties: &str| {
            std::fs::write(file.path(), properties).expect("it is written");
            let cluster = Cluster { bootstrap: bootstrap.to_owned(), properties: Some(path.clone()) };
            cluster.client().expect("right")
        };
        let first = shared("share:1", "");
        let is_first = |other: thalweg_client::Cluster| other.is_same(&first);
        assert!(is_first(shared("share:1", "linger.ms=3")), "irrelevant to connections");
        assert!(!is_first(shared("share:2", "")) && !is_first(shared("share:1", "request.timeout.ms=7")));
        let sasl = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=";
        let user = shared("share:1", &format!("{sasl}a"));
        assert!(user.is_same(&shared("share:1", &format!("{sasl}a"))));
        assert!(!is_first(user.clone()) && !user.is_same(&shared("share:1", &format!("{sasl}b"))));
    }
}
