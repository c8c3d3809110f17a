//! Streams of this node: the list, an editor with live checks, and one stream with its stages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use thalweg_stream::host::recorder::{Action, Change, Recorder};
use thalweg_stream::host::rest;
use thalweg_stream::host::{Host, HostError, State as StreamState, StreamStatus};
use thalweg_stream::{language, without_passwords};

use crate::format;
use crate::page::{self, Section, Shell, encode, figure, see_other};

use crate::problem::Problem;
use crate::state::{Console, Note};
use crate::streams::{self, StageRate, Suggestion};

/// Placeholder name for checking a stream without a name.
const UNNAMED: &str = "stream";

/// The streams of this node.
pub fn host(console: &Console) -> Result<Host, Problem> {
    let starting = console.settings().streams.as_ref();
    let starting = starting.ok_or_else(|| none_hosted(console.settings().clients.is_some()))?;
    let unavailable = Problem {
        status: StatusCode::SERVICE_UNAVAILABLE,
        ..Problem::missing("The streams are starting: try again in a moment")
    };
    starting.borrow().clone().ok_or(unavailable)
}

/// The problem of a console without streams: of a broker, or apart from one.
fn none_hosted(is_beside_broker: bool) -> Problem {
    Problem::missing(match is_beside_broker {
        true => "This node hosts no streams: start it with --set streams.enabled=true (docs/streams.md)",
        false => {
            "This console runs apart from a broker, and has no streams: see the console of a broker with \
             streams.enabled=true (docs/streams.md)"
        }
    })
}

/// Maps a failed operation to a problem.
pub fn problem(error: &HostError) -> Problem {
    let status = match error {
        HostError::NoSuchStream { .. } | HostError::NoSuchStage { .. } => StatusCode::NOT_FOUND,
        HostError::Conflict(_) => StatusCode::CONFLICT,
        HostError::MissingRight(_) => StatusCode::FORBIDDEN,
        HostError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem { status, ..Problem::wrong(error.to_string()) }
}

/// Shows the streams.
pub async fn list(State(console): State<Console>, shell: Shell) -> Response {
    let body = host(&console).map(|host| {
        let streams = host.list();
        html! {
            @if !shell.is_read_only() { p class="actions" { a class="button primary" href="/create-stream" { "Write a stream" } } }
            div id="streams" data-live {
                @if streams.is_empty() { p class="quiet" { "There are no streams yet. A stream is one line, from source to sink." } }
                @else { (table(&console, &streams)) }
            }
        }
    });
    shell.answer(Section::Streams, "Streams", body)
}

fn table(console: &Console, streams: &[StreamStatus]) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label="Streams" {
            table {
                thead { tr { th scope="col" { "Stream" } th scope="col" { "State" } th scope="col" { "Definition" } th scope="col" class="number" { "Messages" } } }
                tbody {
                    @for stream in streams {
                        @let rate = console.stream_rates().look(stream).first().map(|first| first.per_second);
                        tr {
                            th scope="row" { a href=(path(&stream.name)) { (stream.name) } }
                            td { (state(stream)) }
                            td class="value" { (stream.definition.as_ref().map_or(Cow::Borrowed(""), |definition| without_passwords(&definition.text))) }
                            td class="number" { (page::or_dash(rate.map(format::rate))) }
                        }
                    }
                }
            }
        }
    }
}

fn state(stream: &StreamStatus) -> Markup {
    let class = match stream.state {
        StreamState::Deployed | StreamState::Complete => "badge good",
        StreamState::Failed => "badge bad",
        StreamState::Deploying | StreamState::Undeploying => "badge warn",
        StreamState::Undeployed | StreamState::Elsewhere => "badge",
    };
    html! { span class=(class) { (stream.state.name()) } }
}

/// The page of a stream.
pub fn path(name: &str) -> String {
    format!("/streams/{}", encode(name))
}

/// The page of a stage.
fn stage_path(stream: &str, stage: &str) -> String {
    format!("{}/taps/{}", path(stream), encode(stage))
}

/// The form for a new stream.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Creation {
    name: String,
    definition: String,
    deploy: String,
}

/// Shows the form for a new stream.
pub async fn creation_page(State(console): State<Console>, shell: Shell) -> Response {
    let form = host(&console)
        .map(|_| creation_form(&Creation { deploy: "on".to_owned(), ..Creation::default() }, None));
    shell.answer(Section::Streams, "Write a stream", form)
}

fn creation_form(creation: &Creation, problem: Option<&str>) -> Markup {
    html! {
        @if let Some(problem) = problem { pre class="note bad" role="alert" { (problem) } }
        form class="card stack" method="post" action="/streams" {
            label class="narrow" { "Name" input name="name" value=(creation.name) required autocapitalize="none" spellcheck="false" pattern="[A-Za-z0-9_\\-]+"; }
            div class="editor" {
                label { "Line" textarea name="definition" required spellcheck="false" placeholder="time --count=3 | log"
                    data-check="/streams-check" data-output="check-output" data-suggestions="suggestions" { (creation.definition) } }
                div id="check-output" class="check-output" role="status" {}
                ul id="suggestions" class="suggestions" aria-label="Suggestions" {}
                span class="hint" { "From a source through processors to a sink, with | between them; topic:NAME is a topic of this cluster." }
            }
            label class="check" { input type="checkbox" name="deploy" value="on" checked[creation.deploy == "on"]; "Deploy it on this node at once" }
            div class="actions" { button class="primary" { "Create" } a class="button" href="/streams" { "Cancel" } }
        }
    }
}

/// Creates a stream.
pub async fn create(
    State(console): State<Console>,
    shell: Shell,
    recorder: Recorder,
    Form(creation): Form<Creation>,
) -> Response {
    let created = async {
        let host = host(&console)?;
        let (deploy, by) = ((creation.deploy == "on").then(BTreeMap::new), recorder.requester());
        let (name, text) = (creation.name.trim().to_owned(), creation.definition.clone());
        let change = Change::of_stream("CreateStream", Action::Create, &name);
        let change = Change { detail: Some(text.clone()), ..change };
        complete(&host.clone(), recorder, change, async move { host.create(&name, &text, deploy, by).await })
            .await
    };
    match created.await {
        Ok(()) => see_other(
            &console,
            &path(creation.name.trim()),
            Note::done(format!("{} was created.", creation.name)),
        ),
        Err(problem) => {
            let form = creation_form(&creation, Some(&problem.message));
            let mut response = shell.answer::<Problem>(Section::Streams, "Write a stream", Ok(form));
            *response.status_mut() = problem.status;
            response
        }
    }
}

/// Completes an operation on the runtime of the streams, even if the browser disconnects.
async fn complete<F>(host: &Host, recorder: Recorder, change: Change, verb: F) -> Result<(), Problem>
where
    F: Future<Output = Result<(), HostError>> + Send + 'static,
{
    rest::complete(host, recorder, change, verb).await.map_err(|error| problem(&error))
}

/// A stream definition to check.
#[derive(Deserialize)]
pub struct Line {
    #[serde(default)]
    definition: String,
    #[serde(default)]
    cursor: usize,
}

/// The fault in a definition, and suggestions for the cursor position.
#[derive(Serialize)]
struct DefinitionCheck {
    message: Option<String>,
    suggestions: Vec<Suggestion>,
}

/// Checks a definition while the user types.
pub async fn check(State(console): State<Console>, Query(line): Query<Line>) -> Response {
    let host = match host(&console) {
        Ok(host) => host,
        Err(problem) => return page::json(problem.status, &problem.answer()),
    };
    let is_empty = line.definition.trim().is_empty();
    let wrong = host.check(UNNAMED, &line.definition).err().filter(|_| !is_empty);
    let suggestions = streams::suggest(&line.definition, line.cursor);
    page::json(
        StatusCode::OK,
        &DefinitionCheck { message: wrong.map(|wrong| wrong.to_string()), suggestions },
    )
}

/// Shows one stream with its stages.
pub async fn show(State(console): State<Console>, shell: Shell, Path(name): Path<String>) -> Response {
    let status = |host: Host| {
        let status = host.status(&name).map_err(|error| problem(&error))?;
        Ok((status, host.stages(&name)))
    };
    let body = host(&console).and_then(status).map(|(status, tappable)| {
        let rates = console.stream_rates().look(&status);
        html! {
            div id="stream" data-live {
                (overview(&status))
                (stages(&status, &rates, &tappable))
            }
            @if !shell.is_read_only() { (changes(&status)) }
        }
    });
    shell.answer(Section::Streams, &name, body)
}

fn overview(status: &StreamStatus) -> Markup {
    let deployed = status.definition.as_ref().and_then(|definition| definition.deployed.as_ref());
    html! {
        dl class="figures" {
            div class="figure" { dt { "State" } dd { (state(status)) } }
            @if let Some(deployed) = deployed { (figure("Node", &deployed.node.to_string(), None)) }
            @if let Some(figures) = &status.figures {
                (figure("Since the start", &format::millis(i64::try_from(figures.elapsed.as_millis()).unwrap_or(i64::MAX)), None))
                (figure("Bad messages", &format::count(figures.streams.iter().map(|part| part.bad).sum::<u64>()), None))
            }
        }
        @if let Some(definition) = &status.definition { pre class="card mono" { (without_passwords(&definition.text)) } }
        @if let Some(reason) = &status.reason { p class="note bad" role="alert" { (reason) } }
    }
}

fn stages(status: &StreamStatus, rates: &[StageRate], tappable: &[String]) -> Markup {
    let Some(figures) = &status.figures else { return html! {} };
    let mut rates = rates.iter().copied();
    html! {
        @for part in &figures.streams {
            h2 { "Stages of " (part.name) @if figures.streams.len() > 1 { ", instance " (part.instance) } }
            div class="table" tabindex="0" role="region" aria-label=(format!("Stages of {}", part.name)) {
                table {
                    thead { tr {
                        th scope="col" { "Stage" } th scope="col" class="number" { "Now" } th scope="col" class="number" { "In" } th scope="col" class="number" { "Out" }
                        th scope="col" class="number" { "Cost of one" } th scope="col" class="number" { "Age, p50" } th scope="col" class="number" { "p99" } th scope="col" { "Waits for the next" }
                    } }
                    tbody {
                        @for stage in &part.stages {
                            @let rate = rates.next();
                            tr {
                                th scope="row" {
                                    @if tappable.iter().any(|label| **label == *stage.label) {
                                        a href=(stage_path(&status.name, &stage.label)) title="See what flows out of it" { (stage.label) }
                                    } @else { (stage.label) }
                                    @if *stage.label != *stage.module { span class="quiet" { " (" (stage.module) ")" }
                                } }
                                td class="number" { (page::or_dash(rate.map(|rate| format::rate(rate.per_second)))) }
                                td class="number" { (format::count(stage.messages_in)) }
                                td class="number" { (format::count(stage.messages_out)) }
                                td class="number" { (nanos(stage.cost_ns())) }
                                td class="number" { (micros(stage.latency.quantile_us(0.5))) }
                                td class="number" { (micros(stage.latency.quantile_us(0.99))) }
                                td { (waiting(rate)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn nanos(ns: f64) -> String {
    match ns {
        ns if ns < 1000.0 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1000.0),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

fn micros(us: Option<u64>) -> Markup {
    page::or_dash(us.map(|us| match us {
        us if us < 1000 => format!("{us} µs"),
        us if us < 1_000_000 => format!("{:.1} ms", us as f64 / 1000.0),
        us => format!("{:.1} s", us as f64 / 1e6),
    }))
}

fn waiting(rate: Option<StageRate>) -> Markup {
    let Some(rate) = rate else { return page::or_dash(None) };
    let percent = (rate.waiting * 100.0).round();
    html! {
        span class="meter" {
            svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
                rect class="track" width="100" height="8" {} rect class="fill" width=(percent) height="8" {}
            }
            (percent) " %"
        }
    }
}

fn changes(status: &StreamStatus) -> Markup {
    let path = path(&status.name);
    let is_running =
        matches!(status.state, StreamState::Deployed | StreamState::Deploying | StreamState::Elsewhere);
    html! {
        h2 { "Change" }
        div class="row" {
            @if is_running {
                form method="post" action=(format!("{path}/undeploy")) { button { "Undeploy" } }
            } @else {
                form method="post" action=(format!("{path}/deploy")) { button class="primary" { "Deploy on this node" } }
            }
            details class="card" {
                summary { "Destroy this stream" }
                form class="stack" method="post" action=(format!("{path}/destroy")) {
                    label { "Type the stream's name" input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(status.name);
                        span class="hint" { "It is stopped cleanly, and its definition is deleted. Topics that it wrote to stay." } }
                    button class="danger" { "Destroy" }
                }
            }
        }
    }
}

/// The form of an operation.
#[derive(Deserialize, Default)]
pub struct OperationForm {
    #[serde(default)]
    confirm: String,
}

/// Deploys, undeploys or destroys a stream.
pub async fn change(
    State(console): State<Console>,
    recorder: Recorder,
    Path((name, verb)): Path<(String, String)>,
    Form(given): Form<OperationForm>,
) -> Response {
    let done = async {
        let host = host(&console)?;
        if !language::is_name(&name) {
            return Err(Problem::missing(format!("There is no stream {name}")));
        }
        let (on, named) = (host.clone(), name.clone());
        match verb.as_str() {
            "deploy" => {
                let change = Change::of_stream("DeployStream", Action::Update, &name);
                let by = recorder.requester();
                let verb = async move { on.deploy(&named, BTreeMap::new(), by).await };
                complete(&host, recorder, change, verb).await
            }
            "undeploy" => {
                let change = Change::of_stream("UndeployStream", Action::Update, &name);
                complete(&host, recorder, change, async move { on.undeploy(&named).await }).await
            }
            "destroy" if given.confirm == name => {
                let change = Change::of_stream("DestroyStream", Action::Delete, &name);
                complete(&host, recorder, change, async move { on.destroy(&named).await }).await
            }
            "destroy" => {
                Err(Problem::wrong(format!("{name} was not destroyed: {:?} is not its name.", given.confirm)))
            }
            _ => Err(Problem::missing("There is no such verb")),
        }
    };
    let outcome = done.await;
    let page = if outcome.is_ok() && verb == "destroy" { "/streams".to_owned() } else { path(&name) };
    see_other(&console, &page, Note::of(outcome, format!("{name}: {verb} is done.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_apart_from_a_broker_does_not_advise_a_setting_of_brokers() {
        assert!(none_hosted(true).message.contains("start it with --set streams.enabled=true"));
        let apart = none_hosted(false).message;
        assert!(apart.contains("apart from a broker") && !apart.contains("--set"), "{apart}");
    }
}
