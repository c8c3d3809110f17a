//! The filter of a search: cheap tests on bytes first, the expression last.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem::Finder;
use thalweg_record::{Headers, Record};
use thalweg_stream::expression::{Expression, NoExpression};
use thalweg_stream::message::{Header, HeaderBuffer, Message};

/// A header with name and value after masking.
pub type MaskedHeader<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

/// A test of a key, value or header value.
#[derive(Clone, Debug)]
pub enum TextTest {
    /// Equal to these bytes.
    Equals(Vec<u8>),
    /// Contains these bytes.
    Contains(Box<Finder<'static>>),
}

impl TextTest {
    /// A test for a substring.
    pub fn contains(text: &str) -> TextTest {
        TextTest::Contains(Box::new(Finder::new(text.as_bytes()).into_owned()))
    }

    /// A test for equality.
    pub fn equals(text: &str) -> TextTest {
        TextTest::Equals(text.as_bytes().to_vec())
    }

    fn holds(&self, bytes: Option<&[u8]>) -> bool {
        match (self, bytes) {
            (_, None) => false,
            (TextTest::Equals(wanted), Some(bytes)) => wanted == bytes,
            (TextTest::Contains(finder), Some(bytes)) => finder.find(bytes).is_some(),
        }
    }
}

/// A test of a header.
#[derive(Clone, Debug)]
pub struct HeaderTest {
    /// The header name.
    pub name: String,
    /// A test of the header value; none if the presence of the header suffices.
    pub value: Option<TextTest>,
}

/// The filter. Unset parts match every message.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// A test of the key.
    pub key: Option<TextTest>,
    /// A test of the value.
    pub value: Option<TextTest>,
    /// Tests of headers, which must all succeed.
    pub headers: Vec<HeaderTest>,
    /// The earliest timestamp in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// The first timestamp after the range.
    pub until_ms: Option<i64>,
    /// An expression that must be true.
    pub expression: Option<Arc<Expression>>,
}

/// The result for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message matches.
    Match,
    /// The message does not match.
    NoMatch,
    /// The expression has no value for the message, which is not JSON or lacks a field.
    NoValue,
}

/// A message after decoding and masking, for the filter.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The key after decoding and masking.
    pub key: Option<&'a [u8]>,
    /// The value after decoding and masking; none for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers, before masking.
    pub headers: Headers<'a>,
    /// The timestamp, in milliseconds since 1970.
    pub timestamp: i64,
    /// The offset of the record.
    pub offset: i64,
    /// The headers after masking, if rules may hide parts of headers.
    pub masked_headers: Option<&'a [MaskedHeader<'a>]>,
}

impl<'a> Candidate<'a> {
    /// A record without decoding or masking.
    pub fn of(record: &Record<'a>) -> Candidate<'a> {
        Candidate {
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp,
            offset: record.offset.0,
            masked_headers: None,
        }
    }

    /// The headers, masked if necessary.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let plain = self.masked_headers.is_none().then_some(self.headers);
        let plain = plain.into_iter().flatten().map(|header| (header.key, header.value));
        let masked = self.masked_headers.into_iter().flatten();
        plain.chain(masked.map(|(name, value)| (&**name, value.as_deref())))
    }
}

/// Buffers reused between messages.
#[derive(Debug, Default)]
pub struct Scratch(HeaderBuffer);

impl Filter {
    /// A filter that consists of an expression.
    pub fn expression(text: &str) -> Result<Filter, NoExpression> {
        Ok(Filter { expression: Some(Arc::new(Expression::compile(text)?)), ..Filter::default() })
    }

    /// True if every message matches.
    pub fn is_empty(&self) -> bool {
        self.key.is_none()
            && self.value.is_none()
            && self.headers.is_empty()
            && self.from_ms.is_none()
            && self.until_ms.is_none()
            && self.expression.is_none()
    }

    /// True if a timestamp is in range. No other test works without the content.
    #[inline]
    pub fn takes_time(&self, timestamp: i64) -> bool {
        self.from_ms.is_none_or(|from| timestamp >= from)
            && self.until_ms.is_none_or(|until| timestamp < until)
    }

    /// True if a control record with this timestamp matches. A filter on content never matches, because
    /// control records have no message content.
    pub fn takes_marker(&self, timestamp: i64) -> bool {
        let of_content = self.key.is_some() || self.value.is_some() || !self.headers.is_empty();
        !of_content && self.expression.is_none() && self.takes_time(timestamp)
    }

    /// Tests a message.
    #[inline]
    pub fn test(&self, candidate: &Candidate<'_>, scratch: &mut Scratch) -> Outcome {
        let holds = self.takes_time(candidate.timestamp)
            && self.key.as_ref().is_none_or(|test| test.holds(candidate.key))
            && self.value.as_ref().is_none_or(|test| test.holds(candidate.value))
            && self.headers.iter().all(|test| has_header(candidate, test));
        match &self.expression {
            _ if !holds => Outcome::NoMatch,
            None => Outcome::Match,
            Some(expression) => match expression.matches(&message(candidate, expression, scratch)) {
                Some(true) => Outcome::Match,
                Some(false) => Outcome::NoMatch,
                None => Outcome::NoValue,
            },
        }
    }

    /// The reason why the expression has no value for a message.
    pub fn reason(&self, candidate: &Candidate<'_>, scratch: &mut Scratch) -> Option<String> {
        let expression = self.expression.as_ref()?;
        expression.test(&message(candidate, expression, scratch)).err().map(|error| error.to_string())
    }
}

fn has_header(candidate: &Candidate<'_>, test: &HeaderTest) -> bool {
    candidate.headers().any(|(name, value)| {
        name == test.name.as_bytes() && test.value.as_ref().is_none_or(|test| test.holds(value))
    })
}

fn message<'a>(candidate: &Candidate<'a>, expression: &Expression, scratch: &'a mut Scratch) -> Message<'a> {
    let headers = match expression.uses_headers() && candidate.headers.len() > 0 {
        true => scratch.0.fill(candidate.headers().filter_map(|(name, value)| {
            // Expressions cannot address header names that are not UTF-8.
            Some(Header { name: std::str::from_utf8(name).ok()?, value })
        })),
        false => Default::default(),
    };
    Message {
        value: candidate.value.unwrap_or_default(),
        is_null: candidate.value.is_none(),
        key: candidate.key,
        headers,
        time_ms: candidate.timestamp,
        sequence: u64::try_from(candidate.offset).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_meet_conditions_of_time_only() {
        let none = Filter::default();
        let timed = Filter { from_ms: Some(5), until_ms: Some(7), ..Filter::default() };
        assert!(none.takes_marker(0) && timed.takes_marker(6) && !timed.takes_marker(7));
        for filter in [
            Filter { key: Some(TextTest::equals("zzz")), ..Filter::default() },
            Filter { value: Some(TextTest::contains("z")), ..Filter::default() },
            Filter { headers: vec![HeaderTest { name: "a".to_owned(), value: None }], ..Filter::default() },
            Filter::expression("true").expect("an expression"),
        ] {
            assert!(!filter.takes_marker(0), "{filter:?}");
        }
    }
}
