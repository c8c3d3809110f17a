//! ACLs: the list, a form for a new ACL, the deletion of one, and the rights of a principal.

use axum::Form;
use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::ErrorCode;

use crate::cluster::access::{self, AclLine, AclList, AclQuery, Right, RightsQuery};
use crate::confirm::{Confirmation, Removal};
use crate::format;
use crate::page::{Section, Shell, encode, keeping, or_dash, pager, see_other};
use crate::problem::Problem;
use crate::restoration;
use crate::state::{Console, Note};

/// The title of a page that deletes an ACL.
const DELETION: &str = "Delete an ACL";

/// Shows the ACLs.
pub async fn list(shell: Shell, uri: Uri, Query(query): Query<AclQuery>) -> Response {
    let list = access::list(shell.view(), &query).await;
    if list.as_ref().is_err_and(|error| error.error_code() == Some(ErrorCode::SecurityDisabled)) {
        return shell.answer::<Problem>(Section::Access, "ACLs", Ok(without_authorizer("acls")));
    }
    let body = list.map(|list| {
        html! {
            (tabs("acls"))
            (filter(&query))
            p class="quiet" role="status" { (format::counted(list.matched, "ACL")) ". Super users (super.users) may do everything, and are not listed." }
            (table(&shell, &list))
            (pager(&uri, list.page, list.pages))
            @if !shell.is_read_only() { (new()) }
        }
    });
    shell.answer(Section::Access, "ACLs", body)
}

/// Creates an ACL.
pub async fn create(State(console): State<Console>, shell: Shell, Form(line): Form<AclLine>) -> Response {
    let done = access::create(shell.view(), &line).await;
    see_other(&console, "/acls", Note::of(done, format!("{} now: {}.", line.principal, words(&line))))
}

/// Shows an ACL, and asks for confirmation to delete it.
pub async fn deletion_page(shell: Shell, Query(line): Query<AclLine>) -> Response {
    let acl = access::find(shell.view(), &line).await;
    shell.answer(Section::Access, DELETION, acl.map(|acl| deletion(&shell, &acl, None)))
}

/// Deletes an ACL if the typed principal matches.
pub async fn delete(
    State(console): State<Console>,
    shell: Shell,
    Query(line): Query<AclLine>,
    Form(given): Form<Confirmation>,
) -> Response {
    if let Err(problem) = given.check(&line.principal) {
        let page = deletion(&shell, &line, Some(&problem.message));
        return shell.answer_again(Section::Access, DELETION, &problem, &page);
    }
    let note = match access::delete(shell.view(), &line).await {
        Ok(acl) => {
            let text = format!("No more for {}: {}.", acl.principal, words(&acl));
            Note::removed(text, restoration::of_acl(&acl))
        }
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, "/acls", note)
}

fn deletion(shell: &Shell, acl: &AclLine, problem: Option<&str>) -> Markup {
    let consequence = match acl.permission.as_str() {
        "DENY" => "Another ACL may allow the operation from then on.",
        _ => "The principal may lose access at once.",
    };
    let own = shell.user().map(|user| format!("User:{user}"));
    html! {
        p class="note warn" { (words(acl)) " for " bdi { (acl.principal) } ". " (consequence)
            @if own.as_ref() == Some(&acl.principal) { " It is an ACL of your own login." } }
        (keeping(&restoration::of_acl(acl)))
        @if !shell.is_read_only() {
            (Removal {
                action: &deletion_path(acl),
                expected: &acl.principal,
                hint: "The principal, as above.",
                verb: "Delete this ACL",
                back: "/acls",
            }.form(problem))
        }
    }
}

fn deletion_path(acl: &AclLine) -> String {
    let pairs = fields(acl).map(|(name, value)| format!("{name}={}", encode(value)));
    format!("/acls/delete?{}", pairs.join("&"))
}

/// Shows the rights of a principal.
pub async fn rights(shell: Shell, Query(query): Query<RightsQuery>) -> Response {
    let is_requested = !query.principal.trim().is_empty();
    let found = match is_requested {
        true => access::rights(shell.view(), &query).await.map(Some),
        false => Ok(None),
    };
    let body = |found: Option<Vec<Right>>, problem: Option<&str>| {
        html! {
            (tabs("rights"))
            (question(&query))
            @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
            @if let Some(found) = found { (answer(&query, &found)) }
        }
    };
    let shown = match found {
        Ok(found) => Ok(body(found, None)),
        Err(problem) if problem.kind == ErrorCode::SecurityDisabled.to_string() => {
            Ok(without_authorizer("rights"))
        }
        Err(problem) if problem.status.as_u16() == 400 => Ok(body(None, Some(&problem.message))),
        Err(problem) => Err(problem),
    };
    shell.answer::<Problem>(Section::Access, "Who may do what", shown)
}

fn tabs(shown: &str) -> Markup {
    html! {
        nav class="tabs" aria-label="Access" {
            @for (tab, title, path) in [("acls", "ACLs", "/acls"), ("rights", "Who may do what", "/acls/rights")] {
                a href=(path) aria-current=[(tab == shown).then_some("page")] { (title) }
            }
        }
    }
}

/// The pages of a cluster that has no ACLs.
fn without_authorizer(tab: &str) -> Markup {
    html! {
        (tabs(tab))
        p class="note warn" { "No authorizer is configured: everyone who can connect may do everything, and there are no ACLs." }
        p { "To have ACLs, set these properties on every broker and controller, and restart them:" }
        pre class="card mono" { "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:admin" }
        p { "Principals in " code { "super.users" } " may do everything. Those of the brokers and controllers must be among them. A client that does not log in is "
            code { "User:ANONYMOUS" } ". On a new Thalweg node, " code { "thalweg serve --secure" } " sets all of this (docs/security.md)." }
    }
}

/// An ACL without its principal, as in: ALLOW READ on TOPIC orders.
pub fn words(line: &AclLine) -> String {
    let of = if line.pattern_type == "PREFIXED" { "names that begin with " } else { "" };
    let from =
        if line.host == "*" || line.host.is_empty() { String::new() } else { format!(" from {}", line.host) };
    format!(
        "{} {} on {} {of}{}{from}",
        line.permission, line.operation, line.resource_type, line.resource_name
    )
}

fn resource_types(chosen: &str, with_any: bool) -> Markup {
    html! {
        @if with_any { option value="" selected[chosen.is_empty()] { "any" } }
        @for kind in ResourceType::ALL.iter().filter(|kind| **kind != ResourceType::Any) {
            option value=(kind.name()) selected[kind.name() == chosen] { (kind.name().to_lowercase().replace('_', " ")) }
        }
    }
}

fn filter(query: &AclQuery) -> Markup {
    html! {
        form class="filter" method="get" action="/acls" role="search" {
            label { "Principal" input type="search" name="principal" value=(query.principal) placeholder="a part of it"; }
            label { "Resource" input type="search" name="resource" value=(query.resource) placeholder="a part of its name"; }
            label { "Type" select name="resource_type" { (resource_types(&query.resource_type, true)) } }
            button { "Show" }
        }
    }
}

fn table(shell: &Shell, list: &AclList) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label="ACLs" {
            table {
                thead { tr {
                    th scope="col" { "Principal" } th scope="col" { "Permission" } th scope="col" { "Operation" } th scope="col" { "Type" }
                    th scope="col" { "Resource" } th scope="col" { "Host" }
                    @if !shell.is_read_only() { th scope="col" class="actions" { "Change" } }
                } }
                tbody {
                    @for acl in &list.acls {
                        tr {
                            th scope="row" { bdi { (acl.principal) } }
                            td { (permission(&acl.permission)) }
                            td { (acl.operation) }
                            td { (acl.resource_type) }
                            td class="value" { (acl.resource_name) @if acl.pattern_type == "PREFIXED" { span class="badge" { "prefix" } } }
                            td { (acl.host) }
                            @if !shell.is_read_only() {
                                td class="actions" {
                                    a class="button small" href=(deletion_path(acl)) aria-label=(format!("Delete: {} for {}", words(acl), acl.principal)) { "Delete…" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn fields(acl: &AclLine) -> [(&'static str, &str); 7] {
    [
        ("resource_type", &acl.resource_type),
        ("resource_name", &acl.resource_name),
        ("pattern_type", &acl.pattern_type),
        ("principal", &acl.principal),
        ("host", &acl.host),
        ("operation", &acl.operation),
        ("permission", &acl.permission),
    ]
}

fn permission(permission: &str) -> Markup {
    let class = if permission == "DENY" { "badge bad" } else { "badge good" };
    html! { span class=(class) { (permission) } }
}

fn new() -> Markup {
    html! {
        details class="card" {
            summary { "Add an ACL" }
            form class="stack" method="post" action="/acls" {
                div class="row" {
                    label { "Principal" input name="principal" required placeholder="User:alice" spellcheck="false"; }
                    label { "Permission" select name="permission" { option { "ALLOW" } option { "DENY" } } }
                    label { "Operation" select name="operation" {
                        @for operation in Operation::ALL.iter().filter(|operation| **operation != Operation::Any) { option { (operation.name()) } }
                    } }
                }
                div class="row" {
                    label { "Type" select name="resource_type" { (resource_types("TOPIC", false)) } }
                    label { "Resource" input name="resource_name" placeholder="orders, or * for all" spellcheck="false"; }
                    label { "The name is" select name="pattern_type" { option value="LITERAL" { "the whole name" } option value="PREFIXED" { "a prefix" } } }
                    label { "Host" input name="host" value="*"; }
                }
                button class="primary" { "Add" }
            }
        }
    }
}

fn question(query: &RightsQuery) -> Markup {
    html! {
        form class="filter" method="get" action="/acls/rights" {
            label { "Principal" input name="principal" value=(query.principal) required placeholder="User:alice" spellcheck="false"; }
            label { "Type" select name="resource_type" { (resource_types(if query.resource_type.is_empty() { "TOPIC" } else { &query.resource_type }, false)) } }
            label { "Resource" input name="resource_name" value=(query.resource_name) placeholder="orders" spellcheck="false"; }
            label { "From the address" input name="host" value=(query.host) placeholder="127.0.0.1"; }
            button { "Show" }
        }
    }
}

fn answer(query: &RightsQuery, rights: &[Right]) -> Markup {
    html! {
        p class="quiet" { "By the ACLs that you may see. A super user may do everything, whatever the ACLs say." }
        div class="table" tabindex="0" role="region" aria-label="Rights" {
            table {
                caption { "What " bdi { (query.principal) } " may do" }
                thead { tr { th scope="col" { "Operation" } th scope="col" { "Decision" } th scope="col" { "The rule that decides" } } }
                tbody {
                    @for right in rights {
                        tr {
                            th scope="row" { (right.operation) }
                            td { @match right.is_allowed {
                                Some(true) => span class="badge good" { "allowed" },
                                Some(false) => span class="badge bad" { "denied" },
                                None => (or_dash(None)),
                            } }
                            td { @match &right.rule {
                                Some(rule) => { (words(rule)) " for " bdi { (rule.principal) } },
                                None => span class="quiet" { (without_rule(right.is_allowed)) },
                            } }
                        }
                    }
                }
            }
        }
    }
}

/// The reason for a decision without an ACL.
fn without_rule(is_allowed: Option<bool>) -> &'static str {
    match is_allowed {
        Some(true) => "The resource has no ACL, and allow.everyone.if.no.acl.found is true.",
        Some(false) => "No ACL matches, which denies it.",
        None => {
            "The resource has no ACL: allow.everyone.if.no.acl.found decides, which your login may not see, or which the broker does not report."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ConsoleSettings;
    use axum::body::Body;
    use axum::handler::Handler;
    use axum::http::header::CONTENT_TYPE;
    use axum::http::{Request, StatusCode};

    fn acl() -> AclLine {
        AclLine {
            resource_type: "TOPIC".to_owned(),
            resource_name: "orders".to_owned(),
            pattern_type: "LITERAL".to_owned(),
            principal: "User:ann".to_owned(),
            host: "*".to_owned(),
            operation: "READ".to_owned(),
            permission: "ALLOW".to_owned(),
        }
    }

    #[tokio::test]
    async fn an_acl_is_not_deleted_without_its_principal() {
        for confirm in ["", "confirm=", "confirm=ann"] {
            let request = Request::post(deletion_path(&acl()))
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(Body::from(confirm))
                .expect("a request");
            // Without a cluster, a deletion would fail otherwise.
            let answer = Handler::call(delete, request, Console::new(ConsoleSettings::without_login())).await;
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{confirm}");
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
            let page = String::from_utf8(body.to_vec()).expect("text");
            for part in ["is not User:ann.</p>", "data-expect=\"User:ann\"", "name=\"confirm\""] {
                assert!(page.contains(part), "{part}: {page}");
            }
        }
    }

    #[test]
    fn a_deletion_shows_its_consequences_and_its_undo() {
        let shell = Shell::new(&Console::new(ConsoleSettings::without_login()), None, None);
        let page = deletion(&shell, &acl(), None).0;
        let command = "<code>thalweg security acl add --topic orders --allow read User:ann</code>";
        for part in
            [command, "may lose access", "action=\"/acls/delete?resource_type=TOPIC&amp;", "User%3Aann"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        let read_only = ConsoleSettings { read_only: true, ..ConsoleSettings::without_login() };
        let shell = Shell::new(&Console::new(read_only), None, None);
        assert!(!deletion(&shell, &acl(), None).0.contains("<form"));
        let list = AclList { acls: vec![acl()], matched: 1, page: 1, pages: 1 };
        assert!(!table(&shell, &list).0.contains("/acls/delete"));
    }

    #[test]
    fn a_cluster_without_an_authorizer_is_explained() {
        let page = without_authorizer("acls").0;
        for part in [
            "No authorizer is configured",
            "everyone who can connect may do everything",
            "authorizer.class.name=org",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("note bad"), "{page}");
    }
}
