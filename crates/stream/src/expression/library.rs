//! Functions beyond the language and its standard extensions, and what the extensions of numbers lack: JSON
//! does not tell whole numbers from others, so rounding takes both.

use std::fmt::Write;

use cel::common::types::{
    BYTES_TYPE, CelBytes, CelDouble, CelInt, CelList, CelString, CelTimestamp, DOUBLE_TYPE, INT_TYPE,
    LIST_TYPE, STRING_TYPE,
};
use cel::common::value::CowVal;
use cel::{DeclarationError, Env, ExecutionError};
use chrono::{DateTime, Utc};
use ring::digest::{Algorithm, SHA256, SHA512, digest};

use super::budget;
use super::functions::{arg, number, text};
use crate::clock;
use crate::passwords::percent_encoded;

type Result<'b, 'v> = std::result::Result<CowVal<'b, 'v>, ExecutionError>;

/// The most digits behind the point: more are not exact in a double.
const DIGITS_MAX: i64 = 15;

/// Declares the functions.
pub fn extension(env: &mut Env) -> std::result::Result<(), DeclarationError> {
    env.add_overload("now", "now()", vec![], now)?;
    env.add_overload("sha256", "sha256(string)", vec![STRING_TYPE], sha256)?;
    env.add_overload("sha256", "sha256(bytes)", vec![BYTES_TYPE], sha256)?;
    env.add_overload("sha512", "sha512(string)", vec![STRING_TYPE], sha512)?;
    env.add_overload("sha512", "sha512(bytes)", vec![BYTES_TYPE], sha512)?;
    env.add_overload("sum", "sum(list)", vec![LIST_TYPE], sum)?;
    env.add_overload("percentEncode", "percentEncode(string)", vec![STRING_TYPE], percent_encode)?;
    env.add_overload("math.round", "math.round(double,int)", vec![DOUBLE_TYPE, INT_TYPE], round)?;
    env.add_overload("math.round", "math.round(int,int)", vec![INT_TYPE, INT_TYPE], whole)?;
    for name in ["math.round", "math.ceil", "math.floor", "math.trunc"] {
        env.add_overload(name, &format!("{name}(int)"), vec![INT_TYPE], whole)?;
    }
    Ok(())
}

fn now<'b, 'v>(_args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let now = DateTime::<Utc>::from_timestamp_millis(clock::time_ms()).unwrap_or_default();
    Ok(CowVal::owned(CelTimestamp::from(now.fixed_offset())))
}

fn sha256<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    hash("sha256", &SHA256, &args)
}

fn sha512<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    hash("sha512", &SHA512, &args)
}

/// The digest in hexadecimal digits.
fn hash<'b, 'v>(name: &str, algorithm: &'static Algorithm, args: &[CowVal<'b, 'v>]) -> Result<'b, 'v> {
    let value = args.first().ok_or_else(|| ExecutionError::invalid_argument_count(1, 0))?;
    let bytes = match (value.downcast_ref::<CelString<'_>>(), value.downcast_ref::<CelBytes<'_>>()) {
        (Some(text), _) => text.inner().as_bytes(),
        (_, Some(bytes)) => bytes.inner(),
        _ => return Err(ExecutionError::function_error(name, "expected a text or bytes")),
    };
    // A hash takes about a nanosecond for each byte.
    budget::charge_bytes(name, bytes.len() as u64)?;
    let mut text = String::with_capacity(algorithm.output_len() * 2);
    for byte in digest(algorithm, bytes).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(CowVal::owned(CelString::from(text)))
}

/// The sum of whole numbers is a whole number; with another number among them it is a double.
fn sum<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let failed = |reason: &str| ExecutionError::function_error("sum", reason);
    let list = arg::<CelList<'_>>(&args, 0)?.inner();
    budget::charge_bytes("sum", list.len() as u64)?;
    let (mut whole, mut all, mut is_whole) = (Some(0i64), 0.0, true);
    for element in list {
        if let Some(number) = element.downcast_ref::<CelInt>() {
            whole = whole.and_then(|sum| sum.checked_add(*number.inner()));
            all += *number.inner() as f64;
        } else if let Some(number) = element.downcast_ref::<CelDouble>() {
            is_whole = false;
            all += number.inner();
        } else {
            return Err(failed(&format!("found {}, expected a number", element.get_type().name())));
        }
    }
    if !is_whole {
        return Ok(CowVal::owned(CelDouble::from(all)));
    }
    let whole = whole.ok_or_else(|| failed("the sum is no 64-bit integer"))?;
    Ok(CowVal::owned(CelInt::from(whole)))
}

fn percent_encode<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let text = text(&args, 0)?;
    budget::charge_bytes("percentEncode", 3 * text.len() as u64)?;
    Ok(CowVal::owned(CelString::from(percent_encoded(text))))
}

/// Rounds to digits behind the point, halves away from zero as `math.round`.
fn round<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    let (rounded, digits) = (*arg::<CelDouble>(&args, 0)?.inner(), number(&args, 1)?);
    if !(0..=DIGITS_MAX).contains(&digits) {
        let reason = format!("the number of digits is from 0 to {DIGITS_MAX}");
        return Err(ExecutionError::function_error("math.round", reason));
    }
    let scale = 10f64.powi(digits as i32);
    let scaled = rounded * scale;
    let rounded = if scaled.is_finite() { scaled.round() / scale } else { rounded };
    Ok(CowVal::owned(CelDouble::from(rounded)))
}

/// A whole number is its own rounded value.
fn whole<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<'b, 'v> {
    if args.is_empty() {
        return Err(ExecutionError::invalid_argument_count(1, 0));
    }
    Ok(args.swap_remove(0))
}
