//! A message that a person sends, possibly a changed copy of a stored one.

use std::time::Duration;

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use thalweg_browse::{Content, Message, MessageHeader, MessagePosition, NewMessage, ProduceError, produce};
use thalweg_client::{ConnectionOptions, DeliveryError, ProducerConfig};
use utoipa::ToSchema;

use super::messages::{self, Keeping, is_on};
use super::{View, now_ms};
use crate::partition_index;
use crate::problem::Problem;

/// A message to send.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MessageToSend {
    /// The key; no key if empty.
    pub key: String,
    /// The partition index. Without one, the key determines the partition.
    #[serde(deserialize_with = "partition_index::text")]
    #[schema(value_type = Option<i32>)]
    pub partition: String,
    /// The value as text, possibly empty. Required unless `tombstone` is `on`.
    #[schema(nullable = false)]
    pub value: Option<String>,
    /// Headers, one NAME=VALUE per line.
    pub headers: String,
    /// `on` sends a null value.
    pub tombstone: String,
    /// The form of the key: `text`, the default, or `base64`.
    pub key_form: String,
    /// The form of the value: `text`, the default, or `base64`.
    pub value_form: String,
}

/// A copy of a stored message, to be changed and sent.
#[derive(Clone, Debug, Default)]
pub struct MessageCopy {
    pub message: MessageToSend,
    /// Sentences about the parts that differ from the stored message.
    pub differences: Vec<String>,
}

/// Time limit of a send. The HTTP server closes connections after a minute without traffic, and with it the
/// typed text would be lost.
const SEND_MAX: Duration = Duration::from_secs(15);
/// Maximum bytes of a key or value that is copied into a form.
const COPY_MAX: usize = 1 << 20;

/// Copies the message at an offset, with its bytes as they are stored: bytes that are no text are in Base64.
pub async fn copy(view: &View, topic: &str, partition: i32, offset: i64) -> Result<MessageCopy, Problem> {
    let stored = messages::one(view, topic, partition, offset, Keeping::Stored).await?;
    if stored.batch.control.is_some() {
        return Err(Problem::wrong(format!(
            "Offset {offset} of partition {partition} has a marker of a transaction, which is no message to send"
        )));
    }
    copy_of(&stored)
}

fn copy_of(stored: &Message) -> Result<MessageCopy, Problem> {
    let mut differences = Vec::new();
    let (key, key_form) = field("key", stored.key.as_ref(), &[])?;
    if stored.key.as_ref().is_some_and(|key| key.whole_bytes == 0) {
        differences.push("The key of the stored message is empty. The copy has no key.".to_owned());
    }
    let (value, value_form) = field("value", stored.value.as_ref(), &['\n', '\t'])?;
    if stored.is_masked {
        let words =
            "Rules hide parts of this topic's messages. Hidden parts are sent as they are shown here.";
        differences.push(words.to_owned());
    }
    let (mut headers, mut left_out) = (String::new(), stored.headers_omitted);
    for header in &stored.headers {
        match header_line(header) {
            Some(line) => headers.push_str(&line),
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        let left_out = crate::format::counted(left_out, "header");
        differences
            .push(format!("The copy lacks {left_out}: a header of the form is a line of text, NAME=VALUE."));
    }
    let message = MessageToSend {
        key,
        partition: stored.partition.to_string(),
        tombstone: if stored.value.is_none() { "on".to_owned() } else { String::new() },
        value: stored.value.is_some().then_some(value),
        headers,
        key_form: key_form.to_owned(),
        value_form: value_form.to_owned(),
    };
    Ok(MessageCopy { message, differences })
}

/// A key or value with its form. Control characters other than the `allowed` ones do not survive a form.
fn field(name: &str, content: Option<&Content>, allowed: &[char]) -> Result<(String, &'static str), Problem> {
    let Some(content) = content else { return Ok((String::new(), "text")) };
    if content.whole_bytes > COPY_MAX {
        return Err(Problem::wrong(format!(
            "The {name} has {}, too many for a form: use thalweg produce",
            crate::format::bytes(content.whole_bytes as u64)
        )));
    }
    let text = std::str::from_utf8(&content.bytes).ok();
    Ok(match text.filter(|text| !text.contains(|c: char| c.is_control() && !allowed.contains(&c))) {
        Some(text) => (text.to_owned(), "text"),
        None => (STANDARD.encode(&content.bytes), "base64"),
    })
}

/// A header as a line of the form; none if the line would be read as another header.
fn header_line(header: &MessageHeader) -> Option<String> {
    let value = header.value.as_ref().filter(|value| value.omitted_bytes() == 0)?;
    let value = std::str::from_utf8(&value.bytes).ok()?;
    let is_plain = |text: &str| {
        text == text.trim() && !text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER)
    };
    let is_line = header.omitted_name_bytes == 0
        && is_plain(&header.name)
        && is_plain(value)
        && !header.name.contains('=');
    is_line.then(|| format!("{}={value}\n", header.name))
}

/// Sends a message and waits for the acknowledgement.
pub async fn send(view: &View, topic: &str, message: MessageToSend) -> Result<MessagePosition, Problem> {
    let partition = match message.partition.trim() {
        "" => None,
        text => {
            Some(text.parse().map_err(|_| Problem::wrong(format!("Partition: {text:?} is not a number")))?)
        }
    };
    let key = bytes_of("key", message.key, &message.key_form)?;
    let value = match (is_on("tombstone", &message.tombstone)?, message.value) {
        (true, Some(value)) if !value.is_empty() => {
            return Err(Problem::wrong(
                "value: a message with tombstone has none: leave it out, or leave tombstone out",
            ));
        }
        (true, _) => None,
        (false, Some(value)) => Some(bytes_of("value", value, &message.value_form)?),
        (false, None) => {
            return Err(Problem::wrong(
                "value is missing: a text is needed, or tombstone: \"on\" for a message without a value",
            ));
        }
    };
    let mut headers = Vec::new();
    for line in message.headers.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| Problem::wrong(format!("Headers: {line:?} is not NAME=VALUE")))?;
        headers.push((name.trim().to_owned(), Some(value.trim().as_bytes().to_vec())));
    }
    let new = NewMessage {
        topic: topic.to_owned(),
        partition,
        key: Some(key).filter(|key| !key.is_empty()),
        value,
        headers,
        timestamp: now_ms(),
    };
    produce(view.cluster().clone(), config(view.cluster().options()), &new).await.map_err(not_stored)
}

/// The producer of one message, whose outcome a person waits for.
fn config(connection: &ConnectionOptions) -> ProducerConfig {
    let mut connection = connection.clone();
    connection.request_timeout = connection.request_timeout.min(SEND_MAX);
    let (delivery_timeout, max_block) = (SEND_MAX, SEND_MAX);
    ProducerConfig { connection, delivery_timeout, max_block, ..ProducerConfig::default() }
}

/// The bytes of a field in the form that `NAME_form` says.
fn bytes_of(name: &str, text: String, form: &str) -> Result<Vec<u8>, Problem> {
    Problem::unless_known(&format!("{name}_form"), form, &["text", "base64"])?;
    if form != "base64" {
        return Ok(text.into_bytes());
    }
    let digits: String = text.split_whitespace().collect();
    STANDARD.decode(digits).map_err(|wrong| {
        Problem::wrong(format!("{name}: it is not Base64 ({wrong}): correct it, or choose the form text"))
    })
}

/// Maps a failed send to a problem.
fn not_stored(error: ProduceError) -> Problem {
    match error {
        ProduceError::Client(error) => error.into(),
        ProduceError::Delivery(DeliveryError::NoProducerId(refused)) => refused.reason.into(),
        ProduceError::Delivery(DeliveryError::Refused(refused)) => {
            Problem::refused(refused.error_code, refused.to_string())
        }
        // The message never left: the partition has no leader, or the leader cannot be reached.
        ProduceError::Delivery(DeliveryError::TimedOut(late)) if late.attempts == 0 => Problem {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "not sent".to_owned(),
            message: format!(
                "no leader of {}-{} was reached within {} s",
                late.topic,
                late.partition,
                SEND_MAX.as_secs()
            ),
        },
        ProduceError::Delivery(error) => Problem {
            status: StatusCode::GATEWAY_TIMEOUT,
            kind: "timed out".to_owned(),
            message: error.to_string(),
        },
        error => Problem::wrong(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;
    use thalweg_client::DeliveryTimedOut;

    fn content(bytes: &[u8]) -> Option<Content> {
        Some(Content { bytes: bytes.to_vec().into(), whole_bytes: bytes.len(), schema: None })
    }

    #[test]
    fn a_copy_has_the_bytes_of_the_stored_message() {
        let header = |name: &str, value: Option<&[u8]>| MessageHeader {
            name: name.to_owned(),
            raw_name: None,
            omitted_name_bytes: 0,
            value: value.and_then(content),
        };
        let mut stored = message(3, 42, 1_700_000_000_000);
        stored.key = content(b"k\n1");
        stored.value = content("{\n\t\"name\": \"\u{17e}\"}".as_bytes());
        stored.headers = vec![
            header("trace", Some(b"a=b")),
            header("empty", Some(b"")),
            header("null", None),
            header("a=b", Some(b"x")),
            header("spaces", Some(b" x")),
            header("bytes", Some(b"\xff")),
            header("lines", Some(b"1\n2")),
        ];
        let copy = copy_of(&stored).expect("it is small");
        let MessageToSend { key, value, headers, .. } = &copy.message;
        assert_eq!(
            (key.as_str(), copy.message.key_form.as_str()),
            ("awox", "base64"),
            "a field has one line"
        );
        assert_eq!(bytes_of("key", key.clone(), "base64").expect("right"), b"k\n1");
        assert_eq!(value.as_deref(), Some("{\n\t\"name\": \"\u{17e}\"}"));
        assert_eq!((headers.as_str(), copy.message.partition.as_str()), ("trace=a=b\nempty=\n", "3"));
        assert_eq!(
            copy.differences,
            ["The copy lacks 5 headers: a header of the form is a line of text, NAME=VALUE."]
        );

        stored.headers.clear();
        (stored.key, stored.is_masked) = (content(b""), true);
        for value in [&b"\xff"[..], b"a\r\nb", b"a\0b"] {
            stored.value = content(value);
            let copy = copy_of(&stored).expect("it is small");
            assert_eq!(copy.message.value_form, "base64");
            let again = bytes_of("value", copy.message.value.expect("it has one"), "base64");
            assert_eq!(again.expect("right"), value);
            assert_eq!(copy.differences.len(), 2, "{:?}", copy.differences);
        }
        stored.value = None;
        assert_eq!(copy_of(&stored).expect("it is small").message.tombstone, "on");
        stored.value = content(&vec![b'v'; COPY_MAX + 1]);
        assert!(copy_of(&stored).expect_err("too large").message.contains("too many for a form"));
    }

    #[test]
    fn a_send_ends_before_its_connection() {
        let config = config(&ConnectionOptions::default());
        let all = config.delivery_timeout + config.max_block + config.connection.request_timeout;
        assert!(all < Duration::from_secs(60), "the HTTP server would close the connection: {all:?}");
    }

    #[test]
    fn a_message_that_never_left_was_not_stored() {
        let late = |attempts| {
            let (topic, partition, timeout_ms, last) = ("orders".into(), 3, 10_000, None);
            let late = DeliveryTimedOut { topic, partition, timeout_ms, attempts, last };
            not_stored(ProduceError::Delivery(late.into()))
        };
        let unsent = late(0);
        assert_eq!(unsent.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(unsent.message.starts_with("no leader of orders-3 was reached"), "{}", unsent.message);
        assert_eq!(late(1).status, StatusCode::GATEWAY_TIMEOUT, "it may have been stored");
    }

    #[test]
    fn wrong_base64_is_named() {
        let bytes = |text: &str, form: &str| bytes_of("value", text.to_owned(), form);
        assert_eq!(bytes("/w=\n=", "base64").expect("lines are joined"), [0xff]);
        assert_eq!(bytes("/w==", "").expect("text"), b"/w==");
        assert!(bytes("a b", "base64").expect_err("wrong").message.starts_with("value: it is not Base64"));
        assert!(bytes("a", "hex").expect_err("wrong").message.contains("value_form: \"hex\" is unknown"));
    }
}
