//! Expressions, in the Common Expression Language (CEL), over one message.
//!
//! | variable | is |
//! |---|---|
//! | `payload` | the value of the message, read as JSON |
//! | `text` | the value as text |
//! | `raw` | the value as bytes |
//! | `key` | the key as text; null where there is none |
//! | `headers` | the headers, a map of texts |
//! | `time` | when the message was made, a timestamp |
//! | `time_ms` | the same in milliseconds since 1970 |
//! | `sequence` | its place in what its source has made |
//!
//! An expression is read once, and what it asks of `payload` is found out then: of each message only those fields are read,
//! where they lie. What is written out as it came in, as in `{"id": payload.id}`, is copied and never read at all.

mod needs;
mod parse;
mod view;
mod write;

use std::sync::{Arc, LazyLock};

use bytes::BytesMut;
use cel::common::types::CelBool;
use cel::extensions::strings;
use cel::{Context, Env, IdedExpr, Value};

use crate::json::NotJson;
use crate::message::Message;
use needs::Needs;
use view::View;

/// The functions of the language, made once for all.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(strings).expect("the functions of strings have names of their own");
    Arc::new(env)
});

/// An expression that was understood.
#[derive(Debug)]
pub struct Expression {
    text: String,
    tree: IdedExpr,
    needs: Needs,
}

/// A text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NoExpression {
    /// Why not.
    pub reason: String,
    /// The byte where it is wrong, if it is known.
    pub at: Option<usize>,
}

impl<T: Into<String>> From<T> for NoExpression {
    fn from(reason: T) -> NoExpression {
        NoExpression { reason: reason.into(), at: None }
    }
}

/// An expression has no value for a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoValue {
    /// The message is not what the expression takes it for.
    #[error(transparent)]
    NotJson(#[from] NotJson),
    /// The evaluation failed.
    #[error("{expression} fails: {reason}")]
    Failed {
        /// The expression.
        expression: String,
        /// Why.
        reason: String,
    },
    /// Another kind of value is needed.
    #[error("{expression} is {found}, not {wanted}")]
    OfAnotherKind {
        /// The expression.
        expression: String,
        /// What it is.
        found: String,
        /// What it should be.
        wanted: &'static str,
    },
}

impl Expression {
    /// Reads an expression.
    pub fn compile(text: &str) -> Result<Expression, NoExpression> {
        let tree = parse::tree(text)?;
        let needs = Needs::of(&tree)?;
        Ok(Expression { text: text.to_owned(), tree, needs })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a message meets the expression.
    pub fn test(&self, message: &Message<'_>) -> Result<bool, NoValue> {
        self.with(message, |_, context| {
            let value = Value::resolve_val(&self.tree, context).map_err(|error| self.failed(error))?;
            let found = value.downcast_ref::<CelBool>().map(|found| *found.inner());
            found.ok_or_else(|| self.of_another_kind(value.get_type().name(), "true or false"))
        })
    }

    /// Writes the value of the expression: text and bytes as they are, anything else as JSON.
    pub fn write(&self, message: &Message<'_>, out: &mut BytesMut) -> Result<(), NoValue> {
        self.with(message, |view, context| {
            write::value(self, &self.tree, view, context, out, write::Form::Plain)
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

    /// The value as a map: names in their order, each with text and bytes as they are, anything else as JSON, and null as nothing.
    pub fn entries(&self, message: &Message<'_>) -> Result<Vec<(String, Option<BytesMut>)>, NoValue> {
        self.with(message, |_, context| {
            match Value::resolve(&self.tree, context).map_err(|error| self.failed(error))? {
                Value::Map(map) => write::entries(self, &map),
                other => Err(self.of_another_kind(&other.type_of().to_string(), "a map")),
            }
        })
    }

    /// The value as a time: a timestamp, milliseconds since 1970, or text as in RFC 3339.
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
                self.of_another_kind(&kind, "a time (milliseconds since 1970, or as 2026-01-31T12:00:00Z)")
            })
        })
    }

    fn with<T>(
        &self,
        message: &Message<'_>,
        f: impl FnOnce(&View<'_>, &Context<'_, '_>) -> Result<T, NoValue>,
    ) -> Result<T, NoValue> {
        let view = View::new(&self.needs, message)?;
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.set_variable_resolver(&view);
        f(&view, &context).map_err(|error| match (error, view.unreadable()) {
            (NoValue::Failed { .. }, Some(unreadable)) => self.failed(unreadable),
            (error, _) => error,
        })
    }

    fn failed(&self, error: impl ToString) -> NoValue {
        let reason = error.to_string();
        let reason = reason.split_once('\n').map_or(reason.as_str(), |(first, _)| first).to_owned();
        NoValue::Failed { expression: self.text.clone(), reason }
    }

    fn of_another_kind(&self, found: &str, wanted: &'static str) -> NoValue {
        NoValue::OfAnotherKind { expression: self.text.clone(), found: found.to_owned(), wanted }
    }
}

#[cfg(test)]
mod tests;
