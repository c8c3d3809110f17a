//! The format of Java's properties files, with the rules of `java.util.Properties`.
//!
//! Bytes are Latin-1. A line ends with LF, CR or both; an odd number of backslashes at its end continues it
//! on the next line, without that line's leading blanks. `#` and `!` begin a comment. The key ends at the
//! first `=`, `:` or blank without a preceding backslash; `\uXXXX` is a UTF-16 unit. Java reads a lone
//! backslash at the end of a file as a property without name and value; here it is ignored. Implemented here
//! because the existing crate panics on some files.

/// A line with a malformed escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedEscape {
    /// First line of the property, counted from 1.
    pub line: usize,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0c)
}

/// The properties of a file in order; of equal keys the last one wins.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(String, String)>, MalformedEscape> {
    let mut properties = Vec::new();
    let mut lines = lines(bytes).into_iter().enumerate();
    while let Some((at, line)) = lines.next() {
        let mut logical = line.trim_start().to_vec();
        if logical.is_empty() || matches!(logical[0], b'#' | b'!') {
            continue;
        }
        while logical.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1 {
            logical.pop();
            // A continued empty line is empty: the next line may be a comment.
            let next = if logical.is_empty() { None } else { lines.next() };
            match next {
                Some((_, next)) => logical.extend_from_slice(next.trim_start()),
                None => break,
            }
        }
        if !logical.is_empty() {
            properties.push(split(&logical).ok_or(MalformedEscape { line: at + 1 })?);
        }
    }
    Ok(properties)
}

/// A line of the file, without its line ending.
struct Line<'a>(&'a [u8]);

impl<'a> Line<'a> {
    fn trim_start(&self) -> &'a [u8] {
        let blanks = self.0.iter().take_while(|byte| is_blank(**byte)).count();
        &self.0[blanks..]
    }
}

fn lines(bytes: &[u8]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.push(Line(&rest[..end]));
        let both = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + if both { 2 } else { 1 }..];
    }
    lines.push(Line(rest));
    lines
}

/// Key and value of a logical line; `None` for a malformed escape.
fn split(line: &[u8]) -> Option<(String, String)> {
    let mut escaped = false;
    let ends_key = |byte: &u8| {
        let ends = !escaped && (is_blank(*byte) || matches!(byte, b'=' | b':'));
        escaped = *byte == b'\\' && !escaped;
        ends
    };
    let key_end = line.iter().position(ends_key).unwrap_or(line.len());
    let (key, rest) = line.split_at(key_end);
    let mut value = Line(rest).trim_start();
    if let [b'=' | b':', after @ ..] = value {
        value = Line(after).trim_start();
    }
    Some((unescape(key)?, unescape(value)?))
}

fn unescape(bytes: &[u8]) -> Option<String> {
    let mut units: Vec<u16> = Vec::with_capacity(bytes.len());
    let mut bytes = bytes.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            units.push(byte.into());
            continue;
        }
        match bytes.next() {
            Some(b'u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = char::from(bytes.next()?).to_digit(16)?;
                    unit = unit << 4 | u16::try_from(digit).expect("a hexadecimal digit is small");
                }
                units.push(unit);
            }
            Some(b't') => units.push(b'\t'.into()),
            Some(b'n') => units.push(b'\n'.into()),
            Some(b'r') => units.push(b'\r'.into()),
            Some(b'f') => units.push(0x0c),
            Some(other) => units.push(other.into()),
            None => {}
        }
    }
    Some(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Files built from the special characters, and the properties that `java.util.Properties` reads from
    /// them.
    const GOLDEN: &str = include_str!("../tests/golden/java-properties.txt");

    fn unhex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn hex(text: &str) -> String {
        text.encode_utf16().map(|unit| format!("{unit:04x}")).collect()
    }

    #[test]
    fn files_are_read_as_java_reads_them() {
        let mut files = 0;
        for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
            let (file, expected) = line.split_once(' ').expect("a file and what Java reads from it");
            let read = match read(&unhex(file)) {
                Ok(properties) => {
                    let map: BTreeMap<_, _> = properties.into_iter().collect();
                    let pairs = map.iter().map(|(key, value)| format!("{}={}", hex(key), hex(value)));
                    pairs.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
                }
                Err(_) => "malformed".to_owned(),
            };
            assert_eq!(read, expected, "{:?}", String::from_utf8_lossy(&unhex(file)));
            files += 1;
        }
        assert!(files > 100);
    }

    #[test]
    fn a_malformed_escape_is_found_where_its_property_begins() {
        assert_eq!(read(b"a=1\r\n\r# c\nb=\\\n  \\u12\n"), Err(MalformedEscape { line: 4 }));
    }
}
