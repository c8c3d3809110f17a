//! Types of group settings.

use std::time::Duration;

/// `share.auto.offset.reset`: the start offset of a share group without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareOffsetReset {
    /// The first record.
    Earliest,
    /// The end of the log.
    Latest,
    /// The first record not older than this duration.
    ByDuration(Duration),
}

impl ShareOffsetReset {
    /// Parses `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration in the syntax of
    /// `java.time.Duration`. Negative durations are refused, as in Kafka.
    pub fn parse(text: &str) -> Option<ShareOffsetReset> {
        match text {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            _ => text.strip_prefix("by_duration:").and_then(iso_duration).map(Self::ByDuration),
        }
    }

    /// Parses a text that the key's check has accepted.
    pub(super) fn of(text: String) -> Self {
        Self::parse(&text).unwrap_or(Self::Latest)
    }
}

/// The name of a consumer group assignor. Kafka also accepts the Java class.
pub(super) fn assignor(entry: &str) -> Option<&'static str> {
    match entry {
        "uniform" | "org.apache.kafka.coordinator.group.assignor.UniformAssignor" => Some("uniform"),
        "range" | "org.apache.kafka.coordinator.group.assignor.RangeAssignor" => Some("range"),
        _ => None,
    }
}

/// The names of assignors; a rule refuses unknown entries.
pub(super) fn assignors(entries: Vec<String>) -> Vec<String> {
    entries.iter().filter_map(|entry| assignor(entry)).map(str::to_owned).collect()
}

/// True for `read_committed`; the key's check has accepted the text.
pub(super) fn is_read_committed(level: String) -> bool {
    level == "read_committed"
}

/// Parses `PnDTnHnMn.nS` in any case. Each part is optional, but not all of them, and a `T` needs a part
/// after it.
fn iso_duration(text: &str) -> Option<Duration> {
    let text = text.to_ascii_uppercase();
    let (date, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text.strip_prefix('P')?, None),
    };
    let mut total = Duration::ZERO;
    let mut add = |count: &str, seconds: u64| -> Option<()> {
        let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count: u64 = is_number.then(|| count.parse().ok())??;
        total = total.checked_add(Duration::from_secs(count.checked_mul(seconds)?))?;
        Some(())
    };
    if !date.is_empty() {
        add(date.strip_suffix('D')?, 24 * 3600)?;
    }
    let mut rest = time.unwrap_or_default();
    for (unit, seconds) in [('H', 3600), ('M', 60)] {
        if let Some((count, behind)) = rest.split_once(unit) {
            add(count, seconds)?;
            rest = behind;
        }
    }
    let mut nanos = 0;
    if !rest.is_empty() {
        let seconds = rest.strip_suffix('S')?;
        let (whole, part) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
        add(whole, 1)?;
        let is_part = part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
        nanos = is_part.then(|| format!("{part:0<9}").parse().ok())??;
    }
    let is_empty = date.is_empty() && time.is_none_or(str::is_empty);
    let ends_in_t = time.is_some_and(str::is_empty);
    if is_empty || ends_in_t { None } else { total.checked_add(Duration::from_nanos(nanos)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_java_does() {
        let millis = |text: &str| iso_duration(text).map(|duration| duration.as_millis());
        for (text, expected) in [
            ("P1D", Some(86_400_000)),
            ("PT2H", Some(7_200_000)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("pt0.001s", Some(1)),
            ("PT15M", Some(900_000)),
            ("PT1,5S", Some(1500)),
            ("PT1.S", Some(1000)),
            ("P0D", Some(0)),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("", None),
            ("1D", None),
            ("P1H", None),
            ("PT1D", None),
            ("PT1M1H", None),
            ("PT-1H", None),
            ("-PT1H", None),
            ("PT.5S", None),
            ("P1M", None),
            ("PT1", None),
            ("PT99999999999999999999H", None),
            ("P999999999999999999D", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }
}
