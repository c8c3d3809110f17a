//! Generates `docs/configuration.md` from the tables.
//!
//! A property is a heading with its facts and its description, not a row: names are too long for columns
//! beside each other, a heading can be linked to, and the site's search finds headings first.

use std::fmt::Write;

use super::key::{ConfigKey, Support, UpdateMode};
use super::table::{self, Family};

/// The whole page.
pub fn configuration_page() -> String {
    let mut page = String::from(INTRODUCTION);
    differences(&mut page);
    page.push_str("\n## Broker configuration\n");
    for family in table::BROKER_FAMILIES {
        served(&mut page, family);
    }
    page.push_str(TOPICS);
    topics(&mut page);
    page.push_str(GROUPS);
    stored(&mut page, table::GROUP_FAMILY);
    page.push_str(CLIENT_METRICS);
    stored(&mut page, table::CLIENT_METRICS_FAMILY);
    page.push_str(WITHOUT_EFFECT);
    without_effect(&mut page);
    page.push_str(UNSERVED);
    unserved(&mut page);
    page
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from the tables in crates/config/src/table by the test `docs_are_fresh`; \
run it with UPDATE_DOCS=1 to update this page. -->

Thalweg is configured by Apache Kafka's properties, with the names, defaults and checks of Kafka 4.3.
`thalweg serve server.properties` reads a Kafka file; `--set key=value` overrides one property, and without a file every
property has its default. At the start, the broker reports all invalid values at once, and logs every
property that is set but has no effect.

The line below a property's name has its type and unit, its default, the valid values, and whether it can change while the broker
runs: never (`read-only`), for one broker (`per-broker`), or for one or all brokers (`cluster-wide`), as with
`kafka-configs --alter`. A property is taken from the first of these places that sets it: the broker's dynamic value, the dynamic
value for all brokers, the file, the default.
Properties of topics are set with `kafka-configs --entity-type topics` or when the topic is created; an unset topic
property follows the broker's.

`1.7976931348623157E308`, `2147483647` and `9223372036854775807` are the largest numbers of their types and mean no limit.

## Where Thalweg differs from Kafka
";

const TOPICS: &str = "
## Topic configuration

A topic property follows the named properties of the broker if the topic does not set its own; the first one that is set counts.
";

const GROUPS: &str = "
## Group configuration

Set with `kafka-configs --entity-type groups`. The values are checked, stored and described as in Kafka.

";

const CLIENT_METRICS: &str = "
## Subscriptions to clients' metrics

Set with `kafka-configs --entity-type client-metrics`. Clients that match send these metrics (KIP-714), and the broker shows them
in `/metrics` as `thalweg_client_telemetry`.
";

const WITHOUT_EFFECT: &str = "
## Accepted without effect

These can be set and are checked, but have nothing to change.

";

const UNSERVED: &str = "
## Not served

These belong to parts of Kafka that Thalweg does not support. A value other than the default, in the file or at run time,
gets a warning with the reason. Listeners that need TLS or SASL are refused at the start, so that the broker is never
more open than intended.

";

/// The default value; empty without one.
fn default(key: &ConfigKey) -> String {
    match key.default {
        None => String::new(),
        Some("") => "empty".to_owned(),
        Some(text) => format!("`{text}`"),
    }
}

/// The valid values; empty if the type says all.
fn valid(key: &ConfigKey) -> String {
    match key.check.to_string().as_str() {
        "-" => String::new(),
        "ThrottledReplicaListValidator" => "partition:broker,..., or *".to_owned(),
        "ControllerQuorumVotersValidator" => "id@host:port,...".to_owned(),
        "ControllerQuorumBootstrapServersValidator" => "host:port,...".to_owned(),
        "list" | "list non-null" => String::new(),
        // The file format makes clear that the value is a list and cannot be null.
        text => text.replace("list ", "").replace("non-null", "").trim().to_owned(),
    }
}

/// An entry of a list: a property, its default, and a sentence.
fn entry(page: &mut String, key: &ConfigKey, text: &str) {
    let default = match default(key) {
        text if text.is_empty() => text,
        text => format!(" (default {text})"),
    };
    writeln!(page, "- `{}`{default}: {text}", key.name).expect("a String takes everything");
}

fn differences(page: &mut String) {
    page.push('\n');
    let keys = table::BROKER_FAMILIES.iter().flat_map(|family| family.keys);
    for (key, why) in keys.filter_map(|key| Some((key, key.differs?))) {
        entry(page, key, why);
    }
}

fn served(page: &mut String, family: &Family) {
    let keys: Vec<_> = family
        .keys
        .iter()
        .filter(|key| !matches!(key.support, Support::Accepted(_) | Support::Unserved(_)))
        .collect();
    if keys.is_empty() {
        return;
    }
    writeln!(page, "\n### {}", family.title).expect("a String takes everything");
    for key in keys {
        let is_startup = matches!(key.support, Support::Startup | Support::FromFile(_));
        let mode = if is_startup { UpdateMode::ReadOnly } else { key.update_mode };
        property(page, key, mode.name());
    }
}

/// Note for keys without effect on listeners.
const OPENING: &str =
    " For connections to controllers and other brokers; this broker's listeners do not support it yet.";

/// A property with its facts, the last of which is `last`, and its description.
fn property(page: &mut String, key: &ConfigKey, last: &str) {
    let mut config_type = key.config_type.name().to_lowercase();
    if let Some(unit) = key.unit.name() {
        write!(config_type, " in {unit}").expect("a String takes everything");
    }
    let named = |name: &str, text: String| match text.is_empty() {
        true => text,
        false => format!("{name} {text}"),
    };
    let valid = valid(key);
    let valid = if valid.is_empty() { valid } else { format!("`{valid}`") };
    let facts = [config_type, named("default", default(key)), named("valid", valid), last.to_owned()];
    let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    let more = match key.support {
        Support::Opening => OPENING.to_owned(),
        Support::FromFile(reason) => {
            format!(" A value set at run time is stored, and has no effect: {reason}.")
        }
        _ => String::new(),
    };
    let (name, facts, what) = (key.name, facts.join(" · "), key.documentation);
    writeln!(page, "\n#### `{name}`\n\n{facts}\n\n{what}{more}").expect("a String takes everything");
}

fn follows(key: &ConfigKey) -> String {
    let names: Vec<_> = key.falls_back.iter().map(|(name, _)| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("follows {}", names.join(", ")) }
}

fn topics(page: &mut String) {
    for key in table::topic_keys().iter().filter(|key| key.support == Support::Served && !key.internal) {
        property(page, key, &follows(key));
    }
    page.push_str("\n### Kept with a topic without effect\n\n");
    for key in table::topic_keys() {
        if let Support::Accepted(reason) | Support::Unserved(reason) = key.support {
            writeln!(page, "- `{}`: {reason}", key.name).expect("a String takes everything");
        }
    }
    page.push_str("\n`remote.storage.enable=true` is refused.\n");
}

fn stored(page: &mut String, family: &Family) {
    for key in family.keys {
        property(page, key, &follows(key));
    }
}

fn without_effect(page: &mut String) {
    for key in table::broker_keys() {
        if let Support::Accepted(reason) = key.support {
            entry(page, key, reason);
        }
    }
}

fn unserved(page: &mut String) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for key in table::broker_keys() {
        let Support::Unserved(reason) = key.support else { continue };
        let name = format!("`{}`", key.name);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    for (reason, names) in reasons {
        writeln!(page, "- {reason}: {}", names.join(", ")).expect("a String takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_fresh() {
        crate::page::assert_is_fresh("configuration.md", &configuration_page());
    }

    #[test]
    fn names_are_not_in_columns_beside_each_other() {
        let page = configuration_page();
        assert!(page.lines().all(|line| !line.starts_with('|')), "a table is wider than the site's page");
        assert!(page.contains("\n#### `log.retention.ms`\n\nlong in ms · "), "a property has a heading");
    }
}
