//! The table against the facts of Kafka 4.3.1 in `tests/golden/config-keys.txt`.

use super::super::value::Value;
use super::*;

const GOLDEN: &str = include_str!("../../tests/golden/config-keys.txt");

fn golden(kind: &str) -> Vec<Vec<&'static str>> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect());
    lines.filter(|fields: &Vec<&str>| fields[0] == kind).collect()
}

/// A golden line of a key, with our facts.
fn facts(key: &ConfigKey, fourth: String) -> Vec<String> {
    let importance = format!("{:?}", key.importance).to_uppercase();
    let visibility = if key.internal { "internal" } else { "public" };
    let default = key.default.unwrap_or("null");
    [key.name, key.config_type.name(), default, &fourth, &importance, &key.check.to_string(), visibility]
        .map(str::to_owned)
        .to_vec()
}

fn every_key() -> impl Iterator<Item = &'static ConfigKey> {
    [broker_keys(), topic_keys(), group_keys(), client_metrics_keys()].into_iter().flatten().copied()
}

#[test]
fn every_broker_key_of_kafka_is_in_the_table() {
    let golden = golden("broker");
    assert_eq!(golden.len(), 363);
    for line in &golden {
        let key = broker_key(line[1]).unwrap_or_else(|| panic!("{} is missing", line[1]));
        let mut ours = facts(key, key.update_mode.name().to_owned());
        let mut theirs: Vec<_> = line[1..].iter().map(|field| (*field).to_owned()).collect();
        if theirs[2] == "<none>" {
            assert!(key.differs.is_some(), "{}: Kafka has no default", key.name);
        }
        if key.differs.is_some() {
            assert_ne!(ours, theirs, "{} does not differ", key.name);
            // Default and update mode may differ, with the reason in the table; nothing else may.
            for at in [2, 3] {
                ours[at].clone_from(&theirs[at]);
            }
        }
        theirs[2] = theirs[2].replace("<none>", "null");
        ours[2] = ours[2].replace("<none>", "null");
        assert_eq!(ours, theirs);
    }
    for key in own::OWN_KEYS.keys {
        assert!(golden.iter().all(|line| line[1] != key.name), "{} is a key of Kafka's", key.name);
        assert!(key.differs.is_some(), "{} is not told as ours", key.name);
    }
    let ours = own::OWN_KEYS.keys.len();
    assert_eq!(broker_keys().len(), golden.len() + ours, "a key that Kafka does not have");
}

#[test]
fn every_topic_key_of_kafka_is_in_the_table() {
    let golden = golden("topic");
    assert_eq!(golden.len(), 34);
    for line in &golden {
        let key = topic_key(line[1]).unwrap_or_else(|| panic!("{} is missing", line[1]));
        let falls_back = key.falls_back.iter().map(|(name, factor)| match factor {
            1 => (*name).to_owned(),
            _ => format!("{name}*{factor}"),
        });
        assert_eq!(facts(key, falls_back.collect::<Vec<_>>().join(",")), line[1..]);
    }
    for key in own::OWN_TOPIC_KEYS.keys {
        assert!(golden.iter().all(|line| line[1] != key.name), "{} is a key of Kafka's", key.name);
    }
    let ours = own::OWN_TOPIC_KEYS.keys.len();
    assert_eq!(topic_keys().len(), golden.len() + ours, "a key that Kafka does not have");
}

#[test]
fn every_key_of_groups_and_client_metrics_is_in_the_tables() {
    for (kind, keys) in [("group", group_keys()), ("client-metrics", client_metrics_keys())] {
        let golden = golden(kind);
        assert_eq!(golden.len(), keys.len(), "{kind}");
        for (line, key) in golden.iter().zip(keys) {
            let falls_back: Vec<_> = key.falls_back.iter().map(|(name, _)| *name).collect();
            assert_eq!(facts(key, falls_back.join(",")), line[1..]);
        }
    }
}

#[test]
fn defaults_pass_their_own_checks() {
    for key in every_key() {
        for text in [key.default, key.default_in_quorum].into_iter().flatten() {
            let value = Value::parse(key, text).unwrap_or_else(|error| panic!("{error}"));
            if !key.is_sensitive() {
                assert_eq!(value.to_string(), text, "{}", key.name);
            }
        }
    }
}

#[test]
fn fallbacks_are_keys_of_the_broker() {
    for key in topic_keys().iter().chain(group_keys()) {
        for (name, _) in key.falls_back {
            assert!(broker_key(name).is_some(), "{name}");
        }
    }
}

#[test]
fn every_key_is_documented() {
    for key in every_key() {
        assert!(key.documentation.ends_with('.') && key.documentation.len() > 10, "{}", key.name);
    }
}
