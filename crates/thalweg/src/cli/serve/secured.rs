//! `serve --secure`: the settings of a secured node, from a directory that is created if missing.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use chrono::Utc;
use thalweg_authority::{
    ADMIN, AuthorityError, Directory, Founding, MECHANISM, NODE, STREAMS, Settings, truststore,
};
use thalweg_cli::failure::Usage;
use thalweg_cli::secure::quick_start;
use thalweg_cli::secure::users::{self, Users};
use thalweg_config::{
    AccessSettings, AuditSettings, BrokerConfig, ControllerSettings, HttpSettings, ListenerSettings,
    LogSettings, NodeSettings, ServerProperties, StandardAuthorizerSettings, StreamSettings,
};
use thalweg_security::sasl::scram::NewUser;

use super::first_users::first_user;
use super::{ownership, renewal};
use crate::logging;

/// The origin of the settings, in errors.
const ORIGIN: &str = "--secure";
const DATA_DIR: &str = "./thalweg-data";
const AUDIT_FILE: &str = "audit.log";
const LISTEN: &str = "localhost:9092";
const PROTOCOL: &str = "SASL_SSL";
/// The permission bits for all other users.
const OTHERS: u32 = 0o007;

/// The result of `--secure`.
pub struct NodeSecurity {
    directory: Arc<Directory>,
    node: u32,
    /// Hosts that the node's certificate must name.
    hosts: Vec<String>,
    users: Users,
    /// The host name of this machine.
    pub host_name: String,
    /// Client settings for storing the definitions of streams: the node's own, so that streams need no right
    /// on the definitions. None without hosted streams, or if the user has given client settings.
    pub host_login: Option<String>,
}

/// Sets the properties of a secured node, overriding the properties file; listeners keep their addresses.
pub fn secure(
    properties: &mut ServerProperties,
    dir: Option<&Path>,
    host_name: &str,
) -> Result<NodeSecurity> {
    let dir = dir.map_or_else(|| beside_data(properties), |dir| Ok(dir.to_owned()))?;
    let node = node_id(properties)?;
    let controllers = properties.get(ControllerSettings::listener_names.name()).unwrap_or("CONTROLLER");
    let controllers: Vec<String> = controllers.split(',').map(|name| name.trim().to_uppercase()).collect();
    let listeners = listeners(properties, &controllers)?;
    properties.set_from(ORIGIN, ListenerSettings::listeners.name(), &listeners);
    if let Some(advertised) = properties.get(ListenerSettings::advertised.name()) {
        let advertised = renamed(advertised, &controllers);
        properties.set_from(ORIGIN, ListenerSettings::advertised.name(), &advertised);
    }
    let prepare = || format!("--secure cannot prepare {}", dir.display());
    let founding = match properties.get(NodeSettings::roles.name()).map(|roles| roles.contains("controller"))
    {
        None | Some(true) => Founding::Allowed,
        Some(false) => Founding::Refused,
    };
    let directory = Directory::open(&dir, founding, node).with_context(prepare)?;
    for file in directory.exposed() {
        tracing::warn!(
            "Other users of this machine could read {}: it is protected now, but they may know it",
            file.display()
        );
    }
    if directory.has_new_authority() {
        tracing::warn!(
            "{} had no ca.crt and no ca.key: made another certificate authority, whose ca.crt all clients and nodes need now",
            dir.display()
        );
    }
    let hosts = hosts(properties, &listeners, host_name, directory.has_authority());
    let certificate = directory.node_certificate(node, &hosts, Utc::now()).with_context(prepare)?;
    let controller = controllers.first().map_or("CONTROLLER", String::as_str);
    let mut settings = directory.node_settings(&certificate.file, controller).with_context(prepare)?;
    settings.insert(HttpSettings::has_tls.name().to_owned(), "SSL".to_owned());
    settings.insert(HttpSettings::has_login.name().to_owned(), "basic".to_owned());
    if let Some(given) = properties
        .get(StandardAuthorizerSettings::super_users.name())
        .filter(|given| !given.trim().is_empty())
    {
        let both = format!("{};{given}", settings[StandardAuthorizerSettings::super_users.name()]);
        settings.insert(StandardAuthorizerSettings::super_users.name().to_owned(), both);
    }
    for (key, value) in settings {
        properties.set_from(ORIGIN, &key, &value);
    }
    keep_audit_trail(properties);
    let users = users::of(&directory, &[ADMIN, STREAMS]).with_context(prepare)?;
    let directory = Arc::new(directory);
    Ok(NodeSecurity { directory, node, hosts, users, host_name: host_name.to_owned(), host_login: None })
}

impl NodeSecurity {
    /// The administrator as initial user, if only a controller creates the cluster. A broker adds its users
    /// after the start.
    pub fn admin(&self, config: &BrokerConfig) -> Result<Option<NewUser>> {
        let admin = self.users.iter().find(|(user, _)| *user == ADMIN).filter(|_| !config.node.roles.broker);
        let text =
            admin.map(|(_, password)| format!("{MECHANISM}=[name={ADMIN},password={}]", password.text));
        text.map(|text| first_user(&text)).transpose()
    }

    /// Lets hosted streams log in as their own user, unless client settings are given.
    pub fn let_streams_in(&mut self, settings: &mut StreamSettings) -> Result<()> {
        if settings.client_config.is_none() {
            let file = |user| {
                Ok::<_, AuthorityError>(self.directory.write_client_settings(user)?.display().to_string())
            };
            settings.client_config = Some(file(STREAMS)?);
            self.host_login = Some(file(NODE)?);
        }
        Ok(())
    }

    /// Client settings that trust this node's certificate.
    pub fn trusted(&self) -> Settings {
        truststore(&self.directory.ca_file())
    }

    /// Adds missing users and keeps the certificate valid, once the node serves. Logs instructions to
    /// connect. `local` is the address of a broker in this process, `advertised` the address for clients.
    pub async fn served(self, local: Option<String>, advertised: Option<String>) {
        if let Some(local) = local {
            users::ensure(&self.directory, &local, &self.users).await;
        }
        let is_admin_known = self.users.iter().any(|(user, _)| *user == ADMIN);
        let files = advertised.filter(|_| is_admin_known).map(|advertised| {
            let files = self.directory.write_admin_settings(&advertised);
            files.map(|files| (advertised, files))
        });
        match files {
            Some(Ok((advertised, files))) => {
                let here = std::env::current_dir().unwrap_or_default();
                let text = quick_start::text(self.directory.path(), &files, &advertised, &here);
                let (title, lines) = text.split_once('\n').unwrap_or((&text, ""));
                logging::log_instructions(title, lines);
            }
            // No error: a directory that is read-only still serves.
            Some(Err(error)) => tracing::warn!(%error, "Failed to write the settings of {ADMIN}"),
            None => tracing::info!("Secured by {}: TLS, passwords, ACLs", self.directory.path().display()),
        }
        tokio::spawn(renewal::run(self.directory, self.node, self.hosts));
    }
}

/// The security directory of data that is about to be served without security.
pub fn left_out(properties: &ServerProperties) -> Option<PathBuf> {
    let dir = beside_data(properties).ok()?;
    let is_secured_elsewhere = properties.get(AccessSettings::has_authorizer.name()).is_some();
    (!is_secured_elsewhere && dir.join("ca.crt").exists()).then_some(dir)
}

/// Creates missing data directories for this user only, and warns about directories that all users may read.
/// Existing permissions stay, because an operator may have granted them to a backup.
pub fn keep_data_private(config: &BrokerConfig) {
    for dir in &ownership::data_dirs(config) {
        match std::fs::metadata(dir) {
            Ok(facts) if facts.permissions().mode() & OTHERS != 0 => {
                let dir = dir.display();
                tracing::warn!("Other users of this machine may read the data in {dir}: chmod o= {dir}");
            }
            Ok(_) => {}
            // If a directory cannot be created, the node reports it, and goes on with other directories.
            Err(_) => drop(thalweg_authority::make_directory(dir)),
        }
    }
}

/// Puts the audit trail into the data directory, unless the properties name a file or topic for it.
fn keep_audit_trail(properties: &mut ServerProperties) {
    let places = [AuditSettings::file.name(), AuditSettings::topic.name()];
    if places.iter().all(|place| properties.get(place).is_none()) {
        let path = Path::new(first_data_dir(properties)).join(AUDIT_FILE);
        let path = path.to_str().expect("it is made of texts").to_owned();
        properties.set_from(ORIGIN, AuditSettings::file.name(), &path);
    }
}

fn first_data_dir(properties: &ServerProperties) -> &str {
    let given = properties.get(LogSettings::dirs.name());
    given.and_then(|dirs| dirs.split(',').next()).map_or(DATA_DIR, str::trim)
}

/// The data directory's path with the suffix `-security`. A sibling, because Kafka's tools expect only logs
/// inside a data directory.
fn beside_data(properties: &ServerProperties) -> Result<PathBuf> {
    let first = first_data_dir(properties);
    let name = Path::new(first).file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("the data directory {first} has no name: give --secure=DIR"))?;
    Ok(Path::new(first).with_file_name(format!("{name}-security")))
}

fn node_id(properties: &ServerProperties) -> Result<u32> {
    let given =
        properties.get(NodeSettings::id.name()).or_else(|| properties.get(NodeSettings::broker_id.name()));
    let Some(given) = given else { return Ok(1) };
    let wrong = || Usage(format!("--secure: node.id={given} is not a number from 0 on"));
    Ok(given.trim().parse().map_err(|_| wrong())?)
}

/// The listeners, each with TLS and passwords.
fn listeners(properties: &ServerProperties, controllers: &[String]) -> Result<String> {
    let Some(given) = properties.get(ListenerSettings::listeners.name()) else {
        return Ok(format!("{PROTOCOL}://{LISTEN}"));
    };
    let listeners = renamed(given, controllers);
    if listeners.matches(&format!("{PROTOCOL}://")).count() > 1 {
        let right = "give one, and one of controller.listener.names, or set security up with the keys in docs/security.md";
        let problem = format!(
            "--secure makes one listener for clients and brokers, and listeners={given} has several: {right}"
        );
        return Err(Usage(problem).into());
    }
    Ok(listeners)
}

/// Entries `NAME://host:port` with the name of the secured listener, except for those of controllers.
fn renamed(entries: &str, controllers: &[String]) -> String {
    let renamed = entries.split(',').map(|entry| match entry.split_once("://") {
        Some((name, _)) if controllers.contains(&name.trim().to_uppercase()) => entry.trim().to_owned(),
        Some((_, address)) => format!("{PROTOCOL}://{}", address.trim()),
        None => entry.trim().to_owned(),
    });
    renamed.collect::<Vec<_>>().join(",")
}

/// Names and addresses that clients may use for this node. The machine's name is included if the node
/// advertises it, or if the certificate is signed here, where one more name costs nothing.
fn hosts(
    properties: &ServerProperties,
    listeners: &str,
    host_name: &str,
    is_signed_here: bool,
) -> Vec<String> {
    let advertised = properties.get(ListenerSettings::advertised.name());
    let http = properties.get(HttpSettings::listener.name()).unwrap_or_default();
    let entries = listeners.split(',').chain(advertised.unwrap_or_default().split(','));
    let addresses =
        entries.filter_map(|entry| entry.split_once("://")).map(|(_, address)| address).chain([http]);
    let given: BTreeSet<&str> = addresses
        .filter_map(|address| address.rsplit_once(':'))
        .map(|(host, _)| host.trim().trim_start_matches('[').trim_end_matches(']'))
        .collect();
    let is_everywhere = |host: &&str| matches!(*host, "" | "0.0.0.0" | "::");
    let own =
        (is_signed_here || advertised.is_none() && given.iter().any(is_everywhere)).then_some(host_name);
    let named = given.iter().copied().filter(|host| !is_everywhere(host));
    named
        .chain(own)
        .filter(|host| !host.is_empty())
        .map(str::to_owned)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
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

    fn secured(given: &str) -> Result<String> {
        listeners(&properties(&[("listeners", given)]), &["CONTROLLER".to_owned()])
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
        let listeners = secured("PLAINTEXT://10.0.0.7:9092").expect("one");
        assert_eq!(listeners, "SASL_SSL://10.0.0.7:9092");
        let properties = properties(&[advertised, ("http.listener", "10.0.0.8:9090")]);
        let named = |is_signed_here| hosts(&properties, &listeners, "box", is_signed_here);
        assert_eq!(named(true), ["10.0.0.7", "10.0.0.8", "box", "kafka.example.org"]);
        assert_eq!(named(false), ["10.0.0.7", "10.0.0.8", "kafka.example.org"]);
    }

    #[test]
    fn the_name_of_the_machine_is_needed_where_it_is_advertised() {
        let everywhere = |advertised: &[(&str, &str)]| {
            hosts(&properties(advertised), "SASL_SSL://:9092,CONTROLLER://[::1]:9093", "box", false)
        };
        assert_eq!(everywhere(&[]), ["::1", "box"]);
        assert_eq!(
            everywhere(&[("advertised.listeners", "SASL_SSL://a.example:9092")]),
            ["::1", "a.example"]
        );
    }

    #[test]
    fn one_listener_is_for_clients_and_those_of_controllers_keep_their_names() {
        let both = secured("PLAINTEXT://:9092, controller://:9093").expect("both");
        assert_eq!(both, "SASL_SSL://:9092,controller://:9093");
        let error = secured("A://:1,B://:2").expect_err("two");
        assert!(error.to_string().contains("docs/security.md"), "{error}");
    }

    #[test]
    fn the_audit_trail_is_in_the_data_directory_unless_it_has_another_place() {
        let of = |settings: &[(&str, &str)]| {
            let mut properties = properties(settings);
            keep_audit_trail(&mut properties);
            properties.get("thalweg.audit.file").map(str::to_owned)
        };
        assert_eq!(of(&[]).as_deref(), Some("./thalweg-data/audit.log"));
        assert_eq!(of(&[("log.dirs", "/one, /two")]).as_deref(), Some("/one/audit.log"));
        assert_eq!(
            of(&[("thalweg.audit.file", "/var/log/audit.log")]).as_deref(),
            Some("/var/log/audit.log")
        );
        assert_eq!(of(&[("thalweg.audit.topic", "audit")]), None);
        assert_eq!(of(&[("thalweg.audit.file", "")]).as_deref(), Some(""), "an empty one turns it off");
    }

    #[test]
    fn secured_data_that_is_served_without_security_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data").display().to_string();
        let of =
            |more: &[(&str, &str)]| left_out(&properties(&[&[("log.dirs", data.as_str())], more].concat()));
        assert_eq!(of(&[]), None);
        std::fs::create_dir(dir.path().join("data-security")).expect("a directory");
        std::fs::write(dir.path().join("data-security/ca.crt"), "").expect("a file");
        assert_eq!(of(&[]), Some(dir.path().join("data-security")));
        assert_eq!(of(&[("authorizer.class.name", "x")]), None, "it is secured by hand");
    }
}
