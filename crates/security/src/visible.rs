//! Escapes for untrusted texts. Client ids, names of groups and users, keys, values and responses of other
//! servers may hold characters that move a cursor, end a line, reorder the surrounding text, or are
//! invisible, so that one text looks like another. Such characters are shown as escapes, such as `\u{202e}`.
//!
//! Documents for programs keep the original text, with JSON escapes ([`in_json`]).

use std::borrow::Cow;
use std::fmt::Write;

/// True if a character is invisible or affects others: controls (including C1), directional marks and
/// overrides (Trojan Source, CVE-2021-42574), line separators, and zero-width characters. Emoji sequences
/// joined by U+200D fall apart.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            // Zero-width spaces and joiners, directional marks.
            | '\u{200b}'..='\u{200f}'
            // Line and paragraph separators, directional embeddings and overrides.
            | '\u{2028}'..='\u{202e}'
            // Invisible operators, isolates, and deprecated characters.
            | '\u{2060}'..='\u{206f}'
            // Blank letters.
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}'
            // Interlinear annotations, and tags, which can spell a hidden text.
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text of one line, with such characters escaped.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_unseen)
}

/// A text of several lines, with such characters escaped except line ends and tabs.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unseen(c) && !matches!(c, '\n' | '\t'))
}

/// A text with the selected characters escaped.
pub fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// An equivalent JSON document, with such characters of its texts escaped.
pub fn in_json(document: String) -> String {
    // Outside of texts, JSON has only ASCII controls, as line ends between its parts.
    let is_escaped = |c: char| is_unseen(c) && !c.is_ascii();
    if !document.contains(is_escaped) {
        return document;
    }
    let mut written = String::with_capacity(document.len() + 8);
    for c in document.chars() {
        if !is_escaped(c) {
            written.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a `String` cannot fail.
            let _ = write!(written, "\\u{unit:04x}");
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_seen_stay_as_they_are() {
        for text in ["", "orders", "ünï 流 שלום سلام", "a\\u{202e}b", "👍🏽 ❤\u{fe0f}"] {
            assert!(matches!(visible(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        assert!(matches!(visible_lines("a\n\tb"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_changes_how_a_text_is_seen_is_escaped() {
        let cases = [
            ("alice\u{202e}nimda", "alice\\u{202e}nimda"),
            ("\u{2066}a\u{2069}\u{200e}\u{200f}\u{61c}", "\\u{2066}a\\u{2069}\\u{200e}\\u{200f}\\u{61c}"),
            ("a\u{2028}b\u{2029}c", "a\\u{2028}b\\u{2029}c"),
            (
                "ad\u{200b}min\u{200c}\u{200d}\u{feff}\u{2060}",
                "ad\\u{200b}min\\u{200c}\\u{200d}\\u{feff}\\u{2060}",
            ),
            ("\u{1b}[2J\u{9b}2J\u{85}\r\n\0", "\\u{1b}[2J\\u{9b}2J\\u{85}\\r\\n\\u{0}"),
            ("\u{e0041}\u{3164}", "\\u{e0041}\\u{3164}"),
        ];
        for (text, expected) in cases {
            assert_eq!(visible(text), expected);
        }
        assert_eq!(visible_lines("a\r\n\tb\u{202e}"), "a\\r\n\tb\\u{202e}");
    }

    #[test]
    fn json_means_the_same() {
        let text = "a\u{202e}\u{e0041}\u{85}\"\\ \u{200d}\n";
        let document = "{\n  \"name\": \"a\u{202e}\u{e0041}\u{85}\\\"\\\\ \u{200d}\\n\"\n}";
        let written = in_json(document.to_owned());
        let expected = r#""a\u202e\udb40\udc41\u0085\"\\ \u200d\n""#;
        assert_eq!(written, format!("{{\n  \"name\": {expected}\n}}"));
        // Each escape is valid JSON.
        assert!(text.chars().filter(|&c| is_unseen(c)).all(|c| !written.contains(c) || c == '\n'));
    }
}
