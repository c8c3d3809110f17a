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
/// The first release whose producer has `--warmup-records`.
const WARM_UP_SINCE: &str = "4.2.0";
/// Fraction of the records that a warm-up has, at the maximum rate.
const WARM_UP_SHARE: u64 = 4;
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
    /// True if the tool can leave a warm-up out of its summary.
    pub(super) knows_warm_up: bool,
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
            knows_warm_up: jars.release >= WARM_UP_SINCE.parse().expect("the constant is a release"),
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

/// The records after which each tool stops, which is when it prints its percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordLimit {
    /// The first records, which the tool leaves out of its second summary.
    pub(super) warm_up: u64,
    /// The records of the measurement.
    pub(super) measured: u64,
}

impl RecordLimit {
    /// The limit of an assignment; `None` if its number of records is unknown, as at the maximum rate for a
    /// number of seconds, or if the tool does not know warm-ups, which it needs.
    pub(super) fn of(assignment: &Assignment, window: Window, knows_warm_up: bool) -> Option<RecordLimit> {
        let clients = u64::from(assignment.clients.max(1));
        let warm_up_s = match assignment.role {
            Role::Producer => window.from_us.saturating_sub(window.start_us) as f64 / 1e6,
            Role::Consumer => 0.0,
        };
        let each = assignment.records_per_s.map(|rate| rate / clients as f64);
        let (measured, warm_up) = match (assignment.stop, assignment.role, each) {
            (StopWhen::Records(records), Role::Producer, each) if warm_up_s > 0.0 => {
                let measured = records.div_ceil(clients);
                (measured, each.map_or(measured.div_ceil(WARM_UP_SHARE), |each| (each * warm_up_s) as u64))
            }
            (StopWhen::Records(records), ..) => (records.div_ceil(clients), 0),
            (StopWhen::Seconds(seconds), Role::Producer, Some(each)) => {
                ((each * seconds) as u64, (each * warm_up_s) as u64)
            }
            _ => return None,
        };
        (measured > 0 && (warm_up == 0 || knows_warm_up)).then_some(RecordLimit { warm_up, measured })
    }

    /// The last arguments of a tool.
    pub(super) fn arguments(limit: Option<RecordLimit>) -> String {
        match limit {
            Some(RecordLimit { warm_up: 0, measured }) => format!("--num-records {measured}"),
            Some(RecordLimit { warm_up, measured }) => {
                format!("--num-records {} --warmup-records {warm_up}", warm_up + measured)
            }
            None => format!("--num-records {RECORDS_ENDLESS}"),
        }
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
            release: "4.3.1".parse().expect("a release"),
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
    }

    #[test]
    fn a_tool_stops_by_itself_where_its_number_of_records_is_known() {
        let limit = |assignment: &Assignment, from_us, knows_warm_up| {
            let window = Window::new(0, from_us, assignment.stop);
            RecordLimit::arguments(RecordLimit::of(assignment, window, knows_warm_up))
        };
        // Two clients, together 1,000 records a second.
        let records = assignment(Role::Producer);
        let endless = format!("--num-records {RECORDS_ENDLESS}");
        assert_eq!(limit(&records, 0, false), "--num-records 501");
        assert_eq!(limit(&records, 2_000_000, true), "--num-records 1501 --warmup-records 1000");
        assert_eq!(limit(&records, 2_000_000, false), endless, "an older tool");
        let fastest = Assignment { records_per_s: None, ..records.clone() };
        assert_eq!(limit(&fastest, 2_000_000, true), "--num-records 627 --warmup-records 126");
        let seconds = Assignment { stop: StopWhen::Seconds(10.0), ..records };
        assert_eq!(limit(&seconds, 5_000_000, true), "--num-records 7500 --warmup-records 2500");
        let fastest = Assignment { records_per_s: None, ..seconds };
        assert_eq!(limit(&fastest, 5_000_000, true), endless);
        assert_eq!(limit(&assignment(Role::Consumer), 5_000_000, true), "--num-records 501");
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
