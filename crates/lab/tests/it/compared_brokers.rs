//! Figures of `scripts/compare-kafka` in the README, the page of results and their chart are those of the
//! result that they name. UPDATE_DOCS=1 rewrites them.
//!
//! A block is between `<!-- compared RESULT.json PART... -->` and `<!-- /compared -->`; the path is relative
//! to the root. Its parts are `headline`, `chart`, or keys of [`ROWS`]. A chart is the file beside the result
//! with the ending `svg`; its alternative text says what it shows.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::PoisonError;

use serde_json::Value;

use crate::page_blocks::{PAGES_LOCK, assert_fresh, regenerated};

const BEGIN: &str = "<!-- compared ";
const END: &str = "<!-- /compared -->";
const PAGES: [&str; 2] = ["README.md", "docs/results/README.md"];
const CHART: &str = "docs/results/2026-11-22-compare-kafka";

/// A row of the tables.
struct Row {
    key: &'static str,
    title: &'static str,
    /// The row in the result, and its figures.
    row: &'static str,
    figures: &'static [&'static str],
    text: fn(f64) -> String,
}

const SMALL: &str = "50,000 msg/s in small batches";
const LARGE: &str = "our generator, 128 B, acks=1, 6 partitions, 16 KB batch.size";
const START: &str = "exec to first acknowledged record; idle memory";

const ROWS: [Row; 8] = [
    Row {
        key: "librdkafka",
        title: "broker CPU per message, librdkafka producer, 128 B, acks=1",
        row: "librdkafka producer, 128 B, acks=1, 6 partitions",
        figures: &["broker CPU µs/msg"],
        text: |us| format!("{us:.3} µs"),
    },
    Row {
        key: "produce",
        title: "produce 128 B, batches of 16 KB: messages per second",
        row: LARGE,
        figures: &["msg/s"],
        text: millions,
    },
    Row {
        key: "partition",
        title: "produce 1,024 B, one partition, one producer",
        row: "produce 1,024 B, 1 partition, 1 producer",
        figures: &["MB/s"],
        text: |mb| format!("{} MB/s", grouped(mb)),
    },
    Row {
        key: "consume",
        title: "consume 128 B from the page cache: messages per second",
        row: "consume 128 B from the page cache",
        figures: &["msg/s"],
        text: millions,
    },
    Row {
        key: "latency",
        title: "50,000 msg/s in small batches: p50, p99",
        row: SMALL,
        figures: &["p50 µs", "p99 µs"],
        text: micros,
    },
    Row {
        key: "end-to-end",
        title: "end-to-end latency, one message in flight: p50, p99",
        row: "end-to-end latency, one message in flight",
        figures: &["p50 µs", "p99 µs"],
        text: micros,
    },
    Row {
        key: "start",
        title: "exec to first acknowledged record",
        row: START,
        figures: &["start ms"],
        text: |ms| micros(ms * 1e3),
    },
    Row {
        key: "memory",
        title: "idle memory, resident",
        row: START,
        figures: &["idle MiB"],
        text: |mib| format!("{mib:.0} MiB"),
    },
];

fn millions(value: f64) -> String {
    format!("{:.1} M", value / 1e6)
}

fn micros(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e4 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

fn grouped(value: f64) -> String {
    let whole = format!("{value:.0}");
    let head = (whole.len() - 1) % 3 + 1;
    let rest = whole.as_bytes()[head..].chunks(3).map(|part| String::from_utf8_lossy(part));
    rest.fold(whole[..head].to_owned(), |text, part| format!("{text},{part}"))
}

/// Two significant digits, without zeros at the end.
fn ratio(value: f64) -> String {
    let digits = 1 - value.log10().floor() as i32;
    let text = format!("{value:.*}", usize::try_from(digits).unwrap_or(0));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The medians of a figure: Thalweg's and Apache Kafka's.
fn medians(result: &Value, row: &str, figure: &str) -> (f64, f64) {
    let rows = result["rows"].as_array().expect("rows");
    let found = rows.iter().find(|found| found["row"] == row).unwrap_or_else(|| panic!("no row {row}"));
    let median = |system: &str| {
        let runs = found["runs"][system].as_array().expect("runs");
        let mut values: Vec<f64> = runs.iter().map(|run| run[figure].as_f64().expect("a figure")).collect();
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
    };
    (median("thalweg"), median("apache-kafka"))
}

/// `4 cores`, from the machine's description.
fn cores(result: &Value) -> &str {
    let machine = result["machine"].as_str().expect("text");
    machine.split(", ").find(|part| part.ends_with(" cores")).expect("the number of cores")
}

fn headline(result: &Value) -> String {
    let of = |row, figure| medians(result, row, figure);
    let (rate, cpu) = (of(LARGE, "msg/s"), of(LARGE, "broker CPU µs/msg"));
    format!(
        "**{:.1} million messages per second** (128 B, batches of 16 KB, acks=1) on a machine with {}: {} times Apache Kafka's\n\
         rate, for {:.0} % of its broker CPU per message. It starts in {} and idles in {} of resident memory.\n",
        rate.0 / 1e6,
        cores(result),
        ratio(rate.0 / rate.1),
        cpu.0 / cpu.1 * 100.0,
        micros(of(START, "start ms").0 * 1e3),
        format_args!("{:.0} MiB", of(START, "idle MiB").0),
    )
}

fn table(result: &Value, keys: &[&str]) -> String {
    let version = result["Apache Kafka"].as_str().expect("text").split(',').next().expect("a version");
    let mut text = format!(
        "Apache Kafka {version} (1 GB heap, warm) and Thalweg on one machine with {}, the same client, five alternating runs, medians:\n\n\
         | workload | Thalweg | Apache Kafka | ratio |\n|---|---|---|---|\n",
        cores(result)
    );
    assert_eq!(result["runs"], 5);
    for key in keys {
        let row = ROWS.iter().find(|row| row.key == *key).unwrap_or_else(|| panic!("no row {key}"));
        let found: Vec<_> = row.figures.iter().map(|figure| medians(result, row.row, figure)).collect();
        let cell = |of: &dyn Fn(&(f64, f64)) -> String| found.iter().map(of).collect::<Vec<_>>().join(", ");
        let (ours, theirs) = (cell(&|one| (row.text)(one.0)), cell(&|one| (row.text)(one.1)));
        let ratios = cell(&|one| ratio(one.0 / one.1));
        writeln!(text, "| {} | {ours} | {theirs} | {ratios} |", row.title).expect("a String takes it");
    }
    text
}

fn block(root: &Path, words: &str) -> String {
    let (path, parts) = words.split_once(' ').expect("a path and parts");
    let result = read(root, path);
    match parts {
        "headline" => headline(&result),
        "chart" => format!("![{}]({})\n", description(&result), path.replace(".json", ".svg")),
        keys => table(&result, &keys.split(' ').collect::<Vec<_>>()),
    }
}

fn read(root: &Path, path: &str) -> Value {
    let text = std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

/// A pair of bars: title, better direction, Thalweg's and Apache Kafka's value, and their text.
type Panel = (&'static str, &'static str, (f64, f64), fn(f64) -> String);

/// Three pairs of bars: rate, processor time, latency.
fn panels(result: &Value) -> [Panel; 3] {
    [
        ("messages per second", "more is better", medians(result, LARGE, "msg/s"), millions),
        ("broker CPU per message", "less is better", medians(result, LARGE, "broker CPU µs/msg"), |us| {
            format!("{us:.3} µs")
        }),
        ("p99 at 50,000 messages per second", "less is better", medians(result, SMALL, "p99 µs"), micros),
    ]
}

/// What the chart shows, for readers who do not see it.
fn description(result: &Value) -> String {
    let pairs = panels(result).map(|(title, better, (ours, theirs), text)| {
        let leads = match (ours > theirs) == (better == "more is better") {
            true => "Thalweg leads",
            false => "Apache Kafka leads",
        };
        format!("{title}, {} and {}, {leads} ({better})", text(ours), text(theirs))
    });
    format!("Bars of Thalweg and Apache Kafka on one machine: {}", pairs.join("; "))
}

fn chart(result: &Value) -> String {
    let mut svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 208\" role=\"img\" \
                   font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
                   <title>Thalweg beside Apache Kafka on one machine</title>\n"
        .to_owned();
    writeln!(svg, "<desc>{}</desc>", description(result)).expect("a String");
    svg += "\
                   <style>text { fill: #24292f } .dim { fill: #656d76 } .ours { fill: #0969da } .theirs { fill: #8c959f }\n\
                   @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .dim { fill: #8d96a0 } .ours { fill: #4493f8 } \
                   .theirs { fill: #6e7681 } }</style>\n";
    for (at, (title, better, (ours, theirs), text)) in panels(result).into_iter().enumerate() {
        let top = 18 + at * 68;
        writeln!(svg, "<text x=\"0\" y=\"{top}\" font-weight=\"600\">{title}</text>").expect("a String");
        writeln!(svg, "<text x=\"760\" y=\"{top}\" text-anchor=\"end\" class=\"dim\">{better}</text>")
            .expect("a String");
        for (place, (name, class, value)) in
            [("Thalweg", "ours", ours), ("Apache Kafka", "theirs", theirs)].into_iter().enumerate()
        {
            let y = top + 8 + place * 20;
            let width = value / ours.max(theirs) * 560.0;
            let (base, end) = (y + 12, 110.0 + width);
            writeln!(svg, "<text x=\"0\" y=\"{base}\">{name}</text>").expect("a String");
            let shape = format!("x=\"104\" y=\"{y}\" width=\"{width:.1}\" height=\"16\" rx=\"2\"");
            writeln!(svg, "<rect class=\"{class}\" {shape}/>").expect("a String");
            writeln!(svg, "<text x=\"{end:.1}\" y=\"{base}\">{}</text>", text(value)).expect("a String");
        }
    }
    svg + "</svg>\n"
}

#[test]
fn blocks_and_chart_are_those_of_the_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let _held = PAGES_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    for page in PAGES {
        let path = root.join(page);
        let page_text = std::fs::read_to_string(&path).expect("the page is there");
        let (fresh, blocks) = regenerated(&page_text, BEGIN, END, |words| block(&root, words));
        assert!(blocks > 0, "{page} has figures");
        assert_fresh(&path, &fresh);
    }
    assert_fresh(&root.join(format!("{CHART}.svg")), &chart(&read(&root, &format!("{CHART}.json"))));
}

#[test]
fn the_chart_is_described_with_its_leaders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut result = read(&root, &format!("{CHART}.json"));
    assert!(description(&result).contains(": messages per second, 11.1 M and 2.4 M, Thalweg leads (more is"));
    for row in result["rows"].as_array_mut().expect("rows") {
        let ours = row["runs"]["thalweg"].take();
        row["runs"]["thalweg"] = std::mem::replace(&mut row["runs"]["apache-kafka"], ours);
    }
    let swapped = description(&result);
    assert_eq!(swapped.matches("Apache Kafka leads").count(), 3, "{swapped}");
}

#[test]
fn figures_have_the_digits_that_a_reader_compares() {
    assert_eq!(
        [4.58, 10.1, 0.0299, 0.501, 0.0053, 123.0].map(ratio),
        ["4.6", "10", "0.03", "0.5", "0.0053", "123"]
    );
    assert_eq!([88.2, 2_733.0, 12_300.0, 2_319_000.0].map(micros), ["88 µs", "2.7 ms", "12 ms", "2.3 s"]);
    assert_eq!([134.0, 1_353.4, 1_234_567.0].map(grouped), ["134", "1,353", "1,234,567"]);
}
