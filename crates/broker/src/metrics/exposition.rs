//! Prometheus' text format, version 0.0.4: families of samples, one line for each sample.
//!
//! Owns the form: names, labels, escapes, numbers. Knows no metrics.

use std::fmt::Write;

/// The value of the header Content-Type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, until the process restarts. Its name ends in `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Quantiles of the last one to two minutes, with the count and the sum since the start.
    Summary,
}

impl Kind {
    /// Prometheus' name of it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        }
    }
}

/// A page of families.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// A value of a sample. Whole numbers stay whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(i128),
    /// Any other.
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

impl Exposition {
    /// Starts a family. All its samples follow before the next one starts.
    pub fn family<'a>(
        &'a mut self,
        name: &'a str,
        kind: Kind,
        help: &str,
        labels: &'a [&'a str],
    ) -> Samples<'a> {
        let start = self.text.len();
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.name());
        let head = self.text.len();
        Samples { text: &mut self.text, name, labels, start, head }
    }

    /// Adds families that were written elsewhere, in the same format.
    pub fn append(&mut self, families: &str) {
        self.text.push_str(families);
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The samples of a family. Without any, the family is left out.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    name: &'a str,
    labels: &'a [&'a str],
    start: usize,
    head: usize,
}

impl Samples<'_> {
    /// Adds a sample. `values` are the values of the family's labels, in their order; a label whose value is empty is
    /// left out.
    pub fn add(&mut self, values: &[&str], number: impl Into<Number>) {
        self.line("", values, None, number.into());
    }

    /// Adds a quantile of a summary.
    pub fn quantile(&mut self, values: &[&str], quantile: &str, number: f64) {
        self.line("", values, Some(("quantile", quantile)), Number::Real(number));
    }

    /// Adds the count and the sum of a summary.
    pub fn count_and_sum(&mut self, values: &[&str], count: u64, sum: f64) {
        self.line("_count", values, None, count.into());
        self.line("_sum", values, None, sum.into());
    }

    fn line(&mut self, suffix: &str, values: &[&str], last: Option<(&str, &str)>, number: Number) {
        debug_assert_eq!(values.len(), self.labels.len(), "{}: a value for each label", self.name);
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let pairs = self.labels.iter().copied().zip(values.iter().copied());
        let mut separator = '{';
        for (label, value) in pairs.filter(|(_, value)| !value.is_empty()).chain(last) {
            self.text.push(separator);
            separator = ',';
            self.text.push_str(label);
            self.text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = match number {
            Number::Whole(number) => writeln!(self.text, " {number}"),
            Number::Real(number) if number.is_nan() => writeln!(self.text, " NaN"),
            Number::Real(number) => writeln!(self.text, " {number}"),
        };
    }
}

impl Drop for Samples<'_> {
    fn drop(&mut self) {
        if self.text.len() == self.head {
            self.text.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_a_head_and_a_line_for_each_sample() {
        let mut page = Exposition::default();
        let mut samples = page.family("bytes_total", Kind::Counter, "Bytes\nin.", &["topic", "partition"]);
        samples.add(&["", ""], 7u64);
        samples.add(&["a\"\\b", "3"], 2.5);
        drop(samples);
        page.family("nothing", Kind::Gauge, "Nothing.", &[]);
        let mut samples = page.family("time", Kind::Summary, "Time.", &["request"]);
        samples.quantile(&["Fetch"], "0.99", f64::NAN);
        samples.count_and_sum(&["Fetch"], 2, 0.5);
        drop(samples);
        assert_eq!(
            page.into_text(),
            "# HELP bytes_total Bytes\\nin.\n# TYPE bytes_total counter\nbytes_total 7\n\
             bytes_total{topic=\"a\\\"\\\\b\",partition=\"3\"} 2.5\n\
             # HELP time Time.\n# TYPE time summary\ntime{request=\"Fetch\",quantile=\"0.99\"} NaN\n\
             time_count{request=\"Fetch\"} 2\ntime_sum{request=\"Fetch\"} 0.5\n"
        );
    }
}
