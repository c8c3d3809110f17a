//! Series in a result file, by column: each name is written once, not once per row. The rows of schema 1 are
//! read, too.
//!
//! Times are offsets from the earliest one. A column whose values are all zero or none is left out.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Sample;
use crate::worker::Interval;

/// The columns of rows `R`.
pub(super) trait Columns: Serialize + for<'de> Deserialize<'de> {
    type Row: for<'de> Deserialize<'de>;

    /// The columns of these rows.
    fn of(rows: &[Self::Row]) -> Self;

    /// Back to rows.
    fn rows(self) -> Result<Vec<Self::Row>, ColumnError>;
}

/// Columns that do not make rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ColumnError {
    /// A column is too short or too long.
    #[error("{column} has {found} values, at_us has {expected}")]
    Length {
        column: String,
        /// The number of values in the column.
        found: usize,
        /// The length of `at_us`.
        expected: usize,
    },
    /// A time is out of range.
    #[error("at_us is out of range")]
    Time,
}

/// Writes rows as columns.
pub(super) fn serialize<C: Columns, S: Serializer>(
    rows: &[C::Row],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    C::of(rows).serialize(serializer)
}

/// Reads columns or rows.
pub(super) fn deserialize<'de, C: Columns, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<C::Row>, D::Error> {
    deserializer.deserialize_any(ColumnsOrRows::<C>(PhantomData))
}

struct ColumnsOrRows<C>(PhantomData<C>);

impl<'de, C: Columns> Visitor<'de> for ColumnsOrRows<C> {
    type Value = Vec<C::Row>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("columns or rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, rows: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(rows))
    }

    fn visit_map<A: MapAccess<'de>>(self, columns: A) -> Result<Self::Value, A::Error> {
        C::deserialize(MapAccessDeserializer::new(columns))?.rows().map_err(A::Error::custom)
    }
}

/// The intervals of producers or consumers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Intervals {
    /// The earliest end, since the Unix epoch.
    from_us: u64,
    at_us: Vec<u64>,
    length_us: Vec<u64>,
    records: Vec<u64>,
    #[serde(skip_serializing_if = "is_unset")]
    bytes: Vec<u64>,
    #[serde(skip_serializing_if = "is_unset")]
    p50_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    p99_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    max_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    mean_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    p75_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    p95_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    p999_us: Vec<Option<u64>>,
    #[serde(skip_serializing_if = "is_unset")]
    p9999_us: Vec<Option<u64>>,
}

impl Columns for Intervals {
    type Row = Interval;

    fn of(rows: &[Interval]) -> Intervals {
        let from_us = rows.iter().map(|row| row.at_us).min().unwrap_or(0);
        Intervals {
            from_us,
            at_us: rows.iter().map(|row| row.at_us - from_us).collect(),
            length_us: rows.iter().map(|row| row.length_us).collect(),
            records: rows.iter().map(|row| row.records).collect(),
            bytes: rows.iter().map(|row| row.bytes).collect(),
            p50_us: rows.iter().map(|row| row.p50_us).collect(),
            p99_us: rows.iter().map(|row| row.p99_us).collect(),
            max_us: rows.iter().map(|row| row.max_us).collect(),
            mean_us: rows.iter().map(|row| row.mean_us).collect(),
            p75_us: rows.iter().map(|row| row.p75_us).collect(),
            p95_us: rows.iter().map(|row| row.p95_us).collect(),
            p999_us: rows.iter().map(|row| row.p999_us).collect(),
            p9999_us: rows.iter().map(|row| row.p9999_us).collect(),
        }
    }

    fn rows(self) -> Result<Vec<Interval>, ColumnError> {
        let count = self.at_us.len();
        let lengths = filled("length_us", self.length_us, count)?;
        let records = filled("records", self.records, count)?;
        let bytes = filled("bytes", self.bytes, count)?;
        let p50 = filled("p50_us", self.p50_us, count)?;
        let p99 = filled("p99_us", self.p99_us, count)?;
        let max = filled("max_us", self.max_us, count)?;
        let mean = filled("mean_us", self.mean_us, count)?;
        let p75 = filled("p75_us", self.p75_us, count)?;
        let p95 = filled("p95_us", self.p95_us, count)?;
        let p999 = filled("p999_us", self.p999_us, count)?;
        let p9999 = filled("p9999_us", self.p9999_us, count)?;
        let row = |(place, offset_us): (usize, &u64)| {
            Ok(Interval {
                at_us: self.from_us.checked_add(*offset_us).ok_or(ColumnError::Time)?,
                length_us: lengths[place],
                records: records[place],
                bytes: bytes[place],
                backlog: 0,
                p50_us: p50[place],
                p99_us: p99[place],
                max_us: max[place],
                mean_us: mean[place],
                p75_us: p75[place],
                p95_us: p95[place],
                p999_us: p999[place],
                p9999_us: p9999[place],
            })
        };
        self.at_us.iter().enumerate().map(row).collect()
    }
}

/// A column of each process, none where a sample lacks it.
type ByProcess<T> = Vec<(String, Vec<Option<T>>)>;

/// Samples of processes and machine.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Samples {
    /// The earliest time, since the Unix epoch.
    from_us: u64,
    at_us: Vec<u64>,
    process_cpus: ByProcess<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    process_memory_bytes: ByProcess<u64>,
    #[serde(skip_serializing_if = "is_unset")]
    host_cpus: Vec<f64>,
    #[serde(skip_serializing_if = "is_unset")]
    steal_cpus: Vec<f64>,
    #[serde(skip_serializing_if = "is_unset")]
    disk_written_bytes: Vec<u64>,
    #[serde(skip_serializing_if = "is_unset")]
    in_sync_replicas_min: Vec<Option<u32>>,
}

impl Columns for Samples {
    type Row = Sample;

    fn of(rows: &[Sample]) -> Samples {
        let from_us = rows.iter().map(|row| row.at_us).min().unwrap_or(0);
        Samples {
            from_us,
            at_us: rows.iter().map(|row| row.at_us - from_us).collect(),
            process_cpus: by_process(rows, |row| &row.process_cpus),
            process_memory_bytes: by_process(rows, |row| &row.process_memory_bytes),
            host_cpus: rows.iter().map(|row| row.host_cpus).collect(),
            steal_cpus: rows.iter().map(|row| row.steal_cpus).collect(),
            disk_written_bytes: rows.iter().map(|row| row.disk_written_bytes).collect(),
            in_sync_replicas_min: rows.iter().map(|row| row.in_sync_replicas_min).collect(),
        }
    }

    fn rows(self) -> Result<Vec<Sample>, ColumnError> {
        let count = self.at_us.len();
        even("process_cpus", &self.process_cpus, count)?;
        even("process_memory_bytes", &self.process_memory_bytes, count)?;
        let host_cpus = filled("host_cpus", self.host_cpus, count)?;
        let steal_cpus = filled("steal_cpus", self.steal_cpus, count)?;
        let written = filled("disk_written_bytes", self.disk_written_bytes, count)?;
        let in_sync = filled("in_sync_replicas_min", self.in_sync_replicas_min, count)?;
        let row = |(place, offset_us): (usize, &u64)| {
            Ok(Sample {
                at_us: self.from_us.checked_add(*offset_us).ok_or(ColumnError::Time)?,
                process_cpus: of_row(&self.process_cpus, place),
                process_memory_bytes: of_row(&self.process_memory_bytes, place),
                host_cpus: host_cpus[place],
                steal_cpus: steal_cpus[place],
                disk_written_bytes: written[place],
                in_sync_replicas_min: in_sync[place],
            })
        };
        self.at_us.iter().enumerate().map(row).collect()
    }
}

/// Whether a column says nothing.
fn is_unset<T: Default + PartialEq>(column: &[T]) -> bool {
    column.iter().all(|value| *value == T::default())
}

/// A column that may have been left out.
fn filled<T: Clone + Default>(name: &str, column: Vec<T>, count: usize) -> Result<Vec<T>, ColumnError> {
    match column.len() {
        0 => Ok(vec![T::default(); count]),
        found if found == count => Ok(column),
        found => Err(ColumnError::Length { column: name.to_owned(), found, expected: count }),
    }
}

fn even<T>(name: &str, columns: &ByProcess<T>, expected: usize) -> Result<(), ColumnError> {
    match columns.iter().find(|(_, column)| column.len() != expected) {
        Some((process, column)) => {
            Err(ColumnError::Length { column: format!("{name} of {process}"), found: column.len(), expected })
        }
        None => Ok(()),
    }
}

/// Processes in order of appearance.
fn by_process<T: Copy>(rows: &[Sample], of: fn(&Sample) -> &Vec<(String, T)>) -> ByProcess<T> {
    let mut columns: ByProcess<T> = Vec::new();
    for (name, _) in rows.iter().flat_map(of) {
        if !columns.iter().any(|(known, _)| known == name) {
            let value = |row| of(row).iter().find(|(other, _)| other == name).map(|(_, value)| *value);
            columns.push((name.clone(), rows.iter().map(value).collect()));
        }
    }
    columns
}

fn of_row<T: Copy>(columns: &ByProcess<T>, place: usize) -> Vec<(String, T)> {
    columns.iter().filter_map(|(name, column)| Some((name.clone(), column[place]?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json, to_value};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct ColumnPair {
        #[serde(
            serialize_with = "serialize::<Intervals, _>",
            deserialize_with = "deserialize::<Intervals, _>"
        )]
        intervals: Vec<Interval>,
        #[serde(serialize_with = "serialize::<Samples, _>", deserialize_with = "deserialize::<Samples, _>")]
        samples: Vec<Sample>,
    }

    fn interval(at_us: u64, p99_us: Option<u64>) -> Interval {
        Interval { at_us, length_us: 1_000, records: 5, bytes: 50, p99_us, ..Interval::default() }
    }

    fn sample(at_us: u64, cpus: &[(&str, f64)]) -> Sample {
        let process_cpus = cpus.iter().map(|(name, cpus)| ((*name).to_owned(), *cpus)).collect();
        Sample { at_us, process_cpus, host_cpus: 1.5, ..Sample::default() }
    }

    fn both() -> ColumnPair {
        ColumnPair {
            intervals: vec![interval(7_000, Some(9)), interval(8_000, None)],
            samples: vec![
                sample(7_100, &[("broker-1", 0.5)]),
                sample(8_100, &[("broker-1", 0.25), ("p", 1.0)]),
            ],
        }
    }

    #[test]
    fn each_name_is_written_once() {
        let expected = json!({
            "intervals": {
                "from_us": 7_000, "at_us": [0, 1_000], "length_us": [1_000, 1_000], "records": [5, 5],
                "bytes": [50, 50], "p99_us": [9, null],
            },
            "samples": {
                "from_us": 7_100, "at_us": [0, 1_000], "host_cpus": [1.5, 1.5],
                "process_cpus": [["broker-1", [0.5, 0.25]], ["p", [null, 1.0]]],
            },
        });
        assert_eq!(to_value(both()).expect("plain data"), expected);
        assert_eq!(from_value::<ColumnPair>(expected).expect("readable"), both());
    }

    #[test]
    fn rows_are_read() {
        let rows = json!({ "intervals": both().intervals, "samples": both().samples });
        assert!(rows["intervals"].is_array());
        assert_eq!(from_value::<ColumnPair>(rows).expect("readable"), both());
        let empty: Value = json!({ "intervals": [], "samples": {} });
        assert_eq!(
            from_value::<ColumnPair>(empty).expect("readable"),
            ColumnPair { intervals: vec![], samples: vec![] }
        );
    }

    #[test]
    fn uneven_columns_are_refused() {
        let refused = |intervals: Value, samples: Value| {
            let both = json!({ "intervals": intervals, "samples": samples });
            from_value::<ColumnPair>(both).expect_err("refused").to_string()
        };
        let short = refused(json!({ "at_us": [1, 2], "records": [5] }), json!([]));
        assert_eq!(short, "records has 1 values, at_us has 2");
        let long = refused(json!([]), json!({ "at_us": [1], "process_cpus": [["p", [1.0, 2.0]]] }));
        assert_eq!(long, "process_cpus of p has 2 values, at_us has 1");
        let late = refused(json!({ "from_us": u64::MAX, "at_us": [1] }), json!([]));
        assert_eq!(late, "at_us is out of range");
        assert!(refused(json!(7), json!([])).contains("expected columns or rows"));
    }
}
