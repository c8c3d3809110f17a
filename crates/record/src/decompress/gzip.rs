//! The head and the trailer of a gzip member (RFC 1952), for the streaming reader.

use flate2::Crc;

const MAGIC_AND_DEFLATE: [u8; 3] = [0x1f, 0x8b, 8];
const HEAD_BYTES: usize = 10;
const HEAD_CRC: u8 = 0x02;
const EXTRA: u8 = 0x04;
const NAME: u8 = 0x08;
const COMMENT: u8 = 0x10;

const ENDS_EARLY: &str = "the head of a gzip member ends early";

/// The deflated bytes after the head of a member.
pub(super) fn after_head(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(ENDS_EARLY)?;
    if !head.starts_with(&MAGIC_AND_DEFLATE) {
        return Err("no gzip member begins here");
    }
    let flags = head[3];
    if flags & EXTRA != 0 {
        let (len, after) = rest.split_first_chunk::<2>().ok_or(ENDS_EARLY)?;
        rest = after.get(usize::from(u16::from_le_bytes(*len))..).ok_or(ENDS_EARLY)?;
    }
    for field in [NAME, COMMENT] {
        if flags & field != 0 {
            let end = rest.iter().position(|&byte| byte == 0).ok_or(ENDS_EARLY)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & HEAD_CRC != 0 {
        let mut crc = Crc::new();
        crc.update(&bytes[..bytes.len() - rest.len()]);
        let (stored, after) = rest.split_first_chunk::<2>().ok_or(ENDS_EARLY)?;
        if crc.sum() & 0xffff != u32::from(u16::from_le_bytes(*stored)) {
            return Err("the checksum of a gzip member's head does not match");
        }
        rest = after;
    }
    Ok(rest)
}

/// The bytes after the trailer of a member, which contains checksum and size of the inflated data.
pub(super) fn after_trailer<'p>(bytes: &'p [u8], inflated: &Crc) -> Result<&'p [u8], &'static str> {
    const TRAILER_ENDS_EARLY: &str = "the trailer of a gzip member ends early";
    let (crc, rest) = bytes.split_first_chunk::<4>().ok_or(TRAILER_ENDS_EARLY)?;
    let (size, rest) = rest.split_first_chunk::<4>().ok_or(TRAILER_ENDS_EARLY)?;
    if u32::from_le_bytes(*crc) != inflated.sum() || u32::from_le_bytes(*size) != inflated.amount() {
        return Err("the checksum or the size of a gzip member does not match");
    }
    Ok(rest)
}
