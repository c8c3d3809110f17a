//! Aligned columns. Other people choose the texts in a table, so characters that would move the cursor or
//! reorder text are escaped.

use std::borrow::Cow;

use thalweg_lab::terminal::Columns;
use thalweg_security::visible::visible;
use unicode_width::UnicodeWidthStr;

/// Rows with their columns aligned to the left, two spaces between them.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let lines = aligned(rows, None);
    lines.into_iter().flatten().flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// The lines of each row, with aligned columns; at most `columns` characters wide, if the cells allow it.
pub(crate) fn aligned(rows: &[Vec<String>], columns: Option<usize>) -> Vec<Vec<String>> {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect();
    let columns = Columns::of(&rows, columns, UnicodeWidthStr::width);
    rows.iter().map(|row| columns.row(row, |_| false)).collect()
}

/// The width of the widest row on one line.
pub(crate) fn width(rows: &[Vec<String>]) -> usize {
    aligned(rows, None).iter().flatten().map(|line| line.width()).max().unwrap_or(0)
}

/// A row of texts.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
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
