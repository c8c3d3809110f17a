//! Generates `docs/configuration.md` from the tables.

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

The column *Update* shows whether a property can change while the broker runs: never (`read-only`), for one broker
(`per-broker`), or for one or all brokers (`cluster-wide`), as with `kafka-configs --alter`. A property is taken from the
first of these places that sets it: the broker's dynamic value, the dynamic value for all brokers, the file, the default.
Properties of topics are set with `kafka-configs --entity-type topics` or when the topic is created; an unset topic
property follows the broker's.

`1.7976931348623157E308`, `2147483647` and `9223372036854775807` are the largest numbers of their types and mean no limit.

## Where Thalweg differs from Kafka
";

const TOPICS: &str = "
## Topic configuration

The column *Follows* lists the broker's properties that apply if a topic does not set its own; the first one that is set
counts.

";

const GROUPS: &str = "
## Group configuration

Set with `kafka-configs --entity-type groups`. The values are checked, stored and described as in Kafka. Those of share and
streams groups have no effect yet.

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

These belong to parts of Kafka that Thalweg does not support. A file that sets one to anything but its default gets a
warning with the reason; setting one at run time is refused. Listeners that need TLS or SASL are refused at the start, so that the broker is never
more open than intended.

";

/// Escapes a text for a table cell, where a bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn default_cell(key: &ConfigKey) -> String {
    match key.default {
        None => String::new(),
        Some("") => "(empty)".to_owned(),
        Some(text) => format!("`{}`", cell(text)),
    }
}

fn check_cell(key: &ConfigKey) -> String {
    match key.check.to_string().as_str() {
        "-" => String::new(),
        "ThrottledReplicaListValidator" => "partition:broker,..., or *".to_owned(),
        "ControllerQuorumVotersValidator" => "id@host:port,...".to_owned(),
        "ControllerQuorumBootstrapServersValidator" => "host:port,...".to_owned(),
        "list" | "list non-null" => String::new(),
        // The file format makes clear that the value is a list and cannot be null.
        text => cell(text.replace("list ", "").replace("non-null", "").trim()),
    }
}

fn differences(page: &mut String) {
    page.push_str("\n| Property | Thalweg | Why |\n|---|---|---|\n");
    let keys = table::BROKER_FAMILIES.iter().flat_map(|family| family.keys);
    for (key, why) in keys.filter_map(|key| Some((key, key.differs?))) {
        let (name, default) = (key.name, default_cell(key));
        writeln!(page, "| `{name}` | {default} | {} |", cell(why)).expect("a String takes everything");
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
    writeln!(page, "\n### {}\n", family.title).expect("a String takes everything");
    page.push_str(
        "| Property | Type | Default | Valid | Update | What it does |\n|---|---|---|---|---|---|\n",
    );
    for key in keys {
        let mode = if key.support == Support::Startup { UpdateMode::ReadOnly } else { key.update_mode };
        row(page, key, mode.name());
    }
}

/// Note for keys without effect on listeners.
const OPENING: &str =
    " For connections to controllers and other brokers; this broker's listeners do not support it yet.";

fn row(page: &mut String, key: &ConfigKey, fifth: &str) {
    let name = key.name;
    let mut config_type = key.config_type.name().to_lowercase();
    if let Some(unit) = key.unit.name() {
        write!(config_type, ", {unit}").expect("a String takes everything");
    }
    let (default, check, mut what) = (default_cell(key), check_cell(key), cell(key.documentation));
    if key.support == Support::Opening {
        what.push_str(OPENING);
    }
    writeln!(page, "| `{name}` | {config_type} | {default} | {check} | {fifth} | {what} |")
        .expect("a String takes everything");
}

fn topics(page: &mut String) {
    page.push_str(
        "| Property | Type | Default | Valid | Follows | What it does |\n|---|---|---|---|---|---|\n",
    );
    for key in table::topic_keys().iter().filter(|key| key.support == Support::Served && !key.internal) {
        let follows: Vec<_> = key.falls_back.iter().map(|(name, _)| format!("`{name}`")).collect();
        row(page, key, &follows.join(", "));
    }
    page.push_str("\nKept with a topic without effect: ");
    let others: Vec<_> = table::topic_keys()
        .iter()
        .filter_map(|key| match key.support {
            Support::Accepted(reason) | Support::Unserved(reason) => {
                Some(format!("`{}` ({reason})", key.name))
            }
            _ => None,
        })
        .collect();
    writeln!(page, "{}. `remote.storage.enable=true` is refused.", others.join(", "))
        .expect("a String takes everything");
}

fn stored(page: &mut String, family: &Family) {
    page.push_str(
        "| Property | Type | Default | Valid | Follows | What it does |\n|---|---|---|---|---|---|\n",
    );
    for key in family.keys {
        let follows: Vec<_> = key.falls_back.iter().map(|(name, _)| format!("`{name}`")).collect();
        row(page, key, &follows.join(", "));
    }
}

fn without_effect(page: &mut String) {
    page.push_str("| Property | Default | Why |\n|---|---|---|\n");
    for key in table::broker_keys() {
        if let Support::Accepted(reason) = key.support {
            writeln!(page, "| `{}` | {} | {} |", key.name, default_cell(key), cell(reason))
                .expect("a String takes everything");
        }
    }
}

fn unserved(page: &mut String) {
    page.push_str("| Why | Properties |\n|---|---|\n");
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
        writeln!(page, "| {} | {} |", cell(reason), names.join(", ")).expect("a String takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_are_fresh() {
        crate::page::assert_is_fresh("configuration.md", &configuration_page());
    }
}
