//! The streams' texts and command lines, and their limits.

use std::io::{self, Write};
use std::path::Path;

use thalweg_client::{InvalidSetting, Properties};

use crate::worker::librdkafka_properties::named;
use crate::worker::{Assignment, Role};
use crate::workload::{Payload, Verification};

/// The streams' reporting interval, which limits the precision of the end of a measurement.
const TOLD_EVERY: &str = "20ms";

/// Streams do not support the assignment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value}: the driver stream cannot do that; use {expected}, or another driver")]
pub(super) struct NotByStreams {
    setting: &'static str,
    value: String,
    expected: String,
}

/// Why there is no command line.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    /// Streams do not support the assignment.
    #[error(transparent)]
    NotByStreams(#[from] NotByStreams),
    /// An invalid property.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// The properties file cannot be written.
    #[error("Failed to write the properties for the streams' clients: {0}")]
    Io(#[from] io::Error),
}

/// The streams' command lines.
#[derive(Debug)]
pub(super) struct Plan {
    /// The command line of each stream.
    pub(super) words: Vec<Vec<String>>,
    /// The properties of the streams' clients; removed with the plan.
    _properties: Vec<tempfile::NamedTempFile>,
}

impl Plan {
    /// The plan of an assignment that streams support.
    pub(super) fn new(assignment: &Assignment) -> Result<Plan, PlanError> {
        check(assignment)?;
        let binary = std::env::current_exe()?.to_string_lossy().into_owned();
        let mut plan = Plan { words: Vec::new(), _properties: Vec::new() };
        for at in 0..assignment.clients.max(1) {
            let text = match assignment.bootstrap.is_empty() {
                true => format!("{} | throughput --reportEveryMs=0", generator(assignment)),
                false => {
                    let mut file = tempfile::NamedTempFile::new()?;
                    for (key, value) in named(assignment, assignment.first_client + at)?.0 {
                        file.write_all(Properties::line(&key, &value).as_bytes())?;
                    }
                    let text = over_kafka(assignment, at, file.path());
                    plan._properties.push(file);
                    text
                }
            };
            let words = [binary.as_str(), "stream", "run", "--json", "--every", TOLD_EVERY, &text];
            plan.words.push(words.map(str::to_owned).into());
        }
        Ok(plan)
    }
}

fn generator(assignment: &Assignment) -> String {
    let mode = if assignment.records.payload == Payload::Shared { "reference" } else { "copy" };
    let mut text = format!(
        "load-generator --messageCount=0 --messageSize={} --mode={mode}",
        assignment.records.size_bytes
    );
    if let Some(rate) = assignment.records_per_s {
        text.push_str(&format!(" --rate={}", rate / f64::from(assignment.clients.max(1))));
    }
    if let Some(keys) = assignment.records.keys {
        text.push_str(&format!(" | transform --key='sequence % {}'", keys.distinct));
    }
    text
}

/// A stream over Kafka, in raw mode without headers, as in Spring XD.
fn over_kafka(assignment: &Assignment, at: u32, properties: &Path) -> String {
    let cluster = format!(
        "--bootstrap={} --mode=raw --properties='{}'",
        assignment.bootstrap.join(","),
        properties.display().to_string().replace('\'', "''")
    );
    match assignment.role {
        Role::Producer => {
            let topic = &assignment.topics[at as usize % assignment.topics.len()];
            format!("{} | kafka --topic={topic} {cluster}", generator(assignment))
        }
        Role::Consumer => {
            let topics = assignment.topics.join(",");
            let group = assignment.group_of(assignment.first_client + at);
            let group = group.map(|group| format!(" --group={group}")).unwrap_or_default();
            format!("kafka --topics={topics}{group} {cluster} | throughput --reportEveryMs=0")
        }
    }
}

fn check(assignment: &Assignment) -> Result<(), NotByStreams> {
    let refuse = |setting, value: String, expected: &str| {
        Err(NotByStreams { setting, value, expected: expected.to_owned() })
    };
    if assignment.verify != Verification::Off {
        return refuse("verify", format!("{:?}", assignment.verify.words()), "verify = \"off\"");
    }
    if !matches!(assignment.records.payload, Payload::Random | Payload::Zeros | Payload::Shared) {
        let value = format!("{:?}", assignment.records.payload).to_lowercase();
        return refuse("records.payload", value, "\"random\", for which the generator makes its own values");
    }
    let topics = assignment.topics.len();
    if assignment.role == Role::Producer && topics > assignment.clients.max(1) as usize {
        let expected = format!("at least {topics} per worker, one per topic");
        return refuse("producers.count", assignment.clients.to_string(), &expected);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Driver, testing};
    use crate::workload::Keys;

    fn assignment(role: Role) -> Assignment {
        testing::assignment(role, Driver::Stream)
    }

    fn text(assignment: &Assignment, at: usize) -> String {
        let plan = Plan::new(assignment).expect("possible");
        plan.words[at].last().cloned().unwrap_or_default()
    }

    #[test]
    fn streams_are_as_a_person_would_write_them() {
        let produce = text(&assignment(Role::Producer), 1);
        let begin = "load-generator --messageCount=0 --messageSize=100 --mode=copy --rate=500 \
                     | kafka --topic=u --bootstrap=a:1,b:2 --mode=raw --properties='";
        assert!(produce.starts_with(begin), "{produce}");
        let consume = text(&assignment(Role::Consumer), 0);
        assert!(
            consume.starts_with("kafka --topics=t.1,u --group=g --bootstrap=a:1,b:2 --mode=raw"),
            "{consume}"
        );
        let mut direct = assignment(Role::Producer);
        (direct.bootstrap, direct.topics) = (Vec::new(), Vec::new());
        (direct.records.payload, direct.records_per_s) = (Payload::Shared, None);
        assert_eq!(
            text(&direct, 0),
            "load-generator --messageCount=0 --messageSize=100 --mode=reference | throughput --reportEveryMs=0"
        );
        direct.records.keys = Some(Keys { distinct: 7 });
        assert!(text(&direct, 0).contains("| transform --key='sequence % 7' | throughput"));
    }

    #[test]
    fn the_clients_get_the_properties_of_the_workload() {
        let plan = Plan::new(&assignment(Role::Producer)).expect("possible");
        let written = std::fs::read_to_string(plan._properties[0].path()).expect("it is there");
        assert!(written.lines().any(|line| line == "acks=1"), "{written}");
        assert!(written.lines().any(|line| line == "enable.idempotence=false"), "{written}");
    }

    #[test]
    fn unsupported_settings_of_streams_are_refused_by_name() {
        let refused = |change: fn(&mut Assignment)| {
            let mut assignment = assignment(Role::Producer);
            change(&mut assignment);
            Plan::new(&assignment).expect_err("refused").to_string()
        };
        assert!(
            refused(|a| a.verify = Verification::Whole).starts_with("verify = \"whole\": the driver stream")
        );
        assert!(refused(|a| a.records.payload = Payload::Json).starts_with("records.payload = json"));
        assert!(refused(|a| a.clients = 1).starts_with("producers.count = 1"));
    }
}
