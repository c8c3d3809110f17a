//! Compares generated tables with Kafka's: error codes, and for each API its key, its versions, the versions
//! of its headers, and its listeners. `GoldenWriter.java` writes `tests/golden/tables.txt`.

use std::collections::BTreeMap;
use thalweg_wire::frame::{request_header_version, response_header_version};
use thalweg_wire::{ApiKey, ErrorCode};

const TABLES: &str = include_str!("../golden/tables.txt");

/// The words of each line of one kind, without the kind.
fn lines(kind: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    TABLES.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter_map(move |words| {
        let (first, rest) = words.split_first().expect("no line is empty");
        (*first == kind).then(|| rest.to_vec())
    })
}

fn codes(list: &str) -> Vec<i16> {
    list.split(',').map(|code| code.parse().expect("a number")).collect()
}

#[test]
fn error_codes_have_kafkas_numbers_and_names() {
    let mut count = 0;
    for words in lines("error") {
        let code = words[0].parse().expect("a code");
        let ours = ErrorCode::from_i16(code).unwrap_or_else(|| panic!("no error has the code {code}"));
        assert_eq!((ours as i16, ours.name()), (code, words[1]));
        assert_eq!(ours.is_retriable(), words.contains(&"retriable"), "{}", words[1]);
        count += 1;
    }
    let ours = (i16::MIN..=i16::MAX).filter(|code| ErrorCode::from_i16(*code).is_some()).count();
    assert_eq!(ours, count);
}

#[test]
fn apis_have_kafkas_keys_versions_headers_and_listeners() {
    let mut count = 0;
    for words in lines("api") {
        let [key, name, facts @ ..] = words.as_slice() else { panic!("{words:?}") };
        let facts: BTreeMap<&str, &str> =
            facts.iter().map(|fact| fact.split_once('=').unwrap_or((fact, "true"))).collect();
        let api = ApiKey::from_i16(key.parse().expect("a key"))
            .unwrap_or_else(|| panic!("no API has the key {key}"));
        assert_eq!(format!("{api:?}"), *name);
        let (low, high) = api.versions();
        assert_eq!(format!("{low}-{high}"), facts["versions"], "{name}");
        let headers =
            |header: fn(ApiKey, i16) -> i16| (low..=high).map(|v| header(api, v)).collect::<Vec<_>>();
        assert_eq!(headers(request_header_version), codes(facts["request_headers"]), "{name}");
        assert_eq!(headers(response_header_version), codes(facts["response_headers"]), "{name}");
        assert_eq!(api.last_version_is_unstable(), facts.contains_key("unstable"), "{name}");
        let served_by = |listener| facts["listeners"].split(',').any(|other| other == listener);
        assert_eq!(api.on_broker(), served_by("broker"), "{name}");
        assert_eq!(api.on_controller(), served_by("controller"), "{name}");
        count += 1;
    }
    assert_eq!(ApiKey::ALL.len(), count);
    let ours = (i16::MIN..=i16::MAX).filter(|key| ApiKey::from_i16(*key).is_some()).count();
    assert_eq!(ours, count);
}

#[test]
fn the_file_of_error_codes_agrees_with_kafka() {
    let file = include_str!("../../schema/errors.txt");
    let ours: Vec<&str> = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let kafkas: Vec<String> = lines("error").map(|words| words.join(" ")).collect();
    assert_eq!(ours, kafkas);
}
