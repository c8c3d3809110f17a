//! Quotas: the list, a form for a new quota, and the removal of one.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::users::{self, QuotaChange, QuotaLine};
use crate::confirm::{Confirmation, Removal};
use crate::page::{Section, Shell, encode, keeping, see_other};
use crate::problem::Problem;
use crate::restoration;
use crate::state::{Console, Note};

/// Kafka's quota names, with descriptions.
const LIMITS: [(&str, &str); 5] = [
    ("producer_byte_rate", "bytes produced per second"),
    ("consumer_byte_rate", "bytes consumed per second"),
    ("request_percentage", "percent of a broker's time for requests"),
    ("controller_mutation_rate", "partitions created or deleted per second"),
    ("connection_creation_rate", "connections per second, of an address"),
];

/// Shows the quotas.
pub async fn list(shell: Shell) -> Response {
    let quotas = users::quotas(shell.view()).await;
    let body = quotas.map(|quotas| {
        html! {
            (quota_table(&shell, &quotas))
            @if !shell.is_read_only() { (new_quota()) }
        }
    });
    shell.answer(Section::Quotas, "Quotas", body)
}

/// The form for a new quota.
#[derive(Deserialize)]
pub struct QuotaForm {
    #[serde(default)]
    user: String,
    #[serde(default)]
    client: String,
    #[serde(default)]
    ip: String,
    limit: String,
    #[serde(default)]
    value: String,
}

impl QuotaForm {
    fn read(&self) -> Result<QuotaChange, Problem> {
        let mut entity: BTreeMap<String, Option<String>> = BTreeMap::new();
        // A star selects the default entity; an empty field is not part of the entity.
        for (kind, name) in [("user", &self.user), ("client-id", &self.client), ("ip", &self.ip)] {
            match name.trim() {
                "" => {}
                "*" => drop(entity.insert(kind.to_owned(), None)),
                name => drop(entity.insert(kind.to_owned(), Some(name.to_owned()))),
            }
        }
        let text = self.value.trim();
        let value = text.replace(',', "").parse::<f64>();
        let value = value.map_err(|_| Problem::wrong(format!("The value {text:?} is not a number")))?;
        Ok(QuotaChange { entity, limit: self.limit.clone(), value: Some(value) })
    }
}

/// Sets a quota.
pub async fn set(State(console): State<Console>, shell: Shell, Form(form): Form<QuotaForm>) -> Response {
    let done = async { users::set_quota(shell.view(), &form.read()?).await };
    see_other(&console, "/quotas", Note::of(done.await, format!("{} was set.", form.limit)))
}

/// The quota in the query.
#[derive(Deserialize)]
pub struct LimitQuery {
    /// The entity, as JSON.
    entity: String,
    limit: String,
}

impl LimitQuery {
    /// The entity and the value of the quota, as they are in the cluster.
    async fn find(&self, shell: &Shell) -> Result<(QuotaLine, f64), Problem> {
        let entity: BTreeMap<String, Option<String>> = serde_json::from_str(&self.entity)
            .map_err(|error| Problem::wrong(format!("The entity of the quota cannot be read: {error}")))?;
        let quotas = users::quotas(shell.view()).await?;
        let found = quotas.into_iter().find(|line| line.entity == entity);
        let found = found.and_then(|line| line.limits.get(&self.limit).copied().map(|value| (line, value)));
        found.ok_or_else(|| Problem::missing(format!("There is no quota {} of this entity", self.limit)))
    }
}

/// The title of the page that removes a quota.
const REMOVAL: &str = "Remove a quota";

/// Shows a quota, and asks for confirmation to remove it.
pub async fn removal_page(shell: Shell, Query(of): Query<LimitQuery>) -> Response {
    let body = of.find(&shell).await.map(|(line, value)| removal(&shell, &line, &of.limit, value, None));
    shell.answer(Section::Quotas, REMOVAL, body)
}

/// Removes a quota if the typed name matches.
pub async fn remove(
    State(console): State<Console>,
    shell: Shell,
    Query(of): Query<LimitQuery>,
    Form(given): Form<Confirmation>,
) -> Response {
    let (line, value) = match of.find(&shell).await {
        Ok(found) => found,
        Err(problem) => return shell.answer::<Problem>(Section::Quotas, REMOVAL, Err(problem)),
    };
    if let Err(problem) = given.check(&names(&line)) {
        let page = removal(&shell, &line, &of.limit, value, Some(&problem.message));
        return shell.answer_again(Section::Quotas, REMOVAL, &problem, &page);
    }
    let change = QuotaChange { entity: line.entity.clone(), limit: of.limit.clone(), value: None };
    let note = match users::set_quota(shell.view(), &change).await {
        Ok(()) => {
            let text = format!("{} of {} was removed.", of.limit, names(&line));
            Note::removed(text, restoration::of_quota(&line.entity, &of.limit, value))
        }
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, "/quotas", note)
}

fn removal(shell: &Shell, line: &QuotaLine, limit: &str, value: f64, problem: Option<&str>) -> Markup {
    html! {
        p class="note warn" {
            code { (limit) } " of " (entity(line)) " is " (value) ". Without it, a quota of a wider entity applies, or these clients are not limited."
        }
        (keeping(&restoration::of_quota(&line.entity, limit, value)))
        @if !shell.is_read_only() {
            (Removal {
                action: &removal_path(line, limit),
                expected: &names(line),
                hint: "The name of the entity, as above: * is the default.",
                verb: "Remove this quota",
                back: "/quotas",
            }.form(problem))
        }
    }
}

fn removal_path(line: &QuotaLine, limit: &str) -> String {
    let entity = serde_json::to_string(&line.entity).unwrap_or_default();
    format!("/quotas/remove?entity={}&limit={}", encode(&entity), encode(limit))
}

/// The names of an entity, by which its removal is confirmed; a star is the default.
fn names(line: &QuotaLine) -> String {
    let names: Vec<&str> = line.entity.values().map(|name| name.as_deref().unwrap_or("*")).collect();
    names.join("/")
}

/// An entity in words.
fn entity(quota: &QuotaLine) -> Markup {
    html! {
        @for (at, (kind, name)) in quota.entity.iter().enumerate() {
            @if at > 0 { ", " }
            span class="quiet" { (kind) " " }
            @match name { Some(name) => bdi { (name) }, None => em { "default" } }
        }
    }
}

fn quota_table(shell: &Shell, quotas: &[QuotaLine]) -> Markup {
    html! {
        @if quotas.is_empty() { p class="quiet" { "There are no quotas: clients are not limited." } }
        @else {
            div class="table" tabindex="0" role="region" aria-label="Quotas" {
                table {
                    thead { tr { th scope="col" { "Whose" } th scope="col" { "Limit" } th scope="col" class="number" { "Value" } @if !shell.is_read_only() { th scope="col" class="actions" { "Change" } } } }
                    tbody {
                        @for quota in quotas {
                            @for (limit, value) in &quota.limits {
                                tr {
                                    th scope="row" { (entity(quota)) }
                                    td { code { (limit) } }
                                    td class="number" { (value) }
                                    @if !shell.is_read_only() {
                                        td class="actions" {
                                            a class="button small" href=(removal_path(quota, limit)) aria-label=(format!("Remove {limit} of {}", names(quota))) { "Remove…" }
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

fn new_quota() -> Markup {
    html! {
        details class="card" {
            summary { "Set a quota" }
            form class="stack" method="post" action="/quotas" {
                p class="quiet" { "Fill in whom it is for: a user, a client id, both, or an address. A star (*) is the default of all." }
                div class="row" {
                    label { "User" input name="user" spellcheck="false"; }
                    label { "Client id" input name="client" spellcheck="false"; }
                    label { "Address" input name="ip" spellcheck="false"; }
                }
                div class="row" {
                    label { "Limit" select name="limit" {
                        @for (name, about) in LIMITS { option value=(name) { (name) " (" (about) ")" } }
                    } }
                    label { "Value" input name="value" required inputmode="decimal"; }
                }
                button class="primary" { "Set" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ConsoleSettings;

    fn line(entity: &[(&str, Option<&str>)]) -> QuotaLine {
        let entity = entity.iter().map(|(kind, name)| ((*kind).to_owned(), name.map(str::to_owned)));
        let limits = BTreeMap::from([("producer_byte_rate".to_owned(), 1024.0)]);
        QuotaLine { entity: entity.collect(), limits }
    }

    #[test]
    fn a_quota_is_removed_by_the_name_of_its_entity() {
        let shell = Shell::new(&Console::new(ConsoleSettings::without_login()), None, None);
        let of = line(&[("user", Some("a&b")), ("client-id", None)]);
        assert_eq!(names(&of), "*/a&b");
        let list = quota_table(&shell, std::slice::from_ref(&of)).0;
        assert!(!list.contains("<form") && list.contains("href=\"/quotas/remove?entity=%7B"), "{list}");
        let page = removal(&shell, &of, "producer_byte_rate", 1024.0, Some("Nothing was removed.")).0;
        for part in [
            "role=\"alert\">Nothing was removed.</p>",
            "data-expect=\"*/a&amp;b\"",
            "thalweg quota set --default client-id --user 'a&amp;b' producer_byte_rate=1024</code>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let read_only = ConsoleSettings { read_only: true, ..ConsoleSettings::without_login() };
        let shell = Shell::new(&Console::new(read_only), None, None);
        assert!(!removal(&shell, &of, "producer_byte_rate", 1024.0, None).0.contains("<form"));
        assert!(!quota_table(&shell, &[of]).0.contains("/quotas/remove"));
    }
}
