//! Fields of JSON by their paths, as they are written: numbers keep all digits, objects their order.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::valid;
use crate::message::Content;

/// Maximum depth of the fields that [`JsonText::each_field`] visits.
const DEPTH_MAX: usize = 5;

/// A text of valid JSON.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<'a>(&'a str);

impl<'a> JsonText<'a> {
    /// The JSON of a key or value; none if it is no JSON, or not kept as a whole.
    pub fn of(content: &'a Content) -> Option<JsonText<'a>> {
        valid(&content.bytes).filter(|_| content.omitted_bytes() == 0).map(JsonText)
    }

    /// The value at a path of member names and element indexes. Of members with the same name, the last one
    /// counts.
    pub fn field(self, path: &[String]) -> Option<FieldText<'a>> {
        let mut text = self.0;
        for name in path {
            let mut found = None;
            visit_members(text, |member, value| {
                if member == *name {
                    found = Some(value);
                }
            });
            text = found?;
        }
        Some(FieldText(text.trim()))
    }

    /// Visits the path of each scalar member, in order. Members of arrays, and those that are nested more
    /// than five levels deep, are passed over.
    pub fn each_field(self, mut visit: impl FnMut(&[String])) {
        visit_fields(self.0, &mut Vec::new(), &mut visit);
    }
}

fn visit_fields(text: &str, path: &mut Vec<String>, visit: &mut impl FnMut(&[String])) {
    if path.len() == DEPTH_MAX {
        return;
    }
    visit_members(text, |name, value| {
        path.push(name.into_owned());
        match value.as_bytes().first() {
            Some(b'{') => visit_fields(value, path, visit),
            Some(b'[') => {}
            _ => visit(path),
        }
        path.pop();
    });
}

/// The value of a field, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldText<'a>(&'a str);

impl<'a> FieldText<'a> {
    /// The value for people: the characters of a string, or the JSON of anything else.
    pub fn text(self) -> Cow<'a, str> {
        match self.0.as_bytes().first() {
            // A string with a lone surrogate has no characters.
            Some(b'"') => serde_json::from_str(self.0).map_or(Cow::Borrowed(self.0), Cow::Owned),
            _ => Cow::Borrowed(self.0),
        }
    }

    /// The value as a number, if it is one.
    pub fn number(self) -> Option<f64> {
        self.0.parse().ok().filter(|_| !self.0.starts_with(['"', 'N', 'n', 'I', 'i']))
    }
}

/// Visits the members of an object, or the elements of an array by their index; nothing of a scalar.
fn visit_members<'a>(text: &'a str, visit: impl FnMut(Cow<'a, str>, &'a str)) {
    if text.trim_start().starts_with(['{', '[']) {
        // The text is valid JSON.
        let _ = serde_json::Deserializer::from_str(text).deserialize_any(Members(visit));
    }
}

/// Passes the members of an object or array on, as they are written.
struct Members<V>(V);

impl<'a, V: FnMut(Cow<'a, str>, &'a str)> Visitor<'a> for Members<V> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some((name, value)) = object.next_entry::<&RawValue, &RawValue>()? {
            self.0(FieldText(name.get()).text(), value.get());
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut array: A) -> Result<(), A::Error> {
        let mut index = 0usize;
        while let Some(value) = array.next_element::<&RawValue>()? {
            self.0(Cow::Owned(index.to_string()), value.get());
            index += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Content {
        Content { bytes: text.as_bytes().to_vec().into(), whole_bytes: text.len(), schema: None }
    }

    fn field(text: &str, path: &str) -> Option<String> {
        let content = content(text);
        let path: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        JsonText::of(&content)?.field(&path).map(|field| field.text().into_owned())
    }

    #[test]
    fn fields_are_found_as_they_are_written() {
        let text = r#" {"id" : 12345678901234567890123, "a.b": {"c": "x\"]}\u017e"}, "list": [1, {"n": 1.50}, []],
            "o": { "k" : [true, null] } , "e": {}, "t": false, "id2":-0.0e10} "#;
        for (path, expected) in [
            ("id", Some("12345678901234567890123")),
            ("a.b/c", Some("x\"]}ž")),
            ("a.b", Some(r#"{"c": "x\"]}\u017e"}"#)),
            ("list/0", Some("1")),
            ("list/1/n", Some("1.50")),
            ("list/2", Some("[]")),
            ("list/3", None),
            ("o/k/1", Some("null")),
            ("o", Some(r#"{ "k" : [true, null] }"#)),
            ("e", Some("{}")),
            ("e/x", None),
            ("id/x", None),
            ("t", Some("false")),
            ("id2", Some("-0.0e10")),
            ("missing", None),
            ("", Some(text.trim())),
        ] {
            assert_eq!(field(text, path).as_deref(), expected, "{path}");
        }
        assert_eq!(field(r#"{"a": 1, "\u0061": {"b": 2}}"#, "a/b").as_deref(), Some("2"), "the last one");
        assert_eq!(field(r#"["\ud800"]"#, "0").as_deref(), Some(r#""\ud800""#));
        for text in ["{\"a\": 1", "a", "", "\u{feff}{}"] {
            assert_eq!(field(text, "a"), None, "{text}");
        }
        let cut = Content { whole_bytes: 100, ..content("{\"a\": 1}") };
        assert!(JsonText::of(&cut).is_none());
    }

    #[test]
    fn the_fields_of_a_text_are_named_in_order() {
        let content = content(r#"{"b": 1, "a": {"x": "t", "y": {"z": null}}, "l": [{"n": 1}], "e": {}}"#);
        let mut fields = Vec::new();
        JsonText::of(&content).expect("JSON").each_field(|path| fields.push(path.join("/")));
        assert_eq!(fields, ["b", "a/x", "a/y/z"]);
        let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
        let content = self::content(&deep);
        JsonText::of(&content).expect("JSON").each_field(|path| panic!("{path:?}"));
    }

    #[test]
    fn numbers_are_distinct_from_texts() {
        let number = |text: &'static str| FieldText(text).number();
        assert_eq!((number("1.5"), number("-2e3"), number("\"1\"")), (Some(1.5), Some(-2000.0), None));
        assert_eq!((number("null"), number("true"), number("{}")), (None, None, None));
    }
}
