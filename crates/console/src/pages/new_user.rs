//! A new user with its rights: the form, a preview of the ACLs, and the settings of its client.

use axum::Form;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use thalweg_security::visible::is_unseen;

use super::access::words;
use crate::client_settings::ClientLogin;
use crate::cluster::access::AclLine;
use crate::cluster::new_user::{self, AclSupport, NewUser, NewUserOutcome, Rights};
use crate::page::{Section, Shell};
use crate::problem::Problem;
use crate::restoration;
use crate::state::Console;

const TITLE: &str = "Create a user with rights";
/// Brokers in the settings of a client.
const BROKERS_SHOWN: usize = 3;

/// Shows the form, and the ACLs that the filled form would add.
pub async fn show(shell: Shell, Query(user): Query<NewUser>) -> Response {
    if user.name().is_empty() {
        return shell.answer::<Problem>(Section::Users, TITLE, Ok(form(&user, None)));
    }
    let checked = async {
        // Without the right to list users, the creation decides.
        match new_user::check_absent(shell.view(), &user).await {
            Err(known) if known.status == StatusCode::BAD_REQUEST => Err(known),
            _ => preview(&shell, &user, None).await,
        }
    };
    match checked.await {
        Ok(page) => shell.answer::<Problem>(Section::Users, TITLE, Ok(page)),
        Err(problem) => {
            shell.answer_again(Section::Users, TITLE, &problem, &form(&user, Some(&problem.message)))
        }
    }
}

async fn preview(shell: &Shell, user: &NewUser, problem: Option<&str>) -> Result<Markup, Problem> {
    let acls = user.acls()?;
    let support = new_user::acl_support(shell.view(), user).await;
    Ok(html! {
        (form(user, None))
        h2 { "What would be made" }
        (plan(user, &acls, &support))
        @if !shell.is_read_only() { (creation(user, problem)) }
    })
}

/// The form, which shows its preview by a link that can be kept.
fn form(user: &NewUser, problem: Option<&str>) -> Markup {
    html! {
        @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
        form class="card narrow stack" method="get" action="/create-user" {
            label { "User" input name="name" value=(user.name) required autocapitalize="none" spellcheck="false" autocomplete="off"; }
            label { "Rights" select name="rights" {
                @for (rights, value, words) in Rights::ALL { option value=(value) selected[user.rights == rights] { (words) } }
            } }
            div class="row" {
                label { "Topic" input name="topic" value=(user.topic) placeholder="orders, or * for all" spellcheck="false"; }
                label class="check" { input type="checkbox" name="topic_prefix" value="on" checked[user.topic_prefix == "on"]; "a prefix of names" }
            }
            div class="row" {
                label { "Group" input name="group" value=(user.group) placeholder="as the user" spellcheck="false"; }
                label class="check" { input type="checkbox" name="group_prefix" value="on" checked[user.group_prefix == "on"]; "a prefix of names" }
            }
            label { "Mechanism" select name="mechanism" {
                @for mechanism in ["SCRAM-SHA-512", "SCRAM-SHA-256"] { option selected[user.mechanism() == mechanism] { (mechanism) } }
            } }
            p class="hint" { "Producers need no group, and admins neither topic nor group." }
            div class="actions" { button class="primary" { "Preview" } a class="button" href="/users" { "Cancel" } }
        }
    }
}

fn plan(user: &NewUser, acls: &[AclLine], support: &AclSupport) -> Markup {
    html! {
        p { "The user " bdi { (user.name()) } " with a password for " (user.mechanism()) "." }
        @match support {
            AclSupport::WithoutAuthorizer => p class="note warn" { (WITHOUT_AUTHORIZER) " Only the user would be made." },
            AclSupport::Enabled => (listed(acls)),
            AclSupport::Unknown(reason) => {
                (listed(acls))
                p class="note warn" { "Whether your login may add ACLs is not known: " (reason) }
            },
        }
    }
}

const WITHOUT_AUTHORIZER: &str =
    "No authorizer is configured: everyone who can connect may do everything, and there are no ACLs.";

fn listed(acls: &[AclLine]) -> Markup {
    html! {
        p { "These ACLs for " @if let Some(first) = acls.first() { bdi { (first.principal) } } ":" }
        ul { @for acl in acls { li { (words(acl)) } } }
    }
}

fn creation(user: &NewUser, problem: Option<&str>) -> Markup {
    let fields = [
        ("name", user.name()),
        ("topic", &user.topic),
        ("topic_prefix", &user.topic_prefix),
        ("group", &user.group),
        ("group_prefix", &user.group_prefix),
        ("mechanism", user.mechanism()),
    ];
    let rights = Rights::ALL.iter().find(|(rights, ..)| *rights == user.rights);
    html! {
        @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
        form class="card narrow stack" method="post" action="/create-user" {
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            @if let Some((_, value, _)) = rights { input type="hidden" name="rights" value=(value); }
            label { "Password" input name="password" type="password" autocomplete="new-password" placeholder="made for you";
                span class="hint" { "Leave it empty: a long random password is made, and shown once on the next page." } }
            button class="primary" { "Create the user" }
        }
    }
}

/// The form that makes the user.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct CreationForm {
    name: String,
    rights: Rights,
    topic: String,
    topic_prefix: String,
    group: String,
    group_prefix: String,
    mechanism: String,
    password: String,
}

impl CreationForm {
    fn parts(self) -> (NewUser, String) {
        let CreationForm { name, rights, topic, topic_prefix, group, group_prefix, mechanism, password } =
            self;
        (NewUser { name, rights, topic, topic_prefix, group, group_prefix, mechanism }, password)
    }
}

/// Makes the user and its ACLs, and shows the settings of its client. Not a redirection, so that the console
/// does not store the password. Sent again, the form is refused, because the user exists.
pub async fn create(
    State(console): State<Console>,
    shell: Shell,
    Form(form): Form<CreationForm>,
) -> Response {
    let (user, typed) = form.parts();
    let made = async {
        if typed.contains(is_unseen) {
            return Err(Problem::wrong(
                "The password has invisible characters, which the next page could not show",
            ));
        }
        let password = if typed.is_empty() { thalweg_authority::password() } else { typed };
        let outcome = new_user::create(shell.view(), &user, &password).await?;
        Ok((outcome, password))
    };
    match made.await {
        Ok((outcome, password)) => {
            let brokers = shell.view().catalog().await.map(|catalog| {
                let brokers = catalog.brokers.values().take(BROKERS_SHOWN);
                brokers.map(|broker| broker.address()).collect::<Vec<_>>()
            });
            let brokers = brokers.unwrap_or_else(|_| console.settings().bootstrap.clone());
            let protocol = console.settings().client.get("security.protocol").map(str::to_uppercase);
            let login = ClientLogin {
                bootstrap: &brokers.join(","),
                protocol: protocol.as_deref().filter(|protocol| protocol.starts_with("SASL")),
                mechanism: user.mechanism(),
                user: user.name(),
                password: &password,
                group: user.group_id(),
            };
            shell.answer::<Problem>(Section::Users, "A new user", Ok(result(&user, &outcome, &login)))
        }
        Err(problem) => {
            let page = preview(&shell, &user, Some(&problem.message)).await;
            let page = page.unwrap_or_else(|_| self::form(&user, Some(&problem.message)));
            shell.answer_again(Section::Users, TITLE, &problem, &page)
        }
    }
}

fn result(user: &NewUser, outcome: &NewUserOutcome, login: &ClientLogin<'_>) -> Markup {
    html! {
        @if outcome.failed.is_empty() {
            p class="note good" role="status" {
                "The user " bdi { (user.name()) } " was made"
                @if !outcome.added.is_empty() { ", with its ACLs" } "."
            }
        } @else {
            p class="note bad" role="alert" { "The user " bdi { (user.name()) } " was made, and not all of its ACLs. Its password is below." }
        }
        @if outcome.is_without_authorizer { p class="note warn" { (WITHOUT_AUTHORIZER) " Only the user was made." } }
        @if !outcome.added.is_empty() {
            p { "Added:" }
            ul { @for acl in &outcome.added { li { (words(acl)) } } }
        }
        @if !outcome.failed.is_empty() { (unfinished(&outcome.failed)) }
        h2 { "Settings of the client" }
        p class="note warn" { "Copy them now: this page is the only one that shows the password. The cluster keeps its hash." }
        h3 { "Java client, and " code { "thalweg --command-config" } }
        pre class="card mono" { (login.java()) }
        h3 { "librdkafka, and kcat" }
        pre class="card mono" { (login.librdkafka()) }
        p { a href="/users" { "Users" } " · " a href="/acls" { "ACLs" } }
    }
}

/// The ACLs that are missing, with the commands that add them. An ACL that is there already stays as it is.
fn unfinished(failed: &[(AclLine, String)]) -> Markup {
    html! {
        p { "Not added:" }
        ul { @for (acl, reason) in failed { li { (words(acl)) ": " (reason) } } }
        p { "A login with ALTER on the cluster finishes it by these commands:" }
        pre class="card mono" {
            @for (acl, _) in failed { @if let Some(command) = restoration::of_acl(acl).command() { (command) "\n" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> NewUser {
        NewUser { name: "ann".to_owned(), topic: "a&b".to_owned(), ..NewUser::default() }
    }

    const LOGIN: ClientLogin<'static> = ClientLogin {
        bootstrap: "b1:9093",
        protocol: Some("SASL_SSL"),
        mechanism: "SCRAM-SHA-512",
        user: "ann",
        password: "secret",
        group: Some("ann"),
    };

    #[test]
    fn a_preview_names_the_acls_and_has_no_password_in_its_address() {
        let acls = user().acls().expect("they are right");
        let page = plan(&user(), &acls, &AclSupport::Enabled).0;
        for part in ["User:ann", "ALLOW READ on TOPIC a&amp;b", "ALLOW READ on GROUP ann"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let page = plan(&user(), &acls, &AclSupport::WithoutAuthorizer).0;
        assert!(page.contains("No authorizer is configured") && !page.contains("ALLOW"), "{page}");
        assert!(!form(&user(), None).0.contains("password\""), "the form is sent by its address");
        let page = creation(&user(), None).0;
        for part in
            ["method=\"post\"", "name=\"topic\" value=\"a&amp;b\"", "name=\"rights\" value=\"consumer\""]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_partial_failure_is_shown_with_the_commands_that_finish_it() {
        let mut acls = user().acls().expect("they are right");
        let failed = vec![(acls.remove(1), "CLUSTER_AUTHORIZATION_FAILED".to_owned())];
        let outcome = NewUserOutcome { added: acls, failed, is_without_authorizer: false };
        let page = result(&user(), &outcome, &LOGIN).0;
        for part in [
            "role=\"alert\">The user <bdi>ann</bdi> was made, and not all of its ACLs.",
            "ALLOW READ on GROUP ann: CLUSTER_AUTHORIZATION_FAILED",
            "thalweg security acl add --group ann --allow read User:ann\n",
            "sasl.password=secret",
            "password=&quot;secret&quot;",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("thalweg security acl add --topic"), "that one is there: {page}");
        let without = NewUserOutcome { added: Vec::new(), failed: Vec::new(), is_without_authorizer: true };
        let page = result(&user(), &without, &LOGIN).0;
        assert!(page.contains("was made.") && page.contains("Only the user was made."), "{page}");
    }
}
