//! TLS 1.2 and 1.3 by rustls, from Kafka's `ssl.` settings, and handshake errors in terms of these settings.
//!
//! The broker's certificate must lead to a trusted one or be trusted itself: brokers often present a
//! self-signed certificate, and Java accepts it too. The host name is checked separately, because Kafka's
//! setting can disable that check (`ssl.endpoint.identification.algorithm=`).

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, ProtocolVersion, SignatureScheme};
use thalweg_security::InvalidSetting;
use thalweg_security::stores;
use thalweg_security::tls::{self as shared, CertificateHolder, Trust};
use tokio_rustls::TlsConnector;

use crate::byte_stream::ByteStream;
use crate::error::TlsFault;
use crate::properties::Properties;

const HOST_CHECK: &str = "ssl.endpoint.identification.algorithm";

/// TLS settings of a client.
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    /// `None` if the system's certificates are trusted.
    pub(super) trusted: Option<Vec<CertificateDer<'static>>>,
    pub(super) identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(super) check_host: bool,
    /// The file of `ssl.crl.location`.
    pub(super) revocation_file: Option<PathBuf>,
    pub(super) session: OnceLock<TlsSession>,
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    /// The version in the notation of `ssl.enabled.protocols`: `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite in the notation of `ssl.cipher.suites`.
    pub cipher_suite: String,
}

impl TlsSession {
    fn of(connection: &ClientConnection) -> Option<TlsSession> {
        let version = match connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => return None,
        };
        let cipher_suite = shared::cipher_name(&connection.negotiated_cipher_suite()?);
        Some(TlsSession { version, cipher_suite })
    }
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
        let take = &mut |key: &str| properties.take(key);
        let trusted = stores::take_trusted(take)?;
        let identity = stores::take_identity(take)?;
        let check_host = match take(HOST_CHECK) {
            None => true,
            Some(name) => match name.trim().to_ascii_lowercase().as_str() {
                "https" => true,
                // librdkafka's value for no check.
                "" | "none" => false,
                _ => {
                    return Err(InvalidSetting::new(
                        HOST_CHECK,
                        &name,
                        "https, or nothing for no check of the host name,",
                    ));
                }
            },
        };
        let revocation = shared::Revocation::take(take)?;
        let revocation_file = revocation.as_ref().map(|revocation| revocation.file().to_owned());
        let versions = shared::take_versions(take)?;
        let provider = Arc::new(shared::take_ciphers(take)?);
        let trust = Trust::new(trusted.as_ref(), revocation, &provider)?;
        let verifier = Arc::new(Verifier { trust, check_host });
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| shared::no_suite(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &identity {
            None => config.with_no_client_auth(),
            Some(identity) => config.with_client_cert_resolver(shared::certified(identity, &provider)?),
        };
        Ok(Tls {
            config: Arc::new(config),
            trusted: trusted.map(|trusted| trusted.certificates),
            identity: identity.map(|identity| (identity.chain, identity.key)),
            check_host,
            revocation_file,
            session: OnceLock::new(),
        })
    }

    /// Starts TLS on a stream to `address`.
    pub(crate) async fn wrap(
        &self,
        stream: Box<dyn ByteStream>,
        address: &str,
    ) -> Result<Box<dyn ByteStream>, TlsFault> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsFault::HostName(host.to_owned()))?;
        match TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await {
            Ok(stream) => {
                if let Some(session) = TlsSession::of(stream.get_ref().1) {
                    self.session.get_or_init(|| session);
                }
                Ok(Box::new(stream))
            }
            Err(error) => Err(TlsFault::of(&error).unwrap_or_else(|| match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    TlsFault::Closed
                }
                _ => TlsFault::Other(error.to_string()),
            })),
        }
    }
}

/// Checks the broker's certificate.
struct Verifier {
    trust: Trust,
    check_host: bool,
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
        self.trust.check(CertificateHolder::Server, end_entity, intermediates, now)?;
        if self.check_host {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.schemes()
    }
}
