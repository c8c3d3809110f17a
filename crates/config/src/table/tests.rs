//! The table against the facts of Kafka 4.3.1 in `tests/golden/config-keys.txt`.

use super::*;
use crate::key::Unit;
use crate::value::Value;

const GOLDEN: &str = include_str!("../../tests/golden/config-keys.txt");

fn golden(kind: &str) -> Vec<Vec<&'static str>> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect());
    lines.filter(|fields: &Vec<&str>| fields[0] == kind).collect()
}

/// The golden line of a key with our facts.
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
            // Default and update mode may differ, with a reason in the table; all other facts must be equal.
            for at in [2, 3] {
                ours[at].clone_from(&theirs[at]);
            }
        }
        theirs[2] = theirs[2].replace("<none>", "null");
        ours[2] = ours[2].replace("<none>", "null");
        assert_eq!(ours, theirs);
    }
    let own = || {
        [
            own::HTTP,
            own::CONSOLE,
            own::STREAMS,
            own::PRODUCE,
            own::REVOCATION,
            own::AUDIT,
            own::DIRECTORIES,
            own::LOG_LINES,
            metrics::METRICS,
            access::STANDARD_AUTHORIZER,
        ]
        .into_iter()
        .flat_map(|family| family.keys)
    };
    for key in own() {
        assert!(golden.iter().all(|line| line[1] != key.name), "{} is a key of Kafka's", key.name);
        assert!(key.differs.is_some(), "{} needs `differs`", key.name);
    }
    let ours = own().count();
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
    let own = EffectiveTopicConfig::validates_records.name();
    assert!(golden.iter().all(|line| line[1] != own), "{own} is a key of Kafka's");
    assert_eq!(topic_keys().len(), golden.len() + 1, "a key that Kafka does not have");
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
fn the_unit_is_that_of_the_name() {
    const SUFFIXES: [(&str, Unit); 9] = [
        (".ms", Unit::Ms),
        (".millis", Unit::Ms),
        (".seconds", Unit::Seconds),
        (".secs", Unit::Seconds),
        (".minutes", Unit::Minutes),
        (".hours", Unit::Hours),
        (".bytes.per.second", Unit::BytesPerSecond),
        ("bytes", Unit::Bytes),
        (".buffer.size", Unit::Bytes),
    ];
    for key in every_key() {
        let said = SUFFIXES.iter().find(|(suffix, _)| key.name.ends_with(suffix));
        if let Some((_, unit)) = said {
            assert_eq!(key.unit, *unit, "{}", key.name);
        }
    }
}

#[test]
fn bounds_are_keys_of_the_broker() {
    for key in broker_keys() {
        for name in [key.within.0, key.within.1].into_iter().flatten() {
            assert!(broker_key(name).is_some(), "{name}");
        }
    }
}

#[test]
fn keys_of_groups_have_the_bounds_of_the_brokers_keys() {
    let session = EffectiveGroupConfig::share_session_timeout_ms.name();
    let bounds = bounds(group_key(session).expect("a group key"));
    let (min, max) = (ShareGroupKeys::min_session_timeout_ms, ShareGroupKeys::max_session_timeout_ms);
    assert_eq!(bounds, (Some(min.name()), Some(max.name())));
    for key in group_keys().iter().chain(topic_keys()) {
        assert_eq!(key.within, (None, None), "{}: only the broker's key has bounds", key.name);
    }
}

#[test]
fn every_key_is_documented() {
    for key in every_key() {
        assert!(key.documentation.ends_with('.') && key.documentation.len() > 10, "{}", key.name);
    }
}
