//! Every option of Kafka's tools exists in ours. Needs Kafka's jars: skipped with a message unless
//! `KAFKA_CLASSPATH` is set.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;

use clap::Args;
use thalweg_lab::perf::{ConsumerPerformance, EndToEndLatency, ProducerPerformance};

/// The long options in a help text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || "[](),|".contains(c));
    let names = words.filter_map(|word| word.strip_prefix("--"));
    // A name ends in a letter; Kafka's texts break lines within names, and sentences may end after some.
    names
        .map(|name| name.trim_end_matches('.').to_owned())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect()
}

fn kafkas(classpath: &str, tool: &str) -> BTreeSet<String> {
    let output = Command::new("java")
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-cp", classpath, &format!("org.apache.kafka.tools.{tool}")])
        // One of them takes a single argument for a positional one.
        .args(["--topic", "t", "--help"])
        .output()
        .expect("java runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("text");
    // Options are at the start of their lines; elsewhere, others are mentioned.
    let lines = text.lines().filter(|line| line.trim_start().starts_with("--"));
    options(
        &lines
            .map(|line| line.split("  ").find(|part| !part.is_empty()).unwrap_or(""))
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

fn ours<T: Args>() -> BTreeSet<String> {
    let command = T::augment_args(clap::Command::new("tool"));
    command.get_arguments().filter_map(|argument| argument.get_long()).map(str::to_owned).collect()
}

#[test]
fn every_option_of_kafkas_tools_is_one_of_ours() {
    let Ok(classpath) = std::env::var("KAFKA_CLASSPATH") else {
        let how = "export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\", with Java 17 or later";
        writeln!(std::io::stderr(), "SKIPPED: the options of Kafka's tools: {how}")
            .expect("stderr takes a line");
        return;
    };
    for (tool, ours, least) in [
        ("ProducerPerformance", ours::<ProducerPerformance>(), 15),
        ("ConsumerPerformance", ours::<ConsumerPerformance>(), 15),
        ("EndToEndLatency", ours::<EndToEndLatency>(), 10),
    ] {
        let mut theirs = kafkas(&classpath, tool);
        assert!(theirs.len() >= least, "{tool}: {theirs:?}");
        // All our commands have these two.
        theirs.remove("help");
        theirs.remove("version");
        let missing: Vec<&String> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{tool}: {missing:?}");
    }
}
