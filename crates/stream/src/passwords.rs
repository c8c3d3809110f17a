//! Passwords in URLs: read, and hidden in texts for people.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// The login in a URL, up to the last `@` of the word: a user may contain `@`, and a password that is not
/// percent-encoded any character. A user without a password may be a token.
static LOGIN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)(https?://)\S*@").expect("the expression is valid"));

/// A text with the logins of its URLs replaced by `***`. A path with `@` is replaced up to there.
pub fn hidden(text: &str) -> Cow<'_, str> {
    LOGIN.replace_all(text, "$1***@")
}

/// The bytes of a percent-encoded text; `None` if it cannot be decoded.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            _ => byte,
        });
    }
    Some(bytes)
}

/// Encodes everything but the unreserved characters of RFC 3986, so that a text can be a part of a URL.
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_a_url_stands() {
        for (text, shown) in [
            ("time | http --url=http://ann:secret@h:1/a | x", "time | http --url=http://***@h:1/a | x"),
            ("http --url='https://ann:p@ss@h/'", "http --url='https://***@h/'"),
            ("http --url=\"HTTP://:x@h\"", "http --url=\"HTTP://***@h\""),
            ("http://ann@example.com:secret@h/", "http://***@h/"),
            ("http://token@h:1/a?b", "http://***@h:1/a?b"),
            ("http://ann:s/e?c#r'e\"t@h/", "http://***@h/"),
            ("http://ann:12/secret@h/ | log", "http://***@h/ | log"),
            ("http://h/a to ann@example.com", "http://h/a to ann@example.com"),
            ("http --url=http://h:1/a", "http --url=http://h:1/a"),
        ] {
            assert_eq!(hidden(text), shown);
        }
    }

    #[test]
    fn percent_encodings_are_decoded() {
        assert_eq!(percent_decoded("a%20b+%C3%BF").as_deref(), Some(&b"a b+\xc3\xbf"[..]));
        assert_eq!((percent_decoded("%4"), percent_decoded("%zz")), (None, None));
    }
}
