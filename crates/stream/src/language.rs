//! The pipe language: parses a text into stages, with the position of each part.
//!
//! ```text
//! orders = http --port=9000 | topic:orders                    # a name, a source, a named destination
//! topic:orders > big: filter --expression='payload.amount > 1000' | file --name=big.txt
//! tap:stream:orders.http > counter
//! ```
//!
//! A stream is `source | processor | sink`. Stages have `--name=value` options and an optional label. A
//! stream ends with its line or at a `;`; it continues if the line ends with `|` or `>`, or if the next line
//! starts with one of them or with `--`. A `#` at the beginning of a word starts a comment. This module knows
//! no stages: [`crate::plan`] looks stages up in the registry.

mod complaint;
mod parser;
mod suggest;

use std::ops::Range;

pub use complaint::{Complaint, Complaints};
pub use parser::{NAME_BYTES_MAX, is_name, parse};
pub use suggest::closest;

/// A byte range of the text.
pub type Span = Range<usize>;

/// A value and its position in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpannedText {
    /// A name, or a value without its quotes and escapes.
    pub text: String,
    /// The position in the text.
    pub span: Span,
}

/// A parsed text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedDefinition {
    /// The streams, in order.
    pub streams: Vec<StreamText>,
}

/// The text of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamText {
    /// The stream's name, if given.
    pub name: Option<SpannedText>,
    /// The stream's elements, from source to sink.
    pub elements: Vec<Element>,
    /// The stream's position, without the name.
    pub span: Span,
}

/// An element of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    Stage(StageText),
    /// A named destination.
    Topic(TopicText),
    /// A tap on another stream.
    Tap(TapText),
}

impl Element {
    /// The element's position.
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
    /// The stage's label, which taps refer to.
    pub label: Option<SpannedText>,
    /// The module's name.
    pub module: SpannedText,
    /// The stage's options, in order.
    pub options: Vec<OptionText>,
    /// The stage's position.
    pub span: Span,
}

/// `--name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionText {
    /// The option's name.
    pub name: SpannedText,
    /// The option's value.
    pub value: SpannedText,
}

/// `topic:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicText {
    /// The topic's name.
    pub name: SpannedText,
    /// The destination's position.
    pub span: Span,
}

/// `tap:stream:NAME` or `tap:stream:NAME.LABEL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapText {
    /// The tapped stream.
    pub stream: SpannedText,
    /// The label of the tapped stage; the first stage if absent.
    pub label: Option<SpannedText>,
    /// The tap's position.
    pub span: Span,
}

/// The streams that a text taps; empty if the text is invalid.
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
