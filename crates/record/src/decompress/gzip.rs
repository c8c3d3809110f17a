//! Gzip (RFC 1952): one or more members, as Java's `GZIPInputStream` reads them. Like that class, this reader
//! ignores bytes after a member that do not begin another one.

use flate2::{Crc, Decompress, FlushDecompress, Status};

const MAGIC_AND_DEFLATE: [u8; 3] = [0x1f, 0x8b, 8];
const HEAD_BYTES: usize = 10;
const HEAD_CRC: u8 = 0x02;
const EXTRA: u8 = 0x04;
const NAME: u8 = 0x08;
const COMMENT: u8 = 0x10;

/// A shorter rest is not a member: head, shortest deflate stream and trailer are longer.
const NO_MEMBER_BYTES_MAX: usize = 18;

/// Maximum consecutive members without a byte. Java's reader recurses for each: its stack overflows at some
/// ten thousand.
const EMPTY_MEMBERS_MAX: usize = 1000;

const ENDS_EARLY: &str = "the head of a gzip member ends early";

/// The inflated bytes of a gzip stream, piece by piece.
pub(super) struct Gzip<'p, 's> {
    rest: &'p [u8],
    inflate: &'s mut Decompress,
    crc: Crc,
    member: Member,
}

/// The state of a gzip stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// Before the first member.
    Before,
    Within,
    /// After a complete member.
    Behind,
}

impl<'p, 's> Gzip<'p, 's> {
    /// `inflate` expects no zlib header.
    pub(super) fn new(payload: &'p [u8], inflate: &'s mut Decompress) -> Gzip<'p, 's> {
        Gzip { rest: payload, inflate, crc: Crc::new(), member: Member::Before }
    }

    /// Fills `room` from its beginning, and returns the number of bytes written; 0 at the end.
    pub(super) fn read(&mut self, room: &mut [u8]) -> Result<usize, String> {
        let mut ended = 0;
        loop {
            match self.member {
                Member::Within => {}
                Member::Before => self.begin(after_head(self.rest)?),
                Member::Behind if self.rest.len() <= NO_MEMBER_BYTES_MAX => return Ok(0),
                Member::Behind => match after_head(self.rest) {
                    Ok(deflated) => self.begin(deflated),
                    Err(_) => return Ok(0),
                },
            }
            let (consumed, produced) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(self.rest, room, FlushDecompress::None);
            let status = status.map_err(|error| error.to_string())?;
            let consumed = within_piece(self.inflate.total_in() - consumed);
            let produced = within_piece(self.inflate.total_out() - produced);
            self.rest = &self.rest[consumed..];
            self.crc.update(&room[..produced]);
            if status == Status::StreamEnd {
                self.rest = after_trailer(self.rest, &self.crc)?;
                self.member = Member::Behind;
                ended += 1;
                if ended > EMPTY_MEMBERS_MAX {
                    return Err("gzip members without a byte follow each other".to_owned());
                }
            } else if produced == 0 && consumed == 0 {
                return Err("the deflate stream ends early".to_owned());
            }
            if produced > 0 {
                return Ok(produced);
            }
        }
    }

    fn begin(&mut self, deflated: &'p [u8]) {
        self.rest = deflated;
        self.inflate.reset(false);
        self.crc.reset();
        self.member = Member::Within;
    }
}

fn within_piece(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no more than the slices that were given")
}

/// The deflated bytes after the head of a member.
fn after_head(bytes: &[u8]) -> Result<&[u8], &'static str> {
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
fn after_trailer<'p>(bytes: &'p [u8], inflated: &Crc) -> Result<&'p [u8], &'static str> {
    const TRAILER_ENDS_EARLY: &str = "the trailer of a gzip member ends early";
    let (crc, rest) = bytes.split_first_chunk::<4>().ok_or(TRAILER_ENDS_EARLY)?;
    let (size, rest) = rest.split_first_chunk::<4>().ok_or(TRAILER_ENDS_EARLY)?;
    if u32::from_le_bytes(*crc) != inflated.sum() || u32::from_le_bytes(*size) != inflated.amount() {
        return Err("the checksum or the size of a gzip member does not match");
    }
    Ok(rest)
}
