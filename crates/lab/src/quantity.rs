//! Formats numbers for people: separators, significant digits and units, used by all tables, progress lines
//! and reports.

/// A whole number with separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three significant digits, or all digits before the point if there are more: `0.0123`,
/// `9.87`, `1,235`.
pub fn number(value: f64) -> String {
    digits(value, 3)
}

/// Formats like [`number`], with a given number of significant digits.
pub fn digits(value: f64, significant: i32) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let size = value.abs();
    // A number that would round up to another digit gets one decimal less.
    let has_digits =
        |places: &i32| size >= 10f64.powi(significant - 1 - places) - 0.5 * 10f64.powi(-(places + 1));
    match (0..=significant).find(has_digits) {
        Some(0) => format!("{sign}{}", count(size.round() as u64)),
        Some(places) => format!("{sign}{size:.*}", places as usize),
        None if size == 0.0 => "0".to_owned(),
        // Smaller numbers have fewer digits.
        None => format!("{sign}{size:.*}", significant as usize + 1),
    }
}

/// A number in thousands, millions or billions, for axes and large print: `950`, `12.3 k`, `2.31 M`.
pub fn short(value: f64) -> String {
    let (size, suffix) = match value.abs() {
        s if s >= 999.5e6 => (value / 1e9, " G"),
        s if s >= 999.5e3 => (value / 1e6, " M"),
        s if s >= 9_999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    format!("{}{suffix}", number(size))
}

/// A round number for axes, without redundant digits: `0.5`, `2 M`.
pub fn round(value: f64) -> String {
    let text = short(value);
    let (number, suffix) = match text.split_once(' ') {
        Some((number, suffix)) => (number, format!(" {suffix}")),
        None => (text.as_str(), String::new()),
    };
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number}{suffix}")
}

/// A time in a suitable unit: `850 µs`, `1.24 ms`, `2.85 s`.
pub fn time_us(value_us: f64) -> String {
    match value_us.abs() {
        v if v >= 999_500.0 => format!("{} s", number(value_us / 1e6)),
        v if v >= 999.5 => format!("{} ms", number(value_us / 1e3)),
        _ => format!("{} µs", number(value_us)),
    }
}

/// Bytes in powers of 1,024: `512 B`, `28.9 MiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = value;
    let mut unit = 0;
    while size.abs() >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{} {}", number(size), UNITS[unit])
}

/// A fraction as a percentage: `4.5 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "not a number".to_owned();
    }
    let value = share * 100.0;
    match value.abs() {
        v if v >= 9.95 => format!("{value:.0} %"),
        v if v >= 0.05 => format!("{value:.1} %"),
        _ if value == 0.0 => "0 %".to_owned(),
        _ => "< 0.1 %".to_owned(),
    }
}

/// Seconds as a clock: `0:42`, `1:05:09`.
pub fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    match hours {
        0 => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_as_many_as_matter() {
        let texts = [0.0, 0.01234, 0.1234, 1.234, 12.34, 99.96, 123.4, 2_307_902.4, -3.0].map(number);
        assert_eq!(texts, ["0", "0.0123", "0.123", "1.23", "12.3", "100", "123", "2,307,902", "-3.00"]);
        assert_eq!(number(f64::NAN), "not a number");
        let texts = [0.0123, 0.0996, 0.123, 0.996, 1.23, 9.96, 12.3, 1234.5].map(|value| digits(value, 2));
        assert_eq!(texts, ["0.012", "0.10", "0.12", "1.0", "1.2", "10", "12", "1,235"]);
    }

    #[test]
    fn units_grow_with_the_value() {
        assert_eq!(
            [950.0, 9_999.6, 12_345.0, 2_307_902.0, 12e9].map(short),
            ["950", "10.0 k", "12.3 k", "2.31 M", "12.0 G"]
        );
        assert_eq!([850.0, 1_240.0, 2_850_000.0].map(time_us), ["850 µs", "1.24 ms", "2.85 s"]);
        assert_eq!([512.0, 30_343_168.0].map(bytes), ["512 B", "28.9 MiB"]);
        assert_eq!([0.0, 0.5, 2e6, 250e3, 12_345.0].map(round), ["0", "0.5", "2 M", "250 k", "12.3 k"]);
        assert_eq!([0.0, 0.0001, 0.045, 0.97].map(percent), ["0 %", "< 0.1 %", "4.5 %", "97 %"]);
        assert_eq!([42.0, 3909.0].map(clock), ["0:42", "1:05:09"]);
    }
}
