//! `serve --secure`: the settings of a secured node, from a directory that is made where it is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use thalweg_config::{BrokerConfig, HttpSettings, ListenerSettings, LogSettings, ServerProperties};
use thalweg_security::sasl::scram::NewUser;

use super::first_users::first_user;
use crate::cli::failure::Usage;
use crate::secure::directory::{ADMIN, ClientFiles, Directory, MECHANISM};

/// The origin of the settings, in errors.
const ORIGIN: &str = "--secure";
const DATA_DIR: &str = "./thalweg-data";
const LISTEN: &str = "localhost:9092";

/// What was set up.
pub struct Secured {
    dir: PathBuf,
    files: ClientFiles,
    password: String,
}

/// Sets what a secured node needs. What the properties file sets for the same keys gives way; the listeners keep their
/// addresses.
pub fn secure(properties: &mut ServerProperties, dir: Option<&Path>, host_name: &str) -> Result<Secured> {
    let dir = dir.map_or_else(|| beside_data(properties), |dir| Ok(dir.to_owned()))?;
    let listeners = listeners(properties)?;
    let directory = Directory::open_or_create(&dir)
        .with_context(|| format!("--secure cannot prepare {}", dir.display()))?;
    let hosts = hosts(properties, &listeners, host_name);
    for setting in directory.node_settings(&listeners, &hosts)?.lines() {
        properties.assign(ORIGIN, setting).expect("a setting has a key and a value");
    }
    let files = directory.write_client_settings()?;
    let password = directory.password().to_owned();
    Ok(Secured { dir, files, password })
}

impl Secured {
    /// The administrator that a new cluster begins with; none where this node creates no cluster.
    pub fn admin(&self, config: &BrokerConfig) -> Result<Option<NewUser>> {
        let text = || format!("{MECHANISM}=[name={ADMIN},password={}]", self.password);
        config.node.roles.controller.then(|| first_user(&text())).transpose()
    }

    /// How clients connect: printed once the node serves.
    pub fn described(&self) -> String {
        let ClientFiles { java, librdkafka } = &self.files;
        let (java, librdkafka) = (java.display(), librdkafka.display());
        format!(
            "Secured by {dir}: TLS, passwords (SCRAM), ACLs. User {ADMIN} may do everything; its settings are\n\
             \x20 Java's tools   --command-config {java}\n\
             \x20 kcat           -F {librdkafka}\n\
             \x20 thalweg        --command-config {java}, or THALWEG_COMMAND_CONFIG\n\
             Other users:     thalweg security user add NAME; what they may do: thalweg security acl add",
            dir = self.dir.display(),
        )
    }
}

/// The data directory's name with `-security`: inside it, Kafka's tools expect nothing but logs.
fn beside_data(properties: &ServerProperties) -> Result<PathBuf> {
    let given = properties.get(LogSettings::dirs.name());
    let first = given.and_then(|dirs| dirs.split(',').next()).map_or(DATA_DIR, str::trim);
    let name = Path::new(first).file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("the data directory {first} has no name: give --secure=DIR"))?;
    Ok(Path::new(first).with_file_name(format!("{name}-security")))
}

/// The listeners, each with TLS and passwords.
fn listeners(properties: &ServerProperties) -> Result<String> {
    let Some(given) = properties.get(ListenerSettings::listeners.name()) else {
        return Ok(format!("SASL_SSL://{LISTEN}"));
    };
    match given.split_once("://") {
        Some((_, address)) if !address.contains(',') => Ok(format!("SASL_SSL://{address}")),
        _ => {
            let right =
                "give one address with --listen, or set security up with the keys in docs/security.md";
            Err(Usage(format!("--secure makes one listener, and listeners={given} has several: {right}"))
                .into())
        }
    }
}

/// Names and addresses that clients may use for this node.
fn hosts(properties: &ServerProperties, listeners: &str, host_name: &str) -> Vec<String> {
    let advertised = properties.get(ListenerSettings::advertised.name()).unwrap_or_default();
    let named = listeners.split(',').chain(advertised.split(',')).filter_map(|listener| {
        let (_, address) = listener.split_once("://")?;
        let (host, _) = address.rsplit_once(':')?;
        let host = host.trim().trim_start_matches('[').trim_end_matches(']');
        (!matches!(host, "" | "0.0.0.0" | "::")).then_some(host)
    });
    let http = properties.get(HttpSettings::listener.name()).unwrap_or_default();
    let http = http.rsplit_once(':').map(|(host, _)| host.trim_start_matches('[').trim_end_matches(']'));
    let http = http.filter(|host| !matches!(*host, "" | "0.0.0.0" | "::"));
    let always = ["localhost", "127.0.0.1", "::1", host_name].into_iter().filter(|host| !host.is_empty());
    named.chain(http).chain(always).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(settings: &[(&str, &str)]) -> ServerProperties {
        let mut properties = ServerProperties::default();
        for (key, value) in settings {
            properties.set(key, value);
        }
        properties
    }

    #[test]
    fn the_directory_is_beside_the_data() {
        let of = |dirs| beside_data(&properties(&[("log.dirs", dirs)])).expect("a directory");
        assert_eq!(of("/var/lib/kafka, /data"), Path::new("/var/lib/kafka-security"));
        assert_eq!(beside_data(&properties(&[])).expect("the default"), Path::new("./thalweg-data-security"));
    }

    #[test]
    fn a_certificate_names_what_clients_connect_to() {
        let advertised = ("advertised.listeners", "SASL_SSL://kafka.example.org:9092");
        let listeners = listeners(&properties(&[("listeners", "PLAINTEXT://10.0.0.7:9092")])).expect("one");
        assert_eq!(listeners, "SASL_SSL://10.0.0.7:9092");
        let http = ("http.listener", "10.0.0.8:9090");
        let hosts = hosts(&properties(&[advertised, http]), &listeners, "box");
        let expected = ["10.0.0.7", "10.0.0.8", "127.0.0.1", "::1", "box", "kafka.example.org", "localhost"];
        assert_eq!(hosts, expected);
    }

    #[test]
    fn several_listeners_are_left_to_their_owner() {
        let error = listeners(&properties(&[("listeners", "A://:1,B://:2")])).expect_err("two");
        assert!(error.to_string().contains("docs/security.md"), "{error}");
    }
}
