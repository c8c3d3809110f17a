//! The columns of a table, folded to the width of a terminal.
//!
//! Without enough room, the words of the last column wrap. If that column would get too narrow, the columns
//! are spread over several lines, and a row continues on indented lines, as does the header. Empty cells add
//! no line.

/// Spaces between two columns.
const GAP: usize = 2;
/// Spaces before the lines that continue a row.
const INDENT: usize = 4;
/// Without a terminal, wider cells do not widen the column of the other rows.
const PADDED_MAX: usize = 100;
/// Minimum width of a last column whose words wrap.
const TEXT_MIN: usize = 24;

/// The width of a text on a terminal.
pub type TextWidth = fn(&str) -> usize;

/// The columns of a table, by index.
#[derive(Clone, Debug)]
pub struct Columns {
    /// The width of each column.
    widths: Vec<usize>,
    /// The width to which cells of each column are padded.
    padded: Vec<usize>,
    /// The columns of each line of a row.
    lines: Vec<Vec<usize>>,
    text_width: TextWidth,
}

impl Columns {
    /// The columns of these rows, including the header, on lines of at most `max` characters.
    pub fn of<S: AsRef<str>>(rows: &[Vec<S>], max: Option<usize>, text_width: TextWidth) -> Columns {
        let count = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize, most: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell| text_width(cell.as_ref()));
            widths.filter(|width| *width <= most).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..count).map(|column| width(column, usize::MAX)).collect();
        let whole = widths.iter().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
        let mut lines = vec![(0..count).collect()];
        if let Some(max) = max.filter(|max| whole > *max)
            && let Some(last) = widths.last_mut()
        {
            let before = whole - *last;
            match before + TEXT_MIN <= max {
                true => *last = max - before,
                false => lines = folded(&mut widths, max),
            }
        }
        let padded = match max {
            Some(_) => widths.clone(),
            None => (0..count).map(|column| width(column, PADDED_MAX)).collect(),
        };
        Columns { widths, padded, lines, text_width }
    }

    /// The lines of a row. Cells in columns of `is_right` are aligned to the right.
    pub fn row<S: AsRef<str>>(&self, cells: &[S], is_right: impl Fn(usize) -> bool) -> Vec<String> {
        let mut shown = Vec::new();
        for (number, columns) in self.lines.iter().enumerate() {
            let cell = |&column: &usize| {
                let text = cells.get(column).map_or("", AsRef::as_ref);
                wrapped(text, self.widths[column], self.text_width)
            };
            let cells: Vec<Vec<&str>> = columns.iter().map(cell).collect();
            for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let mut text = " ".repeat(if number == 0 { 0 } else { INDENT });
                for (&column, cell) in columns.iter().zip(&cells) {
                    let cell = cell.get(line).copied().unwrap_or_default();
                    let gap = " ".repeat(self.padded[column].saturating_sub((self.text_width)(cell)));
                    let (before, after) = if is_right(column) { (&*gap, "") } else { ("", &*gap) };
                    text.extend([before, cell, after, &" ".repeat(GAP)]);
                }
                text.truncate(text.trim_end().len());
                if number == 0 || !text.is_empty() {
                    shown.push(text);
                }
            }
        }
        shown
    }
}

/// Spreads columns over lines of at most `max` characters. A column that is wider alone gets the whole line.
fn folded(widths: &mut [usize], max: usize) -> Vec<Vec<usize>> {
    let mut lines: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for (column, width) in widths.iter_mut().enumerate() {
        let is_first = lines.is_empty();
        if used.saturating_add(GAP + *width) > max {
            let room = if is_first { max } else { max.saturating_sub(INDENT) };
            *width = (*width).min(room.max(1));
            lines.push(Vec::new());
            used = max - room;
        } else {
            used += GAP;
        }
        used += *width;
        lines.last_mut().expect("the first column begins a line").push(column);
    }
    lines
}

/// A text on lines of at most `width` characters: broken at a space, else behind a comma, else anywhere.
pub fn wrapped(text: &str, width: usize, text_width: TextWidth) -> Vec<&str> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while text_width(rest) > width {
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let fits = ends.take_while(|&end| text_width(&rest[..end]) <= width).last().unwrap_or(first);
        let behind = |c: char| rest[..fits].rfind(c).map(|at| at + 1);
        let end = match rest[fits..].starts_with(' ') {
            true => fits,
            false => behind(' ').or_else(|| behind(',')).unwrap_or(fits),
        };
        lines.push(rest[..end].trim_end());
        rest = rest[end..].trim_start();
    }
    if lines.is_empty() || !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters(text: &str) -> usize {
        text.chars().count()
    }

    fn shown(rows: &[&[&str]], max: usize) -> Vec<String> {
        let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.to_vec()).collect();
        let columns = Columns::of(&rows, Some(max), characters);
        rows.iter().flat_map(|row| columns.row(row, |column| column == 1)).collect()
    }

    #[test]
    fn columns_that_fit_are_on_one_line() {
        let rows: [&[&str]; 2] = [&["NAME", "LAG", "HOST"], &["a", "17", "b"]];
        assert_eq!(shown(&rows, 15), ["NAME  LAG  HOST", "a      17  b"]);
    }

    #[test]
    fn a_very_long_cell_does_not_pad_the_other_rows_of_a_pipe() {
        let long = "g".repeat(2000);
        let rows = [vec!["GROUP", "LAG"], vec!["billing", "3"], vec![&long, "4"]];
        let columns = Columns::of(&rows, None, characters);
        let lines: Vec<String> = rows.iter().flat_map(|row| columns.row(row, |_| false)).collect();
        assert_eq!(lines, ["GROUP    LAG", "billing  3", &format!("{long}  4")]);
    }

    #[test]
    fn a_long_last_column_wraps_its_words() {
        let title = "Latency of replicated records, at 1,000 to 100,000 records a second";
        let rows: [&[&str]; 2] = [&["NAME", "POINTS", "TITLE"], &["calm", "4", title]];
        let expected = [
            "NAME  POINTS  TITLE",
            "calm       4  Latency of replicated",
            "              records, at 1,000 to",
            "              100,000 records a second",
        ];
        assert_eq!(shown(&rows, 40), expected);
    }

    #[test]
    fn many_columns_continue_on_indented_lines() {
        let rows: [&[&str]; 2] = [
            &["TOPIC", "LAG", "CONSUMER-ID", "HOST"],
            &["orders", "3", "consumer-1-0b7e4c9a-5d1f-4d54", "/127.0.0.1"],
        ];
        let expected = [
            "TOPIC   LAG",
            "    CONSUMER-ID",
            "    HOST",
            "orders    3",
            "    consumer-1-0b7e4c9a-5d1f-4",
            "    d54",
            "    /127.0.0.1",
        ];
        assert_eq!(shown(&rows, 30), expected);
        for max in 1..60 {
            let lines = shown(&rows, max);
            let widest = lines.iter().map(|line| characters(line)).max().unwrap_or(0);
            assert!(widest <= max.max(INDENT + 1), "{max}: {lines:#?}");
        }
    }

    #[test]
    fn lists_break_behind_commas_and_wide_characters_stay_whole() {
        assert_eq!(wrapped("orders-0,orders-1,orders-2", 18, characters), ["orders-0,orders-1,", "orders-2"]);
        assert_eq!(wrapped("a b", 1, characters), ["a", "b"]);
        let doubled = |text: &str| 2 * text.chars().count();
        assert_eq!(wrapped("流流流", 5, doubled), ["流流", "流"]);
        assert_eq!(wrapped("流流", 1, doubled), ["流", "流"], "a character is the least");
    }
}
