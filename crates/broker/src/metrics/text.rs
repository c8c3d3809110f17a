//! Numbers and label values as text, without allocation.

use super::sample::Number;
use std::io::Write;

/// A number. Prometheus writes NaN, +Inf and -Inf.
pub(super) fn push_number(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::Whole(number) => push_whole(out, number),
        Number::Real(number) if number.is_nan() => out.extend_from_slice(b"NaN"),
        Number::Real(number) if number.is_infinite() => {
            out.extend_from_slice(if number > 0.0 { b"+Inf" } else { b"-Inf" });
        }
        Number::Real(number) => write!(out, "{number}").expect("memory takes it"),
    }
}

/// A whole number.
pub(super) fn push_whole(out: &mut Vec<u8>, number: i128) {
    // Standard formatting is several times slower, and most samples are whole numbers.
    let Ok(mut rest) = u64::try_from(number.unsigned_abs()) else {
        return write!(out, "{number}").expect("memory takes it");
    };
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// A label's value, with its escapes.
pub(super) fn push_label_value(out: &mut Vec<u8>, text: &str) {
    if !text.bytes().any(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
        return out.extend_from_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        for number in [0, 7, -7, 10, 1_234_567_890, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            push_whole(&mut out, i128::from(number));
            assert_eq!(out, number.to_string().as_bytes());
        }
        let mut out = Vec::new();
        push_whole(&mut out, i128::MIN);
        push_number(&mut out, Number::Real(f64::INFINITY));
        assert_eq!(out, format!("{}+Inf", i128::MIN).as_bytes());
    }
}
