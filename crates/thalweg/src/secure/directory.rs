//! A secured node's directory: the authority, the node's certificate, an administrator's password, and the settings that
//! follow from them, for the node and for its clients.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::authority::{Authority, Purpose, replace_secret, write_new_secret};

/// The administrator.
pub const ADMIN: &str = "admin";
/// The mechanism by which clients authenticate.
pub const MECHANISM: &str = "SCRAM-SHA-512";
const PASSWORD_FILE: &str = "admin.password";
const JAVA_FILE: &str = "client.properties";
const LIBRDKAFKA_FILE: &str = "librdkafka.properties";
const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const LOGIN_MODULE: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";
/// Random bytes of a password.
const PASSWORD_LEN: usize = 24;

/// The directory, with everything in it.
pub struct Directory {
    dir: PathBuf,
    authority: Authority,
    password: String,
}

impl Directory {
    /// The directory; what it lacks is made.
    pub fn open_or_create(dir: &Path) -> Result<Directory> {
        let authority = Authority::open_or_create(dir)?;
        let dir = std::path::absolute(dir)?;
        let file = dir.join(PASSWORD_FILE);
        let password = match std::fs::read_to_string(&file) {
            Ok(password) => password.trim_end().to_owned(),
            Err(_) => {
                let password = password();
                write_new_secret(&file, &format!("{password}\n"))?;
                password
            }
        };
        Ok(Directory { dir, authority, password })
    }

    /// The administrator's password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Kafka's settings for the node, whose clients reach it by these names and addresses. Signs its certificate anew, so
    /// that it names them and holds for long.
    pub fn node_settings(&self, listeners: &str, hosts: &[String]) -> Result<Vec<(&'static str, String)>> {
        let keystore = self.authority.sign("node", Purpose::Node, hosts)?;
        Ok(vec![
            ("listeners", listeners.to_owned()),
            ("inter.broker.listener.name", "SASL_SSL".to_owned()),
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.location", keystore.display().to_string()),
            ("ssl.truststore.type", "PEM".to_owned()),
            ("ssl.truststore.location", self.authority.certificate_file().display().to_string()),
            ("sasl.enabled.mechanisms", format!("{MECHANISM},SCRAM-SHA-256")),
            ("sasl.mechanism.inter.broker.protocol", MECHANISM.to_owned()),
            ("sasl.jaas.config", self.login()),
            ("authorizer.class.name", AUTHORIZER.to_owned()),
            ("super.users", format!("User:{ADMIN}")),
        ])
    }

    /// The administrator's client settings for Java and for Thalweg's own commands, and the same for librdkafka; written
    /// into files.
    pub fn write_client_settings(&self) -> Result<ClientFiles> {
        let ca = self.authority.certificate_file();
        let ca = ca.display();
        let mut java = String::new();
        for (key, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", MECHANISM),
            ("sasl.jaas.config", &self.login()),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", &ca.to_string()),
        ] {
            writeln!(java, "{key}={value}")?;
        }
        let mut librdkafka = String::new();
        for (key, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanisms", MECHANISM),
            ("sasl.username", ADMIN),
            ("sasl.password", &self.password),
            ("ssl.ca.location", &ca.to_string()),
        ] {
            writeln!(librdkafka, "{key}={value}")?;
        }
        let files =
            ClientFiles { java: self.dir.join(JAVA_FILE), librdkafka: self.dir.join(LIBRDKAFKA_FILE) };
        replace_secret(&files.java, &java)?;
        replace_secret(&files.librdkafka, &librdkafka)?;
        Ok(files)
    }

    fn login(&self) -> String {
        format!("{LOGIN_MODULE} required username=\"{ADMIN}\" password=\"{}\";", self.password)
    }
}

/// Files of client settings.
pub struct ClientFiles {
    /// For Java, and for `--command-config`.
    pub java: PathBuf,
    /// For librdkafka and what is built on it.
    pub librdkafka: PathBuf,
}

/// A password that nobody guesses, without characters that need quotes.
pub fn password() -> String {
    let mut random = [0; PASSWORD_LEN];
    getrandom::fill(&mut random).expect("the system gives randomness");
    URL_SAFE_NO_PAD.encode(random)
}
