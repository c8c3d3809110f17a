//! The hosts and the expiry date of a certificate file.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use chrono::{DateTime, Utc};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use crate::error::AuthorityError;

/// The first certificate of a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The DNS names and IP addresses of the certificate.
    pub hosts: BTreeSet<String>,
    /// The end of the validity.
    pub expires: DateTime<Utc>,
}

impl Certificate {
    /// Reads a PEM file.
    pub fn read(file: &Path) -> Result<Certificate, AuthorityError> {
        let text = crate::read(file)?;
        let unreadable = || AuthorityError::NoCertificate { path: file.to_owned() };
        let blocks = Pem::iter_from_buffer(text.as_bytes()).filter_map(Result::ok);
        let block = blocks.into_iter().find(|block| block.label == "CERTIFICATE").ok_or_else(unreadable)?;
        let certificate = block.parse_x509().map_err(|_| unreadable())?;
        let expires = DateTime::from_timestamp(certificate.validity().not_after.timestamp(), 0);
        let names = certificate.subject_alternative_name().ok().flatten();
        let hosts = names.iter().flat_map(|names| &names.value.general_names).filter_map(host).collect();
        Ok(Certificate { hosts, expires: expires.ok_or_else(unreadable)? })
    }

    /// The given hosts that the certificate does not cover.
    pub fn lacks<'a>(&self, hosts: &'a [String]) -> Vec<&'a str> {
        let canonical =
            |host: &str| host.parse().map_or(host.to_owned(), |address: IpAddr| address.to_string());
        hosts.iter().filter(|host| !self.hosts.contains(&canonical(host))).map(String::as_str).collect()
    }

    /// The remaining days of validity; negative after expiry.
    pub fn days_left(&self, now: DateTime<Utc>) -> i64 {
        // Rounded down, so that a certificate that has just expired has -1.
        (self.expires - now).num_seconds().div_euclid(24 * 60 * 60)
    }
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}
