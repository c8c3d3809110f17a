//! The parts of a sample in every form of a page: the labels' values, the number, an exemplar; and the type,
//! name and unit of its family.

/// The type of a family's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only rises until the process restarts. The name ends in `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Counts by upper bounds, and the sum, since the start.
    Histogram,
    /// Quantiles of the last one to two minutes, with the count and the sum since the start.
    Summary,
}

impl MetricKind {
    /// Prometheus' name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        }
    }
}

/// The name of a family in OpenMetrics: counters are named without their suffix.
pub(super) fn family_name(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// The unit in a family's name.
pub(super) fn unit(name: &str) -> Option<&'static str> {
    ["seconds", "bytes"]
        .into_iter()
        .find(|unit| family_name(name).strip_suffix(unit).is_some_and(|before| before.ends_with('_')))
}

/// A value of a sample. Whole numbers stay whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(i128),
    /// A real number.
    Real(f64),
}

macro_rules! whole {
    ($($type:ty),*) => {
        $(impl From<$type> for Number {
            fn from(value: $type) -> Number {
                Number::Whole(i128::from(value))
            }
        })*
    };
}
whole!(i32, i64, u16, u32, u64, bool);

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::Whole(i128::try_from(value).unwrap_or(i128::MAX))
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Real(value)
    }
}

/// The value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// Text. A label with an empty value is left out.
    Text(&'a str),
    Whole(i64),
}

impl Label<'_> {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Label::Text(""))
    }
}

/// An observation as an example for its bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// A hash of the client id, because ids may be secret or long.
    pub client_hash: u32,
    pub value: f64,
    /// Time in milliseconds since 1970.
    pub at_ms: i64,
}

#[expect(clippy::cast_precision_loss, reason = "sums of times and sizes may lose their last digits")]
pub(super) fn scaled(value: u64, per_unit: f64) -> f64 {
    value as f64 / per_unit
}
