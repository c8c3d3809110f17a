//! The variables of a message, computed on demand.

use std::collections::HashMap;
use std::sync::OnceLock;

use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp,
};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use chrono::{DateTime, FixedOffset};

use super::budget;
use super::needs::Needs;
use crate::json::{self, NotJson, Number, Raw};
use crate::message::{Headers, Message};

/// Number of members that fit without an allocation.
const MEMBERS_AT_HAND: usize = 8;

/// Maximum bytes of an unreadable value in an error text.
const SHOWN_MAX: usize = 40;

/// A message with its needed fields located.
pub struct View<'a> {
    needs: &'a Needs,
    message: Message<'a>,
    found: LocatedFields<'a>,
    /// The first needed field that could not be parsed. The evaluator sees it as missing.
    unreadable: OnceLock<UnreadableValue>,
}

/// A value with the outline of JSON that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {found}, expected {expected}")]
pub struct UnreadableValue {
    /// The beginning of the value.
    found: String,
    /// The expected form.
    expected: &'static str,
}

impl UnreadableValue {
    fn of(raw: &str, expected: &'static str) -> UnreadableValue {
        let shown: String = raw.chars().take(SHOWN_MAX).collect();
        let more = if shown.len() < raw.len() { "..." } else { "" };
        UnreadableValue { found: format!("{shown}{more}"), expected }
    }
}

enum LocatedFields<'a> {
    Nothing,
    Few([Option<Raw<'a>>; MEMBERS_AT_HAND]),
    Many(Vec<Option<Raw<'a>>>),
    Whole(Raw<'a>),
}

impl<'a> View<'a> {
    /// Locates the needed fields of a message.
    pub fn new(needs: &'a Needs, message: &Message<'a>) -> Result<View<'a>, NotJson> {
        let found = match needs {
            Needs::Nothing => LocatedFields::Nothing,
            Needs::Members(names) if names.len() <= MEMBERS_AT_HAND => {
                let mut found = [None; MEMBERS_AT_HAND];
                json::find(message.value, names, &mut found)?;
                LocatedFields::Few(found)
            }
            Needs::Members(names) => {
                let mut found = vec![None; names.len()];
                json::find(message.value, names, &mut found)?;
                LocatedFields::Many(found)
            }
            Needs::Whole => LocatedFields::Whole(json::parse(message.value)?),
        };
        Ok(View { needs, message: *message, found, unreadable: OnceLock::new() })
    }

    /// The value at a path below `payload`.
    pub fn payload<'s>(&self, mut path: impl Iterator<Item = &'s str>) -> Option<Raw<'a>> {
        let mut value = match &self.found {
            LocatedFields::Whole(whole) => *whole,
            LocatedFields::Nothing => return None,
            LocatedFields::Few(found) => self.first(path.next()?, found)?,
            LocatedFields::Many(found) => self.first(path.next()?, found)?,
        };
        for name in path {
            value = value.member(name).ok()??;
        }
        Some(value)
    }

    /// `payload` as a whole, if the expression needs it.
    pub fn whole_payload(&self) -> Option<Raw<'a>> {
        match &self.found {
            LocatedFields::Whole(whole) => Some(*whole),
            _ => None,
        }
    }

    pub fn message(&self) -> &Message<'a> {
        &self.message
    }

    /// The needed members that exist; `None` if `payload` is needed as a whole.
    pub fn members(&self) -> Option<impl Iterator<Item = Raw<'a>>> {
        let found = match &self.found {
            LocatedFields::Whole(_) => return None,
            LocatedFields::Nothing => &[][..],
            LocatedFields::Few(found) => &found[..],
            LocatedFields::Many(found) => found,
        };
        Some(found.iter().filter_map(|raw| *raw))
    }

    /// The parse error, if any.
    pub fn unreadable(&self) -> Option<&UnreadableValue> {
        self.unreadable.get()
    }

    fn read<'r>(&self, raw: Raw<'r>) -> Option<Box<dyn Val + 'r>> {
        // Keep the first error.
        read(raw, 0).map_err(|error| self.unreadable.get_or_init(|| error)).ok()
    }

    /// Charges the bytes scanned to find a path below `payload`.
    fn charge_path(&self, path: &str) -> bool {
        let passed = match (&self.found, path.split_once('.')) {
            (LocatedFields::Whole(whole), _) => whole.bytes(),
            (_, None) => return true,
            (_, Some((first, _))) => self.payload(std::iter::once(first)).map_or(0, Raw::bytes),
        };
        budget::charge_scan(passed)
    }

    fn first(&self, name: &str, found: &[Option<Raw<'a>>]) -> Option<Raw<'a>> {
        let Needs::Members(names) = self.needs else { return None };
        found[names.iter().position(|wanted| **wanted == *name)?]
    }

    /// `payload`, with the needed fields only.
    fn whole(&self) -> Option<Box<dyn Val + '_>> {
        let found = match &self.found {
            LocatedFields::Whole(whole) => return self.read(*whole),
            LocatedFields::Nothing => return None,
            LocatedFields::Few(found) => &found[..],
            LocatedFields::Many(found) => found,
        };
        let Needs::Members(names) = self.needs else { return None };
        let mut members: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = HashMap::with_capacity(names.len());
        for (name, raw) in names.iter().zip(found) {
            if let Some(raw) = raw {
                members.insert(CelMapKey::from(&**name), self.read(*raw)?);
            }
        }
        Some(Box::new(CelMap::from(members)))
    }
}

impl VariableResolver for View<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        // Try the whole path first: most messages have it.
        if let Some(path) = variable.strip_prefix("payload.") {
            if !self.charge_path(path) {
                return None;
            }
            return self.payload(path.split('.')).and_then(|raw| self.read(raw)).map(CowVal::Owned);
        }
        let message = &self.message;
        let bytes = match variable {
            "text" => message.value.len(),
            "key" => message.key.map_or(0, <[u8]>::len),
            "headers" => message.headers.bytes().len(),
            _ => 0,
        };
        if !budget::charge_scan(bytes) {
            return None;
        }
        Some(match variable {
            "payload" => CowVal::Owned(self.whole()?),
            "text" => match String::from_utf8_lossy(message.value) {
                std::borrow::Cow::Borrowed(text) => CowVal::owned(CelString::from(text)),
                std::borrow::Cow::Owned(text) => CowVal::owned(CelString::from(text)),
            },
            "raw" => CowVal::owned(CelBytes::from(message.value)),
            "key" => match message.key {
                Some(key) => CowVal::owned(CelString::from(String::from_utf8_lossy(key).into_owned())),
                None => CowVal::owned(CelNull),
            },
            "headers" => CowVal::owned(headers(message.headers)),
            "time" => CowVal::owned(CelTimestamp::from(timestamp(message.time_ms))),
            "time_ms" => CowVal::owned(CelInt::from(message.time_ms)),
            "sequence" => CowVal::owned(CelInt::from(message.sequence as i64)),
            _ => return None,
        })
    }
}

/// Names and values as text; the last value of a repeated name wins.
fn headers(headers: Headers<'_>) -> CelMap<'_> {
    let mut members: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = HashMap::new();
    for header in headers.iter() {
        let value: Box<dyn Val> = match header.value {
            Some(value) => Box::new(CelString::from(String::from_utf8_lossy(value).into_owned())),
            None => Box::new(CelNull),
        };
        members.insert(CelMapKey::from(header.name), value);
    }
    CelMap::from(members)
}

fn timestamp(ms: i64) -> DateTime<FixedOffset> {
    DateTime::from_timestamp_millis(ms).unwrap_or_default().fixed_offset()
}

/// Converts JSON to a CEL value.
fn read<'a>(raw: Raw<'a>, depth: u32) -> Result<Box<dyn Val + 'a>, UnreadableValue> {
    let is_container = matches!(raw, Raw::Array(_) | Raw::Object(_));
    let is_paid =
        if is_container { budget::charge_scan(raw.bytes()) } else { budget::charge_element(raw.bytes()) };
    if !is_paid {
        return Err(UnreadableValue { found: "a large value".to_owned(), expected: "fewer or smaller ones" });
    }
    Ok(match raw {
        Raw::Null => Box::new(CelNull),
        Raw::Bool(value) => Box::new(CelBool::from(value)),
        Raw::Number(text) => match json::number(text) {
            Some(Number::Integer(value)) => Box::new(CelInt::from(value)),
            Some(Number::Float(value)) => Box::new(CelDouble::from(value)),
            None => return Err(UnreadableValue::of(text, "a number within the range of a double")),
        },
        Raw::String(inside, escaped) => match json::string(inside, escaped) {
            Ok(text) => Box::new(CelString::from(text)),
            Err(_) => return Err(UnreadableValue::of(inside, "a string with valid escapes")),
        },
        Raw::Array(whole) | Raw::Object(whole) if depth == json::DEPTH_MAX => {
            return Err(UnreadableValue::of(whole, "less nesting"));
        }
        Raw::Array(whole) => {
            let elements = raw.elements().map_err(|_| UnreadableValue::of(whole, "valid elements"))?;
            let elements = elements.into_iter().map(|element| read(element, depth + 1));
            Box::new(CelList::from(elements.collect::<Result<Vec<_>, _>>()?))
        }
        Raw::Object(whole) => {
            let members =
                raw.members().map_err(|_| UnreadableValue::of(whole, "names with valid escapes"))?;
            let members = members.into_iter().map(|(name, value)| {
                let name = match name {
                    std::borrow::Cow::Borrowed(name) => CelMapKey::from(name),
                    std::borrow::Cow::Owned(name) => CelMapKey::from(name),
                };
                Ok((name, read(value, depth + 1)?))
            });
            Box::new(CelMap::from(members.collect::<Result<HashMap<_, _>, UnreadableValue>>()?))
        }
    })
}
