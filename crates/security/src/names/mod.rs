//! The names in certificates: how Java writes them, and how rules make user names of them.

mod certificate;
mod mapping;
mod written;

pub(crate) use certificate::Named;
pub use mapping::{InvalidRule, NoMatchingRule, PrincipalMapping};
pub use written::distinguished_name;
