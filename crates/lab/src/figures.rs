//! The figures of a repetition, with title, unit and direction, in one table for tables, reports and
//! comparisons.

use serde::{Deserialize, Serialize};

use crate::quantity;

/// The figures of a repetition; `None` if a figure does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Records acknowledged per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produced_records_per_s: Option<f64>,
    /// MB (2^20 bytes) acknowledged per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produced_mb_per_s: Option<f64>,
    /// Mbit (10^6 bits) acknowledged per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produced_mbit_per_s: Option<f64>,
    /// Records consumed per second; of a drain, those of the backlog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed_records_per_s: Option<f64>,
    /// MB (2^20 bytes) consumed per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed_mb_per_s: Option<f64>,
    /// Mbit (10^6 bits) consumed per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed_mbit_per_s: Option<f64>,
    /// The lesser of the records produced, and consumed by each group, per second; only with consumers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_records_per_s: Option<f64>,
    /// The lesser of the MB (2^20 bytes) produced, and consumed by each group, per second; only with
    /// consumers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_mb_per_s: Option<f64>,
    /// The lesser of the Mbit (10^6 bits) produced, and consumed by each group, per second; only with
    /// consumers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_mbit_per_s: Option<f64>,
    /// Processor time of all brokers per record produced (or consumed, if a backlog is), microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_us_per_record: Option<f64>,
    /// Processor time of all producers per record produced, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer_cpu_us_per_record: Option<f64>,
    /// Processor time of all consumers per record consumed, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_cpu_us_per_record: Option<f64>,
    /// Records in a batch of the producers, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records_per_batch: Option<f64>,
    /// Size of a batch of the producers as sent, compressed, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_batch: Option<f64>,
    /// The maximum resident memory of one broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_memory_bytes_max: Option<u64>,
    /// Time to drain the backlog, from the consumers' start to its last record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_s: Option<f64>,
    /// Time until the consumers of a drain had joined their group, before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_start_s: Option<f64>,
    /// Time from the intended send time to the acknowledgement, median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_p50_us: Option<f64>,
    /// Time from the intended send time to the acknowledgement, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_mean_us: Option<f64>,
    /// Time from the intended send time to the acknowledgement, 95th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_p95_us: Option<f64>,
    /// Time from the intended send time to the acknowledgement, 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_p99_us: Option<f64>,
    /// Time from the intended send time to the acknowledgement, 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_p999_us: Option<f64>,
    /// Time from the intended send time to the acknowledgement, 99.99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_p9999_us: Option<f64>,
    /// Time from the intended send time to the acknowledgement, maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_max_us: Option<f64>,
    /// Time from the intended send time to the consumer, median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_p50_us: Option<f64>,
    /// Time from the intended send time to the consumer, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_mean_us: Option<f64>,
    /// Time from the intended send time to the consumer, 95th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_p95_us: Option<f64>,
    /// Time from the intended send time to the consumer, 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_p99_us: Option<f64>,
    /// Time from the intended send time to the consumer, 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_p999_us: Option<f64>,
    /// Time from the intended send time to the consumer, 99.99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_p9999_us: Option<f64>,
    /// Time from the intended send time to the consumer, maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_max_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_p50_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_mean_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, 95th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_p95_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_p99_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_p999_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, 99.99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_p9999_us: Option<f64>,
    /// Time from the intended send time of a record of the backlog to the consumer, maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_max_us: Option<f64>,
    /// Temporary topics that got leaders, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics_ready_per_s: Option<f64>,
    /// Time from the intended creation of a temporary topic to its leaders, median. Topics without leaders at
    /// the end count as slower than all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_ready_p50_us: Option<f64>,
    /// Time from the intended creation of a temporary topic to its leaders, 99th percentile. Topics without
    /// leaders at the end count as slower than all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_ready_p99_us: Option<f64>,
    /// Time of an answer with the metadata of all partitions, including idle ones; the median of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_us: Option<f64>,
}

/// A description of a figure of [`Figures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The figure's name in the result, such as `produced_records_per_s`.
    pub name: &'static str,
    /// The figure's title.
    pub title: &'static str,
    /// The figure's unit.
    pub unit: FigureUnit,
}

/// The unit of a figure, which also determines the better direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// Records per second; more is better.
    RecordsPerSecond,
    /// 2^20 bytes per second; more is better.
    MbPerSecond,
    /// 10^6 bits per second; more is better.
    MbitPerSecond,
    /// Events per second; more is better.
    PerSecond,
    /// Microseconds of latency; less is better.
    LatencyUs,
    /// Microseconds of processor time per record; less is better.
    CpuUs,
    /// Bytes; less is better.
    Bytes,
    /// Seconds; less is better.
    Seconds,
    /// Records of a batch; neither direction is better.
    BatchRecords,
    /// Bytes of a batch; neither direction is better.
    BatchBytes,
}

const fn figure(name: &'static str, title: &'static str, unit: FigureUnit) -> Figure {
    Figure { name, title, unit }
}

/// All figures, in the order of [`Figures`].
pub const FIGURES: [Figure; 42] = [
    figure("produced_records_per_s", "produced", FigureUnit::RecordsPerSecond),
    figure("produced_mb_per_s", "produced", FigureUnit::MbPerSecond),
    figure("produced_mbit_per_s", "produced", FigureUnit::MbitPerSecond),
    figure("consumed_records_per_s", "consumed", FigureUnit::RecordsPerSecond),
    figure("consumed_mb_per_s", "consumed", FigureUnit::MbPerSecond),
    figure("consumed_mbit_per_s", "consumed", FigureUnit::MbitPerSecond),
    figure("carried_records_per_s", "carried", FigureUnit::RecordsPerSecond),
    figure("carried_mb_per_s", "carried", FigureUnit::MbPerSecond),
    figure("carried_mbit_per_s", "carried", FigureUnit::MbitPerSecond),
    figure("broker_cpu_us_per_record", "broker CPU", FigureUnit::CpuUs),
    figure("producer_cpu_us_per_record", "producer CPU", FigureUnit::CpuUs),
    figure("consumer_cpu_us_per_record", "consumer CPU", FigureUnit::CpuUs),
    figure("records_per_batch", "records per batch", FigureUnit::BatchRecords),
    figure("bytes_per_batch", "bytes per batch", FigureUnit::BatchBytes),
    figure("broker_memory_bytes_max", "broker memory, max", FigureUnit::Bytes),
    figure("drain_s", "backlog drained in", FigureUnit::Seconds),
    figure("group_start_s", "group started in", FigureUnit::Seconds),
    figure("acknowledge_p50_us", "acknowledged, p50", FigureUnit::LatencyUs),
    figure("acknowledge_mean_us", "acknowledged, mean", FigureUnit::LatencyUs),
    figure("acknowledge_p95_us", "acknowledged, p95", FigureUnit::LatencyUs),
    figure("acknowledge_p99_us", "acknowledged, p99", FigureUnit::LatencyUs),
    figure("acknowledge_p999_us", "acknowledged, p99.9", FigureUnit::LatencyUs),
    figure("acknowledge_p9999_us", "acknowledged, p99.99", FigureUnit::LatencyUs),
    figure("acknowledge_max_us", "acknowledged, max", FigureUnit::LatencyUs),
    figure("end_to_end_p50_us", "end to end, p50", FigureUnit::LatencyUs),
    figure("end_to_end_mean_us", "end to end, mean", FigureUnit::LatencyUs),
    figure("end_to_end_p95_us", "end to end, p95", FigureUnit::LatencyUs),
    figure("end_to_end_p99_us", "end to end, p99", FigureUnit::LatencyUs),
    figure("end_to_end_p999_us", "end to end, p99.9", FigureUnit::LatencyUs),
    figure("end_to_end_p9999_us", "end to end, p99.99", FigureUnit::LatencyUs),
    figure("end_to_end_max_us", "end to end, max", FigureUnit::LatencyUs),
    figure("drained_p50_us", "drained, p50", FigureUnit::LatencyUs),
    figure("drained_mean_us", "drained, mean", FigureUnit::LatencyUs),
    figure("drained_p95_us", "drained, p95", FigureUnit::LatencyUs),
    figure("drained_p99_us", "drained, p99", FigureUnit::LatencyUs),
    figure("drained_p999_us", "drained, p99.9", FigureUnit::LatencyUs),
    figure("drained_p9999_us", "drained, p99.99", FigureUnit::LatencyUs),
    figure("drained_max_us", "drained, max", FigureUnit::LatencyUs),
    figure("topics_ready_per_s", "topics ready", FigureUnit::PerSecond),
    figure("topic_ready_p50_us", "topic ready, p50", FigureUnit::LatencyUs),
    figure("topic_ready_p99_us", "topic ready, p99", FigureUnit::LatencyUs),
    figure("metadata_us", "metadata of all topics", FigureUnit::LatencyUs),
];

impl Figure {
    /// The figure with a name.
    pub fn named(name: &str) -> Option<&'static Figure> {
        FIGURES.iter().find(|figure| figure.name == name)
    }

    /// Formats a value with its unit.
    pub fn text(&self, value: f64) -> String {
        match self.unit {
            FigureUnit::RecordsPerSecond => format!("{} records/s", quantity::number(value)),
            FigureUnit::MbPerSecond => format!("{} MB/s", quantity::number(value)),
            FigureUnit::MbitPerSecond => format!("{} Mbit/s", quantity::number(value)),
            FigureUnit::PerSecond => format!("{}/s", quantity::number(value)),
            FigureUnit::LatencyUs => quantity::time_us(value),
            FigureUnit::CpuUs => format!("{} µs/record", quantity::number(value)),
            FigureUnit::Bytes | FigureUnit::BatchBytes => quantity::bytes(value),
            FigureUnit::BatchRecords => quantity::number(value),
            FigureUnit::Seconds => format!("{} s", quantity::number(value)),
        }
    }
}

impl FigureUnit {
    /// True if larger values are better.
    pub fn more_is_better(self) -> bool {
        match self {
            FigureUnit::RecordsPerSecond
            | FigureUnit::MbPerSecond
            | FigureUnit::MbitPerSecond
            | FigureUnit::PerSecond => true,
            FigureUnit::LatencyUs
            | FigureUnit::CpuUs
            | FigureUnit::Bytes
            | FigureUnit::Seconds
            | FigureUnit::BatchRecords
            | FigureUnit::BatchBytes => false,
        }
    }
}

impl Figures {
    /// All figures with values, in the order of [`FIGURES`].
    pub fn each(&self) -> [(&'static Figure, Option<f64>); FIGURES.len()] {
        let values = [
            self.produced_records_per_s,
            self.produced_mb_per_s,
            self.produced_mbit_per_s,
            self.consumed_records_per_s,
            self.consumed_mb_per_s,
            self.consumed_mbit_per_s,
            self.carried_records_per_s,
            self.carried_mb_per_s,
            self.carried_mbit_per_s,
            self.broker_cpu_us_per_record,
            self.producer_cpu_us_per_record,
            self.consumer_cpu_us_per_record,
            self.records_per_batch,
            self.bytes_per_batch,
            self.broker_memory_bytes_max.map(|bytes| bytes as f64),
            self.drain_s,
            self.group_start_s,
            self.acknowledge_p50_us,
            self.acknowledge_mean_us,
            self.acknowledge_p95_us,
            self.acknowledge_p99_us,
            self.acknowledge_p999_us,
            self.acknowledge_p9999_us,
            self.acknowledge_max_us,
            self.end_to_end_p50_us,
            self.end_to_end_mean_us,
            self.end_to_end_p95_us,
            self.end_to_end_p99_us,
            self.end_to_end_p999_us,
            self.end_to_end_p9999_us,
            self.end_to_end_max_us,
            self.drained_p50_us,
            self.drained_mean_us,
            self.drained_p95_us,
            self.drained_p99_us,
            self.drained_p999_us,
            self.drained_p9999_us,
            self.drained_max_us,
            self.topics_ready_per_s,
            self.topic_ready_p50_us,
            self.topic_ready_p99_us,
            self.metadata_us,
        ];
        std::array::from_fn(|place| (&FIGURES[place], values[place]))
    }

    /// Adds the rates that a cluster carried from producers to `groups` groups of consumers: a record counts
    /// once each group has it.
    pub fn set_carried(&mut self, groups: u32) {
        let groups = f64::from(groups.max(1));
        let lesser = |produced: Option<f64>, consumed: Option<f64>| {
            produced.map(|produced| produced.min(consumed.unwrap_or(0.0) / groups))
        };
        self.carried_records_per_s = lesser(self.produced_records_per_s, self.consumed_records_per_s);
        self.carried_mb_per_s = lesser(self.produced_mb_per_s, self.consumed_mb_per_s);
        self.carried_mbit_per_s = lesser(self.produced_mbit_per_s, self.consumed_mbit_per_s);
    }

    /// The records per second of a measurement of producers: carried to consumers if there are any.
    pub fn records_per_s(&self) -> Option<f64> {
        self.carried_records_per_s.or(self.produced_records_per_s)
    }

    /// The value of a figure by name; `None` if it does not apply or exist.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.each().into_iter().find(|(figure, _)| figure.name == name).and_then(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn consumers_that_lag_bound_the_carried_rate() {
        let rates = |consumed: Option<f64>, groups| {
            let mut figures = Figures {
                produced_records_per_s: Some(1000.0),
                produced_mb_per_s: Some(10.0),
                produced_mbit_per_s: Some(80.0),
                consumed_records_per_s: consumed,
                consumed_mb_per_s: consumed.map(|rate| rate / 100.0),
                consumed_mbit_per_s: consumed.map(|rate| rate / 12.5),
                ..Figures::default()
            };
            figures.set_carried(groups);
            assert_eq!(figures.carried_mbit_per_s, figures.carried_mb_per_s.map(|mb| mb * 8.0));
            (figures.carried_records_per_s, figures.carried_mb_per_s)
        };
        assert_eq!(rates(Some(400.0), 1), (Some(400.0), Some(4.0)));
        assert_eq!(rates(Some(1001.0), 1), (Some(1000.0), Some(10.0)));
        assert_eq!(rates(Some(1600.0), 2), (Some(800.0), Some(8.0)), "each group reads every record");
        assert_eq!(rates(None, 1), (Some(0.0), Some(0.0)), "nothing was consumed");
    }

    #[test]
    fn the_table_holds_each_field_under_its_name() {
        let values = FIGURES.iter().zip(1..).map(|(figure, value)| (figure.name.to_owned(), json!(value)));
        let object: serde_json::Map<String, serde_json::Value> = values.collect();
        let figures: Figures = from_value(object.clone().into()).expect("figures");
        for (figure, value) in FIGURES.iter().zip(1..) {
            assert_eq!(figures.value(figure.name), Some(f64::from(value)), "{}", figure.name);
        }
        let fields = to_value(&figures).expect("figures are plain");
        let keys = fields.as_object().expect("a struct").keys();
        assert_eq!(keys.collect::<Vec<_>>(), object.keys().collect::<Vec<_>>());
        assert_eq!(to_value(Figures::default()).expect("figures are plain"), json!({}));
    }
}
