//! Snappy in the two shapes that clients write: the framing of snappy-java (Java, and those that imitate it),
//! and one raw block (librdkafka).
//!
//! ```text
//! magic 82 "SNAPPY" 00 | version i32 | compatible version i32 | ( block length i32 | raw block )*
//! ```
//! The 16 bytes of the head may come again between blocks, where streams were concatenated.

use super::{DecompressError, Output};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const FRAME_HEAD_BYTES: usize = 16;

/// No element of a raw block makes more of its bytes than a copy with a two-byte offset: 64 bytes out of 3. A
/// block that claims more lies, and must not cost memory.
const EXPANSION_MAX: usize = 22;

pub(super) fn decompress(payload: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    if !payload.starts_with(&MAGIC) {
        return raw_block(payload, output);
    }
    let mut rest = payload;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            rest =
                rest.get(FRAME_HEAD_BYTES..).ok_or_else(|| output.corrupt("the frame's head ends early"))?;
            continue;
        }
        let Some((len, after)) = rest.split_first_chunk::<4>() else {
            return Err(output.corrupt("a block length ends early"));
        };
        let len = usize::try_from(i32::from_be_bytes(*len))
            .map_err(|_| output.corrupt("a block length is negative"))?;
        let Some((block, after)) = after.split_at_checked(len) else {
            return Err(output.corrupt("a block ends early"));
        };
        raw_block(block, output)?;
        rest = after;
    }
    Ok(())
}

fn raw_block(block: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let claimed = snap::raw::decompress_len(block).map_err(|error| output.corrupt(error))?;
    if claimed > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(output.corrupt("a block claims more than its bytes can hold"));
    }
    if claimed > output.allowed() {
        return Err(output.too_large());
    }
    match output.fill(claimed, |_, space| snap::raw::Decoder::new().decompress(block, space)) {
        Ok(_) => Ok(()),
        Err(error) => Err(output.corrupt(error)),
    }
}
