//! Users with passwords.

use axum::Form;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::cluster::users::{self, NewPassword, User};
use crate::confirm::{Confirmation, Removal};
use crate::page::{Section, Shell, encode, see_other};
use crate::state::{Console, Note};

/// The title of a page that removes a credential.
const REMOVAL: &str = "Remove a password";

/// Shows the users.
pub async fn list(shell: Shell) -> Response {
    let users = users::list(shell.view()).await;
    let body = users.map(|users| {
        html! {
            @if !shell.is_read_only() { p class="actions" { a class="button primary" href="/create-user" { "Create a user with rights" } } }
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

/// The credential in the query.
#[derive(Deserialize)]
pub struct CredentialQuery {
    name: String,
    mechanism: String,
}

/// Shows a credential, and asks for confirmation to remove it.
pub async fn removal_page(shell: Shell, Query(of): Query<CredentialQuery>) -> Response {
    let user = users::find(shell.view(), &of.name, &of.mechanism).await;
    let body = user.map(|user| {
        html! {
            (consequences(&user, &of.mechanism, shell.user()))
            @if !shell.is_read_only() { (removal_form(&of, None)) }
        }
    });
    shell.answer(Section::Users, REMOVAL, body)
}

/// What the removal of a credential means. `own` is the user of this session.
fn consequences(user: &User, mechanism: &str, own: Option<&str>) -> Markup {
    let others = user.mechanisms.keys().map(String::as_str);
    let others: Vec<&str> = others.filter(|other| !other.eq_ignore_ascii_case(mechanism)).collect();
    html! {
        @if own == Some(user.name.as_str()) {
            p class="note bad" role="alert" {
                "This is your own login: you are logged in as " bdi { (user.name) } ". "
                @if others.is_empty() { "It is your only password for SCRAM: without it, this session may end at once, and you may be unable to log in again." }
                @else { "Without this password, this session may end at once." }
            }
        }
        p class="note warn" {
            "The " (mechanism) " password of " bdi { (user.name) } " is removed, and cannot be restored: the cluster keeps only its hash. Set a new one to let the user in again. "
            @if others.is_empty() { "The user then has no password for SCRAM." }
            @else { "The user keeps " (others.join(", ")) "." }
        }
    }
}

fn removal_form(of: &CredentialQuery, problem: Option<&str>) -> Markup {
    Removal {
        action: &removal_path(&of.name, &of.mechanism),
        expected: &of.name,
        hint: "The name of the user. Clients that log in by this mechanism cannot connect any more.",
        verb: "Remove this password",
        back: "/users",
    }
    .form(problem)
}

fn removal_path(name: &str, mechanism: &str) -> String {
    format!("/users/remove?name={}&mechanism={}", encode(name), encode(mechanism))
}

/// Removes a credential if the typed user name matches.
pub async fn remove(
    State(console): State<Console>,
    shell: Shell,
    Query(of): Query<CredentialQuery>,
    Form(given): Form<Confirmation>,
) -> Response {
    if let Err(problem) = given.check(&of.name) {
        let page = removal_form(&of, Some(&problem.message));
        return shell.answer_again(Section::Users, REMOVAL, &problem, &page);
    }
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
                                        a class="button small" href=(removal_path(&user.name, mechanism)) aria-label=(format!("Remove the {mechanism} password of {}", user.name)) { "Remove " (mechanism) "…" } " "
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
            summary { "Set a password, also of a user without rights" }
            form class="stack" method="post" action="/users" {
                label { "User" input name="name" required autocapitalize="none" spellcheck="false" autocomplete="off"; }
                label { "Password" input name="password" type="password" required autocomplete="new-password"; }
                label { "Mechanism" select name="mechanism" { option { "SCRAM-SHA-512" } option { "SCRAM-SHA-256" } } }
                button class="primary" { "Set" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(mechanisms: &[&str]) -> User {
        let mechanisms = mechanisms.iter().map(|name| ((*name).to_owned(), 4096)).collect();
        User { name: "ann".to_owned(), mechanisms }
    }

    #[test]
    fn the_removal_of_an_own_login_has_a_warning() {
        let page = |user: &User, own| consequences(user, "SCRAM-SHA-512", own).0;
        let both = user(&["SCRAM-SHA-256", "SCRAM-SHA-512"]);
        let own = page(&both, Some("ann"));
        assert!(own.contains("This is your own login") && !own.contains("only password"), "{own}");
        assert!(own.contains("The user keeps SCRAM-SHA-256."), "{own}");
        let last = page(&user(&["SCRAM-SHA-512"]), Some("ann"));
        assert!(last.contains("It is your only password for SCRAM:"), "{last}");
        for other in [None, Some("bob")] {
            let page = page(&both, other);
            assert!(!page.contains("your own") && page.contains("cannot be restored"), "{page}");
        }
    }

    #[test]
    fn a_credential_is_removed_by_the_name_of_its_user() {
        let of = CredentialQuery { name: "a&b".to_owned(), mechanism: "SCRAM-SHA-256".to_owned() };
        let page = removal_form(&of, None).0;
        assert!(page.contains("action=\"/users/remove?name=a%26b&amp;mechanism=SCRAM-SHA-256\""), "{page}");
        assert!(page.contains("data-expect=\"a&amp;b\""), "{page}");
    }
}
