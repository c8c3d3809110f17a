//! Direct evaluation of common conditions: comparisons of fields, text and headers with literals, `in`,
//! `has`, searches in text, `&&`, `||` and `!`.
//!
//! The evaluator of CEL costs about a microsecond per message. Conditions of these shapes are evaluated on
//! the bytes of the message instead, without allocation. CEL evaluates any other shape, and any value whose
//! outcome is not certain here, so both always agree. A test compares them over random conditions and
//! messages.

use std::borrow::Cow;
use std::cmp::Ordering;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use memchr::memmem::Finder;
use regex::Regex;

use super::functions;
use super::view::View;
use crate::json::{self, Number, Raw};

/// The outcome for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// The condition has no value: a field is missing, or has an unexpected type. CEL knows the reason.
    NoValue,
    /// Only CEL can decide.
    Unknown,
}

impl From<bool> for Answer {
    fn from(value: bool) -> Answer {
        if value { Answer::True } else { Answer::False }
    }
}

/// A directly evaluated condition.
#[derive(Debug)]
pub enum Condition {
    Compare(Comparison, Operand, Operand),
    In(Operand, Vec<Literal>),
    /// `has(payload.a.b)`.
    Has(Vec<Box<str>>),
    /// `has(headers.a)` and `'a' in headers`.
    HasHeader(Box<str>),
    Search(Operand, Search),
    /// A boolean value.
    Truth(Operand),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A part of the message, or a literal.
#[derive(Debug)]
pub enum Operand {
    /// A path below `payload`.
    Payload(Vec<Box<str>>),
    /// A path below `payload`, written as `payload['a']`: CEL reads all needed members for it.
    Indexed(Vec<Box<str>>),
    Text,
    Key,
    Header(Box<str>),
    TimeMs,
    Sequence,
    Literal(Literal),
}

#[derive(Debug)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Box<str>),
}

/// A search in a text.
#[derive(Debug)]
pub enum Search {
    Contains(Box<Finder<'static>>),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    Matches(Regex),
}

/// A value of a scalar type.
enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// Text with invalid UTF-8, which CEL sees with replacement characters. Literals contain no replacement
    /// character, so a search in these bytes and in CEL's text gives the same result.
    Loose(&'a [u8]),
    /// An array or object.
    Other,
}

impl Condition {
    /// The condition of a syntax tree, if it has a supported shape.
    pub fn of(tree: &IdedExpr) -> Option<Condition> {
        match &tree.expr {
            Expr::Call(call) => Condition::of_call(call),
            Expr::Select(select) if select.test => {
                let mut path = Vec::new();
                path_of(&select.operand, &mut path)?;
                path.push(select.field.as_str());
                match path.split_first()? {
                    (&"payload", path) => Some(Condition::Has(owned(path))),
                    (&"headers", [name]) => Some(Condition::HasHeader((*name).into())),
                    _ => None,
                }
            }
            _ => Operand::of(tree).map(Condition::Truth),
        }
    }

    fn of_call(call: &CallExpr) -> Option<Condition> {
        let both = |a, b| Some((Box::new(Condition::of(a)?), Box::new(Condition::of(b)?)));
        match (call.func_name.as_str(), call.target.as_deref(), &call.args[..]) {
            (operators::LOGICAL_AND, None, [a, b]) => both(a, b).map(|(a, b)| Condition::And(a, b)),
            (operators::LOGICAL_OR, None, [a, b]) => both(a, b).map(|(a, b)| Condition::Or(a, b)),
            (operators::LOGICAL_NOT, None, [a]) => Some(Condition::Not(Box::new(Condition::of(a)?))),
            (operators::IN, None, [a, list]) => Condition::of_in(a, list),
            (operators::INDEX, None, _) => {
                let mut path = Vec::new();
                path_of_call(call, &mut path)?;
                Operand::of_path(&path, true).map(Condition::Truth)
            }
            (name, None, [a, b]) => {
                let comparison = match name {
                    operators::EQUALS => Comparison::Equal,
                    operators::NOT_EQUALS => Comparison::NotEqual,
                    operators::LESS => Comparison::Less,
                    operators::LESS_EQUALS => Comparison::LessOrEqual,
                    operators::GREATER => Comparison::Greater,
                    operators::GREATER_EQUALS => Comparison::GreaterOrEqual,
                    _ => return None,
                };
                Some(Condition::Compare(comparison, Operand::of(a)?, Operand::of(b)?))
            }
            (name, Some(target), [argument]) => {
                let Operand::Literal(Literal::Text(text)) = Operand::of(argument)? else { return None };
                let search = match name {
                    "contains" => Search::Contains(Box::new(Finder::new(text.as_bytes()).into_owned())),
                    "startsWith" => Search::StartsWith(text),
                    "endsWith" => Search::EndsWith(text),
                    "matches" => Search::Matches(functions::compile(&text).ok()?),
                    _ => return None,
                };
                Some(Condition::Search(Operand::of(target)?, search))
            }
            _ => None,
        }
    }

    fn of_in(element: &IdedExpr, list: &IdedExpr) -> Option<Condition> {
        let element = Operand::of(element)?;
        match (&list.expr, element) {
            (Expr::List(list), element) if list.optional_indices.is_empty() => {
                let literals = list.elements.iter().map(|element| match Operand::of(element)? {
                    Operand::Literal(literal) => Some(literal),
                    _ => None,
                });
                Some(Condition::In(element, literals.collect::<Option<_>>()?))
            }
            (Expr::Ident(name), Operand::Literal(Literal::Text(text))) if name == "headers" => {
                Some(Condition::HasHeader(text))
            }
            _ => None,
        }
    }

    /// The outcome for a message.
    pub fn answer(&self, view: &View<'_>) -> Answer {
        match self {
            Condition::Compare(comparison, a, b) => match (a.value(view), b.value(view)) {
                (Some(a), Some(b)) => compare(*comparison, &a, &b),
                _ => Answer::NoValue,
            },
            Condition::In(element, literals) => match element.value(view) {
                None => Answer::NoValue,
                Some(Scalar::Other) => Answer::Unknown,
                Some(element) => {
                    let outcomes = literals.iter().map(|literal| equal(&element, &literal.value()));
                    outcomes.fold(Answer::False, |so_far, outcome| match (so_far, outcome) {
                        (Answer::Unknown, _) | (_, Answer::Unknown) => Answer::Unknown,
                        (Answer::True, _) | (_, Answer::True) => Answer::True,
                        _ => Answer::False,
                    })
                }
            },
            Condition::Has(path) => has(view, path),
            Condition::HasHeader(name) => view.message().headers.get(name).is_some().into(),
            Condition::Search(operand, search) => {
                operand.value(view).map_or(Answer::NoValue, |text| search.answer(&text))
            }
            Condition::Truth(operand) => match operand.value(view) {
                Some(Scalar::Bool(value)) => value.into(),
                Some(Scalar::Other) => Answer::Unknown,
                _ => Answer::NoValue,
            },
            Condition::Not(inner) => match inner.answer(view) {
                Answer::True => Answer::False,
                Answer::False => Answer::True,
                other => other,
            },
            // A decisive operand makes the failure of the other irrelevant.
            Condition::And(a, b) => match a.answer(view) {
                decided @ (Answer::False | Answer::Unknown) => decided,
                a => match (a, b.answer(view)) {
                    (Answer::True, b) => b,
                    (_, b @ (Answer::False | Answer::Unknown)) => b,
                    _ => Answer::NoValue,
                },
            },
            Condition::Or(a, b) => match a.answer(view) {
                decided @ (Answer::True | Answer::Unknown) => decided,
                a => match (a, b.answer(view)) {
                    (Answer::False, b) => b,
                    (_, b @ (Answer::True | Answer::Unknown)) => b,
                    _ => Answer::NoValue,
                },
            },
        }
    }
}

impl Operand {
    fn of(tree: &IdedExpr) -> Option<Operand> {
        match &tree.expr {
            Expr::Literal(literal) => Literal::of(literal).map(Operand::Literal),
            Expr::Call(call) if call.func_name == operators::NEGATE => match &call.args[..] {
                [IdedExpr { expr: Expr::Literal(LiteralValue::Int(value)), .. }] => {
                    Some(Operand::Literal(Literal::Int(value.inner().checked_neg()?)))
                }
                [IdedExpr { expr: Expr::Literal(LiteralValue::Double(value)), .. }] => {
                    Some(Operand::Literal(Literal::Double(-value.inner())))
                }
                _ => None,
            },
            _ => {
                let mut path = Vec::new();
                let is_indexed = path_of(tree, &mut path)?;
                Operand::of_path(&path, is_indexed)
            }
        }
    }

    fn of_path(path: &[&str], is_indexed: bool) -> Option<Operand> {
        match path {
            ["payload", path @ ..] if !path.is_empty() && is_indexed => Some(Operand::Indexed(owned(path))),
            ["payload", path @ ..] if !path.is_empty() => Some(Operand::Payload(owned(path))),
            ["headers", name] => Some(Operand::Header((*name).into())),
            ["text"] => Some(Operand::Text),
            ["key"] => Some(Operand::Key),
            ["time_ms"] => Some(Operand::TimeMs),
            ["sequence"] => Some(Operand::Sequence),
            _ => None,
        }
    }

    /// The operand's value for a message, if there is one.
    fn value<'a>(&'a self, view: &View<'a>) -> Option<Scalar<'a>> {
        let message = view.message();
        let or_null = |bytes: Option<&'a [u8]>| bytes.map_or(Scalar::Null, Scalar::Loose);
        Some(match self {
            Operand::Payload(path) => return scalar(view.payload(path.iter().map(|name| &**name))?),
            Operand::Indexed(_) if !all_plain(view) => Scalar::Other,
            Operand::Indexed(path) => return scalar(view.payload(path.iter().map(|name| &**name))?),
            Operand::Text => Scalar::Loose(message.value),
            Operand::Key => or_null(message.key),
            Operand::Header(name) => or_null(message.headers.get(name)?),
            Operand::TimeMs => Scalar::Int(message.time_ms),
            Operand::Sequence => Scalar::Int(message.sequence as i64),
            Operand::Literal(literal) => literal.value(),
        })
    }
}

impl Literal {
    fn of(literal: &LiteralValue) -> Option<Literal> {
        Some(match literal {
            LiteralValue::Null => Literal::Null,
            LiteralValue::Boolean(value) => Literal::Bool(*value.inner()),
            LiteralValue::Int(value) => Literal::Int(*value.inner()),
            LiteralValue::Double(value) => Literal::Double(*value.inner()),
            LiteralValue::String(text) if !text.inner().contains(char::REPLACEMENT_CHARACTER) => {
                Literal::Text(text.inner().into())
            }
            _ => return None,
        })
    }

    fn value(&self) -> Scalar<'_> {
        match self {
            Literal::Null => Scalar::Null,
            Literal::Bool(value) => Scalar::Bool(*value),
            Literal::Int(value) => Scalar::Int(*value),
            Literal::Double(value) => Scalar::Double(*value),
            Literal::Text(text) => Scalar::Text(Cow::Borrowed(text)),
        }
    }
}

impl Search {
    fn answer(&self, text: &Scalar<'_>) -> Answer {
        let bytes = match text {
            Scalar::Text(text) => text.as_bytes(),
            Scalar::Loose(bytes) => bytes,
            Scalar::Other => return Answer::Unknown,
            _ => return Answer::NoValue,
        };
        match self {
            Search::Contains(finder) => finder.find(bytes).is_some().into(),
            Search::StartsWith(start) => bytes.starts_with(start.as_bytes()).into(),
            Search::EndsWith(end) => bytes.ends_with(end.as_bytes()).into(),
            Search::Matches(regex) => match std::str::from_utf8(bytes) {
                Ok(text) => regex.is_match(text).into(),
                Err(_) => Answer::Unknown,
            },
        }
    }
}

/// The names of a path, its variable first: `payload.a['b']`. Returns true if the path has an index.
fn path_of<'a>(tree: &'a IdedExpr, path: &mut Vec<&'a str>) -> Option<bool> {
    match &tree.expr {
        Expr::Ident(name) => {
            path.push(name);
            Some(false)
        }
        Expr::Select(select) if !select.test => {
            let is_indexed = path_of(&select.operand, path)?;
            path.push(&select.field);
            Some(is_indexed)
        }
        Expr::Call(call) => path_of_call(call, path).map(|()| true),
        _ => None,
    }
}

fn path_of_call<'a>(call: &'a CallExpr, path: &mut Vec<&'a str>) -> Option<()> {
    let (operators::INDEX, [operand, index]) = (call.func_name.as_str(), &call.args[..]) else { return None };
    let Expr::Literal(LiteralValue::String(name)) = &index.expr else { return None };
    path_of(operand, path)?;
    path.push(name.inner());
    Some(())
}

fn owned(path: &[&str]) -> Vec<Box<str>> {
    path.iter().map(|name| (*name).into()).collect()
}

/// A JSON value, if readable.
fn scalar(raw: Raw<'_>) -> Option<Scalar<'_>> {
    Some(match raw {
        Raw::Null => Scalar::Null,
        Raw::Bool(value) => Scalar::Bool(value),
        Raw::Number(text) => match json::number(text)? {
            Number::Integer(value) => Scalar::Int(value),
            Number::Float(value) => Scalar::Double(value),
        },
        Raw::String(inside, escaped) => Scalar::Text(json::string(inside, escaped).ok()?),
        Raw::Array(_) | Raw::Object(_) => Scalar::Other,
    })
}

/// CEL reads all needed members to look one up, and fails if any is unreadable. The outcome is certain for
/// plain values only.
fn has(view: &View<'_>, path: &[Box<str>]) -> Answer {
    match path {
        [name] if all_plain(view) => view.payload(std::iter::once(&**name)).is_some().into(),
        _ => Answer::Unknown,
    }
}

/// True if all needed members are readable plain values.
fn all_plain(view: &View<'_>) -> bool {
    let is_plain = |raw: Raw<'_>| scalar(raw).is_some_and(|value| !matches!(value, Scalar::Other));
    view.members().is_some_and(|mut members| members.all(is_plain))
}

fn equal(a: &Scalar<'_>, b: &Scalar<'_>) -> Answer {
    let equal = match (a, b) {
        (Scalar::Other, _) | (_, Scalar::Other) => return Answer::Unknown,
        (Scalar::Null, Scalar::Null) => true,
        (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
        (Scalar::Text(a), Scalar::Text(b)) => a == b,
        (Scalar::Text(text), Scalar::Loose(bytes)) | (Scalar::Loose(bytes), Scalar::Text(text)) => {
            // A field may contain a replacement character.
            if text.as_bytes() != *bytes && std::str::from_utf8(bytes).is_err() {
                return Answer::Unknown;
            }
            text.as_bytes() == *bytes
        }
        (Scalar::Loose(a), Scalar::Loose(b)) => match (std::str::from_utf8(a), std::str::from_utf8(b)) {
            (Ok(a), Ok(b)) => a == b,
            _ => return Answer::Unknown,
        },
        (a, b) => match numbers(a, b) {
            Some(order) => order == Some(Ordering::Equal),
            // The types differ.
            None => false,
        },
    };
    equal.into()
}

fn compare(comparison: Comparison, a: &Scalar<'_>, b: &Scalar<'_>) -> Answer {
    let holds: fn(Ordering) -> bool = match comparison {
        Comparison::Equal => return equal(a, b),
        Comparison::NotEqual => {
            return match equal(a, b) {
                Answer::True => Answer::False,
                Answer::False => Answer::True,
                other => other,
            };
        }
        Comparison::Less => Ordering::is_lt,
        Comparison::LessOrEqual => Ordering::is_le,
        Comparison::Greater => Ordering::is_gt,
        Comparison::GreaterOrEqual => Ordering::is_ge,
    };
    let order = match (a, b) {
        (Scalar::Text(a), Scalar::Text(b)) => Some(a.cmp(b)),
        (Scalar::Text(a), Scalar::Loose(b)) => std::str::from_utf8(b).ok().map(|b| (**a).cmp(b)),
        (Scalar::Loose(a), Scalar::Text(b)) => std::str::from_utf8(a).ok().map(|a| a.cmp(b)),
        (a, b) => numbers(a, b).flatten(),
    };
    order.map_or(Answer::Unknown, |order| holds(order).into())
}

/// The order of two numbers; the inner `None` is for NaN, the outer for a non-number.
fn numbers(a: &Scalar<'_>, b: &Scalar<'_>) -> Option<Option<Ordering>> {
    let order = match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) => Some(a.cmp(b)),
        (Scalar::Int(a), Scalar::Double(b)) => (*a as f64).partial_cmp(b),
        (Scalar::Double(a), Scalar::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Scalar::Double(a), Scalar::Double(b)) => a.partial_cmp(b),
        _ => return None,
    };
    Some(order)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::expression::Expression;
    use crate::message::{Header, HeaderBuffer, Message};

    fn pick<'a>(random: &mut StdRng, from: &[&'a str]) -> &'a str {
        from[random.random_range(0..from.len())]
    }

    fn operand(random: &mut StdRng) -> String {
        let variables = [
            "payload.a",
            "payload.b",
            "payload.c.d",
            "payload['a']",
            "payload.e['f']",
            "text",
            "key",
            "headers.h",
            "headers['g']",
            "time_ms",
            "sequence",
        ];
        let literals =
            ["1", "-2", "1.0", "2.5", "-0.5", "'a'", "'ab'", "''", "'1'", "true", "false", "null", "'ö'"];
        if random.random_bool(0.7) { pick(random, &variables) } else { pick(random, &literals) }.to_owned()
    }

    fn condition(random: &mut StdRng, depth: u32) -> String {
        match random.random_range(0..if depth == 0 { 6 } else { 10 }) {
            0 | 1 => {
                let comparison = pick(random, &["==", "!=", "<", "<=", ">", ">="]);
                format!("{} {comparison} {}", operand(random), operand(random))
            }
            2 => {
                let list = pick(random, &["[1, 2.5, 'a']", "['ab', null]", "[true]", "[]"]);
                format!("{} in {list}", operand(random))
            }
            3 => pick(random, &["has(payload.a)", "has(payload.c.d)", "has(headers.h)", "'g' in headers"])
                .to_owned(),
            4 => {
                let search = pick(
                    random,
                    &[
                        "contains('a')",
                        "startsWith('a')",
                        "endsWith('b')",
                        "matches('^a.?$')",
                        "contains('')",
                    ],
                );
                format!("{}.{search}", operand(random))
            }
            5 => operand(random),
            6 => format!("!({})", condition(random, depth - 1)),
            7 | 8 => format!("({}) && ({})", condition(random, depth - 1), condition(random, depth - 1)),
            _ => format!("({}) || ({})", condition(random, depth - 1), condition(random, depth - 1)),
        }
    }

    fn value(random: &mut StdRng) -> Vec<u8> {
        if random.random_bool(0.1) {
            return pick(random, &["", "a", "plain", "[1]", "7", "\"ab\"", "null", "{"]).into();
        }
        let values = [
            "1",
            "-2",
            "2.5",
            "1.0",
            "9007199254740993",
            "1e999",
            "\"a\"",
            "\"ab\"",
            "\"\"",
            "\"1\"",
            "\"\\u0061\"",
            "\"\\ud800\"",
            "\"\u{fffd}\"",
            "true",
            "false",
            "null",
            "[1]",
            "{\"d\": 1, \"f\": \"a\"}",
            "{\"d\": null}",
        ];
        let mut text = String::from("{");
        for (at, name) in ["a", "b", "c", "e", "\\u0061"].into_iter().enumerate() {
            if random.random_bool(0.6) {
                let comma = if text.len() > 1 { "," } else { "" };
                text.push_str(&format!("{comma}\"{name}\": {}", pick(random, &values)));
            } else if at == 4 && random.random_bool(0.1) {
                text.push('x');
            }
        }
        let mut bytes = (text + "}").into_bytes();
        if random.random_bool(0.05) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = 0xff;
        }
        bytes
    }

    #[test]
    fn common_conditions_agree_with_the_evaluator() {
        let mut answers = [0u32; 4];
        for seed in 0..6_000 {
            let mut random = StdRng::seed_from_u64(seed);
            let text = condition(&mut random, 2);
            let expression =
                Expression::compile(&text).unwrap_or_else(|error| panic!("seed {seed}: {text}: {error}"));
            let direct = expression
                .direct
                .as_ref()
                .unwrap_or_else(|| panic!("seed {seed}: {text} is evaluated by CEL alone"));
            let value = value(&mut random);
            let bytes: [Option<&[u8]>; 6] =
                [None, Some(b""), Some(b"a"), Some(b"ab"), Some(b"\xffa"), Some(b"1")];
            let mut some = || bytes[random.random_range(0..bytes.len())];
            let (key, h, g) = (some(), some(), some());
            let mut headers = HeaderBuffer::default();
            let all = [Header { name: "h", value: h }, Header { name: "g", value: g }];
            let count = random.random_range(0..=all.len());
            let message = Message {
                value: &value,
                is_null: false,
                key,
                headers: headers.fill(all.into_iter().take(count)),
                time_ms: random.random_range(-2..3),
                sequence: random.random_range(0..3),
            };
            let Ok(view) = View::new(&expression.needs, &message) else {
                assert!(expression.test(&message).is_err() && expression.matches(&message).is_none());
                continue;
            };
            let answer = direct.answer(&view);
            answers[answer as usize] += 1;
            let cel = expression.evaluate(&message);
            let agrees = match answer {
                Answer::True => cel == Ok(true),
                Answer::False => cel == Ok(false),
                Answer::NoValue => cel.is_err(),
                Answer::Unknown => true,
            };
            let shown = String::from_utf8_lossy(&value);
            assert!(
                agrees,
                "seed {seed}: {text} of {shown}, key {key:?}, h {h:?}, g {g:?}: {answer:?}, CEL {cel:?}"
            );
            assert_eq!(expression.matches(&message), cel.ok(), "seed {seed}: {text} of {shown}");
        }
        // CEL decides only a few.
        let [yes, no, none, unknown] = answers;
        assert!(yes > 400 && no > 400 && none > 400 && unknown < 1_500, "{answers:?}");
    }
}
