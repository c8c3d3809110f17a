//! Every message at every version as Apache Kafka's own classes write it: decoded by the generated code,
//! encoded again, the bytes must be the same. Then the same message at other versions: missing fields, their
//! defaults, and refusals.
//!
//! `tests/golden/GoldenWriter.java` writes the files and documents their form. To update them: `java -cp
//! "$(compat/kafka-jars/fetch)" crates/wire/tests/golden/GoldenWriter.java crates/wire/tests/golden`

use crate::{kafka_classpath, schema};
use bytes::{Buf, Bytes};
use flate2::read::GzDecoder;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use thalweg_wire::{RegistryError, registry};

const MESSAGES: &[u8] = include_bytes!("../golden/messages.bin.gz");
const CONVERSIONS: &[u8] = include_bytes!("../golden/conversions.bin.gz");

const SAMPLE_DEFAULT: u8 = 0;
const SAMPLE_FULL: u8 = 1;
const SAMPLE_UNKNOWN_TAGS: u8 = 4;

/// One message as Kafka writes it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub version: i16,
    /// 0: defaults, 1: random with all set, 2 and 3: random, 4: as 1 and with unknown tagged fields.
    pub sample: u8,
    pub bytes: Bytes,
}

/// All entries of the committed file.
pub fn entries() -> &'static [Entry] {
    static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| parse(Bytes::from(unzip(MESSAGES))));
    &ENTRIES
}

fn unzip(compressed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(compressed).read_to_end(&mut plain).expect("a golden file is a whole gzip stream");
    plain
}

fn parse(mut rest: Bytes) -> Vec<Entry> {
    let mut entries = Vec::new();
    while rest.has_remaining() {
        let name = parse_name(&mut rest);
        let (version, sample) = (rest.get_i16(), rest.get_u8());
        entries.push(Entry { name, version, sample, bytes: parse_bytes(&mut rest) });
    }
    entries
}

fn parse_name(rest: &mut Bytes) -> String {
    let len = usize::from(rest.get_u8());
    String::from_utf8(rest.split_to(len).to_vec()).expect("names are UTF-8")
}

fn parse_bytes(rest: &mut Bytes) -> Bytes {
    let len = rest.get_u32();
    rest.split_to(usize::try_from(len).expect("entries are small"))
}

/// The complaints, a few of them in full: a fault of the generator shows in hundreds of messages.
fn report(complaints: &[String]) -> String {
    let shown = complaints.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    format!("{} complaints, the first:\n{shown}", complaints.len())
}

fn check(entry: &Entry, expected: &Bytes) -> Result<(), String> {
    let Entry { name, version, sample, bytes } = entry;
    let what = format!("{name} version {version} sample {sample}");
    compare(&what, registry::roundtrip(name, *version, bytes.clone()), expected)
}

fn compare(what: &str, ours: Option<Result<Vec<u8>, RegistryError>>, expected: &Bytes) -> Result<(), String> {
    match ours {
        None => Err(format!("{what}: is not known")),
        Some(Err(error)) => Err(format!("{what}: {error}\n  Kafka {:02x?}", &expected[..])),
        Some(Ok(ours)) if ours != *expected => {
            let at = ours.iter().zip(expected.iter()).take_while(|(a, b)| a == b).count();
            Err(format!("{what}: differs at byte {at}\n  Kafka {:02x?}\n  ours  {ours:02x?}", &expected[..]))
        }
        Some(Ok(_)) => Ok(()),
    }
}

#[test]
fn what_kafka_writes_is_read_and_written_again_unchanged() {
    let complaints: Vec<String> = entries()
        .iter()
        .filter(|entry| entry.sample != SAMPLE_UNKNOWN_TAGS)
        .filter_map(|entry| check(entry, &entry.bytes).err())
        .collect();
    assert!(complaints.is_empty(), "{}", report(&complaints));
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    let full: BTreeMap<_, _> = entries()
        .iter()
        .filter(|entry| entry.sample == SAMPLE_FULL)
        .map(|entry| ((entry.name.as_str(), entry.version), &entry.bytes))
        .collect();
    let complaints: Vec<String> = entries()
        .iter()
        .filter(|entry| entry.sample == SAMPLE_UNKNOWN_TAGS)
        .filter_map(|entry| check(entry, full[&(entry.name.as_str(), entry.version)]).err())
        .collect();
    assert!(complaints.is_empty(), "{}", report(&complaints));
}

#[test]
fn defaults_are_kafkas() {
    let complaints: Vec<String> = entries()
        .iter()
        .filter(|entry| entry.sample == SAMPLE_DEFAULT)
        .filter_map(|Entry { name, version, bytes, .. }| {
            let what = format!("{name} version {version}");
            compare(&what, registry::default_bytes(name, *version), bytes).err()
        })
        .collect();
    assert!(complaints.is_empty(), "{}", report(&complaints));
}

/// A field that a version lacks is at its default after reading, and is left out or refused in writing, as in
/// Kafka.
#[test]
fn other_versions_write_or_refuse_what_kafka_writes_or_refuses() {
    let messages: BTreeMap<_, _> = entries()
        .iter()
        .map(|entry| ((entry.name.as_str(), entry.version, entry.sample), &entry.bytes))
        .collect();
    let mut rest = Bytes::from(unzip(CONVERSIONS));
    let mut complaints = Vec::new();
    while rest.has_remaining() {
        let name = parse_name(&mut rest);
        let (from, sample, to, written) = (rest.get_i16(), rest.get_u8(), rest.get_i16(), rest.get_u8() == 1);
        let expected = parse_bytes(&mut rest);
        let what = format!("{name} sample {sample} from version {from} to {to}");
        match registry::convert(&name, from, messages[&(name.as_str(), from, sample)].clone(), to) {
            Some(Err(RegistryError::Encode(_))) if !written => {}
            Some(Ok(ours)) if !written => {
                complaints.push(format!("{what}: Kafka refuses\n  ours  {ours:02x?}"))
            }
            ours => complaints.extend(compare(&what, ours, &expected).err()),
        }
    }
    assert!(complaints.is_empty(), "{}", report(&complaints));
}

#[test]
fn the_schema_and_kafka_have_the_same_messages_and_versions() {
    let ours: BTreeSet<(String, i16)> = schema::ours()
        .into_iter()
        .flat_map(|message| message.versions().map(move |version| (message.name.clone(), version)))
        .collect();
    let kafkas: BTreeSet<(String, i16)> =
        entries().iter().map(|entry| (entry.name.clone(), entry.version)).collect();
    let only_ours: Vec<_> = ours.difference(&kafkas).collect();
    let only_kafkas: Vec<_> = kafkas.difference(&ours).collect();
    assert!(
        only_ours.is_empty() && only_kafkas.is_empty(),
        "only ours: {only_ours:?}\nonly Kafka's: {only_kafkas:?}"
    );
}

#[test]
fn versions_beside_those_that_kafka_serves_are_not_known() {
    let mut range: BTreeMap<&str, (i16, i16)> = BTreeMap::new();
    for Entry { name, version, .. } in entries() {
        let (low, high) = range.entry(name).or_insert((*version, *version));
        *low = (*low).min(*version);
        *high = (*high).max(*version);
    }
    for (name, (low, high)) in range {
        for version in [low - 1, high + 1] {
            let answer = registry::roundtrip(name, version, Bytes::new());
            assert!(!matches!(answer, Some(Ok(_))), "{name} version {version} is served");
        }
    }
    assert!(registry::roundtrip("NoSuchRequest", 0, Bytes::new()).is_none());
}

#[test]
fn the_committed_bytes_are_what_kafka_writes_today() {
    let Some(classpath) = kafka_classpath("freshness of the golden bytes") else { return };
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden");
    let status = Command::new("java")
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &classpath])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/GoldenWriter.java"))
        .arg(&out)
        .status()
        .expect("java is needed where KAFKA_CLASSPATH is set");
    assert!(status.success(), "GoldenWriter: {status}");
    let read = |name: &str| std::fs::read(out.join(name)).expect("GoldenWriter says that it wrote the file");
    // The compressed form depends on the zlib that the JDK brings.
    assert!(unzip(&read("messages.bin.gz")) == unzip(MESSAGES), "messages.bin.gz is stale: write it anew");
    assert!(
        unzip(&read("conversions.bin.gz")) == unzip(CONVERSIONS),
        "conversions.bin.gz is stale: write it anew"
    );
    let tables = include_bytes!("../golden/tables.txt");
    assert!(read("tables.txt") == tables, "tables.txt is stale: write it anew");
}

#[test]
fn every_version_has_its_samples() {
    for Entry { name, version, sample, .. } in entries() {
        assert!((SAMPLE_DEFAULT..=SAMPLE_UNKNOWN_TAGS).contains(sample), "{name} {version}: sample {sample}");
    }
    let versions = entries().iter().filter(|entry| entry.sample == SAMPLE_DEFAULT).count();
    let fulls = entries().iter().filter(|entry| entry.sample == SAMPLE_FULL).count();
    assert_eq!(versions, fulls);
}
