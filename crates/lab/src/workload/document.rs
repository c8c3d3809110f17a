//! A file as a tree of values that know where they stand, whether it was TOML or YAML. It knows nothing of workloads.

pub(super) mod toml;
pub(super) mod yaml;

use super::mistake::{Mistake, Position};

/// Tables and lists within each other; more is no file that people write.
const DEPTH_MAX: usize = 32;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Table(Vec<Entry>),
    List(Vec<Node>),
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
    /// A null, a date or a number beyond all bounds, as it was written.
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
    /// What it is, for people.
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

    /// A scalar as text, as property files have it.
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

/// A file that is no TOML or no YAML at all.
fn malformed(position: Position, format: &str, problem: String) -> Mistake {
    Mistake {
        position,
        key: format.to_owned(),
        problem,
        remedy: format!("a file that follows {format}'s rules would be right"),
    }
}
