//! Escapes text in markup. All text from a result passes through this module: labels, versions, reasons and
//! topic names may contain anything.

use std::fmt::Write;

use thalweg_security::visible::{visible, visible_lines};

/// Text for an element or a quoted attribute. Control characters, which are invalid in pages, and invisible
/// characters become escapes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in visible_lines(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A text of a result, possibly untrusted, as one line of a terminal.
pub(crate) fn clean(text: &str) -> String {
    visible(&text.replace(['\n', '\t'], " ")).into_owned()
}

/// Appends formatted text; writing to a `String` cannot fail.
pub(super) fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    to.write_fmt(text).expect("a String takes every text");
}

/// The lines of a text as one.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A table with a header; cells are markup already. The first column labels its row, or all consecutive rows
/// with the same label; columns from `numbers_from` on are right-aligned.
pub(super) fn table(heads: &[&str], numbers_from: usize, rows: &[Vec<String>]) -> String {
    let class = |column: usize| if column >= numbers_from { " class=\"n\"" } else { "" };
    let mut markup =
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table><thead><tr>"
            .to_owned();
    for (column, head) in heads.iter().enumerate() {
        markup += &format!("<th scope=\"col\"{}>{}</th>", class(column), escape(head));
    }
    markup += "</tr></thead>";
    for group in rows.chunk_by(|row, next| row.first() == next.first()) {
        markup += "<tbody>";
        for (number, row) in group.iter().enumerate() {
            markup += "<tr>";
            for (column, cell) in row.iter().enumerate() {
                markup += &match (column, number) {
                    (0, 0) => format!("<th scope=\"rowgroup\" rowspan=\"{}\">{cell}</th>", group.len()),
                    (0, _) => String::new(),
                    _ => format!("<td{}>{cell}</td>", class(column)),
                };
            }
            markup += "</tr>";
        }
        markup += "</tbody>";
    }
    markup + "</table></div>"
}

/// Names and values, side by side.
pub(super) fn facts(pairs: &[(String, String)]) -> String {
    let mut markup = "<dl class=\"facts\">".to_owned();
    for (name, value) in pairs {
        markup += &format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    markup + "</dl>"
}

/// The badge of a figure that is not quotable, with the reasons on hover, and as text below it.
pub(super) fn badge(reasons: &[String]) -> String {
    badge_with(reasons, reasons)
}

/// The badge of a figure that is not quotable, with different text on hover and below it.
pub(super) fn badge_with(hover: &[String], below: &[String]) -> String {
    let escaped = |reasons: &[String], between: &str| {
        reasons.iter().map(|reason| escape(reason)).collect::<Vec<String>>().join(between)
    };
    format!(
        " <span class=\"badge\" title=\"{}\">not quotable</span><span class=\"why\">{}</span>",
        escaped(hover, "; "),
        escaped(below, "<br>")
    )
}

/// A section that is collapsed on screen and open in print.
pub(super) fn folded(summary: &str, markup: &str, open: bool) -> String {
    let open = if open { " open" } else { "" };
    format!("<details{open}><summary>{}</summary>{markup}</details>", escape(summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_texts_is_shown_and_not_obeyed() {
        assert_eq!(
            escape("<script>alert('x')</script> & \"y\"\u{7}"),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;\\u{7}"
        );
        assert_eq!(escape("a\u{202e}b\u{2028}\u{200b}"), "a\\u{202e}b\\u{2028}\\u{200b}");
        assert_eq!(clean("one\ntwo\u{1b}[2J\u{61c}"), "one two\\u{1b}[2J\\u{61c}");
    }
}
