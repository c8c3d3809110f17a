//! Writes the value of an expression as bytes.
//!
//! Map and list literals keep their order. A part of `payload` that is passed on, such as `payload.a[0].b`,
//! is copied from the message unchanged, with all digits of its numbers; numbers that an expression computes
//! with are 64-bit integers or doubles.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use cel::common::ast::{EntryExpr, Expr, LiteralValue, MapExpr, operators};
use cel::common::types::{CelBool, CelInt, CelOptional, CelString};
use cel::objects::{Key, Map};
use cel::{Context, IdedExpr, Value};

use super::view::View;
use super::{Expression, NoValue};
use crate::json::{self, Raw, write_string};

/// Output format of text and bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// As JSON: quoted, bytes in base64.
    Json,
    /// As JSON that is the same for equal values.
    Canonical,
}

impl Form {
    /// The form of a value inside a list or map.
    fn inside(self) -> Form {
        if self == Form::Plain { Form::Json } else { self }
    }
}

/// Writes the value of a syntax tree. Returns false if it is null, which is written as in JSON.
pub fn value(
    expression: &Expression,
    tree: &IdedExpr,
    view: &View<'_>,
    context: &Context<'_, '_>,
    out: &mut BytesMut,
    form: Form,
) -> Result<bool, NoValue> {
    let json =
        |tree: &IdedExpr, out: &mut BytesMut| value(expression, tree, view, context, out, form.inside());
    match &tree.expr {
        Expr::Map(map) if map.entries.iter().all(|entry| literal_member(&entry.expr).is_some()) => {
            return members(expression, map, view, context, out, form.inside()).map(|()| true);
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
            return Ok(true);
        }
        Expr::Call(call) if call.func_name == operators::CONDITIONAL && call.args.len() == 3 => {
            let condition = Value::resolve_val(&call.args[0], context);
            let condition = condition.map_err(|error| expression.failed(error))?;
            if let Some(condition) = condition.downcast_ref::<CelBool>() {
                let chosen = if *condition.inner() { &call.args[1] } else { &call.args[2] };
                return value(expression, chosen, view, context, out, form);
            }
        }
        _ => {
            if let Some(raw) = part_of_payload(tree, view)
                && copy(raw, out, form)?
            {
                return Ok(raw != Raw::Null);
            }
        }
    }
    let found = Value::resolve_val(tree, context).map_err(|error| expression.failed(error))?;
    if let Some(text) = found.downcast_ref::<CelString<'_>>() {
        match form {
            Form::Plain => out.extend_from_slice(text.inner().as_bytes()),
            Form::Json | Form::Canonical => write_string(text.inner(), out),
        }
        return Ok(true);
    }
    if let Some(number) = found.downcast_ref::<CelInt>() {
        let _ = write!(out, "{}", number.inner());
        return Ok(true);
    }
    let found = Value::try_from(found.as_ref()).map_err(|error| expression.failed(error))?;
    write(expression, &found, out, form)?;
    Ok(!matches!(found, Value::Null))
}

/// Writes a map literal as an object, its members in order.
fn members(
    expression: &Expression,
    map: &MapExpr,
    view: &View<'_>,
    context: &Context<'_, '_>,
    out: &mut BytesMut,
    form: Form,
) -> Result<(), NoValue> {
    out.extend_from_slice(b"{");
    let begun = out.len();
    for entry in &map.entries {
        let Some(member) = literal_member(&entry.expr) else { continue };
        let start = out.len();
        if start > begun {
            out.extend_from_slice(b",");
        }
        write_string(member.key, out);
        out.extend_from_slice(b":");
        let is_there = match member.is_optional {
            true => optional(expression, member.value, view, context, out, form)?,
            false => value(expression, member.value, view, context, out, form).map(|_| true)?,
        };
        if !is_there {
            out.truncate(start);
        }
    }
    out.extend_from_slice(b"}");
    Ok(())
}

/// Writes an optional value, such as `payload.?a` in `{?"a": payload.?a}`. Returns false if it is not there.
fn optional(
    expression: &Expression,
    tree: &IdedExpr,
    view: &View<'_>,
    context: &Context<'_, '_>,
    out: &mut BytesMut,
    form: Form,
) -> Result<bool, NoValue> {
    let found = Value::resolve_val(tree, context).map_err(|error| expression.failed(error))?;
    let optional = found.downcast_ref::<CelOptional<'_>>().ok_or_else(|| {
        expression.of_another_kind(found.get_type().name(), "an optional value, such as payload.?member")
    })?;
    let Some(found) = optional.option() else { return Ok(false) };
    if let Some(raw) = part_of_payload(tree, view)
        && copy(raw, out, form)?
    {
        return Ok(true);
    }
    let found = Value::try_from(found).map_err(|error| expression.failed(error))?;
    write(expression, &found, out, form)?;
    Ok(true)
}

/// Copies a part of the message. Returns false if it cannot be read; the evaluator has the reason.
fn copy(raw: Raw<'_>, out: &mut BytesMut, form: Form) -> Result<bool, NoValue> {
    match (raw, form) {
        (Raw::String(inside, escaped), Form::Plain) => match json::string(inside, escaped) {
            Ok(text) => out.extend_from_slice(text.as_bytes()),
            Err(_) => return Ok(false),
        },
        (_, Form::Canonical) => raw.write_canonical(out)?,
        _ => raw.write(out),
    }
    Ok(true)
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

/// A member of a map literal.
struct LiteralMember<'a> {
    key: &'a str,
    value: &'a IdedExpr,
    /// True if its value is optional, as in `{?"a": payload.?a}`.
    is_optional: bool,
}

/// An entry with a literal key.
fn literal_member(entry: &EntryExpr) -> Option<LiteralMember<'_>> {
    let EntryExpr::MapEntry(entry) = entry else { return None };
    match &entry.key.expr {
        Expr::Literal(LiteralValue::String(key)) => {
            Some(LiteralMember { key: key.inner(), value: &entry.value, is_optional: entry.optional })
        }
        _ => None,
    }
}

/// The operators that take a part of a value. An optional part of a value that lacks it is no part.
const PARTS: [&str; 3] = [operators::INDEX, operators::OPT_INDEX, operators::OPT_SELECT];

/// The part of `payload` that an expression passes on, if it is only a path to this part.
fn part_of_payload<'a>(tree: &IdedExpr, view: &View<'a>) -> Option<Raw<'a>> {
    let is_payload = |tree: &IdedExpr| matches!(&tree.expr, Expr::Ident(name) if name == "payload");
    let member = |operand: &IdedExpr, name: &str| match is_payload(operand) {
        true => view.payload(std::iter::once(name)),
        false => part_of_payload(operand, view)?.member(name).ok()?,
    };
    match &tree.expr {
        _ if is_payload(tree) => view.whole_payload(),
        Expr::Select(select) if !select.test => member(&select.operand, &select.field),
        Expr::Call(call) if PARTS.contains(&call.func_name.as_str()) => match &call.args[..] {
            [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }] => {
                member(operand, name.inner())
            }
            [operand, IdedExpr { expr: Expr::Literal(LiteralValue::Int(index)), .. }] => {
                let mut left = usize::try_from(*index.inner()).ok()?;
                let mut found = None;
                let visited =
                    part_of_payload(operand, view)?.each_element(|element| match left.checked_sub(1) {
                        Some(next) => left = next,
                        None => found = found.or(Some(element)),
                    });
                visited.ok().and(found)
            }
            _ => None,
        },
        _ => None,
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
                write(expression, element, out, form.inside())?;
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
                write(expression, value, out, form.inside())?;
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
        Form::Json | Form::Canonical => write_string(text, out),
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
