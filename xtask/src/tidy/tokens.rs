//! Words and marks of Rust code, without comments, strings, characters and lifetimes. Crude: numbers are
//! words.

#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Counted from one.
    pub line: usize,
    /// A word, `::`, or one mark.
    pub text: &'a str,
}

pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(bytes.len() / 4);
    let (mut line, mut at) = (1, 0);
    // Plain loops, because this function reads all sources in a build without optimisation.
    while at < bytes.len() {
        let (start, byte, next) = (at, bytes[at], bytes.get(at + 1).copied().unwrap_or(b' '));
        match byte {
            b'\n' => (line, at) = (line + 1, at + 1),
            b' ' | b'\t' | b'\r' => at += 1,
            b'/' if next == b'/' => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if next == b'*' => at += comment(&bytes[at..]),
            b'"' => at += string(&bytes[at..]),
            b'\'' => at += quoted(&text[at..]),
            b'r' | b'b' | b'c' if raw_string(&bytes[at..]) > 0 => at += raw_string(&bytes[at..]),
            _ => {
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                if at == start {
                    at += if byte == b':' && next == b':' { 2 } else { 1 };
                }
                found.push(Token { line, text: &text[start..at] });
            }
        }
        if matches!(byte, b'/' | b'"' | b'\'' | b'r' | b'b' | b'c') {
            line += bytes[start..at].iter().filter(|byte| **byte == b'\n').count();
        }
    }
    found
}

fn is_word(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | 128..)
}

/// The length of a comment in `/*` and `*/`, which may hold others.
fn comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at.min(bytes.len())
}

/// The length of a string between its quotes, of either kind.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != bytes[0] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The length of a raw string; zero if none starts here.
fn raw_string(bytes: &[u8]) -> usize {
    let prefix = if bytes[0] == b'r' { 1 } else { 2 };
    if bytes.get(prefix - 1) != Some(&b'r') {
        return 0;
    }
    if !matches!(bytes.get(prefix), Some(b'"' | b'#')) {
        return 0;
    }
    let hashes = bytes[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(prefix + hashes) != Some(&b'"') {
        return 0;
    }
    let start = prefix + hashes + 1;
    let end = (start..bytes.len()).find(|at| {
        bytes[*at] == b'"' && bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count() >= hashes
    });
    end.map_or(bytes.len(), |end| end + 1 + hashes)
}

/// The length of a character or of a lifetime.
fn quoted(text: &str) -> usize {
    let mut inside = text[1..].char_indices();
    match (inside.next(), inside.next()) {
        (Some((_, '\\')), _) => string(text.as_bytes()),
        (_, Some((end, '\''))) => end + 2,
        _ => 1 + text.bytes().skip(1).take_while(|byte| is_word(*byte)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_remains() {
        let text =
            "// a\n/* b /* c */\n d */ e::<'f>('g', '\\'', 'é', \"h\\\"\",\n r#\"i\"j\"#, br\"k\\\", r#l);";
        let found: Vec<_> = tokens(text).into_iter().map(|token| (token.line, token.text)).collect();
        let words: Vec<_> = found.iter().filter(|(_, text)| is_word(text.as_bytes()[0])).copied().collect();
        assert_eq!(words, [(3, "e"), (4, "r"), (4, "l")]);
        assert_eq!(found[1], (3, "::"));
        assert_eq!(found.last(), Some(&(4, ";")));
    }
}
