//! Parses a stream's report, a line of JSON.

use serde::Deserialize;

/// A line that is not a report.
#[derive(Debug, thiserror::Error)]
#[error("A line of `thalweg stream run --json` is not a report: {source}: {line}")]
pub(super) struct UnreadableReport {
    line: String,
    source: serde_json::Error,
}

/// The totals of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Messages accepted by the sink; for a topic, those acknowledged by the cluster.
    pub(super) records: u64,
    /// Total size of the messages' values.
    pub(super) bytes: u64,
    /// Messages out of sequence.
    pub(super) out_of_sequence: u64,
}

#[derive(Deserialize)]
struct Line {
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct Stage {
    messages_out: u64,
    bytes_out: u64,
    #[serde(default)]
    found: SinkCounts,
}

#[derive(Default, Deserialize)]
struct SinkCounts {
    acknowledged: Option<u64>,
    #[serde(default)]
    out_of_sequence: u64,
    #[serde(default)]
    first_bytes_unlike_sequence: u64,
}

impl Totals {
    /// The totals from the sink of the first stream.
    pub(super) fn read(line: &str) -> Result<Totals, UnreadableReport> {
        let line_report: Line = serde_json::from_str(line)
            .map_err(|source| UnreadableReport { line: line.chars().take(200).collect(), source })?;
        let sink = line_report.streams.first().and_then(|stream| stream.stages.last());
        Ok(sink.map_or_else(Totals::default, |sink| {
            let records = sink.found.acknowledged.unwrap_or(sink.messages_out);
            // Messages of a run have equal sizes.
            let share = records as f64 / sink.messages_out.max(1) as f64;
            Totals {
                records,
                bytes: (sink.bytes_out as f64 * share).round() as u64,
                out_of_sequence: sink.found.out_of_sequence + sink.found.first_bytes_unlike_sequence,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_messages_of_the_sink_count() {
        let stage = |out: u64, found: &str| {
            format!(r#"{{"messages_out": {out}, "bytes_out": {}, "found": {found}}}"#, out * 10)
        };
        let line = |sink: String| {
            format!(
                r#"{{"elapsed_s": 1.5, "streams": [{{"name": "s", "stages": [{}, {sink}]}}]}}"#,
                stage(9, "{}")
            )
        };
        let read = |sink| Totals::read(&line(sink)).expect("a report");
        assert_eq!(read(stage(8, "{}")), Totals { records: 8, bytes: 80, out_of_sequence: 0 });
        assert_eq!(read(stage(8, r#"{"acknowledged": 6}"#)).bytes, 60);
        let lost = r#"{"out_of_sequence": 1, "first_bytes_unlike_sequence": 2}"#;
        assert_eq!(read(stage(8, lost)).out_of_sequence, 3);
        let error = Totals::read("no").expect_err("no JSON").to_string();
        assert!(error.starts_with("A line of `thalweg stream run --json` is not a report"), "{error}");
    }
}
