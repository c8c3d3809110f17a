//! CSV and flat JSON: a record becomes an object with a member per column, and an object becomes a record.
//!
//! Quoted fields may contain separators, quotes and line ends (RFC 4180); records end with a line feed, read
//! also with a carriage return before it. Texts are UTF-8, with or without a byte order mark.

use std::borrow::Cow;
use std::io::{self, Read};

use bytes::{BufMut, BytesMut};
use csv::{ByteRecord, ReaderBuilder, WriterBuilder};

use crate::declaration::{OptionDefault, OptionSpec, OptionType, Settings, WrongMix};
use crate::json::{self, Raw, write_string};
use crate::message::MESSAGE_BYTES_MAX;

/// The separator option.
pub const SEPARATOR: OptionSpec = OptionSpec {
    name: "separator",
    takes: OptionType::Name,
    default: OptionDefault::Value(","),
    summary: "Of CSV, the character between fields, in ASCII. For a tab, write \"\\t\" in double quotes.",
};

/// The option of the columns.
pub const COLUMNS: OptionSpec = OptionSpec {
    name: "columns",
    takes: OptionType::Name,
    default: OptionDefault::None,
    summary: "Of CSV, the names of the columns, separated by commas.",
};

/// The rule for too few fields or members.
pub const MISSING: OptionSpec = OptionSpec {
    name: "missing",
    takes: OptionType::Choice(&["bad", "empty"]),
    default: OptionDefault::Value("bad"),
    summary: "Of CSV, whether a message without a value for each column is bad, or the value is empty.",
};

/// The rule for too many fields or members.
pub const EXTRA: OptionSpec = OptionSpec {
    name: "extra",
    takes: OptionType::Choice(&["bad", "drop"]),
    default: OptionDefault::Value("bad"),
    summary: "Of CSV, whether a message with a value that has no column is bad, or the value is dropped.",
};

/// The rules of a stage that reads or writes CSV.
#[derive(Clone, Debug)]
pub struct CsvRules {
    pub separator: u8,
    /// The given columns.
    pub columns: Option<Vec<String>>,
    missing_is_bad: bool,
    extra_is_bad: bool,
}

impl CsvRules {
    /// The rules from the options.
    pub fn of(settings: &Settings) -> CsvRules {
        CsvRules {
            separator: settings.text("separator").as_bytes().first().copied().unwrap_or(b','),
            columns: settings.optional_text("columns").map(names),
            missing_is_bad: settings.text("missing") == "bad",
            extra_is_bad: settings.text("extra") == "bad",
        }
    }

    /// Checks the options that define the rules.
    pub fn check(settings: &Settings) -> Result<(), WrongMix> {
        let separator = settings.text("separator");
        if separator.len() != 1 || separator.contains(['"', '\r', '\n']) {
            let message = "The separator is one character of ASCII, but no quote and no line end";
            return Err(WrongMix::new("separator", message, "Use a comma, ; or \"\\t\"."));
        }
        if let Some(columns) = settings.optional_text("columns")
            && let Err(reason) = check_names(&names(columns))
        {
            return Err(WrongMix::new("columns", reason, "Name each column once: --columns=id,name."));
        }
        Ok(())
    }
}

/// Names separated by commas.
fn names(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_owned()).collect()
}

/// Checks that each column has a name of its own.
fn check_names(columns: &[String]) -> Result<(), String> {
    for (index, name) in columns.iter().enumerate() {
        if name.is_empty() {
            return Err(format!("column {} has no name", index + 1));
        }
        if columns[..index].contains(name) {
            return Err(format!("two columns have the name {name}"));
        }
    }
    Ok(())
}

/// A reader that fails when it is read too far without a record.
struct BoundedReader<R> {
    inner: R,
    left: usize,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let reason = "a record is longer than 64 MiB; it may lack a closing quote";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let count = self.inner.read(into)?;
        self.left = self.left.saturating_sub(count);
        Ok(count)
    }
}

/// The records of a file, as objects.
pub struct RecordReader<R> {
    reader: csv::Reader<BoundedReader<R>>,
    record: ByteRecord,
    /// The beginning of each member: a brace or a comma, the name, a colon.
    members: Vec<BytesMut>,
    rules: CsvRules,
    /// True if fields that are JSON are not quoted.
    is_typed: bool,
}

/// A record that is no object by the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    pub reason: String,
    /// The record as it is in CSV.
    pub record: BytesMut,
}

impl<R: Read> RecordReader<R> {
    /// A reader of a file. The first record has the names of the columns, if it is a header line or no names
    /// are given.
    pub fn new(inner: R, rules: CsvRules, has_header: bool, is_typed: bool) -> io::Result<RecordReader<R>> {
        let inner = BoundedReader { inner, left: MESSAGE_BYTES_MAX };
        let mut reader = ReaderBuilder::new();
        reader.has_headers(false).flexible(true).delimiter(rules.separator).buffer_capacity(128 << 10);
        let mut reader = reader.from_reader(inner);
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let mut columns = rules.columns.clone().unwrap_or_default();
        let mut record = ByteRecord::new();
        if has_header && reader.read_byte_record(&mut record)? {
            if record
                .get(0)
                .is_some_and(|first| first.starts_with(b"\xff\xfe") || first.starts_with(b"\xfe\xff"))
            {
                return Err(invalid("it is UTF-16; convert it to UTF-8".to_owned()));
            }
            if rules.columns.is_none() {
                let texts =
                    record.iter().map(|name| std::str::from_utf8(name).map(|name| name.trim().to_owned()));
                let texts: Result<_, _> = texts.collect();
                columns = texts.map_err(|_| invalid("its header line is not UTF-8".to_owned()))?;
                check_names(&columns).map_err(|reason| invalid(format!("in its header line, {reason}")))?;
            }
        }
        let mut members = Vec::with_capacity(columns.len());
        for name in &columns {
            let mut member = BytesMut::from(if members.is_empty() { &b"{"[..] } else { b"," });
            write_string(name, &mut member);
            member.put_u8(b':');
            members.push(member);
        }
        Ok(RecordReader { reader, record, members, rules, is_typed })
    }

    /// Writes the next record as an object. Returns false at the end.
    pub fn next(&mut self, out: &mut BytesMut) -> io::Result<Option<Result<(), BadRecord>>> {
        if !self.reader.read_byte_record(&mut self.record)? {
            return Ok(None);
        }
        self.reader.get_mut().left = MESSAGE_BYTES_MAX;
        let begun = out.len();
        let written = self.write(out);
        if written.is_err() {
            out.truncate(begun);
        }
        Ok(Some(written.map_err(|reason| {
            let line = self.record.position().map_or(0, csv::Position::line);
            let mut record = BytesMut::new();
            let _ = write_record(self.rules.separator, self.record.iter(), &mut record);
            BadRecord { reason: format!("line {line}: {reason}"), record }
        })))
    }

    fn write(&self, out: &mut BytesMut) -> Result<(), String> {
        let (fields, columns) = (self.record.len(), self.members.len());
        let is_wrong =
            fields < columns && self.rules.missing_is_bad || fields > columns && self.rules.extra_is_bad;
        if is_wrong {
            return Err(format!("it has {fields} fields, and there are {columns} columns"));
        }
        if columns == 0 {
            out.extend_from_slice(b"{");
        }
        for (index, member) in self.members.iter().enumerate() {
            let field = std::str::from_utf8(self.record.get(index).unwrap_or_default())
                .map_err(|_| format!("field {} is not UTF-8", index + 1))?;
            out.extend_from_slice(member);
            match self.is_typed {
                true => write_typed(field, out),
                false => write_string(field, out),
            }
        }
        out.extend_from_slice(b"}");
        Ok(())
    }
}

/// Writes numbers, true and false as they are, an empty field as null, any other text quoted.
fn write_typed(field: &str, out: &mut BytesMut) {
    match json::parse(field.as_bytes()) {
        _ if field.is_empty() => out.extend_from_slice(b"null"),
        Ok(Raw::Number(text)) if text.len() == field.len() => out.extend_from_slice(text.as_bytes()),
        Ok(Raw::Bool(_)) => out.extend_from_slice(field.trim_ascii().as_bytes()),
        _ => write_string(field, out),
    }
}

fn write_record<'f>(
    separator: u8,
    fields: impl Iterator<Item = &'f [u8]>,
    out: &mut BytesMut,
) -> Result<(), csv::Error> {
    let mut writer = WriterBuilder::new();
    let mut writer = writer.delimiter(separator).buffer_capacity(1 << 10).from_writer(out.writer());
    for field in fields {
        writer.write_field(field)?;
    }
    writer.write_record(None::<&[u8]>)?;
    Ok(writer.flush()?)
}

/// Makes records of objects.
pub struct RecordWriter {
    rules: CsvRules,
    /// The columns; `None` until the first object.
    columns: Option<Vec<String>>,
    /// The fields of the current record.
    fields: Vec<BytesMut>,
}

impl RecordWriter {
    /// A writer with the given columns, or else with the members of the first object.
    pub fn new(rules: CsvRules) -> RecordWriter {
        RecordWriter { columns: rules.columns.clone(), rules, fields: Vec::new() }
    }

    /// Takes the columns of an existing file, or compares them with the known ones. Returns the difference.
    pub fn agree(&mut self, header: Vec<String>) -> Result<(), String> {
        match &self.columns {
            Some(columns) if *columns != header => {
                let (has, columns) = (header.join(","), columns.join(","));
                Err(format!("its header line is {has}, and the columns of the stream are {columns}"))
            }
            Some(_) => Ok(()),
            None => {
                self.columns = Some(header);
                Ok(())
            }
        }
    }

    /// The header line, if the columns are known.
    pub fn header(&self) -> Option<BytesMut> {
        let mut out = BytesMut::new();
        write_record(
            self.rules.separator,
            self.columns.as_ref()?.iter().map(|name| name.as_bytes()),
            &mut out,
        )
        .ok()?;
        Some(out)
    }

    /// Writes an object as a record: texts without quotes, null as an empty field, lists and objects as JSON.
    pub fn write(&mut self, message: &[u8], out: &mut BytesMut) -> Result<(), String> {
        if self.columns.is_none() {
            let mut columns: Vec<String> = Vec::new();
            each_member(message, |name, _| {
                if !columns.iter().any(|known| **known == *name) {
                    columns.push(name.into_owned());
                }
            })?;
            check_names(&columns)?;
            if columns.is_empty() {
                return Err("it has no members to name the columns".to_owned());
            }
            self.columns = Some(columns);
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        self.fields.resize_with(columns.len(), BytesMut::new);
        self.fields.iter_mut().for_each(BytesMut::clear);
        let mut has = vec![false; columns.len()];
        let mut wrong = None;
        let fields = &mut self.fields;
        each_member(message, |name, value| match columns.iter().position(|column| *column == *name) {
            Some(index) => {
                has[index] = true;
                fields[index].clear();
                if write_field(value, &mut fields[index]).is_err() {
                    wrong = Some(format!("the member {name} is a text with an invalid escape"));
                }
            }
            None if self.rules.extra_is_bad => {
                wrong = Some(format!("there is no column for its member {name}"))
            }
            None => {}
        })?;
        if let Some(index) = has.iter().position(|has| !has).filter(|_| self.rules.missing_is_bad) {
            wrong.get_or_insert(format!("it has no member {}", columns[index]));
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let written = write_record(self.rules.separator, fields.iter().map(|field| &field[..]), out);
        written.map_err(|error| error.to_string())
    }
}

/// Visits the members of a message, which is an object.
fn each_member<'a>(message: &'a [u8], visit: impl FnMut(Cow<'a, str>, Raw<'a>)) -> Result<(), String> {
    match json::each_member(message, visit).map_err(|error| error.to_string())? {
        true => Ok(()),
        false => Err("it is not a JSON object".to_owned()),
    }
}

fn write_field(value: Raw<'_>, out: &mut BytesMut) -> Result<(), json::NotJson> {
    match value {
        Raw::Null => {}
        Raw::String(inside, escaped) => out.extend_from_slice(json::string(inside, escaped)?.as_bytes()),
        value => value.write(out),
    }
    Ok(())
}

/// The names in the header line of a file.
pub fn header_of(inner: impl Read, separator: u8) -> io::Result<Vec<String>> {
    let inner = BoundedReader { inner, left: MESSAGE_BYTES_MAX };
    let mut reader = ReaderBuilder::new();
    let mut reader = reader.has_headers(false).flexible(true).delimiter(separator).from_reader(inner);
    let mut record = ByteRecord::new();
    reader.read_byte_record(&mut record)?;
    Ok(record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(columns: Option<&str>, missing_is_bad: bool, extra_is_bad: bool) -> CsvRules {
        CsvRules { separator: b',', columns: columns.map(names), missing_is_bad, extra_is_bad }
    }

    fn read(text: &str, rules: CsvRules, has_header: bool, is_typed: bool) -> Vec<Result<String, String>> {
        let mut reader = RecordReader::new(text.as_bytes(), rules, has_header, is_typed)
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut found = Vec::new();
        let mut out = BytesMut::new();
        while let Some(next) = reader.next(&mut out).expect("a text is read") {
            let text = String::from_utf8(out.split().to_vec()).expect("UTF-8");
            found.push(next.map(|()| text).map_err(|bad| bad.reason));
        }
        found
    }

    #[test]
    fn quoted_commas_quotes_and_line_ends_are_part_of_a_field() {
        let text = "\u{feff}id,\"the, name\"\r\n1,\"a \"\"b\"\", c\r\nd\"\n\n02,\u{e9}\n";
        let objects = read(text, rules(None, true, true), true, false);
        let expected =
            [r#"{"id":"1","the, name":"a \"b\", c\r\nd"}"#, "{\"id\":\"02\",\"the, name\":\"\u{e9}\"}"];
        assert_eq!(objects, expected.map(|object| Ok(object.to_owned())));
    }

    #[test]
    fn typed_fields_are_json_as_far_as_they_can_be() {
        let text = "1,01,1.50,-2e3,true,,null,12345678901234567890123, 7,x\n";
        let objects = read(text, rules(Some("a,b,c,d,e,f,g,h,i,j"), true, true), false, true);
        let expected = r#"{"a":1,"b":"01","c":1.50,"d":-2e3,"e":true,"f":null,"g":"null","h":12345678901234567890123,"i":" 7","j":"x"}"#;
        assert_eq!(objects, [Ok(expected.to_owned())]);
    }

    #[test]
    fn missing_and_extra_fields_are_bad_unless_a_rule_allows_them() {
        let text = "a,b\n1\n1,2,3\n1,2\n";
        let strict = read(text, rules(None, true, true), true, false);
        let bad = |line, fields| Err(format!("line {line}: it has {fields} fields, and there are 2 columns"));
        assert_eq!(strict, [bad(2, 1), bad(3, 3), Ok(r#"{"a":"1","b":"2"}"#.to_owned())]);
        let lenient = read(text, rules(None, false, false), true, false);
        let both = || Ok(r#"{"a":"1","b":"2"}"#.to_owned());
        assert_eq!(lenient, [Ok(r#"{"a":"1","b":""}"#.to_owned()), both(), both()]);
    }

    #[test]
    fn a_header_line_names_each_column_once() {
        let open = |text: &str| {
            let opened = RecordReader::new(text.as_bytes(), rules(None, true, true), true, false);
            opened.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(open("a,b,a\n"), Err("in its header line, two columns have the name a".to_owned()));
        assert_eq!(open("a,,b\n"), Err("in its header line, column 2 has no name".to_owned()));
        assert!(open("").is_ok(), "an empty file has no records");
    }

    #[test]
    fn a_record_without_an_end_is_refused() {
        let endless = io::repeat(b'x');
        let text = (&b"a\n\""[..]).chain(endless);
        let mut reader =
            RecordReader::new(text, rules(None, true, true), true, false).expect("it has a header");
        let error = reader.next(&mut BytesMut::new()).expect_err("it has no end");
        assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
    }

    fn written(rules: CsvRules, objects: &[&str]) -> Vec<Result<String, String>> {
        let mut writer = RecordWriter::new(rules);
        let write = |object: &&str| {
            let mut out = BytesMut::new();
            writer.write(object.as_bytes(), &mut out)?;
            Ok(String::from_utf8(out.to_vec()).expect("UTF-8"))
        };
        let mut records: Vec<_> = objects.iter().map(write).collect();
        records.insert(0, Ok(String::from_utf8(writer.header().expect("columns").to_vec()).expect("UTF-8")));
        records
    }

    #[test]
    fn objects_become_records_with_the_columns_of_the_first() {
        let objects = [
            r#"{"id": 1.50, "na,me": "a \"b\"\n", "x": null}"#,
            r#"{"x": [1, {"y": 2}], "na,me": "", "id": true}"#,
            r#"{"id": 2}"#,
            r#"{"id": 2, "na,me": "", "x": 1, "more": 1}"#,
            "[1]",
        ];
        let records = written(rules(None, true, true), &objects);
        let good = ["id,\"na,me\",x\n", "1.50,\"a \"\"b\"\"\n\",\n", "true,,\"[1, {\"\"y\"\": 2}]\"\n"];
        assert_eq!(records[..3], good.map(|record| Ok(record.to_owned())));
        let bad =
            ["it has no member na,me", "there is no column for its member more", "it is not a JSON object"];
        assert_eq!(records[3..], bad.map(|reason| Err(reason.to_owned())));
        let lenient = written(rules(Some("id,y"), false, false), &objects[..3]);
        assert_eq!(lenient, ["id,y\n", "1.50,\n", "true,\n", "2,\n"].map(|record| Ok(record.to_owned())));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let object = r#"{"a":"x,y","b":"line\r\nend","c":" \"quoted\" ","d":""}"#;
        let records = written(rules(None, true, true), &[object]);
        let text: String = records.into_iter().map(|record| record.expect("good")).collect();
        assert_eq!(read(&text, rules(None, true, true), true, false), [Ok(object.to_owned())]);
    }
}
