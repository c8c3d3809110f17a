//! ACLs: the list, a form for a new ACL, and the rights of a principal.

use axum::Form;
use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};
use thalweg_security::acl::{Operation, ResourceType};

use crate::cluster::access::{self, AclLine, AclList, AclQuery, Right, RightsQuery};
use crate::format;
use crate::page::{Section, Shell, pager, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// Shows the ACLs.
pub async fn list(shell: Shell, uri: Uri, Query(query): Query<AclQuery>) -> Response {
    let list = access::list(shell.view(), &query).await;
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

/// Deletes an ACL.
pub async fn delete(State(console): State<Console>, shell: Shell, Form(line): Form<AclLine>) -> Response {
    let done = access::delete(shell.view(), &line).await;
    see_other(&console, "/acls", Note::of(done, format!("No more for {}: {}.", line.principal, words(&line))))
}

/// Shows the rights of a principal.
pub async fn rights(shell: Shell, Query(query): Query<RightsQuery>) -> Response {
    let is_asked = !query.principal.trim().is_empty();
    let found = match is_asked {
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

/// An ACL without its principal, as in: ALLOW READ on TOPIC orders.
fn words(line: &AclLine) -> String {
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
                                    form method="post" action="/acls/delete" {
                                        @for (name, value) in fields(acl) { input type="hidden" name=(name) value=(value); }
                                        button class="small" aria-label=(format!("Delete: {} for {}", words(acl), acl.principal)) { "Delete" }
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
                            td { @if right.is_allowed { span class="badge good" { "allowed" } } @else { span class="badge bad" { "denied" } } }
                            td { @match &right.rule {
                                Some(rule) => { (words(rule)) " for " bdi { (rule.principal) } },
                                None => span class="quiet" { "No ACL matches, which denies it." },
                            } }
                        }
                    }
                }
            }
        }
    }
}
