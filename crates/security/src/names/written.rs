//! A distinguished name in the format of Java's `X500Principal.getName()` (RFC 2253), because Kafka's mapping
//! rules and ACLs refer to that text.
//!
//! The last part comes first. Nine attributes have a keyword; other attributes are written as an object id,
//! with their value as DER in hexadecimal. Values that are not texts are written in hexadecimal too.

use std::fmt::Write;

use crate::der::{self, Element, Elements};

/// Characters that are escaped at every position.
const ESCAPED: &str = ",=+<>#;\"\\";

/// The text of a DER-encoded name; `None` if malformed.
pub fn distinguished_name(name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    let mut sets = Elements(der::only(name, der::SEQUENCE)?);
    for set in &mut sets {
        if set.tag != der::SET {
            return None;
        }
        let mut pairs = Elements(set.content);
        let written: Option<Vec<String>> = (&mut pairs).map(attribute).collect();
        parts.push(written.filter(|_| pairs.is_end())?.join("+"));
    }
    parts.reverse();
    sets.is_end().then(|| parts.join(","))
}

fn attribute(pair: Element<'_>) -> Option<String> {
    if pair.tag != der::SEQUENCE {
        return None;
    }
    let mut parts = Elements(pair.content);
    let id = parts.expect(der::OBJECT_ID)?;
    let value = parts.next().filter(|_| parts.is_end())?;
    Some(match (keyword(id), is_text(value.tag)) {
        (Some(keyword), true) => format!("{keyword}={}", escaped(&String::from_utf8_lossy(value.content))),
        (Some(keyword), false) => format!("{keyword}={}", hexadecimal(value.whole)),
        (None, _) => format!("{}={}", object_id(id)?, hexadecimal(value.whole)),
    })
}

fn keyword(id: &[u8]) -> Option<&'static str> {
    Some(match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19] => "DC",
        _ => return None,
    })
}

/// Java decodes all these string types as UTF-8, even those with another encoding.
fn is_text(tag: u8) -> bool {
    const UTF8: u8 = 12;
    const PRINTABLE: u8 = 19;
    const T61: u8 = 20;
    const IA5: u8 = 22;
    const GENERAL: u8 = 27;
    const BMP: u8 = 30;
    matches!(tag, UTF8 | PRINTABLE | T61 | IA5 | GENERAL | BMP)
}

fn escaped(text: &str) -> String {
    let is_space = |c: char| c == ' ' || c == '\r';
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => written.push_str("\\00"),
            c => {
                if ESCAPED.contains(c) {
                    written.push('\\');
                }
                written.push(c);
            }
        }
    }
    // Leading and trailing spaces are escaped too. A text of spaces only counts as leading spaces.
    let begin = written.len() - written.trim_start_matches(is_space).len();
    let end = written.trim_end_matches(is_space).len().max(begin);
    let mut all = String::with_capacity(written.len());
    for (at, c) in written.char_indices() {
        if at < begin || at >= end {
            all.push('\\');
        }
        all.push(c);
    }
    all
}

fn hexadecimal(der: &[u8]) -> String {
    let mut text = String::from("#");
    for byte in der {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn object_id(content: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut number = 0u128;
    for (at, byte) in content.iter().enumerate() {
        number = number.checked_mul(128)?.checked_add(u128::from(byte & 0x7f))?;
        if byte & 0x80 != 0 {
            if at + 1 == content.len() {
                return None;
            }
            continue;
        }
        match text.is_empty() {
            true => {
                let first = (number / 40).min(2);
                let _ = write!(text, "{first}.{}", number - 40 * first);
            }
            false => {
                let _ = write!(text, ".{number}");
            }
        }
        number = 0;
    }
    Some(text).filter(|text| !text.is_empty())
}
