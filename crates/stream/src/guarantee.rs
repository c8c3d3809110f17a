//! How often a message may arrive: asked for when streams are run, kept by sources that remember how far they were read.

use std::str::FromStr;

/// How often a message of a source that remembers how far it was read arrives, whatever fails on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// Once or more: the source is told of a message when every sink has acknowledged it.
    #[default]
    AtLeastOnce,
    /// Once or not at all: the source is told of a message before any stage sees it.
    AtMostOnce,
    /// Once: what the sink writes and how far the source has come count together, or not at all.
    ExactlyOnce,
}

/// The names of guarantees, for people.
pub const GUARANTEES: &str = "at-least-once, at-most-once or exactly-once";

/// No such guarantee.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no guarantee: {GUARANTEES} would be right")]
pub struct NoSuchGuarantee {
    /// What was given.
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
        assert!(error.to_string().contains("at-most-once or exactly-once would be right"), "{error}");
    }
}
