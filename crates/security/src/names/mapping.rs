//! `ssl.principal.mapping.rules`: user names from the names in client certificates (Kafka's
//! `SslPrincipalMapper`).
//!
//! The setting is a comma-separated list of rules: `DEFAULT`, or `RULE:pattern/replacement/` with an optional
//! `L` or `U` for lower or upper case. The first rule whose pattern matches the whole name applies, and
//! replaces each match in the name. A slash in pattern or replacement is written `\/`. Look-around and
//! back-references are not supported, and are rejected at the start.

use std::fmt;

use regex::{Captures, Regex, RegexBuilder};

/// Maximum size of a compiled pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// An invalid rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// A rule that is neither `DEFAULT` nor `RULE:pattern/replacement/[LU]`.
    #[error("Invalid rule: {0}")]
    Syntax(String),
    /// An invalid pattern, or one that only Java supports.
    #[error("Invalid pattern {pattern}: {reason}")]
    Pattern {
        /// The pattern text.
        pattern: String,
        /// The reason for the rejection.
        reason: String,
    },
    /// A replacement that ends within an escape, or names a group that the pattern lacks.
    #[error("Invalid replacement {0}")]
    Replacement(String),
}

/// A name that no rule matches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No rules apply to {name}, rules {rules} (ssl.principal.mapping.rules)")]
pub struct NoMatchingRule {
    /// The distinguished name.
    pub name: String,
    /// The text of the setting.
    pub rules: String,
}

/// Rules, in order of application.
#[derive(Clone, Debug)]
pub struct PrincipalMapping {
    text: String,
    rules: Vec<Rule>,
}

impl Default for PrincipalMapping {
    /// The rule `DEFAULT`: the user name is the distinguished name.
    fn default() -> Self {
        Self { text: "DEFAULT".to_owned(), rules: vec![Rule::Default] }
    }
}

#[derive(Clone, Debug)]
enum Rule {
    Default,
    Replace { whole: Regex, part: Regex, replacement: Vec<Piece>, letters: Letters },
}

#[derive(Clone, Copy, Debug)]
enum Letters {
    Unchanged,
    Small,
    Capital,
}

/// A part of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Group(usize),
    NamedGroup(String),
}

impl PrincipalMapping {
    /// Parses the setting.
    pub fn parse(text: &str) -> Result<PrincipalMapping, InvalidRule> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        loop {
            rest = rest.trim_start();
            if rest.is_empty() {
                break;
            }
            let (rule, after) = Rule::parse(rest)?;
            rules.extend(rule);
            rest = after;
        }
        Ok(PrincipalMapping { text: text.trim().to_owned(), rules })
    }

    /// Maps a distinguished name to a user name.
    pub fn name(&self, distinguished: &str) -> Result<String, NoMatchingRule> {
        let found = self.rules.iter().find_map(|rule| rule.apply(distinguished));
        found.ok_or_else(|| NoMatchingRule { name: distinguished.to_owned(), rules: self.text.clone() })
    }
}

impl fmt::Display for PrincipalMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Rule {
    /// Parses the first rule of the text, if not empty. Also returns the text after its comma.
    fn parse(text: &str) -> Result<(Option<Rule>, &str), InvalidRule> {
        let invalid = || InvalidRule::Syntax(text.to_owned());
        let behind = |rest: &'_ str| -> Option<usize> {
            let rest = rest.trim_start();
            match rest.strip_prefix(',') {
                Some(after) => Some(after.len()),
                None => rest.is_empty().then_some(0),
            }
        };
        if let Some(left) = text.strip_prefix("DEFAULT").and_then(behind) {
            return Ok((Some(Rule::Default), &text[text.len() - left..]));
        }
        let Some(body) = text.strip_prefix("RULE:") else {
            return match behind(text) {
                Some(left) => Ok((None, &text[text.len() - left..])),
                None => Err(invalid()),
            };
        };
        let (pattern, rest) = until_slash(body).ok_or_else(invalid)?;
        let (replacement, rest) = until_slash(rest).ok_or_else(invalid)?;
        let (letters, rest) = match rest.as_bytes().first() {
            Some(b'L') => (Letters::Small, &rest[1..]),
            Some(b'U') => (Letters::Capital, &rest[1..]),
            _ => (Letters::Unchanged, rest),
        };
        let left = behind(rest).ok_or_else(invalid)?;
        let rule = Rule::replacing(pattern, replacement, letters)?;
        Ok((Some(rule), &rest[rest.len() - left..]))
    }

    fn replacing(pattern: &str, replacement: &str, letters: Letters) -> Result<Rule, InvalidRule> {
        let compile = |text: &str| {
            let built = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
            built
                .map_err(|error| InvalidRule::Pattern { pattern: pattern.to_owned(), reason: reason(&error) })
        };
        let part = compile(pattern)?;
        let whole = compile(&format!(r"\A(?:{pattern})\z"))?;
        let replacement =
            pieces(replacement, &part).ok_or_else(|| InvalidRule::Replacement(replacement.to_owned()))?;
        Ok(Rule::Replace { whole, part, replacement, letters })
    }

    fn apply(&self, name: &str) -> Option<String> {
        let Rule::Replace { whole, part, replacement, letters } = self else { return Some(name.to_owned()) };
        if !whole.is_match(name) {
            return None;
        }
        let replaced = replace_all(name, part, replacement);
        Some(match letters {
            Letters::Unchanged => replaced,
            Letters::Small => replaced.to_lowercase(),
            Letters::Capital => replaced.to_uppercase(),
        })
    }
}

fn reason(error: &regex::Error) -> String {
    match error {
        // The first lines show the pattern; the last line has the reason.
        regex::Error::Syntax(text) => {
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
        error => error.to_string(),
    }
}

/// Splits the text at the first slash without a preceding backslash. As in Kafka, backslashes stay in the
/// text.
fn until_slash(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '/' if !is_escaped => return Some((&text[..at], &text[at + 1..])),
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// Parses a Java replacement: `$1`, `${name}`, and a backslash before a literal character. A group number
/// takes as many digits as name an existing group. A number that names no group stays literal text, unless
/// the pattern has no groups.
fn pieces(text: &str, pattern: &Regex) -> Option<Vec<Piece>> {
    let groups = pattern.captures_len() - 1;
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => literal.push(rest.next()?),
            '$' => {
                let behind = rest.as_str();
                let piece = if let Some(named) = behind.strip_prefix('{') {
                    let (name, after) = named.split_once('}')?;
                    pattern.capture_names().flatten().find(|known| *known == name)?;
                    rest = after.chars();
                    Piece::NamedGroup(name.to_owned())
                } else {
                    let (number, digits) = group(behind, groups)?;
                    if number > groups {
                        if groups == 0 {
                            return None;
                        }
                        literal.push('$');
                        continue;
                    }
                    rest = behind[digits..].chars();
                    Piece::Group(number)
                };
                pieces.extend(
                    Some(std::mem::take(&mut literal)).filter(|text| !text.is_empty()).map(Piece::Text),
                );
                pieces.push(piece);
            }
            c => literal.push(c),
        }
    }
    pieces.extend(Some(literal).filter(|text| !text.is_empty()).map(Piece::Text));
    Some(pieces)
}

/// The group number at the start of the text, and the length of its digits.
fn group(text: &str, groups: usize) -> Option<(usize, usize)> {
    let digit =
        |at: usize| text.as_bytes().get(at).filter(|b| b.is_ascii_digit()).map(|b| usize::from(b - b'0'));
    let (mut number, mut digits) = (digit(0)?, 1);
    while let Some(next) = digit(digits) {
        let longer = number * 10 + next;
        if longer > groups {
            break;
        }
        (number, digits) = (longer, digits + 1);
    }
    Some((number, digits))
}

/// Replaces all matches as Java does: an empty match directly after a non-empty one counts too.
fn replace_all(name: &str, pattern: &Regex, replacement: &[Piece]) -> String {
    let mut replaced = String::new();
    let (mut copied, mut from) = (0, 0);
    while from <= name.len() {
        let Some(captures) = pattern.captures_at(name, from) else { break };
        let Some(found) = captures.get(0) else { break };
        replaced.push_str(&name[copied..found.start()]);
        replacement.iter().for_each(|piece| replaced.push_str(expand(piece, &captures)));
        copied = found.end();
        from = match found.is_empty() {
            false => found.end(),
            true => found.end() + name[found.end()..].chars().next().map_or(1, char::len_utf8),
        };
    }
    replaced.push_str(name.get(copied..).unwrap_or_default());
    replaced
}

fn expand<'a>(piece: &'a Piece, captures: &'a Captures<'_>) -> &'a str {
    match piece {
        Piece::Text(text) => text,
        Piece::Group(number) => captures.get(*number).map_or("", |found| found.as_str()),
        Piece::NamedGroup(name) => captures.name(name).map_or("", |found| found.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rules: &str, name: &str) -> Option<String> {
        PrincipalMapping::parse(rules).expect(rules).name(name).ok()
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules =
            r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),.*$/$1@$2/L , DEFAULT";
        assert_eq!(map(rules, "CN=kafka1,OU=ServiceUsers,O=X,C=US").as_deref(), Some("kafka1"));
        assert_eq!(map(rules, "CN=Ann,OU=Adm,O=X,C=US").as_deref(), Some("ann@adm"));
        assert_eq!(map(rules, "CN=Ann").as_deref(), Some("CN=Ann"));
        assert_eq!(map("RULE:^CN=(a)$/$1/", "CN=b"), None);
        assert_eq!(map("", "CN=b"), None);
    }

    #[test]
    fn rules_that_java_alone_has_are_refused() {
        for rules in [
            "RULE:(?=a).*/$1/",
            r"RULE:(a)\1/$1/",
            "RULE:a/b",
            "DEFAULTS",
            "default",
            "RULE:a/$1/",
            "RULE:a/x/LU",
        ] {
            assert!(PrincipalMapping::parse(rules).is_err(), "{rules}");
        }
    }
}
