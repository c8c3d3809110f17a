//! The client's first message: an optional name, the token, and extensions, of which only the format is
//! checked.

use std::collections::BTreeMap;
use std::fmt;

use crate::sasl::rejection::Rejection;

/// The client's acknowledgement of a refusal.
pub const MORE: &[u8] = b"\x01";

const SEPARATOR: char = '\x01';

/// The content of the client's first message.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstMessage {
    /// The signed token (JWT), not yet verified.
    pub token: String,
    /// The requested authorization id, which must equal the subject of the token.
    pub authorization_id: Option<String>,
    /// Extensions by name, which the broker does not interpret.
    pub extensions: BTreeMap<String, String>,
}

impl fmt::Debug for FirstMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstMessage").field("extensions", &self.extensions.keys()).finish_non_exhaustive()
    }
}

impl FirstMessage {
    /// Parses a first message.
    pub fn parse(message: &[u8]) -> Result<FirstMessage, Rejection> {
        read(message).ok_or_else(|| Rejection::hidden("Invalid OAUTHBEARER client first message"))
    }

    /// Encodes a first message with a token and extensions.
    pub fn encode(token: &str, extensions: &BTreeMap<String, String>) -> Vec<u8> {
        let mut message = format!("n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}");
        for (name, value) in extensions {
            message.push_str(&format!("{name}={value}{SEPARATOR}"));
        }
        message.push(SEPARATOR);
        message.into_bytes()
    }
}

fn read(message: &[u8]) -> Option<FirstMessage> {
    let text = std::str::from_utf8(message).ok()?;
    let (authorization, rest) = text.strip_prefix("n,")?.split_once(&format!(",{SEPARATOR}"))?;
    let authorization_id = match authorization {
        "" => None,
        name => {
            let name = name.strip_prefix("a=")?.replace("=2C", ",").replace("=3D", "=");
            Some(name).filter(|name| !name.is_empty())
        }
    };
    let pairs = rest.strip_suffix(SEPARATOR)?;
    let mut extensions = BTreeMap::new();
    for pair in pairs.strip_suffix(SEPARATOR)?.split(SEPARATOR) {
        let (name, value) = pair.split_once('=')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_value = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        if !is_name || value.is_empty() || !value.bytes().all(is_value) {
            return None;
        }
        if extensions.insert(name.to_owned(), value.to_owned()).is_some() {
            return None;
        }
    }
    let authorization = extensions.remove("auth")?;
    let (scheme, token) = authorization.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || !token.bytes().all(is_token) {
        return None;
    }
    Some(FirstMessage { token: token.to_owned(), authorization_id, extensions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_with_extensions() {
        let extensions = BTreeMap::from([("logicalCluster".to_owned(), "lkc-1 \t=".to_owned())]);
        let message = FirstMessage::encode("a.b-_.c", &extensions);
        assert_eq!(message, b"n,,\x01auth=Bearer a.b-_.c\x01logicalCluster=lkc-1 \t=\x01\x01");
        let read = FirstMessage::parse(&message).expect("a message");
        assert_eq!(
            (read.token.as_str(), read.authorization_id, read.extensions),
            ("a.b-_.c", None, extensions)
        );
        let named =
            FirstMessage::parse(b"n,a=al=2Cice,\x01x=y\x01auth=bearer  t\x01\x01").expect("a message");
        assert_eq!(named.authorization_id.as_deref(), Some("al,ice"));
        assert_eq!(named.token, "t");
        assert!(!format!("{named:?}").contains("\"t\""), "no secret is shown");
    }

    #[test]
    fn other_messages_are_refused() {
        for message in [
            &b""[..],
            b"n,,",
            b"n,,\x01\x01",
            b"n,,\x01\x01\x01",
            b"y,,\x01auth=Bearer t\x01\x01",
            b"n,b=x,\x01auth=Bearer t\x01\x01",
            b"n,,\x01auth=Basic t\x01\x01",
            b"n,,\x01auth=Bearer \x01\x01",
            b"n,,\x01auth=Bearer t\x01",
            b"n,,\x01auth=Bearer t/\x01\x01",
            b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
            b"n,,\x01auth=Bearer t\x01a1=x\x01\x01",
            b"n,,\x01auth=Bearer t\x01a=\xc3\xa4\x01\x01",
            b"n,,\x01auth=Bearer t\x01a=\x01\x01",
            b"n,,\x01auth=Bearer t\x01\x01more",
            b"\xff",
            MORE,
        ] {
            assert!(FirstMessage::parse(message).is_err(), "{}", String::from_utf8_lossy(message));
        }
    }
}
