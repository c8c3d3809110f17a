//! JSON as text: strictly validated once, then walked. Numbers, escapes and order stay as written, unlike in
//! a parsed tree.
//!
//! The walks rely on the validation: valid JSON is unambiguous, so a mask finds every member that any reader
//! would find.

mod embedded;
pub mod fields;

use serde::de::IgnoredAny;

/// Maximum growth of a text by indentation. Deeply nested small values would grow a hundredfold.
const GROWTH_MAX: usize = 8;
/// Byte order mark, which some programs write before JSON.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Maximum depth of JSON within strings within JSON. Deeper strings are replaced unread.
const EMBEDDED_MAX: usize = 4;
/// Size up to which the growth is not limited.
const GROWTH_FREE_BYTES: usize = 16 << 10;

/// Returns the text if it is strictly valid JSON.
pub fn valid(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    Some(text)
}

/// Indents valid JSON; none if the text would grow too much.
pub fn pretty(text: &str) -> Option<String> {
    let limit = text.len().saturating_mul(GROWTH_MAX).max(GROWTH_FREE_BYTES);
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let mut rest = text.char_indices().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some((_, c)) = rest.next() {
        if out.len() > limit {
            return None;
        }
        if in_string {
            out.push(c);
            (in_string, escaped) = match c {
                _ if escaped => (true, false),
                '\\' => (true, true),
                '"' => (false, false),
                _ => (true, false),
            };
            continue;
        }
        match c {
            ' ' | '\n' | '\r' | '\t' => {}
            '"' => {
                out.push(c);
                in_string = true;
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
                if let Some((_, close)) = rest.next_if(|(_, c)| matches!(c, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => out.push(c),
        }
    }
    Some(out)
}

/// Selects the members of objects to replace.
pub trait MemberSelector {
    /// True if the value at this path is replaced. The path consists of member names and of element indexes
    /// as text.
    fn is_chosen(&self, path: &[String]) -> bool;
    /// True if a text that is not JSON seems to contain a replaced value, as in `card=4711`.
    fn is_named_in(&self, text: &str) -> bool;
}

/// True if a text contains JSON with a replaced value, or may do so undetectably.
pub fn is_chosen_in(text: &str, choose: &impl MemberSelector) -> bool {
    Walk::new("", choose, "", &mut Vec::new()).is_chosen_in(text)
}

/// Copies valid JSON to `out`, and replaces selected values by `replacement`, a JSON string. A string or
/// member name is replaced as a whole if it contains JSON with a selected value, or begins like JSON but is
/// invalid.
pub fn replace(text: &str, choose: &impl MemberSelector, replacement: &str, out: &mut Vec<u8>) {
    let mut walk = Walk::new(text, choose, replacement, out);
    walk.value(true);
    walk.blank(true);
}

struct Walk<'a, C> {
    text: &'a [u8],
    at: usize,
    path: Vec<String>,
    /// Number of strings around this text.
    level: usize,
    /// True if a value was selected.
    has_chosen: bool,
    choose: &'a C,
    replacement: &'a str,
    out: &'a mut Vec<u8>,
}

impl<'a, C> Walk<'a, C> {
    fn new(text: &'a str, choose: &'a C, replacement: &'a str, out: &'a mut Vec<u8>) -> Walk<'a, C> {
        let (at, path, level, has_chosen) = (0, Vec::new(), 0, false);
        Walk { text: text.as_bytes(), at, path, level, has_chosen, choose, replacement, out }
    }
}

impl<C: MemberSelector> Walk<'_, C> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn copy(&mut self, from: usize, keep: bool) {
        if keep {
            self.out.extend_from_slice(&self.text[from..self.at]);
        }
    }

    fn blank(&mut self, keep: bool) {
        let from = self.at;
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
        self.copy(from, keep);
    }

    fn byte(&mut self, keep: bool) {
        let from = self.at;
        self.at = (self.at + 1).min(self.text.len());
        self.copy(from, keep);
    }

    fn string(&mut self, keep: bool) -> &[u8] {
        let from = self.at;
        self.at += 1;
        while self.at < self.text.len() && self.peek() != b'"' {
            self.at += if self.peek() == b'\\' { 2 } else { 1 };
        }
        self.at = (self.at + 1).min(self.text.len());
        self.copy(from, keep);
        &self.text[from..self.at]
    }

    /// True if a string contains JSON with a selected value, or may do so undetectably.
    fn is_chosen_within(&self, string: &[u8]) -> bool {
        serde_json::from_slice::<String>(string).map_or(true, |inner| self.is_chosen_in(&inner))
    }

    /// True if a text contains JSON with a selected value, or may do so undetectably.
    fn is_chosen_in(&self, inner: &str) -> bool {
        let inner = inner.trim_start_matches(|c: char| c.is_whitespace() || c == BYTE_ORDER_MARK);
        // Members may follow a prefix, as in a log line. Such a text is replaced as a whole.
        let may_have_members = match inner.as_bytes().first() {
            Some(b'{') => true,
            Some(b'"') => inner.contains(['{', '\\']),
            _ => inner.split_once('{').is_some_and(|(_, behind)| behind.contains(':')),
        };
        if !may_have_members {
            return embedded::has_spelled_brace(inner)
                || self.choose.is_named_in(inner)
                || embedded::in_base64(inner).any(|text| self.is_chosen_deeper(&text));
        }
        self.is_chosen_deeper(inner)
    }

    /// True if this text is JSON with a selected value. Text that is too deep or not JSON counts as selected.
    fn is_chosen_deeper(&self, inner: &str) -> bool {
        let inner = inner.trim_start_matches(BYTE_ORDER_MARK);
        let Some(text) = valid(inner.as_bytes()).filter(|_| self.level < EMBEDDED_MAX) else { return true };
        let mut out = Vec::new();
        let walk = Walk::new(text, self.choose, "", &mut out);
        let mut walk = Walk { path: self.path.clone(), level: self.level + 1, ..walk };
        walk.value(true);
        walk.has_chosen
    }

    /// Walks one value. In valid JSON, the first byte determines the type, and the validation has bounded the
    /// depth.
    fn value(&mut self, keep: bool) {
        self.blank(keep);
        match self.peek() {
            b'"' => {
                let (text, from) = (self.text, self.at);
                self.string(false);
                if keep && self.is_chosen_within(&text[from..self.at]) {
                    self.has_chosen = true;
                    self.out.extend_from_slice(self.replacement.as_bytes());
                } else {
                    self.copy(from, keep);
                }
            }
            open @ (b'{' | b'[') => {
                self.byte(keep);
                self.blank(keep);
                let mut index = 0usize;
                while self.at < self.text.len() && !matches!(self.peek(), b'}' | b']') {
                    // A member with an unreadable name is hidden together with its value.
                    let mut is_unreadable = false;
                    if open == b'{' {
                        let (text, from) = (self.text, self.at);
                        self.string(false);
                        let written = &text[from..self.at];
                        if keep && self.is_chosen_within(written) {
                            self.has_chosen = true;
                            self.out.extend_from_slice(self.replacement.as_bytes());
                        } else {
                            self.copy(from, keep);
                        }
                        let name = serde_json::from_slice::<String>(written);
                        is_unreadable = name.is_err();
                        self.path.push(name.unwrap_or_default());
                        self.blank(keep);
                        self.byte(keep);
                    } else {
                        self.path.push(index.to_string());
                        index += 1;
                    }
                    self.blank(keep);
                    let hide = keep && (is_unreadable || self.choose.is_chosen(&self.path));
                    if hide {
                        self.has_chosen = true;
                        self.out.extend_from_slice(self.replacement.as_bytes());
                    }
                    self.value(keep && !hide);
                    self.path.pop();
                    self.blank(keep);
                    if self.peek() == b',' {
                        self.byte(keep);
                        self.blank(keep);
                    }
                }
                self.byte(keep);
            }
            _ => {
                let from = self.at;
                while !matches!(self.peek(), 0 | b',' | b'}' | b']') && !self.peek().is_ascii_whitespace() {
                    self.at += 1;
                }
                self.copy(from, keep);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct MemberName(&'static str);

    impl MemberSelector for MemberName {
        fn is_chosen(&self, path: &[String]) -> bool {
            path.last().is_some_and(|name| name == self.0)
        }

        fn is_named_in(&self, text: &str) -> bool {
            text.contains(&format!("{}=", self.0))
        }
    }

    fn replaced(text: &str) -> String {
        let mut out = Vec::new();
        replace(valid(text.as_bytes()).expect("valid"), &MemberName("card"), "\"***\"", &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn chosen_members_are_replaced_wherever_they_are_and_however_they_are_written() {
        for (text, expected) in [
            (r#"{"card": 4711, "a": 1.50}"#, r#"{"card": "***", "a": 1.50}"#),
            (
                r#" { "a" : [ {"card":{"card":[1,"]"]}} , 2 ] , "card":"x\"y" } "#,
                r#" { "a" : [ {"card":"***"} , 2 ] , "card":"***" } "#,
            ),
            (
                r#"{"c\u0061rd":[1,2],"card":null,"card":true}"#,
                r#"{"c\u0061rd":"***","card":"***","card":"***"}"#,
            ),
            (r#"{"a":"card","b":{}, "c":[]}"#, r#"{"a":"card","b":{}, "c":[]}"#),
            ("[{}, []]", "[{}, []]"),
            ("7", "7"),
            (r#""card""#, r#""card""#),
        ] {
            assert_eq!(replaced(text), expected);
            assert!(valid(replaced(text).as_bytes()).is_some());
        }
    }

    #[test]
    fn json_within_strings_is_searched() {
        for (text, is_replaced) in [
            (r#""{\"card\": 1}""#, true),
            (r#""\u007b\"c\u0061rd\": 1\u007d""#, true),
            (r#"" [{\"a\": {\"card\": 1}}]""#, true),
            (r#""{\"a\": \"{\\\"card\\\": 1}\"}""#, true),
            (r#""\"{\\\"card\\\": 1}\"""#, true),
            (r#""{\"card\": 1""#, true),
            (r#""\ud800{\"card\": 1}""#, true),
            (r#""\ufeff{\"card\": 1}""#, true),
            ("\"\u{feff}{\\\"card\\\": 1}\"", true),
            (r#""paid: {\"card\": 1}""#, true),
            (r#""[INFO] {'card': 1}""#, true),
            (r#""1 [{\"card\": 1}]""#, true),
            (r#""eyJjYXJkIjoxfQ==""#, true),
            (r#""Bearer eyJhIjp7ImNhcmQiOjF9fQ.x""#, true),
            (r#""eyJhIjoxfQ==""#, false),
            (r#""ZXlKallYSmtJam94ZlE9PQ==""#, true),
            (r#""q=%7B%22card%22%3A1%7D""#, true),
            (r#""\\u007b\\u0022card\\u0022: 1}""#, true),
            (r#""{card=4711, a=1}""#, true),
            (r#""a=1&card=4711""#, true),
            (r#""\ufeff{\"a\": 1}""#, false),
            (r#""for {name}: a card""#, true),
            (r#""for {name} a card""#, false),
            (r#""{\"a\": 1}""#, false),
            (r#""[INFO] card""#, false),
            (r#""a \\ b""#, false),
        ] {
            let expected = if is_replaced { r#""***""# } else { text };
            assert_eq!(replaced(&format!(r#"{{"a":[{text}]}}"#)), format!(r#"{{"a":[{expected}]}}"#));
            assert_eq!(replaced(text), expected);
        }
        for (text, expected) in [
            (r#"{"{\"card\":4711}":1}"#, r#"{"***":1}"#),
            (r#"{"a": {"[{\"card\":4711}]" : 1, "b": 2}}"#, r#"{"a": {"***" : 1, "b": 2}}"#),
            (r#""{\"{\\\"card\\\":4711}\":1}""#, r#""***""#),
            (r#"{"{\"a\":1}":1}"#, r#"{"{\"a\":1}":1}"#),
        ] {
            assert_eq!(replaced(text), expected, "in the name of a member");
        }
        let deep =
            (0..8).fold("{\"card\":1}".to_owned(), |text, _| serde_json::to_string(&text).expect("text"));
        assert_eq!(replaced(&deep), r#""***""#);
    }

    #[test]
    fn what_is_no_json_is_not_taken_for_it() {
        for text in [&b"{"[..], b"{'a':1}", b"{\"a\":1}x", b"\xff", b"\"\xff\"", b"{\"a\":1,}", b"", b"NaN"] {
            assert_eq!(valid(text), None);
        }
        assert_eq!(valid("[".repeat(100_000).as_bytes()), None);
    }

    #[test]
    fn pretty_keeps_every_value_and_does_not_grow_without_bound() {
        let text = r#"{"a":[1.0,12345678901234567890123,{"b":"x, {y}: \" z"}],"c":{},"d":[ ]}"#;
        let shown = pretty(text).expect("it is small");
        let expected = "{\n  \"a\": [\n    1.0,\n    12345678901234567890123,\n    {\n      \"b\": \"x, {y}: \\\" z\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(shown, expected);
        let deep = "[".repeat(100) + &"1,".repeat(100_000) + "1" + &"]".repeat(100);
        assert_eq!(pretty(&deep), None);
    }
}
