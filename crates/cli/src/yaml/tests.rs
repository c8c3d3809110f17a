//! Round trips of documents through an independent YAML reader.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Value, json};

use super::*;

/// Reads the one document of a text, with the types of YAML's core schema.
fn read(text: &str) -> Value {
    let events =
        Parser::new_from_str(text).map(|event| event.unwrap_or_else(|error| panic!("{error}: {text}")).0);
    let mut events = events
        .filter(|event| !matches!(event, Event::Nothing | Event::StreamStart | Event::DocumentStart(_)));
    value(events.next().expect("a value"), &mut events)
}

fn value<'a>(event: Event<'a>, rest: &mut impl Iterator<Item = Event<'a>>) -> Value {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
        Event::Scalar(text, ..) => Value::String(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match rest.next().expect("an end") {
                    Event::SequenceEnd => return Value::Array(items),
                    event => items.push(value(event, rest)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut fields = Map::new();
            loop {
                let key = match rest.next().expect("an end") {
                    Event::MappingEnd => return Value::Object(fields),
                    event => value(event, rest),
                };
                let key = key.as_str().expect("a text as the key").to_owned();
                let event = rest.next().expect("a value");
                fields.insert(key, value(event, rest));
            }
        }
        other => panic!("{other:?}"),
    }
}

fn plain(text: &str) -> Value {
    match text {
        "null" => Value::Null,
        "true" => json!(true),
        "false" => json!(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) if !text.starts_with(|c: char| c.is_alphabetic()) => json!(number),
            _ => json!(text),
        },
    }
}

#[test]
fn a_document_is_easy_to_read() {
    let document = json!([
        { "name": "orders", "partitions": [{ "isr": [1, 2], "leader": null }, { "isr": [] }], "configs": {} },
        { "name": "no", "note": "a: b # c", "addresses": "localhost:9092" },
        [[1], []],
    ]);
    let expected = "\
- configs: {}
  name: orders
  partitions:
    - isr:
        - 1
        - 2
      leader: null
    - isr: []
- addresses: localhost:9092
  name: \"no\"
  note: \"a: b # c\"
-
  -
    - 1
  - []
";
    assert_eq!(text(&document), expected);
    assert_eq!(read(expected), document);
}

#[test]
fn texts_that_look_like_something_else_stay_texts() {
    for odd in [
        "",
        " ",
        "-",
        "- a",
        "a ",
        " a",
        "null",
        "~",
        "True",
        "NO",
        "y",
        "1",
        "1e5",
        "0x1f",
        "1_000",
        "12:30:00",
        ".inf",
        "2026-01-31",
        "a:",
        "a: b",
        "a #b",
        "#a",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
        "`a",
        "[a",
        "{a",
        "'a'",
        "\"a\"",
        "a\nb",
        "\r\n",
        "\t",
        "\u{0}\u{7f}\u{85}\u{2028}\u{feff}",
        "\\",
        "ä€🦀",
        "---",
        "...",
        "? a",
        "=",
        "<<",
        "a\u{1b}[31m",
    ] {
        for document in [json!(odd), json!([odd, { odd: odd }])] {
            let written = text(&document);
            assert_eq!(read(&written), document, "{written}");
            let bad = |c: &char| c.is_control() && *c != '\n';
            assert_eq!(written.chars().find(bad), None, "{written:?}");
        }
    }
}

#[test]
fn numbers_keep_their_values() {
    for number in
        [json!(0), json!(-17), json!(i64::MAX), json!(0.5), json!(1e300), json!(-2.5e-7), json!(1.0)]
    {
        let written = text(&number);
        assert_eq!(read(&written), number, "{written}");
    }
    assert_eq!(text(&json!(1e300)), "1.0e+300\n");
}
