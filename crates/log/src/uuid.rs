//! The 128-bit ids of Kafka, written as 22 characters of unpadded URL-safe base64.
//!
//! Owns: the text form and fresh random ids. Refuses: meaning; a topic id and a directory id look alike.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A 128-bit id: of a cluster, a log directory or a topic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid([u8; 16]);

/// A text that is not an id of 22 characters.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an id: 22 characters of URL-safe base64 are expected")]
pub struct BadUuid {
    /// The text that was read.
    pub text: String,
}

impl Uuid {
    /// The id whose bits are all zero: Kafka's way to say "none".
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// The id with these bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// The bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A fresh random id: version 4, not one of Kafka's reserved ids, and not beginning with `-`, which
    /// command line tools would take for an option.
    pub fn random() -> Uuid {
        loop {
            let mut bytes = [0; 16];
            fill_random(&mut bytes);
            bytes[6] = (bytes[6] & 0x0f) | 0x40;
            bytes[8] = (bytes[8] & 0x3f) | 0x80;
            let uuid = Uuid(bytes);
            if !uuid.to_string().starts_with('-') {
                return uuid;
            }
        }
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
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 22];
        let len = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text).expect("16 bytes make 22 characters");
        out.write_str(std::str::from_utf8(&text[..len]).expect("base64 is ASCII"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Uuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Uuid, BadUuid> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        bytes.map(Uuid).ok_or_else(|| BadUuid { text: text.to_owned() })
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
    fn text_form_is_kafkas() {
        let uuid: Uuid = "MkU3OEVBNTcwNTJENDM2Qg".parse().expect("an id as kafka-storage prints it");
        assert_eq!(uuid.as_bytes(), b"2E78EA57052D436B");
        assert_eq!(uuid.to_string(), "MkU3OEVBNTcwNTJENDM2Qg");
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in ["", "MkU3OEVBNTcwNTJENDM2Q", "MkU3OEVBNTcwNTJENDM2Qg==", "MkU3OEVBNTcwNTJENDM2Q!"] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(Uuid::random(), Uuid::random());
    }
}
