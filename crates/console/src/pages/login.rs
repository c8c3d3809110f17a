//! Login and logout. The cluster checks the password; the console keeps a session.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use maud::{Markup, html};
use serde::Deserialize;

use super::kept_form::KeptForm;
use crate::arrival::Arrival;
use crate::page::{Section, Shell};
use crate::problem::Problem;
use crate::session::LIFETIME_MAX;
use crate::state::{Console, LoginProblem};

/// The page to open after the login.
#[derive(Deserialize)]
pub struct NextPage {
    next: Option<String>,
}

/// The login form.
#[derive(Deserialize)]
pub struct LoginForm {
    user: String,
    password: String,
    next: Option<String>,
    /// The fields of a message that was not sent, which the login carries.
    form: Option<String>,
}

/// Shows the login form.
pub async fn show(State(console): State<Console>, shell: Shell, Query(next): Query<NextPage>) -> Response {
    if !console.has_login() {
        return Redirect::to("/").into_response();
    }
    let form = form(next.next.as_deref(), "", None, None);
    shell.answer::<Problem>(Section::Login, "Log in", Ok(form))
}

/// The login form after a message whose session has ended, which carries the message.
pub fn carrying(console: &Console, kept: &KeptForm) -> Response {
    let form = form(Some(&kept.path), "", None, Some(kept));
    let mut response = Shell::new(console, None, None).answer::<Problem>(Section::Login, "Log in", Ok(form));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

/// Asks the cluster to check the user name and password.
pub async fn check(
    State(console): State<Console>,
    shell: Shell,
    arrival: Option<Extension<Arrival>>,
    headers: HeaderMap,
    Form(login): Form<LoginForm>,
) -> Response {
    if !console.has_login() {
        return Redirect::to("/").into_response();
    }
    let next = own_path(login.next.as_deref());
    let kept = KeptForm::carried(next, login.form);
    let problem = match console.log_in(arrival.as_deref(), &login.user, &login.password).await {
        Ok((person, key)) => {
            let session = console.sessions().begin(Arc::clone(&person), key);
            let mut response = match &kept {
                Some(kept) => {
                    let shell = Shell::new(&console, Some(person), None);
                    shell.answer::<Problem>(Section::Topics, "A message to send", Ok(kept.page()))
                }
                None => Redirect::to(next).into_response(),
            };
            let cookie = console.sessions().cookie(&headers, &session, LIFETIME_MAX.as_secs());
            response.headers_mut().insert(SET_COOKIE, cookie);
            return response;
        }
        Err(LoginProblem::Wrong) => {
            let message = "The cluster does not take this user and password".to_owned();
            Problem { status: StatusCode::UNAUTHORIZED, ..Problem::forbidden("unauthenticated", message) }
        }
        Err(LoginProblem::Failed(problem)) => problem,
    };
    let form = form(login.next.as_deref(), &login.user, Some(&problem.message), kept.as_ref());
    let mut response = shell.answer::<Problem>(Section::Login, "Log in", Ok(form));
    *response.status_mut() = problem.status;
    response
}

/// Ends the session.
pub async fn end(State(console): State<Console>, headers: HeaderMap) -> Response {
    console.sessions().end(&headers);
    let mut response = Redirect::to("/login").into_response();
    response.headers_mut().insert(SET_COOKIE, console.sessions().cookie(&headers, "", 0));
    response
}

/// A path of this console. Addresses of other sites become `/`.
fn own_path(next: Option<&str>) -> &str {
    let is_own = |next: &&str| {
        next.starts_with('/')
            && !next.starts_with("//")
            && !next.contains('\\')
            && next.bytes().all(|byte| byte.is_ascii_graphic())
    };
    next.filter(is_own).unwrap_or("/")
}

fn form(next: Option<&str>, user: &str, problem: Option<&str>, kept: Option<&KeptForm>) -> Markup {
    html! {
        form class="card narrow stack" method="post" action="/login" {
            @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
            p class="quiet" { "With a user of the cluster. What you may see and do here is what the cluster lets this user see and do." }
            @if let Some(next) = next { input type="hidden" name="next" value=(next); }
            @if let Some(kept) = kept { (kept.hidden()) }
            label { "User" input name="user" value=(user) required autocomplete="username" autocapitalize="none" spellcheck="false"; }
            label { "Password" input name="password" type="password" required autocomplete="current-password"; }
            button class="primary" { "Log in" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_a_page_of_this_console() {
        assert_eq!(own_path(Some("/topics?page=2")), "/topics?page=2");
        for elsewhere in ["//evil.example", "https://evil.example", "/\\evil.example", "", "topics", "/a\nb"]
        {
            assert_eq!(own_path(Some(elsewhere)), "/", "{elsewhere}");
        }
    }
}
