//! A secured node's directory: the authority, the node's certificate, an administrator's password, and the settings that
//! follow from them, for the node and for its clients.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thalweg_authority::{Authority, Purpose, replace_secret, write_new_secret};
use thalweg_config::STANDARD_AUTHORIZER_CLASS;

/// The administrator.
pub const ADMIN: &str = "admin";
/// The mechanism by which clients authenticate.
pub const MECHANISM: &str = "SCRAM-SHA-512";
const PASSWORD_FILE: &str = "admin.password";
const JAVA_FILE: &str = "client.properties";
const LIBRDKAFKA_FILE: &str = "librdkafka.properties";
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

    /// Kafka's settings for the node, a line each, whose clients reach it by these names and addresses. Signs its certificate
    /// anew, so that it names them and holds for long.
    pub fn node_settings(&self, listeners: &str, hosts: &[String]) -> Result<String> {
        let keystore = self.authority.sign("node", Purpose::Node, hosts)?;
        Ok(format!(
            "listeners={listeners}\n\
             inter.broker.listener.name=SASL_SSL\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={keystore}\n\
             ssl.truststore.type=PEM\n\
             ssl.truststore.location={ca}\n\
             sasl.enabled.mechanisms={MECHANISM},SCRAM-SHA-256\n\
             sasl.mechanism.inter.broker.protocol={MECHANISM}\n\
             sasl.jaas.config={login}\n\
             authorizer.class.name={STANDARD_AUTHORIZER_CLASS}\n\
             super.users=User:{ADMIN}\n\
             http.security.protocol=SSL\n\
             http.authentication=basic\n",
            keystore = keystore.display(),
            ca = self.authority.certificate_file().display(),
            login = self.login(),
        ))
    }

    /// The administrator's client settings for Java and for Thalweg's own commands, and the same for librdkafka; written
    /// into files.
    pub fn write_client_settings(&self) -> Result<ClientFiles> {
        let ca = self.authority.certificate_file();
        let java = format!(
            "security.protocol=SASL_SSL\n\
             sasl.mechanism={MECHANISM}\n\
             sasl.jaas.config={login}\n\
             ssl.truststore.type=PEM\n\
             ssl.truststore.location={ca}\n",
            login = self.login(),
            ca = ca.display(),
        );
        let librdkafka = format!(
            "security.protocol=SASL_SSL\n\
             sasl.mechanisms={MECHANISM}\n\
             sasl.username={ADMIN}\n\
             sasl.password={password}\n\
             ssl.ca.location={ca}\n",
            password = self.password,
            ca = ca.display(),
        );
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
