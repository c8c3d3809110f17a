//! Parses topics, partitions and positions in options. Pure.

use std::collections::BTreeMap;

/// A start position in a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartPosition {
    /// The first available record.
    Earliest,
    /// The next record to be written.
    Latest,
    Offset(i64),
    /// An offset for each of these partitions; the first available record in others.
    Offsets(BTreeMap<i32, i64>),
    /// The first record at or after a time, in milliseconds since 1970.
    Timestamp(i64),
}

impl StartPosition {
    /// Parses a start position.
    pub fn read(text: &str) -> Option<StartPosition> {
        let number = |digits: &str| digits.parse().ok().filter(|number: &i64| *number >= 0);
        let of_partition = |pair: &str| {
            let (partition, offset) = pair.split_once('=')?;
            Some((i32::try_from(number(partition.trim())?).ok()?, number(offset.trim())?))
        };
        match text {
            "earliest" => Some(StartPosition::Earliest),
            "latest" => Some(StartPosition::Latest),
            _ => match text.split_once(':')? {
                ("offset", pairs) if pairs.contains('=') => {
                    let offsets: Option<BTreeMap<i32, i64>> = pairs.split(',').map(of_partition).collect();
                    // Reject duplicates, because one value would be ignored.
                    offsets
                        .filter(|offsets| offsets.len() == pairs.split(',').count())
                        .map(StartPosition::Offsets)
                }
                ("offset", digits) => number(digits).map(StartPosition::Offset),
                ("timestamp", digits) => number(digits).map(StartPosition::Timestamp),
                _ => None,
            },
        }
    }
}

/// True if this is a valid topic name.
pub fn is_topic(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.chars().all(is_letter)
}

/// The regular expression for the whole names of topics in a text such as `^orders-`, which is for their
/// beginnings, as in librdkafka. `None` if the text has names.
pub fn pattern(text: &str) -> Option<String> {
    text.starts_with('^').then(|| format!("(?:{text}).*"))
}

/// The names of topics in a text without a pattern.
pub fn names(text: &str) -> Vec<String> {
    text.split(',').map(|topic| topic.trim().to_owned()).collect()
}

/// Parses partition numbers.
pub fn partitions(text: &str) -> Option<Vec<i32>> {
    text.split(',').map(|number| number.trim().parse().ok().filter(|number| *number >= 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_and_partitions_are_read() {
        assert_eq!(StartPosition::read("earliest"), Some(StartPosition::Earliest));
        assert_eq!(StartPosition::read("offset:17"), Some(StartPosition::Offset(17)));
        assert_eq!(
            StartPosition::read("timestamp:1700000000000"),
            Some(StartPosition::Timestamp(1_700_000_000_000))
        );
        let offsets = [(0, 17), (2, 5)].into_iter().collect();
        assert_eq!(StartPosition::read("offset:0=17, 2=5"), Some(StartPosition::Offsets(offsets)));
        let twice = "offset:0=1,0=2";
        for wrong in
            ["", "first", "offset:", "offset:-1", "offset", "time:1", "offset:0=", "offset:a=1", twice]
        {
            assert_eq!(StartPosition::read(wrong), None, "{wrong}");
        }
        assert!(is_topic("a.b_c-1") && !is_topic("") && !is_topic("..") && !is_topic("a b"));
        assert_eq!(partitions("0, 2"), Some(vec![0, 2]));
        for wrong in ["", "a", "1,", "-1"] {
            assert_eq!(partitions(wrong), None, "{wrong}");
        }
    }
}
