//! The server side of TLS: the settings of a listener, read and checked once, and the result of a handshake.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::{CommonState, ServerConfig};

use super::client_certificates::ClientCertificates;
use super::expiry;
use super::{
    Revocation, TlsHandshakeFault, Trust, certified, cipher_name, no_suite, take_ciphers, take_versions,
};
use crate::Principal;
use crate::names::{CertificateNames, PrincipalMapping, distinguished_name};
use crate::setting::{InvalidSetting, SettingSource};
use crate::stores::{take_identity, take_trusted};

const CLIENT_AUTH: &str = "ssl.client.auth";
const MAPPING: &str = "ssl.principal.mapping.rules";
const KEYSTORE: &str = "ssl.keystore.location";
/// Number of session tickets per handshake, as in Java.
const TICKETS: usize = 1;

/// The TLS settings of a listener, ready for handshakes.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    mapping: PrincipalMapping,
    names: CertificateNames,
    expires_s: Option<i64>,
    files: Vec<PathBuf>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsSession {
    /// `TLSv1.2` or `TLSv1.3`.
    pub protocol: &'static str,
    /// Java's name of the cipher suite.
    pub cipher: String,
    /// The client's certificate, if any.
    pub certificate: Option<PeerCertificate>,
}

impl ServerTlsSession {
    /// The principal of the handshake: the user of the client's certificate, or anonymous.
    pub fn principal(&self) -> Principal {
        let certificate = self.certificate.as_ref();
        certificate.map_or_else(Principal::anonymous, |shown| Principal::user(shown.user.as_str()))
    }
}

/// The names of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The distinguished name in Java's format.
    pub distinguished_name: String,
    /// The user name, by `ssl.principal.mapping.rules`.
    pub user: String,
}

/// A new certificate whose names differ from those of the current one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncompatibleCertificate {
    /// The subject differs.
    #[error(
        "the new certificate is for {new}, the one in use for {old}; ssl.allow.dn.changes=true allows it"
    )]
    Subject {
        /// The subject of the current certificate.
        old: String,
        /// The subject of the new certificate.
        new: String,
    },
    /// Alternative names are missing.
    #[error(
        "the new certificate lacks {missing} of the {known} alternative names of the one in use; \
         ssl.allow.san.changes=true allows it"
    )]
    AlternativeNames {
        /// The number of missing names.
        missing: usize,
        /// The number of names in the current certificate.
        known: usize,
    },
}

impl ServerTls {
    /// Takes the `ssl.` settings of a listener, and reads the files that the settings name.
    pub fn take(take: &mut SettingSource<'_>) -> Result<ServerTls, InvalidSetting> {
        let client_auth = take(CLIENT_AUTH).unwrap_or_default();
        let is_required = match client_auth.trim().to_ascii_lowercase().as_str() {
            "" | "none" => None,
            "requested" => Some(false),
            "required" => Some(true),
            _ => return Err(InvalidSetting::new(CLIENT_AUTH, &client_auth, "required, requested, none")),
        };
        let mapping = match take(MAPPING) {
            None => PrincipalMapping::default(),
            Some(rules) => PrincipalMapping::parse(&rules).map_err(|error| {
                InvalidSetting::new(
                    MAPPING,
                    &rules,
                    format!("DEFAULT or RULE:pattern/replacement/[LU] ({error})"),
                )
            })?,
        };
        let trusted = take_trusted(take)?;
        let Some(identity) = take_identity(take)? else {
            return Err(InvalidSetting::missing(
                KEYSTORE,
                "a file with the certificate and key of this broker,",
            ));
        };
        let revocation = Revocation::take(take)?;
        let files = [
            trusted.as_ref().and_then(|trusted| trusted.file.clone()),
            identity.file.clone(),
            revocation.as_ref().map(|revocation| revocation.file().to_owned()),
        ];
        let versions = take_versions(take)?;
        let provider = Arc::new(take_ciphers(take)?);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| no_suite(&error))?;
        let builder = match is_required {
            None => builder.with_no_client_auth(),
            Some(is_required) => {
                let trust = Trust::new(trusted.as_ref(), revocation, &provider)?;
                let check = ClientCertificates::verifier(trust, is_required);
                builder.with_client_cert_verifier(check)
            }
        };
        let (setting, value) = (identity.setting, identity.value.clone());
        let wrong = |error: &dyn fmt::Display| {
            InvalidSetting::new(setting, &value, format!("a certificate with its key ({error})"))
        };
        let chain = &identity.chain;
        let names = chain
            .first()
            .and_then(|own| CertificateNames::of(own))
            .ok_or_else(|| wrong(&"it is malformed"))?;
        let expires_s = chain.iter().filter_map(|certificate| expiry::not_after_s(certificate)).min();
        let mut config = builder.with_cert_resolver(certified(&identity, &provider)?);
        config.ticketer = Ticketer::new().map_err(|error| wrong(&error))?;
        config.send_tls13_tickets = TICKETS;
        Ok(ServerTls {
            config: Arc::new(config),
            mapping,
            names,
            expires_s,
            files: files.into_iter().flatten().collect(),
        })
    }

    /// The files that were read. After a change of a file, the settings must be taken again.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The expiry time of the broker's own certificate in seconds since 1970; none if unreadable.
    pub fn expires_s(&self) -> Option<i64> {
        self.expires_s
    }

    /// Creates the server side of a new connection.
    pub fn connection(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(&self.config))
    }

    /// The rustls configuration, for callers that create connections themselves.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Checks that these settings may replace `old` on a running listener, since clients know the broker by
    /// its names.
    pub fn check_compatible(
        &self,
        old: &ServerTls,
        dn_may_change: bool,
        san_may_change: bool,
    ) -> Result<(), IncompatibleCertificate> {
        let name = |tls: &ServerTls| distinguished_name(&tls.names.subject).unwrap_or_default();
        let (new_name, old_name) = (name(self), name(old));
        if !dn_may_change && new_name.to_lowercase() != old_name.to_lowercase() {
            return Err(IncompatibleCertificate::Subject { old: old_name, new: new_name });
        }
        let missing = old.names.alternatives.difference(&self.names.alternatives).count();
        if !san_may_change && missing > 0 {
            let known = old.names.alternatives.len();
            return Err(IncompatibleCertificate::AlternativeNames { missing, known });
        }
        Ok(())
    }

    /// The result of a finished handshake.
    pub fn session(&self, connection: &CommonState) -> Result<ServerTlsSession, TlsHandshakeFault> {
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let protocol = match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        Ok(ServerTlsSession {
            protocol,
            cipher: connection.negotiated_cipher_suite().as_ref().map(cipher_name).unwrap_or_default(),
            certificate: certificate.map(|certificate| self.named(certificate)).transpose()?,
        })
    }

    fn named(&self, certificate: &CertificateDer<'_>) -> Result<PeerCertificate, TlsHandshakeFault> {
        let subject = CertificateNames::of(certificate).and_then(|named| distinguished_name(&named.subject));
        let distinguished_name =
            subject.ok_or_else(|| TlsHandshakeFault::Certificate("its name is malformed".to_owned()))?;
        let user = self.mapping.name(&distinguished_name)?;
        Ok(PeerCertificate { distinguished_name, user })
    }
}
