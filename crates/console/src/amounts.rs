//! Times and sizes as people type them: `7 days`, `1 day 12 hours`, `10 GiB`, `without limit`.

use crate::problem::Problem;
use crate::units;

/// The words for a retention without a limit, which Kafka writes as -1.
pub const WITHOUT_LIMIT: &str = "without limit";
/// Suggestions for a retention time.
pub const TIMES: [&str; 8] =
    ["1 hour", "6 hours", "1 day", "3 days", "7 days", "30 days", "365 days", WITHOUT_LIMIT];
/// Suggestions for a retention size.
pub const SIZES: [&str; 6] = ["100 MiB", "1 GiB", "10 GiB", "100 GiB", "1 TiB", WITHOUT_LIMIT];

/// A unit: its names, and the number of milliseconds or bytes.
type NamedUnit = (&'static [&'static str], i64);

const TIME_UNITS: [NamedUnit; 6] = [
    (&["ms", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "second", "seconds"], 1000),
    (&["min", "minute", "minutes"], 60_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
    (&["w", "week", "weeks"], 604_800_000),
];
const SIZE_UNITS: [NamedUnit; 5] = [
    (&["b", "byte", "bytes"], 1),
    (&["kib"], 1 << 10),
    (&["mib"], 1 << 20),
    (&["gib"], 1 << 30),
    (&["tib"], 1 << 40),
];

/// Parses a time. Returns milliseconds, or -1 without a limit.
pub fn time_ms(field: &str, text: &str) -> Result<i64, Problem> {
    parsed(text, &TIME_UNITS).ok_or_else(|| {
        Problem::wrong(format!(
            "{field}: {text:?} is not a time: write a number with ms, seconds, minutes, hours, days or weeks, \
             as in 7 days, or {WITHOUT_LIMIT}"
        ))
    })
}

/// Parses a size. Returns bytes, or -1 without a limit.
pub fn bytes(field: &str, text: &str) -> Result<i64, Problem> {
    parsed(text, &SIZE_UNITS).ok_or_else(|| {
        Problem::wrong(format!(
            "{field}: {text:?} is not a size: write a number with B, KiB, MiB, GiB or TiB, as in 10 GiB, or \
             {WITHOUT_LIMIT}"
        ))
    })
}

/// The value of a setting as it can be typed; [`time_ms`] and [`bytes`] read the same value from it.
pub fn typed(setting: &str, value: &str) -> Option<String> {
    let number: i64 = value.parse().ok()?;
    if number < 0 {
        return Some(WITHOUT_LIMIT.to_owned());
    }
    let (units, unit): (&[NamedUnit], &str) =
        if setting.ends_with(".ms") { (&TIME_UNITS, "ms") } else { (&SIZE_UNITS, "bytes") };
    let words = units::in_words(setting, value).filter(|words| parsed(words, units) == Some(number));
    Some(words.unwrap_or_else(|| format!("{number} {unit}")))
}

/// The sum of the parts of a text: numbers, each with its unit.
fn parsed(text: &str, units: &[NamedUnit]) -> Option<i64> {
    let text = text.trim().to_lowercase();
    if matches!(&*text, WITHOUT_LIMIT | "no limit" | "unlimited" | "-1") {
        return Some(-1);
    }
    let (mut rest, mut sum) = (text.as_str(), 0_i64);
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (name, left) = after.split_at(end);
        let (_, unit) = units.iter().find(|(names, _)| names.contains(&name))?;
        sum = sum.checked_add(product(number, *unit)?)?;
        rest = left.trim_start();
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

/// A decimal number of a unit, as a whole number.
fn product(number: &str, unit: i64) -> Option<i64> {
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<i64>().ok()?.checked_mul(unit);
    };
    if fraction.is_empty() || fraction.len() > 6 {
        return None;
    }
    let scale = 10_i64.pow(u32::try_from(fraction.len()).ok()?);
    let parts = whole.parse::<i64>().ok()?.checked_mul(scale)?.checked_add(fraction.parse().ok()?)?;
    Some(parts.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_words() {
        for (text, ms) in [
            ("7 days", 604_800_000),
            (" 36 Hours ", 129_600_000),
            ("1 day 12 hours", 129_600_000),
            ("1d12h", 129_600_000),
            ("1.5 days", 129_600_000),
            ("2 weeks", 1_209_600_000),
            ("90 min", 5_400_000),
            ("1500 ms", 1500),
            ("0 s", 0),
            ("without limit", -1),
            ("-1", -1),
        ] {
            assert_eq!(time_ms("Retention", text).map_err(|wrong| wrong.message), Ok(ms), "{text}");
        }
        for wrong in
            ["", "7", "days", "7 moons", "-7 days", "7 days 3", "1..5 days", "7 GiB", "999999999999 weeks"]
        {
            let refused = time_ms("Retention", wrong).expect_err(wrong);
            assert!(refused.message.starts_with(&format!("Retention: {wrong:?} is not a time:")), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_in_words() {
        for (text, size) in [
            ("10 GiB", 10 << 30),
            ("1.5gib", 3 << 29),
            ("100 MiB", 100 << 20),
            ("1001 bytes", 1001),
            ("unlimited", -1),
        ] {
            assert_eq!(bytes("Size", text).map_err(|wrong| wrong.message), Ok(size), "{text}");
        }
        for wrong in ["10", "10 GB", "7 days", "9999999 TiB"] {
            assert!(
                bytes("Size", wrong).is_err_and(|wrong| wrong.message.contains("as in 10 GiB")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_is_typed_is_read_as_the_same_value() {
        for (value, words) in [
            ("604800000", "7 days"),
            ("129600000", "1 day 12 hours"),
            ("86401000", "86401000 ms"),
            ("1500", "1500 ms"),
            ("9223372036854775807", "9223372036854775807 ms"),
            ("-1", WITHOUT_LIMIT),
        ] {
            assert_eq!(typed("retention.ms", value).as_deref(), Some(words));
            assert_eq!(
                time_ms("", words).map_err(|wrong| wrong.message),
                Ok(value.parse().expect("a number"))
            );
        }
        for (value, words) in [("1073741824", "1 GiB"), ("1001", "1001 bytes"), ("-1", WITHOUT_LIMIT)] {
            assert_eq!(typed("retention.bytes", value).as_deref(), Some(words));
            assert_eq!(bytes("", words).map_err(|wrong| wrong.message), Ok(value.parse().expect("a number")));
        }
        assert_eq!(typed("retention.ms", "soon"), None);
        for suggestion in TIMES {
            assert!(time_ms("", suggestion).is_ok(), "{suggestion}");
        }
        for suggestion in SIZES {
            assert!(bytes("", suggestion).is_ok(), "{suggestion}");
        }
    }
}
