//! Tables that fit a width: optional columns are left out, then names are cut. Pure.
//!
//! A live screen keeps a line for each row, unlike the tables of other commands, whose rows wrap.

use thalweg_security::visible::visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The end of a text that was cut.
const CUT: &str = "…";

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: String,
    /// The minimum width of a column of names, which is aligned to the left; none for numbers.
    name_min: Option<usize>,
    /// 0 for a column that is always there; columns with higher numbers are left out first.
    rank: u8,
}

impl Column {
    /// A column of numbers, aligned to the right.
    pub(super) fn number(title: &str) -> Column {
        Column { title: title.to_owned(), name_min: None, rank: 0 }
    }

    /// A column of names that are cut to `min` characters without room.
    pub(super) fn name(title: impl Into<String>, min: usize) -> Column {
        Column { title: title.into(), name_min: Some(min), rank: 0 }
    }

    /// The column, left out without room; higher ranks first.
    pub(super) fn optional(self, rank: u8) -> Column {
        Column { rank, ..self }
    }
}

/// The lines of a table, its header first, with `gap` spaces between columns; at most `width` characters
/// wide.
pub(super) fn table(
    columns: &[Column],
    rows: &[Vec<String>],
    gap: usize,
    width: Option<usize>,
) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell).into_owned()).collect()).collect();
    let natural = |(index, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.width());
        cells.max().unwrap_or(0).max(column.title.width())
    };
    let mut widths: Vec<usize> = columns.iter().enumerate().map(natural).collect();
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    if let Some(width) = width {
        fit(columns, &mut widths, &mut shown, gap, width);
    }
    let header: Vec<String> = columns.iter().map(|column| column.title.clone()).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (place, &index) in shown.iter().enumerate() {
            let cell = cut(row.get(index).map_or("", String::as_str), widths[index]);
            let padding = " ".repeat(widths[index].saturating_sub(cell.width()));
            if place > 0 {
                line.push_str(&" ".repeat(gap));
            }
            let is_name = columns[index].name_min.is_some();
            let (before, after) = if is_name { ("", &*padding) } else { (&*padding, "") };
            line.extend([before, &cell, after]);
        }
        line.truncate(line.trim_end().len());
        width.map_or(line.clone(), |width| cut(&line, width))
    };
    std::iter::once(&header).chain(&rows).map(line).collect()
}

/// Leaves out columns and cuts names until a table fits.
fn fit(columns: &[Column], widths: &mut [usize], shown: &mut Vec<usize>, gap: usize, width: usize) {
    let min = |index: usize, widths: &[usize]| match columns[index].name_min {
        Some(min) => min.min(widths[index]),
        None => widths[index],
    };
    let gaps = |shown: &[usize]| gap * shown.len().saturating_sub(1);
    loop {
        let least: usize = shown.iter().map(|&index| min(index, widths)).sum();
        if least + gaps(shown) <= width {
            break;
        }
        let optional = shown.iter().enumerate().filter(|(_, index)| columns[**index].rank > 0);
        let Some((place, _)) = optional.max_by_key(|(_, index)| columns[**index].rank) else { break };
        shown.remove(place);
    }
    loop {
        let whole: usize = shown.iter().map(|&index| widths[index]).sum();
        let over = (whole + gaps(shown)).saturating_sub(width);
        let cuttable = shown.iter().copied().filter(|&index| widths[index] > min(index, widths));
        let Some(widest) = cuttable.max_by_key(|&index| widths[index]).filter(|_| over > 0) else { return };
        widths[widest] = widths[widest].saturating_sub(over).max(min(widest, widths));
    }
}

/// A text of at most `width` characters.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width.saturating_sub(CUT.width()) {
            break;
        }
        kept.push(c);
    }
    if width > 0 {
        kept.push_str(CUT);
    }
    kept
}

/// Divides lines among sections that need these numbers: as equally as possible, but none gets more than it
/// needs.
pub(super) fn divide(lines: usize, needs: &[usize]) -> Vec<usize> {
    let mut given = vec![0; needs.len()];
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&index| needs[index]);
    let mut left = lines;
    for (place, &index) in order.iter().enumerate() {
        given[index] = needs[index].min(left / (needs.len() - place));
        left -= given[index];
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column::name("TOPIC", 8),
            Column::number("PARTS").optional(1),
            Column::number("OFFLINE").optional(2),
            Column::number("MSG/s"),
        ]
    }

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![row(["orders", "6", "0", "12.3 k"]), row(["a-very-long-name-of-a-topic", "120", "3", "-"])]
    }

    #[test]
    fn wide_tables_show_everything() {
        let expected = [
            "TOPIC                        PARTS  OFFLINE   MSG/s",
            "orders                           6        0  12.3 k",
            "a-very-long-name-of-a-topic    120        3       -",
        ];
        assert_eq!(table(&columns(), &rows(), 2, None), expected);
        assert_eq!(table(&columns(), &rows(), 2, Some(200)), expected);
    }

    #[test]
    fn names_are_cut_before_a_column_is_left_out_and_columns_by_rank() {
        let lines = table(&columns(), &rows(), 2, Some(40));
        assert_eq!(lines[2], "a-very-long-nam…    120        3       -");
        let lines = table(&columns(), &rows(), 2, Some(24));
        assert_eq!(
            lines,
            ["TOPIC      PARTS   MSG/s", "orders         6  12.3 k", "a-very-l…    120       -"]
        );
        let lines = table(&columns(), &rows(), 2, Some(16));
        assert_eq!(lines, ["TOPIC      MSG/s", "orders    12.3 k", "a-very-…       -"]);
        for width in 0..60 {
            let lines = table(&columns(), &rows(), 2, Some(width));
            assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        let rows = vec![vec!["a\u{1b}[2Jb".to_owned()]];
        assert_eq!(table(&[Column::name("TOPIC", 8)], &rows, 2, None)[1], "a\\u{1b}[2Jb");
    }

    #[test]
    fn lines_are_divided_by_need() {
        assert_eq!(divide(10, &[3, 100, 100]), [3, 3, 4]);
        assert_eq!(divide(100, &[3, 20, 5]), [3, 20, 5]);
        assert_eq!(divide(2, &[3, 3, 3]), [0, 1, 1]);
        assert_eq!(divide(0, &[1, 2]), [0, 0]);
        assert_eq!(cut("流流流", 5), "流流…");
    }
}
