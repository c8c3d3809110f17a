//! Mistakes in a text: shown with the line, a caret under the position, and a suggestion.

use std::fmt;

use super::Span;

/// Maximum characters of a line shown on either side.
const SHOWN: usize = 100;

/// A mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The position of the mistake, in bytes.
    pub span: Span,
    /// The description of the mistake.
    pub message: String,
    /// The remedy, for the message.
    pub right: String,
}

impl Complaint {
    /// A mistake with its position and remedy.
    pub fn new(span: Span, message: impl Into<String>, right: impl Into<String>) -> Complaint {
        Complaint { span, message: message.into(), right: right.into() }
    }
}

/// All mistakes in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Complaints {
    /// The name of the file; `None` for the command line.
    pub origin: Option<String>,
    /// The text that contains the mistakes.
    pub text: String,
    /// The mistakes, in text order.
    pub complaints: Vec<Complaint>,
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.complaints.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            self.show(complaint, f)?;
        }
        Ok(())
    }
}

impl Complaints {
    fn show(&self, complaint: &Complaint, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = floor(&self.text, complaint.span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |at| start + at);
        let end = floor(&self.text, complaint.span.end).clamp(start, line_end.max(start));
        let number = self.text[..start].matches('\n').count() + 1;
        writeln!(f, "{}", complaint.message)?;
        if self.origin.is_some() || self.text.trim_end().contains('\n') {
            let origin = self.origin.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
            writeln!(f, "  {origin}line {number}:")?;
        }
        // Cut long lines on both sides.
        let from = self.text[line_start..start].char_indices().rev().nth(SHOWN);
        let from = from.map_or(line_start, |(at, _)| line_start + at);
        let to = self.text[end..line_end].char_indices().nth(SHOWN);
        let to = to.map_or(line_end, |(at, _)| end + at);
        let cut = |part: &str| part.replace(['\t', '\r'], " ");
        let before = if from > line_start { "..." } else { "" };
        let after = if to < line_end { "..." } else { "" };
        writeln!(f, "    {before}{}{after}", cut(&self.text[from..to]))?;
        let indent = before.len() + self.text[from..start].chars().count();
        let carets = self.text[start..end].chars().count().max(1);
        writeln!(f, "    {:indent$}{}", "", "^".repeat(carets))?;
        write!(f, "  {}", complaint.right)
    }
}

/// The nearest character boundary at or before an offset.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Span) -> String {
        let complaints = vec![Complaint::new(span, "This is wrong", "do this")];
        Complaints { origin: None, text: text.to_owned(), complaints }.to_string()
    }

    #[test]
    fn the_caret_stands_under_the_place_in_characters() {
        assert_eq!(shown("time | lögg", 7..12), "This is wrong\n    time | lögg\n           ^^^^\n  do this");
        assert_eq!(shown("", 0..0), "This is wrong\n    \n    ^\n  do this");
        assert_eq!(
            shown("time | log\ntime > x\n", 16..17),
            "This is wrong\n  line 2:\n    time > x\n         ^\n  do this"
        );
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}HERE{}", "a".repeat(500), "b".repeat(500));
        let shown = shown(&text, 500..504);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].len() < 230, "{shown}");
        let at = lines[1].find("HERE").expect("the place is shown");
        assert_eq!(lines[2].find("^^^^"), Some(at), "{shown}");
    }

    #[test]
    fn invalid_spans_are_tolerated() {
        for (start, end) in [(0, 99), (99, 100), (1, 2), (5, 3)] {
            shown("ö|x", start..end);
        }
    }
}
