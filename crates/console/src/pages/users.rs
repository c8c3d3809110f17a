//! Users with passwords, and quotas.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::users::{self, NewPassword, QuotaChange, QuotaLine, User};
use crate::page::{Section, Shell, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// Kafka's quota names, with descriptions.
const LIMITS: [(&str, &str); 5] = [
    ("producer_byte_rate", "bytes produced per second"),
    ("consumer_byte_rate", "bytes consumed per second"),
    ("request_percentage", "percent of a broker's time for requests"),
    ("controller_mutation_rate", "partitions created or deleted per second"),
    ("connection_creation_rate", "connections per second, of an address"),
];

/// Shows the users.
pub async fn list(shell: Shell) -> Response {
    let users = users::list(shell.view()).await;
    let body = users.map(|users| {
        html! {
            (table(&shell, &users))
            @if !shell.is_read_only() { (new()) }
        }
    });
    shell.answer(Section::Users, "Users", body)
}

/// Sets a password.
pub async fn set_password(
    State(console): State<Console>,
    shell: Shell,
    Form(new): Form<NewPassword>,
) -> Response {
    let done = users::set_password(shell.view(), &new).await;
    see_other(
        &console,
        "/users",
        Note::of(done, format!("{} has a new password for {}.", new.name, new.mechanism)),
    )
}

/// The form for removing a credential.
#[derive(Deserialize)]
pub struct Credential {
    name: String,
    mechanism: String,
}

/// Removes a credential.
pub async fn remove(State(console): State<Console>, shell: Shell, Form(of): Form<Credential>) -> Response {
    let done = users::remove(shell.view(), &of.name, &of.mechanism).await;
    see_other(
        &console,
        "/users",
        Note::of(done, format!("{} has no password for {} any more.", of.name, of.mechanism)),
    )
}

fn table(shell: &Shell, users: &[User]) -> Markup {
    html! {
        p class="quiet" { "Users with passwords in the cluster (SCRAM). Users of PLAIN are in the properties files of brokers, and not listed." }
        div class="table" tabindex="0" role="region" aria-label="Users" {
            table {
                thead { tr { th scope="col" { "User" } th scope="col" { "Passwords" } @if !shell.is_read_only() { th scope="col" class="actions" { "Change" } } } }
                tbody {
                    @for user in users {
                        tr {
                            th scope="row" { bdi { (user.name) } }
                            td { @for (mechanism, iterations) in &user.mechanisms { p { (mechanism) span class="quiet" { ", hashed " (iterations) " times" } } } }
                            @if !shell.is_read_only() {
                                td class="actions" {
                                    @for mechanism in user.mechanisms.keys() {
                                        form method="post" action="/users/remove" {
                                            input type="hidden" name="name" value=(user.name);
                                            input type="hidden" name="mechanism" value=(mechanism);
                                            button class="small" aria-label=(format!("Remove the {mechanism} password of {}", user.name)) { "Remove " (mechanism) }
                                        } " "
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if users.is_empty() { p class="quiet" { "There are no such users." } }
    }
}

fn new() -> Markup {
    html! {
        details class="card narrow" {
            summary { "Add a user, or set a password" }
            form class="stack" method="post" action="/users" {
                label { "User" input name="name" required autocapitalize="none" spellcheck="false" autocomplete="off"; }
                label { "Password" input name="password" type="password" required autocomplete="new-password"; }
                label { "Mechanism" select name="mechanism" { option { "SCRAM-SHA-512" } option { "SCRAM-SHA-256" } } }
                button class="primary" { "Set" }
            }
        }
    }
}

/// Shows the quotas.
pub async fn quotas(shell: Shell) -> Response {
    let quotas = users::quotas(shell.view()).await;
    let body = quotas.map(|quotas| {
        html! {
            (quota_table(&shell, &quotas))
            @if !shell.is_read_only() { (new_quota()) }
        }
    });
    shell.answer(Section::Quotas, "Quotas", body)
}

/// The form for a quota.
#[derive(Deserialize)]
pub struct QuotaForm {
    #[serde(default)]
    user: String,
    #[serde(default)]
    client: String,
    #[serde(default)]
    ip: String,
    /// The entity of a listed quota, as JSON.
    #[serde(default)]
    entity: String,
    limit: String,
    #[serde(default)]
    value: String,
}

impl QuotaForm {
    fn read(&self) -> Result<QuotaChange, Problem> {
        let mut entity: BTreeMap<String, Option<String>> = BTreeMap::new();
        if self.entity.is_empty() {
            // A star selects the default entity; an empty field is not part of the entity.
            for (kind, name) in [("user", &self.user), ("client-id", &self.client), ("ip", &self.ip)] {
                match name.trim() {
                    "" => {}
                    "*" => drop(entity.insert(kind.to_owned(), None)),
                    name => drop(entity.insert(kind.to_owned(), Some(name.to_owned()))),
                }
            }
        } else {
            entity = serde_json::from_str(&self.entity)
                .map_err(|error| Problem::wrong(format!("The entity cannot be read: {error}")))?;
        }
        let value = match self.value.trim() {
            "" => None,
            text => {
                let parsed = text.replace(',', "").parse::<f64>();
                Some(parsed.map_err(|_| Problem::wrong(format!("{text:?} is not a number")))?)
            }
        };
        Ok(QuotaChange { entity, limit: self.limit.clone(), value })
    }
}

/// Sets or removes a quota.
pub async fn set_quota(
    State(console): State<Console>,
    shell: Shell,
    Form(form): Form<QuotaForm>,
) -> Response {
    let done = async { users::set_quota(shell.view(), &form.read()?).await };
    let words = if form.value.trim().is_empty() { "was removed" } else { "was set" };
    see_other(&console, "/quotas", Note::of(done.await, format!("{} {words}.", form.limit)))
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
                                            form method="post" action="/quotas" {
                                                input type="hidden" name="entity" value=(serde_json::to_string(&quota.entity).unwrap_or_default());
                                                input type="hidden" name="limit" value=(limit);
                                                button class="small" aria-label=(format!("Remove {limit}")) { "Remove" }
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
