//! Messages as text for people, and as JSON for programs. A key or value is shown as far as it was kept, and
//! up to a smaller limit in hex.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::json;
use crate::message::{Content, Message};

/// Maximum bytes shown in hex, where one byte takes four characters.
const HEX_BYTES_MAX: usize = 4 << 10;
/// Bytes per line of hex.
const HEX_LINE: usize = 16;
/// Maximum characters of a key or value in one line.
const LINE_CHARS_MAX: usize = 240;

/// The display form of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON if valid, else text if readable, else hex.
    Auto,
    /// Indented JSON; text if invalid.
    Json,
    /// Text with invalid UTF-8 replaced.
    Text,
    /// A hex dump with offsets, bytes and characters.
    Hex,
}

impl Form {
    /// Parses the name of a form.
    pub fn from_name(name: &str) -> Option<Form> {
        Some(match name {
            "auto" => Form::Auto,
            "json" => Form::Json,
            "text" => Form::Text,
            "hex" => Form::Hex,
            _ => return None,
        })
    }
}

/// A key or value in display form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisplayText {
    /// The text, not escaped for HTML.
    pub text: String,
    /// The actual form: `json`, `text` or `hex`.
    pub form: &'static str,
    /// Number of bytes not shown.
    pub omitted_bytes: usize,
}

/// Renders a key or value.
pub fn show(content: &Content, form: Form) -> DisplayText {
    let bytes = &content.bytes[..];
    let is_whole = content.omitted_bytes() == 0;
    let shown = |text, form| DisplayText { text, form, omitted_bytes: content.omitted_bytes() };
    let as_json = || {
        let text = json::valid(bytes).filter(|_| is_whole)?;
        // Users do not expect a single word or number to count as JSON.
        let is_structure = text.trim_start().starts_with(['{', '[']);
        (form == Form::Json || is_structure).then(|| json::pretty(text).unwrap_or_else(|| text.to_owned()))
    };
    match form {
        Form::Hex => hex(content),
        Form::Text => shown(String::from_utf8_lossy(bytes).into_owned(), "text"),
        Form::Json | Form::Auto => match as_json() {
            Some(text) => shown(text, "json"),
            None if form == Form::Json || is_readable(bytes, is_whole) => {
                shown(String::from_utf8_lossy(bytes).into_owned(), "text")
            }
            None => hex(content),
        },
    }
}

/// A key or value in one line of at most 240 characters: bytes in hex, or text with one space in place of
/// each run of white space. Longer ones end with an ellipsis.
pub fn line(content: &Content, form: Form) -> String {
    let bytes = &content.bytes[..];
    let is_hex = form == Form::Hex || form == Form::Auto && !is_readable(bytes, content.omitted_bytes() == 0);
    let mut line = String::new();
    let mut has_more = content.omitted_bytes() > 0;
    if is_hex {
        let most = LINE_CHARS_MAX / 3;
        for byte in bytes.iter().take(most) {
            // Writing to a `String` cannot fail.
            let _ = write!(line, "{byte:02x} ");
        }
        has_more |= bytes.len() > most;
    } else {
        // A character has at most four bytes.
        let start = &bytes[..bytes.len().min(LINE_CHARS_MAX * 8)];
        let text = String::from_utf8_lossy(start);
        let mut chars = 0;
        for word in text.split_whitespace() {
            let left = LINE_CHARS_MAX.saturating_sub(chars);
            line.extend(word.chars().take(left));
            line.push(' ');
            chars += word.chars().count() + 1;
        }
        has_more |= start.len() < bytes.len() || chars > LINE_CHARS_MAX + 1;
    }
    line.truncate(line.trim_end().len());
    if has_more {
        line.push('\u{2026}');
    }
    line
}

/// True if bytes are readable text. Truncation may have split the last character.
fn is_readable(bytes: &[u8], is_whole: bool) -> bool {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if !is_whole && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

fn hex(content: &Content) -> DisplayText {
    let bytes = &content.bytes[..content.bytes.len().min(HEX_BYTES_MAX)];
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(HEX_LINE).enumerate() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{:08x} ", line * HEX_LINE);
        for at in 0..HEX_LINE {
            let gap = if at % 8 == 0 { " " } else { "" };
            let _ = match bytes.get(at) {
                Some(byte) => write!(text, "{gap}{byte:02x} "),
                None => write!(text, "{gap}   "),
            };
        }
        text.push_str(" |");
        text.extend(bytes.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '.',
        }));
        text.push_str("|\n");
    }
    DisplayText { text, form: "hex", omitted_bytes: content.whole_bytes - bytes.len() }
}

/// A message as JSON: text for UTF-8 bytes, else `{"base64": ...}`. Truncated parts have their full size
/// beside them, as `value_bytes`, and dropped headers are counted.
pub fn to_json(message: &Message) -> Value {
    let batch = &message.batch;
    let mut json = json!({
        "topic": &*message.topic,
        "partition": message.partition,
        "offset": message.offset.0,
        "timestamp": message.timestamp,
        "timestamp_type": batch.timestamp_name(),
        "headers": headers_to_json(message),
        "key": optional(&message.key),
        "value": optional(&message.value),
        "batch": {
            "base_offset": batch.base_offset.0,
            "records": batch.records,
            "size_bytes": batch.size_bytes,
            "compression": batch.compression.map(|codec| codec.to_string()),
            "leader_epoch": batch.leader_epoch.0,
            "producer_id": batch.producer.map(|(id, _)| id.0),
            "producer_epoch": batch.producer.map(|(_, epoch)| epoch.0),
            "sequence": batch.sequence,
            "transactional": batch.is_transactional,
            "control": batch.control.map(|kind| kind.name()),
        },
    });
    let sides = [("key", &message.key), ("value", &message.value)];
    for (name, content) in sides.into_iter().filter_map(|(name, content)| Some((name, content.as_ref()?))) {
        if content.omitted_bytes() > 0 {
            json[format!("{name}_bytes")] = content.whole_bytes.into();
        }
        if let Some(note) = &content.schema {
            json[format!("{name}_schema")] =
                json!({"id": note.id, "type": note.kind, "problem": note.problem});
        }
    }
    if message.headers_omitted > 0 {
        json["headers_omitted"] = message.headers_omitted.into();
    }
    if message.is_masked {
        json["masked"] = true.into();
    }
    json
}

/// The headers of a message as JSON: objects with `key` and `value`, in order.
pub fn headers_to_json(message: &Message) -> Value {
    let headers = message.headers.iter().map(|header| {
        let (name, kept) = match &header.raw_name {
            Some(raw) => (json!({"base64": STANDARD.encode(raw)}), raw.len()),
            None => (header.name.as_str().into(), header.name.len()),
        };
        let mut json = json!({"key": name, "value": optional(&header.value)});
        if header.omitted_name_bytes > 0 {
            json["key_bytes"] = (kept + header.omitted_name_bytes).into();
        }
        if let Some(value) = header.value.as_ref().filter(|value| value.omitted_bytes() > 0) {
            json["value_bytes"] = value.whole_bytes.into();
        }
        json
    });
    headers.collect()
}

fn optional(content: &Option<Content>) -> Value {
    match content.as_ref().map(portable) {
        None => Value::Null,
        Some(PortableText::Utf8(text)) => text.into(),
        Some(PortableText::Base64(digits)) => json!({"base64": digits}),
    }
}

/// A key or value that a text format can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortableText<'a> {
    /// UTF-8. A character that was split by the truncation is left out.
    Utf8(&'a str),
    /// Other bytes, in Base64.
    Base64(String),
}

/// A key or value for a text format.
pub fn portable(content: &Content) -> PortableText<'_> {
    match std::str::from_utf8(&content.bytes) {
        Ok(text) => PortableText::Utf8(text),
        Err(error) if content.omitted_bytes() > 0 && error.error_len().is_none() => {
            let whole = &content.bytes[..error.valid_up_to()];
            PortableText::Utf8(std::str::from_utf8(whole).unwrap_or_default())
        }
        Err(_) => PortableText::Base64(STANDARD.encode(&content.bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8], form: Form) -> (String, &'static str, usize) {
        let shown = show(&Content::copy(bytes, 1 << 20), form);
        (shown.text, shown.form, shown.omitted_bytes)
    }

    #[test]
    fn the_form_follows_the_content() {
        assert_eq!(shown(b"{\"a\":1}", Form::Auto), ("{\n  \"a\": 1\n}".to_owned(), "json", 0));
        assert_eq!(shown(b"12", Form::Auto), ("12".to_owned(), "text", 0));
        assert_eq!(shown("caf\u{e9}\n".as_bytes(), Form::Auto), ("caf\u{e9}\n".to_owned(), "text", 0));
        assert_eq!(shown(b"caf\xe9", Form::Auto).1, "hex");
        assert_eq!(shown(b"a\0b", Form::Auto).1, "hex");
        assert_eq!(shown(b"{broken", Form::Json), ("{broken".to_owned(), "text", 0));
        let expected = "00000000  00 01 41 ff                                       |..A.|\n";
        assert_eq!(shown(b"\0\x01A\xff", Form::Hex), (expected.to_owned(), "hex", 0));
    }

    #[test]
    fn a_header_name_that_is_not_utf_8_is_base64_in_json() {
        let mut message = crate::message::tests::message(0);
        let split = ["x".repeat((4 << 10) - 1).as_bytes(), "\u{e9}".as_bytes()].concat();
        let names = [&b"n\xff"[..], b"plain", &split];
        message.copy_headers(names.into_iter().map(|name| (name, None)), 1 << 20);
        let json = headers_to_json(&message);
        assert_eq!(json[0], json!({"key": {"base64": "bv8="}, "value": null}));
        assert_eq!(json[1], json!({"key": "plain", "value": null}));
        assert_eq!(json[2]["key"], "x".repeat((4 << 10) - 1), "a character that was cut is left out");
        assert_eq!(json[2]["key_bytes"], (4 << 10) + 1);
    }

    #[test]
    fn a_line_has_the_start_of_a_content_without_line_breaks() {
        let line = |bytes: &[u8], form| line(&Content::copy(bytes, 1 << 20), form);
        assert_eq!(line(b"{\n  \"a\":\t1\r\n}", Form::Auto), "{ \"a\": 1 }");
        assert_eq!(line(b"", Form::Auto), "");
        assert_eq!(line(b"\0\x01A\xff", Form::Auto), "00 01 41 ff");
        assert_eq!(line(b"ab", Form::Hex), "61 62");
        assert_eq!(line(b"a\xff", Form::Text), "a\u{fffd}");
        let long = line("\u{e9}".repeat(5000).as_bytes(), Form::Auto);
        assert_eq!((long.chars().count(), long.ends_with('\u{2026}')), (LINE_CHARS_MAX + 1, true));
        let exact = "x".repeat(LINE_CHARS_MAX);
        assert_eq!(line(exact.as_bytes(), Form::Auto), exact);
        let words = line("word ".repeat(100).as_bytes(), Form::Auto);
        assert!(words.chars().count() <= LINE_CHARS_MAX + 1 && words.ends_with('\u{2026}'), "{words}");
        assert!(line(&[0; 500], Form::Auto).ends_with(" 00\u{2026}"));
        let cut = Content::copy(b"some text", 4);
        assert_eq!(super::line(&cut, Form::Auto), "some\u{2026}");
    }

    #[test]
    fn headers_that_are_cut_are_marked() {
        let mut message = crate::message::tests::message(0);
        let (name, value) = (vec![b'n'; 5000], vec![b'v'; 500_000]);
        let short = (&b"short"[..], Some(&b"x"[..]));
        let headers =
            [(&name[..], Some(&value[..])), short].into_iter().chain(std::iter::repeat_n(short, 498));
        message.copy_headers(headers, 32 << 10);
        let json = to_json(&message);
        assert_eq!(
            (&json["headers"][0]["key_bytes"], &json["headers"][0]["value_bytes"]),
            (&5000.into(), &500_000.into())
        );
        assert_eq!(json["headers"][1], json!({"key": "short", "value": "x"}));
        assert_eq!(
            (json["headers"].as_array().map(Vec::len), &json["headers_omitted"]),
            (Some(100), &400.into())
        );
    }

    #[test]
    fn large_contents_are_cut_and_counted() {
        let (text, form, omitted) = shown(&vec![0; 100_000], Form::Auto);
        assert_eq!((form, omitted), ("hex", 100_000 - HEX_BYTES_MAX));
        assert!(text.len() < 5 * HEX_BYTES_MAX);
        let cut = Content::copy("{\"a\": \"\u{e9}\u{e9}\"}".as_bytes(), 8);
        let shown = show(&cut, Form::Auto);
        assert_eq!((shown.form, shown.omitted_bytes), ("text", 5));
    }
}
