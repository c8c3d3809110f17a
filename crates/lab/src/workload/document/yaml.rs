//! Parses YAML: one document, no aliases, plain scalars by YAML's core schema.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::{DEPTH_MAX, Entry, Node, Value, malformed};
use crate::workload::mistake::{Mistake, Position};

/// The tree of a file; its root is a table.
pub(in super::super) fn parse(text: &str) -> Result<Node, Mistake> {
    let mut parser = Parser::new_from_str(text);
    loop {
        let (event, span) = next(&mut parser)?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::StreamEnd | Event::DocumentEnd => {
                let problem = "the file is empty".to_owned();
                return Err(malformed(Position::START, "YAML", problem));
            }
            event => {
                let root = node(&mut parser, event, span, 0)?;
                return match root.value {
                    Value::Table(_) => Ok(root),
                    other => {
                        let problem = format!("expected keys and values, found {}", other.describe());
                        Err(malformed(root.at, "YAML", problem))
                    }
                };
            }
        }
    }
}

type Events<'a> = Parser<'a, saphyr_parser::StrInput<'a>>;

fn next<'a>(parser: &mut Events<'a>) -> Result<(Event<'a>, Span), Mistake> {
    let broken = |error: ScanError| {
        let marker = error.marker();
        let at = Position { line: marker.line() as u32, column: marker.col() as u32 + 1 };
        malformed(at, "YAML", error.info().to_owned())
    };
    match parser.next_event() {
        Some(event) => event.map_err(broken),
        None => Ok((Event::StreamEnd, Span::default())),
    }
}

/// The value that starts with `event`.
fn node<'a>(parser: &mut Events<'a>, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Mistake> {
    let at = Position { line: span.start.line() as u32, column: span.start.col() as u32 + 1 };
    if depth > DEPTH_MAX {
        return Err(malformed(at, "YAML", format!("more than {DEPTH_MAX} nested values")));
    }
    let value = match event {
        Event::Scalar(text, ScalarStyle::Plain, _, None) => plain(&text),
        Event::Scalar(text, ..) => Value::Text(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut values = Vec::new();
            loop {
                match next(parser)? {
                    (Event::SequenceEnd | Event::StreamEnd, _) => break Value::List(values),
                    (event, span) => values.push(node(parser, event, span, depth + 1)?),
                }
            }
        }
        Event::MappingStart(..) => Value::Table(entries(parser, depth)?),
        Event::Alias(_) => return Err(malformed(at, "YAML", "aliases are not supported".to_owned())),
        _ => return Err(malformed(at, "YAML", "a value is missing".to_owned())),
    };
    Ok(Node { at, value })
}

fn entries(parser: &mut Events<'_>, depth: usize) -> Result<Vec<Entry>, Mistake> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let (event, span) = next(parser)?;
        if matches!(event, Event::MappingEnd | Event::StreamEnd) {
            return Ok(entries);
        }
        let key = node(parser, event, span, depth + 1)?;
        let Some(name) = key.value.as_property() else {
            return Err(malformed(key.at, "YAML", format!("{} is not a key", key.value.describe())));
        };
        if entries.iter().any(|entry| entry.name == name) {
            return Err(malformed(key.at, "YAML", format!("duplicate key {name}")));
        }
        let (event, span) = next(parser)?;
        let node = node(parser, event, span, depth + 1)?;
        entries.push(Entry { name, at: key.at, node });
    }
}

/// An unquoted scalar, by the core schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Other("null".to_owned()),
        "true" | "True" | "TRUE" => return Value::Flag(true),
        "false" | "False" | "FALSE" => return Value::Flag(false),
        _ => {}
    }
    if let Ok(whole) = text.parse() {
        return Value::Whole(whole);
    }
    // Rust parses words such as `nan` as numbers; YAML does not.
    let digits = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    match text.parse::<f64>() {
        Ok(number) if digits && number.is_finite() => Value::Number(number),
        _ => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (u32, String) {
        let mistake = parse(text).expect_err(text);
        (mistake.position.line, mistake.problem)
    }

    #[test]
    fn scalars_blocks_and_places() {
        let text = "# A comment.\nname: One topic\nrate: 0.5\nsize: 1024\nquoted: \"1024\"\nempty:\non: true\n\
                    block: |\n  a=1\n  b=2\n";
        let Value::Table(entries) = parse(text).expect("it is YAML").value else { panic!("no table") };
        let values: Vec<_> = entries.iter().map(|entry| entry.node.value.clone()).collect();
        let expected = [
            Value::Text("One topic".to_owned()),
            Value::Number(0.5),
            Value::Whole(1024),
            Value::Text("1024".to_owned()),
            Value::Other("null".to_owned()),
            Value::Flag(true),
            Value::Text("a=1\nb=2\n".to_owned()),
        ];
        assert_eq!(values, expected);
        assert_eq!(entries[2].node.at, Position { line: 4, column: 7 });
    }

    #[test]
    fn unread_yaml_has_its_position() {
        assert_eq!(problem("a: 1\na: 2\n"), (2, "duplicate key a".to_owned()));
        assert_eq!(problem("a: &x 1\nb: *x\n"), (2, "aliases are not supported".to_owned()));
        assert_eq!(problem("").1, "the file is empty");
        assert_eq!(problem("- 1\n").1, "expected keys and values, found a list");
        assert_eq!(problem("a: 1\nb: [1, 2\n").0, 3);
    }

    #[test]
    fn depth_has_a_bound() {
        let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(problem(&deep).1, "more than 32 nested values");
    }
}
