//! The shapes of compressed records that clients write, and the limit on their decompressed size.

use std::io::Write;

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use thalweg_record::{Compression, DecompressBuffer, DecompressError};

use crate::samples::pattern;

fn text() -> Vec<u8> {
    let mut text = Vec::new();
    for i in 0..30_000 {
        writeln!(text, "line {i} of {}", i * i % 977).expect("memory takes all");
    }
    text
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn lz4(info: FrameInfo, bytes: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn snappy_raw(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("small enough")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("memory takes all")
}

fn decompressed(compression: Compression, payload: &[u8]) -> Result<Vec<u8>, DecompressError> {
    DecompressBuffer::default().decompress(compression, payload).map(<[u8]>::to_vec)
}

#[test]
fn gzip_of_several_members_is_one_stream() {
    let text = text();
    let (head, tail) = text.split_at(1000);
    assert!(decompressed(Compression::Gzip, &gzip(&text)).as_ref() == Ok(&text));
    assert!(decompressed(Compression::Gzip, &[gzip(head), gzip(tail)].concat()).as_ref() == Ok(&text));
}

#[test]
fn snappy_is_read_raw_and_framed() {
    let text = text();
    assert!(decompressed(Compression::Snappy, &snappy_raw(&text)).as_ref() == Ok(&text));

    let head = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
    let mut framed = head.to_vec();
    for (i, part) in text.chunks(70_000).enumerate() {
        if i == 2 {
            framed.extend(head);
        }
        let block = snappy_raw(part);
        framed.extend(u32::try_from(block.len()).expect("small").to_be_bytes());
        framed.extend(block);
    }
    assert!(decompressed(Compression::Snappy, &framed).as_ref() == Ok(&text));
}

#[test]
fn lz4_frames_of_every_kind_are_read() {
    let text = text();
    for block_size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
        for checksums in [false, true] {
            let info = FrameInfo::new()
                .block_size(block_size)
                .block_checksums(checksums)
                .content_checksum(checksums)
                .content_size(checksums.then_some(u64::try_from(text.len()).expect("small")));
            let frame = lz4(info, &text);
            assert!(decompressed(Compression::Lz4, &frame).as_ref() == Ok(&text));
        }
    }
}

/// Java's `Lz4BlockInputStream` reads no such frame, even of one block.
#[test]
fn lz4_frames_with_linked_blocks_are_refused() {
    for bytes in [&b"one block"[..], &text()] {
        let frame = lz4(FrameInfo::new().block_mode(BlockMode::Linked), bytes);
        let error = decompressed(Compression::Lz4, &frame).expect_err("linked");
        assert!(error.to_string().contains("linked"), "{error}");
    }
}

/// Behind a complete stream, what begins no other is ignored by Java's readers.
#[test]
fn what_follows_a_stream_is_ignored_as_by_java() {
    let text = text();
    let member = gzip(&text);
    for behind in [&[0; 3][..], &[0; 40], b"garbage that is longer than a trailer", &member[..18]] {
        let payload = [&member[..], behind].concat();
        assert!(decompressed(Compression::Gzip, &payload).as_ref() == Ok(&text), "{}", behind.len());
    }
    let another = [&member[..], &member[..member.len() - 1]].concat();
    assert!(decompressed(Compression::Gzip, &another).is_err(), "a member that ends early");
    let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    let block = snappy_raw(&text);
    framed.extend(u32::try_from(block.len()).expect("small").to_be_bytes());
    framed.extend(block);
    for behind in 0..4 {
        let payload = [&framed[..], &[0; 3][..behind]].concat();
        assert!(decompressed(Compression::Snappy, &payload).as_ref() == Ok(&text), "{behind}");
    }
    let frame = zstd(&text);
    let skippable = b"\x50\x2a\x4d\x18\x05\0\0\0\x31\x32\x33";
    for behind in [&frame[..4], &skippable[..]] {
        let payload = [&frame[..], behind].concat();
        assert!(decompressed(Compression::Zstd, &payload).as_ref() == Ok(&text), "{}", behind.len());
    }
    assert!(decompressed(Compression::Zstd, &[&frame[..], b"garbage"].concat()).is_err());
}

/// Each of these stops Java's readers, with an exception or in the middle.
#[test]
fn framings_that_no_java_client_reads_are_refused() {
    let block = snappy_raw(b"abcde");
    let framed = [&u32::try_from(block.len()).expect("small").to_be_bytes(), &block[..]].concat();
    let head = |version: u8| [&b"\x82SNAPPY\0\0\0\0"[..], &[version], b"\0\0\0\x01"].concat();
    let later_version = [&head(1)[..], &framed, &head(0), &framed].concat();
    let first_version = [&head(0)[..], &framed, &head(1), &framed].concat();
    assert!(decompressed(Compression::Snappy, &first_version).as_ref() == Ok(&b"abcdeabcde".to_vec()));
    let many_heads = [&head(1).repeat(2000)[..], &framed].concat();
    let many_members = [gzip(b"").repeat(2000), gzip(b"abcde")].concat();
    for (compression, payload) in [
        (Compression::Snappy, &later_version),
        (Compression::Snappy, &many_heads),
        (Compression::Gzip, &many_members),
    ] {
        assert!(decompressed(compression, payload).is_err(), "{compression}: {} bytes", payload.len());
    }
}

#[test]
fn lz4_damage_under_a_checksum_is_noticed() {
    let frame = lz4(FrameInfo::new().block_checksums(true), &text());
    for at in [4, 5, 6, 100] {
        let mut damaged = frame.clone();
        damaged[at] ^= 1;
        let error = decompressed(Compression::Lz4, &damaged).expect_err("damaged");
        assert!(matches!(error, DecompressError::Corrupt(_)), "byte {at}: {error}");
    }
    let without_end = &frame[..frame.len() - 4];
    assert!(matches!(decompressed(Compression::Lz4, without_end), Err(DecompressError::Corrupt(_))));
}

#[test]
fn zstd_frames_one_after_another_are_one_stream() {
    let text = text();
    let (head, tail) = text.split_at(1000);
    assert!(decompressed(Compression::Zstd, &[zstd(head), zstd(tail)].concat()).as_ref() == Ok(&text));
    let frame = zstd(&text);
    assert!(matches!(
        decompressed(Compression::Zstd, &frame[..frame.len() - 1]),
        Err(DecompressError::Corrupt(_))
    ));
    // Level 22 requests a window of 128 MiB if the size is unknown, as in Java's streams.
    let mut encoder = zstd::Encoder::new(Vec::new(), 22).expect("a known level");
    encoder.write_all(&text).expect("memory takes all");
    let frame = encoder.finish().expect("memory takes all");
    assert!(decompressed(Compression::Zstd, &frame).as_ref() == Ok(&text));
}

#[test]
fn no_bytes_are_no_stream() {
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let error = decompressed(compression, &[]).expect_err("nothing is there");
        assert!(matches!(error, DecompressError::Corrupt(_)), "{error}");
    }
}

#[test]
fn the_limit_is_exact_and_bounds_the_memory() {
    let size = 1_000_000;
    let bytes = pattern(size);
    let large = FrameInfo::new().block_size(BlockSize::Max4MB);
    let payloads = [
        (Compression::Gzip, gzip(&bytes)),
        (Compression::Snappy, snappy_raw(&bytes)),
        (Compression::Lz4, lz4(FrameInfo::new(), &bytes)),
        (Compression::Lz4, lz4(large, &bytes)),
        (Compression::Zstd, zstd(&bytes)),
    ];
    for (compression, payload) in &payloads {
        let mut buffer = DecompressBuffer::new(size);
        assert!(buffer.decompress(*compression, payload) == Ok(&bytes[..]), "{compression}");
        assert!(buffer.capacity() <= size, "{compression} took {}", buffer.capacity());
        for limit in [0, 1, 65_536, 131_072, size - 1] {
            let mut buffer = DecompressBuffer::new(limit);
            let error = buffer.decompress(*compression, payload).expect_err("too large");
            let DecompressError::TooLarge(error) = error else { panic!("{compression} at {limit}: {error}") };
            assert_eq!(error.limit_bytes, limit);
            assert!(buffer.capacity() <= limit, "{compression} took {} of {limit}", buffer.capacity());
        }
    }
}

#[test]
fn a_block_that_claims_the_moon_costs_nothing() {
    // A raw block of snappy begins with its decompressed size: here 2 GiB, in six bytes.
    let mut buffer = DecompressBuffer::default();
    let claim = [0x80, 0x80, 0x80, 0x80, 0x08, 0x00];
    assert!(matches!(buffer.decompress(Compression::Snappy, &claim), Err(DecompressError::Corrupt(_))));
    assert_eq!(buffer.capacity(), 0);
    // Blocks of up to 4 MiB, of which one has a single byte.
    let head = &lz4(FrameInfo::new().block_size(BlockSize::Max4MB), b"x")[..7];
    let claim = [head, &[1, 0, 0, 0, 0xff]].concat();
    assert!(matches!(buffer.decompress(Compression::Lz4, &claim), Err(DecompressError::Corrupt(_))));
    assert!(buffer.capacity() < 1000);
}

#[test]
fn a_buffer_gives_its_memory_back() {
    let mut buffer = DecompressBuffer::default();
    buffer.decompress(Compression::Zstd, &zstd(&pattern(1_000_000))).expect("readable");
    assert!(buffer.capacity() >= 1_000_000);
    buffer.shrink_to(4096);
    assert!(buffer.capacity() <= 4096);
}
