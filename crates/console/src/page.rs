//! The frame of every page: head, navigation, notes, and the shared parts of tables and forms.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::assets;
use crate::cluster::View;
use crate::format;
use crate::history::HistorySource;
use crate::problem::Problem;
use crate::restoration::Restoration;
use crate::session::Person;
use crate::state::{Console, Note};
use crate::unseen::visible_markup;

/// Characters that stay unescaped in an address.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A section of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Overview,
    Topics,
    Groups,
    Transactions,
    Streams,
    Lab,
    Brokers,
    Clients,
    Quorum,
    Access,
    Users,
    Quotas,
    Login,
}

/// A section with its title and path.
type NavigationEntry = (Section, &'static str, &'static str);

/// The navigation: groups of sections.
const NAVIGATION: [(&str, &[NavigationEntry]); 3] = [
    (
        "Data",
        &[
            (Section::Overview, "Overview", "/"),
            (Section::Topics, "Topics", "/topics"),
            (Section::Groups, "Groups", "/groups"),
            (Section::Transactions, "Transactions", "/transactions"),
            (Section::Streams, "Streams", "/streams"),
            (Section::Lab, "Lab", "/lab"),
        ],
    ),
    (
        "Cluster",
        &[
            (Section::Brokers, "Brokers", "/brokers"),
            (Section::Clients, "Clients", "/clients"),
            (Section::Quorum, "Quorum and features", "/quorum"),
        ],
    ),
    (
        "Access",
        &[
            (Section::Access, "ACLs", "/acls"),
            (Section::Users, "Users", "/users"),
            (Section::Quotas, "Quotas", "/quotas"),
        ],
    ),
];

impl Section {
    /// The place of the section that a path belongs to.
    fn of(path: &str) -> Option<NavigationEntry> {
        let is_of = |place: &&NavigationEntry| {
            path.strip_prefix(place.2).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        NAVIGATION.iter().flat_map(|(_, places)| *places).find(is_of).copied()
    }
}

/// Inputs of a page frame: the person, the note and the enabled features.
pub struct Shell {
    person: Option<Arc<Person>>,
    note: Option<Note>,
    is_read_only: bool,
    has_login: bool,
    has_streams: bool,
    has_clients: bool,
    has_metrics: bool,
    history: Option<HistorySource>,
}

impl FromRequestParts<Console> for Shell {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Shell, Response> {
        let query = parts.uri.query().unwrap_or_default();
        let note = query.split('&').find_map(|pair| pair.strip_prefix("note="));
        let person = parts.extensions.get::<Arc<Person>>().cloned();
        Ok(Shell::new(console, person, note.and_then(|name| console.note(name))))
    }
}

impl Shell {
    /// The frame of a page for a person.
    pub fn new(console: &Console, person: Option<Arc<Person>>, note: Option<Note>) -> Shell {
        Shell {
            person,
            note,
            is_read_only: console.settings().read_only,
            has_login: console.has_login(),
            has_streams: console.settings().streams.is_some(),
            has_clients: console.settings().clients.is_some(),
            has_metrics: console.settings().has_metrics,
            history: console.settings().history.clone(),
        }
    }

    /// The cluster under the login of the request.
    pub fn view(&self) -> &Arc<View> {
        &self.person.as_ref().expect("the person is missing only on pages that are open to all").view
    }

    /// The logged-in user; none without logins.
    pub fn user(&self) -> Option<&str> {
        self.person.as_ref()?.user.as_deref()
    }

    /// True if changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// True if the clients of the broker beside this console are known.
    pub fn has_clients(&self) -> bool {
        self.has_clients
    }

    /// The last hour of the broker beside this console, if it is kept.
    pub fn history(&self) -> Option<&HistorySource> {
        self.history.as_ref()
    }

    /// A page with this body, or with the problem.
    pub fn answer<P: Into<Problem>>(
        &self,
        section: Section,
        title: &str,
        body: Result<Markup, P>,
    ) -> Response {
        match body.map_err(Into::into) {
            Ok(body) => respond(StatusCode::OK, &self.frame(Some(section), title, &body)),
            Err(problem) => respond(problem.status, &self.frame(Some(section), title, &complaint(&problem))),
        }
    }

    /// A page with a form that was refused, to be sent again.
    pub fn answer_again(&self, section: Section, title: &str, problem: &Problem, body: &Markup) -> Response {
        respond(problem.status, &self.frame(Some(section), title, body))
    }

    /// A page for a refused request of this path, in its section.
    pub fn refuse_at(&self, path: &str, problem: &Problem) -> Response {
        let (section, title) =
            Section::of(path).map_or((None, "Not served"), |(section, title, _)| (Some(section), title));
        respond(problem.status, &self.frame(section, title, &complaint(problem)))
    }

    /// A page for a resource that is missing or forbidden.
    pub fn refuse(&self, problem: &Problem) -> Response {
        respond(problem.status, &self.frame(None, "Not served", &complaint(problem)))
    }

    fn frame(&self, section: Option<Section>, title: &str, body: &Markup) -> Markup {
        let user = self.user();
        html! {
            (DOCTYPE)
            html lang="en" {
                (head(title))
                body {
                    a class="skip" href="#main" { "Skip to the content" }
                    header class="top" {
                        a class="brand" href="/" { (logo()) span { "Thalweg" } }
                        @if self.is_read_only { span class="badge" { "read-only" } }
                        span class="spacer" {}
                        @if self.person.is_some() {
                            @if let Some(user) = user {
                                span class="user" { span class="quiet" { "Logged in as " } bdi { (user) } }
                                form method="post" action="/logout" { button class="plain" { "Log out" } }
                            } @else if !self.has_login {
                                span class="user quiet" { "No login" }
                            }
                        }
                    }
                    @if self.person.is_some() { (self.navigation(section)) }
                    main id="main" tabindex="-1" {
                        @if let Some(note) = &self.note { (self::note(note)) }
                        h1 { (title) }
                        (body)
                    }
                }
            }
        }
    }

    fn navigation(&self, section: Option<Section>) -> Markup {
        let is_shown = |place| match place {
            Section::Streams => self.has_streams,
            Section::Clients => self.has_clients,
            _ => true,
        };
        html! {
            nav class="side" aria-label="Main" {
                ul {
                    @for (group, places) in NAVIGATION {
                        li class="group" { (group) }
                        @for (place, name, path) in places.iter().filter(|(place, ..)| is_shown(*place)) {
                            li { a href=(path) aria-current=[(section == Some(*place)).then_some("page")] { (name) } }
                        }
                    }
                    li class="group" { "For programs" }
                    li { a href="/api/v1/openapi.json" { "API" } }
                    @if self.has_metrics { li { a href="/metrics" { "Metrics" } } }
                }
            }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Thalweg" }
            link rel="icon" href=(assets::path("icon.svg"));
            link rel="stylesheet" href=(assets::path("console.css"));
            script src=(assets::path("console.js")) defer {}
        }
    }
}

fn logo() -> Markup {
    html! {
        svg class="logo" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true" {
            path d="M4 5c9 0 3 11 12 11s3 11 12 11" {}
            path class="bank" d="M4 14c5 0 2 7 8 9s6 4 8 4M12 5c5 0 4 3 8 5s3 8 8 8" {}
        }
    }
}

fn note(note: &Note) -> Markup {
    html! {
        @if note.is_error {
            p class="note bad" role="alert" { (note.text) }
        } @else {
            p class="note good" role="status" {
                (note.text)
                @if let Some(restoration) = &note.restoration { (restoring(restoration)) }
            }
        }
    }
}

/// A paragraph with the command that restores what a page removes.
pub fn keeping(restoration: &Restoration) -> Markup {
    html! { p { @if restoration.command().is_some() { "Keep this command." } (restoring(restoration)) } }
}

/// The command that restores what a page removes, or the reason why there is none.
fn restoring(restoration: &Restoration) -> Markup {
    html! {
        @match restoration.command() {
            Some(command) => { " This command restores it" (restoration.condition) ": " code { (command) } },
            None => { " A command that restores it cannot be shown: a name in it has invisible characters." },
        }
    }
}

fn complaint(problem: &Problem) -> Markup {
    html! {
        p class="note bad" role="alert" { (problem.message) }
        p { a href="/" { "Back to the overview" } }
    }
}

fn respond(status: StatusCode, page: &Markup) -> Response {
    let page = visible_markup(&page.0).into_owned();
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

/// True if a path belongs to the API.
pub fn is_api(path: &str) -> bool {
    path.starts_with("/api/")
}

/// A refusal before the login: JSON for the API, otherwise a page.
pub fn refusal(path: &str, problem: &Problem) -> Response {
    if is_api(path) {
        return json(problem.status, &problem.answer());
    }
    let shell = Shell {
        person: None,
        note: None,
        is_read_only: false,
        has_login: false,
        has_streams: false,
        has_clients: false,
        has_metrics: false,
        history: None,
    };
    shell.refuse(problem)
}

/// A JSON response of the API.
pub fn json(status: StatusCode, body: &impl serde::Serialize) -> Response {
    match serde_json::to_string(body) {
        Ok(mut text) => {
            text.push('\n');
            (status, [(CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Redirects to a page that shows a note on the outcome of a change.
pub fn see_other(console: &Console, path: &str, note: Note) -> Response {
    let name = console.keep(note);
    let separator = if path.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{path}{separator}note={name}")).into_response()
}

/// Percent-encodes a text for an address.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// The address of another page of the same list.
pub fn with_page(uri: &Uri, page: usize) -> String {
    let query = uri.query().unwrap_or_default();
    let others = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("page=") && !pair.starts_with("note="));
    let mut address = format!("{}?", uri.path());
    for pair in others {
        address.push_str(pair);
        address.push('&');
    }
    format!("{address}page={page}")
}

/// Links to the previous and next page of a list.
pub fn pager(uri: &Uri, page: usize, pages: usize) -> Markup {
    html! {
        @if pages > 1 {
            nav class="pager" aria-label="Pages" {
                @if page > 1 { a href=(with_page(uri, page - 1)) rel="prev" { "‹ Previous" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a href=(with_page(uri, page + 1)) rel="next" { "Next ›" } }
            }
        }
    }
}

/// A figure with its name.
pub fn figure(name: &str, value: &str, detail: Option<&str>) -> Markup {
    html! {
        div class="figure" {
            dt { (name) }
            dd { (value) @if let Some(detail) = detail { " " small { (detail) } } }
        }
    }
}

/// The time of the oldest reading in a part of a page. Readings are kept for some seconds, and a part stays
/// while it is in use.
pub fn read_at(at_ms: i64) -> Markup {
    html! { p class="quiet" { "Read at " (time_of_day(at_ms)) " UTC." } }
}

/// A time of the day, in UTC.
pub fn time_of_day(at_ms: i64) -> Markup {
    html! { time datetime=(format::time(at_ms)) { (format::of_day(at_ms)) } }
}

/// A value, or a dash if unknown.
pub fn or_dash(value: Option<String>) -> Markup {
    html! { @match value { Some(value) => (value), None => span class="quiet" title="not known" { "–" } } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restoration::of_offset;

    #[test]
    fn a_section_is_that_of_the_path() {
        let section = |path| Section::of(path).map(|(section, ..)| section);
        assert_eq!(section("/"), Some(Section::Overview));
        assert_eq!(
            (section("/topics/a/messages"), section("/acls")),
            (Some(Section::Topics), Some(Section::Access))
        );
        assert_eq!((section("/streams-check"), section("/group"), section("/nowhere")), (None, None, None));
    }

    #[test]
    fn a_note_has_the_command_that_restores() {
        let shown = |group: &str| note(&Note::removed("It is gone.", of_offset(group, "orders", 3, 42))).0;
        let page = shown("a b");
        let words = "It is gone. This command restores it once the group has no members: \
                     <code>thalweg group reset --topic orders:3 --to-offset 42 --execute 'a b'</code></p>";
        assert!(page.ends_with(words), "{page}");
        let page = shown("a\u{200b}b");
        assert!(page.ends_with("cannot be shown: a name in it has invisible characters.</p>"), "{page}");
        assert!(!note(&Note::done("It is done.")).0.contains("<code>"));
    }
}
