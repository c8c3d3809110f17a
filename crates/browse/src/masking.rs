//! Rules that hide parts of messages. They apply before a condition sees a message, so that a hidden part cannot be probed.
//!
//! A rule is a line: topics, a colon, what is hidden, and perhaps a replacement.
//!
//! ```text
//! # topics, a regular expression of the whole name: key, value, header:NAME, a field at any depth, or a JSON pointer
//! payments|refunds: card, /customer/email, header:authorization
//! people\..*: key, value = <hidden>
//! ```
//!
//! Hiding fails closed: if fields of a topic are hidden, a value that is not JSON is hidden as a whole, because nobody can say
//! where the field is in it.

use std::fmt;

use regex::Regex;

use crate::json::{self, Choose};

/// What stands in place of hidden parts, unless a rule says otherwise.
pub const REPLACEMENT: &str = "***";
/// The most rules.
const RULES_MAX: usize = 1000;

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("masking rule {line}: {reason}")]
pub struct InvalidRule {
    /// The line, from 1.
    pub line: usize,
    /// The fault, and how to correct it.
    pub reason: String,
}

/// The rules.
#[derive(Clone, Debug, Default)]
pub struct Masking {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    topics: Regex,
    hidden: Vec<Hidden>,
    replacement: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hidden {
    Key,
    Value,
    Header(String),
    /// A member of that name, at any depth.
    Field(String),
    /// A member at this path.
    Pointer(Vec<String>),
}

/// The rules for one topic.
#[derive(Clone, Debug)]
pub struct TopicMasks {
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(String, String)>,
    fields: Vec<Hidden>,
    /// The replacement of fields, as JSON.
    field_json: String,
    field_text: String,
}

impl Masking {
    /// Reads rules, a line each, or several separated by semicolons. Empty lines and comments (#) are ignored.
    pub fn parse(text: &str) -> Result<Masking, InvalidRule> {
        let mut rules = Vec::new();
        for (at, line) in text.lines().enumerate() {
            for rule in line.split(';').map(str::trim) {
                if rule.is_empty() || rule.starts_with('#') {
                    continue;
                }
                rules.push(Rule::parse(rule).map_err(|reason| InvalidRule { line: at + 1, reason })?);
                if rules.len() > RULES_MAX {
                    return Err(InvalidRule {
                        line: at + 1,
                        reason: format!("at most {RULES_MAX} rules are allowed"),
                    });
                }
            }
        }
        Ok(Masking { rules })
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The masks of a topic, if any part of its messages is hidden.
    pub fn of(&self, topic: &str) -> Option<TopicMasks> {
        let mut masks = TopicMasks {
            key: None,
            value: None,
            headers: Vec::new(),
            fields: Vec::new(),
            field_json: String::new(),
            field_text: String::new(),
        };
        let mut any = false;
        for rule in self.rules.iter().filter(|rule| rule.topics.is_match(topic)) {
            any = true;
            for hidden in &rule.hidden {
                let text = &rule.replacement;
                match hidden {
                    Hidden::Key => masks.key = Some(text.clone()),
                    Hidden::Value => masks.value = Some(text.clone()),
                    Hidden::Header(name) => masks.headers.push((name.clone(), text.clone())),
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
        // A colon may be part of a regular expression, a blank behind it is not likely to be.
        let (topics, rest) =
            text.split_once(": ").ok_or_else(|| format!("there is no colon with a blank: {form}"))?;
        let (parts, replacement) = match rest.split_once('=') {
            Some((parts, replacement)) => (parts, replacement.trim()),
            None => (rest, REPLACEMENT),
        };
        let topics = Regex::new(&format!("^(?:{})$", topics.trim())).map_err(|error| {
            format!("{:?} is no regular expression: {}", topics.trim(), last_line(&error))
        })?;
        let hidden = parts.split(',').map(str::trim).map(Hidden::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Rule { topics, hidden, replacement: replacement.to_owned() })
    }
}

impl Hidden {
    fn parse(text: &str) -> Result<Hidden, String> {
        let expected =
            "expected key, value, header:NAME, a field name, or a JSON pointer such as /customer/email";
        Ok(match text {
            "" => return Err(format!("a part is empty: {expected}")),
            "key" => Hidden::Key,
            "value" => Hidden::Value,
            _ => match (text.strip_prefix("header:"), text.strip_prefix('/')) {
                (Some(""), _) => return Err(format!("header: names no header: {expected}")),
                (Some(name), _) => Hidden::Header(name.to_owned()),
                (None, Some(path)) => Hidden::Pointer(
                    path.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect(),
                ),
                (None, None) => Hidden::Field(text.to_owned()),
            },
        })
    }
}

impl TopicMasks {
    /// The replacement of a header's value, if that is hidden. Upper and lower case are the same.
    pub fn header(&self, name: &[u8]) -> Option<&[u8]> {
        let masked = self.headers.iter().find(|(masked, _)| masked.as_bytes().eq_ignore_ascii_case(name));
        masked.map(|(_, text)| text.as_bytes())
    }

    /// The replacement of a key, if keys are hidden.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref().map(str::as_bytes)
    }

    /// Writes the masked form of a value to `out`; false if nothing of it is hidden.
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

impl Choose for TopicMasks {
    fn is_chosen(&self, path: &[String]) -> bool {
        self.fields.iter().any(|field| match field {
            Hidden::Field(name) => path.last() == Some(name),
            Hidden::Pointer(names) => names == path,
            Hidden::Key | Hidden::Value | Hidden::Header(_) => false,
        })
    }
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
        let masks = Masking::parse(rules).expect("rules").of("people.eu").expect("masks");
        assert_eq!((masks.key(), masks.header(b"token")), (Some(&b"<hidden>"[..]), None));
        let masks = Masking::parse(rules).expect("rules").of("refunds").expect("masks");
        assert_eq!((masks.key(), masks.header(b"TOKEN")), (None, Some(&b"***"[..])));
    }

    #[test]
    fn a_value_in_which_no_field_can_be_found_is_hidden() {
        for value in ["card=4711", "{\"card\": 4711", "\u{0}\u{0}\u{0}\u{0}\u{7}4711", "{'card': 4711}"] {
            assert_eq!(masked("t: card", "t", value).as_deref(), Some("***"), "{value}");
        }
    }

    #[test]
    fn mistakes_in_rules_are_named_with_their_line() {
        for (rules, expected) in [
            ("t: a\nno colon", "masking rule 2: there is no colon"),
            ("(: a", "masking rule 1: \"(\" is no regular expression: unclosed group"),
            ("t: a,,b", "masking rule 1: a part is empty"),
            ("t: header:", "masking rule 1: header: names no header"),
        ] {
            let error = Masking::parse(rules).expect_err(rules).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
