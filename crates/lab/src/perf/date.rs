//! Formats times like `java.text.SimpleDateFormat`, in the local time zone, for the letters that measurements
//! need.

use std::fmt::Write;
use std::str::FromStr;

use chrono::{DateTime, Local, TimeZone};

/// A validated format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DateFormat(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A pattern letter and its repetitions.
    Field(char, usize),
}

/// An unsupported letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{letter} is not supported in a date format: use y M d H h m s S a E Z z, and quote other letters with '...'"
)]
pub(super) struct UnknownLetter {
    letter: char,
}

impl FromStr for DateFormat {
    type Err = UnknownLetter;

    fn from_str(text: &str) -> Result<DateFormat, UnknownLetter> {
        let mut parts: Vec<Part> = Vec::new();
        let mut quoted = false;
        let mut chars = text.chars().peekable();
        let push = |parts: &mut Vec<Part>, c| match parts.last_mut() {
            Some(Part::Text(text)) => text.push(c),
            _ => parts.push(Part::Text(String::from(c))),
        };
        while let Some(c) = chars.next() {
            match c {
                '\'' if chars.peek() == Some(&'\'') => {
                    chars.next();
                    push(&mut parts, '\'');
                }
                '\'' => quoted = !quoted,
                c if !quoted && c.is_ascii_alphabetic() => {
                    if !"yMdHhmsSaEZz".contains(c) {
                        return Err(UnknownLetter { letter: c });
                    }
                    match parts.last_mut() {
                        Some(Part::Field(letter, count)) if *letter == c => *count += 1,
                        _ => parts.push(Part::Field(c, 1)),
                    }
                }
                c => push(&mut parts, c),
            }
        }
        Ok(DateFormat(parts))
    }
}

impl DateFormat {
    /// A time in milliseconds since 1970.
    pub(super) fn format(&self, ms: i64) -> String {
        match Local.timestamp_millis_opt(ms).earliest() {
            Some(time) => self.write(&time),
            None => ms.to_string(),
        }
    }

    fn write<Z: TimeZone>(&self, time: &DateTime<Z>) -> String
    where
        Z::Offset: std::fmt::Display,
    {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field(letter, count) => {
                    let (format, width) = match (letter, count) {
                        ('y', 2) => ("%y", 2),
                        ('y', _) => ("%Y", *count),
                        ('M', 1 | 2) => ("%m", *count),
                        ('M', 3) => ("%b", 0),
                        ('M', _) => ("%B", 0),
                        ('d', _) => ("%d", *count),
                        ('H', _) => ("%H", *count),
                        ('h', _) => ("%I", *count),
                        ('m', _) => ("%M", *count),
                        ('s', _) => ("%S", *count),
                        ('S', _) => ("%3f", *count),
                        ('a', _) => ("%p", 0),
                        ('E', 1..=3) => ("%a", 0),
                        ('E', _) => ("%A", 0),
                        ('z', _) => ("%Z", 0),
                        _ => ("%z", 0),
                    };
                    let text = time.format(format).to_string();
                    // In Java, the number of letters is the minimum number of digits.
                    let result = match width {
                        0 => write!(out, "{text}"),
                        width => write!(out, "{:0>width$}", text.trim_start_matches('0')),
                    };
                    result.expect("writing to a string does not fail");
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::Utc;

    #[test]
    fn times_are_written_as_java_writes_them() {
        let time = Utc.timestamp_millis_opt(1_795_297_307_033).single().expect("a time");
        let write = |format: &str| format.parse::<DateFormat>().expect("a format").write(&time);
        assert_eq!(write("yyyy-MM-dd HH:mm:ss:SSS"), "2026-11-21 21:41:47:033");
        assert_eq!(write("d.M.yy 'at' H 'o''clock'"), "21.11.26 at 21 o'clock");
        assert_eq!("yyyy-QQ".parse::<DateFormat>(), Err(UnknownLetter { letter: 'Q' }));
        let midnight = Utc.timestamp_millis_opt(0).single().expect("a time");
        assert_eq!("HH:mm H".parse::<DateFormat>().expect("a format").write(&midnight), "00:00 0");
    }
}
