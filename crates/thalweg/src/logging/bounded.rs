//! Bounded log lines: invisible characters are escaped, so that an event stays one line, and long lines are
//! cut. Clients choose some of the text: names of clients, topics and users.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use thalweg_security::visible::{escaped, is_unseen};

/// Limit of a line, in bytes. Most lines have a few hundred bytes, unless a name is long.
pub const LINE_BYTES_MAX: usize = 8 * 1024;
/// The escape sequence that ends a colour, for lines cut in a coloured part.
const NO_COLOUR: &str = "\x1b[0m";

/// Writes each line bounded. A line arrives in one call.
pub struct BoundedLine<W> {
    to: W,
    has_colours: bool,
}

impl<W: Write> BoundedLine<W> {
    pub fn new(to: W, has_colours: bool) -> BoundedLine<W> {
        BoundedLine { to, has_colours }
    }
}

impl<W: Write> Write for BoundedLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.to.write_all(bounded(&text, self.has_colours).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The bounded form of a line.
fn bounded(line: &str, has_colours: bool) -> Cow<'_, str> {
    let content = line.strip_suffix('\n').unwrap_or(line);
    // Colours come from the formatter, which escapes such sequences in values.
    let is_escaped = |c: char| is_unseen(c) && !(has_colours && c == '\x1b');
    if content.len() <= LINE_BYTES_MAX && !content.contains(is_escaped) {
        return Cow::Borrowed(line);
    }
    let kept = &content[..content.floor_char_boundary(LINE_BYTES_MAX)];
    let mut text = escaped(kept, is_escaped).into_owned();
    if kept.len() < content.len() {
        let colour = if has_colours { NO_COLOUR } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{colour}… ({} bytes more)", content.len() - kept.len());
    }
    text.push('\n');
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_lines_are_as_they_are() {
        for line in ["INFO Broker 1 listens\n", "", "ünï\n", "\x1b[32m INFO\x1b[0m x\n"] {
            assert!(matches!(bounded(line, true), Cow::Borrowed(same) if same == line), "{line}");
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        let hostile = "WARN client_id=a\n2026 INFO All is well\r\x1b[2J\u{85}\t\0\u{202e}\u{2028}end\n";
        let expected =
            "WARN client_id=a\\n2026 INFO All is well\\r\\u{1b}[2J\\u{85}\\t\\u{0}\\u{202e}\\u{2028}end\n";
        assert_eq!(bounded(hostile, false), expected);
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let line = format!("x{}\n", "ü".repeat(LINE_BYTES_MAX));
        let cut = bounded(&line, true);
        assert!(cut.len() < LINE_BYTES_MAX + 64, "{}", cut.len());
        assert!(
            cut.ends_with("ü\x1b[0m… (8193 bytes more)\n") || cut.ends_with("ü\x1b[0m… (8194 bytes more)\n")
        );
        let mut written = Vec::new();
        let all = BoundedLine::new(&mut written, false).write(line.as_bytes()).expect("to memory");
        assert_eq!((all, written.last()), (line.len(), Some(&b'\n')));
    }
}
