//! Kafka's ids of topics, directories, clusters and processes: 128 bits, written as 22 characters of base64url.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::str::FromStr;

/// `org.apache.kafka.common.Uuid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub u128);

/// Text that is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id: 22 characters of base64url would be right")]
pub struct ParseUuidError {
    /// The text.
    pub text: String,
}

impl Uuid {
    /// "No id."
    pub const ZERO: Uuid = Uuid(0);
    /// The id of `__cluster_metadata`.
    pub const METADATA_TOPIC: Uuid = Uuid(1);

    /// A random id. Never one of the 100 that Kafka reserves, and never one whose text starts with a dash, which
    /// a command line would take for an option.
    pub fn random() -> Uuid {
        loop {
            let mut bytes = [0u8; 16];
            getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
            // The bits of a version 4 UUID (RFC 9562), as java.util.UUID.randomUUID sets them.
            bytes[6] = (bytes[6] & 0x0f) | 0x40;
            bytes[8] = (bytes[8] & 0x3f) | 0x80;
            let id = Uuid(u128::from_be_bytes(bytes));
            if !id.is_reserved() && !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    /// Whether Kafka keeps the id for a meaning of its own.
    pub fn is_reserved(self) -> bool {
        self.0 < 100
    }

    /// Whether it is "no id".
    pub fn is_zero(self) -> bool {
        self == Uuid::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0.to_be_bytes()))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        match bytes {
            Some(bytes) => Ok(Uuid(u128::from_be_bytes(bytes))),
            None => Err(ParseUuidError { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_topic_is_written_as_kafka_writes_it() {
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ".parse(), Ok(Uuid::METADATA_TOPIC));
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA!", "AAAAAAAAAAAAAAAAAAAAAAA"] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
