//! The pipe language: what a text says, stage by stage, with the place of each part.
//!
//! ```text
//! orders = http --port=9000 | topic:orders                    # a name, a source, a named destination
//! topic:orders > big: filter --expression='payload.amount > 1000' | file --name=big.txt
//! tap:stream:orders.http > counter
//! ```
//!
//! A stream is `source | processor | sink`. Stages have `--name=value` options and may have a label. Streams end with their
//! line, or at a `;`; a line goes on where it ends with `|` or `>`, and where the next begins with one of them or with
//! `--`. What follows a `#` at the beginning of a word is a comment. This module knows no stage: [`crate::plan`] asks the
//! registry what they are.

mod complaint;
mod parser;
mod suggest;

use std::ops::Range;

pub use complaint::{Complaint, Complaints};
pub use parser::{NAME_BYTES_MAX, is_name, parse};
pub use suggest::closest;

/// Where a part stands in the text, in bytes.
pub type Span = Range<usize>;

/// A part of the text, and what it means there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned {
    /// What it means: a name, or a value without its quotes and escapes.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// All streams of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// In the order of the text.
    pub streams: Vec<StreamText>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamText {
    /// The name, where it has one.
    pub name: Option<Spanned>,
    /// Its elements from source to sink.
    pub elements: Vec<Element>,
    /// Where it stands, without its name.
    pub span: Span,
}

/// What stands between two pipes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A stage.
    Stage(StageText),
    /// A named destination.
    Topic(TopicText),
    /// Where another stream is listened to.
    Tap(TapText),
}

impl Element {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            Element::Stage(stage) => stage.span.clone(),
            Element::Topic(topic) => topic.span.clone(),
            Element::Tap(tap) => tap.span.clone(),
        }
    }
}

/// A stage with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageText {
    /// What other streams tap it by.
    pub label: Option<Spanned>,
    /// Which module it is.
    pub module: Spanned,
    /// Its options, in the order of the text.
    pub options: Vec<OptionText>,
    /// Where it stands.
    pub span: Span,
}

/// `--name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionText {
    /// The name.
    pub name: Spanned,
    /// The value.
    pub value: Spanned,
}

/// `topic:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicText {
    /// The name.
    pub name: Spanned,
    /// Where it stands.
    pub span: Span,
}

/// `tap:stream:NAME` or `tap:stream:NAME.LABEL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapText {
    /// The stream.
    pub stream: Spanned,
    /// After which of its stages; without, after the first.
    pub label: Option<Spanned>,
    /// Where it stands.
    pub span: Span,
}

/// The streams that a text taps. None where it is wrong.
pub fn taps(text: &str) -> Vec<String> {
    let Ok(definition) = parse(text) else { return Vec::new() };
    let elements = definition.streams.into_iter().flat_map(|stream| stream.elements);
    let taps = elements.filter_map(|element| match element {
        Element::Tap(tap) => Some(tap.stream.text),
        _ => None,
    });
    taps.collect()
}

#[cfg(test)]
mod tests;
