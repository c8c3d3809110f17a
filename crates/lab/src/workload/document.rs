//! A TOML or YAML file as a tree of values with positions, independent of workloads.

pub(super) mod toml;
pub(super) mod yaml;

use super::mistake::{Mistake, Position};

/// Maximum nesting of tables and lists.
const DEPTH_MAX: usize = 32;

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

/// The content of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Table(Vec<Entry>),
    List(Vec<Node>),
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
    /// A null, a date or an out-of-range number, as written.
    Other(String),
}

/// A key of a table and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) at: Position,
    pub(super) node: Node,
}

impl Value {
    /// A description for people.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Table(_) => "a table".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Text(text) => format!("{text:?}"),
            Value::Whole(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Other(text) => text.clone(),
        }
    }

    /// A scalar as text, as in properties files.
    pub(super) fn as_property(&self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Whole(number) => Some(number.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Flag(flag) => Some(flag.to_string()),
            Value::Table(_) | Value::List(_) | Value::Other(_) => None,
        }
    }
}

/// A syntax error.
fn malformed(position: Position, format: &str, problem: String) -> Mistake {
    Mistake { position, key: format.to_owned(), problem, remedy: format!("correct the {format} syntax") }
}
