//! Aligned columns. Other people choose the texts in a table, so characters that would move the cursor or
//! reorder text are escaped.

use std::borrow::Cow;

use thalweg_security::visible::visible;
use unicode_width::UnicodeWidthStr;

/// Rows with their columns aligned to the left, two spaces between them.
pub fn align(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.width() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A row of texts.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [row(["GROUP", "LAG"]), row(["g", "17"]), row(["lönger-name", "-"]), row(["流", "1"])];
        let expected = "GROUP        LAG\ng            17\nlönger-name  -\n流           1\n";
        assert_eq!(align(&rows), expected);
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        let rows = [row(["a\u{1b}[2Jb\n", "x\u{202e}\u{200b}y"])];
        assert_eq!(align(&rows), "a\\u{1b}[2Jb\\n  x\\u{202e}\\u{200b}y\n");
    }
}
