//! Formats of ids, numbers, sizes, times and lists for people.

use std::fmt::Write;

use crate::problem::Problem;

/// A time as an example in fields and messages.
pub const EXAMPLE_TIME: &str = "2026-01-31T12:00:00Z";

/// The id of a group, transaction or client, or a substitute if empty.
pub fn id(id: &str) -> &str {
    if id.is_empty() { "(empty name)" } else { id }
}

/// A number with thousands separators: 1,234,567.
pub fn count(number: impl TryInto<i128>) -> String {
    let number: i128 = number.try_into().unwrap_or_default();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size: 1.5 GiB.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A rate of bytes: 1.5 MiB/s.
pub fn bytes_rate(rate: f64) -> String {
    format!("{}/s", scaled(rate.max(0.0), 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]))
}

/// A rate: 1.5 k/s.
pub fn rate(rate: f64) -> String {
    let rate = rate.max(0.0);
    match rate {
        rate if rate < 0.05 => "0/s".to_owned(),
        rate if rate < 10.0 => format!("{rate:.1}/s"),
        rate => format!("{}/s", scaled(rate, 1000.0, &["", "k", "M", "G"]).trim_end()),
    }
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= base * 0.9995 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

/// A duration: 3 d 4 h, 5 min 6 s, 7.8 s, 90 ms.
pub fn millis(ms: i64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |large: i64, unit: &str, small: i64, of: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {of}"),
    };
    match ms {
        ms if ms < 0 => "none".to_owned(),
        ms if ms < 1000 => format!("{ms} ms"),
        ms if ms < 60_000 && ms % 1000 == 0 => format!("{seconds} s"),
        ms if ms < 60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ if days > 0 => two(days, "d", hours, "h"),
        _ if hours > 0 => two(hours, "h", minutes, "min"),
        _ => two(minutes, "min", seconds % 60, "s"),
    }
}

/// A time in milliseconds since 1970, in UTC: 2026-11-25T04:05:06.789Z. The fields of pages and the command
/// line take this form.
pub fn time(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (hour, minute, second, milli) =
        (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The time of day in UTC: 04:05:06.
pub fn of_day(ms: i64) -> String {
    let seconds = ms.rem_euclid(86_400_000) / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The Gregorian date of a number of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years that begin in March end with the leap day; an era has 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Parses a time, as written by [`time`], by the command line or by a browser form: a date, and a time of day
/// after `T` or a space. Seconds are optional. The zone is `Z`, `UTC` or a distance such as `+01:00`; UTC
/// without one. Returns milliseconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    let (text, zone_minutes) = split_zone(text.trim())?;
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut clock = clock.splitn(3, ':');
    let (hour, minute) = (clock.next()?.parse::<i64>().ok()?, clock.next()?.parse::<i64>().ok()?);
    let seconds: f64 = clock.next().unwrap_or("0").parse().ok()?;
    let is_valid = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..60.0).contains(&seconds);
    if !is_valid {
        return None;
    }
    let days = days_of(year, month, day);
    let minutes = (days * 24 + hour) * 60 + minute - zone_minutes;
    (civil(days) == (year, month, day)).then(|| minutes * 60_000 + (seconds * 1000.0).round() as i64)
}

/// Splits the zone off a time. Returns its distance from UTC in minutes.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(utc) = text.strip_suffix('Z').or_else(|| text.strip_suffix("UTC")) {
        return Some((utc.trim_end(), 0));
    }
    // The hyphens of the date separate its parts.
    let clock_at = text.find(['T', ' ']).unwrap_or(text.len());
    let Some(at) = text[clock_at..].find(['+', '-']).map(|at| clock_at + at) else { return Some((text, 0)) };
    let (hours, minutes) = match &text[at + 1..] {
        zone if zone.len() == 4 => zone.split_at_checked(2)?,
        zone => zone.split_once(':')?,
    };
    let part = |text: &str, end: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| is_number && *number < end)
    };
    let distance: i64 = part(hours, 24)? * 60 + part(minutes, 60)?;
    Some((text[..at].trim_end(), if text[at..].starts_with('-') { -distance } else { distance }))
}

/// Parses a time or milliseconds since 1970, for the field `name`. Refuses times before 1970: in Kafka's
/// requests, negative times have special meanings, such as -1 for the end.
pub fn time_ms(name: &str, text: &str) -> Result<i64, Problem> {
    match text.trim().parse::<i64>().ok().or_else(|| parse_time(text)) {
        Some(ms @ 0..) => Ok(ms),
        Some(_) => Err(Problem::wrong(format!("{name}: {text:?} is before 1970: use 0 or more"))),
        None => Err(Problem::wrong(format!(
            "{name}: {text:?} is not a time: use {EXAMPLE_TIME} (UTC without a zone), a date, or milliseconds since 1970"
        ))),
    }
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A list of broker ids: 1, 2, 3.
pub fn ids(ids: &[i32]) -> String {
    let mut text = String::new();
    for (at, id) in ids.iter().enumerate() {
        let _ = write!(text, "{}{id}", if at > 0 { ", " } else { "" });
    }
    text
}

/// A number and its noun: 1 topic, 2 topics.
pub fn counted(number: impl TryInto<i128> + Copy, noun: &str) -> String {
    let plural = if number.try_into().is_ok_and(|number| number == 1) { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(1_234_567_u64), "1,234,567");
        assert_eq!((count(0), count(-1234), count(999)), ("0".into(), "-1,234".into(), "999".into()));
        assert_eq!(
            (bytes(0), bytes(1536), bytes(5 << 40)),
            ("0 B".into(), "1.50 KiB".into(), "5.00 TiB".into())
        );
        assert_eq!(bytes(1_048_575), "1.00 MiB");
        assert_eq!(
            (rate(0.0), rate(2.34), rate(15_300.0)),
            ("0/s".into(), "2.3/s".into(), "15.3 k/s".into())
        );
        assert_eq!(rate(15.0), "15/s");
        assert_eq!(
            (millis(90), millis(7800), millis(366_000)),
            ("90 ms".into(), "7.8 s".into(), "6 min 6 s".into())
        );
        assert_eq!((millis(604_800_000), millis(-1)), ("7 d".into(), "none".into()));
        assert_eq!(
            (counted(1, "topic"), counted(2_000_usize, "topic")),
            ("1 topic".into(), "2,000 topics".into())
        );
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_709_210_096_789), "2024-02-29T12:34:56.789Z");
        for ms in [0, 951_782_400_000, 1_709_210_096_789, 4_102_444_800_001] {
            assert_eq!(parse_time(&time(ms)), Some(ms));
            assert_eq!(time_ms("at", &format!(" {} ", time(ms))).map_err(|wrong| wrong.message), Ok(ms));
        }
        for text in [
            "2024-02-29T12:34",
            "2024-02-29 12:34:00.000 UTC",
            "2024-02-29 12:34Z",
            "2024-02-29T12:34:00Z",
            "2024-02-29T13:34:00+01:00",
            "2024-02-29T11:04:00.000-0130",
        ] {
            assert_eq!(parse_time(text), Some(1_709_210_040_000), "{text}");
        }
        assert_eq!(parse_time(EXAMPLE_TIME), Some(1_769_860_800_000));
        assert_eq!(parse_time("2024-02-29 UTC"), parse_time("2024-02-29"));
        for wrong in [
            "",
            "yesterday",
            "2023-02-29 00:00",
            "2024-13-01T00:00",
            "2024-01-01T24:00",
            "2024-01-01T1",
            "2024-01-01T12:00+1",
            "2024-01-01T12:00+01:60",
            "2024-01-01T12:00+0\u{e9}1",
            "2024-01-01T12:00 CET",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }
}
