//! Distinguished names and mapping rules, compared with Java's and Kafka's own classes on random input.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use thalweg_security::{PrincipalMapping, distinguished_name};

use crate::der::element;
use crate::java::{answers, hex};

const IDS: [&[u8]; 16] = [
    &[0x55, 4, 3],
    &[0x55, 4, 6],
    &[0x55, 4, 7],
    &[0x55, 4, 8],
    &[0x55, 4, 9],
    &[0x55, 4, 10],
    &[0x55, 4, 11],
    &[0x55, 4, 5],
    &[0x55, 4, 12],
    &[0x55, 4, 4],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
    &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
    &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
    &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3],
    &[0x88, 0x37, 3],
    &[0x2a, 3, 4],
];

fn name(random: &mut StdRng) -> Vec<u8> {
    const CHARACTERS: &[char] = &[
        'a', 'Z', '0', ' ', ' ', ',', '=', '+', '<', '>', '#', ';', '"', '\\', '\'', '/', ':', '.', '-', '(',
        'ä', '€', '中', '😀', '\n', '\r', '\t', '\0', '@', '*', '_', '&', '!', '\u{a0}',
    ];
    let mut sets = Vec::new();
    for _ in 0..random.random_range(0..6) {
        let mut pairs = Vec::new();
        for _ in 0..if random.random_bool(0.15) { random.random_range(2..4) } else { 1 } {
            let plain = random.random_bool(0.4);
            let length = if random.random_bool(0.02) { 200 } else { random.random_range(0..12) };
            let text: String = (0..length)
                .map(|_| if plain { 'a' } else { *CHARACTERS.choose(random).expect("some") })
                .collect();
            let tag = *[12, 12, 12, 19, 19, 22, 20, 27, 30, 28, 18, 26, 2].choose(random).expect("some");
            let content = match tag {
                30 => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
                28 => text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect(),
                2 => vec![random.random_range(0..100)],
                _ => text.into_bytes(),
            };
            let id = element(6, IDS.choose(random).expect("some"));
            pairs.extend(element(0x30, &[id, element(tag, &content)].concat()));
        }
        sets.extend(element(0x31, &pairs));
    }
    element(0x30, &sets)
}

#[test]
fn distinguished_names_are_written_as_java_writes_them() {
    let mut random = StdRng::seed_from_u64(14);
    let names: Vec<Vec<u8>> = (0..20_000).map(|_| name(&mut random)).collect();
    let lines: Vec<String> = names.iter().map(|der| format!("D {}", hex(der))).collect();
    let Some(answers) = answers("Names.java", &lines) else { return };
    assert_eq!(answers.len(), names.len());
    let mut compared = 0;
    for (der, theirs) in names.iter().zip(answers) {
        let Some(theirs) = theirs.strip_prefix('=') else { continue };
        assert_eq!(distinguished_name(der).as_deref(), Some(theirs), "{}", hex(der));
        compared += 1;
    }
    assert!(compared > 15_000, "{compared}");
}

#[test]
fn malformed_names_are_no_panic() {
    let mut random = StdRng::seed_from_u64(15);
    for _ in 0..20_000 {
        let mut der = name(&mut random);
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..der.len());
            der[at] = random.random();
        }
        der.truncate(random.random_range(0..=der.len()));
        distinguished_name(&der);
    }
}

#[test]
fn mapping_rules_give_the_users_that_kafka_gives() {
    const PATTERNS: &[&str] = &[
        "^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$",
        "^CN=(.*?),.*$",
        "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$",
        "CN=(\\w+)(,.*)?",
        "(a)|(b)|.*",
        ".*",
        "x*",
        "[^,]*",
        "CN=(?<user>[^,]+).*",
        "^CN=(.*)\\/(.*),.*$",
        "^UID=([a-z]*)$",
        "(?i)cn=(.).*",
        "",
        "CN=(.*?)(?:,O=(.*))?",
    ];
    const REPLACEMENTS: &[&str] = &[
        "$1", "$2", "$1@$2", "$0", "$9", "$12", "x", "", "\\$1", "\\\\$1", "${user}", "$", "a\\/b$1", "$1$1",
        "\\",
    ];
    const TAILS: &[&str] = &["", "L", "U", "l", "LU", " "];
    const NAMES: &[&str] = &[
        "CN=Ann,OU=Dev,O=Org,L=Town,ST=State,C=US",
        "CN=ann",
        "CN=ann.b,O=Ä",
        "OU=x",
        "",
        "UID=abc",
        "CN=host/part,O=x",
        "CN=a\\, b,O=c",
        "cn=İI,O=ß",
    ];
    let mut random = StdRng::seed_from_u64(16);
    let mut cases = Vec::new();
    for _ in 0..4_000 {
        let rules: Vec<String> = (0..random.random_range(1..4))
            .map(|_| match random.random_range(0..12) {
                0 => "DEFAULT".to_owned(),
                1 => String::new(),
                2 => "default".to_owned(),
                _ => {
                    let mut part = |from: &[&str]| (*from.choose(&mut random).expect("some")).to_owned();
                    format!("RULE:{}/{}/{}", part(PATTERNS), part(REPLACEMENTS), part(TAILS))
                }
            })
            .collect();
        let separator = *[",", ", ", " , "].choose(&mut random).expect("some");
        cases.push((rules.join(separator), *NAMES.choose(&mut random).expect("some")));
    }
    let lines: Vec<String> = cases
        .iter()
        .map(|(rules, name)| format!("M {} {}", hex(rules.as_bytes()), hex(name.as_bytes())))
        .collect();
    let Some(answers) = answers("Names.java", &lines) else { return };
    assert_eq!(answers.len(), cases.len());
    let (mut mapped, mut wrong) = (0, Vec::new());
    for ((rules, name), theirs) in cases.iter().zip(answers) {
        let ours = match PrincipalMapping::parse(rules) {
            Err(_) => "?".to_owned(),
            Ok(mapping) => mapping.name(name).map_or_else(|_| "!".to_owned(), |user| format!("={user}")),
        };
        mapped += usize::from(ours.starts_with('='));
        // A replacement that cannot be used is found at the start here, and in Kafka when its pattern first
        // matches.
        if ours != theirs && ours != "?" {
            wrong.push(format!("{rules} of {name}: {ours}, Kafka {theirs}"));
        }
        if ours == "?" && theirs != "?" && !has_unusable_replacement(rules) {
            wrong.push(format!("{rules} is refused, Kafka {theirs}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(mapped > 500, "{mapped}");
}

/// Whether a rule has a replacement that some pattern cannot have.
fn has_unusable_replacement(rules: &str) -> bool {
    ["$9", "$12", "$2", "$1", "${user}", "/$/", "/\\/"].iter().any(|part| rules.contains(part))
}
