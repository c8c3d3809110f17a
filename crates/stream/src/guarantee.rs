//! Delivery guarantees: requested per run, kept by sources that commit offsets.

use std::str::FromStr;

/// Delivery guarantee for messages from a source with committed offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// At least once: the source gets the acknowledgement when every sink has acknowledged the message.
    #[default]
    AtLeastOnce,
    /// At most once: the source commits a message before any stage sees it.
    AtMostOnce,
    /// Exactly once: the sink's output and the source's offsets commit atomically.
    ExactlyOnce,
}

/// The names of the guarantees.
pub const GUARANTEES: &str = "at-least-once, at-most-once or exactly-once";

/// An unknown guarantee.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a guarantee: use {GUARANTEES}")]
pub struct NoSuchGuarantee {
    /// The rejected text.
    pub text: String,
}

impl FromStr for Guarantee {
    type Err = NoSuchGuarantee;

    fn from_str(text: &str) -> Result<Guarantee, NoSuchGuarantee> {
        match text {
            "at-least-once" => Ok(Guarantee::AtLeastOnce),
            "at-most-once" => Ok(Guarantee::AtMostOnce),
            "exactly-once" => Ok(Guarantee::ExactlyOnce),
            _ => Err(NoSuchGuarantee { text: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarantees_are_known_by_name() {
        assert_eq!("at-least-once".parse(), Ok(Guarantee::AtLeastOnce));
        assert_eq!("at-most-once".parse(), Ok(Guarantee::AtMostOnce));
        assert_eq!("exactly-once".parse(), Ok(Guarantee::ExactlyOnce));
        let error = "twice".parse::<Guarantee>().expect_err("it is none");
        assert!(error.to_string().contains("use at-least-once, at-most-once or exactly-once"), "{error}");
    }
}
