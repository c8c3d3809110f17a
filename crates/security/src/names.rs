//! The names in certificates: their text in Java's format, and the rules that map names to users.

mod certificate;
mod mapping;
mod written;

pub(crate) use certificate::CertificateNames;
pub use mapping::{InvalidRule, NoMatchingRule, PrincipalMapping};
pub use written::distinguished_name;
