//! Kafka's principals: a type and a name, as in `User:alice`.

use std::fmt;
use std::str::FromStr;

/// The type of all principals that authenticate by TLS or SASL.
const USER: &str = "User";

/// The name of unauthenticated peers.
const ANONYMOUS: &str = "ANONYMOUS";

/// The identity of a peer (`KafkaPrincipal`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// Type, colon, name.
    text: String,
    kind_len: usize,
}

impl Principal {
    /// A principal of the type `User`.
    pub fn user(name: impl Into<String>) -> Principal {
        Principal::new(USER, name)
    }

    /// A principal of any type.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Principal {
        let mut text = kind.into();
        let kind_len = text.len();
        text.push(':');
        text.push_str(&name.into());
        Principal { text, kind_len }
    }

    /// The principal of unauthenticated peers: `User:ANONYMOUS`.
    pub fn anonymous() -> Principal {
        Principal::user(ANONYMOUS)
    }

    /// True for the name of unauthenticated peers.
    pub fn is_anonymous(&self) -> bool {
        self.name() == ANONYMOUS
    }

    /// The principal type, such as `User`.
    pub fn kind(&self) -> &str {
        &self.text[..self.kind_len]
    }

    /// The name without the type.
    pub fn name(&self) -> &str {
        &self.text[self.kind_len + 1..]
    }

    /// The text form, `type:name`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A text that is not a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePrincipalError(String);

impl fmt::Display for ParsePrincipalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a string in format principalType:principalName but got {}", self.0)
    }
}

impl std::error::Error for ParsePrincipalError {}

impl FromStr for Principal {
    type Err = ParsePrincipalError;

    fn from_str(text: &str) -> Result<Principal, ParsePrincipalError> {
        match text.split_once(':') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok(Principal::new(kind, name)),
            _ => Err(ParsePrincipalError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_colons() {
        let principal: Principal = "User:CN=a,OU=b:c".parse().expect("a principal");
        assert_eq!((principal.kind(), principal.name()), ("User", "CN=a,OU=b:c"));
        assert_eq!(principal.to_string(), "User:CN=a,OU=b:c");
    }

    #[test]
    fn both_parts_are_needed() {
        for text in ["", "User", "User:", ":a"] {
            let error = text.parse::<Principal>().expect_err(text);
            assert!(error.to_string().ends_with(&format!("but got {text}")));
        }
    }
}
