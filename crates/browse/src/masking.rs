//! Rules that hide parts of messages. Masking precedes filtering, so that a filter cannot probe a hidden
//! part.
//!
//! A rule is one line: topics, a colon, hidden parts, and an optional replacement.
//!
//! ```text
//! # topics (regular expression of the whole name): key, value, header:NAME, field at any depth, JSON pointer
//! payments|refunds: card, /customer/email, header:authorization
//! people\..*: key, value = <hidden>
//! ```
//!
//! Masking fails closed: if fields of a topic are hidden, a value that is not JSON is hidden as a whole,
//! because its fields cannot be found. A key or header value is hidden too, unless it is JSON, or plain text
//! without fields. JSON within strings is searched too, also in Base64. A text with a field name before `=`
//! or `:`, or in a tag, is hidden.

use std::fmt;

use regex::{Regex, RegexBuilder};

use crate::json::{self, MemberSelector};

/// Default replacement of hidden parts.
pub const REPLACEMENT: &str = "***";
/// Maximum number of rules.
const RULES_MAX: usize = 1000;
/// Maximum size of the compiled expression, enough for a thousand field names.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// An invalid masking rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("masking rule {line}, {rule:?}: {reason}")]
pub struct InvalidRule {
    /// The line number, from 1.
    pub line: usize,
    /// The text of the rule.
    pub rule: String,
    /// The fault, and how to correct it.
    pub reason: String,
}

/// Masking rules for all topics.
#[derive(Clone, Debug, Default)]
pub struct Masking {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    topics: Regex,
    hidden: Vec<MaskedPart>,
    replacement: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum MaskedPart {
    Key,
    Value,
    Header(String),
    /// A member with this name, at any depth.
    Field(String),
    /// A member at this path.
    Pointer(Vec<String>),
}

/// The masking rules of one topic.
#[derive(Clone, Debug)]
pub struct TopicMasks {
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(String, String)>,
    fields: Vec<MaskedPart>,
    /// Finds field names that a text gives a value. None if there are too many names, so that every text
    /// counts as a match.
    names: Option<Regex>,
    /// The replacement of fields, as a JSON string.
    field_json: String,
    field_text: String,
}

impl Masking {
    /// Parses rules, one per line or separated by semicolons. Empty lines and comments (#) are ignored.
    pub fn parse(text: &str) -> Result<Masking, InvalidRule> {
        let mut rules = Vec::new();
        for (at, line) in text.lines().enumerate() {
            for rule in line.split(';').map(str::trim) {
                if rule.is_empty() || rule.starts_with('#') {
                    continue;
                }
                let wrong = |reason| InvalidRule { line: at + 1, rule: rule.to_owned(), reason };
                rules.push(Rule::parse(rule).map_err(wrong)?);
                if rules.len() > RULES_MAX {
                    return Err(wrong(format!("at most {RULES_MAX} rules are allowed")));
                }
            }
        }
        Ok(Masking { rules })
    }

    /// Combines the rules with those of `other`.
    #[must_use]
    pub fn and(mut self, other: Masking) -> Masking {
        self.rules.extend(other.rules);
        self
    }

    /// True without rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The masks of a topic; none if no rule applies.
    pub fn of(&self, topic: &str) -> Option<TopicMasks> {
        self.masks(|rule| rule.topics.is_match(topic))
    }

    /// The masks of all rules, for messages that may come from any topic.
    pub fn of_any(&self) -> Option<TopicMasks> {
        self.masks(|_| true)
    }

    fn masks(&self, applies: impl Fn(&Rule) -> bool) -> Option<TopicMasks> {
        let mut masks = TopicMasks {
            key: None,
            value: None,
            headers: Vec::new(),
            fields: Vec::new(),
            names: None,
            field_json: String::new(),
            field_text: String::new(),
        };
        let mut any = false;
        for rule in self.rules.iter().filter(|rule| applies(rule)) {
            any = true;
            for hidden in &rule.hidden {
                let text = &rule.replacement;
                match hidden {
                    MaskedPart::Key => masks.key = Some(text.clone()),
                    MaskedPart::Value => masks.value = Some(text.clone()),
                    MaskedPart::Header(name) => masks.headers.push((name.clone(), text.clone())),
                    field => {
                        if masks.fields.is_empty() {
                            masks.field_json = serde_json::Value::from(text.as_str()).to_string();
                            masks.field_text.clone_from(text);
                        }
                        masks.fields.push(field.clone());
                    }
                }
            }
        }
        masks.names = names(&masks.fields);
        any.then_some(masks)
    }
}

impl fmt::Display for Masking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} masking rules", self.rules.len())
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Rule, String> {
        let form =
            "expected TOPICS: PART, PART = REPLACEMENT, for example payments: card, header:token = ***";
        // A colon may be part of a regular expression, but a colon followed by a blank is unlikely there.
        let (topics, rest) =
            text.split_once(": ").ok_or_else(|| format!("there is no colon with a blank: {form}"))?;
        let (parts, replacement) = match rest.split_once('=') {
            Some((parts, replacement)) => (parts, replacement.trim()),
            None => (rest, REPLACEMENT),
        };
        let topics = Regex::new(&format!("^(?:{})$", topics.trim())).map_err(|error| {
            format!("{:?} is no regular expression: {}", topics.trim(), last_line(&error))
        })?;
        let hidden = parts.split(',').map(str::trim).map(MaskedPart::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Rule { topics, hidden, replacement: replacement.to_owned() })
    }
}

impl MaskedPart {
    fn parse(text: &str) -> Result<MaskedPart, String> {
        let expected =
            "expected key, value, header:NAME, a field name, or a JSON pointer such as /customer/email";
        Ok(match text {
            "" => return Err(format!("a part is empty: {expected}")),
            "key" => MaskedPart::Key,
            "value" => MaskedPart::Value,
            _ => match (text.strip_prefix("header:"), text.strip_prefix('/')) {
                (Some(""), _) => return Err(format!("header: names no header: {expected}")),
                (Some(name), _) => MaskedPart::Header(name.to_owned()),
                (None, Some(path)) => MaskedPart::Pointer(
                    path.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect(),
                ),
                (None, None) => MaskedPart::Field(text.to_owned()),
            },
        })
    }
}

impl TopicMasks {
    /// True if a part of a header may be hidden.
    pub fn has_headers(&self) -> bool {
        !self.headers.is_empty() || !self.fields.is_empty()
    }

    /// The masked header value; none if unchanged. Header names match case-insensitively.
    pub fn header(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let masked = self.headers.iter().find(|(masked, _)| masked.as_bytes().eq_ignore_ascii_case(name));
        if let Some((_, text)) = masked {
            return Some(text.as_bytes().to_vec());
        }
        let mut out = Vec::new();
        self.part(value, &mut out).then_some(out)
    }

    /// The masked header name; none if unchanged.
    pub fn header_name(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.part(name, &mut out).then_some(out)
    }

    /// Writes the masked key to `out`. False if unchanged.
    pub fn key(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        if let Some(text) = &self.key {
            out.extend_from_slice(text.as_bytes());
            return true;
        }
        self.part(key, out)
    }

    /// Masks fields in a key or header, where plain text without fields is common.
    fn part(&self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        if self.fields.is_empty() {
            return false;
        }
        match json::valid(bytes) {
            Some(text) => json::replace(text, self, &self.field_json, out),
            None if plain(bytes).is_some_and(|text| !json::is_chosen_in(text, self)) => return false,
            None => out.extend_from_slice(self.field_text.as_bytes()),
        }
        true
    }

    /// Writes the masked value to `out`. False if unchanged.
    pub fn value(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        if let Some(text) = &self.value {
            out.extend_from_slice(text.as_bytes());
            return true;
        }
        if self.fields.is_empty() {
            return false;
        }
        match json::valid(value) {
            Some(text) => json::replace(text, self, &self.field_json, out),
            None => out.extend_from_slice(self.field_text.as_bytes()),
        }
        true
    }
}

impl MemberSelector for TopicMasks {
    fn is_chosen(&self, path: &[String]) -> bool {
        self.fields.iter().any(|field| match field {
            MaskedPart::Field(name) => path.last() == Some(name),
            MaskedPart::Pointer(names) => names == path,
            MaskedPart::Key | MaskedPart::Value | MaskedPart::Header(_) => false,
        })
    }

    fn is_named_in(&self, text: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.is_match(text))
    }
}

/// Returns a text without control characters and opening brackets.
fn plain(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.contains(|c: char| c.is_control() || matches!(c, '{' | '[' | '<'))).then_some(text)
}

/// A regular expression for field names that a text gives a value: before `=` or `:`, in a tag, or in the
/// head of a table. Case is ignored, because the formats of such texts differ in case.
fn names(fields: &[MaskedPart]) -> Option<Regex> {
    let names = fields.iter().filter_map(|field| match field {
        MaskedPart::Field(name) => Some(name),
        // An index at the end of a path is not a name.
        MaskedPart::Pointer(path) => {
            path.last().filter(|name| !name.bytes().all(|byte| byte.is_ascii_digit()))
        }
        MaskedPart::Key | MaskedPart::Value | MaskedPart::Header(_) => None,
    });
    let names = names.map(|name| regex::escape(name)).collect::<Vec<_>>().join("|");
    let names = if names.is_empty() { "[^\\s\\S]" } else { &names };
    let before = r"(?:^|[^\p{L}\p{N}_])";
    let in_tag = format!(r"<(?:[^<>\s:]*:)?(?:{names})[\s/>]");
    let with_value = format!(r#"{before}(?:{names})["'\\\s]*[:=：＝]"#);
    let in_head = format!(r#"^(?:[^\n]*[,;\t|])?["'\s]*(?:{names})["'\s]*(?:[,;\t|][^\n]*)?\r?\n"#);
    let expression = format!("{in_tag}|{with_value}|{in_head}");
    RegexBuilder::new(&expression).case_insensitive(true).size_limit(NAMES_BYTES_MAX).build().ok()
}

fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(rules: &str, topic: &str, value: &str) -> Option<String> {
        let masks = Masking::parse(rules).expect("rules").of(topic)?;
        let mut out = Vec::new();
        masks.value(value.as_bytes(), &mut out).then(|| String::from_utf8(out).expect("text"))
    }

    #[test]
    fn rules_hide_fields_pointers_keys_values_and_headers() {
        let rules = "# comment\npayments|refunds: card, /customer/email, header:Token\n\npeople\\..*: key, value = <hidden>; x: a";
        let order = r#"{"customer": {"email": "a@b", "card": 1, "x": {"email": "kept"}}, "email": "kept"}"#;
        let expected =
            r#"{"customer": {"email": "***", "card": "***", "x": {"email": "kept"}}, "email": "kept"}"#;
        assert_eq!(masked(rules, "payments", order).as_deref(), Some(expected));
        assert_eq!(masked(rules, "payments2", order), None);
        assert_eq!(masked(rules, "people.eu", "any").as_deref(), Some("<hidden>"));
        let (masks, mut key) =
            (Masking::parse(rules).expect("rules").of("people.eu").expect("masks"), Vec::new());
        assert!(masks.key(b"k", &mut key) && key == b"<hidden>");
        assert_eq!(masks.header(b"token", b"x"), None);
        let masks = Masking::parse(rules).expect("rules").of_any().expect("masks");
        assert!(masks.key(b"k", &mut key) && masks.header(b"token", b"x").is_some());
        let masks = Masking::parse(rules).expect("rules").of("refunds").expect("masks");
        assert!(!masks.key(b"k", &mut key));
        assert_eq!(masks.header(b"TOKEN", b"x").as_deref(), Some(&b"***"[..]));
    }

    #[test]
    fn a_value_in_which_no_field_can_be_found_is_hidden() {
        for value in [
            "card=4711",
            "{\"card\": 4711",
            "\u{0}\u{0}\u{0}\u{0}\u{7}4711",
            "{'card': 4711}",
            "{\"card\": 1}\n{\"card\": 2}",
            "{\"card\": 1} // comment",
            "{\"card\": 1,}",
            "\u{feff}{\"card\": 1}",
            "{\0\"\0c\0a\0r\0d\0\"\0:\x001\0}\0",
            "<card>4711</card>",
            "card,name\n4711,Ann\n",
            "eyJjYXJkIjoxfQ==",
            "\u{1f}\u{8b}\u{8}4711",
        ] {
            assert_eq!(masked("t: card", "t", value).as_deref(), Some("***"), "{value}");
        }
    }

    #[test]
    fn a_text_within_json_that_names_a_field_is_hidden() {
        for (text, is_hidden) in [
            ("<order><card>4711</card></order>", true),
            ("<o:card n='4711'/>", true),
            ("Payment(card=4711, a=1)", true),
            ("{card=4711}", true),
            ("a=1&CARD=4711", true),
            ("card : 4711", true),
            ("\"card\"：4711", true),
            ("name,card\nAnn,4711", true),
            ("card\n4711", true),
            ("card\tname\r\n4711\tAnn", true),
            ("the card, of Ann", false),
            ("postcard=1", false),
            ("<postcard>", false),
            ("card", false),
            ("one\ncard, two", false),
        ] {
            let value = serde_json::json!({ "a": text }).to_string();
            let expected = if is_hidden { r#"{"a":"***"}"#.to_owned() } else { value.clone() };
            assert_eq!(masked("t: card", "t", &value).as_deref(), Some(&*expected), "{text}");
            let masked = masked("t: /a/card", "t", &value);
            assert_eq!(masked.as_deref(), Some(&*expected), "{text}, by its path");
        }
        let value = r#"{"a": "{\"b\": {\"card\": 1}}"}"#;
        assert_eq!(masked("t: /a/card", "t", value).as_deref(), Some(value), "JSON has another path");
        let value = r#"{"a": "10: 1"}"#;
        assert_eq!(masked("t: /items/0", "t", value).as_deref(), Some(value), "an index is no name");
    }

    #[test]
    fn names_of_headers_are_searched() {
        let masks = Masking::parse("t: card").expect("rules").of("t").expect("masks");
        assert_eq!(masks.header_name(b"{\"card\": 1}").as_deref(), Some(&b"{\"card\": \"***\"}"[..]));
        assert_eq!(masks.header_name(b"trace-id"), None);
    }

    #[test]
    fn fields_are_hidden_in_keys_and_headers_too() {
        let masks = Masking::parse("t: card").expect("rules").of("t").expect("masks");
        for (part, expected) in [
            (&br#"{"card": 4711}"#[..], Some(&br#"{"card": "***"}"#[..])),
            (b"customer-17", None),
            (b"4711", Some(b"4711")),
            (b"{'card': 4711}", Some(b"***")),
            (b"<card>4711</card>", Some(b"***")),
            (b"\x00\x00\x00\x00\x074711", Some(b"***")),
            (b"{\x00\"\x00c\x00a\x00r\x00d\x00", Some(b"***")),
            (b"card=4711", Some(b"***")),
            (b"a=1;Card: 4711", Some(b"***")),
            (b"postcard=1", None),
            (b"a card, and more", None),
            (b"eyJjYXJkIjo0NzExfQ==", Some(b"***")),
            (b"eyJhIjo0NzExfQ==", None),
            (b"q=%7B%22card%22%3A1%7D", Some(b"***")),
        ] {
            assert_eq!(masks.header(b"h", part).as_deref(), expected);
            let mut key = Vec::new();
            assert_eq!(masks.key(part, &mut key).then_some(&key[..]), expected);
        }
    }

    #[test]
    fn mistakes_in_rules_are_named_with_their_line() {
        for (rules, expected) in [
            ("t: a\nno colon", "masking rule 2, \"no colon\": there is no colon"),
            ("(: a", "masking rule 1, \"(: a\": \"(\" is no regular expression: unclosed group"),
            ("t: a,,b", "masking rule 1, \"t: a,,b\": a part is empty"),
            ("t: header:", "masking rule 1, \"t: header:\": header: names no header"),
        ] {
            let error = Masking::parse(rules).expect_err(rules).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
