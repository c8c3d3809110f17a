//! Format strings for records, with kcat's letters.

use std::io::{Result, Write};

use thalweg_client::TopicPartition;
use thalweg_record::Record;

/// A format string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Field(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Topic,
    Partition,
    Offset,
    Key,
    Value,
    Headers,
    Timestamp,
    KeyLength,
    ValueLength,
    HeadersLength,
    /// The length of the value as 4 bytes, big-endian.
    ValueLengthBytes,
}

impl Template {
    /// Parses a format string; the error describes the fault.
    pub fn parse(text: &str) -> std::result::Result<Template, String> {
        let mut pieces = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '%' => {
                    let field = match rest.next() {
                        Some('%') => {
                            bytes.push(b'%');
                            continue;
                        }
                        Some('t') => Field::Topic,
                        Some('p') => Field::Partition,
                        Some('o') => Field::Offset,
                        Some('k') => Field::Key,
                        Some('s') => Field::Value,
                        Some('h') => Field::Headers,
                        Some('T') => Field::Timestamp,
                        Some('K') => Field::KeyLength,
                        Some('S') => Field::ValueLength,
                        Some('H') => Field::HeadersLength,
                        Some('R') => Field::ValueLengthBytes,
                        Some(other) => {
                            return Err(format!(
                                "%{other} is unknown: expected %t %p %o %k %s %h %T %K %S %H %R or %%"
                            ));
                        }
                        None => return Err("it ends with a single %: %% is a percent sign".to_owned()),
                    };
                    pieces.extend((!bytes.is_empty()).then(|| Piece::Bytes(std::mem::take(&mut bytes))));
                    pieces.push(Piece::Field(field));
                }
                '\\' => match rest.next() {
                    Some('n') => bytes.push(b'\n'),
                    Some('r') => bytes.push(b'\r'),
                    Some('t') => bytes.push(b'\t'),
                    Some('\\') => bytes.push(b'\\'),
                    Some('x') => {
                        let digits: String = rest.by_ref().take(2).collect();
                        let byte = u8::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 2);
                        bytes.push(byte.ok_or_else(|| {
                            format!("\\x{digits} is invalid: expected two hexadecimal digits")
                        })?);
                    }
                    other => {
                        let other = other.map(String::from).unwrap_or_default();
                        return Err(format!("\\{other} is unknown: expected \\n \\r \\t \\\\ or \\xHH"));
                    }
                },
                c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        pieces.extend((!bytes.is_empty()).then_some(Piece::Bytes(bytes)));
        Ok(Template(pieces))
    }

    /// Prints a record, without a line end.
    pub fn print(&self, out: &mut impl Write, at: &TopicPartition, record: &Record<'_>) -> Result<()> {
        let length =
            |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => out.write_all(bytes)?,
                Piece::Field(field) => match field {
                    Field::Topic => out.write_all(at.topic.as_bytes())?,
                    Field::Partition => write!(out, "{}", at.partition)?,
                    Field::Offset => write!(out, "{}", record.offset)?,
                    Field::Key => out.write_all(record.key.unwrap_or_default())?,
                    Field::Value => out.write_all(record.value.unwrap_or_default())?,
                    Field::Headers => out.write_all(&headers(record))?,
                    Field::Timestamp => write!(out, "{}", record.timestamp)?,
                    Field::KeyLength => write!(out, "{}", length(record.key))?,
                    Field::ValueLength => write!(out, "{}", length(record.value))?,
                    Field::HeadersLength => write!(out, "{}", headers(record).len())?,
                    Field::ValueLengthBytes => {
                        let length = i32::try_from(length(record.value)).unwrap_or(i32::MAX);
                        out.write_all(&length.to_be_bytes())?;
                    }
                },
            }
        }
        Ok(())
    }
}

/// `name=value,name=value`; NULL for a null value, as kcat prints it.
fn headers(record: &Record<'_>) -> Vec<u8> {
    let each = record.headers.map(|header| [header.key, b"=", header.value.unwrap_or(b"NULL")].concat());
    each.collect::<Vec<_>>().join(&b","[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer, Header, Offset, batches};

    fn printed(format: &str) -> Vec<u8> {
        let mut builder =
            BatchBuilder::new(BatchOptions { base_offset: Offset(7), ..BatchOptions::default() });
        let headers = [Header::new("a", Some(b"1")), Header::new("b", None)];
        builder.append(1234, None, Some(b"v\xff"), &headers).expect("it fits");
        let bytes = builder.finish().to_vec();
        let batch = batches(&bytes).next().expect("a batch").expect("whole");
        let mut buffer = DecompressBuffer::default();
        let record = batch.records(&mut buffer).expect("records").next().expect("one").expect("whole");
        let mut out = Vec::new();
        let template = Template::parse(format).expect("a format");
        template.print(&mut out, &TopicPartition::new("t", 3), &record).expect("it is memory");
        out
    }

    #[test]
    fn records_are_printed_by_kcats_letters() {
        assert_eq!(printed(r"%t-%p@%o %T [%k] %s %h\n"), b"t-3@7 1234 [] v\xff a=1,b=NULL\n");
        assert_eq!(printed(r"%K %S %H %R%%\x00\\é"), "-1 2 10 \0\0\0\u{2}%\0\\é".as_bytes());
    }

    #[test]
    fn mistakes_are_named() {
        for (format, expected) in [
            ("%q", "%q is unknown"),
            ("100%", "it ends with a single %"),
            ("\\q", "\\q is unknown"),
            ("\\x1", "\\x1 is invalid"),
            ("\\", "\\ is unknown"),
        ] {
            let error = Template::parse(format).expect_err(format);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
