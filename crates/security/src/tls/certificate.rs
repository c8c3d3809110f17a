//! Permissions in a certificate, as interpreted by Java's `PKIXValidator` and `EndEntityChecker`.

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error};
use webpki::{ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage, RequiredEkuNotFoundContext};
use x509_parser::asn1_rs::FromDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_CERT_TYPE, OID_X509_EXT_CERTIFICATE_POLICIES,
    OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE, OID_X509_EXT_NAME_CONSTRAINTS,
    OID_X509_EXT_POLICY_CONSTRAINTS, OID_X509_EXT_SUBJECT_ALT_NAME,
};
use x509_parser::x509::X509Version;

use super::error::unfit;
use crate::der::{self, Elements};

/// The holder of the checked certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateHolder {
    /// A client, checked by a broker.
    Client,
    /// A broker, checked by a client.
    Server,
}

/// 1.3.6.1.5.5.7.3.1, 1.3.6.1.5.5.7.3.2 and anyExtendedKeyUsage.
const SERVER: &[usize] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
const CLIENT: &[usize] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];
const ANY: &[usize] = &[2, 5, 29, 37, 0];

/// A parsed certificate.
pub(super) struct Certificate<'a>(pub X509Certificate<'a>);

impl<'a> Certificate<'a> {
    /// Parses a certificate in DER. None if malformed, or with parts that its version does not have.
    pub fn of(der: &'a [u8]) -> Option<Certificate<'a>> {
        let (rest, certificate) = X509Certificate::from_der(der).ok()?;
        // Body, algorithm and signature. The parser ignores trailing elements.
        let mut parts = Elements(der::only(der, der::SEQUENCE)?);
        let has_three_parts = parts.by_ref().take(3).count() == 3 && parts.is_end();
        let body = &certificate.tbs_certificate;
        let fits_version = match body.version {
            X509Version::V1 => {
                body.issuer_uid.is_none() && body.subject_uid.is_none() && body.extensions().is_empty()
            }
            X509Version::V2 => body.extensions().is_empty(),
            version => version == X509Version::V3,
        };
        // A duplicate extension is malformed too.
        let is_whole = rest.is_empty()
            && has_three_parts
            && certificate.signature_value.unused_bits == 0
            && certificate.extensions_map().is_ok()
            && certificate.iter_extensions().all(is_readable);
        (is_whole && fits_version).then_some(Certificate(certificate))
    }

    /// True if the certificate may sign others when trusted: authorities, and versions before the extension
    /// exists.
    pub fn may_sign_if_trusted(&self) -> bool {
        self.0.version() != X509Version::V3 || self.may_sign()
    }

    /// True if the certificate is marked as an authority.
    pub fn may_sign(&self) -> bool {
        let may_sign_certificates = match self.0.key_usage() {
            Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
            Err(_) => false,
        };
        self.0.version() == X509Version::V3 && self.0.is_ca() && may_sign_certificates
    }

    /// True if webpki accepts the certificate at the end of a chain. Webpki refuses older versions,
    /// authorities, and critical policies.
    pub fn is_usual_end(&self) -> bool {
        let has_critical_policies = self.critical().any(|id| *id == OID_X509_EXT_CERTIFICATE_POLICIES);
        self.0.version() == X509Version::V3 && !self.0.is_ca() && !has_critical_policies
    }

    /// True if all critical extensions are checked here, or need no check (policies, unless required).
    pub fn has_only_known_extensions(&self) -> bool {
        let known = [
            OID_X509_EXT_BASIC_CONSTRAINTS,
            OID_X509_EXT_CERTIFICATE_POLICIES,
            OID_X509_EXT_EXTENDED_KEY_USAGE,
            OID_X509_EXT_KEY_USAGE,
            OID_X509_EXT_SUBJECT_ALT_NAME,
        ];
        self.critical().all(|id| known.contains(id))
    }

    /// True if the certificate may require policies in a chain.
    pub fn demands_policies(&self) -> bool {
        self.0.iter_extensions().any(|extension| extension.oid == OID_X509_EXT_POLICY_CONSTRAINTS)
    }

    fn critical(&self) -> impl Iterator<Item = &x509_parser::asn1_rs::Oid<'a>> {
        self.0.iter_extensions().filter(|extension| extension.critical).map(|extension| &extension.oid)
    }

    /// True if the certificate constrains names.
    pub fn constrains_names(&self) -> bool {
        !matches!(self.0.name_constraints(), Ok(None))
    }

    /// The maximum number of authorities between the certificate and the end of a chain.
    pub fn path_length(&self) -> Option<u32> {
        let constraints = self.0.basic_constraints().ok().flatten()?;
        constraints.value.path_len_constraint
    }

    pub fn check_time(&self, now: UnixTime) -> Result<(), Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = self.0.validity();
        if now < validity.not_before.timestamp() {
            return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        if now > validity.not_after.timestamp() {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        Ok(())
    }

    /// True if the extended key usage is absent, or includes the holder's use or any use.
    pub fn is_for(&self, holder: CertificateHolder) -> bool {
        match self.0.extended_key_usage() {
            Ok(None) => true,
            Ok(Some(uses)) => {
                let own = if holder == CertificateHolder::Client {
                    uses.value.client_auth
                } else {
                    uses.value.server_auth
                };
                own || uses.value.any
            }
            Err(_) => false,
        }
    }

    /// Checks that the holder may use the certificate in handshakes of TLS 1.3, or of TLS 1.2 with ECDHE.
    pub fn check_use(&self, holder: CertificateHolder) -> Result<(), Error> {
        if !matches!(self.0.key_usage(), Ok(usage) if usage.as_ref().is_none_or(|usage| usage.value.digital_signature()))
        {
            return Err(unfit("its key usage does not allow digital signatures".to_owned()));
        }
        let role = if holder == CertificateHolder::Client { "clients" } else { "servers" };
        if !self.is_for(holder) {
            return Err(unfit(format!("its extended key usage is not for {role}")));
        }
        let types = self.0.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::NSCertType(types) => Some(types),
            _ => None,
        });
        let has_type = |types: &x509_parser::extensions::NSCertType| match holder {
            CertificateHolder::Client => types.ssl_client(),
            CertificateHolder::Server => types.ssl_server(),
        };
        if types.is_some_and(|types| !has_type(types)) {
            return Err(unfit(format!("its Netscape certificate type is not for {role}")));
        }
        Ok(())
    }
}

/// True unless a relevant extension is malformed. The parser treats a malformed extension as absent.
fn is_readable(extension: &X509Extension<'_>) -> bool {
    let decides = [
        OID_X509_EXT_BASIC_CONSTRAINTS,
        OID_X509_EXT_KEY_USAGE,
        OID_X509_EXT_EXTENDED_KEY_USAGE,
        OID_X509_EXT_NAME_CONSTRAINTS,
        OID_X509_EXT_CERT_TYPE,
    ];
    let is_one_element = || {
        let mut elements = Elements(extension.value);
        elements.next().is_some() && elements.is_end()
    };
    !decides.contains(&extension.oid)
        || (is_one_element() && !matches!(extension.parsed_extension(), ParsedExtension::ParseError { .. }))
}

/// The extended key usage check of webpki for each certificate of a chain, equal to [`Certificate::is_for`].
pub(super) struct KeyUsageCheck(pub CertificateHolder);

impl ExtendedKeyUsageValidator for KeyUsageCheck {
    fn validate(&self, uses: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let (own, required) = match self.0 {
            CertificateHolder::Client => (CLIENT, KeyUsage::client_auth()),
            CertificateHolder::Server => (SERVER, KeyUsage::server_auth()),
        };
        let present = uses.map(|id| id.map(|id| id.to_decoded_oid())).collect::<Result<Vec<_>, _>>()?;
        if present.is_empty() || present.iter().any(|id| *id == own || *id == ANY) {
            return Ok(());
        }
        Err(webpki::Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present }))
    }
}
