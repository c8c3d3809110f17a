//! JSON of messages, by the rules of RFC 8259: a value is located and checked, and parsed when it is needed.
//!
//! serde_json is the only parser. A text is checked as a whole before any of its fields is used. Values keep
//! their original text, so numbers keep all their digits. Of members with the same name the last one counts,
//! for every reader.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum nesting depth of values that are parsed. Deeper values are only passed on.
pub const DEPTH_MAX: u32 = 128;

/// Bytes that are not valid JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not JSON: {reason}")]
pub struct NotJson {
    /// The expected syntax, and the place.
    pub reason: String,
}

impl From<serde_json::Error> for NotJson {
    fn from(error: serde_json::Error) -> NotJson {
        NotJson { reason: error.to_string() }
    }
}

type Result<T> = std::result::Result<T, NotJson>;

/// A value that was located and checked, but not yet parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw<'a> {
    Null,
    /// true or false
    Bool(bool),
    /// The literal text of a number.
    Number(&'a str),
    /// The text between the quotes, and true if it contains escapes.
    String(&'a str, bool),
    /// An array with its brackets.
    Array(&'a str),
    /// An object with its braces.
    Object(&'a str),
}

/// The name of a member, unescaped.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Name<'de>, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Name<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> std::result::Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> std::result::Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Names)
    }
}

/// Visits the members of an object, or the elements of an array.
struct Each<F>(F);

impl<'de, F: FnMut(Cow<'de, str>, Raw<'de>)> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> std::result::Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            (self.0)(name, Raw::of(members.next_value::<&RawValue>()?.get()));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> std::result::Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            (self.0)(Cow::Borrowed(""), Raw::of(element.get()));
        }
        Ok(())
    }
}

/// Parses a text that is one value.
pub fn parse(text: &[u8]) -> Result<Raw<'_>> {
    Ok(Raw::of(serde_json::from_slice::<&RawValue>(text)?.get()))
}

/// Visits the members of a text that is one object. Returns false for another value.
pub fn each_member<'a>(text: &'a [u8], visit: impl FnMut(Cow<'a, str>, Raw<'a>)) -> Result<bool> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        return parse(text).map(|_| false);
    }
    let mut parser = serde_json::Deserializer::from_slice(text);
    parser.deserialize_map(Each(visit))?;
    parser.end()?;
    Ok(true)
}

/// Finds members of the top-level object by name. Other values have no members.
pub fn find<'a>(text: &'a [u8], names: &[Box<str>], found: &mut [Option<Raw<'a>>]) -> Result<()> {
    let is_object = each_member(text, |name, value| {
        if let Some(index) = names.iter().position(|wanted| **wanted == *name) {
            found[index] = Some(value);
        }
    });
    is_object.map(drop)
}

impl<'a> Raw<'a> {
    /// A value from its text, which is valid and has no blanks around it.
    fn of(text: &'a str) -> Raw<'a> {
        match text.as_bytes() {
            [b'"', inside @ .., b'"'] => {
                Raw::String(&text[1..text.len() - 1], memchr(b'\\', inside).is_some())
            }
            [b'{', ..] => Raw::Object(text),
            [b'[', ..] => Raw::Array(text),
            b"true" => Raw::Bool(true),
            b"false" => Raw::Bool(false),
            b"null" => Raw::Null,
            _ => Raw::Number(text),
        }
    }

    /// The length of the value's text in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Raw::Null | Raw::Bool(_) => 0,
            Raw::Number(text) | Raw::String(text, _) | Raw::Array(text) | Raw::Object(text) => text.len(),
        }
    }

    /// A member of an object.
    pub fn member(self, name: &str) -> Result<Option<Raw<'a>>> {
        let mut found = None;
        self.each_member(|member, value| {
            if member == name {
                found = Some(value);
            }
        })?;
        Ok(found)
    }

    /// Visits the members of an object, in the order of the text.
    pub fn each_member(self, f: impl FnMut(Cow<'a, str>, Raw<'a>)) -> Result<()> {
        let Raw::Object(text) = self else { return Ok(()) };
        Ok(serde_json::Deserializer::from_str(text).deserialize_map(Each(f))?)
    }

    /// Visits the elements of an array, in order.
    pub fn each_element(self, mut f: impl FnMut(Raw<'a>)) -> Result<()> {
        let Raw::Array(text) = self else { return Ok(()) };
        Ok(serde_json::Deserializer::from_str(text).deserialize_seq(Each(|_, value| f(value)))?)
    }

    /// The text of an array behind its opening bracket.
    pub fn inside_of_array(self) -> Option<&'a str> {
        let Raw::Array(text) = self else { return None };
        Some(&text[1..])
    }

    /// The members of an object.
    pub fn members(self) -> Result<Vec<(Cow<'a, str>, Raw<'a>)>> {
        let mut members = Vec::new();
        self.each_member(|name, value| members.push((name, value)))?;
        Ok(members)
    }

    /// The elements of an array.
    pub fn elements(self) -> Result<Vec<Raw<'a>>> {
        let mut elements = Vec::new();
        self.each_element(|value| elements.push(value))?;
        Ok(elements)
    }

    /// Writes the value's original text.
    pub fn write(self, out: &mut bytes::BytesMut) {
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        match self {
            Raw::Null => put("null"),
            Raw::Bool(true) => put("true"),
            Raw::Bool(false) => put("false"),
            Raw::Number(text) | Raw::Array(text) | Raw::Object(text) => put(text),
            Raw::String(inside, _) => {
                put("\"");
                put(inside);
                put("\"");
            }
        }
    }

    /// Writes a form that is the same for equal values: without blanks, with sorted members and plain
    /// strings. Numbers keep their text, so that `1` and `1.0` differ.
    pub fn write_canonical(self, out: &mut bytes::BytesMut) -> Result<()> {
        self.write_canonical_at(out, 0)
    }

    fn write_canonical_at(self, out: &mut bytes::BytesMut, depth: u32) -> Result<()> {
        if depth == DEPTH_MAX {
            return Err(NotJson { reason: format!("it is nested more than {DEPTH_MAX} deep") });
        }
        match self {
            Raw::Null | Raw::Bool(_) | Raw::Number(_) => self.write(out),
            Raw::String(inside, escaped) => write_string(&string(inside, escaped)?, out),
            Raw::Array(_) => {
                out.extend_from_slice(b"[");
                for (index, element) in self.elements()?.into_iter().enumerate() {
                    out.extend_from_slice(if index > 0 { b"," } else { b"" });
                    element.write_canonical_at(out, depth + 1)?;
                }
                out.extend_from_slice(b"]");
            }
            Raw::Object(_) => {
                let members: std::collections::BTreeMap<_, _> = self.members()?.into_iter().collect();
                out.extend_from_slice(b"{");
                for (index, (name, value)) in members.into_iter().enumerate() {
                    out.extend_from_slice(if index > 0 { b"," } else { b"" });
                    write_string(&name, out);
                    out.extend_from_slice(b":");
                    value.write_canonical_at(out, depth + 1)?;
                }
                out.extend_from_slice(b"}");
            }
        }
        Ok(())
    }
}

/// The next element of an array whose text was checked, and the end of the element in the text; `None` at the
/// end of the array. The text begins behind the opening bracket or an element.
pub fn next_element(text: &[u8]) -> Result<Option<(Raw<'_>, usize)>> {
    let rest = text.trim_ascii_start();
    let rest = match rest.first() {
        Some(b']') | None => return Ok(None),
        Some(b',') => rest[1..].trim_ascii_start(),
        Some(_) => rest,
    };
    let raw = <&RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(rest))?.get();
    Ok(Some((Raw::of(raw), text.len() - rest.len() + raw.len())))
}

/// Unescapes a string.
pub fn string(inside: &str, escaped: bool) -> Result<Cow<'_, str>> {
    if !escaped {
        return Ok(Cow::Borrowed(inside));
    }
    // Escapes are rare.
    Ok(Cow::Owned(serde_json::from_str(&format!("\"{inside}\""))?))
}

/// Parses a number, as an integer if it has that form and fits; `None` if it is outside the range of a
/// double.
pub fn number(text: &str) -> Option<Number> {
    if let Ok(value) = text.parse() {
        return Some(Number::Integer(value));
    }
    text.parse().ok().filter(|value: &f64| value.is_finite()).map(Number::Float)
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
        let text = r#" { "a" : [1, {"b": 2}] , "b": 2, "c\u0064": -1.5e3, "b":"x\"y" } "#;
        assert_eq!(found(text, "b"), Ok(Some(Raw::String(r#"x\"y"#, true))), "the last of a name counts");
        assert_eq!(found(text, "cd"), Ok(Some(Raw::Number("-1.5e3"))));
        assert_eq!(found(text, "z"), Ok(None));
        let array = found(text, "a").expect("it is JSON").expect("it is there");
        let inner = array.elements().expect("it is JSON")[1].member("b").expect("it is JSON");
        assert_eq!(inner, Some(Raw::Number("2")));
        assert_eq!(found("[1]", "b"), Ok(None));
        let doubled = parse(br#"{"a": 1, "a": 2}"#).expect("it is JSON");
        assert_eq!(doubled.member("a"), Ok(Some(Raw::Number("2"))));
    }

    #[test]
    fn invalid_json_is_rejected_wherever_the_mistake_is() {
        for text in [
            "",
            "{",
            "}",
            r#"{"a":1"#,
            r#"{"b":1,}"#,
            r#"{"a" 1}"#,
            r#"{a:1}"#,
            r#"{"a":1} x"#,
            r#"{"a":1 junk}"#,
            r#"{"a":tru}"#,
            "nul",
            r#"{"a":"x"#,
            r#"{"a":"x\"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[1}"#,
            "plain text",
            "2026-01-31",
            "10.0.0.1",
            "-",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "--1",
            r#""\q""#,
            "\"a\nb\"",
            r#"{"a":2026-01-31}"#,
            r#"{"b":[-],"a":1}"#,
        ] {
            assert!(found(text, "a").is_err() && parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err() && find(b"{\"a\":\"\xff\"}", &[], &mut []).is_err());
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let deep = parse(deep.as_bytes()).expect("it is JSON, however deep");
        assert!(deep.write_canonical(&mut bytes::BytesMut::new()).is_err(), "it is too deep to be parsed");
    }

    #[test]
    fn numbers_are_whole_or_not() {
        assert_eq!(number("12"), Some(Number::Integer(12)));
        assert_eq!(number("-0.5"), Some(Number::Float(-0.5)));
        assert_eq!(number("1e3"), Some(Number::Float(1000.0)));
        assert_eq!(number("99999999999999999999"), Some(Number::Float(1e20)));
        assert_eq!(number("1e999"), None);
    }

    #[test]
    fn strings_are_written_as_they_are_read() {
        for text in ["", "plain", "a\"b\\c\nd\re\tf\u{1}g", "ö\u{1F600}"] {
            let mut out = bytes::BytesMut::new();
            write_string(text, &mut out);
            assert_eq!(serde_json::from_slice::<String>(&out).expect("it is JSON"), text);
        }
    }

    #[test]
    fn equal_values_have_one_canonical_form() {
        let canonical = |text: &str| {
            let mut out = bytes::BytesMut::new();
            parse(text.as_bytes()).expect("it is JSON").write_canonical(&mut out).expect("it is flat");
            String::from_utf8(out.to_vec()).expect("it is text")
        };
        let expected = r#"{"a":[1.0,"x"],"b":null}"#;
        assert_eq!(canonical(r#"{ "b": 7, "a" : [ 1.0, "\u0078" ], "b": null }"#), expected);
        let values = ["1", "1.0", "\"1\"", "null", "\"null\"", "123456789012345678901234567890"];
        assert_eq!(values.map(canonical), values);
    }

    /// Exactly the texts that serde_json accepts are parsed, to the same members, and nothing panics.
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
            assert_eq!(ours.is_ok(), theirs.is_ok(), "seed {seed}: {text}");
            assert_eq!(find(text.as_bytes(), &[], &mut []).is_ok(), theirs.is_ok(), "seed {seed}: {text}");
            if let Ok(serde_json::Value::Object(map)) = theirs {
                let members = ours.and_then(Raw::members).expect("ours parsed");
                let names: std::collections::BTreeSet<String> =
                    members.into_iter().map(|(name, _)| name.into_owned()).collect();
                assert_eq!(names, map.keys().cloned().collect(), "seed {seed}: {text}");
            }
        }
    }
}
