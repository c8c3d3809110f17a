//! Certificate revocation lists (`ssl.crl.location`): reads a file of lists, and checks a chain against them.
//! The lists of a listener apply to client certificates, those of a client to the broker's certificate.
//!
//! As with OpenSSL's CRL_CHECK, which librdkafka enables for this setting, the issuer of the end certificate
//! must have a list, and a list is valid until its nextUpdate: without a valid list, the certificate is
//! refused. Unlike in OpenSSL, intermediate certificates are checked too if their issuers have lists. A
//! trusted certificate itself is not checked. Delta and indirect lists, and version 1, are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, RootCertStore};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

use super::certificate::{CertificateHolder, KeyUsageCheck};
use super::error::of_webpki;
use crate::setting::{InvalidSetting, SettingSource, take_first};
use crate::setting_file;
use crate::stores::pem;

/// The name of the setting.
pub const CRL_LOCATION: &str = "ssl.crl.location";
/// Maximum file size in bytes, enough for some 400,000 certificates.
const FILE_BYTES_MAX: u64 = 16 << 20;
const LABEL: &str = "X509 CRL";
/// The first byte of a list in DER.
const DER_SEQUENCE: u8 = 0x30;

/// The revocation lists of one file.
#[derive(Debug)]
pub struct Revocation {
    lists: Vec<CertRevocationList<'static>>,
    file: PathBuf,
}

impl Revocation {
    /// Takes `ssl.crl.location`, and reads the file: PEM with one or more lists, or a single list in DER.
    pub fn take(take: &mut SettingSource<'_>) -> Result<Option<Arc<Revocation>>, InvalidSetting> {
        let Some((setting, path)) = take_first(take, &[CRL_LOCATION]) else { return Ok(None) };
        let wrong = |expected: String| InvalidSetting::new(setting, &path, expected);
        let file = PathBuf::from(path.trim());
        let unreadable =
            |error: std::io::Error| wrong(format!("a file of revocation lists that can be read ({error})"));
        let bytes = setting_file::read(&file, FILE_BYTES_MAX).map_err(unreadable)?;
        let ders = if bytes.first() == Some(&DER_SEQUENCE) {
            vec![bytes]
        } else {
            let sections = pem::sections(&String::from_utf8_lossy(&bytes))
                .map_err(|fault| wrong(format!("readable PEM ({fault})")))?;
            sections.into_iter().filter(|section| section.label == LABEL).map(|section| section.der).collect()
        };
        if ders.is_empty() {
            return Err(wrong(format!("revocation lists in DER, or in PEM (-----BEGIN {LABEL}-----)")));
        }
        let lists =
            ders.iter().map(|der| OwnedCertRevocationList::from_der(der).map(CertRevocationList::from));
        let lists = lists.collect::<Result<Vec<_>, _>>().map_err(|fault| {
            wrong(format!("complete and direct revocation lists of version 2, that can be read ({fault:?})"))
        })?;
        Ok(Some(Arc::new(Revocation { lists, file })))
    }

    /// The path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Checks a verified chain.
    pub fn check(
        &self,
        holder: CertificateHolder,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        roots: &RootCertStore,
        algorithms: &WebPkiSupportedAlgorithms,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let certificate = EndEntityCert::try_from(end_entity)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let lists: Vec<&CertRevocationList<'_>> = self.lists.iter().collect();
        // The end certificate needs a known status, intermediate certificates only if there is a list.
        let depths = [
            (RevocationCheckDepth::EndEntity, UnknownStatusPolicy::Deny),
            (RevocationCheckDepth::Chain, UnknownStatusPolicy::Allow),
        ];
        let depths = if intermediates.is_empty() { &depths[..1] } else { &depths[..] };
        for (depth, unknown) in depths {
            let options = RevocationOptionsBuilder::new(&lists).expect("a file without lists is refused");
            let options = options
                .with_depth(*depth)
                .with_status_policy(*unknown)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build();
            certificate
                .verify_for_usage(
                    algorithms.all,
                    &roots.roots,
                    intermediates,
                    now,
                    KeyUsageCheck(holder),
                    Some(options),
                    None,
                )
                .map_err(of_webpki)?;
        }
        Ok(())
    }
}
