//! The command lines of the tools, and their limits.

use std::io::{self, Write};

use thalweg_client::Properties;

use crate::payload::{PayloadError, Pool};
use crate::target::KafkaJars;
use crate::worker::counts::Window;
use crate::worker::{Assignment, Role, StopWhen};
use crate::workload::{Payload, Verification};

/// The number of records for a tool without a count limit, which the lab stops.
const RECORDS_ENDLESS: u64 = i64::MAX.unsigned_abs();
/// Number of pool values written for the tool to choose from.
const PAYLOADS: u64 = 4096;

/// Kafka's tool does not support the assignment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value}: Kafka's {tool} cannot do that; use {expected}, or another driver")]
pub(super) struct NotByJava {
    setting: &'static str,
    value: String,
    tool: &'static str,
    expected: &'static str,
}

/// Values could not be written for the tool.
#[derive(Debug, thiserror::Error)]
pub(super) enum PayloadNotWritten {
    /// The values cannot be created.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The values cannot be written.
    #[error("Failed to write the values for Kafka's ProducerPerformance: {0}")]
    Io(#[from] io::Error),
}

/// Properties could not be written for the tool.
#[derive(Debug, thiserror::Error)]
#[error("Failed to write the properties for Kafka's tool: {0}")]
pub(super) struct SecretsNotWritten(io::Error);

/// Why there is no command line.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    #[error(transparent)]
    NotByJava(#[from] NotByJava),
    #[error(transparent)]
    Payload(#[from] PayloadNotWritten),
    #[error(transparent)]
    Secrets(#[from] SecretsNotWritten),
}

/// The tools' command lines.
#[derive(Debug)]
pub(super) struct Plan {
    /// The command of each client, without the number of records.
    pub(super) words: Vec<Vec<String>>,
    pub(super) classpath: String,
    pub(super) role: Role,
    /// Size of a value; consumers report bytes themselves.
    pub(super) value_bytes: u64,
    /// Values to choose from; removed with the plan.
    payloads: Option<tempfile::NamedTempFile>,
    /// Secret properties, which must not appear in process lists; removed with the plan.
    secrets: Option<tempfile::NamedTempFile>,
}

impl Plan {
    /// The plan of an assignment that the tools support.
    pub(super) fn new(assignment: &Assignment, jars: &KafkaJars) -> Result<Plan, PlanError> {
        check(assignment)?;
        let payloads = match (&assignment.role, &assignment.records.payload) {
            (
                Role::Producer,
                Payload::Zeros | Payload::Shared | Payload::Compressible | Payload::Json | Payload::File(_),
            ) => Some(write_payloads(assignment)?),
            _ => None,
        };
        let mut plan = Plan {
            words: Vec::new(),
            classpath: jars.classpath.clone(),
            role: assignment.role,
            value_bytes: u64::from(assignment.records.size_bytes),
            payloads,
            secrets: write_secrets(assignment)?,
        };
        let java = jars.java.to_string_lossy().into_owned();
        let words = |at| std::iter::once(java.clone()).chain(plan.arguments(assignment, at)).collect();
        plan.words = (0..assignment.clients.max(1)).map(words).collect();
        Ok(plan)
    }

    /// The arguments of the tool of client `at`, starting with the class.
    fn arguments(&self, assignment: &Assignment, at: u32) -> Vec<String> {
        let topic = &assignment.topics[at as usize % assignment.topics.len()];
        let bootstrap = assignment.bootstrap.join(",");
        let class = format!("org.apache.kafka.tools.{}", super::tool(self.role));
        let interval_ms = super::LINE.as_millis().to_string();
        let mut arguments: Vec<String> =
            [class.as_str(), "--bootstrap-server", &bootstrap, "--reporting-interval", &interval_ms]
                .map(str::to_owned)
                .into();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
        if let Some(file) = &self.secrets {
            add(&["--command-config", &file.path().to_string_lossy()]);
        }
        let properties: Vec<String> = assignment
            .properties
            .iter()
            .filter(|(key, _)| !thalweg_client::is_secret(key))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        match self.role {
            Role::Producer => {
                // The number of records is set at the start: see `records`.
                add(&["--topic", topic, "--throughput", &throughput(assignment)]);
                match &self.payloads {
                    Some(file) => add(&["--payload-file", &file.path().to_string_lossy()]),
                    None => add(&["--record-size", &self.value_bytes.to_string()]),
                }
                if !properties.is_empty() {
                    add(&["--command-property"]);
                    add(&properties.iter().map(String::as_str).collect::<Vec<_>>());
                }
            }
            Role::Consumer => {
                let topics: Vec<String> =
                    assignment.topics.iter().map(|topic| regex::escape(topic)).collect();
                add(&["--include", &topics.join("|"), "--hide-header"]);
                // The tool stops after this long without records. The tool prints either intervals or the
                // final line: the final line if it stops at its own limit, intervals if the lab stops it.
                match assignment.stop {
                    StopWhen::Records(_) => add(&["--timeout", "10000"]),
                    StopWhen::Seconds(_) | StopWhen::OnCommand => {
                        add(&["--show-detailed-stats", "--timeout", "86400000"])
                    }
                }
                if let Some(group) = assignment.group_of(assignment.first_client + at) {
                    add(&["--group", group]);
                }
                for property in &properties {
                    add(&["--command-property", property]);
                }
            }
        }
        arguments
    }
}

/// Writes secret properties to a file that only this user can read.
fn write_secrets(assignment: &Assignment) -> Result<Option<tempfile::NamedTempFile>, SecretsNotWritten> {
    let secret = assignment.properties.iter().filter(|(key, _)| thalweg_client::is_secret(key));
    let text: String = secret.map(|(key, value)| Properties::line(key, value)).collect();
    if text.is_empty() {
        return Ok(None);
    }
    let mut file = tempfile::NamedTempFile::new().map_err(SecretsNotWritten)?;
    file.write_all(text.as_bytes()).map_err(SecretsNotWritten)?;
    Ok(Some(file))
}

/// True if the tools stop after a number of records. A producer with a separate warm-up does not.
pub(super) fn stops_by_itself(assignment: &Assignment, window: Window) -> bool {
    let is_distinguished = assignment.role == Role::Producer && window.from_us > window.start_us;
    matches!(assignment.stop, StopWhen::Records(_)) && !is_distinguished
}

/// The number of records of each client.
pub(super) fn records(assignment: &Assignment, window: Window) -> u64 {
    match assignment.stop {
        StopWhen::Records(records) if stops_by_itself(assignment, window) => {
            records.div_ceil(u64::from(assignment.clients.max(1)))
        }
        _ => RECORDS_ENDLESS,
    }
}

fn throughput(assignment: &Assignment) -> String {
    let clients = f64::from(assignment.clients.max(1));
    assignment.records_per_s.map_or("-1".to_owned(), |rate| (rate / clients).to_string())
}

fn check(assignment: &Assignment) -> Result<(), NotByJava> {
    let tool = super::tool(assignment.role);
    let refuse = |setting, value: String, expected| Err(NotByJava { setting, value, tool, expected });
    if assignment.verify != Verification::Off {
        return refuse("verify", format!("{:?}", assignment.verify.words()), "verify = \"off\"");
    }
    if assignment.topics.is_empty() {
        return refuse("topics", "[]".to_owned(), "the name of a topic that exists");
    }
    if assignment.role == Role::Producer
        && let Some(keys) = assignment.records.keys
    {
        return refuse("records.keys.distinct", keys.distinct.to_string(), "no keys");
    }
    Ok(())
}

/// Values as lines; pool values with line breaks are left out.
fn write_payloads(assignment: &Assignment) -> Result<tempfile::NamedTempFile, PayloadNotWritten> {
    use std::io::Write;
    let pool = Pool::new(&assignment.records, assignment.seed)?;
    let mut file = tempfile::NamedTempFile::new()?;
    let mut out = io::BufWriter::new(file.as_file_mut());
    for n in 0..PAYLOADS {
        let value = pool.value(n);
        if !value.contains(&b'\n') {
            out.write_all(value)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    drop(out);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Driver, testing};
    use crate::workload::Keys;

    fn assignment(role: Role) -> Assignment {
        Assignment { stop: StopWhen::Records(1001), ..testing::assignment(role, Driver::Java) }
    }

    fn jars() -> KafkaJars {
        KafkaJars {
            java: "java".into(),
            java_version: "17".to_owned(),
            classpath: "x.jar".to_owned(),
            kafka_version: "4.3.1".to_owned(),
            origin: "a test".to_owned(),
        }
    }

    #[test]
    fn the_tools_get_their_assignment() {
        let produce = assignment(Role::Producer);
        let plan = Plan::new(&produce, &jars()).expect("possible");
        assert_eq!(
            plan.arguments(&produce, 1).join(" "),
            "org.apache.kafka.tools.ProducerPerformance --bootstrap-server a:1,b:2 --reporting-interval 250 --topic u \
             --throughput 500 --record-size 100 --command-property acks=1"
        );
        let consume = assignment(Role::Consumer);
        let plan = Plan::new(&consume, &jars()).expect("possible");
        let line = plan.arguments(&consume, 0).join(" ");
        assert!(line.contains("--include t\\.1|u --hide-header --timeout 10000"), "{line}");
        let window = |from_us| Window { start_us: 10, from_us, to_us: u64::MAX, closes: false };
        assert_eq!(records(&produce, window(10)), 501);
        assert_eq!(records(&produce, window(20)), RECORDS_ENDLESS, "a warm-up comes first");
    }

    #[test]
    fn secrets_are_in_no_list_of_processes() {
        let mut secured = assignment(Role::Producer);
        let jaas = "x.PlainLoginModule required username=\"ann\" password=\"a\\\\b\";";
        secured.properties.insert("sasl.jaas.config".to_owned(), jaas.to_owned());
        let plan = Plan::new(&secured, &jars()).expect("possible");
        let line = plan.arguments(&secured, 0).join(" ");
        assert!(!line.contains("PlainLoginModule") && line.contains("--command-property acks=1"), "{line}");
        let file = plan.secrets.as_ref().expect("written").path().to_owned();
        let text = std::fs::read_to_string(&file).expect("readable");
        assert_eq!(Properties::parse(&text).get("sasl.jaas.config"), Some(jaas));
        drop(plan);
        assert!(!file.exists());
    }

    #[test]
    fn unsupported_settings_of_the_tools_are_refused_by_name() {
        let mut verified = assignment(Role::Producer);
        verified.verify = Verification::Whole;
        let error = Plan::new(&verified, &jars()).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "verify = \"whole\": Kafka's ProducerPerformance cannot do that; use verify = \"off\", or another driver"
        );
        let mut keyed = assignment(Role::Producer);
        keyed.records.keys = Some(Keys { distinct: 7 });
        assert!(
            Plan::new(&keyed, &jars())
                .expect_err("refused")
                .to_string()
                .starts_with("records.keys.distinct = 7")
        );
    }

    #[test]
    fn values_of_other_kinds_come_from_a_file_of_lines() {
        let mut json = assignment(Role::Producer);
        json.records.payload = Payload::Json;
        let plan = Plan::new(&json, &jars()).expect("possible");
        let file = plan.payloads.as_ref().expect("written").path().to_owned();
        let text = std::fs::read_to_string(&file).expect("readable");
        assert!(text.lines().count() > 100 && text.lines().all(|line| line.len() == 100));
        drop(plan);
        assert!(!file.exists());
    }
}
