//! Functions that charge the budget of an evaluation, and replacements of language functions that must be
//! charged before they run.

use std::cell::RefCell;

use cel::common::types::{
    CelBool, CelInt, CelList, CelString, CelTimestamp, DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE,
    TIMESTAMP_TYPE,
};
use cel::common::value::{CowVal, FromVal};
use cel::{DeclarationError, Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::budget;

/// Maximum memory of a compiled pattern.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Maximum number of patterns cached per thread.
const PATTERNS_MAX: usize = 16;
/// Cost of compiling a pattern, in copied bytes.
const PATTERN_COST: u64 = 256 << 10;

type Result<'b, 'v> = std::result::Result<CowVal<'b, 'v>, ExecutionError>;

/// Declares the functions.
pub fn extension(env: &mut Env) -> std::result::Result<(), DeclarationError> {
    env.add_overload(budget::TICK, "tick", vec![INT_TYPE], tick)?;
    env.add_overload(budget::SIZED, "sized", vec![DYN_TYPE], sized)?;
    env.add_overload(budget::SIZED, "sized_tick", vec![DYN_TYPE, INT_TYPE], sized)?;
    env.add_overload(budget::UTC, "utc", vec![TIMESTAMP_TYPE], utc)?;
    let text = || STRING_TYPE;
    for (name, types) in [
        ("@matches", vec![text(), text()]),
        ("@join", vec![LIST_TYPE]),
        ("@join", vec![LIST_TYPE, text()]),
        ("@replace", vec![text(), text(), text()]),
        ("@replace", vec![text(), text(), text(), INT_TYPE]),
        ("@indexOf", vec![text(), text()]),
        ("@indexOf", vec![text(), text(), INT_TYPE]),
        ("@lastIndexOf", vec![text(), text()]),
        ("@lastIndexOf", vec![text(), text(), INT_TYPE]),
    ] {
        let function = match name {
            "@matches" => matches,
            "@join" => join,
            "@replace" => replace,
            "@indexOf" => index_of,
            _ => last_index_of,
        };
        env.add_overload(name, &format!("{name}_{}", types.len()), types, function)?;
    }
    Ok(())
}

pub(super) fn arg<'b, 'v, T: FromVal<'b, 'v>>(
    args: &'b [CowVal<'_, 'v>],
    at: usize,
) -> std::result::Result<&'b T, ExecutionError> {
    let value = args.get(at).ok_or_else(|| ExecutionError::invalid_argument_count(at + 1, args.len()))?;
    value.downcast_ref::<T>().ok_or_else(|| ExecutionError::UnexpectedType {
        got: value.get_type().name().to_owned(),
        want: "another type".to_owned(),
    })
}

pub(super) fn text<'b>(
    args: &'b [CowVal<'_, '_>],
    at: usize,
) -> std::result::Result<&'b str, ExecutionError> {
    arg::<CelString<'_>>(args, at).map(CelString::inner)
}

pub(super) fn number(args: &[CowVal<'_, '_>], at: usize) -> std::result::Result<i64, ExecutionError> {
    arg::<CelInt>(args, at).map(|number| *number.inner())
}

fn units(args: &[CowVal<'_, '_>], at: usize) -> std::result::Result<u64, ExecutionError> {
    number(args, at).map(|units| u64::try_from(units).unwrap_or_default())
}

fn tick<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    if budget::charge(units(&args, 0)?) {
        Ok(CowVal::owned(CelBool::from(true)))
    } else {
        Err(budget::exhausted("a loop"))
    }
}

fn sized<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let ticks = if args.len() > 1 { units(&args, 1)? } else { 0 };
    if budget::charge(ticks) && budget::charge_value(args[0].as_ref()) {
        Ok(args.swap_remove(0))
    } else {
        Err(budget::exhausted("a value"))
    }
}

fn utc<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let time = arg::<CelTimestamp>(&args, 0)?;
    Ok(CowVal::owned(CelTimestamp::from(time.inner().to_utc().fixed_offset())))
}

fn matches<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    thread_local! {
        /// The last patterns of this thread. Most patterns are literals, used for every message.
        static PATTERNS: RefCell<Vec<Regex>> = const { RefCell::new(Vec::new()) };
    }
    let (text, pattern) = (text(&args, 0)?, text(&args, 1)?);
    budget::charge_bytes("matches", text.len() as u64)?;
    PATTERNS.with_borrow_mut(|patterns| {
        if let Some(known) = patterns.iter().find(|known| known.as_str() == pattern) {
            return Ok(CowVal::owned(CelBool::from(known.is_match(text))));
        }
        budget::charge_bytes("matches", PATTERN_COST)?;
        let compiled = compile(pattern).map_err(|why| ExecutionError::function_error("matches", why))?;
        let is_match = compiled.is_match(text);
        if patterns.len() >= PATTERNS_MAX {
            patterns.remove(0);
        }
        patterns.push(compiled);
        Ok(CowVal::owned(CelBool::from(is_match)))
    })
}

/// Compiles a pattern, within the memory limit.
pub fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("the pattern '{pattern}' takes more than {PATTERN_BYTES_MAX} bytes of memory; use smaller repetitions")
        }
        // The last line has the reason; the lines before show the position.
        error => {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("'{pattern}' is not a regular expression: {why}")
        }
    })
}

fn join<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let list = arg::<CelList<'_>>(&args, 0)?;
    let separator = if args.len() > 1 { text(&args, 1)? } else { "" };
    let parts = list.inner().iter().map(|part| {
        part.downcast_ref::<CelString<'_>>().map(CelString::inner).ok_or_else(|| {
            ExecutionError::UnexpectedType {
                got: part.get_type().name().to_owned(),
                want: "string".to_owned(),
            }
        })
    });
    let parts: Vec<&str> = parts.collect::<std::result::Result<_, _>>()?;
    let bytes: u64 = parts.iter().map(|part| (part.len() + separator.len()) as u64).sum();
    budget::charge_bytes("join", bytes)?;
    Ok(CowVal::owned(CelString::from(parts.join(separator))))
}

fn replace<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let (text, from, to) = (text(&args, 0)?, text(&args, 1)?, text(&args, 2)?);
    budget::charge_bytes("replace", text.len() as u64)?;
    // As in CEL, a negative number means no limit.
    let limit =
        if args.len() > 3 { usize::try_from(number(&args, 3)?).unwrap_or(usize::MAX) } else { usize::MAX };
    let count = text.matches(from).take(limit).count() as u64;
    budget::charge_bytes("replace", count.saturating_mul(to.len() as u64))?;
    Ok(CowVal::owned(CelString::from(text.replacen(from, to, limit))))
}

fn out_of_range(function: &str, offset: i64) -> ExecutionError {
    ExecutionError::function_error(function, format!("index out of range: {offset}"))
}

/// The byte offset of a character.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

fn answer<'b, 'v>(text: &str, found: Option<usize>) -> Result<'b, 'v> {
    let index = found.map_or(-1, |at| text[..at].chars().count() as i64);
    Ok(CowVal::owned(CelInt::from(index)))
}

/// The offset of a search; `None` if the offset itself is the answer, because an empty text is found
/// everywhere.
fn offset_of(
    function: &str,
    text: &str,
    sought: &str,
    offset: i64,
) -> std::result::Result<Option<usize>, ExecutionError> {
    let length = text.chars().count() as i64;
    if offset < 0 || (!sought.is_empty() && offset >= length) {
        return Err(out_of_range(function, offset));
    }
    Ok((!sought.is_empty()).then(|| byte_of(text, usize::try_from(offset).unwrap_or(usize::MAX))))
}

fn index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let (text, sought) = (text(&args, 0)?, text(&args, 1)?);
    budget::charge_bytes("indexOf", text.len() as u64)?;
    let start = if args.len() > 2 {
        let offset = number(&args, 2)?;
        match offset_of("indexOf", text, sought, offset)? {
            Some(start) => start,
            None => return Ok(CowVal::owned(CelInt::from(offset.min(text.chars().count() as i64)))),
        }
    } else {
        0
    };
    answer(text, text[start..].find(sought).map(|at| start + at))
}

fn last_index_of<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let (text, sought) = (text(&args, 0)?, text(&args, 1)?);
    budget::charge_bytes("lastIndexOf", text.len() as u64)?;
    let searched = if args.len() > 2 {
        let offset = number(&args, 2)?;
        match offset_of("lastIndexOf", text, sought, offset)? {
            // The last possible match begins at the offset.
            Some(start) => &text[..byte_end(text, start, sought)],
            None => return Ok(CowVal::owned(CelInt::from(offset.min(text.chars().count() as i64)))),
        }
    } else {
        text
    };
    answer(text, searched.rfind(sought))
}

/// The byte offset at which a text as long as `sought` ends, rounded down to a character boundary.
fn byte_end(text: &str, start: usize, sought: &str) -> usize {
    let mut end = start.saturating_add(sought.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}
