//! Certificates and private keys from Kafka's settings: PEM or PKCS12 files, or PEM text in the setting.
//!
//! The first bytes of a file tell its type; `ssl.truststore.type` and `ssl.keystore.type` need not be set. Java's own
//! format, JKS, is refused with the command that converts it: only Java writes it, and Java has written PKCS12 by
//! default since 9.

use std::path::Path;

use p12_keystore::{KeyStore, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::pem::{self, Section};
use super::{invalid, missing, take_first};
use crate::properties::{InvalidSetting, Properties};
use crate::secrets::HIDDEN;

/// The largest file that is read. Systems trust some 150 certificates in a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
const JKS_MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// What an ASN.1 sequence begins with, and so a PKCS12 file.
const DER_SEQUENCE: u8 = 0x30;

/// A certificate with those that lead from it to a trusted one, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// The setting that contains it.
    pub(super) setting: &'static str,
    pub(super) value: String,
}

/// The certificates to trust, and the setting that names them. None where the system's are to be trusted.
pub(super) struct Trusted {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) setting: &'static str,
    pub(super) value: String,
}

/// A text or the bytes of a file, and its setting.
struct Source {
    setting: &'static str,
    value: String,
    content: Content,
}

enum Content {
    Pem(Vec<Section>),
    Pkcs12(Vec<u8>),
}

/// Takes the settings of trusted certificates.
pub(super) fn take_trusted(properties: &mut Properties) -> Result<Option<Trusted>, InvalidSetting> {
    take_type(properties, "ssl.truststore.type")?;
    let password = properties.take("ssl.truststore.password");
    let file = take_first(properties, &["ssl.truststore.location", "ssl.ca.location"]);
    let inline = take_first(properties, &["ssl.truststore.certificates", "ssl.ca.pem"]);
    let source = match (file, inline) {
        (None, None) => return Ok(None),
        (Some((setting, path)), None) => read(setting, path)?,
        (None, Some((setting, text))) => of_text(setting, text)?,
        (Some((setting, path)), Some((other, _))) => {
            return Err(invalid(setting, &path, format!("this or {other}, not both,")));
        }
    };
    let certificates = match &source.content {
        Content::Pem(sections) => certificates(sections),
        Content::Pkcs12(bytes) => {
            let open = |password: &str| Pkcs12Archive::from_pkcs12(bytes, password);
            let archive = unlock("ssl.truststore.password", &source.value, password.as_deref(), open)?;
            archive.certs.iter().map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect()
        }
    };
    if certificates.is_empty() {
        return Err(invalid(source.setting, &source.shown(), "one with at least one certificate"));
    }
    Ok(Some(Trusted { certificates, setting: source.setting, value: source.shown() }))
}

/// Takes the settings of the client's identity; `None` without a client certificate.
pub(super) fn take_identity(properties: &mut Properties) -> Result<Option<Identity>, InvalidSetting> {
    take_type(properties, "ssl.keystore.type")?;
    let store_password = properties.take("ssl.keystore.password");
    let key_password = properties.take("ssl.key.password");
    let store = take_first(properties, &["ssl.keystore.location"]);
    let key = take_part(properties, &["ssl.keystore.key", "ssl.key.pem"], "ssl.key.location")?;
    let chain = take_part(
        properties,
        &["ssl.keystore.certificate.chain", "ssl.certificate.pem"],
        "ssl.certificate.location",
    )?;
    match (store, key, chain) {
        (None, None, None) => Ok(None),
        (Some((setting, path)), None, None) => {
            let source = read(setting, path)?;
            match &source.content {
                Content::Pem(_) => of_pem(&source, &source, key_password.as_deref()).map(Some),
                Content::Pkcs12(bytes) => {
                    let password = store_password.or(key_password);
                    of_pkcs12(&source, bytes, password.as_deref()).map(Some)
                }
            }
        }
        (None, Some(key), Some(chain)) => of_pem(&key, &chain, key_password.as_deref()).map(Some),
        (None, Some(key), None) => {
            let expected = format!("the certificate that belongs to {}", key.setting);
            Err(missing("ssl.keystore.certificate.chain", expected))
        }
        (None, None, Some(chain)) => {
            Err(missing("ssl.keystore.key", format!("the key that belongs to {}", chain.setting)))
        }
        (Some((setting, path)), key, chain) => {
            let other = key.or(chain).map_or("ssl.keystore.key", |source| source.setting);
            Err(invalid(setting, &path, format!("this or {other}, not both,")))
        }
    }
}

/// The type is detected from the file; an unknown type is an error anyway.
fn take_type(properties: &mut Properties, key: &str) -> Result<(), InvalidSetting> {
    let Some(value) = properties.take(key) else { return Ok(()) };
    match value.trim().to_ascii_uppercase().as_str() {
        "PEM" | "PKCS12" | "JKS" => Ok(()),
        _ => Err(invalid(key, &value, "PEM or PKCS12")),
    }
}

/// A key or a chain: PEM in a setting, or a PEM file.
fn take_part(
    properties: &mut Properties,
    inline: &[&'static str],
    location: &'static str,
) -> Result<Option<Source>, InvalidSetting> {
    let file = take_first(properties, &[location]);
    let source = match (take_first(properties, inline), file) {
        (Some((setting, text)), _) => of_text(setting, text)?,
        (None, Some((setting, path))) => read(setting, path)?,
        (None, None) => return Ok(None),
    };
    match source.content {
        Content::Pem(_) => Ok(Some(source)),
        Content::Pkcs12(_) => {
            Err(invalid(source.setting, &source.value, "a file in PEM (PKCS12 is for ssl.keystore.location)"))
        }
    }
}

impl Source {
    /// The setting's value, where it is short and no secret.
    fn shown(&self) -> String {
        let inline = self.value.contains("-----BEGIN");
        if inline { "(the text given)".to_owned() } else { self.value.clone() }
    }
}

fn read(setting: &'static str, path: String) -> Result<Source, InvalidSetting> {
    let unreadable =
        |error: std::io::Error| invalid(setting, &path, format!("a file that can be read ({error})"));
    let length = std::fs::metadata(Path::new(path.trim())).map_err(unreadable)?.len();
    if length > FILE_BYTES_MAX {
        return Err(invalid(setting, &path, format!("a file of at most {FILE_BYTES_MAX} bytes")));
    }
    let bytes = std::fs::read(Path::new(path.trim())).map_err(unreadable)?;
    let content = if bytes.starts_with(&JKS_MAGIC) {
        let expected = format!(
            "PEM or PKCS12; this is JKS (keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 \
             -deststoretype PKCS12 converts it)"
        );
        return Err(invalid(setting, &path, expected));
    } else if bytes.first() == Some(&DER_SEQUENCE) {
        Content::Pkcs12(bytes)
    } else {
        let sections = pem::sections(&String::from_utf8_lossy(&bytes))
            .map_err(|fault| invalid(setting, &path, format!("readable PEM ({fault})")))?;
        if sections.is_empty() {
            return Err(invalid(setting, &path, "a file in PEM or PKCS12, which this is not"));
        }
        Content::Pem(sections)
    };
    Ok(Source { setting, value: path, content })
}

fn of_text(setting: &'static str, text: String) -> Result<Source, InvalidSetting> {
    let sections = match pem::sections(&text) {
        Ok(sections) if !sections.is_empty() => sections,
        Ok(_) => return Err(invalid(setting, &text, "PEM (-----BEGIN ...)")),
        Err(fault) => return Err(invalid(setting, "(the text given)", format!("readable PEM ({fault})"))),
    };
    Ok(Source { setting, value: text, content: Content::Pem(sections) })
}

fn certificates(sections: &[Section]) -> Vec<CertificateDer<'static>> {
    let certificates = sections.iter().filter(|section| section.label == "CERTIFICATE");
    certificates.map(|section| CertificateDer::from(section.der.clone())).collect()
}

/// An identity of a key and a chain in PEM, perhaps of the same file.
fn of_pem(key: &Source, chain: &Source, password: Option<&str>) -> Result<Identity, InvalidSetting> {
    let sections = |source: &Source| match &source.content {
        Content::Pem(sections) => sections.iter().map(|s| (s.label.clone(), s.der.clone())).collect(),
        Content::Pkcs12(_) => Vec::new(),
    };
    let mut private = None;
    for (label, der) in sections(key) {
        private = match label.as_str() {
            "PRIVATE KEY" => Some(PrivateKeyDer::Pkcs8(der.into())),
            "RSA PRIVATE KEY" => Some(PrivateKeyDer::Pkcs1(der.into())),
            "EC PRIVATE KEY" => Some(PrivateKeyDer::Sec1(der.into())),
            "ENCRYPTED PRIVATE KEY" => Some(decrypt(&der, &key.shown(), password)?),
            _ => continue,
        };
        break;
    }
    let Some(private) = private else {
        return Err(invalid(key.setting, &key.shown(), "PEM with a PRIVATE KEY"));
    };
    let chain_certificates = match &chain.content {
        Content::Pem(sections) => certificates(sections),
        Content::Pkcs12(_) => Vec::new(),
    };
    if chain_certificates.is_empty() {
        return Err(invalid(chain.setting, &chain.shown(), "PEM with a CERTIFICATE"));
    }
    let (setting, value) = (chain.setting, chain.shown());
    Ok(Identity { chain: chain_certificates, key: private, setting, value })
}

fn decrypt(der: &[u8], of: &str, password: Option<&str>) -> Result<PrivateKeyDer<'static>, InvalidSetting> {
    const KEY: &str = "ssl.key.password";
    let Some(password) = password else {
        return Err(missing(KEY, format!("the password of the key in {of}")));
    };
    let wrong = |_| invalid(KEY, HIDDEN, format!("the password of the key in {of}"));
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der).map_err(wrong)?;
    let document = encrypted.decrypt(password).map_err(|_| {
        invalid(KEY, HIDDEN, format!("the password of the key in {of} (which opens keys under PBES2)"))
    })?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(document.as_bytes().to_vec())))
}

fn of_pkcs12(source: &Source, bytes: &[u8], password: Option<&str>) -> Result<Identity, InvalidSetting> {
    let open = |password: &str| KeyStore::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Strict);
    let store = unlock("ssl.keystore.password", &source.value, password, open)?;
    let Some((_, chain)) = store.private_key_chain() else {
        return Err(invalid(source.setting, &source.value, "a store with a private key and its certificate"));
    };
    let certificates = chain.certs().iter().map(|cert| CertificateDer::from(cert.as_der().to_vec()));
    Ok(Identity {
        chain: certificates.collect(),
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec())),
        setting: source.setting,
        value: source.value.clone(),
    })
}

/// Opens a PKCS12 store with its password; without one, it may have the empty one.
fn unlock<T>(
    key: &str,
    path: &str,
    password: Option<&str>,
    open: impl FnOnce(&str) -> Result<T, p12_keystore::error::Error>,
) -> Result<T, InvalidSetting> {
    use p12_keystore::error::Error;
    open(password.unwrap_or_default()).map_err(|error| {
        let of = format!("the password of {path}");
        match (password, error) {
            (None, _) => missing(key, of),
            (Some(_), Error::MacError(_)) => invalid(key, HIDDEN, of),
            (Some(_), error) => invalid(key, HIDDEN, format!("{of}, or another PKCS12 file ({error}),")),
        }
    })
}
