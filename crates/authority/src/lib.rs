//! A certificate authority in a directory, its certificates, and the other parts of a secured cluster:
//! passwords, and the settings of nodes and clients.
//!
//! Keys are ECDSA P-256: every client supports this curve, and a handshake costs a tenth of one with RSA.
//! Only the owner can read key files, and existing keys are never overwritten.

mod certificate;
mod directory;
mod error;
mod secret;
mod settings;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use chrono::{Datelike, Duration, NaiveDate};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

pub use certificate::Certificate;
pub use directory::{ADMIN, ClientFiles, Directory, Founding, NODE, NodeCertificate, Password, STREAMS};
pub use error::{AuthorityError, FileError};
pub use secret::{password, replace_secret, write_new_secret};
pub use settings::{LoginModule, MECHANISM, Settings, jaas, keystore, truststore};

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
/// Validity of the authority's certificate in days.
const CA_DAYS: i64 = 3650;
/// Validity of signed certificates in days.
const SIGNED_DAYS: i64 = 825;

/// Signs certificates for nodes and clients.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A node, as a server, and as a client of other nodes.
    Node,
    Client,
}

impl Authority {
    /// Opens the authority of a directory, created if missing.
    pub fn open_or_create(dir: &Path) -> Result<Authority, AuthorityError> {
        make_directory(dir)?;
        let dir = absolute(dir)?;
        if !is_there(&dir.join(CA_KEY))? {
            // The key of a concurrent process may win.
            secret::write_first_secret(&dir.join(CA_KEY), &KeyPair::generate()?.serialize_pem())?;
        }
        if !is_there(&dir.join(CA_CERTIFICATE))? {
            certify(&dir)?;
        }
        Authority::open(&dir)
    }

    /// Opens the existing authority of a directory.
    pub fn open(dir: &Path) -> Result<Authority, AuthorityError> {
        let dir = absolute(dir)?;
        let (key, certificate) = (read(&dir.join(CA_KEY))?, read(&dir.join(CA_CERTIFICATE))?);
        let key = KeyPair::from_pem(&key).map_err(damaged(dir.join(CA_KEY)))?;
        let issuer =
            Issuer::from_ca_cert_pem(&certificate, key).map_err(damaged(dir.join(CA_CERTIFICATE)))?;
        Ok(Authority { dir, issuer, certificate })
    }

    /// The file of the authority's certificate, trusted by peers.
    pub fn certificate_file(&self) -> PathBuf {
        self.dir.join(CA_CERTIFICATE)
    }

    /// Signs a certificate into `NAME.pem`, which also contains the key and the authority's certificate:
    /// Kafka's PEM keystore. An existing key is reused.
    pub fn sign(&self, name: &str, purpose: Purpose, hosts: &[String]) -> Result<PathBuf, AuthorityError> {
        self.sign_for(name, purpose, hosts, SIGNED_DAYS)
    }

    fn sign_for(
        &self,
        name: &str,
        purpose: Purpose,
        hosts: &[String],
        days: i64,
    ) -> Result<PathBuf, AuthorityError> {
        let (pem, key_file) = (self.dir.join(format!("{name}.pem")), self.dir.join(format!("{name}.key")));
        let key = match is_there(&key_file)? {
            true => KeyPair::from_pem(&read(&key_file)?).map_err(damaged(key_file))?,
            false => {
                let key = KeyPair::generate()?;
                write_new_secret(&key_file, &key.serialize_pem())?;
                key
            }
        };
        let mut params = CertificateParams::new(hosts.to_vec())
            .map_err(|source| AuthorityError::Hosts { hosts: hosts.join(", "), source })?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match purpose {
            Purpose::Node => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            Purpose::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        hold_for(&mut params, days);
        let signed = params.signed_by(&key, &self.issuer)?;
        let text = format!("{}{}{}", key.serialize_pem(), signed.pem(), self.certificate);
        replace_secret(&pem, &text)?;
        // Clients such as librdkafka want certificate and key in a file each.
        replace_secret(&self.dir.join(format!("{name}.crt")), &signed.pem())?;
        Ok(pem)
    }
}

/// Creates a directory and its missing parents, accessible to the owner only.
pub fn make_directory(dir: &Path) -> Result<(), AuthorityError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    Ok(made.map_err(FileError::at("create", dir))?)
}

/// The absolute path, because client settings contain paths of this directory.
fn absolute(dir: &Path) -> Result<PathBuf, AuthorityError> {
    Ok(std::path::absolute(dir).map_err(FileError::at("read", dir))?)
}

fn damaged(path: PathBuf) -> impl FnOnce(rcgen::Error) -> AuthorityError {
    move |source| AuthorityError::Damaged { path, source }
}

/// Signs the authority's own certificate. Certificates signed with the same key stay valid.
fn certify(dir: &Path) -> Result<(), AuthorityError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Thalweg cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    hold_for(&mut params, CA_DAYS);
    let key_file = dir.join(CA_KEY);
    let key = KeyPair::from_pem(&read(&key_file)?).map_err(damaged(key_file))?;
    let certificate = params.self_signed(&key)?;
    secret::write_first_public(&dir.join(CA_CERTIFICATE), &certificate.pem()).map(drop)
}

/// Sets the validity, starting yesterday because clocks differ.
fn hold_for(params: &mut CertificateParams, days: i64) {
    let date = |day: NaiveDate| {
        let part = |number: u32| u8::try_from(number).expect("days and months are small");
        date_time_ymd(day.year(), part(day.month()), part(day.day()))
    };
    let today = chrono::Local::now().date_naive();
    params.not_before = date(today - Duration::days(1));
    params.not_after = date(today + Duration::days(days));
}

/// True if a file exists. Returns an error if the check fails.
fn is_there(file: &Path) -> Result<bool, AuthorityError> {
    Ok(file.try_exists().map_err(FileError::at("read", file))?)
}

fn read(file: &Path) -> Result<String, AuthorityError> {
    Ok(std::fs::read_to_string(file).map_err(FileError::at("read", file))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_authority_is_made_once_and_its_keys_are_kept_from_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().join("security");
        let first = Authority::open_or_create(&home).expect("a new one");
        let pem = first.sign("node", Purpose::Node, &["localhost".to_owned()]).expect("a certificate");
        let again = Authority::open_or_create(&home).expect("the same");
        assert_eq!(first.certificate, again.certificate);
        let key = |text: &str| text.split_once("-----BEGIN CERTIFICATE").map(|(key, _)| key.to_owned());
        let before = std::fs::read_to_string(&pem).expect("it was written");
        again.sign("node", Purpose::Node, &["other".to_owned()]).expect("signed anew");
        let after = std::fs::read_to_string(&pem).expect("it is there");
        assert!(key(&before).is_some_and(|before| key(&after) == Some(before)), "the key stays");
        assert_ne!(before, after, "the hosts differ");
        let alone = std::fs::read_to_string(pem.with_extension("crt")).expect("it was written");
        assert!(after.contains(&alone) && alone.matches("-----BEGIN").count() == 1, "{alone}");
        for file in ["ca.key", "node.key", "node.pem"] {
            let mode = std::fs::metadata(home.join(file)).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let Err(none) = Authority::open(dir.path()) else { panic!("there is none") };
        assert!(none.to_string().contains("ca.key"), "{none}");
        let authority = Authority::open_or_create(dir.path()).expect("a new one");
        let Err(host) = authority.sign("node", Purpose::Node, &["\u{e9}".to_owned()]) else {
            panic!("no name of a host")
        };
        assert!(host.to_string().starts_with("the hosts \u{e9} are not all names"), "{host}");
        std::fs::write(dir.path().join("ca.key"), "nonsense").expect("it can be written");
        let Err(damaged) = Authority::open(dir.path()) else { panic!("it is damaged") };
        assert!(damaged.to_string().contains("ca.key is not in PEM"), "{damaged}");
    }
}
