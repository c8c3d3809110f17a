//! Findings as text for a terminal.

use super::{Advice, Severity};

/// Indentation of the text of a finding.
const INDENT: usize = 9;

/// Minimum width of the text, even on a narrow terminal.
const WORDS_MIN: usize = 30;

/// Formats findings within `width` columns: severe ones first, with reasons; others one per line.
pub fn text(advice: &[Advice], width: usize) -> String {
    let width = width.max(INDENT + WORDS_MIN);
    let mut sorted: Vec<&Advice> = advice.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.severity));
    let mut out = String::new();
    for one in sorted {
        let label = match one.severity {
            Severity::Fine => "fine",
            Severity::Note => "note",
            Severity::Warning => "WARNING",
        };
        let head = format!("{}: {}: {}", one.place, one.subject, one.found);
        paragraph(&mut out, label, &head, width);
        if one.severity != Severity::Fine {
            paragraph(&mut out, "", &format!("Why: {}", one.why), width);
            paragraph(&mut out, "", &format!("Advice: {}", one.right), width);
            out.push('\n');
        }
    }
    let count = |severity| advice.iter().filter(|one| one.severity == severity).count();
    let several = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let warnings = several(count(Severity::Warning), "warning");
    let notes = several(count(Severity::Note), "note");
    out.push_str(&format!("{warnings}, {notes}, {} fine\n", count(Severity::Fine)));
    out
}

/// Appends a wrapped paragraph after a label. Overlong words get their own line.
fn paragraph(out: &mut String, label: &str, words: &str, width: usize) {
    let mut line = format!("{label:<INDENT$}");
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(INDENT);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grave_findings_come_first_and_lines_are_not_too_long() {
        let why = "A consumer that reads swapped log pages waits for the swap device for each of them.";
        let advice = [
            Advice::fine("host", "clock source", "tsc", "Each record is stamped."),
            Advice::fine("host", "vm.swappiness", "60, with 2 GB of swap", why)
                .warning("set vm.swappiness=1"),
        ];
        let text = text(&advice, 60);
        let expected = "\
WARNING  host: vm.swappiness: 60, with 2 GB of swap
         Why: A consumer that reads swapped log pages waits
         for the swap device for each of them.
         Advice: set vm.swappiness=1

fine     host: clock source: tsc
1 warning, 0 notes, 1 fine
";
        assert_eq!(text, expected);
    }
}
