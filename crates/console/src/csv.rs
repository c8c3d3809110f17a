//! Lines of CSV (RFC 4180) that spreadsheets take as data: a text that they would take for a formula begins
//! with an apostrophe.

/// Characters by which a text is taken for a formula, also the full-width forms.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// A line of CSV.
#[derive(Debug, Default)]
pub struct CsvLine(Vec<u8>);

impl CsvLine {
    /// Adds a text. It is quoted, so that it may have commas, quotation marks and line ends.
    pub fn text(&mut self, text: &str) {
        self.separate();
        self.0.push(b'"');
        if is_formula(text) {
            self.0.push(b'\'');
        }
        for (at, piece) in text.split('"').enumerate() {
            if at > 0 {
                self.0.extend_from_slice(b"\"\"");
            }
            self.0.extend_from_slice(piece.as_bytes());
        }
        self.0.push(b'"');
    }

    /// Adds a number, or another text that needs no quotation marks.
    pub fn plain(&mut self, text: &str) {
        self.separate();
        self.0.extend_from_slice(text.as_bytes());
    }

    fn separate(&mut self) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
    }

    /// The line with its end.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\r\n");
        self.0
    }
}

/// True if a spreadsheet may take a text for a formula. A number is none.
fn is_formula(text: &str) -> bool {
    let is_number = || {
        let has_number_chars = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
        text.chars().all(has_number_chars) && text.parse::<f64>().is_ok()
    };
    // Some programs drop spaces and line ends before they look.
    let begins = text.starts_with(FORMULA) || text.trim_start().starts_with(FORMULA);
    begins && !is_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(texts: &[&str]) -> String {
        let mut line = CsvLine::default();
        texts.iter().for_each(|text| line.text(text));
        String::from_utf8(line.finish()).expect("text")
    }

    #[test]
    fn texts_keep_commas_quotation_marks_and_line_ends() {
        assert_eq!(
            line(&["a,b", "say \"no\"", "1\r\n2", "", "ž"]),
            "\"a,b\",\"say \"\"no\"\"\",\"1\r\n2\",\"\",\"ž\"\r\n"
        );
        let mut line = CsvLine::default();
        line.plain("-1");
        line.text("\"");
        line.plain("2");
        assert_eq!(line.finish(), b"-1,\"\"\"\",2\r\n");
    }

    #[test]
    fn no_text_is_a_formula() {
        for text in [
            "=cmd|' /C calc'!A0",
            "+1+1",
            "-2+3",
            "@SUM(1)",
            "\t=1",
            "\r=1",
            "\n=1",
            "  =1",
            "＝1",
            "-inf",
            "+",
            "-1e5x",
        ] {
            assert_eq!(line(&[text]), format!("\"'{text}\"\r\n"), "{text:?}");
        }
        for text in ["-5", "+1.5e-7", "a=1", "1-2", "{\"a\": -1}", "\"=1\"", "'=1"] {
            assert_eq!(line(&[text]), format!("\"{}\"\r\n", text.replace('"', "\"\"")), "{text:?}");
        }
    }
}
