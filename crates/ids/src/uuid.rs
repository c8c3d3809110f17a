//! Kafka's ids of topics, directories, clusters and processes: 128 bits, written as 22 characters of base64url.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::cell::Cell;
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
            fill_random(&mut bytes);
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

thread_local! {
    /// What the ids that this thread draws follow from; nothing while they are the kernel's.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on the ids that this thread draws follow from `seed`, or are the kernel's again. A simulation is one thread,
/// and is to go the same way each time.
pub fn seed_ids_of_this_thread(seed: Option<u64>) {
    SEED.set(seed);
}

fn fill_random(bytes: &mut [u8; 16]) {
    let Some(mut state) = SEED.get() else {
        return getrandom::fill(bytes).expect("the kernel gives random bytes");
    };
    // SplitMix64.
    for part in bytes.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        part.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    SEED.set(Some(state));
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
    fn ids_from_a_seed_are_the_same_each_time() {
        let ids = || {
            seed_ids_of_this_thread(Some(7));
            let drawn = [Uuid::random(), Uuid::random()];
            seed_ids_of_this_thread(None);
            drawn
        };
        assert_eq!(ids(), ids());
        assert_ne!(ids()[0], ids()[1]);
        assert_ne!(ids()[0], Uuid::random());
    }

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
