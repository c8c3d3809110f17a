//! A certificate authority in a directory, and the certificates that it signs.
//!
//! Keys are ECDSA P-256: every client knows it, and a handshake costs a tenth of RSA's. Files with keys can be read by their
//! owner only; an existing key is never written over.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use chrono::{Datelike, Duration, NaiveDate};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
/// How long the authority's own certificate holds.
const CA_DAYS: i64 = 3650;
/// How long those that it signs hold.
const SIGNED_DAYS: i64 = 825;

/// Signs certificates for nodes and clients.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A node: it serves, and connects to other nodes.
    Node,
    /// A client.
    Client,
}

impl Authority {
    /// The authority of a directory; made where there is none yet.
    pub fn open_or_create(dir: &Path) -> Result<Authority> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("Cannot create {}", dir.display()))?;
        // Clients get its paths in their settings.
        let dir = std::path::absolute(dir)?;
        if !dir.join(CA_KEY).exists() {
            create(&dir)?;
        }
        Authority::open(&dir)
    }

    /// The authority of a directory.
    pub fn open(dir: &Path) -> Result<Authority> {
        let dir = std::path::absolute(dir)?;
        let (key, certificate) = (read(&dir.join(CA_KEY))?, read(&dir.join(CA_CERTIFICATE))?);
        let wrong = |file: &str| format!("{} is not in PEM, or damaged", dir.join(file).display());
        let key = KeyPair::from_pem(&key).with_context(|| wrong(CA_KEY))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).with_context(|| wrong(CA_CERTIFICATE))?;
        Ok(Authority { dir, issuer, certificate })
    }

    /// The file with its certificate, which peers trust.
    pub fn certificate_file(&self) -> PathBuf {
        self.dir.join(CA_CERTIFICATE)
    }

    /// Signs a certificate into `NAME.pem`, with the key and the authority's certificate beside it: Kafka's PEM keystore.
    /// An existing key is used again.
    pub fn sign(&self, name: &str, purpose: Purpose, hosts: &[String]) -> Result<PathBuf> {
        let (pem, key_file) = (self.dir.join(format!("{name}.pem")), self.dir.join(format!("{name}.key")));
        let key = match key_file.exists() {
            true => KeyPair::from_pem(&read(&key_file)?)
                .with_context(|| format!("{} is not a private key in PEM", key_file.display()))?,
            false => {
                let key = KeyPair::generate()?;
                write_new_secret(&key_file, &key.serialize_pem())?;
                key
            }
        };
        let mut params = CertificateParams::new(hosts.to_vec())
            .with_context(|| format!("the hosts {} are not all names or addresses", hosts.join(", ")))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match purpose {
            Purpose::Node => {
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
            }
            Purpose::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        hold_for(&mut params, SIGNED_DAYS);
        let signed = params.signed_by(&key, &self.issuer)?;
        let text = format!("{}{}{}", key.serialize_pem(), signed.pem(), self.certificate);
        replace_secret(&pem, &text)?;
        Ok(pem)
    }
}

fn create(dir: &Path) -> Result<()> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Thalweg cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    hold_for(&mut params, CA_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    // The key last: where it is, everything is.
    std::fs::write(dir.join(CA_CERTIFICATE), certificate.pem())?;
    write_new_secret(&dir.join(CA_KEY), &key.serialize_pem())
}

/// From yesterday, since clocks differ.
fn hold_for(params: &mut CertificateParams, days: i64) {
    let date = |day: NaiveDate| {
        let part = |number: u32| u8::try_from(number).expect("days and months are small");
        date_time_ymd(day.year(), part(day.month()), part(day.day()))
    };
    let today = chrono::Local::now().date_naive();
    params.not_before = date(today - Duration::days(1));
    params.not_after = date(today + Duration::days(days));
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("Cannot read {}", file.display()))
}

/// Writes a file that only its owner may read.
#[expect(clippy::disallowed_types, reason = "a secret of the command line is no data of the log")]
pub fn write_new_secret(file: &Path, text: &str) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(file).and_then(|mut open| {
        open.write_all(text.as_bytes())?;
        open.sync_all()
    });
    written.with_context(|| format!("Cannot write {}", file.display()))
}

/// The same, in place of what is there: a reader finds the one or the other, whole.
pub fn replace_secret(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    // What an interrupted attempt left.
    let _ = std::fs::remove_file(&new);
    write_new_secret(&new, text)?;
    std::fs::rename(&new, file).with_context(|| format!("Cannot write {}", file.display()))
}
