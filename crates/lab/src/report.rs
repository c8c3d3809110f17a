//! A result as one self-contained page: no script, no requests, light and dark, for screen and paper. The
//! page begins with the answer, then shows the scaled parameters of the run, then all data behind the answer.
//! An answer without a quotable figure follows the charts instead, or without charts the figures.
//!
//! All text from the result is escaped, and the page's policy forbids scripts and requests, so that a hostile
//! name stays a name.

mod agents;
mod answer;
mod broker_machines;
mod chart;
mod client_commands;
mod condensed;
mod devices;
mod diagram;
mod drivers;
mod efficiency;
mod flame;
mod headline;
mod latency;
mod markdown;
mod obstacles;
mod palette;
mod profile;
mod publication;
mod published;
mod saturation;
mod scaling;
mod settings;
mod subject;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod text;
mod throughput;
mod timeline;
mod trend;
mod unscaled;

pub use answer::{Answer, answer};
pub use condensed::condensed;
pub use markdown::markdown;
pub(crate) use obstacles::in_words;
pub use throughput::{StepRate, cumulative_bars};
pub use trend::{Trend, TrendPoint, TrendResult, TrendValue, trend, trend_page};

use crate::quantity;
use crate::result::{METHOD, RunResult, State, WorkloadResult, system};
use answer::{Headline, QuotedPoints, compared, of_run, of_workload};
use palette::Palette;
use text::folded;
pub(crate) use text::{clean, escape, one_line};

const STYLE: &str = include_str!("report/style.css");

/// The page of a result.
pub fn html(run: &RunResult) -> String {
    let palette = Palette::of(run);
    let all = compared(run);
    let headline = of_run(run, &all);
    let names: Vec<&str> = run.workloads.iter().map(|workload| workload.workload.name.as_str()).collect();
    let mut body = header(run, &names, &headline, &palette);
    body += "<main>";
    let own: Vec<Headline> = run.workloads.iter().map(|workload| of_workload(workload, &all)).collect();
    let points: Vec<QuotedPoints> = own.iter().map(|own| headline.points.and(&own.points)).collect();
    let cards: String = run
        .workloads
        .iter()
        .zip(&points)
        .map(|(workload, points)| headline::cards(workload, &palette.within(workload), &all, points))
        .collect();
    if cards.is_empty() {
        body += "<p class=\"banner\">Nothing was measured.</p>";
    } else {
        let charts = main_charts(run, &palette, &points);
        let cards = format!("<div class=\"cards\">{cards}</div>");
        let (first, rest) = match charts.is_empty() {
            true => (cards, String::new()),
            false => (format!("<div class=\"figures main\">{charts}</div>"), cards),
        };
        let refused = if headline.answer.is_quotable { String::new() } else { headline_sentence(&headline) };
        body += &format!("<section id=\"headlines\">{first}{refused}{rest}{}</section>", reading());
    }
    for (number, (workload, own)) in run.workloads.iter().zip(&own).enumerate() {
        let own = (names.len() > 1).then_some(own);
        body += &section(run, (number, workload), &palette.within(workload), own);
    }
    body += &format!(
        "<section id=\"again\"><h2>Repeat it</h2>{}</section>\
         <section id=\"machine\"><h2>Machine, systems and versions</h2>{}{}{}</section></main>",
        settings::command(run),
        settings::machine(run),
        broker_machines::markup(run),
        agents::markup(run)
    );
    if !all.is_empty() {
        body += &format!("<footer><p>How systems are compared: {}</p></footer>", escape(METHOD));
    }
    page(&format!("Thalweg lab: {}", names.join(", ")), &body)
}

/// The sentence of a headline, with its basis.
fn headline_sentence(headline: &Headline) -> String {
    let answer = &headline.answer;
    let class = if answer.is_quotable { "said" } else { "said grey" };
    format!("<p class=\"{class}\">{} <small>{}</small></p>", escape(&answer.sentence), escape(&answer.basis))
}

/// The charts of the workloads: their figures over the scaled parameter, their searches for saturation, and
/// bars of all other points, so that each point behind the headline is in one of them. `points` are those
/// behind headlines, by workload.
fn main_charts(run: &RunResult, palette: &Palette, points: &[QuotedPoints]) -> String {
    let of = |layout: scaling::Layout| -> String {
        let charts = run.workloads.iter().zip(points);
        charts
            .map(|(workload, points)| scaling::markup(workload, &palette.within(workload), points, layout))
            .collect()
    };
    // A single bar beside nothing else shows what its card shows.
    let with_single_bars = !of(scaling::Layout::default()).is_empty();
    let side_by_side = of(scaling::Layout { with_single_bars, alone: false });
    // A chart without a neighbour takes the width of the page.
    match side_by_side.matches("<figure").count() {
        1 => of(scaling::Layout { with_single_bars, alone: true }),
        _ => side_by_side,
    }
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

fn header(run: &RunResult, names: &[&str], headline: &Headline, palette: &Palette) -> String {
    let machine = &run.machine;
    let on = [
        machine.cpu.clone(),
        format!("{} logical processors", machine.cpus),
        format!("{} of memory", quantity::bytes(machine.memory_bytes as f64)),
        machine.os.clone(),
        machine.kernel.clone(),
    ];
    let on: Vec<String> = on.into_iter().filter(|text| !text.is_empty()).collect();
    // Without a headline, the title only says what was measured: the results come first.
    let title = match headline.answer.is_quotable || palette.targets().is_empty() {
        true => (
            format!("<h1 class=\"answer\">{}</h1>", escape(&headline.answer.sentence)),
            format!("<p class=\"basis\">{}</p>", escape(&headline.answer.basis)),
        ),
        false => {
            let systems: Vec<&str> = palette.targets().into_iter().map(system).collect();
            let text = format!("{} on {}", names.join(", "), systems.join(" and "));
            (format!("<h1 class=\"answer grey\">{}</h1>", escape(&text)), String::new())
        }
    };
    let measured: Vec<String> = names.iter().map(|name| format!("<b>{}</b>", escape(name))).collect();
    let mut markup = format!(
        "<header><p class=\"brand\">Thalweg lab</p>{}{}<p class=\"sub\">{}{} to {}<br>{}</p>",
        title.0,
        title.1,
        match measured.is_empty() {
            true => String::new(),
            false => format!("{} · ", measured.join(", ")),
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
    let contradicted = points.filter(|point| obstacles::contradicted(point)).count();
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
        <li>Grey figures, and hollow bars and dots, are not quotable; the badge says why. A ratio may hold although its \
        figures vary: systems take turns, and what changes on the machine affects both of a pair.</li>\
        <li>A headline rests on points at which both figures and their ratio are quotable, and on at least half of the points of its kind.</li>\
        <li>“At least” and “at most” are the weaker ends of 95 % intervals, rounded towards no difference.</li>\
        <li>Latencies count from the intended send time of a record, so that a stall of the cluster counts for \
        every delayed record. At the maximum rate they are mostly time in the producer's own queue.</li>\
        <li>Percentiles come from the merged histograms of all repetitions, never from averages. MB are 2<sup>20</sup> bytes.</li>\
        <li>Targets started by the lab share the machine with its clients, and take turns.</li></ul>";
    folded("How to read this page", text, false)
}

fn section(
    run: &RunResult,
    (number, workload): (usize, &WorkloadResult),
    palette: &Palette,
    headline: Option<&Headline>,
) -> String {
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
    let answer = headline.map(headline_sentence).unwrap_or_default();
    let mut markup = format!(
        "<section class=\"workload\" id=\"w{number}\"><h2>{}</h2><p class=\"lead\">{}</p>{answer}{description}{scale}",
        escape(&workload.workload.name),
        escape(&workload.workload.title),
    );
    for (title, part) in [
        ("Throughput", throughput::markup(workload, palette)),
        ("Scaling", efficiency::markup(workload, palette)),
        ("Drivers", drivers::markup(workload)),
        ("Saturation", saturation::markup(workload, palette)),
        ("Latency", latency::markup(workload, palette)),
        ("What limited it", tables::verdicts(workload, palette)),
        ("Devices and networks", devices::markup(workload, palette)),
        ("Inside the processes", profile::markup(workload, palette)),
        ("All figures", tables::figures(workload, palette)),
        ("Evidence", tables::evidence(workload, palette)),
    ] {
        if !part.is_empty() {
            markup += &format!("<section><h3>{title}</h3>{part}</section>");
        }
    }
    markup += &tables::published(workload, palette);
    markup += &format!(
        "<section><h3>Over time, and every setting</h3>{}{}{}{}</section></section>",
        timeline::markup(workload, palette),
        diagram::markup(run, workload),
        client_commands::markup(workload),
        settings::points(workload)
    );
    markup
}
