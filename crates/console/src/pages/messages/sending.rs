//! The form for a message: a new one, or a changed copy of a stored one.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::message_to_send::{self, MessageToSend};
use crate::page::{Section, Shell, see_other};
use crate::pages::topic::{path, tabs};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// The form for a new message, closed.
pub fn closed_form(name: &str) -> Markup {
    html! {
        details class="card" {
            summary { "Send a message" }
            (form(name, &MessageToSend::default(), None))
        }
    }
}

fn form(name: &str, message: &MessageToSend, problem: Option<&Problem>) -> Markup {
    let value = message.value.as_deref().unwrap_or_default();
    let forms = |field: &str, title: &str, chosen: &str| {
        html! {
            label { (title) select name=(field) {
                option value="text" { "text" }
                option value="base64" selected[chosen == "base64"] { "Base64" }
            } }
        }
    };
    html! {
        form class="stack" method="post" action=(format!("{}/messages", path(name))) {
            @if let Some(problem) = problem { p class="note bad" role="alert" { (outcome(problem)) ": " (problem.message) } }
            div class="row" {
                label { "Key of the message" input name="key" value=(message.key) spellcheck="false"; }
                (forms("key_form", "Form of the key", &message.key_form))
                label { "Partition of the message" input name="partition" value=(message.partition) inputmode="numeric" placeholder="by the key"; }
                (forms("value_form", "Form of the value", &message.value_form))
            }
            label { "Value" textarea name="value" spellcheck="false" { (field_text(value)) } }
            label { "Headers" textarea name="headers" spellcheck="false" placeholder="trace-id=42" { (field_text(&message.headers)) }
                span class="hint" { "One on each line, as NAME=VALUE." } }
            label class="check" { input type="checkbox" name="tombstone" value="on" checked[message.tombstone == "on"]; "Without a value: it deletes the key where the topic is compacted" }
            button class="primary" { "Send" }
        }
    }
}

/// What is known of a message that was not acknowledged.
fn outcome(problem: &Problem) -> &'static str {
    match problem.status {
        StatusCode::GATEWAY_TIMEOUT => "The message may have been stored, or not",
        _ => "The message was not sent",
    }
}

/// The content of a text area. Browsers drop a line end at its start.
fn field_text(text: &str) -> Markup {
    html! { @if text.starts_with('\n') { "\n" } (text) }
}

/// A message with the line ends that a person typed: browsers send CRLF for each line end of a text area.
fn typed(message: MessageToSend) -> MessageToSend {
    let value = message.value.map(|value| value.replace("\r\n", "\n"));
    MessageToSend { value, headers: message.headers.replace("\r\n", "\n"), ..message }
}

/// The partition and offset of a stored message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagePosition {
    partition: i32,
    offset: i64,
}

/// The form with a copy of a stored message.
pub async fn again(shell: Shell, Path(name): Path<String>, Query(place): Query<MessagePosition>) -> Response {
    let copy = message_to_send::copy(shell.view(), &name, place.partition, place.offset).await;
    let body = copy.map(|copy| {
        html! {
            (tabs(&name, "messages"))
            div class="card stack" {
                p {
                    "A copy of the message at offset " (place.offset) " of partition " (place.partition)
                    ". It is stored as a new message, with a new time."
                }
                @for difference in &copy.differences { p class="note warn" { (difference) } }
                @if shell.is_read_only() {
                    p class="note warn" { "This console is read-only: it sends no messages." }
                } @else {
                    (form(&name, &copy.message, None))
                }
            }
        }
    });
    shell.answer(Section::Topics, &name, body)
}

/// Sends a message.
pub async fn send(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(message): Form<MessageToSend>,
) -> Response {
    let message = typed(message);
    match message_to_send::send(shell.view(), &name, message.clone()).await {
        Ok(at) => {
            let note =
                Note::done(format!("The message is in partition {}, offset {}.", at.partition, at.offset.0));
            see_other(&console, &format!("{}/messages", path(&name)), note)
        }
        Err(problem) => {
            let page = html! {
                (tabs(&name, "messages"))
                div class="card" { (form(&name, &message, Some(&problem))) }
            };
            shell.answer_again(Section::Topics, &name, &problem, &page)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(value: &str) -> String {
        let message = MessageToSend {
            key: "k\"1".to_owned(),
            partition: "7".to_owned(),
            value: Some(value.to_owned()),
            headers: "a=1\r\nb=2".to_owned(),
            tombstone: "on".to_owned(),
            value_form: "base64".to_owned(),
            ..MessageToSend::default()
        };
        form("orders", &typed(message), Some(&Problem::wrong("orders has no partition 7"))).0
    }

    #[test]
    fn a_typed_line_end_is_one_character() {
        let typed = |value: &str| {
            typed(MessageToSend { value: Some(value.to_owned()), ..MessageToSend::default() }).value
        };
        assert_eq!(typed("a\r\n\r\nb\r\n").as_deref(), Some("a\n\nb\n"));
        assert_eq!(typed("a\nb\rc").as_deref(), Some("a\nb\rc"));
        assert_eq!(super::typed(MessageToSend::default()).value, None);
    }

    #[test]
    fn a_refused_message_stays_in_the_form_with_the_reason() {
        let page = refused("{\r\n}<b>");
        for part in [
            "role=\"alert\">The message was not sent: orders has no partition 7</p>",
            "name=\"key\" value=\"k&quot;1\"",
            "name=\"partition\" value=\"7\"",
            ">{\n}&lt;b&gt;</textarea>",
            ">a=1\nb=2</textarea>",
            "value=\"on\" checked>",
            "name=\"value_form\"><option value=\"text\">text</option><option value=\"base64\" selected>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(refused("\r\na").contains(">\n\na</textarea>"), "browsers drop the first line end");
        let late = Problem { status: StatusCode::GATEWAY_TIMEOUT, ..Problem::wrong("no answer") };
        assert!(form("orders", &MessageToSend::default(), Some(&late)).0.contains("or not: no answer"));
        let empty = closed_form("orders").0;
        assert!(!empty.contains("alert") && !empty.contains("open") && !empty.contains("checked"), "{empty}");
    }
}
