//! The newest messages in the output of a stage of a stream.

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use thalweg_browse::Content;
use thalweg_browse::show::{Form, show};
use thalweg_stream::host::onlooking::{Cut, TappedMessage};

use super::streams;
use crate::format;
use crate::json_text;
use crate::page::{Section, Shell};
use crate::problem::Problem;
use crate::state::Console;
use crate::taps::{TapProblem, hide};

/// Shows the newest messages.
pub async fn look_at(
    State(console): State<Console>,
    shell: Shell,
    Path((name, stage)): Path<(String, String)>,
) -> Response {
    let looked = async {
        let host = streams::host(&console)?;
        console.taps().look(&host, shell.view().reader(), &name, &stage).await.map_err(
            |problem| match problem {
                TapProblem::Host(error) => streams::problem(&error),
                TapProblem::Full(problem) => problem,
            },
        )
    };
    let hide = hide(&console.reading().masking);
    let body = looked.await.map(|mut passed| {
        if let Some(hide) = hide {
            passed.iter_mut().for_each(|message| hide(message));
        }
        body(&name, &passed)
    });
    shell.answer::<Problem>(Section::Streams, &format!("{name}: after {stage}"), body)
}

fn body(name: &str, passed: &[TappedMessage]) -> Markup {
    html! {
        p { "The newest messages that flow out of this stage while the page is open. The stream does not wait for it, so others may pass between \
             them. " a href=(streams::path(name)) { "All stages of " (name) } }
        div id="passed" data-live {
            @if passed.is_empty() { p class="quiet" { "Nothing has passed yet." } }
            @for message in passed { (one(message)) }
        }
    }
}

fn one(message: &TappedMessage) -> Markup {
    html! {
        article class="card message" aria-label=(format!("Message {}", message.sequence)) {
            p class="quiet" { "message " (format::count(message.sequence)) " · " (format::time(message.time_ms)) }
            @if let Some(key) = &message.key { (part("Key", key)) }
            @match &message.value {
                Some(value) => (part("Value", value)),
                None => p { span class="badge" { "no value" } },
            }
            @if !message.headers.is_empty() {
                dl class="facts" {
                    @for (name, value) in &message.headers {
                        dt { bdi { (name) } }
                        dd { @match value { Some(value) => (json_text::text(&text(value))), None => span class="quiet" { "none" } } }
                    }
                }
            }
        }
    }
}

fn part(name: &str, cut: &Cut) -> Markup {
    let shown = text(cut);
    html! {
        div class="part" {
            span class="quiet" { (name) ", " (format::bytes(cut.whole_bytes as u64)) }
            (json_text::text(&shown))
            @if shown.omitted_bytes > 0 { span class="quiet" { "and " (format::bytes(shown.omitted_bytes as u64)) " more" } }
        }
    }
}

fn text(cut: &Cut) -> thalweg_browse::show::DisplayText {
    show(&Content { bytes: cut.bytes.clone(), whole_bytes: cut.whole_bytes, schema: None }, Form::Auto)
}
