//! The names in a certificate: the subject and the alternative names.

use std::collections::BTreeSet;

use crate::der::{self, Elements};

/// The object identifier 2.5.29.17.
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The names of a certificate, in DER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateNames {
    pub subject: Vec<u8>,
    pub alternatives: BTreeSet<Vec<u8>>,
}

impl CertificateNames {
    /// Reads the names of a certificate; `None` if malformed.
    pub fn of(certificate: &[u8]) -> Option<CertificateNames> {
        let mut fields = Elements(Elements(der::only(certificate, der::SEQUENCE)?).expect(der::SEQUENCE)?);
        // Version 1 omits the version field, so the serial number comes first.
        if fields.clone().next()?.tag == VERSION {
            fields.next();
        }
        // Skips serial number, algorithm, issuer and validity.
        let subject = fields.nth(4)?.whole.to_vec();
        let extensions = fields.find(|field| field.tag == EXTENSIONS);
        let alternatives = match extensions {
            Some(extensions) => alternatives(extensions.content)?,
            None => BTreeSet::new(),
        };
        Some(CertificateNames { subject, alternatives })
    }
}

fn alternatives(extensions: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    for extension in Elements(der::only(extensions, der::SEQUENCE)?) {
        let mut parts = Elements(extension.content);
        if parts.expect(der::OBJECT_ID)? != SUBJECT_ALT_NAME {
            continue;
        }
        // An optional critical flag precedes the value.
        let value = parts.find(|part| part.tag == der::OCTETS)?.content;
        let names = Elements(der::only(value, der::SEQUENCE)?);
        return Some(names.map(|name| name.whole.to_vec()).collect());
    }
    Some(BTreeSet::new())
}
