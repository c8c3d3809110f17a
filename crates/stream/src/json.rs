//! JSON for filters: finds the requested fields and skips all others, without building a tree.
//!
//! Skipped values are checked for structure only: quotes, brackets, commas, colons and words. Numbers,
//! escapes and encoding are checked when a value is read. After the last requested field only the closing
//! brace is checked, which still detects truncated messages.

use std::borrow::Cow;

use memchr::memchr2;

/// Maximum nesting depth.
const DEPTH_MAX: u32 = 128;

/// Strings up to this size are searched byte by byte.
const SHORT_BYTES: usize = 16;

/// Bytes that are not valid JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not JSON: expected {expected} at byte {at}")]
pub struct NotJson {
    /// The expected syntax.
    pub expected: &'static str,
    /// The byte offset.
    pub at: usize,
}

type Result<T> = std::result::Result<T, NotJson>;

fn wrong<T>(expected: &'static str, at: usize) -> Result<T> {
    Err(NotJson { expected, at })
}

/// A value that was located but not yet parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw<'a> {
    Null,
    /// true or false
    Bool(bool),
    /// The literal text of a number.
    Number(&'a [u8]),
    /// The text between the quotes, and true if it contains escapes.
    String(&'a [u8], bool),
    /// An array with its brackets.
    Array(&'a [u8]),
    /// An object with its braces.
    Object(&'a [u8]),
}

/// A cursor over a text.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn blank(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.blank();
        self.text.get(self.at).copied()
    }

    #[inline]
    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<()> {
        if self.next() != Some(byte) {
            return wrong(expected, self.at);
        }
        self.at += 1;
        Ok(())
    }

    /// The contents of a string; the cursor is at the opening quote.
    #[inline]
    fn string(&mut self) -> Result<(&'a [u8], bool)> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        // Most strings are short: a vectorised search only pays off for longer ones.
        for (length, byte) in self.text[start..].iter().take(SHORT_BYTES).enumerate() {
            match byte {
                b'"' => {
                    self.at = start + length + 1;
                    return Ok((&self.text[start..start + length], false));
                }
                b'\\' => break,
                _ => {}
            }
        }
        let mut escaped = false;
        loop {
            let Some(found) = memchr2(b'"', b'\\', &self.text[self.at..]) else {
                return wrong("a closing quote", self.text.len());
            };
            self.at += found;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Ok((&self.text[start..self.at - 1], escaped));
            }
            escaped = true;
            self.at += 2;
            if self.at > self.text.len() {
                return wrong("a closing quote", self.text.len());
            }
        }
    }

    fn word(&mut self, word: &'static str) -> Result<()> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return wrong(word, self.at);
        }
        self.at += word.len();
        Ok(())
    }

    fn value(&mut self, depth: u32) -> Result<Raw<'a>> {
        let Some(first) = self.next() else { return wrong("a value", self.at) };
        let start = self.at;
        match first {
            b'"' => self.string().map(|(inside, escaped)| Raw::String(inside, escaped)),
            b'{' => {
                self.members(depth, |_, _, _| Ok(true))?;
                Ok(Raw::Object(&self.text[start..self.at]))
            }
            b'[' => {
                self.elements(depth, |_| Ok(()))?;
                Ok(Raw::Array(&self.text[start..self.at]))
            }
            b'-' | b'0'..=b'9' => {
                while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.text.get(self.at) {
                    self.at += 1;
                }
                Ok(Raw::Number(&self.text[start..self.at]))
            }
            b't' => self.word("true").map(|()| Raw::Bool(true)),
            b'f' => self.word("false").map(|()| Raw::Bool(false)),
            b'n' => self.word("null").map(|()| Raw::Null),
            _ => wrong("a value", start),
        }
    }

    /// Visits the members of an object (name without quotes, true if the name has escapes, value) while `f`
    /// returns true.
    fn members(
        &mut self,
        depth: u32,
        mut f: impl FnMut(&'a [u8], bool, Raw<'a>) -> Result<bool>,
    ) -> Result<()> {
        if depth == DEPTH_MAX {
            return wrong("no deeper nesting", self.at);
        }
        self.expect(b'{', "an object")?;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.blank();
            let (name, escaped) = self.string()?;
            self.expect(b':', "a colon")?;
            let value = self.value(depth + 1)?;
            if !f(name, escaped, value)? {
                return Ok(());
            }
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return wrong("a comma or a closing brace", self.at),
            }
        }
    }

    fn elements(&mut self, depth: u32, mut f: impl FnMut(Raw<'a>) -> Result<()>) -> Result<()> {
        if depth == DEPTH_MAX {
            return wrong("no deeper nesting", self.at);
        }
        self.expect(b'[', "an array")?;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            f(self.value(depth + 1)?)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return wrong("a comma or a closing bracket", self.at),
            }
        }
    }
}

/// Parses a text that is one value.
pub fn parse(text: &[u8]) -> Result<Raw<'_>> {
    let mut cursor = Cursor { text, at: 0 };
    let value = cursor.value(0)?;
    if cursor.next().is_some() {
        return wrong("the end", cursor.at);
    }
    Ok(value)
}

/// Finds members of the top-level object by name; the first of a repeated name wins.
pub fn find<'a>(text: &'a [u8], names: &[Box<str>], found: &mut [Option<Raw<'a>>]) -> Result<()> {
    let mut cursor = Cursor { text, at: 0 };
    let mut missing = names.len();
    if cursor.next() != Some(b'{') {
        // Other values have no members, but are still JSON.
        return parse(text).map(drop);
    }
    cursor.members(0, |name, escaped, value| {
        let index = match escaped {
            false => names.iter().position(|wanted| wanted.as_bytes() == name),
            true => {
                let name = string(name, true)?;
                names.iter().position(|wanted| **wanted == *name)
            }
        };
        if let Some(index) = index
            && found[index].is_none()
        {
            found[index] = Some(value);
            missing -= 1;
        }
        Ok(missing > 0)
    })?;
    if missing == 0 {
        return match text.trim_ascii_end() {
            [.., b'}'] => Ok(()),
            _ => wrong("a closing brace", text.len()),
        };
    }
    if cursor.next().is_some() {
        return wrong("the end", cursor.at);
    }
    Ok(())
}

impl<'a> Raw<'a> {
    /// The length of the value's text in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Raw::Null | Raw::Bool(_) => 0,
            Raw::Number(text) | Raw::String(text, _) | Raw::Array(text) | Raw::Object(text) => text.len(),
        }
    }

    /// A member of an object.
    pub fn member(self, name: &str) -> Result<Option<Raw<'a>>> {
        let Raw::Object(text) = self else { return Ok(None) };
        let mut found = None;
        Cursor { text, at: 0 }.members(0, |member, escaped, value| {
            let same = if escaped { *string(member, true)? == *name } else { member == name.as_bytes() };
            if same {
                found = Some(value);
            }
            Ok(!same)
        })?;
        Ok(found)
    }

    /// The members of an object, in order.
    pub fn members(self) -> Result<Vec<(Cow<'a, str>, Raw<'a>)>> {
        let Raw::Object(text) = self else { return Ok(Vec::new()) };
        let mut members = Vec::new();
        Cursor { text, at: 0 }.members(0, |name, escaped, value| {
            members.push((string(name, escaped)?, value));
            Ok(true)
        })?;
        Ok(members)
    }

    /// The elements of an array.
    pub fn elements(self) -> Result<Vec<Raw<'a>>> {
        let Raw::Array(text) = self else { return Ok(Vec::new()) };
        let mut elements = Vec::new();
        Cursor { text, at: 0 }.elements(0, |value| {
            elements.push(value);
            Ok(())
        })?;
        Ok(elements)
    }

    /// Writes the value's original text.
    pub fn write(self, out: &mut bytes::BytesMut) {
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        match self {
            Raw::Null => put(b"null"),
            Raw::Bool(true) => put(b"true"),
            Raw::Bool(false) => put(b"false"),
            Raw::Number(text) | Raw::Array(text) | Raw::Object(text) => put(text),
            Raw::String(inside, _) => {
                put(b"\"");
                put(inside);
                put(b"\"");
            }
        }
    }
}

/// Unescapes a string.
pub fn string(inside: &[u8], escaped: bool) -> Result<Cow<'_, str>> {
    if !escaped {
        let text = std::str::from_utf8(inside);
        return text.map(Cow::Borrowed).or_else(|error| wrong("UTF-8", error.valid_up_to()));
    }
    // Escapes are rare, so leave them to serde_json.
    let mut quoted = Vec::with_capacity(inside.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(inside);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).map(Cow::Owned).or_else(|_| wrong("a string with valid escapes", 0))
}

/// Parses a number, as an integer if it has that form and fits.
pub fn number(text: &[u8]) -> Result<Number> {
    let text = std::str::from_utf8(text).or_else(|_| wrong("a number", 0))?;
    if let Ok(value) = text.parse() {
        return Ok(Number::Integer(value));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let sound = digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.ends_with('.');
    match text.parse::<f64>() {
        Ok(value) if sound && value.is_finite() => Ok(Number::Float(value)),
        _ => wrong("a number", 0),
    }
}

/// A parsed number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
}

/// Writes a quoted and escaped string.
pub fn write_string(text: &str, out: &mut bytes::BytesMut) {
    out.extend_from_slice(b"\"");
    let mut done = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..0x20 => &[],
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[done..at]);
        match escape {
            [] => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            escape => out.extend_from_slice(escape),
        }
        done = at + 1;
    }
    out.extend_from_slice(&text.as_bytes()[done..]);
    out.extend_from_slice(b"\"");
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn found<'a>(text: &'a str, name: &str) -> Result<Option<Raw<'a>>> {
        let mut found = [None];
        find(text.as_bytes(), &[name.into()], &mut found)?;
        Ok(found[0])
    }

    #[test]
    fn members_are_found_wherever_they_stand() {
        let text = r#" { "a" : [1, {"b": 2}] , "b":"x\"y" , "c\u0064": -1.5e3, "b": 2 } "#;
        assert_eq!(found(text, "b"), Ok(Some(Raw::String(br#"x\"y"#, true))));
        assert_eq!(found(text, "cd"), Ok(Some(Raw::Number(b"-1.5e3"))));
        assert_eq!(found(text, "z"), Ok(None));
        let array = found(text, "a").expect("it is JSON").expect("it is there");
        let inner = array.elements().expect("it is JSON")[1].member("b").expect("it is JSON");
        assert_eq!(inner, Some(Raw::Number(b"2")));
        assert_eq!(found("[1]", "b"), Ok(None));
    }

    #[test]
    fn invalid_json_is_rejected_even_if_cut_off_after_the_field() {
        for text in [
            "",
            "{",
            "}",
            r#"{"a":1"#,
            r#"{"b":1,}"#,
            r#"{"a" 1}"#,
            r#"{a:1}"#,
            r#"{"a":1} x"#,
            r#"{"a":tru}"#,
            "nul",
            r#"{"a":"x"#,
            r#"{"a":"x\"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[1}"#,
            "plain text",
        ] {
            assert!(found(text, "a").is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse(deep.as_bytes()), Err(NotJson { expected: "no deeper nesting", at: 128 }));
    }

    #[test]
    fn numbers_are_whole_or_not() {
        assert_eq!(number(b"12"), Ok(Number::Integer(12)));
        assert_eq!(number(b"-0.5"), Ok(Number::Float(-0.5)));
        assert_eq!(number(b"1e3"), Ok(Number::Float(1000.0)));
        assert_eq!(number(b"99999999999999999999"), Ok(Number::Float(1e20)));
        for wrong in ["1.", "-", "--1", "1e", ".5", "1-2", "+1e1", "1e999"] {
            assert!(number(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn strings_are_written_as_they_are_read() {
        for text in ["", "plain", "a\"b\\c\nd\re\tf\u{1}g", "ö\u{1F600}"] {
            let mut out = bytes::BytesMut::new();
            write_string(text, &mut out);
            assert_eq!(serde_json::from_slice::<String>(&out).expect("it is JSON"), text);
        }
    }

    /// Every text that serde_json accepts parses to the same members, and nothing panics.
    #[test]
    fn random_texts_parse_as_with_serde_json() {
        let parts = [
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\\n\"", "1", "-2.5", "true", "null", " ", "\"", "\\",
            "x",
        ];
        for seed in 0..50_000 {
            let mut random = StdRng::seed_from_u64(seed);
            let count = random.random_range(0..12);
            let text: String = (0..count).map(|_| parts[random.random_range(0..parts.len())]).collect();
            let ours = parse(text.as_bytes());
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            if let Ok(value) = theirs {
                assert!(ours.is_ok(), "seed {seed}: {text}");
                if let Some(map) = value.as_object() {
                    let names: std::collections::BTreeSet<String> = ours
                        .and_then(Raw::members)
                        .expect("ours parsed")
                        .into_iter()
                        .map(|(n, _)| n.into_owned())
                        .collect();
                    assert_eq!(names, map.keys().cloned().collect(), "seed {seed}: {text}");
                }
            }
        }
    }
}
