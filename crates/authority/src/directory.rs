//! The directory of a secured node or cluster: the authority, node certificates, passwords, and the resulting
//! settings of nodes and clients.
//!
//! A directory without `ca.key` belongs to a node that has joined a cluster: the certificate was signed
//! elsewhere, and can only be checked here.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use crate::certificate::Certificate;
use crate::error::AuthorityError;
use crate::secret::{password, protect, refresh_secret, replace_secret, write_first_secret};
use crate::settings::{LoginModule, MECHANISM, Settings, jaas, keystore, settings, truststore};
use crate::{Authority, CA_CERTIFICATE, CA_KEY, Purpose, SIGNED_DAYS, is_there, read};

/// The administrator. The password is stored in the metadata.
pub const ADMIN: &str = "admin";
/// The user of nodes. The password is only in the settings of nodes.
pub const NODE: &str = "node";
/// The user of hosted streams. The password is stored in the metadata.
pub const STREAMS: &str = "streams";
/// The name of the delegation token secret.
const TOKENS: &str = "tokens";
/// The listener of brokers, for clients and other brokers.
const LISTENER: &str = "SASL_SSL";
/// Hosts of every node certificate, for clients on the same machine.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "::1", "localhost"];
/// Maximum hosts that a new certificate inherits from the old one.
const OLD_HOSTS_MAX: usize = 32;
/// Remaining days at which an expiring certificate that cannot be signed here is reported.
const REPORTED_DAYS: i64 = 30;

/// The permission to create an authority in a new directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Founding {
    /// A new authority may be created.
    Allowed,
    /// The node joins a cluster that has an authority.
    Refused,
}

/// A password, existing or new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Password {
    /// The password in clear text.
    pub text: String,
    /// True if the password was just created.
    pub is_new: bool,
}

/// Files of client settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// For Java clients, and for `--command-config`.
    pub java: PathBuf,
    pub librdkafka: PathBuf,
}

/// A valid node certificate that covers the node's hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCertificate {
    /// The PEM file with certificate and key.
    pub file: PathBuf,
    /// True if the certificate was just signed.
    pub is_new: bool,
    /// The remaining days, if the certificate expires soon and cannot be signed again here.
    pub ends_in_days: Option<i64>,
}

/// The directory of a secured node or cluster.
pub struct Directory {
    dir: PathBuf,
    /// None if the authority's key is in another directory.
    authority: Option<Authority>,
    /// Secrets that other users could read until now.
    exposed: Vec<PathBuf>,
    /// True if an authority was just created in a directory already in use.
    has_new_authority: bool,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Directory {
    /// Opens the directory. Creates a missing authority, if `founding` allows it.
    pub fn open(dir: &Path, founding: Founding, node: u32) -> Result<Directory, AuthorityError> {
        let dir = crate::absolute(dir)?;
        let has_key = is_there(&dir.join(CA_KEY))?;
        let has_certificate = is_there(&dir.join(CA_CERTIFICATE))?;
        let authority = match (has_key, has_certificate, founding) {
            (true, _, _) | (false, false, Founding::Allowed) => Some(Authority::open_or_create(&dir)?),
            (false, true, _) => None,
            (false, false, Founding::Refused) => {
                let file = CA_CERTIFICATE.to_owned();
                return Err(AuthorityError::NotIssued { dir, file, name: node_name(node) });
            }
        };
        let has_new_authority =
            !has_key && !has_certificate && is_there(&dir.join(format!("{NODE}.password")))?;
        let mut opened = Directory { dir, authority, exposed: Vec::new(), has_new_authority };
        opened.protect_secrets(node)?;
        Ok(opened)
    }

    fn protect_secrets(&mut self, node: u32) -> Result<(), AuthorityError> {
        let node = node_name(node);
        let keys = [CA_KEY.to_owned(), format!("{node}.key"), format!("{node}.pem")];
        let passwords = [ADMIN, NODE, STREAMS, TOKENS].map(|user| format!("{user}.password"));
        for name in keys.into_iter().chain(passwords) {
            let file = self.dir.join(name);
            if is_there(&file)? && protect(&file)? {
                self.exposed.push(file);
            }
        }
        Ok(())
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// True if the directory can sign certificates.
    pub fn has_authority(&self) -> bool {
        self.authority.is_some()
    }

    /// True if a new authority replaced a lost one. Certificates of the lost one are no longer valid.
    pub fn has_new_authority(&self) -> bool {
        self.has_new_authority
    }

    /// Secrets that other users could read until now.
    pub fn exposed(&self) -> &[PathBuf] {
        &self.exposed
    }

    /// The file of the authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.join(CA_CERTIFICATE)
    }

    /// The password of a user, created if missing. A joining node has copies of the cluster's passwords
    /// instead.
    pub fn password(&self, user: &str) -> Result<Password, AuthorityError> {
        let file = self.dir.join(format!("{user}.password"));
        if !is_there(&file)? {
            if self.authority.is_none() {
                let (dir, file) = (self.dir.clone(), format!("{user}.password"));
                return Err(AuthorityError::NotIssued { dir, file, name: "NODE".to_owned() });
            }
            let text = password();
            if write_first_secret(&file, &format!("{text}\n"))? {
                return Ok(Password { text, is_new: true });
            }
        }
        match read(&file)?.trim_end() {
            "" => Err(AuthorityError::NoPassword { path: file }),
            text => Ok(Password { text: text.to_owned(), is_new: false }),
        }
    }

    /// The password of a user; none if a joining node lacks a copy.
    pub fn known_password(&self, user: &str) -> Result<Option<Password>, AuthorityError> {
        match self.authority.is_some() || is_there(&self.dir.join(format!("{user}.password")))? {
            true => self.password(user).map(Some),
            false => Ok(None),
        }
    }

    /// The certificate of a node that is reachable by these hosts. A new certificate is signed if a host is
    /// missing, if a third of the validity or less remains, or if the authority has changed.
    pub fn node_certificate(
        &self,
        node: u32,
        hosts: &[String],
        now: DateTime<Utc>,
    ) -> Result<NodeCertificate, AuthorityError> {
        let name = node_name(node);
        let file = self.dir.join(format!("{name}.pem"));
        let held = if is_there(&file)? { Some(Certificate::read(&file)) } else { None };
        let Some(authority) = &self.authority else {
            let Some(held) = held.transpose()? else {
                let (dir, file) = (self.dir.clone(), format!("{name}.pem"));
                return Err(AuthorityError::NotIssued { dir, file, name });
            };
            let days = held.days_left(now);
            let lacks = held.lacks(hosts);
            let why = match (days < 0, lacks.is_empty()) {
                (true, _) => format!("expired on {}", held.expires.format("%Y-%m-%d")),
                (false, false) => format!("is not valid for {}", lacks.join(", ")),
                (false, true) => {
                    let ends_in_days = (days < REPORTED_DAYS).then_some(days);
                    return Ok(NodeCertificate { file, is_new: false, ends_in_days });
                }
            };
            let hosts = hosts.iter().map(|host| format!(" --host {host}")).collect();
            return Err(AuthorityError::NotRenewable { path: file, why, name, hosts });
        };
        // An unreadable certificate is replaced.
        let held = held.and_then(Result::ok);
        let hosts: BTreeSet<String> = hosts.iter().cloned().chain(LOOPBACK.map(str::to_owned)).collect();
        let wanted: Vec<String> = hosts.iter().cloned().collect();
        let is_good = held
            .as_ref()
            .is_some_and(|held| held.lacks(&wanted).is_empty() && held.days_left(now) > SIGNED_DAYS / 3);
        if is_good && read(&file)?.ends_with(&authority.certificate) {
            return Ok(NodeCertificate { file, is_new: false, ends_in_days: None });
        }
        let old = held.into_iter().flat_map(|held| held.hosts).take(OLD_HOSTS_MAX);
        let all: Vec<String> = hosts.into_iter().chain(old).collect::<BTreeSet<_>>().into_iter().collect();
        let file = authority.sign(&name, Purpose::Node, &all)?;
        Ok(NodeCertificate { file, is_new: true, ends_in_days: None })
    }

    /// Kafka's settings of a node with this certificate: certificates, node logins, listener protocols, ACLs.
    pub fn node_settings(&self, certificate: &Path, controller: &str) -> Result<Settings, AuthorityError> {
        let login = jaas(LoginModule::Plain, NODE, &self.password(NODE)?.text, true);
        let (clients, nodes) = (LISTENER.to_ascii_lowercase(), controller.to_ascii_lowercase());
        let of = |listener: &str, key: &str| format!("listener.name.{listener}.{key}");
        let mut all = settings([
            ("inter.broker.listener.name", LISTENER.to_owned()),
            ("listener.security.protocol.map", format!("{LISTENER}:{LISTENER},{controller}:{LISTENER}")),
            ("sasl.mechanism.inter.broker.protocol", "PLAIN".to_owned()),
            ("sasl.mechanism.controller.protocol", "PLAIN".to_owned()),
            (&of(&clients, "sasl.enabled.mechanisms"), format!("{MECHANISM},SCRAM-SHA-256,PLAIN")),
            (&of(&clients, "plain.sasl.jaas.config"), login.clone()),
            (&of(&nodes, "sasl.enabled.mechanisms"), "PLAIN".to_owned()),
            (&of(&nodes, "plain.sasl.jaas.config"), login),
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned()),
            ("super.users", format!("User:{ADMIN};User:{NODE}")),
        ]);
        if let Some(secret) = self.known_password(TOKENS)? {
            all.insert("delegation.token.secret.key".to_owned(), secret.text);
        }
        all.extend(keystore(certificate));
        all.extend(truststore(&self.ca_file()));
        Ok(all)
    }

    /// The settings of a client with the login of this user.
    pub fn client_settings(&self, user: &str) -> Result<Settings, AuthorityError> {
        let (mechanism, module) = match user {
            NODE => ("PLAIN", LoginModule::Plain),
            _ => (MECHANISM, LoginModule::Scram),
        };
        let mut all = settings([
            ("security.protocol", LISTENER.to_owned()),
            ("sasl.mechanism", mechanism.to_owned()),
            ("sasl.jaas.config", jaas(module, user, &self.password(user)?.text, false)),
        ]);
        all.extend(truststore(&self.ca_file()));
        Ok(all)
    }

    /// Writes the settings of a client to `NAME.properties`.
    pub fn write_client_settings(&self, user: &str) -> Result<PathBuf, AuthorityError> {
        let file = self.dir.join(format!("{user}.properties"));
        refresh_secret(&file, &lines(&self.client_settings(user)?))?;
        Ok(file)
    }

    /// Writes the settings of the administrator, with bootstrap servers. If the existing servers include
    /// `bootstrap`, the whole list is kept, because the nodes of a cluster may share this directory.
    pub fn write_admin_settings(&self, bootstrap: &str) -> Result<ClientFiles, AuthorityError> {
        let files = ClientFiles {
            java: self.dir.join("client.properties"),
            librdkafka: self.dir.join("librdkafka.properties"),
        };
        let known = std::fs::read_to_string(&files.java).unwrap_or_default();
        let known = known.lines().find_map(|line| line.strip_prefix("bootstrap.servers="));
        let bootstrap =
            known.filter(|known| known.split(',').any(|one| one == bootstrap)).unwrap_or(bootstrap);
        let servers = settings([("bootstrap.servers", bootstrap.to_owned())]);
        let java = self.client_settings(ADMIN)?.into_iter().chain(servers.clone()).collect();
        let mut librdkafka = settings([
            ("security.protocol", LISTENER.to_owned()),
            ("sasl.mechanisms", MECHANISM.to_owned()),
            ("sasl.username", ADMIN.to_owned()),
            ("sasl.password", self.password(ADMIN)?.text),
            ("ssl.ca.location", self.ca_file().display().to_string()),
        ]);
        librdkafka.extend(servers);
        refresh_secret(&files.java, &lines(&java))?;
        refresh_secret(&files.librdkafka, &lines(&librdkafka))?;
        Ok(files)
    }

    /// Writes the files of a node on another machine: its certificate, the authority's certificate and the
    /// secrets of nodes.
    pub fn export(
        &self,
        node: u32,
        hosts: &[String],
        to: &Path,
        now: DateTime<Utc>,
    ) -> Result<(), AuthorityError> {
        let signed = self.node_certificate(node, hosts, now)?;
        crate::make_directory(to)?;
        let mut files = vec![(signed.file, format!("{}.pem", node_name(node)))];
        for user in [NODE, STREAMS, TOKENS] {
            self.password(user)?;
            let name = format!("{user}.password");
            files.push((self.dir.join(&name), name));
        }
        files.push((self.ca_file(), CA_CERTIFICATE.to_owned()));
        for (from, name) in files {
            replace_secret(&to.join(name), &read(&from)?)?;
        }
        Ok(())
    }
}

/// The name of a node's certificate and files.
fn node_name(node: u32) -> String {
    format!("node-{node}")
}

/// The text of a properties file.
fn lines(settings: &Settings) -> String {
    settings.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn in_days(days: i64) -> DateTime<Utc> {
        Utc::now() + TimeDelta::days(days)
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nodes_that_begin_at_once_have_the_same_secrets() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().expect("a directory");
            let begin = || {
                let directory = Directory::open(dir.path(), Founding::Allowed, 1).expect("it opens");
                let password = directory.password(TOKENS).expect("a password").text;
                (password, read(&directory.ca_file()).expect("a certificate"))
            };
            let all: BTreeSet<_> = std::thread::scope(|scope| {
                let nodes: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                nodes.into_iter().map(|node| node.join().expect("it ends")).collect()
            });
            assert_eq!(all.len(), 1);
            let names = std::fs::read_dir(dir.path()).expect("it is read");
            assert_eq!(names.count(), 3, "key, certificate, password");
        }
    }

    #[test]
    fn a_certificate_is_signed_again_when_it_must_be() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Directory::open(dir.path(), Founding::Allowed, 1).expect("it opens");
        let directory = open();
        let signed = |names: &[&str], days| {
            directory.node_certificate(1, &hosts(names), in_days(days)).expect("a certificate")
        };
        let first = signed(&["a.example", "::1"], 0);
        assert!(first.is_new && first.file.ends_with("node-1.pem"), "{first:?}");
        assert!(!signed(&["a.example"], 400).is_new, "half of its life is left");
        assert!(signed(&["b.example"], 0).is_new);
        assert!(!signed(&["a.example", "b.example", "localhost"], 0).is_new, "old hosts stay");
        assert!(signed(&["a.example"], 600).is_new, "a third is left");
        std::fs::write(&first.file, "nonsense").expect("written");
        assert!(signed(&["a.example"], 0).is_new);
        for lost in [CA_KEY, CA_CERTIFICATE] {
            std::fs::remove_file(dir.path().join(lost)).expect("removed");
        }
        directory.password(NODE).expect("one is made");
        let directory = open();
        assert!(directory.has_new_authority());
        assert!(directory.node_certificate(1, &hosts(&["a.example"]), in_days(0)).expect("another").is_new);
    }

    #[test]
    fn one_that_cannot_be_signed_here_is_checked() {
        let dir = tempfile::tempdir().expect("a directory");
        let (home, away) = (dir.path().join("home"), dir.path().join("away"));
        let Err(refused) = Directory::open(&away, Founding::Refused, 2) else {
            panic!("it has no authority")
        };
        assert!(refused.to_string().contains("certificate node node-2 --host HOST"), "{refused}");
        let founder = Directory::open(&home, Founding::Allowed, 1).expect("it opens");
        founder.export(2, &hosts(&["box-2"]), &away, in_days(0)).expect("written");
        let joined = Directory::open(&away, Founding::Refused, 2).expect("it opens");
        let checked = |names: &[&str], days| joined.node_certificate(2, &hosts(names), in_days(days));
        assert_eq!(checked(&["box-2", "localhost"], 0).expect("it is valid").ends_in_days, None);
        let soon = checked(&["box-2"], SIGNED_DAYS - 10).expect("it is valid");
        assert!(soon.ends_in_days.is_some_and(|days| (9..=10).contains(&days)), "{soon:?}");
        let expired = checked(&["box-2"], SIGNED_DAYS + 2).expect_err("too late").to_string();
        assert!(expired.contains("node-2.pem expired on "), "{expired}");
        let other = checked(&["box-3"], 0).expect_err("not its host").to_string();
        assert!(other.contains("is not valid for box-3") && other.contains(" --host box-3 "), "{other}");
        assert_eq!(joined.password(NODE).expect("copied"), founder.password(NODE).expect("the same"));
        assert_eq!(joined.known_password(ADMIN).expect("no error"), None);
    }

    #[test]
    fn passwords_are_made_once_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Directory::open(dir.path(), Founding::Allowed, 1).expect("it opens");
        let first = open().password(ADMIN).expect("one is made");
        let file = dir.path().join("admin.password");
        assert!(first.is_new);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("set");
        let directory = open();
        assert_eq!(directory.exposed(), [std::path::absolute(&file).expect("a path")]);
        let again = directory.password(ADMIN).expect("it is there");
        assert_eq!(again, Password { is_new: false, ..first });
        assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "\n").expect("written");
        assert!(directory.password(ADMIN).expect_err("empty").to_string().contains("has no password"));
    }

    #[test]
    fn addresses_stay_in_the_administrators_settings() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(dir.path(), Founding::Allowed, 1).expect("it opens");
        let written = |bootstrap| {
            let files = directory.write_admin_settings(bootstrap).expect("written");
            let text = std::fs::read_to_string(&files.librdkafka).expect("it is there");
            text.lines().find_map(|line| line.strip_prefix("bootstrap.servers=").map(str::to_owned))
        };
        assert_eq!(written("a:1,b:1").as_deref(), Some("a:1,b:1"));
        assert_eq!(written("b:1").as_deref(), Some("a:1,b:1"), "nodes may share the directory");
        assert_eq!(written("c:1").as_deref(), Some("c:1"));
    }
}
