//! Positions in the partitions of a topic, as the links between pages of messages have them.

use std::collections::BTreeMap;
use std::fmt::Write;

use thalweg_record::Offset;

use crate::problem::Problem;

/// Maximum bytes of positions in an address. A request may have three of them, in its address and in that
/// of the page before it, and its head has 32 KiB.
const TEXT_MAX: usize = 8 << 10;
/// Maximum number of partitions.
const PARTITIONS_MAX: usize = 10_000;

/// An offset for each partition index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions(pub BTreeMap<i32, Offset>);

impl Positions {
    /// Parses the parameter `name`: `PARTITION:OFFSET` pairs, separated by commas. Neighbouring partitions
    /// with the same offset may be a range, as in `0-5:0`.
    pub fn parse(name: &str, text: &str) -> Result<Positions, Problem> {
        let wrong = || {
            Problem::wrong(format!(
                "{name}: {text:?} is not a list of positions: use PARTITION:OFFSET,PARTITION:OFFSET, as in links \
                 to older and newer messages"
            ))
        };
        let mut positions = BTreeMap::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (partitions, offset) = pair.split_once(':').ok_or_else(wrong)?;
            let (first, last) = partitions.split_once('-').unwrap_or((partitions, partitions));
            let (first, last): (i32, i32) =
                (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            let offset: i64 = offset.parse().map_err(|_| wrong())?;
            if first < 0 || last < first || offset < 0 {
                return Err(wrong());
            }
            for partition in first..=last {
                if positions.len() == PARTITIONS_MAX {
                    let most = format!("{name}: more than {PARTITIONS_MAX} partitions: name fewer of them");
                    return Err(Problem::wrong(most));
                }
                positions.insert(partition, Offset(offset));
            }
        }
        Ok(Positions(positions))
    }

    /// The positions as a parameter; none if they are too long for an address.
    pub fn parameter(&self) -> Option<String> {
        Some(self.text()).filter(|text| text.len() <= TEXT_MAX)
    }

    /// The positions as [`Positions::parse`] reads them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut all = self.0.iter().peekable();
        while let Some((&first, offset)) = all.next() {
            let mut last = first;
            while let Some((&next, _)) =
                all.next_if(|(next, other)| last.checked_add(1) == Some(**next) && *other == offset)
            {
                last = next;
            }
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a `String` cannot fail.
            let _ = match first == last {
                true => write!(text, "{comma}{first}:{offset}"),
                false => write!(text, "{comma}{first}-{last}:{offset}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(pairs: &[(i32, i64)]) -> Positions {
        Positions(pairs.iter().map(|(partition, offset)| (*partition, Offset(*offset))).collect())
    }

    #[test]
    fn positions_are_read_as_they_are_written() {
        for (pairs, text) in [
            (&[(0, 123), (1, 44)][..], "0:123,1:44"),
            (&[(0, 0), (1, 0), (2, 0), (3, 7), (5, 7), (6, 7)], "0-2:0,3:7,5-6:7"),
            (&[(7, i64::MAX)], "7:9223372036854775807"),
            (&[], ""),
        ] {
            let positions = positions(pairs);
            assert_eq!(positions.parameter().as_deref(), Some(text));
            assert_eq!(Positions::parse("before", text).expect("right"), positions);
        }
        let many: Vec<(i32, i64)> = (0..2000).map(|index| (index, i64::from(index) * 1_000_003)).collect();
        assert_eq!(positions(&many).parameter(), None, "an address has a limit");
    }

    #[test]
    fn wrong_positions_are_named_and_large_ranges_refused() {
        for text in ["1", "a:1", "0:b", "0:-1", "-1:0", "3-1:0", "0:1;1:2", "0:1:2", "0:99999999999999999999"]
        {
            let wrong = Positions::parse("before", text).expect_err(text);
            assert!(
                wrong.message.contains("before: ") && wrong.message.contains("PARTITION:OFFSET"),
                "{text}"
            );
        }
        let wrong = Positions::parse("after", "0-2147483647:0").expect_err("too many");
        assert_eq!(wrong.message, "after: more than 10000 partitions: name fewer of them");
    }
}
