//! Expressions, in the Common Expression Language (CEL), over one message.
//!
//! | variable | value |
//! |---|---|
//! | `payload` | the message, parsed as JSON |
//! | `text` | the message as text |
//! | `raw` | the message as bytes |
//! | `key` | the key as text; null if absent |
//! | `headers` | the headers, a map of strings |
//! | `time` | the message's time, a timestamp |
//! | `time_ms` | the same in milliseconds since 1970 |
//! | `sequence` | its number, counted by its source |
//!
//! An expression is compiled once. The compiler finds the needed fields: the message is checked, and only
//! those are parsed, in place. A field passed on unchanged, as in `{"id": payload.id}`, is copied. Common
//! conditions bypass the evaluator (`direct`). Time and memory for one message are bounded (`budget`).

mod budget;
mod direct;
mod functions;
mod library;
mod needs;
mod parse;
mod view;
mod write;

use std::sync::{Arc, LazyLock};

use bytes::BytesMut;
use cel::common::types::CelBool;
use cel::extensions::{encoders, lists, math, strings};
use cel::{Context, Env, IdedExpr, Value};

use crate::json::NotJson;
use crate::message::Message;
use direct::{Answer, Condition};
use needs::Needs;
use view::View;

/// The functions of the language, shared by all expressions.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for extension in [strings, math, lists, encoders, library::extension] {
        env.add_extension(extension).expect("the functions of the extensions have different names or types");
    }
    env.add_extension(functions::extension).expect("no other functions begin with an @");
    Arc::new(env)
});

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    text: String,
    /// The tree, rewritten so that its evaluation is charged.
    tree: IdedExpr,
    /// Number of reads of the message outside of loops.
    reads: u64,
    needs: Needs,
    uses_headers: bool,
    /// The same condition for direct evaluation, if it has a common shape.
    direct: Option<Condition>,
}

/// A text that is not a valid expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NoExpression {
    pub reason: String,
    /// The byte offset of the mistake, if known.
    pub at: Option<usize>,
}

impl<T: Into<String>> From<T> for NoExpression {
    fn from(reason: T) -> NoExpression {
        NoExpression { reason: reason.into(), at: None }
    }
}

/// The reason why an expression has no value for a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoValue {
    /// The message is not JSON, or a field has an unexpected type.
    #[error(transparent)]
    NotJson(#[from] NotJson),
    #[error("{expression} fails: {reason}")]
    Failed {
        /// The expression's text.
        expression: String,
        reason: String,
    },
    /// The value has the wrong type.
    #[error("{expression} is {found}, not {wanted}")]
    OfAnotherKind {
        /// The expression's text.
        expression: String,
        /// The type of the value.
        found: String,
        /// The required type.
        wanted: &'static str,
    },
}

impl Expression {
    /// Compiles an expression.
    pub fn compile(text: &str) -> Result<Expression, NoExpression> {
        let mut tree = parse::tree(text, &ENVIRONMENT)?;
        let (needs, uses_headers) = Needs::of(&tree)?;
        let direct = Condition::of(&tree);
        let reads = budget::charged(&mut tree);
        Ok(Expression { text: text.to_owned(), tree, reads, needs, uses_headers, direct })
    }

    /// True if the expression reads `headers`; otherwise the message needs no headers.
    pub fn uses_headers(&self) -> bool {
        self.uses_headers
    }

    /// The text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates a condition.
    pub fn test(&self, message: &Message<'_>) -> Result<bool, NoValue> {
        match self.answer(message)? {
            Answer::True => Ok(true),
            Answer::False => Ok(false),
            Answer::NoValue | Answer::Unknown => self.evaluate(message),
        }
    }

    /// Evaluates a condition for a search; `None` if it has no value for the message. Cheaper than
    /// [`Expression::test`] if many messages lack a field, because no reason is built.
    pub fn matches(&self, message: &Message<'_>) -> Option<bool> {
        match self.answer(message) {
            Ok(Answer::True) => Some(true),
            Ok(Answer::False) => Some(false),
            Ok(Answer::Unknown) => self.evaluate(message).ok(),
            Ok(Answer::NoValue) | Err(_) => None,
        }
    }

    fn answer(&self, message: &Message<'_>) -> Result<Answer, NoValue> {
        match &self.direct {
            Some(condition) => Ok(condition.answer(&View::new(&self.needs, message)?)),
            None => Ok(Answer::Unknown),
        }
    }

    fn evaluate(&self, message: &Message<'_>) -> Result<bool, NoValue> {
        self.with(message, |_, context| {
            let value = Value::resolve_val(&self.tree, context).map_err(|error| self.failed(error))?;
            let found = value.downcast_ref::<CelBool>().map(|found| *found.inner());
            found.ok_or_else(|| self.of_another_kind(value.get_type().name(), "true or false"))
        })
    }

    /// Writes the value of the expression: text and bytes as they are, anything else as JSON. Returns false
    /// if the value is null.
    pub fn write(&self, message: &Message<'_>, out: &mut BytesMut) -> Result<bool, NoValue> {
        self.with(message, |view, context| {
            write::value(self, &self.tree, view, context, out, write::Form::Plain)
        })
    }

    /// Writes JSON that is the same for equal values only: texts differ from numbers, null and other texts.
    pub fn write_canonical(&self, message: &Message<'_>, out: &mut BytesMut) -> Result<(), NoValue> {
        self.with(message, |view, context| {
            write::value(self, &self.tree, view, context, out, write::Form::Canonical).map(drop)
        })
    }

    /// The value as a number.
    pub fn number(&self, message: &Message<'_>) -> Result<f64, NoValue> {
        self.with(message, |_, context| {
            match Value::resolve(&self.tree, context).map_err(|error| self.failed(error))? {
                Value::Int(value) => Ok(value as f64),
                Value::UInt(value) => Ok(value as f64),
                Value::Float(value) => Ok(value),
                other => Err(self.of_another_kind(&other.type_of().to_string(), "a number")),
            }
        })
    }

    /// The value as a map, in order: text and bytes unchanged, anything else as JSON, null as an absent
    /// value.
    pub fn entries(&self, message: &Message<'_>) -> Result<Vec<(String, Option<BytesMut>)>, NoValue> {
        self.with(message, |_, context| {
            match Value::resolve(&self.tree, context).map_err(|error| self.failed(error))? {
                Value::Map(map) => write::entries(self, &map),
                other => Err(self.of_another_kind(&other.type_of().to_string(), "a map")),
            }
        })
    }

    /// The value as a time: a timestamp, milliseconds since 1970, or RFC 3339 text.
    pub fn time_ms(&self, message: &Message<'_>) -> Result<i64, NoValue> {
        self.with(message, |_, context| {
            let value = Value::resolve(&self.tree, context).map_err(|error| self.failed(error))?;
            let found = match &value {
                Value::Int(value) => Some(*value),
                Value::UInt(value) => i64::try_from(*value).ok(),
                Value::Float(value) if value.abs() < 9e15 => Some(*value as i64),
                Value::Timestamp(time) => Some(time.timestamp_millis()),
                Value::String(text) => {
                    chrono::DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_millis())
                }
                _ => None,
            };
            found.ok_or_else(|| {
                let kind = value.type_of().to_string();
                self.of_another_kind(
                    &kind,
                    "a time (milliseconds since 1970, or text such as 2026-01-31T12:00:00Z)",
                )
            })
        })
    }

    fn with<T>(
        &self,
        message: &Message<'_>,
        f: impl FnOnce(&View<'_>, &Context<'_, '_>) -> Result<T, NoValue>,
    ) -> Result<T, NoValue> {
        let view = View::new(&self.needs, message)?;
        let bytes = message.value.len() + message.key.map_or(0, <[u8]>::len) + message.headers.bytes().len();
        budget::begin(bytes, self.reads);
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.set_variable_resolver(&view);
        let outcome = f(&view, &context);
        if budget::is_exhausted() {
            // An operator may have overridden the error of an operand.
            return Err(self.failed(budget::EXHAUSTED));
        }
        outcome.map_err(|error| match (error, view.unreadable()) {
            (NoValue::Failed { .. }, Some(unreadable)) => self.failed(unreadable),
            (error, _) => error,
        })
    }

    fn failed(&self, error: impl ToString) -> NoValue {
        let reason = error.to_string();
        // The reason shows replaced functions under their original names.
        let reason = reason.replace('@', "");
        let reason = reason.split_once('\n').map_or(reason.as_str(), |(first, _)| first).to_owned();
        NoValue::Failed { expression: self.text.clone(), reason }
    }

    fn of_another_kind(&self, found: &str, wanted: &'static str) -> NoValue {
        NoValue::OfAnotherKind { expression: self.text.clone(), found: found.to_owned(), wanted }
    }
}

#[cfg(test)]
mod tests;
