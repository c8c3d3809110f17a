//! Writes YAML 1.2, for documents that JSON can hold, so that YAML 1.1 readers get the same document.
//!
//! A text is plain if no reader can take the text for another type; otherwise it is a JSON string, which is
//! also YAML. No text is refused: control characters are escaped.

use serde_json::{Map, Number, Value};
use thalweg_security::visible::is_unseen;

/// The lines of a document.
pub(crate) fn text(document: &Value) -> String {
    let mut out = String::new();
    match scalar(document) {
        Some(scalar) => {
            out.push_str(&scalar);
            out.push('\n');
        }
        None => block(&mut out, document, 0),
    }
    out
}

/// The items of a list or map that is not empty, each on its own lines.
fn block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Array(items) => {
            for item in items {
                indent(out, depth);
                out.push('-');
                list_item(out, item, depth);
            }
        }
        Value::Object(fields) => {
            for field in fields {
                indent(out, depth);
                map_item(out, field, depth);
            }
        }
        _ => unreachable!("a scalar is written in its line"),
    }
}

fn list_item(out: &mut String, item: &Value, depth: usize) {
    match (scalar(item), item) {
        (Some(scalar), _) => {
            out.push(' ');
            out.push_str(&scalar);
            out.push('\n');
        }
        // The first field stands beside the dash.
        (None, Value::Object(fields)) => {
            out.push(' ');
            fields_beside_a_dash(out, fields, depth + 1);
        }
        (None, _) => {
            out.push('\n');
            block(out, item, depth + 1);
        }
    }
}

/// All fields of a map; the first one continues the line.
fn fields_beside_a_dash(out: &mut String, fields: &Map<String, Value>, depth: usize) {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            indent(out, depth);
        }
        map_item(out, field, depth);
    }
}

fn map_item(out: &mut String, (key, value): (&String, &Value), depth: usize) {
    out.push_str(&quoted_if_needed(key));
    out.push(':');
    match scalar(value) {
        Some(scalar) => {
            out.push(' ');
            out.push_str(&scalar);
            out.push('\n');
        }
        None => {
            out.push('\n');
            block(out, value, depth + 1);
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// A value on one line; none for a list or map that is not empty.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("null".to_owned()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number_text(number)),
        Value::String(text) => Some(quoted_if_needed(text)),
        Value::Array(items) => items.is_empty().then(|| "[]".to_owned()),
        Value::Object(fields) => fields.is_empty().then(|| "{}".to_owned()),
    }
}

/// The text of a number. YAML 1.1 readers accept an exponent only with a decimal point and a sign.
fn number_text(number: &Number) -> String {
    let text = number.to_string();
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{digits}{point}e{sign}{exponent}")
}

fn quoted_if_needed(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

/// True if every reader takes the plain text for this text. Stricter than YAML.
fn is_plain(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let inner = |c: char| c.is_ascii_alphanumeric() || " _-./:+@*".contains(c);
    let special = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    starts
        && text.chars().all(inner)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !special.iter().any(|special| special.eq_ignore_ascii_case(text))
}

/// The text as a JSON string, with all characters escaped that YAML forbids.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // Invisible characters and the non-characters U+FFFE and U+FFFF.
            c if is_unseen(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                let escape = match u32::from(c) {
                    code @ ..=0xffff => format!("\\u{code:04x}"),
                    code => format!("\\U{code:08x}"),
                };
                out.push_str(&escape);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests;
