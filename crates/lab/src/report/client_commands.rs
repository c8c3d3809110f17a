//! The command line of each client of a point, as a line of the tool that does the same: for readers who
//! repeat a point by hand. Brokers and files are placeholders.

use thalweg_security::shell::quoted;

use super::text::{escape, folded, table};
use crate::result::{PointResult, WorkloadResult};
use crate::worker::Driver;
use crate::workload::{Load, Measure, Point, SecurityProtocol, Unit};

/// The placeholder for the brokers.
const BROKERS: &str = "HOST:9092";

/// The tool whose lines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Kafka,
    Librdkafka,
    Pulsar,
}

impl Tool {
    /// The tool of a driver on a target; `None` for streams.
    fn of(point: &PointResult) -> Option<Tool> {
        match (point.driver, point.point.cluster.brokers) {
            (Driver::Stream, _) | (_, 0) => None,
            _ if point.target == "pulsar" => Some(Tool::Pulsar),
            (Driver::Librdkafka, _) => Some(Tool::Librdkafka),
            (Driver::Thalweg | Driver::Java, _) => Some(Tool::Kafka),
        }
    }
}

/// The lines of all points, each once; empty without any.
pub(super) fn markup(workload: &WorkloadResult) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut known: Vec<(&str, Tool)> = Vec::new();
    for point in &workload.points {
        let Some(tool) = Tool::of(point) else { continue };
        if known.contains(&(point.point.label.as_str(), tool)) {
            continue;
        }
        known.push((&point.point.label, tool));
        for (clients, line) in lines(point, tool) {
            let code = format!("<code>{}</code>", escape(&line));
            rows.push(vec![escape(&point.point.label), escape(&clients), code]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let text = "<p>What each client did, as a line of the tool that does the same. The tools count from their own start \
                and have no warm-up: their figures differ from those above.</p>";
    let table = table(&["point", "clients", "each one as"], usize::MAX, &rows);
    folded("The clients as command lines", &format!("{text}{table}"), false)
}

/// The clients of a point with their lines.
fn lines(result: &PointResult, tool: Tool) -> Vec<(String, String)> {
    let point = &result.point;
    let mut lines = Vec::new();
    if point.producers.count > 0 {
        let clients = match point.load {
            Load::AddProducers { producers_max, .. } => format!("1 to {producers_max} producers"),
            _ => counted(point.producers.count, "producer"),
        };
        lines.push((clients, in_shell(&producer(result, tool))));
    }
    if point.consumers.count > 0 {
        let clients = counted(point.consumers.count, "consumer");
        lines.push((clients, in_shell(&consumer(result, tool))));
    }
    lines
}

fn counted(count: u32, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

fn in_shell(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn producer(result: &PointResult, tool: Tool) -> Vec<String> {
    let point = &result.point;
    let (size, records) = (point.records.size_bytes, records(result, "produced_records_per_s"));
    let rate = match point.load {
        Load::Rate { records_per_s } => {
            Some((records_per_s / f64::from(point.producers.count)).round().max(1.0))
        }
        _ => None,
    };
    let mut line = match tool {
        Tool::Kafka => words(&format!(
            "kafka-producer-perf-test.sh --topic TOPIC --num-records {records} --record-size {size} --throughput {} \
             --producer-props bootstrap.servers={BROKERS}",
            rate.map_or("-1".to_owned(), |rate| rate.to_string())
        )),
        Tool::Librdkafka => {
            let rate = rate.map(|rate| format!(" -r {rate}")).unwrap_or_default();
            words(&format!("rdkafka_performance -P -b {BROKERS} -t TOPIC -s {size} -c {records}{rate}"))
        }
        Tool::Pulsar => {
            let rate = rate.map_or("1000000".to_owned(), |rate| rate.to_string());
            words(&format!(
                "pulsar-perf produce -u pulsar://HOST:6650 persistent://public/default/TOPIC -s {size} -r {rate} -m {records}"
            ))
        }
    };
    add_properties(&mut line, tool, point, &point.producers.properties, "--producer.config");
    line
}

fn consumer(result: &PointResult, tool: Tool) -> Vec<String> {
    let point = &result.point;
    let records = records(result, "consumed_records_per_s");
    let mut line = match tool {
        Tool::Kafka => words(&format!(
            "kafka-consumer-perf-test.sh --bootstrap-server {BROKERS} --topic TOPIC --messages {records} --group GROUP"
        )),
        Tool::Librdkafka => {
            words(&format!("rdkafka_performance -G GROUP -b {BROKERS} -t TOPIC -c {records}"))
        }
        Tool::Pulsar => words(&format!(
            "pulsar-perf consume -u pulsar://HOST:6650 persistent://public/default/TOPIC -ss GROUP -m {records}"
        )),
    };
    // Kafka's tool takes a consumer's settings from a file only.
    if tool == Tool::Librdkafka {
        add_properties(&mut line, tool, point, &point.consumers.properties, "");
    } else if tool == Tool::Kafka
        && (point.cluster.security.protocol != SecurityProtocol::Plaintext
            || !point.consumers.properties.is_empty())
    {
        line.extend(words("--consumer.config consumer.properties"));
    }
    line
}

fn add_properties(
    line: &mut Vec<String>,
    tool: Tool,
    point: &Point,
    properties: &std::collections::BTreeMap<String, String>,
    file: &str,
) {
    let protocol = point.cluster.security.protocol;
    let is_secured = protocol != SecurityProtocol::Plaintext;
    for (key, value) in properties {
        match tool {
            Tool::Kafka => line.push(format!("{key}={value}")),
            Tool::Librdkafka => line.extend(["-X".to_owned(), format!("{key}={value}")]),
            Tool::Pulsar => {}
        }
    }
    match tool {
        Tool::Kafka if is_secured => line.extend([file.to_owned(), "client.properties".to_owned()]),
        Tool::Librdkafka if is_secured => {
            line.extend(["-X".to_owned(), format!("security.protocol={}", protocol.name())]);
        }
        _ => {}
    }
}

/// The records of one client in a measurement: those of the point, or as many as its rate gives; else a
/// placeholder.
fn records(result: &PointResult, figure: &str) -> String {
    let point = &result.point;
    let clients = match (figure, point.measure) {
        ("consumed_records_per_s", _) => point.consumers.count.max(1).div_ceil(point.consumer_groups.max(1)),
        (_, Measure::Consume) => 1,
        _ => point.producers.count,
    };
    let of_one = |records: f64| format!("{}", (records / f64::from(clients.max(1))).ceil().max(1.0));
    match (point.extent.unit, result.summary.figures.get(figure)) {
        (Unit::Records(records), _) => of_one(records as f64),
        (Unit::Seconds(seconds), Some(rate)) if rate.mean > 0.0 => of_one(rate.mean * seconds),
        _ => "RECORDS".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{measured, run_of};
    use crate::workload::load;

    /// The lines of a point of a built-in workload that carried 1,000 records/s.
    fn lines_of(workload: &str, label: &str, driver: Driver, target: &str) -> Vec<(String, String)> {
        let workload = load(workload, None).expect("built in");
        let point = workload.points.iter().find(|point| point.label == label).expect("a point");
        let mut result = measured(point, target, 1, &[1000.0, 1000.0]);
        result.driver = driver;
        lines(&result, Tool::of(&result).expect("a tool"))
    }

    #[test]
    fn a_producer_has_the_published_line() {
        let lines = lines_of("queue", "produce 1,000 B", Driver::Java, "embedded");
        let expected = "kafka-producer-perf-test.sh --topic TOPIC --num-records 1000000 --record-size 1000 --throughput -1 \
                        --producer-props bootstrap.servers=HOST:9092 acks=1 batch.size=8196 buffer.memory=67108864 \
                        enable.idempotence=false linger.ms=0";
        assert_eq!(lines, [("1 producer".to_owned(), expected.to_owned())]);
        let pulsar = lines_of("queue", "produce 1,000 B", Driver::Thalweg, "pulsar");
        assert!(
            pulsar[0].1.contains("produce -u pulsar://HOST:6650 persistent://public/default/TOPIC -s 1000"),
            "{pulsar:?}"
        );
    }

    #[test]
    fn every_client_of_a_search_has_a_line_of_its_own_tool() {
        let lines = lines_of("aiven-plans", "3 x 1 CPU, 4 GB", Driver::Librdkafka, "embedded");
        assert_eq!(lines[0].0, "1 to 8 producers");
        assert!(lines[0].1.starts_with("rdkafka_performance -P -b HOST:9092 -t TOPIC -s 512"), "{lines:?}");
        assert!(lines[0].1.contains("-X batch.num.messages=10000"), "{lines:?}");
        assert!(lines[0].1.ends_with("-X security.protocol=SSL"), "{lines:?}");
    }

    #[test]
    fn a_page_has_the_lines_of_a_point_once() {
        let workload = load("ibm-fast", None).expect("built in");
        let results = ["embedded", "apache-kafka"];
        let results = results.map(|target| measured(&workload.points[0], target, 1, &[1200.0, 1200.0]));
        let run = run_of(results.into());
        let page = markup(&run.workloads[0]);
        assert_eq!(page.matches("kafka-producer-perf-test.sh").count(), 1, "{page}");
        // 1,200 a second for 5 s by 12 producers.
        assert!(page.contains("--num-records 500 ") && page.contains("24 consumers"), "{page}");
    }
}
