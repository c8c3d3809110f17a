//! Times and durations on the command line.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};

use super::failure::Usage;

/// The present time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    Utc::now().timestamp_millis()
}

/// Milliseconds as seconds.
pub(crate) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Milliseconds since 1970 of a time: ISO 8601 with or without a zone (then UTC), a date, or the number
/// itself. Seconds are optional, a space may stand for the `T`, and `UTC` for the `Z`. Refuses times before
/// 1970: in Kafka's requests, negative times have special meanings, such as -1 for the end.
pub(crate) fn time_ms(text: &str) -> Result<i64, Usage> {
    let ms = any_time_ms(text)?;
    match ms < 0 {
        true => Err(Usage(format!("{text:?} is before 1970: expected a time from 1970-01-01T00:00:00Z on"))),
        false => Ok(ms),
    }
}

fn any_time_ms(text: &str) -> Result<i64, Usage> {
    if let Ok(ms) = text.trim().parse::<i64>() {
        return Ok(ms);
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text.trim()) {
        return Ok(time.timestamp_millis());
    }
    let (local, is_utc) = match text.trim() {
        text if text.ends_with('Z') => (&text[..text.len() - 1], true),
        text => text.strip_suffix("UTC").map_or((text, false), |text| (text, true)),
    };
    let local = local.trim_end().replacen(' ', "T", 1);
    if !is_utc {
        let zoned = ["%FT%T%.f%z", "%FT%R%z"].into_iter();
        let mut zoned = zoned.filter_map(|format| DateTime::parse_from_str(&local, format).ok());
        if let Some(time) = zoned.next() {
            return Ok(time.timestamp_millis());
        }
    }
    let mut times = ["%FT%T%.f", "%FT%R"].into_iter();
    let time = times.find_map(|format| NaiveDateTime::parse_from_str(&local, format).ok());
    let midnight = || NaiveDate::parse_from_str(&local, "%F").ok().and_then(|date| date.and_hms_opt(0, 0, 0));
    time.or_else(midnight).map(|time| time.and_utc().timestamp_millis()).ok_or_else(|| {
        Usage(format!(
            "{text:?} is not a time: expected for example 2026-11-25T04:30:00Z, 2026-11-25, or milliseconds since 1970"
        ))
    })
}

/// A duration: `90s`, `15m`, `12h`, `7d`, or ISO 8601 as Kafka's tools take it, `P7DT12H`.
pub(crate) fn duration(text: &str) -> Result<Duration, Usage> {
    let wrong =
        || Usage(format!("{text:?} is not a duration: expected for example 90s, 15m, 12h, 7d, or P7DT12H"));
    let seconds = match text.strip_prefix('P') {
        Some(rest) => {
            let (days, time) = rest.split_once('T').unwrap_or((rest, ""));
            parts(days, &[('D', 86_400)]).ok_or_else(wrong)?
                + parts(time, &[('H', 3600), ('M', 60), ('S', 1)]).ok_or_else(wrong)?
        }
        None => parts(text, &[('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)]).ok_or_else(wrong)?,
    };
    if text.len() < 2 || text == "PT" {
        return Err(wrong());
    }
    Ok(Duration::from_secs(seconds))
}

/// The seconds of numbers with units, in the order of `units`.
fn parts(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let (mut total, mut units) = (0u64, units.iter());
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, rest) = text.split_at(end);
        let unit = rest.chars().next()?;
        let (_, seconds) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*seconds)?)?;
        text = &rest[unit.len_utf8()..];
    }
    Some(total)
}

/// A time for people: UTC, to the second.
pub(crate) fn shown(ms: i64) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms)
        .map_or_else(|| ms.to_string(), |time| time.format("%FT%TZ").to_string())
}

/// The time `duration` ago, in milliseconds since 1970; 1970 at the earliest, because no record is older.
pub(crate) fn ago_ms(duration: Duration) -> i64 {
    let ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    now_ms().saturating_sub(ms).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_zone_are_utc() {
        for text in [
            "2023-11-14T22:13:20Z",
            "2023-11-14T22:13:20.000",
            "2023-11-14T23:13:20+01:00",
            "2023-11-14T23:13:20.000+0100",
            "2023-11-14t22:13:20z",
            // As pages of the console show it, and showed it.
            "2023-11-14T22:13:20.000Z",
            "2023-11-14 22:13:20.000 UTC",
            "2023-11-14 22:13:20",
            "2023-11-14 23:13:20+01:00",
            " 2023-11-14T22:13:20Z ",
            "1700000000000",
        ] {
            assert_eq!(time_ms(text).expect(text), 1_700_000_000_000, "{text}");
        }
        assert_eq!(time_ms("2023-11-14").expect("a date"), 1_699_920_000_000);
        for text in ["2023-11-14T22:13Z", "2023-11-14 22:13", "2023-11-14T23:13+01:00"] {
            assert_eq!(time_ms(text).expect(text), 1_699_999_980_000, "{text}");
        }
        assert_eq!(shown(1_700_000_000_000), "2023-11-14T22:13:20Z");
        for wrong in ["yesterday", "", "Z", "2023-11-14 22", "2023-11-14T22:13:20+01:00Z"] {
            assert!(time_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_before_1970_are_refused() {
        assert_eq!(time_ms("1970-01-01").expect("a date"), 0);
        for text in ["-1", "-5", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00+01:00", "0001-01-01"] {
            assert!(time_ms(text).expect_err(text).0.contains("is before 1970"), "{text}");
        }
        let long = duration("30000d").expect("a duration");
        assert_eq!((ago_ms(long), ago_ms(Duration::MAX)), (0, 0));
        assert!(ago_ms(Duration::ZERO) > 1_700_000_000_000);
    }

    #[test]
    fn durations_are_short_or_iso() {
        let seconds = |text: &str| duration(text).map(|duration| duration.as_secs()).ok();
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("1d12h"), Some(129_600));
        assert_eq!(seconds("P1DT12H"), Some(129_600));
        assert_eq!(seconds("PT5M"), Some(300));
        for wrong in ["", "5", "s", "PT", "P", "1x", "5m1h", "-1s", "99999999999999999999d"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
