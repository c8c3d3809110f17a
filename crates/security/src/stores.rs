//! Certificates and private keys from Kafka's settings: PEM, PKCS12 or JKS files, or PEM text in the setting.
//!
//! The type of a file follows from its first bytes; `ssl.truststore.type` and `ssl.keystore.type` are
//! optional. JKS, Java's own format, is only read (`jks`). JCEKS, BCFKS and other formats are refused.

use std::fmt;
use std::path::{Path, PathBuf};

use p12_keystore::{KeyStore, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::secrets::HIDDEN;
use crate::setting::{InvalidSetting, SettingSource, take_first};
use crate::setting_file;
use jks::{Jks, JksFault};
use pem::Section;

mod jks;
pub mod pem;

/// Maximum file size in bytes. The 150 or so certificates that systems trust take a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The first byte of an ASN.1 sequence, and thus of a PKCS12 file.
const DER_SEQUENCE: u8 = 0x30;
const STORE_PASSWORD: &str = "ssl.keystore.password";
const KEY_PASSWORD: &str = "ssl.key.password";
const TRUST_PASSWORD: &str = "ssl.truststore.password";

/// A certificate chain with its private key.
pub struct Identity {
    /// The own certificate first, then the certificates that lead to a trusted one.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: PrivateKeyDer<'static>,
    /// The setting that contains the key.
    pub setting: &'static str,
    /// The value of the setting, if not secret.
    pub value: String,
    /// The file, if all parts were read from one file.
    pub file: Option<PathBuf>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("setting", &self.setting).finish_non_exhaustive()
    }
}

/// The trusted certificates, and the setting that names them.
#[derive(Debug)]
pub struct TrustedCertificates {
    /// The trusted certificates.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The setting that names the certificates.
    pub setting: &'static str,
    /// The value of the setting.
    pub value: String,
    /// The file, if the setting names one.
    pub file: Option<PathBuf>,
}

/// The content of a setting: PEM text, or the bytes of a file.
struct Source {
    setting: &'static str,
    value: String,
    content: Content,
    file: Option<PathBuf>,
}

enum Content {
    Pem(Vec<Section>),
    Pkcs12(Vec<u8>),
    Jks(Vec<u8>),
}

/// Takes the settings of the trust store.
pub fn take_trusted(take: &mut SettingSource<'_>) -> Result<Option<TrustedCertificates>, InvalidSetting> {
    take_type(take, "ssl.truststore.type")?;
    let password = take(TRUST_PASSWORD);
    let file = take_first(take, &["ssl.truststore.location", "ssl.ca.location"]);
    let inline = take_first(take, &["ssl.truststore.certificates", "ssl.ca.pem"]);
    let source = match (file, inline) {
        (None, None) => return Ok(None),
        (Some((setting, path)), None) => read(setting, path)?,
        (None, Some((setting, text))) => of_text(setting, text)?,
        (Some((setting, path)), Some((other, _))) => {
            return Err(InvalidSetting::new(setting, &path, format!("this or {other}, not both,")));
        }
    };
    let certificates = match &source.content {
        Content::Pem(sections) => certificates(sections),
        Content::Pkcs12(bytes) => {
            let open = |password: &str| Pkcs12Archive::from_pkcs12(bytes, password);
            let archive = unlock(TRUST_PASSWORD, &source.value, password.as_deref(), open)?;
            archive.certs.iter().map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect()
        }
        Content::Jks(bytes) => {
            let store = Jks::read(bytes, password.as_deref())
                .map_err(|fault| of_jks_fault(&source, TRUST_PASSWORD, &fault))?;
            store.trusted.into_iter().map(CertificateDer::from).collect()
        }
    };
    if certificates.is_empty() {
        return Err(InvalidSetting::new(
            source.setting,
            &source.shown(),
            "one with at least one certificate",
        ));
    }
    let value = source.shown();
    Ok(Some(TrustedCertificates { certificates, setting: source.setting, value, file: source.file }))
}

/// Takes the settings of the own certificate and key; `None` if not set.
pub fn take_identity(take: &mut SettingSource<'_>) -> Result<Option<Identity>, InvalidSetting> {
    take_type(take, "ssl.keystore.type")?;
    let store_password = take(STORE_PASSWORD);
    let key_password = take(KEY_PASSWORD);
    let store = take_first(take, &["ssl.keystore.location"]);
    let key = take_part(take, &["ssl.keystore.key", "ssl.key.pem"], "ssl.key.location")?;
    let chain = take_part(
        take,
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
                Content::Jks(bytes) => {
                    of_jks(&source, bytes, store_password.as_deref(), key_password.as_deref()).map(Some)
                }
            }
        }
        (None, Some(key), Some(chain)) => of_pem(&key, &chain, key_password.as_deref()).map(Some),
        (None, Some(key), None) => {
            let expected = format!("the certificate that belongs to {}", key.setting);
            Err(InvalidSetting::missing("ssl.keystore.certificate.chain", expected))
        }
        (None, None, Some(chain)) => Err(InvalidSetting::missing(
            "ssl.keystore.key",
            format!("the key that belongs to {}", chain.setting),
        )),
        (Some((setting, path)), key, chain) => {
            let other = key.or(chain).map_or("ssl.keystore.key", |source| source.setting);
            Err(InvalidSetting::new(setting, &path, format!("this or {other}, not both,")))
        }
    }
}

/// Validates a store type. The value is not used, because the type is detected from the file.
fn take_type(take: &mut SettingSource<'_>, key: &str) -> Result<(), InvalidSetting> {
    let Some(value) = take(key) else { return Ok(()) };
    match value.trim().to_ascii_uppercase().as_str() {
        "PEM" | "PKCS12" | "JKS" => Ok(()),
        _ => Err(InvalidSetting::new(key, &value, "PEM, PKCS12 or JKS")),
    }
}

/// Takes a key or chain: PEM text in a setting, or a PEM file.
fn take_part(
    take: &mut SettingSource<'_>,
    inline: &[&'static str],
    location: &'static str,
) -> Result<Option<Source>, InvalidSetting> {
    let file = take_first(take, &[location]);
    let source = match (take_first(take, inline), file) {
        (Some((setting, text)), _) => of_text(setting, text)?,
        (None, Some((setting, path))) => read(setting, path)?,
        (None, None) => return Ok(None),
    };
    match source.content {
        Content::Pem(_) => Ok(Some(source)),
        Content::Pkcs12(_) | Content::Jks(_) => Err(InvalidSetting::new(
            source.setting,
            &source.value,
            "a file in PEM (stores are for ssl.keystore.location)",
        )),
    }
}

impl Source {
    /// The value of the setting, or a placeholder for PEM text.
    fn shown(&self) -> String {
        let inline = self.value.contains("-----BEGIN");
        if inline { "(the text given)".to_owned() } else { self.value.clone() }
    }
}

fn read(setting: &'static str, path: String) -> Result<Source, InvalidSetting> {
    let unreadable = |error: std::io::Error| {
        InvalidSetting::new(setting, &path, format!("a file that can be read ({error})"))
    };
    let bytes = setting_file::read(Path::new(path.trim()), FILE_BYTES_MAX).map_err(unreadable)?;
    let content = if bytes.starts_with(&jks::MAGIC) {
        Content::Jks(bytes)
    } else if bytes.starts_with(&jks::JCEKS_MAGIC) {
        let expected = format!(
            "PEM, PKCS12 or JKS; this is JCEKS (keytool -importkeystore -srcstoretype JCEKS -srckeystore {path} \
             -destkeystore {path}.p12 -deststoretype PKCS12 converts it)"
        );
        return Err(InvalidSetting::new(setting, &path, expected));
    } else if bytes.first() == Some(&DER_SEQUENCE) {
        Content::Pkcs12(bytes)
    } else {
        let sections = pem::sections(&String::from_utf8_lossy(&bytes))
            .map_err(|fault| InvalidSetting::new(setting, &path, format!("readable PEM ({fault})")))?;
        if sections.is_empty() {
            return Err(InvalidSetting::new(
                setting,
                &path,
                "a file in PEM, PKCS12 or JKS, which this is not",
            ));
        }
        Content::Pem(sections)
    };
    let file = Some(PathBuf::from(path.trim()));
    Ok(Source { setting, value: path, content, file })
}

fn of_text(setting: &'static str, text: String) -> Result<Source, InvalidSetting> {
    let sections = match pem::sections(&text) {
        Ok(sections) if !sections.is_empty() => sections,
        Ok(_) => return Err(InvalidSetting::new(setting, &text, "PEM (-----BEGIN ...)")),
        Err(fault) => {
            return Err(InvalidSetting::new(setting, "(the text given)", format!("readable PEM ({fault})")));
        }
    };
    Ok(Source { setting, value: text, content: Content::Pem(sections), file: None })
}

fn certificates(sections: &[Section]) -> Vec<CertificateDer<'static>> {
    let certificates = sections.iter().filter(|section| section.label == "CERTIFICATE");
    certificates.map(|section| CertificateDer::from(section.der.clone())).collect()
}

/// An identity from a key and a chain in PEM, possibly of the same file.
fn of_pem(key: &Source, chain: &Source, password: Option<&str>) -> Result<Identity, InvalidSetting> {
    let sections = |source: &Source| match &source.content {
        Content::Pem(sections) => sections.iter().map(|s| (s.label.clone(), s.der.clone())).collect(),
        Content::Pkcs12(_) | Content::Jks(_) => Vec::new(),
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
        return Err(InvalidSetting::new(key.setting, &key.shown(), "PEM with a PRIVATE KEY"));
    };
    let chain_certificates = match &chain.content {
        Content::Pem(sections) => certificates(sections),
        Content::Pkcs12(_) | Content::Jks(_) => Vec::new(),
    };
    if chain_certificates.is_empty() {
        return Err(InvalidSetting::new(chain.setting, &chain.shown(), "PEM with a CERTIFICATE"));
    }
    let (setting, value) = (chain.setting, chain.shown());
    Ok(Identity { chain: chain_certificates, key: private, setting, value, file: chain.file.clone() })
}

fn decrypt(der: &[u8], of: &str, password: Option<&str>) -> Result<PrivateKeyDer<'static>, InvalidSetting> {
    let Some(password) = password else {
        return Err(InvalidSetting::missing(KEY_PASSWORD, format!("the password of the key in {of}")));
    };
    let wrong = |_| InvalidSetting::new(KEY_PASSWORD, HIDDEN, format!("the password of the key in {of}"));
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der).map_err(wrong)?;
    let document = encrypted.decrypt(password).map_err(|_| {
        InvalidSetting::new(
            KEY_PASSWORD,
            HIDDEN,
            format!("the password of the key in {of} (which opens keys under PBES2)"),
        )
    })?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(document.as_bytes().to_vec())))
}

fn of_pkcs12(source: &Source, bytes: &[u8], password: Option<&str>) -> Result<Identity, InvalidSetting> {
    let open = |password: &str| KeyStore::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Strict);
    let store = unlock(STORE_PASSWORD, &source.value, password, open)?;
    let Some((_, chain)) = store.private_key_chain() else {
        return Err(InvalidSetting::new(
            source.setting,
            &source.value,
            "a store with a private key and its certificate",
        ));
    };
    let certificates = chain.certs().iter().map(|cert| CertificateDer::from(cert.as_der().to_vec()));
    Ok(Identity {
        chain: certificates.collect(),
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec())),
        setting: source.setting,
        value: source.value.clone(),
        file: source.file.clone(),
    })
}

/// The first key of a store. `ssl.key.password` defaults to the password of the store, as in Kafka.
fn of_jks(
    source: &Source,
    bytes: &[u8],
    store_password: Option<&str>,
    key_password: Option<&str>,
) -> Result<Identity, InvalidSetting> {
    let Some(password) = key_password.or(store_password) else {
        return Err(InvalidSetting::missing(STORE_PASSWORD, format!("the password of {}", source.value)));
    };
    let store =
        Jks::read(bytes, store_password).map_err(|fault| of_jks_fault(source, STORE_PASSWORD, &fault))?;
    let Some(protected) = store.keys.first().filter(|key| !key.chain.is_empty()) else {
        let expected = "a store with a private key and its certificate";
        return Err(InvalidSetting::new(source.setting, &source.value, expected));
    };
    let key = protected.open(password).map_err(|fault| of_jks_fault(source, KEY_PASSWORD, &fault))?;
    Ok(Identity {
        chain: protected.chain.iter().map(|der| CertificateDer::from(der.clone())).collect(),
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)),
        setting: source.setting,
        value: source.value.clone(),
        file: source.file.clone(),
    })
}

fn of_jks_fault(source: &Source, password_key: &str, fault: &JksFault) -> InvalidSetting {
    match fault {
        JksFault::Password => {
            let expected = format!("the password of {}, or an undamaged file,", source.value);
            InvalidSetting::new(password_key, HIDDEN, expected)
        }
        JksFault::KeyPassword => {
            InvalidSetting::new(KEY_PASSWORD, HIDDEN, format!("the password of the key in {}", source.value))
        }
        JksFault::Malformed | JksFault::Version(_) => {
            InvalidSetting::new(source.setting, &source.value, format!("a readable JKS file ({fault})"))
        }
    }
}

/// Opens a PKCS12 store with its password, or with the empty password if none is set.
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
            (None, _) => InvalidSetting::missing(key, of),
            (Some(_), Error::MacError(_)) => InvalidSetting::new(key, HIDDEN, of),
            (Some(_), error) => {
                InvalidSetting::new(key, HIDDEN, format!("{of}, or another PKCS12 file ({error}),"))
            }
        }
    })
}
