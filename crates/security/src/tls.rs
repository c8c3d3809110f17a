//! TLS settings shared by clients and servers: versions, cipher suites and trusted certificates; and the
//! server side ([`ServerTls`]).
//!
//! The cryptography is ring's (docs/decisions/0009-tls-by-rustls-and-ring.md). rustls has no renegotiation: a
//! peer that asks for it is refused.

mod certificate;
mod client_certificates;
mod error;
mod expiry;
mod fault;
mod own_key;
mod revocation;
mod server;
mod trust;

use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use crate::setting::{InvalidSetting, SettingSource, take_first};
pub use certificate::CertificateHolder;
pub use fault::TlsHandshakeFault;
pub use own_key::certified;
pub use revocation::{CRL_LOCATION, Revocation};
pub use server::{IncompatibleCertificate, PeerCertificate, ServerTls, ServerTlsSession};
pub use trust::Trust;

const ENABLED: &str = "ssl.enabled.protocols";
const CIPHERS: &str = "ssl.cipher.suites";

/// Takes `ssl.protocol` and `ssl.enabled.protocols`.
pub fn take_versions(
    take: &mut SettingSource<'_>,
) -> Result<Vec<&'static SupportedProtocolVersion>, InvalidSetting> {
    const KEY: &str = "ssl.protocol";
    let only_12 = match take(KEY) {
        None => false,
        Some(name) => match name.trim() {
            "TLS" | "TLSv1.3" => false,
            "TLSv1.2" => true,
            _ => return Err(InvalidSetting::new(KEY, &name, "TLS, TLSv1.3, TLSv1.2")),
        },
    };
    let Some((_, list)) = take_first(take, &[ENABLED]) else {
        return Ok(if only_12 { vec![&TLS12] } else { vec![&TLS13, &TLS12] });
    };
    let versions = list.split(',').map(|name| match name.trim() {
        "TLSv1.2" => Ok(&TLS12),
        "TLSv1.3" => Ok(&TLS13),
        _ => Err(InvalidSetting::new(ENABLED, &list, "TLSv1.2, TLSv1.3")),
    });
    versions.collect()
}

/// Takes `ssl.cipher.suites`. Returns the cryptography provider restricted to these suites.
pub fn take_ciphers(take: &mut SettingSource<'_>) -> Result<CryptoProvider, InvalidSetting> {
    let mut provider = ring::default_provider();
    let Some((_, list)) = take_first(take, &[CIPHERS]) else { return Ok(provider) };
    let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
    let all: Vec<String> = provider.cipher_suites.iter().map(cipher_name).collect();
    provider.cipher_suites.retain(|suite| wanted.contains(&cipher_name(suite).as_str()));
    if provider.cipher_suites.is_empty() {
        return Err(InvalidSetting::new(CIPHERS, &list, format!("one of {} or more", all.join(", "))));
    }
    Ok(provider)
}

/// The error if no enabled version supports a configured suite.
pub fn no_suite(error: &rustls::Error) -> InvalidSetting {
    InvalidSetting::new(CIPHERS, "(those given)", format!("others, for {ENABLED} ({error}),"))
}

/// Java's name of a suite: rustls' name, except for the prefix of TLS 1.3 suites.
pub fn cipher_name(suite: &SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
}
