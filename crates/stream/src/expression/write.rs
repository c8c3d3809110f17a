//! Writes the value of an expression as bytes.
//!
//! Map and list literals keep their order, and paths below `payload` inside them are copied from the message
//! unchanged.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use cel::common::ast::{EntryExpr, Expr, LiteralValue};
use cel::common::types::{CelInt, CelString};
use cel::objects::{Key, Map};
use cel::{Context, IdedExpr, Value};

use super::view::View;
use super::{Expression, NoValue};
use crate::json::write_string;

/// Output format of text and bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// As JSON: quoted, bytes in base64.
    Json,
}

/// Writes the value of a syntax tree.
pub fn value(
    expression: &Expression,
    tree: &IdedExpr,
    view: &View<'_>,
    context: &Context<'_, '_>,
    out: &mut BytesMut,
    form: Form,
) -> Result<(), NoValue> {
    let json = |tree: &IdedExpr, out: &mut BytesMut| value(expression, tree, view, context, out, Form::Json);
    match &tree.expr {
        Expr::Map(map) if map.entries.iter().all(|entry| literal_key(&entry.expr).is_some()) => {
            out.extend_from_slice(b"{");
            for (index, entry) in map.entries.iter().enumerate() {
                let Some((key, entry)) = literal_key(&entry.expr) else { continue };
                if index > 0 {
                    out.extend_from_slice(b",");
                }
                write_string(key, out);
                out.extend_from_slice(b":");
                json(entry, out)?;
            }
            out.extend_from_slice(b"}");
            return Ok(());
        }
        Expr::List(list) if list.optional_indices.is_empty() => {
            out.extend_from_slice(b"[");
            for (index, element) in list.elements.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b",");
                }
                json(element, out)?;
            }
            out.extend_from_slice(b"]");
            return Ok(());
        }
        Expr::Select(_) if form == Form::Json => {
            let mut path = Vec::new();
            if payload_path(tree, &mut path)
                && let Some(raw) = view.payload(path.iter().copied())
            {
                raw.write(out);
                return Ok(());
            }
        }
        _ => {}
    }
    let found = Value::resolve_val(tree, context).map_err(|error| expression.failed(error))?;
    if let Some(text) = found.downcast_ref::<CelString<'_>>() {
        match form {
            Form::Plain => out.extend_from_slice(text.inner().as_bytes()),
            Form::Json => write_string(text.inner(), out),
        }
        return Ok(());
    }
    if let Some(number) = found.downcast_ref::<CelInt>() {
        let _ = write!(out, "{}", number.inner());
        return Ok(());
    }
    let found = Value::try_from(found.as_ref()).map_err(|error| expression.failed(error))?;
    write(expression, &found, out, form)
}

/// The members of a map, by name.
pub fn entries(expression: &Expression, map: &Map) -> Result<Vec<(String, Option<BytesMut>)>, NoValue> {
    let mut entries: Vec<_> = map.map.iter().map(|(key, value)| (key_text(key), value)).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let written = entries.into_iter().map(|(name, value)| {
        let mut out = BytesMut::new();
        match value {
            Value::Null => Ok((name, None)),
            value => write(expression, value, &mut out, Form::Plain).map(|()| (name, Some(out))),
        }
    });
    written.collect()
}

/// Key and value of an entry with a literal key.
fn literal_key(entry: &EntryExpr) -> Option<(&str, &IdedExpr)> {
    let EntryExpr::MapEntry(entry) = entry else { return None };
    match &entry.key.expr {
        Expr::Literal(LiteralValue::String(key)) if !entry.optional => Some((key.inner(), &entry.value)),
        _ => None,
    }
}

/// The names after `payload`, if the expression is such a path.
fn payload_path<'a>(tree: &'a IdedExpr, path: &mut Vec<&'a str>) -> bool {
    match &tree.expr {
        Expr::Ident(name) => name == "payload",
        Expr::Select(select) if !select.test => {
            let is_path = payload_path(&select.operand, path);
            path.push(&select.field);
            is_path
        }
        _ => false,
    }
}

fn write(expression: &Expression, found: &Value, out: &mut BytesMut, form: Form) -> Result<(), NoValue> {
    match found {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Int(value) => drop(write!(out, "{value}")),
        Value::UInt(value) => drop(write!(out, "{value}")),
        // JSON has neither NaN nor infinity.
        Value::Float(value) if !value.is_finite() => out.extend_from_slice(b"null"),
        Value::Float(value) => drop(write!(out, "{value}")),
        Value::String(text) if form == Form::Plain => out.extend_from_slice(text.as_bytes()),
        Value::String(text) => write_string(text, out),
        Value::Bytes(bytes) if form == Form::Plain => out.extend_from_slice(bytes),
        Value::Bytes(bytes) => write_string(&STANDARD.encode(bytes.as_slice()), out),
        Value::Timestamp(time) => text(&time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true), out, form),
        Value::Duration(time) => text(&format!("{}s", time.as_seconds_f64()), out, form),
        Value::List(elements) => {
            out.extend_from_slice(b"[");
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b",");
                }
                write(expression, element, out, Form::Json)?;
            }
            out.extend_from_slice(b"]");
        }
        Value::Map(map) => {
            // Sorted by key: the map itself is unordered.
            let mut entries: Vec<_> = map.map.iter().map(|(key, value)| (key_text(key), value)).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            out.extend_from_slice(b"{");
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b",");
                }
                write_string(&key, out);
                out.extend_from_slice(b":");
                write(expression, value, out, Form::Json)?;
            }
            out.extend_from_slice(b"}");
        }
        other => return Err(expression.of_another_kind(&other.type_of().to_string(), "text, bytes or JSON")),
    }
    Ok(())
}

fn text(text: &str, out: &mut BytesMut, form: Form) {
    match form {
        Form::Plain => out.extend_from_slice(text.as_bytes()),
        Form::Json => write_string(text, out),
    }
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Int(value) => value.to_string(),
        Key::Uint(value) => value.to_string(),
        Key::Bool(value) => value.to_string(),
        Key::String(value) => value.as_ref().clone(),
    }
}
