//! Command lines as they are typed for Kafka's own tools, behind the name of this program: `thalweg
//! kafka-consumer-perf-test.sh --broker-list …`. The perf tools run, because their options are Kafka's. For
//! other tools, and for options of ZooKeeper's time, the error shows the line that does the same here.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use thalweg_security::shell::quoted;

/// The perf tools, and the last part of the classes that `kafka-run-class` runs them by.
const PERF_TOOLS: [(&str, &[&str]); 4] = [
    ("producer-perf-test", &["ProducerPerformance"]),
    ("consumer-perf-test", &["ConsumerPerformance"]),
    ("share-consumer-perf-test", &["ShareConsumerPerformance"]),
    ("e2e-latency", &["EndToEndLatency", "TestEndToEndLatency"]),
];

/// Kafka's other tools, without `kafka-`, and the command for their work. That of `topics` depends on its
/// action.
const OTHERS: [(&str, &str); 21] = [
    ("acls", "security acl"),
    ("broker-api-versions", "broker api-versions"),
    ("client-metrics", "config"),
    ("cluster", "cluster status"),
    ("configs", "config"),
    ("console-consumer", "consume"),
    ("console-producer", "produce"),
    ("console-share-consumer", "consume --share"),
    ("consumer-groups", "group"),
    ("delegation-tokens", "security token"),
    ("delete-records", "topic trim"),
    ("features", "feature"),
    ("get-offsets", "topic offsets"),
    ("groups", "group list"),
    ("leader-election", "topic elect"),
    ("log-dirs", "broker log-dirs"),
    ("metadata-quorum", "quorum"),
    ("reassign-partitions", "topic move"),
    ("server-start", "serve"),
    ("share-groups", "group"),
    ("transactions", "transaction"),
];

/// The actions of `kafka-topics`.
const TOPIC_ACTIONS: [&str; 5] = ["create", "list", "describe", "delete", "alter"];

const ZOOKEEPER: &str = "--zookeeper";
const NO_ZOOKEEPER: &str = "since Kafka 4.0 there is no ZooKeeper: the brokers are reached by --bootstrap-server HOST:PORT \
                            (lab: --bootstrap)";

/// Arguments of a process, with the perf tools by the names of this program.
pub fn understood(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let texts: Vec<String> =
        arguments.iter().take(3).map(|text| text.to_string_lossy().into_owned()).collect();
    let Some(tool) = texts.get(1).and_then(|word| tool_of(word)) else { return arguments };
    let by_class = |class: &String| {
        let last = class.rsplit('.').next().unwrap_or_default();
        PERF_TOOLS.iter().find(|(_, classes)| classes.contains(&last))
    };
    let (found, words) = match tool {
        "run-class" => (texts.get(2).and_then(by_class), 2),
        tool => (PERF_TOOLS.iter().find(|(name, _)| *name == tool), 1),
    };
    if let Some((name, _)) = found {
        arguments.splice(1..=words, [OsString::from(*name)]);
    }
    arguments
}

/// An error of the parser, with the line of this program if the arguments are those of a tool of Kafka's, or
/// of ZooKeeper's time.
pub fn with_advice(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let of = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let is_zookeeper =
        error.kind() == ErrorKind::UnknownArgument && of(ContextKind::InvalidArg).starts_with(ZOOKEEPER);
    let is_tool = error.kind() == ErrorKind::InvalidSubcommand
        && tool_of(&of(ContextKind::InvalidSubcommand)).is_some();
    if !is_zookeeper && !is_tool {
        return error;
    }
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut tips = Vec::new();
    if words.iter().any(|word| word.starts_with(ZOOKEEPER)) {
        tips.push(NO_ZOOKEEPER.to_owned());
    }
    tips.extend(line_of(&words));
    error.remove(ContextKind::SuggestedSubcommand);
    let tips = tips.into_iter().map(Into::into).collect();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    error
}

/// The tool in a word such as `bin/kafka-topics.sh`: `topics`.
fn tool_of(word: &str) -> Option<&str> {
    let name = word.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".sh").unwrap_or(name).strip_prefix("kafka-")
}

/// The line of this program for these words, as far as it is known.
fn line_of(words: &[String]) -> Option<String> {
    let (first, rest) = words.get(1..)?.split_first()?;
    let rest = without_zookeeper(rest);
    let is_topics = tool_of(first) == Some("topics") || first == "topic";
    let action = rest
        .iter()
        .find_map(|word| TOPIC_ACTIONS.into_iter().find(|action| word.strip_prefix("--") == Some(action)));
    let mut line = vec!["thalweg".to_owned()];
    match (tool_of(first), action) {
        (_, Some(action)) if is_topics => {
            line.extend(["topic".to_owned(), action.to_owned()]);
            let mut rest = rest.into_iter().filter(|word| word.strip_prefix("--") != Some(action));
            while let Some(word) = rest.next() {
                match word.strip_prefix("--topic") {
                    Some("") => line.splice(3..3, rest.next()).for_each(drop),
                    Some(value) if value.starts_with('=') => line.insert(3, value[1..].to_owned()),
                    _ => line.push(word),
                }
            }
        }
        (Some("topics"), None) => return Some("use `thalweg topic`".to_owned()),
        (Some(tool), _) => {
            let (_, command) = OTHERS.iter().find(|(name, _)| *name == tool)?;
            return Some(format!(
                "use `thalweg {command}`; docs/commands.md has the command for each of its options"
            ));
        }
        (None, _) => {
            line.push(first.clone());
            line.extend(rest);
        }
    }
    let server = if first == "lab" { "--bootstrap" } else { "--bootstrap-server" };
    let names_brokers = ["--bootstrap", "--broker-list", "bootstrap.servers="];
    if !line.iter().any(|word| names_brokers.iter().any(|name| word.starts_with(name))) {
        line.extend([server.to_owned(), "HOST:9092".to_owned()]);
    }
    let line: Vec<_> = line.iter().map(|word| quoted(word)).collect();
    Some(format!("use: {}", line.join(" ")))
}

fn without_zookeeper(words: &[String]) -> Vec<String> {
    let mut words = words.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix(ZOOKEEPER) {
            Some("") => drop(words.next()),
            Some(value) if value.starts_with('=') => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn perf_tools_run_by_kafkas_names() {
        for (typed, expected) in [
            ("thalweg kafka-consumer-perf-test.sh --topic t", "thalweg consumer-perf-test --topic t"),
            ("thalweg bin/kafka-producer-perf-test.sh --topic t", "thalweg producer-perf-test --topic t"),
            (
                "thalweg kafka-run-class.sh org.apache.kafka.clients.tools.ProducerPerformance t 9 100 -1 acks=1",
                "thalweg producer-perf-test t 9 100 -1 acks=1",
            ),
            ("thalweg kafka-run-class kafka.tools.TestEndToEndLatency b:1", "thalweg e2e-latency b:1"),
            (
                "thalweg kafka-run-class.sh kafka.tools.Other t",
                "thalweg kafka-run-class.sh kafka.tools.Other t",
            ),
            ("thalweg kafka-topics.sh --list", "thalweg kafka-topics.sh --list"),
            ("thalweg", "thalweg"),
        ] {
            let found = understood(typed.split(' ').map(OsString::from).collect());
            let found: Vec<_> = found.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(found.join(" "), expected);
        }
    }

    #[test]
    fn lines_of_other_tools_have_a_counterpart() {
        for (typed, expected) in [
            (
                "thalweg kafka-topics.sh --zookeeper z:2181 --create --topic t --partitions 6 --replication-factor 3",
                "use: thalweg topic create t --partitions 6 --replication-factor 3 --bootstrap-server HOST:9092",
            ),
            (
                "thalweg topic create t --zookeeper=z:2181 --partitions 6",
                "use: thalweg topic create t --partitions 6 --bootstrap-server HOST:9092",
            ),
            (
                "thalweg kafka-topics.sh --list --bootstrap-server b:1",
                "use: thalweg topic list --bootstrap-server b:1",
            ),
            (
                "thalweg consumer-perf-test --zookeeper z:2181 --messages 9 --topic t --threads 1",
                "use: thalweg consumer-perf-test --messages 9 --topic t --threads 1 --bootstrap-server HOST:9092",
            ),
            ("thalweg lab run quick --zookeeper z:2181", "use: thalweg lab run quick --bootstrap HOST:9092"),
            ("thalweg kafka-topics.sh --help", "use `thalweg topic`"),
        ] {
            assert_eq!(line_of(&words(typed)).as_deref(), Some(expected), "{typed}");
        }
        let groups = line_of(&words("thalweg kafka-consumer-groups.sh --list")).expect("known");
        assert!(groups.starts_with("use `thalweg group`"), "{groups}");
        assert_eq!(line_of(&words("thalweg kafka-unknown.sh --list")), None);
    }
}
