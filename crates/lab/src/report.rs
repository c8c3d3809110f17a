//! A result as one self-contained page: no script, no requests, light and dark, for screen and paper.
//!
//! All text from the result is escaped, and the page's policy forbids scripts and requests, so that a hostile name stays a
//! name.

mod chart;
mod headline;
mod latency;
mod markdown;
mod palette;
mod saturation;
mod settings;
mod tables;
mod text;
mod throughput;
mod timeline;

pub use markdown::markdown;
pub use throughput::cumulative_bars;

use crate::quantity;
use crate::result::{Comparison, RunResult, State, WorkloadResult};
use palette::Palette;
use text::folded;
pub(crate) use text::{clean, escape};

const STYLE: &str = include_str!("report/style.css");

/// The page of a result.
pub fn html(run: &RunResult) -> String {
    let palette = Palette::of(run);
    let comparisons = headline::comparisons(run, &palette);
    let names: Vec<&str> = run.workloads.iter().map(|workload| workload.workload.name.as_str()).collect();
    let mut body = header(run, &names);
    body += "<main>";
    let cards: String = run
        .workloads
        .iter()
        .map(|workload| headline::cards(workload, &palette.within(workload), &comparisons))
        .collect();
    if cards.is_empty() {
        body += "<p class=\"banner\">Nothing was measured.</p>";
    } else {
        body +=
            &format!("<section id=\"headlines\"><div class=\"cards\">{cards}</div>{}</section>", reading());
    }
    for (number, workload) in run.workloads.iter().enumerate() {
        body += &section(number, workload, &palette.within(workload));
    }
    body += &format!(
        "<section id=\"again\"><h2>Repeat it</h2>{}</section>\
         <section id=\"machine\"><h2>Machine, systems and versions</h2>{}</section></main>",
        settings::command(run),
        settings::machine(run)
    );
    body += &comparison_method(&comparisons);
    page(&format!("Thalweg lab: {}", names.join(", ")), &body)
}

/// A page with the style of the reports around the markup `body`.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{}</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n",
        escape(title)
    )
}

fn header(run: &RunResult, names: &[&str]) -> String {
    let machine = &run.machine;
    let on = [
        machine.cpu.clone(),
        format!("{} logical processors", machine.cpus),
        format!("{} of memory", quantity::bytes(machine.memory_bytes as f64)),
        machine.os.clone(),
        machine.kernel.clone(),
    ];
    let on: Vec<String> = on.into_iter().filter(|text| !text.is_empty()).collect();
    let mut markup = format!(
        "<header><p class=\"brand\">Thalweg lab</p><h1>{}</h1><p class=\"sub\">Measured {} to {}<br>{}</p>",
        match names.is_empty() {
            true => "An empty run".to_owned(),
            false => names
                .iter()
                .map(|name| format!("<span>{}</span>", escape(name)))
                .collect::<Vec<_>>()
                .join(" · "),
        },
        escape(&moment(&run.began_at)),
        escape(&moment(&run.ended_at)),
        escape(&on.join(" · ")),
    );
    if let State::Partial { why } = &run.state {
        markup += &format!(
            "<p class=\"banner\"><b>This run is incomplete.</b> {}. Earlier measurements are below.</p>",
            escape(why)
        );
    }
    let points = run.workloads.iter().flat_map(|workload| &workload.points);
    let contradicted = points.filter(|point| headline::contradicted(point)).count();
    if contradicted > 0 {
        markup += &format!(
            "<p class=\"banner\"><b class=\"bad\">✗ The evidence indicates lost records.</b> Affected results: \
             {contradicted}. The evidence tables have details.</p>"
        );
    }
    markup += "<nav><ul>";
    for (number, name) in names.iter().enumerate() {
        markup += &format!("<li><a href=\"#w{number}\">{}</a></li>", escape(name));
    }
    markup
        + "<li><a href=\"#again\">repeat it</a></li><li><a href=\"#machine\">machine and versions</a></li></ul></nav></header>"
}

/// `2026-11-22T04:05:06.123Z` as `2026-11-22 04:05 UTC`; anything else unchanged.
fn moment(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(10..11), rfc3339.get(11..16), rfc3339.ends_with('Z')) {
        (Some(date), Some("T"), Some(time), true) => format!("{date} {time} UTC"),
        _ => rfc3339.to_owned(),
    }
}

fn reading() -> String {
    let text = "<ul>\
        <li>A figure is the mean of the repetitions; ± is their coefficient of variation, and whiskers reach from the \
        minimum to the maximum.</li>\
        <li>Hollow bars and figures in brackets are not quotable; the verdict says why.</li>\
        <li>Latencies count from the intended send time of a record, so that a stall of the cluster counts for \
        every delayed record. At the maximum rate they are mostly time in the producer's own queue.</li>\
        <li>Percentiles come from the merged histograms of all repetitions, never from averages. MB are 2<sup>20</sup> bytes.</li>\
        <li>Targets started by the lab share the machine with its clients, and take turns.</li></ul>";
    folded("How to read this page", text, false)
}

fn section(number: usize, workload: &WorkloadResult, palette: &Palette) -> String {
    let scale = match workload.workload.scale {
        1.0 => String::new(),
        scale => format!(
            "<p class=\"scaled\">Scaled by {}: durations, records and rates differ from the published workload.</p>",
            quantity::round(scale)
        ),
    };
    let description = match workload.workload.description.as_str() {
        same if same == workload.workload.title => String::new(),
        description => format!("<p>{}</p>", escape(description)),
    };
    let mut markup = format!(
        "<section class=\"workload\" id=\"w{number}\"><h2>{}</h2><p class=\"lead\">{}</p>{description}{scale}",
        escape(&workload.workload.name),
        escape(&workload.workload.title),
    );
    for (title, part) in [
        ("Throughput", throughput::markup(workload, palette)),
        ("Saturation", saturation::markup(workload, palette)),
        ("Latency", latency::markup(workload, palette)),
        ("What limited it", tables::verdicts(workload, palette)),
        ("All figures", tables::figures(workload, palette)),
        ("Evidence", tables::evidence(workload, palette)),
    ] {
        if !part.is_empty() {
            markup += &format!("<section><h3>{title}</h3>{part}</section>");
        }
    }
    markup += &tables::published(workload, palette);
    markup += &format!(
        "<section><h3>Over time, and every setting</h3>{}{}</section></section>",
        timeline::markup(workload, palette),
        settings::points(workload)
    );
    markup
}

fn comparison_method(comparisons: &[Comparison]) -> String {
    match comparisons.first() {
        Some(comparison) => {
            format!("<footer><p>How targets are compared: {}</p></footer>", escape(&comparison.method))
        }
        None => String::new(),
    }
}
