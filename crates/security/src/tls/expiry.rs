//! The expiry date of a certificate.

use crate::der::{self, Elements};

const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of a certificate's validity in seconds since 1970; `None` if malformed.
pub(super) fn not_after_s(certificate: &[u8]) -> Option<i64> {
    let mut fields = Elements(Elements(der::only(certificate, der::SEQUENCE)?).expect(der::SEQUENCE)?);
    // Version 1 omits the version field, so the serial number comes first.
    if fields.clone().next()?.tag == VERSION {
        fields.next();
    }
    // Skips serial number, algorithm and issuer.
    let validity = fields.nth(3)?;
    let not_after = Elements(validity.content).nth(1)?;
    let text = std::str::from_utf8(not_after.content).ok()?;
    // Both time formats end in Z and have seconds (RFC 5280).
    let (year, rest) = match not_after.tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let digits = rest.strip_suffix('Z').filter(|rest| rest.len() == 10 && rest.is_ascii())?;
    let pair = |at: usize| digits[2 * at..2 * at + 2].parse::<i64>().ok();
    let (month, day) = (pair(0)?, pair(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days(year, month, day) * 86_400 + pair(2)? * 3_600 + pair(3)? * 60 + pair(4)?)
}

/// Days from 1970-01-01 to a Gregorian date. Years begin in March here, so that the leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_count_from_1970() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 2, 29), 11_016);
        assert_eq!(days(2026, 11, 25), 20_782);
        assert_eq!(days(2100, 3, 1), 47_541);
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        let certificate = |time: &[u8]| {
            let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
            let validity =
                element(der::SEQUENCE, &[element(UTC_TIME, b"200101000000Z"), time.to_vec()].concat());
            let before =
                [element(2, &[1]), element(der::SEQUENCE, &[]), element(der::SEQUENCE, &[])].concat();
            let body = element(der::SEQUENCE, &[before, validity].concat());
            element(der::SEQUENCE, &body)
        };
        let time = |tag: u8, text: &[u8]| [&[tag, text.len() as u8], text].concat();
        assert_eq!(not_after_s(&certificate(&time(UTC_TIME, b"300102030405Z"))), Some(1_893_553_445));
        assert_eq!(
            not_after_s(&certificate(&time(GENERALIZED_TIME, b"20300102030405Z"))),
            Some(1_893_553_445)
        );
        for wrong in [&b"300102030405"[..], b"30010203Z", b"301302030405Z", b"3001020304xxZ"] {
            assert_eq!(not_after_s(&certificate(&time(UTC_TIME, wrong))), None);
        }
        assert_eq!(not_after_s(b"not a certificate"), None);
    }
}
