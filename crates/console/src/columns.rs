//! Columns of messages: fields of JSON in values and keys, and headers.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use thalweg_browse::{JsonText, Message};

use crate::problem::Problem;

/// Maximum number of columns, and of bytes of the name of one.
const COLUMNS_MAX: usize = 12;
const NAME_BYTES_MAX: usize = 256;
/// Fields that a page offers as columns.
const OFFERED_MAX: usize = 40;

/// A column of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    name: String,
    source: ColumnSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ColumnSource {
    /// A field of JSON in the value, by member names and element indexes.
    Value(Vec<String>),
    /// A field of JSON in the key.
    Key(Vec<String>),
    /// The first header of this name.
    Header(String),
}

/// The content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell<'a> {
    /// The characters of a string or header, or JSON.
    pub text: Cow<'a, str>,
    /// The value of a JSON number.
    pub number: Option<f64>,
}

impl Column {
    /// Parses the name of a column: `customer.id` is a field of the value, `key:id` one of the key, and
    /// `header:trace` a header. `\.` is a period in the name of a field. `value:` may precede a field.
    pub fn parse(name: &str) -> Result<Column, Problem> {
        let wrong = |why: &str| {
            Err(Problem::wrong(format!(
                "column: {name:?} {why}: use a field of JSON in the value such as customer.id, key:FIELD, or \
                 header:NAME"
            )))
        };
        if name.len() > NAME_BYTES_MAX {
            return wrong(&format!("is longer than {NAME_BYTES_MAX} bytes"));
        }
        let source = match name.split_once(':') {
            Some(("header", header)) => ColumnSource::Header(header.to_owned()),
            Some(("key", field)) => ColumnSource::Key(path(field)),
            Some(("value", field)) => ColumnSource::Value(path(field)),
            _ => ColumnSource::Value(path(name)),
        };
        match &source {
            ColumnSource::Header(header) if header.is_empty() => wrong("names no header"),
            ColumnSource::Value(path) | ColumnSource::Key(path) if path.iter().any(String::is_empty) => {
                wrong("has an empty name of a field")
            }
            _ => Ok(Column { name: name.to_owned(), source }),
        }
    }

    /// Parses the columns of a page. Repeated ones count once.
    pub fn parse_all(names: &[String]) -> Result<Vec<Column>, Problem> {
        let mut columns: Vec<Column> = Vec::new();
        for name in names.iter().filter(|name| !name.is_empty()) {
            let column = Column::parse(name)?;
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        match columns.len() {
            0..=COLUMNS_MAX => Ok(columns),
            many => {
                Err(Problem::wrong(format!("column: {many} columns are too many: use at most {COLUMNS_MAX}")))
            }
        }
    }

    /// The name by which the column was asked for.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The names in a path: a period separates two of them, unless a backslash precedes it.
fn path(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '.' => names.push(String::new()),
            '\\' => names
                .last_mut()
                .expect("there is one from the start on")
                .push(chars.next_if(|c| matches!(c, '.' | '\\')).unwrap_or(c)),
            c => names.last_mut().expect("there is one from the start on").push(c),
        }
    }
    names
}

/// The name of the column for a field of the value.
fn name_of(path: &[String]) -> String {
    let names: Vec<String> = path.iter().map(|name| name.replace('\\', "\\\\").replace('.', "\\.")).collect();
    let name = names.join(".");
    // The prefixes `value:`, `key:` and `header:` select a part of the message.
    match name.split_once(':') {
        Some(("value" | "key" | "header", _)) => format!("value:{name}"),
        _ => name,
    }
}

/// A message whose JSON is checked once for all columns.
pub struct MessageFields<'a> {
    message: &'a Message,
    key: Option<JsonText<'a>>,
    value: Option<JsonText<'a>>,
}

impl<'a> MessageFields<'a> {
    /// The fields of a message.
    pub fn of(message: &'a Message) -> MessageFields<'a> {
        MessageFields {
            message,
            key: message.key.as_ref().and_then(JsonText::of),
            value: message.value.as_ref().and_then(JsonText::of),
        }
    }

    /// True if the key is JSON.
    pub fn has_json_key(&self) -> bool {
        self.key.is_some()
    }

    /// True if the value is JSON.
    pub fn has_json_value(&self) -> bool {
        self.value.is_some()
    }

    /// The content of a column; none if the message lacks it.
    pub fn cell(&self, column: &Column) -> Option<Cell<'a>> {
        let field = match &column.source {
            ColumnSource::Value(path) => self.value?.field(path)?,
            ColumnSource::Key(path) => self.key?.field(path)?,
            ColumnSource::Header(name) => {
                let header = self.message.headers.iter().find(|header| header.name == *name)?;
                let text = String::from_utf8_lossy(&header.value.as_ref()?.bytes);
                return Some(Cell { text, number: None });
            }
        };
        Some(Cell { text: field.text(), number: field.number() })
    }
}

/// The value of an integer, which may have more digits than a float.
fn integer(cell: &Cell<'_>) -> Option<i128> {
    cell.text.parse().ok()
}

/// The order of two cells: numbers by value before texts, and missing cells last.
pub fn compare(a: Option<&Cell<'_>>, b: Option<&Cell<'_>>) -> Ordering {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (a, b) => return b.is_some().cmp(&a.is_some()),
    };
    match (a.number, b.number) {
        (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| integer(a).cmp(&integer(b))),
        (None, None) => a.text.cmp(&b.text),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// The names of the columns that messages offer, the most frequent first: scalar fields of JSON values, and
/// headers.
pub fn offered<'a>(messages: impl Iterator<Item = &'a MessageFields<'a>>) -> Vec<String> {
    let (mut counts, mut order): (BTreeMap<String, usize>, Vec<String>) = Default::default();
    let mut count = |name: String| {
        if name.len() > NAME_BYTES_MAX {
            return;
        }
        match counts.get_mut(&name) {
            Some(count) => *count += 1,
            // Names may be values, so that a message has a new one each.
            None if order.len() < 20 * OFFERED_MAX => {
                counts.insert(name.clone(), 1);
                order.push(name);
            }
            None => {}
        }
    };
    for fields in messages {
        if let Some(value) = fields.value {
            value.each_field(|path| count(name_of(path)));
        }
        for header in fields.message.headers.iter().filter(|header| header.omitted_name_bytes == 0) {
            count(format!("header:{}", header.name));
        }
    }
    order.retain(|name| Column::parse(name).is_ok());
    // Columns of the same frequency keep the order in which messages have them.
    order.sort_by_key(|name| std::cmp::Reverse(counts[name]));
    order.truncate(OFFERED_MAX);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;
    use thalweg_browse::{Content, MessageHeader};

    fn content(text: &str) -> Option<Content> {
        Some(Content { bytes: text.as_bytes().to_vec().into(), whole_bytes: text.len(), schema: None })
    }

    fn with(key: &str, value: &str, headers: &[(&str, &str)]) -> Message {
        let header = |(name, value): &(&str, &str)| MessageHeader {
            name: (*name).to_owned(),
            raw_name: None,
            omitted_name_bytes: 0,
            value: content(value),
        };
        let headers = headers.iter().map(header).collect();
        Message { key: content(key), value: content(value), headers, ..message(0, 1, 0) }
    }

    #[test]
    fn a_cell_is_a_field_of_the_value_or_the_key_or_a_header() {
        let message = with(
            r#"{"id": 7}"#,
            r#"{"customer": {"id": 12, "name": "Zo\u017e"}, "a.b": 1.50, "key:x": true, "list": [{"n": null}]}"#,
            &[("trace", "t1"), ("trace", "t2")],
        );
        let fields = MessageFields::of(&message);
        let cell = |name: &str| {
            let column = Column::parse(name).expect(name);
            assert_eq!(column.name(), name);
            fields.cell(&column).map(|cell| cell.text.into_owned())
        };
        for (name, expected) in [
            ("customer.id", Some("12")),
            ("value:customer.id", Some("12")),
            ("customer.name", Some("Zo\u{17e}")),
            ("customer", Some(r#"{"id": 12, "name": "Zo\u017e"}"#)),
            ("a\\.b", Some("1.50")),
            ("a.b", None),
            ("value:key:x", Some("true")),
            ("key:id", Some("7")),
            ("key:x", None),
            ("list.0.n", Some("null")),
            ("header:trace", Some("t1")),
            ("header:none", None),
        ] {
            assert_eq!(cell(name).as_deref(), expected, "{name}");
        }
        let offered = offered([&fields].into_iter());
        assert_eq!(offered, ["header:trace", "customer.id", "customer.name", "a\\.b", "value:key:x"]);
        assert!(offered.iter().all(|name| cell(name).is_some()));
    }

    #[test]
    fn wrong_columns_are_named() {
        for (name, words) in [("a..b", "empty name"), ("header:", "no header"), (&"x".repeat(257), "longer")]
        {
            let wrong = Column::parse(name).expect_err(name).message;
            assert!(wrong.starts_with("column: ") && wrong.contains(words), "{wrong}");
        }
        let names = |count: usize| (0..count).map(|at| format!("f{at}")).collect::<Vec<_>>();
        assert_eq!(Column::parse_all(&[names(3), names(3)].concat()).expect("three").len(), 3);
        assert!(Column::parse_all(&names(13)).expect_err("too many").message.contains("at most 12"));
    }

    #[test]
    fn integers_beyond_the_precision_of_a_float_are_ordered() {
        let column = Column::parse("v").expect("a column");
        let texts =
            ["9007199254740993", "-9007199254740993", "9007199254740992", "9007199254740992.0", "1e2", "20"];
        let messages = texts.map(|number| with("", &format!("{{\"v\": {number}}}"), &[]));
        let mut cells: Vec<_> =
            messages.iter().map(|message| MessageFields::of(message).cell(&column)).collect();
        cells.sort_by(|a, b| compare(a.as_ref(), b.as_ref()));
        let texts: Vec<_> = cells.iter().flatten().map(|cell| cell.text.as_ref()).collect();
        let expected =
            ["-9007199254740993", "20", "1e2", "9007199254740992.0", "9007199254740992", "9007199254740993"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn cells_are_ordered_by_value_with_missing_ones_last() {
        let column = Column::parse("v").expect("a column");
        let texts = [
            "{\"v\": 10}",
            "{}",
            "{\"v\": \"b\"}",
            "{\"v\": -2.5}",
            "no JSON",
            "{\"v\": \"a\"}",
            "{\"v\": 9}",
        ];
        let messages = texts.map(|value| with("", value, &[]));
        let mut cells: Vec<_> =
            messages.iter().map(|message| MessageFields::of(message).cell(&column)).collect();
        cells.sort_by(|a, b| compare(a.as_ref(), b.as_ref()));
        let texts: Vec<_> =
            cells.iter().map(|cell| cell.as_ref().map_or("-", |cell| cell.text.as_ref())).collect();
        assert_eq!(texts, ["-2.5", "9", "10", "a", "b", "-", "-"]);
    }
}
