//! The variable-length integers of the record format: seven bits a byte, least significant first, zigzag.
//!
//! Reading follows Kafka's `ByteUtils`: at most 5 bytes for 32 bits and 10 for 64, and the bits of the last
//! byte that do not fit are dropped, not refused. Writing works on 64 bits throughout, which gives the same
//! bytes.

/// An integer that does not end, or ends after the available bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VarintFault {
    /// The bytes end before the integer.
    Short,
    /// The integer has more bytes than its width allows.
    Long,
}

/// Reads a 32-bit integer at `*at` and advances `*at`.
#[inline]
pub(crate) fn read_i32(bytes: &[u8], at: &mut usize) -> Result<i32, VarintFault> {
    // Nearly all integers of a record have one or two bytes.
    let raw = match bytes.get(*at..) {
        Some(&[byte, ..]) if byte < 0x80 => {
            *at += 1;
            u32::from(byte)
        }
        Some(&[low, high, ..]) if high < 0x80 => {
            *at += 2;
            u32::from(low & 0x7f) | u32::from(high) << 7
        }
        _ => read_long_u32(bytes, at)?,
    };
    Ok(signed(raw))
}

/// The value whose zigzag form is `raw`.
#[inline]
pub(crate) fn signed(raw: u32) -> i32 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

fn read_long_u32(bytes: &[u8], at: &mut usize) -> Result<u32, VarintFault> {
    let mut raw: u32 = 0;
    for shift in [0, 7, 14, 21, 28] {
        let byte = next(bytes, at)?;
        raw |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(raw);
        }
    }
    Err(VarintFault::Long)
}

/// Reads a 64-bit integer at `*at` and advances `*at`.
#[inline]
pub(crate) fn read_i64(bytes: &[u8], at: &mut usize) -> Result<i64, VarintFault> {
    let raw = match bytes.get(*at..) {
        Some(&[byte, ..]) if byte < 0x80 => {
            *at += 1;
            u64::from(byte)
        }
        Some(&[low, high, ..]) if high < 0x80 => {
            *at += 2;
            u64::from(low & 0x7f) | u64::from(high) << 7
        }
        _ => read_long_u64(bytes, at)?,
    };
    Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
}

fn read_long_u64(bytes: &[u8], at: &mut usize) -> Result<u64, VarintFault> {
    let mut raw: u64 = 0;
    for shift in [0, 7, 14, 21, 28, 35, 42, 49, 56, 63] {
        let byte = next(bytes, at)?;
        raw |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(raw);
        }
    }
    Err(VarintFault::Long)
}

#[inline]
fn next(bytes: &[u8], at: &mut usize) -> Result<u8, VarintFault> {
    let byte = *bytes.get(*at).ok_or(VarintFault::Short)?;
    *at += 1;
    Ok(byte)
}

/// The zigzag form of `value`, for [`len`] and [`write`].
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The zigzag form of a length.
#[inline]
pub(crate) fn zigzag_len(len: usize) -> u64 {
    u64::try_from(len).expect("a usize has at most 64 bits") << 1
}

/// Encoded length of `raw` in bytes.
#[inline]
pub(crate) fn len(raw: u64) -> usize {
    // ceil(bits / 7) without a division: right for every width up to 64 bits, with at least one byte.
    let highest_bit = 63 - (raw | 1).leading_zeros() as usize;
    (highest_bit * 9 + 73) / 64
}

/// Writes `raw` at `*at` and advances `*at`.
///
/// # Panics
/// If `out` is too short: callers size it with [`len`].
#[inline]
pub(crate) fn write(out: &mut [u8], at: &mut usize, mut raw: u64) {
    while raw >= 0x80 {
        out[*at] = (raw & 0x7f) as u8 | 0x80;
        *at += 1;
        raw >>= 7;
    }
    out[*at] = raw as u8;
    *at += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(value: i64) -> Vec<u8> {
        let raw = zigzag(value);
        let mut out = vec![0; len(raw)];
        let mut at = 0;
        write(&mut out, &mut at, raw);
        assert_eq!(at, out.len(), "len() of {value}");
        let mut at = 0;
        assert_eq!(read_i64(&out, &mut at), Ok(value));
        assert_eq!(at, out.len());
        out
    }

    #[test]
    fn every_width_round_trips() {
        for bit in 0..63 {
            for value in [(1i64 << bit) - 1, 1 << bit, (1 << bit) + 1] {
                round_trip(value);
                round_trip(-value);
            }
        }
        round_trip(i64::MAX);
        round_trip(i64::MIN);
    }

    #[test]
    fn small_numbers_have_the_bytes_of_protocol_buffers() {
        assert_eq!(round_trip(0), [0]);
        assert_eq!(round_trip(-1), [1]);
        assert_eq!(round_trip(63), [0x7e]);
        assert_eq!(round_trip(-64), [0x7f]);
        assert_eq!(round_trip(64), [0x80, 0x01]);
        assert_eq!(round_trip(8191), [0xfe, 0x7f]);
        assert_eq!(round_trip(i64::from(i32::MIN)), [0xff, 0xff, 0xff, 0xff, 0x0f]);
    }

    #[test]
    fn an_integer_without_end_is_refused() {
        assert_eq!(read_i32(&[0x80; 5], &mut 0), Err(VarintFault::Long));
        assert_eq!(read_i32(&[0x80; 4], &mut 0), Err(VarintFault::Short));
        assert_eq!(read_i64(&[0x80; 10], &mut 0), Err(VarintFault::Long));
        assert_eq!(read_i64(&[], &mut 0), Err(VarintFault::Short));
        assert_eq!(read_i32(&[0xff, 0xff, 0xff, 0xff, 0x0f], &mut 0), Ok(i32::MIN));
    }
}
