//! Truncated and corrupted messages, and wrong lengths: rejected or read as something else, never a panic,
//! and never more memory than a small multiple of the input.
//!
//! The inputs are Kafka's golden bytes under seeded damage, so a failure repeats. `THALWEG_FUZZ_ROUNDS`
//! multiplies the number of random inputs for a longer run.

use crate::golden::{Entry, entries};
use allocation_counter::measure;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use thalweg_wire::registry;

/// Maximum memory per byte of a message while it is decoded and encoded again. Small structs and strings cost
/// the most: a compact string of no letters is one byte on the wire and 24 in memory.
const MEMORY_PER_BYTE: u64 = 64;

/// Maximum memory of any message: one element of each array, the fields of the message, the output buffer.
const MEMORY_ANYWAY: u64 = 2048;

/// Reads a message as the broker would and writes it again: `None` where it was refused, and the memory it
/// took.
fn feed_and_measure(name: &str, version: i16, input: &[u8]) -> (Option<Vec<u8>>, u64) {
    let bytes = Bytes::copy_from_slice(input);
    let mut answer = None;
    let memory = measure(|| answer = registry::roundtrip(name, version, bytes)).bytes_max;
    let most = MEMORY_PER_BYTE * input.len() as u64 + MEMORY_ANYWAY;
    assert!(
        memory <= most,
        "{name} version {version}: {memory} bytes of memory for {} bytes, which begin {:02x?}",
        input.len(),
        &input[..input.len().min(200)]
    );
    (answer.expect("golden messages are known").ok(), memory)
}

fn feed(name: &str, version: i16, input: &[u8]) -> Option<Vec<u8>> {
    feed_and_measure(name, version, input).0
}

/// Accepted input is written in a form that decodes to the same message.
fn feed_and_check(name: &str, version: i16, input: &[u8]) {
    if let Some(once) = feed(name, version, input) {
        let twice = feed(name, version, &once);
        assert_eq!(twice.as_ref(), Some(&once), "{name} version {version} changes again: {input:02x?}");
    }
}

fn rounds() -> usize {
    let factor = std::env::var("THALWEG_FUZZ_ROUNDS").ok();
    factor.map_or(1, |factor| factor.parse().expect("THALWEG_FUZZ_ROUNDS is a number"))
}

/// Every (message, version) once, with the sample that fills the most.
fn versions() -> impl Iterator<Item = &'static Entry> {
    entries().iter().filter(|entry| entry.sample == 1)
}

#[test]
fn a_message_cut_short_anywhere_is_refused() {
    for Entry { name, version, sample, bytes } in entries() {
        for len in 0..bytes.len() {
            let answer = feed(name, *version, &bytes[..len]);
            assert!(
                answer.is_none(),
                "{name} version {version} sample {sample}: {len} of {} bytes",
                bytes.len()
            );
        }
    }
}

#[test]
fn bytes_behind_a_message_are_refused() {
    for Entry { name, version, sample, bytes } in entries() {
        for behind in [0x00, 0x01, 0xff] {
            let input = [bytes, &[behind][..]].concat();
            assert!(feed(name, *version, &input).is_none(), "{name} version {version} sample {sample}");
        }
    }
}

#[test]
fn flipped_bits_are_refused_or_read_as_something_else() {
    let mut random = SmallRng::seed_from_u64(1);
    for Entry { name, version, bytes, .. } in entries().iter().filter(|entry| !entry.bytes.is_empty()) {
        for _ in 0..50 * rounds() {
            let mut input = bytes.to_vec();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..input.len());
                input[at] ^= 1 << random.random_range(0..8);
            }
            feed_and_check(name, *version, &input);
        }
    }
}

#[test]
fn pieces_that_are_moved_repeated_or_removed_do_no_harm() {
    let mut random = SmallRng::seed_from_u64(2);
    for Entry { name, version, bytes, .. } in entries().iter().filter(|entry| !entry.bytes.is_empty()) {
        for _ in 0..50 * rounds() {
            let mut input = bytes.to_vec();
            let from = random.random_range(0..input.len());
            let piece: Vec<u8> = input[from..].iter().copied().take(random.random_range(1..16)).collect();
            if random.random() {
                input.drain(from..from + piece.len());
            }
            let to = random.random_range(0..=input.len());
            input.splice(to..to, piece);
            feed_and_check(name, *version, &input);
        }
    }
}

#[test]
fn noise_does_no_harm() {
    let mut random = SmallRng::seed_from_u64(3);
    for Entry { name, version, .. } in versions() {
        for _ in 0..50 * rounds() {
            let mut input = vec![0; random.random_range(0..200)];
            // Small values are lengths that can be true, so they lead deeper than even noise would.
            let most = *[1, 2, 3, 16, 255].get(random.random_range(0..5)).expect("five of them");
            input.iter_mut().for_each(|byte| *byte = random.random_range(0..=most));
            feed_and_check(name, *version, &input);
        }
    }
}

/// Lengths and counts that no message holds, in each form that a length has on the wire: four bytes, two
/// bytes, varint.
const LIES: [&[u8]; 8] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x00, 0x10, 0x00, 0x00],
    &[0x7f, 0xff],
    &[0x80, 0x00],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0x80, 0x80, 0x80, 0x80, 0x08],
];

#[test]
fn a_length_that_lies_costs_nothing_wherever_it_stands() {
    for Entry { name, version, bytes, .. } in versions() {
        // Lengths are at the start of messages and of their arrays; a long message repeats itself.
        for at in 0..bytes.len().min(96) {
            for lie in LIES {
                let end = (at + lie.len()).min(bytes.len());
                let input = [&bytes[..at], lie, &bytes[end..]].concat();
                feed_and_check(name, *version, &input);
                // A varint replaces one byte.
                let input = [&bytes[..at], lie, &bytes[at + 1..]].concat();
                feed_and_check(name, *version, &input);
            }
        }
    }
}

/// Counts that are true, or nearly so, of the smallest elements that there are: a byte cannot cost more than
/// here.
#[test]
fn many_small_elements_cost_a_small_multiple_of_their_bytes() {
    const COUNT: u16 = 1000;
    let [high, low] = COUNT.to_be_bytes();
    // As four bytes, and as a varint of one more.
    let counts: [&[u8]; 2] = [&[0, 0, high, low], &[((low & 0x7f) + 1) | 0x80, 7]];
    let mut costly = BTreeSet::new();
    for Entry { name, version, bytes, .. } in versions() {
        for at in 0..bytes.len().min(32) {
            for count in counts {
                for (element, size) in [(0, 1), (0, 2), (0, 3), (0, 4), (0, 6), (0, 12), (1, 2), (1, 4)] {
                    let elements = vec![element; usize::from(COUNT) * size];
                    let input = [&bytes[..at], count, &elements].concat();
                    let (_, memory) = feed_and_measure(name, *version, &input);
                    if memory >= 8 * u64::from(COUNT) {
                        costly.insert(name);
                    }
                }
            }
        }
    }
    // Most messages have an array near their start: were it missed, this would prove nothing.
    assert!(costly.len() > 100, "only {} messages were made to hold {COUNT} elements", costly.len());
}

#[test]
fn a_count_of_two_billion_in_twenty_bytes_is_refused() {
    let lie = [0x7f, 0xff, 0xff, 0xff];
    // Non-flexible: the count of topics, of partitions, of coordinator keys is at a known position.
    let metadata = [&lie[..], &[0; 16]].concat();
    let delete_topics = [&lie[..], &[0; 16]].concat();
    let produce = [&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], &lie, &[0; 8]].concat();
    // Flexible: a varint of 2^31 and more elements.
    let varint = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let flexible_metadata = [&varint[..], &[0; 15]].concat();
    for (name, version, input) in [
        ("MetadataRequest", 1, metadata),
        ("DeleteTopicsRequest", 1, delete_topics),
        ("ProduceRequest", 3, produce),
        ("MetadataRequest", 12, flexible_metadata),
    ] {
        let bytes = Bytes::from(input);
        let memory = measure(|| {
            let answer = registry::roundtrip(name, version, bytes).expect("is known");
            assert!(answer.is_err(), "{name} version {version}");
        });
        assert!(memory.bytes_max < 1024, "{name} version {version}: {} bytes of memory", memory.bytes_max);
    }
}

#[test]
fn arrays_have_a_bound_in_all() {
    use thalweg_wire::request::MetadataRequest;
    use thalweg_wire::request::metadata_request::MetadataRequestTopic;
    use thalweg_wire::{DecodeProblem, Decoder, Message};
    let request =
        MetadataRequest { topics: Some(vec![MetadataRequestTopic::default(); 5]), ..Default::default() };
    let bytes = request.to_bytes(9).expect("it fits");
    let decode = |max| MetadataRequest::decode(&mut Decoder::new(bytes.clone()).with_elements_max(max), 9);
    assert_eq!(decode(5).expect("as many as may be"), request);
    let refused = decode(4).expect_err("one too many");
    assert_eq!(refused.problem, DecodeProblem::Elements { max: 4 });
}

#[test]
fn tagged_fields_have_the_same_bound() {
    use thalweg_wire::data::RequestHeader;
    use thalweg_wire::{DecodeProblem, Decoder, Message};
    // A header without a client's name, and five unknown empty fields.
    let mut bytes = vec![0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 5];
    bytes.extend([77, 0].repeat(5));
    let decode =
        |max| RequestHeader::decode(&mut Decoder::new(Bytes::from(bytes.clone())).with_elements_max(max), 2);
    assert_eq!(decode(5).expect("as many as may be").correlation_id, 1);
    let refused = decode(4).expect_err("one too many");
    assert_eq!(refused.problem, DecodeProblem::Elements { max: 4 });
}
