//! Parses TOML to a tree with positions.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{DEPTH_MAX, Entry, Node, Value, malformed};
use crate::workload::mistake::{Mistake, Position};

/// The tree of a file; its root is a table.
pub(in super::super) fn parse(text: &str) -> Result<Node, Mistake> {
    let lines = Lines::of(text);
    match DeTable::parse(text) {
        Ok(table) => Ok(Node { at: Position::START, value: lines.table(table.get_ref(), 0)? }),
        Err(error) => {
            let at = error.span().map_or(Position::START, |span| lines.position(&span));
            Err(malformed(at, "TOML", error.message().to_owned()))
        }
    }
}

/// The offsets of line starts.
struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Lines<'a> {
        let behind = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines { text, begins: std::iter::once(0).chain(behind).collect() }
    }

    fn position(&self, span: &Range<usize>) -> Position {
        let at = span.start.min(self.text.len());
        let line = self.begins.partition_point(|begin| *begin <= at);
        let before = self.text.get(self.begins[line - 1]..at).unwrap_or_default();
        Position { line: line as u32, column: before.chars().count() as u32 + 1 }
    }

    fn node(&self, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<Node, Mistake> {
        let at = self.position(&value.span());
        if depth > DEPTH_MAX {
            return Err(malformed(at, "TOML", format!("more than {DEPTH_MAX} nested tables")));
        }
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(number) => Value::Whole(number),
                Err(_) => Value::Other(integer.to_string()),
            },
            DeValue::Float(float) => match float.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Value::Number(number),
                _ => Value::Other(float.to_string()),
            },
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Datetime(moment) => Value::Other(moment.to_string()),
            DeValue::Array(values) => {
                Value::List(values.iter().map(|value| self.node(value, depth + 1)).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.table(table, depth)?,
        };
        Ok(Node { at, value })
    }

    fn table(&self, table: &DeTable<'_>, depth: usize) -> Result<Value, Mistake> {
        let entry = |(name, value): (&Spanned<_>, _)| {
            let name: &Spanned<std::borrow::Cow<'_, str>> = name;
            let node = self.node(value, depth + 1)?;
            Ok(Entry { name: name.get_ref().to_string(), at: self.position(&name.span()), node })
        };
        Ok(Value::Table(table.iter().map(entry).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_places() {
        let node = parse("a = 1\n[b]\nc.d = \"ä\"\nähm = [1.5, true]\n").unwrap_err();
        assert_eq!(node.position, Position { line: 4, column: 1 });
        let node = parse("a = 1\n[b]\nc.d = \"ä\"\ne = [1.5, true]\n").expect("it is TOML");
        let Value::Table(entries) = &node.value else { panic!("{node:?}") };
        assert_eq!((entries[0].name.as_str(), &entries[0].node.value), ("a", &Value::Whole(1)));
        let Value::Table(inner) = &entries[1].node.value else { panic!("{entries:?}") };
        let Value::List(values) = &inner[1].node.value else { panic!("{inner:?}") };
        assert_eq!(values[1], Node { at: Position { line: 4, column: 11 }, value: Value::Flag(true) });
    }

    #[test]
    fn invalid_toml_has_its_position() {
        let mistake = parse("a = 1\nb = = 2\n").expect_err("it is no TOML");
        assert_eq!(mistake.position.line, 2);
        let mistake = parse("a = 1\na = 2\n").expect_err("a key stands twice");
        assert_eq!(mistake.position, Position { line: 2, column: 1 });
    }

    #[test]
    fn numbers_beyond_bounds_are_kept_as_text() {
        let node = parse("a = 99999999999999999999\nb = inf\n").expect("it is TOML");
        let Value::Table(entries) = node.value else { panic!("no table") };
        assert_eq!(entries[0].node.value, Value::Other("99999999999999999999".to_owned()));
        assert_eq!(entries[1].node.value, Value::Other("inf".to_owned()));
    }
}
