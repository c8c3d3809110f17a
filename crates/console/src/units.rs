//! Units of settings, and values in words beside the raw ones: `604800000` is 7 days.
//!
//! Kafka's protocol reports no unit, so the name of a setting determines it, for any cluster.

/// The unit of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A time, with the milliseconds of one unit.
    Time(i64),
    Bytes,
    BytesPerSecond,
}

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Parts of a time, the largest first.
const TIMES: [(i64, &str); 4] =
    [(DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute"), (SECOND_MS, "second")];
const SIZES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Settings with a unit that their last word does not name.
const RATES: [&str; 2] = [".bytes.per.second", ".replication.throttled.rate"];
const BUFFERS: [&str; 3] = [".buffer.size", ".receive.size", ".record.bytes.between.snapshots"];

impl Unit {
    fn of(setting: &str) -> Option<Unit> {
        Some(match setting.rsplit('.').next().unwrap_or_default() {
            "ms" => Unit::Time(1),
            "seconds" => Unit::Time(SECOND_MS),
            "minutes" => Unit::Time(MINUTE_MS),
            "hours" => Unit::Time(HOUR_MS),
            "bytes" => Unit::Bytes,
            _ if RATES.iter().any(|rate| setting.ends_with(rate)) => Unit::BytesPerSecond,
            _ if BUFFERS.iter().any(|buffer| setting.ends_with(buffer)) => Unit::Bytes,
            _ => return None,
        })
    }
}

/// The value of a setting in words; none if the value is readable as it is, or has no unit. Negative values
/// have meanings of their own, such as no limit.
pub fn in_words(setting: &str, value: &str) -> Option<String> {
    let (unit, number) = (Unit::of(setting)?, value.parse::<i64>().ok()?);
    if number == i64::MAX {
        return Some("the largest number".to_owned());
    }
    match unit {
        Unit::Time(unit_ms) => {
            let next = TIMES.iter().rev().find(|(ms, _)| *ms > unit_ms).map(|(ms, _)| ms / unit_ms)?;
            if number < next { None } else { time(number.checked_mul(unit_ms)?) }
        }
        Unit::Bytes => size(number),
        Unit::BytesPerSecond => size(number).map(|size| format!("{size}/s")),
    }
}

/// A time of at least a second, by its two largest parts: 1 day 12 hours. None below a minute with a part of
/// a second, which is readable in milliseconds.
fn time(ms: i64) -> Option<String> {
    if ms < MINUTE_MS && ms % SECOND_MS != 0 {
        return None;
    }
    let mut rest = ms;
    let parts = TIMES.iter().map(|(unit_ms, name)| {
        let count = rest / unit_ms;
        rest %= unit_ms;
        (count, *name)
    });
    let parts: Vec<(i64, &str)> = parts.skip_while(|(count, _)| *count == 0).collect();
    let is_exact = rest == 0 && parts.iter().skip(2).all(|(count, _)| *count == 0);
    let shown = parts.iter().take(2).filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown.map(|(count, name)| crate::format::counted(*count, name)).collect();
    Some(format!("{}{}", if is_exact { "" } else { "about " }, shown.join(" ")))
}

/// A size of at least 1 KiB, with two decimals at most: 1.5 GiB.
fn size(bytes: i64) -> Option<String> {
    let units = SIZES.iter().enumerate().map(|(power, name)| (1024_i128 << (10 * power), name));
    let (unit, name) = units.rev().find(|(unit, _)| i128::from(bytes) >= *unit)?;
    let hundredths = i128::from(bytes) * 100;
    let rounded = (hundredths + unit / 2) / unit;
    let number = format!("{}.{:02}", rounded / 100, rounded % 100);
    let number = number.trim_end_matches('0').trim_end_matches('.');
    Some(format!("{}{number} {name}", if hundredths % unit == 0 { "" } else { "about " }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");

    #[test]
    fn values_with_units_have_words() {
        for (setting, value, words) in [
            ("retention.ms", "604800000", Some("7 days")),
            ("log.retention.hours", "168", Some("7 days")),
            ("segment.bytes", "1073741824", Some("1 GiB")),
            ("retention.ms", "129600000", Some("1 day 12 hours")),
            ("retention.ms", "86401000", Some("about 1 day")),
            ("retention.ms", "90061001", Some("about 1 day 1 hour")),
            ("linger.ms", "1500", None),
            ("linger.ms", "2000", Some("2 seconds")),
            ("max.message.bytes", "1048588", Some("about 1 MiB")),
            ("segment.bytes", "2147483647", Some("about 2 GiB")),
            ("segment.bytes", "1536", Some("1.5 KiB")),
            ("leader.replication.throttled.rate", "10485760", Some("10 MiB/s")),
            ("quota.window.size.seconds", "3600", Some("1 hour")),
            ("flush.ms", "9223372036854775807", Some("the largest number")),
            ("log.retention.hours", "9223372036854775806", None),
            ("quota.window.size.seconds", "1", None),
            ("linger.ms", "999", None),
            ("segment.bytes", "1023", None),
            ("retention.bytes", "-1", None),
            ("retention.ms", "", None),
            ("flush.messages", "604800000", None),
            ("listeners", "bytes", None),
        ] {
            assert_eq!(in_words(setting, value).as_deref(), words, "{setting}={value}");
        }
    }

    #[test]
    fn units_are_those_of_the_configuration_page() {
        let mut compared = 0;
        let mut lines = CONFIGURATION.lines();
        while let Some(line) = lines.next() {
            let Some(setting) = line.strip_prefix("#### `").and_then(|name| name.strip_suffix('`')) else {
                continue;
            };
            let facts = lines.nth(1).expect("the facts of a property");
            let kind = facts.split(" · ").next().unwrap_or_default();
            let unit = kind.split_once(" in ").map_or("", |(_, unit)| unit);
            let found = match Unit::of(setting) {
                None => "",
                Some(Unit::Time(1)) => "ms",
                Some(Unit::Time(SECOND_MS)) => "seconds",
                Some(Unit::Time(MINUTE_MS)) => "minutes",
                Some(Unit::Time(_)) => "hours",
                Some(Unit::Bytes) => "bytes",
                Some(Unit::BytesPerSecond) => "bytes/s",
            };
            assert_eq!(found, unit, "{setting}");
            compared += 1;
        }
        assert!(compared > 300, "{compared}");
    }
}
