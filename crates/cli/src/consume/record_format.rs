//! A record as a line: parts with separators like Kafka's tool, JSON, or a format string.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::json;
use thalweg_client::TopicPartition;
use thalweg_record::{BatchHeader, ControlRecordType, Record, TimestampType};
use thalweg_security::visible::in_json;

use super::template::Template;
use crate::failure::{CommandFailure, Usage};
use crate::notice::print_notice;

/// Unreadable partitions that an error names.
const UNREADABLE_NAMED: usize = 10;

/// The form of printed records.
#[derive(Args, Debug)]
pub(crate) struct RecordFormat {
    /// Print the key before the value.
    #[arg(long)]
    print_key: bool,
    /// Print the timestamp, as CreateTime:1234.
    #[arg(long)]
    print_timestamp: bool,
    /// Print the partition, as Partition:0.
    #[arg(long)]
    print_partition: bool,
    /// Print the offset, as Offset:17.
    #[arg(long)]
    print_offset: bool,
    /// Print how often the record was delivered, as Delivery:1. Needs --share.
    #[arg(long, requires = "share")]
    print_delivery: bool,
    /// Print the headers, as name:value,name:value.
    #[arg(long)]
    print_headers: bool,
    /// Do not print the value.
    #[arg(long)]
    no_value: bool,
    /// Separator between the parts of a record.
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    key_separator: String,
    /// Text for a null key or value.
    #[arg(long, value_name = "TEXT", default_value = "null")]
    null_literal: String,
    /// Print a JSON object for each record, and at the end for each partition that cannot be read. A key,
    /// value or header that is not UTF-8 is an object with its bytes in base64: {"base64":"gIE="}.
    #[arg(long, conflicts_with = "template")]
    json: bool,
    /// Print each record by this format string, for example '%o %k: %s\n'.
    #[arg(
        id = "template",
        long = "template",
        short = 'f',
        value_name = "FORMAT",
        conflicts_with_all = ["print_key", "print_timestamp", "print_partition", "print_offset", "print_delivery", "print_headers", "no_value"]
    )]
    template: Option<String>,
    /// Print control records, too: the markers of transactions, with their kind as the value.
    #[arg(long)]
    control_records: bool,
}

impl RecordFormat {
    pub fn control_records(&self) -> bool {
        self.control_records
    }

    /// The format string, compiled.
    pub fn template(&self) -> Result<Option<Template>, Usage> {
        let compile = |text: &String| {
            Template::parse(text).map_err(|reason| Usage(format!("--template {text:?} is invalid: {reason}")))
        };
        self.template.as_ref().map(compile).transpose()
    }

    /// Reports the partitions that cannot be read: a warning, or if their records are wanted, an error, with
    /// JSON lines if records are JSON.
    pub fn print_unreadable(
        &self,
        out: &mut impl Write,
        unreadable: &BTreeMap<TopicPartition, String>,
        is_wanted: bool,
    ) -> anyhow::Result<()> {
        if unreadable.is_empty() {
            return Ok(());
        }
        for (at, reason) in unreadable.iter().filter(|_| self.json && is_wanted) {
            let json = json!({"topic": &*at.topic, "partition": at.partition, "error": reason});
            writeln!(out, "{}", in_json(json.to_string()))?;
        }
        out.flush()?;
        let named = unreadable.iter().take(UNREADABLE_NAMED);
        let named: Vec<String> = named.map(|(at, reason)| format!("{at} ({reason})")).collect();
        let more = match unreadable.len().saturating_sub(UNREADABLE_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text =
            format!("Records are missing, because partitions cannot be read: {}{more}", named.join(", "));
        if is_wanted {
            return Err(CommandFailure(text).into());
        }
        print_notice(&text);
        Ok(())
    }

    /// Prints a record.
    pub fn print(
        &self,
        out: &mut impl Write,
        template: Option<&Template>,
        at: &TopicPartition,
        header: &BatchHeader,
        record: &Record<'_>,
        delivery_count: Option<i16>,
    ) -> std::io::Result<()> {
        let control = header.attributes.is_control().then(|| control_name(record));
        let shown = Record {
            key: record.key.filter(|_| control.is_none()),
            value: control.map_or(record.value, |name| Some(name.as_bytes())),
            ..*record
        };
        let record = &shown;
        if let Some(template) = template {
            return template.print(out, at, record);
        }
        if self.json {
            let mut json = as_json(at, header, record, control);
            if let Some(count) = delivery_count {
                json["delivery_count"] = count.into();
            }
            return writeln!(out, "{}", in_json(json.to_string()));
        }
        let mut parts: Vec<Vec<u8>> = Vec::new();
        if self.print_timestamp {
            parts.push(format!("{}:{}", timestamp_name(header), record.timestamp).into_bytes());
        }
        if self.print_partition {
            parts.push(format!("Partition:{}", at.partition).into_bytes());
        }
        if self.print_offset {
            parts.push(format!("Offset:{}", record.offset).into_bytes());
        }
        if let Some(count) = delivery_count.filter(|_| self.print_delivery) {
            parts.push(format!("Delivery:{count}").into_bytes());
        }
        let or_null = |bytes: Option<&[u8]>| bytes.unwrap_or(self.null_literal.as_bytes()).to_vec();
        if self.print_headers {
            let headers = record.headers.map(|header| [header.key, b":", &or_null(header.value)].concat());
            let headers: Vec<Vec<u8>> = headers.collect();
            parts.push(if headers.is_empty() { b"NO_HEADERS".to_vec() } else { headers.join(&b","[..]) });
        }
        if self.print_key {
            parts.push(or_null(record.key));
        }
        if !self.no_value {
            parts.push(or_null(record.value));
        }
        out.write_all(&parts.join(self.key_separator.as_bytes()))?;
        out.write_all(b"\n")
    }
}

fn timestamp_name(header: &BatchHeader) -> &'static str {
    match header.attributes.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

fn control_name(record: &Record<'_>) -> &'static str {
    match record.key.and_then(|key| ControlRecordType::parse_key(key).ok().flatten()) {
        Some(ControlRecordType::Abort) => "abort",
        Some(ControlRecordType::Commit) => "commit",
        _ => "control record",
    }
}

/// Bytes as JSON: text for UTF-8, else `{"base64": ...}`, as in the console's API.
fn text_or_base64(bytes: Option<&[u8]>) -> serde_json::Value {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => serde_json::Value::Null,
        Some((_, Ok(text))) => text.into(),
        Some((bytes, Err(_))) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// A record as JSON.
fn as_json(
    at: &TopicPartition,
    header: &BatchHeader,
    record: &Record<'_>,
    control: Option<&str>,
) -> serde_json::Value {
    let headers: Vec<serde_json::Value> = record
        .headers
        .map(|header| json!({ "key": text_or_base64(Some(header.key)), "value": text_or_base64(header.value) }))
        .collect();
    let mut json = json!({
        "topic": &*at.topic,
        "partition": at.partition,
        "offset": record.offset.0,
        "timestamp": record.timestamp,
        "timestamp_type": timestamp_name(header),
        "headers": headers,
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
    });
    if let Some(control) = control {
        json["control"] = control.into();
        json["value"] = serde_json::Value::Null;
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_all_bytes() {
        assert_eq!(text_or_base64(None), json!(null));
        assert_eq!(text_or_base64(Some(b"")), json!(""));
        assert_eq!(text_or_base64(Some("Gr\u{fc}n".as_bytes())), json!("Gr\u{fc}n"));
        assert_eq!(text_or_base64(Some(b"\x80\x81")), json!({ "base64": "gIE=" }));
        assert_eq!(text_or_base64(Some(b"\x90\x91")), json!({ "base64": "kJE=" }));
    }
}
