//! Reads OTLP's metrics (`opentelemetry/proto/metrics/v1`) from protobuf: gauges and sums, the types that
//! Kafka's clients send. Histograms and summaries are skipped.
//!
//! Written by hand, like the exposition: OTLP crates take longer to build than the broker's metrics.

use std::fmt::Write;

/// Maximum length of a metric's name, and of its attributes as text.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metrics are no message of OTLP")]
pub(super) struct MalformedMetrics;

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) name: String,
    /// `key=value` of each attribute, in order, separated by commas.
    pub(super) attributes: String,
    pub(super) value: f64,
    /// True if the value is the increase since the last push.
    pub(super) is_delta: bool,
}

/// The points of `MetricsData`, at most `points_max`, and the number of points left out.
pub(super) fn points(bytes: &[u8], points_max: usize) -> Result<(Vec<Point>, usize), MalformedMetrics> {
    let (mut points, mut dropped) = (Vec::new(), 0);
    for resource in messages(bytes, 1) {
        for scope in messages(resource?, 2) {
            for metric in messages(scope?, 2) {
                self::metric(metric?, &mut |point| {
                    if points.len() < points_max
                        && point.name.len().max(point.attributes.len()) <= TEXT_BYTES_MAX
                    {
                        points.push(point);
                    } else {
                        dropped += 1;
                    }
                })?;
            }
        }
    }
    Ok((points, dropped))
}

/// `AGGREGATION_TEMPORALITY_DELTA`.
const DELTA: u64 = 1;

fn metric(bytes: &[u8], found: &mut impl FnMut(Point)) -> Result<(), MalformedMetrics> {
    let name = messages(bytes, 1).last().transpose()?.unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| MalformedMetrics)?;
    // 5 is a gauge, 7 a sum.
    for (kind, number) in
        [5, 7].into_iter().flat_map(|number| messages(bytes, number).map(move |m| (m, number)))
    {
        let kind = kind?;
        let mut temporality = 0;
        for field in Fields(kind) {
            if let (2, Field::Varint(value)) = field? {
                temporality = value;
            }
        }
        for point in messages(kind, 1) {
            let (mut value, mut attributes) = (None, Vec::new());
            for field in Fields(point?) {
                match field? {
                    (4, Field::Fixed64(bits)) => value = Some(f64::from_bits(bits)),
                    (6, Field::Fixed64(bits)) => value = Some(bits.cast_signed() as f64),
                    (7, Field::Bytes(attribute)) => attributes.push(self::attribute(attribute)?),
                    _ => {}
                }
            }
            attributes.sort_unstable();
            let Some(value) = value else { continue };
            let is_delta = number == 7 && temporality == DELTA;
            found(Point { name: name.to_owned(), attributes: attributes.join(","), value, is_delta });
        }
    }
    Ok(())
}

/// `KeyValue`, as text. Lists and bytes become empty text.
fn attribute(bytes: &[u8]) -> Result<String, MalformedMetrics> {
    let mut text = String::new();
    for (number, quoted) in [(1, false), (2, true)] {
        for field in messages(bytes, number) {
            let field = field?;
            if !quoted {
                text.push_str(std::str::from_utf8(field).map_err(|_| MalformedMetrics)?);
                continue;
            }
            text.push('=');
            for value in Fields(field) {
                match value? {
                    (1, Field::Bytes(value)) => {
                        text.push_str(std::str::from_utf8(value).map_err(|_| MalformedMetrics)?);
                    }
                    (2, Field::Varint(value)) => text.push_str(if value == 0 { "false" } else { "true" }),
                    (3, Field::Varint(value)) => {
                        write!(text, "{}", value.cast_signed()).map_err(|_| MalformedMetrics)?
                    }
                    (4, Field::Fixed64(bits)) => {
                        write!(text, "{}", f64::from_bits(bits)).map_err(|_| MalformedMetrics)?;
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(text)
}

/// The embedded messages and texts of a field.
fn messages(bytes: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], MalformedMetrics>> {
    Fields(bytes).filter_map(move |field| match field {
        Ok((found, Field::Bytes(bytes))) if found == number => Some(Ok(bytes)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

enum Field<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    Fixed32,
}

/// The fields of a message, with their numbers. Ends after an error.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn varint(&mut self) -> Result<u64, MalformedMetrics> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(MalformedMetrics)?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(MalformedMetrics)
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], MalformedMetrics> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MalformedMetrics)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Field<'b>), MalformedMetrics> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| MalformedMetrics)?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| MalformedMetrics)?;
                Field::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Field::Fixed32)?,
            _ => return Err(MalformedMetrics),
        };
        Ok((tag >> 3, field))
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(u64, Field<'b>), MalformedMetrics>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
