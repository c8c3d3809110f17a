//! The output of commands: a table for people, a JSON or YAML document for programs.
//!
//! A command with a result takes these options as `#[command(flatten)] output: CommandOutput`. The command
//! serialises its result, and names the columns of its table; a command that changes several objects reports
//! an outcome for each object. Field names are stable: `crates/thalweg/tests/it/output.rs` compares the
//! documents of all commands with golden ones. Refuses colours anywhere but on a terminal, and control
//! characters in tables (`table`).

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use thalweg_lab::terminal::can_redraw;
use thalweg_security::visible::{escaped, in_json, is_unseen, visible, visible_lines};

use super::format::{FORMATS, Format};
use super::profile;
use super::table::aligned;
use super::yaml;

/// The options of a command that has a result.
#[derive(Args, Debug, Clone, Default)]
pub struct CommandOutput {
    /// Print the result as a table, as JSON or as YAML [default: that of the profile, or table].
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS)]
    format: Option<String>,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// The option of a list that prints names alone.
#[derive(Args, Debug, Clone, Copy, Default)]
pub(crate) struct Quiet {
    /// Print bare names, one on each line, and ask for nothing else.
    #[arg(long, short)]
    pub quiet: bool,
}

/// The header of a column, and the field that it shows.
pub(crate) type Column<'a> = (&'a str, &'a str);

impl CommandOutput {
    /// The format by `--format`, otherwise by the profile.
    pub(crate) fn format(&self) -> Format {
        let default = || profile::active().format.as_deref();
        match self.format.as_deref().or_else(default) {
            _ if self.json => Format::Json,
            Some("json") => Format::Json,
            Some("yaml") => Format::Yaml,
            _ => Format::Table,
        }
    }

    /// True if the result is a table for people.
    pub fn is_table(&self) -> bool {
        self.format() == Format::Table
    }

    /// Prints rows: a table of the fields in `columns`, or a document with all fields. Each row serialises to
    /// a map.
    pub(crate) fn rows<T: Serialize>(&self, columns: &[Column<'_>], rows: &[T]) -> anyhow::Result<()> {
        self.show(rows, |style| style.rows(columns, rows))
    }

    /// Prints rows like [`CommandOutput::rows`]. A document also has a row for each reason in `gaps` why
    /// objects are missing in the list: the fields of the row are null, and `problem` has the reason. A table
    /// has no such rows, because its readers see the error of the command.
    pub(crate) fn rows_with_gaps(
        &self,
        columns: &[Column<'_>],
        mut rows: Vec<Value>,
        gaps: &[String],
    ) -> anyhow::Result<()> {
        if !self.is_table() {
            rows.extend(gaps.iter().map(|gap| gap_row(columns, gap)));
        }
        self.rows(columns, &rows)
    }

    /// Prints bare names, one on each line, or a document with the list of them.
    pub(crate) fn names<T: Serialize + Display>(&self, names: &[T]) -> anyhow::Result<()> {
        self.show(names, |_| {
            Ok(names.iter().map(|name| format!("{}\n", visible(&name.to_string()))).collect())
        })
    }

    /// Prints a document, or the text for people. A closed output is no error: the command goes on, and its
    /// own result decides the exit code.
    pub fn show<T: Serialize + ?Sized>(
        &self,
        document: &T,
        text: impl FnOnce(Style) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let text = match self.format() {
            Format::Table => {
                let style = Style::of_standard_output();
                style.seen(&text(style)?).into_owned()
            }
            format => written(format, document, out.is_terminal())?,
        };
        print(&mut out, &text)
    }

    /// Prints a text that has no other format, regardless of the format in the profile.
    pub(crate) fn text(text: &str) -> anyhow::Result<()> {
        print(&mut io::stdout().lock(), text)
    }

    /// Prints one of a series of documents: as a line of JSON, or as a document of a YAML stream.
    pub fn next<T: Serialize + ?Sized>(&self, document: &T) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        match self.format() {
            Format::Yaml => write!(out, "---\n{}", written(Format::Yaml, document, false)?)?,
            _ => out.write_all(written(Format::Json, document, false)?.as_bytes())?,
        }
        Ok(out.flush()?)
    }

    /// Runs a command that changes several objects, one after the other. Sentences are printed at once; the
    /// document lists all outcomes, including outcomes before a failure. If an outcome cannot be printed, the
    /// command still finishes its changes, and fails at the end.
    pub(crate) async fn outcomes(
        &self,
        command: impl AsyncFnOnce(&mut Outcomes<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut outcomes = Outcomes { output: self, done: Vec::new(), unprinted: None };
        let ended = command(&mut outcomes).await;
        let has_something = ended.is_ok() || !outcomes.done.is_empty();
        let shown = match has_something && !self.is_table() {
            true => self.show(&outcomes.done, |_| Ok(String::new())),
            false => Ok(()),
        };
        ended.and(shown).and(outcomes.unprinted.map_or(Ok(()), |error| Err(error.into())))
    }
}

/// The outcomes of a command's changes so far.
pub(crate) struct Outcomes<'a> {
    output: &'a CommandOutput,
    done: Vec<Value>,
    /// The first error of standard output.
    unprinted: Option<io::Error>,
}

impl Outcomes<'_> {
    /// Adds an outcome, with the sentence for people.
    pub fn add<T: Serialize>(&mut self, outcome: &T, sentence: &str) -> anyhow::Result<()> {
        match self.output.is_table() {
            true if self.unprinted.is_none() => {
                self.unprinted = writeln!(io::stdout(), "{}", visible_lines(sentence)).err();
            }
            true => {}
            false => self.done.push(serde_json::to_value(outcome)?),
        }
        Ok(())
    }
}

fn print(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// The text of a document, with a line feed at the end.
fn written<T: Serialize + ?Sized>(format: Format, document: &T, pretty: bool) -> anyhow::Result<String> {
    let mut text = match format {
        Format::Yaml => return Ok(yaml::text(&serde_json::to_value(document)?)),
        _ if pretty => serde_json::to_string_pretty(document)?,
        _ => serde_json::to_string(document)?,
    };
    text.push('\n');
    Ok(in_json(text))
}

/// The row of a document for objects that could not be listed.
fn gap_row(columns: &[Column<'_>], problem: &str) -> Value {
    let mut row: serde_json::Map<String, Value> =
        columns.iter().map(|(_, field)| ((*field).to_owned(), Value::Null)).collect();
    row.insert("problem".to_owned(), problem.into());
    row.into()
}

/// The text of a field in a table. Null and empty lists are a dash.
fn cell(value: &Value) -> String {
    let listed = |texts: Vec<String>| if texts.is_empty() { "-".to_owned() } else { texts.join(",") };
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => listed(items.iter().map(cell).collect()),
        Value::Object(fields) => {
            listed(fields.iter().map(|(key, value)| format!("{key}={}", cell(value))).collect())
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Colours and width, if the output is a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    colours: bool,
    /// The columns of the terminal.
    columns: Option<usize>,
}

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Style = Style { colours: false, columns: None };
    /// A terminal of 80 columns without colours.
    #[cfg(test)]
    pub(crate) const NARROW: Style = Style { colours: false, columns: Some(80) };

    /// The style of standard output: colours on a terminal, unless it is `dumb`, or NO_COLOR is set
    /// (<https://no-color.org>).
    pub(crate) fn of_standard_output() -> Style {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|_| is_terminal);
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        Style { colours: can_redraw(&io::stdout()) && !unwanted, columns }
    }

    /// A text for people, in which invisible characters from other parties are escaped.
    fn seen(self, text: &str) -> Cow<'_, str> {
        let is_ours = |c: char| matches!(c, '\n' | '\t') || c == '\x1b' && self.colours;
        escaped(text, |c| is_unseen(c) && !is_ours(c))
    }

    /// True if the output has colours.
    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    /// The columns of the terminal, if the output is one.
    pub(crate) fn columns(self) -> Option<usize> {
        self.columns
    }

    /// The style of lines that begin with so many columns of space.
    pub(crate) fn indented(self, by: usize) -> Style {
        Style { columns: self.columns.map(|columns| columns.saturating_sub(by)), ..self }
    }

    /// A table of fields. An empty table has its header.
    pub(crate) fn rows<T: Serialize>(self, columns: &[Column<'_>], rows: &[T]) -> anyhow::Result<String> {
        let mut lines = vec![columns.iter().map(|(header, _)| (*header).to_owned()).collect::<Vec<_>>()];
        for row in rows {
            let row = serde_json::to_value(row)?;
            lines.push(columns.iter().map(|(_, field)| cell(&row[*field])).collect());
        }
        Ok(self.table(&lines))
    }

    /// A table of aligned rows; the first row is the header.
    pub(crate) fn table(self, rows: &[Vec<String>]) -> String {
        let mut text = String::new();
        for (number, lines) in aligned(rows, self.columns).into_iter().enumerate() {
            for line in lines {
                text.push_str(&if number == 0 { self.heading(&line) } else { line });
                text.push('\n');
            }
        }
        text
    }

    /// A text in bold.
    pub(crate) fn heading(self, text: &str) -> String {
        self.painted("1", text)
    }

    /// A text in green, for a good state.
    pub(crate) fn good(self, text: &str) -> String {
        self.painted("32", text)
    }

    /// A text in yellow, for a doubtful state.
    pub(crate) fn doubtful(self, text: &str) -> String {
        self.painted("33", text)
    }

    /// A text in red, for a bad state.
    pub(crate) fn bad(self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(self, colour: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: [Column<'_>; 4] =
        [("NAME", "name"), ("LAG", "lag"), ("ISR", "isr"), ("CONFIGS", "configs")];

    fn shown(style: Style) -> String {
        let rows = [
            json!({ "name": "orders", "lag": 17, "isr": [1, 2], "configs": { "a": "b", "c": true }, "hidden": 1 }),
            json!({ "name": "x", "lag": null, "isr": [], "configs": {} }),
        ];
        style.rows(&COLUMNS, &rows).expect("rows")
    }

    #[test]
    fn a_table_shows_the_named_fields() {
        let expected = "\
NAME    LAG  ISR  CONFIGS
orders  17   1,2  a=b,c=true
x       -    -    -
";
        assert_eq!(shown(Style::PLAIN), expected);
        let nothing: [Value; 0] = [];
        assert_eq!(Style::PLAIN.rows(&COLUMNS, &nothing).expect("rows"), "NAME  LAG  ISR  CONFIGS\n");
    }

    #[test]
    fn only_the_header_has_a_colour() {
        let shown = shown(Style { colours: true, columns: None });
        assert!(shown.starts_with("\x1b[1mNAME    LAG  ISR  CONFIGS\x1b[0m\norders "), "{shown:?}");
        assert_eq!(shown.matches('\x1b').count(), 2);
    }

    #[test]
    fn a_gap_in_a_list_is_a_row_without_a_name() {
        let expected =
            json!({ "name": null, "lag": null, "isr": null, "configs": null, "problem": "broker 3 is dead" });
        assert_eq!(gap_row(&COLUMNS, "broker 3 is dead"), expected);
    }

    #[test]
    fn documents_have_all_fields() {
        let one = json!({ "b": [1, "x"], "a": null });
        assert_eq!(written(Format::Json, &one, false).expect("JSON"), "{\"a\":null,\"b\":[1,\"x\"]}\n");
        assert_eq!(written(Format::Json, &json!({"a": 1}), true).expect("JSON"), "{\n  \"a\": 1\n}\n");
        assert_eq!(written(Format::Yaml, &one, false).expect("YAML"), "a: null\nb:\n  - 1\n  - x\n");
    }
}
