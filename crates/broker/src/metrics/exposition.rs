//! A page of metrics: families of samples, in one of three forms.
//!
//! - Prometheus' text format, version 0.0.4
//! - OpenMetrics 1.0: counters by their name without `_total`, units, times of creation, exemplars, an end
//! - OTLP's protobuf (`otlp`)
//!
//! The samples of topics, partitions, groups and clients are bounded: a family that does not fit is left out
//! as a whole, so that no sum over a family is wrong, and is counted. A sample costs no allocation.

use super::otlp;
use super::sample::{Exemplar, Label, MetricKind, Number, family_name, scaled, unit};
use super::text::{push_label_value, push_number, push_whole};
use std::io::Write;
use thalweg_histogram::Snapshot;

/// The form of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' text format.
    #[default]
    Text,
    OpenMetrics,
    /// Metrics of an `ExportMetricsServiceRequest`.
    Otlp,
}

impl Form {
    /// The value of the header Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Otlp => "application/x-protobuf",
        }
    }

    /// The form that a client prefers by its header Accept. OpenMetrics only if it is named, and not after
    /// plain text.
    pub fn accepted(accept: &str) -> Form {
        let quality = |wanted: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let is_wanted = parts.next()?.eq_ignore_ascii_case(wanted);
                let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
                is_wanted.then_some(quality.unwrap_or(1.0))
            });
            ranges.fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Form::OpenMetrics } else { Form::Text }
    }
}

/// A page of families.
#[derive(Debug)]
pub struct Exposition {
    out: Vec<u8>,
    form: Form,
    /// Start of the counters, in milliseconds since 1970.
    pub(super) started_ms: i64,
    pub(super) now_ms: i64,
    /// Number of further limited samples.
    left: usize,
    dropped: Vec<(&'static str, u64)>,
}

impl Default for Exposition {
    fn default() -> Exposition {
        Exposition::new(Form::Text, usize::MAX)
    }
}

/// Labels that have as many values as there are topics, groups or clients.
const LIMITED: [&str; 5] = ["topic", "consumergroup", "clientId", "ip", "user"];

impl Exposition {
    /// A page of this form, with at most `limited_max` samples of topics, partitions, groups and clients.
    pub fn new(form: Form, limited_max: usize) -> Exposition {
        Exposition { out: Vec::new(), form, started_ms: 0, now_ms: 0, left: limited_max, dropped: Vec::new() }
    }

    /// Allows at most `limited_max` further samples of topics, partitions, groups and clients.
    pub(super) fn limit(&mut self, limited_max: usize) {
        self.left = self.left.min(limited_max);
    }

    /// The form that the page is written in.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Starts a family. All its samples follow before the next one starts.
    pub fn family<'a>(
        &'a mut self,
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        labels: &'a [&'a str],
    ) -> Samples<'a> {
        let start = self.out.len();
        if self.form != Form::Otlp {
            self.head(name, kind, help);
        }
        let head = self.out.len();
        let is_limited = labels.iter().any(|label| LIMITED.contains(label));
        Samples { page: self, name, kind, help, labels, start, head, kept: head, is_limited, count: 0 }
    }

    fn head(&mut self, name: &str, kind: MetricKind, help: &str) {
        let is_open = self.form == Form::OpenMetrics;
        let name = if is_open { family_name(name) } else { name };
        let out = &mut self.out;
        out.extend_from_slice(b"# HELP ");
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
        for byte in help.bytes() {
            match byte {
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'"' if is_open => out.extend_from_slice(b"\\\""),
                byte => out.push(byte),
            }
        }
        out.extend_from_slice(b"\n# TYPE ");
        out.extend_from_slice(name.as_bytes());
        out.push(b' ');
        out.extend_from_slice(kind.name().as_bytes());
        out.push(b'\n');
        if let Some(unit) = unit(name).filter(|_| is_open) {
            out.extend_from_slice(b"# UNIT ");
            out.extend_from_slice(name.as_bytes());
            out.push(b' ');
            out.extend_from_slice(unit.as_bytes());
            out.push(b'\n');
        }
    }

    /// Adds families in Prometheus' text format that were written elsewhere. OTLP leaves them out.
    pub fn append(&mut self, families: &str) {
        match self.form {
            Form::Text => self.out.extend_from_slice(families.as_bytes()),
            Form::OpenMetrics => families.lines().for_each(|line| self.append_open(line)),
            Form::Otlp => {}
        }
    }

    fn append_open(&mut self, line: &str) {
        let mut words = line.splitn(4, ' ');
        let line = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) => {
                format!("# {what} {} {}\n", family_name(name), rest.replace('"', "\\\""))
            }
            _ => format!("{line}\n"),
        };
        self.out.extend_from_slice(line.as_bytes());
    }

    /// Number of bytes written and not taken.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// True if there are no bytes to take.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes the bytes written so far.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Number of samples of each family that were left out.
    pub(super) fn dropped(&self) -> &[(&'static str, u64)] {
        &self.dropped
    }

    /// Ends the page.
    pub fn finish(&mut self) {
        if self.form == Form::OpenMetrics {
            self.out.extend_from_slice(b"# EOF\n");
        }
    }

    /// The whole page, if it was not taken in parts.
    pub fn into_text(mut self) -> String {
        self.finish();
        String::from_utf8(self.out).expect("labels are text, and everything else is ours")
    }
}

/// The samples of a family. Without any, the family is left out.
#[derive(Debug)]
pub struct Samples<'a> {
    page: &'a mut Exposition,
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    labels: &'a [&'a str],
    start: usize,
    head: usize,
    /// The end of the samples that are never left out.
    kept: usize,
    is_limited: bool,
    /// Number of samples that count towards the limit.
    count: usize,
}

impl Samples<'_> {
    /// Adds a sample. `values` are the values of the family's labels, in their order; a label whose value is
    /// empty is left out.
    pub fn add(&mut self, values: &[&str], number: impl Into<Number>) {
        match *values {
            [] => self.add_labelled(&[], number),
            [one] => self.add_labelled(&[Label::Text(one)], number),
            [one, two] => self.add_labelled(&[Label::Text(one), Label::Text(two)], number),
            [one, two, three] => {
                self.add_labelled(&[Label::Text(one), Label::Text(two), Label::Text(three)], number);
            }
            _ => unreachable!("{}: no family has so many labels", self.name),
        }
    }

    /// Adds a sample whose labels are text or numbers.
    pub fn add_labelled(&mut self, values: &[Label<'_>], number: impl Into<Number>) {
        if !self.begin(values, 1) {
            return;
        }
        let number = number.into();
        if self.page.form == Form::Otlp {
            let times = self.times();
            otlp::number(&mut self.page.out, self.labels, values, number, times);
            return self.keep(values);
        }
        self.line("", values, None, number);
        if self.kind == MetricKind::Counter {
            self.created(values);
        }
        self.keep(values);
    }

    /// Announces `count` samples, and returns true if they fit. Otherwise the samples need not be added.
    pub fn fit(&mut self, count: usize) -> bool {
        let fits = !self.is_limited || self.count + count <= self.page.left;
        if !fits {
            self.count += count;
        }
        fits
    }

    /// Adds a summary.
    pub fn summary(&mut self, values: &[&str], quantiles: &[(&str, f64, f64)], count: u64, sum: f64) {
        let labels: Vec<_> = values.iter().map(|value| Label::Text(value)).collect();
        if !self.begin(&labels, quantiles.len() + 2) {
            return;
        }
        if self.page.form == Form::Otlp {
            let times = self.times();
            otlp::summary(&mut self.page.out, self.labels, &labels, quantiles, (count, sum), times);
            return;
        }
        for (name, _, value) in quantiles {
            self.line("", &labels, Some(("quantile", name)), Number::Real(*value));
        }
        self.line("_count", &labels, None, count.into());
        self.line("_sum", &labels, None, sum.into());
        self.created(&labels);
    }

    /// Adds a histogram with values in parts of the family's unit: `per_unit` parts make one unit.
    /// `exemplars` belong to the buckets in order; there may be fewer.
    pub fn histogram(
        &mut self,
        values: &[&str],
        read: &Snapshot,
        per_unit: f64,
        exemplars: &[Option<Exemplar>],
    ) {
        let labels: Vec<_> = values.iter().map(|value| Label::Text(value)).collect();
        if !self.begin(&labels, read.bounds.len() + 3) {
            return;
        }
        if self.page.form == Form::Otlp {
            let times = self.times();
            otlp::histogram(&mut self.page.out, self.labels, &labels, (read, per_unit), exemplars, times);
            return;
        }
        let is_open = self.page.form == Form::OpenMetrics;
        let mut below = 0;
        let mut bound_text = String::new();
        for (bucket, count) in read.counts.iter().enumerate().take(read.bounds.len() + 1) {
            below += count;
            bound_text.clear();
            match read.bounds.get(bucket) {
                Some(bound) => push_bound(&mut bound_text, scaled(*bound, per_unit), is_open),
                None => bound_text.push_str("+Inf"),
            }
            self.line("_bucket", &labels, Some(("le", &bound_text)), below.into());
            if let Some(exemplar) = exemplars.get(bucket).copied().flatten().filter(|_| is_open) {
                self.exemplar(&exemplar);
            }
        }
        self.line("_count", &labels, None, below.into());
        self.line("_sum", &labels, None, scaled(read.sum, per_unit).into());
        self.created(&labels);
    }

    /// Returns true if a sample is written. Samples without a limit always are.
    fn begin(&mut self, values: &[Label<'_>], lines: usize) -> bool {
        debug_assert_eq!(values.len(), self.labels.len(), "{}: a value for each label", self.name);
        if !self.is_limited || values.iter().all(Label::is_empty) {
            return true;
        }
        self.count += lines;
        self.count <= self.page.left
    }

    /// The sample of all topics comes first, and stays if the samples of single topics do not fit.
    fn keep(&mut self, values: &[Label<'_>]) {
        if self.count == 0 && values.iter().all(Label::is_empty) {
            self.kept = self.page.out.len();
        }
    }

    fn times(&self) -> otlp::Times {
        otlp::Times { started_ms: self.page.started_ms, now_ms: self.page.now_ms }
    }

    /// Writes the start of a sample's counter. For topics and groups the start is unknown.
    fn created(&mut self, values: &[Label<'_>]) {
        if self.page.form == Form::OpenMetrics && !self.is_limited {
            let began = Number::Real(seconds(self.page.started_ms));
            self.named(family_name(self.name), "_created", values, None, began);
        }
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let out = &mut self.page.out;
        // The exemplar follows the value on the same line.
        out.pop();
        let Exemplar { client_hash, value, at_ms } = exemplar;
        let at = seconds(*at_ms);
        writeln!(out, " # {{client_hash=\"{client_hash:08x}\"}} {value} {at:.3}").expect("memory takes it");
    }

    fn line(&mut self, suffix: &str, values: &[Label<'_>], last: Option<(&str, &str)>, number: Number) {
        self.named(self.name, suffix, values, last, number);
    }

    fn named(
        &mut self,
        name: &str,
        suffix: &str,
        values: &[Label<'_>],
        last: Option<(&str, &str)>,
        number: Number,
    ) {
        let out = &mut self.page.out;
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(suffix.as_bytes());
        let mut separator = b'{';
        for (label, value) in self.labels.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
            out.push(separator);
            separator = b',';
            out.extend_from_slice(label.as_bytes());
            out.extend_from_slice(b"=\"");
            match value {
                Label::Text(text) => push_label_value(out, text),
                Label::Whole(number) => push_whole(out, i128::from(*number)),
            }
            out.push(b'"');
        }
        if let Some((label, value)) = last {
            out.push(separator);
            separator = b',';
            out.extend_from_slice(label.as_bytes());
            out.extend_from_slice(b"=\"");
            out.extend_from_slice(value.as_bytes());
            out.push(b'"');
        }
        if separator == b',' {
            out.push(b'}');
        }
        out.push(b' ');
        push_number(out, number);
        out.push(b'\n');
    }
}

impl Drop for Samples<'_> {
    fn drop(&mut self) {
        if self.count > self.page.left {
            self.page.out.truncate(self.kept);
            self.page.dropped.push((self.name, self.count as u64));
        } else {
            self.page.left -= self.count;
        }
        if self.page.out.len() == self.head {
            self.page.out.truncate(self.start);
        } else if self.page.form == Form::Otlp {
            otlp::metric(&mut self.page.out, self.start, (self.name, self.kind, self.help));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds are far below 2^53")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// In OpenMetrics a bound is written as a real number.
fn push_bound(out: &mut String, bound: f64, is_open: bool) {
    use std::fmt::Write;
    let _ = if is_open { write!(out, "{bound:?}") } else { write!(out, "{bound}") };
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_histogram::Histogram;

    fn page(form: Form, limited_max: usize) -> Exposition {
        let mut page = Exposition::new(form, limited_max);
        (page.started_ms, page.now_ms) = (1_500, 9_000);
        page
    }

    #[test]
    fn a_family_is_a_head_and_a_line_for_each_sample() {
        let mut page = Exposition::default();
        let mut samples =
            page.family("bytes_total", MetricKind::Counter, "Bytes\nin.", &["topic", "partition"]);
        samples.add(&["", ""], 7u64);
        samples.add_labelled(&[Label::Text("a\"\\b"), Label::Whole(3)], 2.5);
        drop(samples);
        page.family("nothing", MetricKind::Gauge, "Nothing.", &[]);
        let mut samples = page.family("time", MetricKind::Summary, "Time.", &["request"]);
        samples.summary(&["Fetch"], &[("0.99", 0.99, f64::NAN)], 2, 0.5);
        drop(samples);
        assert_eq!(
            page.into_text(),
            "# HELP bytes_total Bytes\\nin.\n# TYPE bytes_total counter\nbytes_total 7\n\
             bytes_total{topic=\"a\\\"\\\\b\",partition=\"3\"} 2.5\n\
             # HELP time Time.\n# TYPE time summary\ntime{request=\"Fetch\",quantile=\"0.99\"} NaN\n\
             time_count{request=\"Fetch\"} 2\ntime_sum{request=\"Fetch\"} 0.5\n"
        );
    }

    #[test]
    fn openmetrics_has_units_creation_times_exemplars_and_an_end() {
        let mut page = page(Form::OpenMetrics, 10);
        page.family("cpu_seconds_total", MetricKind::Counter, "Say \"CPU\".", &[]).add(&[], 2u64);
        let histogram = Histogram::new(&[1_000, 1_000_000]);
        histogram.record(1_500);
        let exemplar = Exemplar { client_hash: 0xab, value: 0.0015, at_ms: 8_250 };
        let read = histogram.snapshot();
        let mut samples = page.family("wait_seconds", MetricKind::Histogram, "Wait.", &["request"]);
        samples.histogram(&["Fetch"], &read, 1e6, &[None, Some(exemplar)]);
        drop(samples);
        page.append("# HELP more_total More.\n# TYPE more_total counter\nmore_total{a=\"b\"} 1\n");
        assert_eq!(
            page.into_text(),
            "# HELP cpu_seconds Say \\\"CPU\\\".\n# TYPE cpu_seconds counter\n# UNIT cpu_seconds seconds\n\
             cpu_seconds_total 2\ncpu_seconds_created 1.5\n\
             # HELP wait_seconds Wait.\n# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n\
             wait_seconds_bucket{request=\"Fetch\",le=\"0.001\"} 0\n\
             wait_seconds_bucket{request=\"Fetch\",le=\"1.0\"} 1 # {client_hash=\"000000ab\"} 0.0015 8.250\n\
             wait_seconds_bucket{request=\"Fetch\",le=\"+Inf\"} 1\n\
             wait_seconds_count{request=\"Fetch\"} 1\nwait_seconds_sum{request=\"Fetch\"} 0.0015\n\
             wait_seconds_created{request=\"Fetch\"} 1.5\n\
             # HELP more More.\n# TYPE more counter\nmore_total{a=\"b\"} 1\n# EOF\n"
        );
    }

    #[test]
    fn a_family_that_does_not_fit_is_left_out_whole_and_counted() {
        let mut page = page(Form::Text, 3);
        for (name, topics) in [("one", 2), ("two", 2), ("three", 1)] {
            let mut samples = page.family(name, MetricKind::Gauge, "Help.", &["topic"]);
            samples.add(&[""], 9u64);
            for topic in ["a", "b"].iter().take(topics) {
                samples.add(&[topic], 1u64);
            }
        }
        let mut samples = page.family("four", MetricKind::Gauge, "Help.", &["topic"]);
        assert!(!samples.fit(5));
        drop(samples);
        page.family("five", MetricKind::Gauge, "Help.", &["request"]).add(&["Fetch"], 1u64);
        assert_eq!(page.dropped(), [("two", 2), ("four", 5)]);
        let text = page.into_text();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "one 9",
                "one{topic=\"a\"} 1",
                "one{topic=\"b\"} 1",
                "two 9",
                "three 9",
                "three{topic=\"a\"} 1",
                "five{request=\"Fetch\"} 1"
            ]
        );
        assert!(!text.contains("four"), "{text}");
    }

    #[test]
    fn samples_cost_no_allocation() {
        for form in [Form::Text, Form::OpenMetrics] {
            let mut page = page(form, usize::MAX);
            page.out.reserve(1024 * 1024);
            let mut samples =
                page.family("bytes_total", MetricKind::Counter, "Bytes.", &["topic", "partition"]);
            let used = allocation_counter::measure(|| {
                for partition in 0..1000 {
                    let labels = [Label::Text("orders"), Label::Whole(partition)];
                    samples.add_labelled(&labels, 12_345_678_901_u64);
                    samples.add(&["orders", "7"], 0.25);
                }
            });
            assert_eq!(used.count_total, 0, "{form:?}");
        }
    }

    #[test]
    fn the_client_chooses_the_form() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
        assert_eq!(Form::accepted("text/plain, application/openmetrics-text;q=0.9"), Form::Text);
        assert_eq!(Form::accepted("application/openmetrics-text; version=1.0.0"), Form::OpenMetrics);
        for text in ["", "*/*", "text/html,*/*;q=0.1", "application/openmetrics-text;q=0"] {
            assert_eq!(Form::accepted(text), Form::Text, "{text}");
        }
    }
}
