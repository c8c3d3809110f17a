//! The lab: the current run, a form for a new run, the results, and a comparison of two results.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use crate::chart::{Sample, chart};
use crate::format;
use crate::lab::{
    ComparedPair, Comparison, LabOverview, NewRun, Phase, PointName, RatePoint, Ratio, RunState, Second,
};
use crate::measuring::Visitor;
use crate::page::{Section, Shell, encode, figure, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// A report contains its styles, and no script.
const REPORT_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; \
                             frame-ancestors 'none'";

/// Shows the lab.
pub async fn show(shell: Shell, visitor: Visitor) -> Response {
    let overview = visitor.overview().await;
    let form = Creation { target: "embedded".to_owned(), ..Creation::default() };
    shell.answer(Section::Lab, "Lab", overview.map(|overview| body(&shell, &visitor, &overview, &form, None)))
}

fn body(
    shell: &Shell,
    visitor: &Visitor,
    overview: &LabOverview,
    form: &Creation,
    problem: Option<&str>,
) -> Markup {
    let is_running = overview.run.as_ref().is_some_and(|run| run.ended_ms.is_none());
    html! {
        p { "How many records a cluster carries, and what limits it. Runs take place on the machine of this console, one at a time." }
        @if let Some(run) = &overview.run { (run_now(shell, run)) }
        @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
        @if !shell.is_read_only() && !is_running { (creation(overview, form, visitor.needs_password())) }
        (results(shell, overview))
    }
}

fn run_now(shell: &Shell, run: &RunState) -> Markup {
    let is_running = run.ended_ms.is_none();
    let sample = |point: &RatePoint| Sample { at_ms: point.at_ms, value: point.records_per_s };
    let samples: Vec<Sample> = run.seconds.iter().map(sample).collect();
    html! {
        h2 { @if is_running { "Running: " } @else { "The last run: " } (run.workload) }
        div id="run" data-live[is_running] {
            dl class="figures" {
                div class="figure" { dt { "State" } dd { (state(run.state)) } }
                (figure("Repetition", &format!("{} of {}", run.repetition, run.repetitions.max(run.repetition)), None))
                @let end = run.ended_ms.unwrap_or_else(crate::cluster::now_ms);
                (figure("Time", &format::millis(end - run.began_ms), None))
                @if let Some(second) = &run.produced { (rate("Produced", second)) }
                @if let Some(second) = &run.consumed { (rate("Consumed", second)) }
            }
            @if is_running {
                p {
                    label { "Progress " progress max=(run.repetitions.max(1)) value=(run.repetition.saturating_sub(1)) {} }
                    (run.at) @if !run.doing.is_empty() { ": " (run.doing) }
                }
            }
            p class="quiet" {
                "Target: " (run.target) ". Began " (format::time(run.began_ms)) @if let Some(by) = &run.by { ", by " bdi { (by) } } "."
            }
            @if !run.summary.is_empty() { pre class="card mono" tabindex="0" { (run.summary) } }
        }
        // These parts exist from the start, because the page's script only replaces their content.
        div id="run-rate" data-live[is_running] {
            @if samples.len() > 1 { (chart("Records per second", &samples, format::rate)) }
        }
        div id="run-lines" data-live[is_running] {
            @if !run.lines.is_empty() {
                div class="table" tabindex="0" role="region" aria-label="What the run said" {
                    table { tbody { @for line in run.lines.iter().rev().take(20) { tr { td class="value" { (line) } } } } }
                }
            }
        }
        @if is_running && !shell.is_read_only() {
            form method="post" action="/lab/stop" { button { "Stop" } }
        }
    }
}

fn state(phase: Phase) -> Markup {
    let (class, word) = match phase {
        Phase::Running => ("badge warn", "running"),
        Phase::Stopping => ("badge warn", "stopping"),
        Phase::Complete => ("badge good", "complete"),
        Phase::Failed => ("badge bad", "incomplete"),
    };
    html! { span class=(class) { (word) } }
}

fn rate(name: &str, second: &Second) -> Markup {
    let mut detail = format::bytes_rate(second.bytes_per_s);
    if let (Some(p50), Some(p99)) = (second.p50_us, second.p99_us) {
        detail = format!("{detail}, p50 {}, p99 {}", micros(p50), micros(p99));
    }
    figure(name, &format::rate(second.records_per_s), Some(&detail))
}

fn micros(us: u64) -> String {
    match us {
        us if us < 1000 => format!("{us} µs"),
        us => format!("{:.1} ms", us as f64 / 1000.0),
    }
}

/// The form for a new run.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Creation {
    workload: String,
    target: String,
    scale: String,
    repetitions: String,
    password: String,
}

impl Creation {
    fn read(&self) -> Result<NewRun, Problem> {
        let scale = number(&self.scale, "The scale")?;
        let repetitions = number(&self.repetitions, "The number of repetitions")?;
        let (workload, target) = (self.workload.clone(), self.target.clone());
        Ok(NewRun { workload, target, scale, repetitions, password: self.password.clone() })
    }
}

/// Parses a number; none if empty.
fn number<N: std::str::FromStr>(text: &str, what: &str) -> Result<Option<N>, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Problem::wrong(format!("{what} {text:?} is not a number")))
}

fn creation(overview: &LabOverview, form: &Creation, needs_password: bool) -> Markup {
    html! {
        h2 { "Start a workload" }
        form class="card stack" method="post" action="/lab" {
            fieldset {
                legend { "Workload" }
                @for (number, workload) in overview.workloads.iter().enumerate() {
                    label class="check" {
                        input type="radio" name="workload" value=(workload.name) required
                            checked[if form.workload.is_empty() { number == 0 } else { workload.name == form.workload }];
                        span { strong { (workload.name) } ": " (workload.title) " (" (format::counted(workload.points, "point")) ")" }
                    }
                }
            }
            div class="row" {
                label { "Target" select name="target" {
                    option value="embedded" selected[form.target == "embedded"] { "brokers started for the run" }
                    option value="cluster" selected[form.target == "cluster"] { "this cluster" }
                } }
                label { "Scale" input name="scale" value=(form.scale) inputmode="decimal" placeholder="1"; }
                label { "Repetitions" input name="repetitions" value=(form.repetitions) inputmode="numeric" placeholder="the workload's"; }
                @if needs_password {
                    label { "Your password" input name="password" type="password" autocomplete="current-password" placeholder="for this cluster only"; }
                }
            }
            p class="hint" {
                "A measurement takes the processor and the disk of this machine while it runs. On this cluster, it creates topics, fills them and \
                 deletes them again" @if needs_password { ", with your rights: it logs in with your password" } ". A scale of 0.1 is a tenth of the \
                 records, seconds and rates, and noted in the report."
            }
            button class="primary" { "Start" }
        }
    }
}

fn results(shell: &Shell, overview: &LabOverview) -> Markup {
    html! {
        h2 { "Results" }
        @if overview.results.is_empty() {
            p class="quiet" { "There are no results yet." }
        } @else {
            @if overview.results.len() > 1 { (choice(overview)) }
            div class="table" tabindex="0" role="region" aria-label="Results" {
                table {
                    thead { tr {
                        th scope="col" { "Result" } th scope="col" class="number" { "Size" }
                        @if !shell.is_read_only() { th scope="col" class="actions" { "Change" } }
                    } }
                    tbody {
                        @for result in &overview.results {
                            tr {
                                th scope="row" { a href=(format!("/lab/results/{}", encode(&result.name))) { (result.name) } }
                                td class="number" { (format::bytes(result.bytes)) }
                                @if !shell.is_read_only() {
                                    td class="actions" {
                                        details {
                                            summary { "Delete" span class="hidden" { " " (result.name) } }
                                            form method="post" action=(format!("/lab/results/{}/delete", encode(&result.name))) {
                                                button class="small danger" { "Delete the result" span class="hidden" { " " (result.name) } }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn choice(overview: &LabOverview) -> Markup {
    let names = || overview.results.iter().map(|result| result.name.as_str());
    let second = names().nth(1).unwrap_or_default();
    html! {
        form class="row" method="get" action="/lab/compare" {
            label { "Compare" select name="a" { @for name in names() { option value=(name) selected[name == second] { (name) } } } }
            label { "with" select name="b" { @for name in names() { option value=(name) { (name) } } } }
            button { "Compare" }
        }
    }
}

/// Starts a run.
pub async fn start(
    State(console): State<Console>,
    shell: Shell,
    visitor: Visitor,
    Form(form): Form<Creation>,
) -> Response {
    let started = async { visitor.start(&form.read()?).await };
    let problem = match started.await {
        Ok(name) => return see_other(&console, "/lab", Note::done(format!("{name} was started."))),
        Err(problem) => problem,
    };
    // The form keeps its fields, except the password.
    let overview = visitor.overview().await;
    let page = overview.map(|overview| body(&shell, &visitor, &overview, &form, Some(&problem.message)));
    let mut response = shell.answer(Section::Lab, "Lab", page);
    *response.status_mut() = problem.status;
    response
}

/// Stops the run.
pub async fn stop(State(console): State<Console>, visitor: Visitor) -> Response {
    let note = match visitor.stop().await {
        Ok(name) => Note::done(format!("{name} ends, and removes what it made.")),
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, "/lab", note)
}

/// Deletes a result.
pub async fn delete(State(console): State<Console>, visitor: Visitor, Path(name): Path<String>) -> Response {
    let outcome = visitor.delete(&name).await;
    see_other(&console, "/lab", Note::of(outcome, format!("{name} was deleted.")))
}

/// Shows the report of a result, as written by the lab.
pub async fn report(shell: Shell, visitor: Visitor, Path(name): Path<String>) -> Response {
    match visitor.report(&name).await {
        Ok(page) => {
            let headers =
                [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, REPORT_POLICY)];
            (headers, page).into_response()
        }
        Err(problem) => shell.answer::<Problem>(Section::Lab, &name, Err(problem)),
    }
}

/// Names of the two results to compare.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ComparisonQuery {
    a: String,
    b: String,
}

/// Compares two results.
pub async fn compare(shell: Shell, visitor: Visitor, Query(both): Query<ComparisonQuery>) -> Response {
    let compared = visitor.compare(&both.a, &both.b).await;
    shell.answer(Section::Lab, "Comparison", compared.map(|comparison| comparison_of(&both, &comparison)))
}

fn comparison_of(both: &ComparisonQuery, comparison: &Comparison) -> Markup {
    let report = |name: &str| html! { a href=(format!("/lab/results/{}", encode(name))) { (name) } };
    html! {
        dl class="facts" { dt { "First" } dd { (report(&both.a)) } dt { "Second" } dd { (report(&both.b)) } }
        @for pair in &comparison.pairs { (pair_of(pair)) }
        @if !comparison.refused.is_empty() {
            h2 { "Not comparable" }
            @for refused in &comparison.refused {
                p class="note warn" {
                    (point(&refused.a)) ": "
                    @for difference in &refused.differences { (difference.field) " is " (difference.a) " and " (difference.b) ". " }
                }
            }
        }
        @if !comparison.differences.is_empty() {
            h2 { "Other differences" }
            div class="table" tabindex="0" role="region" aria-label="Other differences" {
                table {
                    thead { tr { th scope="col" { "Field" } th scope="col" { "First" } th scope="col" { "Second" } } }
                    tbody {
                        @for difference in &comparison.differences {
                            tr { th scope="row" { (difference.field) } td class="value" { (difference.a) } td class="value" { (difference.b) } }
                        }
                    }
                }
            }
        }
        p class="quiet" { (comparison.method) }
    }
}

fn point(name: &PointName) -> String {
    format!("{} · {} · {}", name.workload, name.label, name.target)
}

fn pair_of(pair: &ComparedPair) -> Markup {
    let (first, second) = (point(&pair.a), point(&pair.b));
    html! {
        h2 { (first) @if first != second { " and " (second) } }
        div class="table" tabindex="0" role="region" aria-label=(format!("Figures of {first}")) {
            table {
                thead { tr {
                    th scope="col" { "Figure" } th scope="col" class="number" { "First" } th scope="col" class="number" { "Second" }
                    th scope="col" class="number" { "Ratio" } th scope="col" class="number" { "95 % interval" } th scope="col" { "Judgement" }
                } }
                tbody { @for ratio in &pair.ratios { (row(ratio)) } }
            }
        }
    }
}

fn row(ratio: &Ratio) -> Markup {
    let class = match ratio.judgement.as_str() {
        "faster" | "cheaper" => "badge good",
        "slower" | "dearer" => "badge warn",
        _ => "badge",
    };
    let interval = ratio.interval.map(|(low, high)| format!("{low:.3} to {high:.3}"));
    html! {
        tr {
            th scope="row" { (ratio.figure) }
            td class="number" { (plain(ratio.a)) }
            td class="number" { (plain(ratio.b)) }
            td class="number" { (format!("{:.3}", ratio.ratio)) }
            td class="number" { (or_dash(interval)) }
            td { span class=(class) { (ratio.judgement.replace('-', " ")) } }
        }
    }
}

/// A figure without its unit, rounded.
fn plain(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format::count(value.round() as i64),
        small if small >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
