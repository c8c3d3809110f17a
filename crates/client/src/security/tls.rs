//! TLS 1.2 and 1.3 by rustls, from Kafka's `ssl.` settings; and errors of handshakes, in terms of those settings.
//!
//! The broker's certificate must lead to a trusted one, or be one: brokers often show a certificate that signs itself, and Java
//! takes that too. The name is checked apart from it, since Kafka lets it be left out
//! (`ssl.endpoint.identification.algorithm=`).

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion};
use tokio_rustls::TlsConnector;

use super::store::{self, Identity, Trusted};
use super::{invalid, missing, take_first};
use crate::byte_stream::ByteStream;
use crate::error::TlsFault;
use crate::properties::{InvalidSetting, Properties};

const HOST_CHECK: &str = "ssl.endpoint.identification.algorithm";

/// How streams are wrapped.
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// None where the system's certificates are trusted.
    pub(super) trusted: Option<Vec<CertificateDer<'static>>>,
    pub(super) identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(super) check_host: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("trusted", &self.trusted.as_ref().map(Vec::len))
            .field("identity", &self.identity.is_some())
            .field("check_host", &self.check_host)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Takes the `ssl.` settings.
    pub(super) fn take(properties: &mut Properties) -> Result<Tls, InvalidSetting> {
        let trusted = store::take_trusted(properties)?;
        let identity = store::take_identity(properties)?;
        let check_host = match properties.take(HOST_CHECK) {
            None => true,
            Some(name) => match name.trim().to_ascii_lowercase().as_str() {
                "https" => true,
                // librdkafka's word for it.
                "" | "none" => false,
                _ => {
                    return Err(invalid(
                        HOST_CHECK,
                        &name,
                        "https, or nothing for no check of the host name,",
                    ));
                }
            },
        };
        let versions = take_versions(properties)?;
        let provider = Arc::new(take_ciphers(properties)?);
        let roots = roots(trusted.as_ref())?;
        let verifier = Arc::new(Verifier {
            roots,
            own: trusted.as_ref().map(|trusted| trusted.certificates.clone()).unwrap_or_default(),
            check_host,
            algorithms: provider.signature_verification_algorithms,
        });
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| {
                let key = "ssl.cipher.suites";
                invalid(key, "(those given)", format!("others, for ssl.enabled.protocols ({error}),"))
            })?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &identity {
            None => config.with_no_client_auth(),
            Some(Identity { chain, key, setting, value }) => config
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| invalid(setting, value, format!("a certificate with its key ({error})")))?,
        };
        Ok(Tls {
            config: Arc::new(config),
            trusted: trusted.map(|trusted| trusted.certificates),
            identity: identity.map(|identity| (identity.chain, identity.key)),
            check_host,
        })
    }

    /// Begins TLS on a stream to `address`.
    pub(crate) async fn wrap(
        &self,
        stream: Box<dyn ByteStream>,
        address: &str,
    ) -> Result<Box<dyn ByteStream>, TlsFault> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsFault::HostName(host.to_owned()))?;
        match TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(TlsFault::of(&error).unwrap_or_else(|| match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    TlsFault::Closed
                }
                _ => TlsFault::Other(error.to_string()),
            })),
        }
    }
}

/// The certificates that everything must lead to.
fn roots(trusted: Option<&Trusted>) -> Result<RootCertStore, InvalidSetting> {
    let mut roots = RootCertStore::empty();
    match trusted {
        Some(Trusted { certificates, setting, value }) => {
            let (added, _) = roots.add_parsable_certificates(certificates.iter().cloned());
            if added == 0 {
                return Err(invalid(
                    setting,
                    value,
                    "one with certificates that can be read (X.509, version 3)",
                ));
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(system.certs);
            if added == 0 {
                let key = "ssl.truststore.location";
                return Err(missing(key, "a file of certificates to trust, of which this system has none,"));
            }
        }
    }
    Ok(roots)
}

fn take_versions(
    properties: &mut Properties,
) -> Result<Vec<&'static SupportedProtocolVersion>, InvalidSetting> {
    const KEY: &str = "ssl.enabled.protocols";
    let newest = [("TLS", false), ("TLSv1.3", false), ("TLSv1.2", true)];
    let only_12 = properties.take_choice("ssl.protocol", false, &newest)?;
    let Some((_, list)) = take_first(properties, &[KEY]) else {
        return Ok(if only_12 { vec![&TLS12] } else { vec![&TLS13, &TLS12] });
    };
    let versions = list.split(',').map(|name| match name.trim() {
        "TLSv1.2" => Ok(&TLS12),
        "TLSv1.3" => Ok(&TLS13),
        _ => Err(invalid(KEY, &list, "TLSv1.2, TLSv1.3")),
    });
    versions.collect()
}

/// What does the work, with the ciphers that `ssl.cipher.suites` leaves.
fn take_ciphers(properties: &mut Properties) -> Result<CryptoProvider, InvalidSetting> {
    const KEY: &str = "ssl.cipher.suites";
    let mut provider = ring::default_provider();
    let Some((_, list)) = take_first(properties, &[KEY]) else { return Ok(provider) };
    let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
    // Their names are Java's, but for the prefix of those of TLS 1.3.
    let name = |suite: &rustls::SupportedCipherSuite| {
        suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
    };
    let all: Vec<String> = provider.cipher_suites.iter().map(name).collect();
    provider.cipher_suites.retain(|suite| wanted.contains(&name(suite).as_str()));
    if provider.cipher_suites.is_empty() {
        return Err(invalid(KEY, &list, format!("one of {} or more", all.join(", "))));
    }
    Ok(provider)
}

/// Checks the broker's certificate.
struct Verifier {
    roots: RootCertStore,
    /// The certificates that the user named, which a broker may show itself.
    own: Vec<CertificateDer<'static>>,
    check_host: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if !self.own.iter().any(|own| **own == **end_entity) {
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &self.roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if self.check_host {
            verify_server_name(&parsed, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
