//! The deletion of all messages of a topic, after a page that shows what it deletes.

use axum::Form;
use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use thalweg_security::visible::visible;

use super::group::{path as group_path, state, sum_of_lags};
use super::topic::{path, tabs};
use crate::cluster::purge::{self, PurgeEnd, PurgePlan};
use crate::cluster::topic_groups::TopicReaders;
use crate::confirm::{is_name, visible_form};
use crate::format;
use crate::page::{Section, Shell, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// Shows what would be deleted, and asks for the name.
pub async fn show(shell: Shell, Path(name): Path<String>) -> Response {
    let body = page(&shell, &name, None).await;
    shell.answer(Section::Topics, &name, body)
}

async fn page(shell: &Shell, name: &str, problem: Option<&str>) -> Result<Markup, Problem> {
    let plan = purge::plan(shell.view(), name).await?;
    let readers = purge::readers(shell.view(), name).await;
    Ok(html! {
        (tabs(name, "purge"))
        h2 { "Delete all messages" }
        @match &plan.refused {
            Some(reason) => p class="note warn" { (reason) },
            None => {
                (consequences(&plan))
                @match &readers {
                    Ok(readers) => (groups(readers)),
                    Err(problem) => p class="note warn" { "The groups that read this topic are unknown: " (problem.message) },
                }
                @if !shell.is_read_only() && !plan.partitions.is_empty() { (form(name, &plan, problem)) }
            }
        }
    })
}

fn consequences(plan: &PurgePlan) -> Markup {
    let bytes = plan.bytes.map_or_else(|| "an unknown number of bytes".to_owned(), format::bytes);
    if plan.partitions.is_empty() {
        return html! {
            p class="note warn" { "No partition has a leader that answers: nothing can be deleted now, and the number of messages is not known." }
        };
    }
    html! {
        p class="note warn" {
            "Up to " (format::counted(plan.messages, "message")) " (" (bytes) ", and as much on each further replica) would be deleted. There is no way back. "
            "Messages that arrive from now on stay, also those that arrive before the deletion."
        }
        @if !plan.unreachable.is_empty() {
            p class="note warn" { "These partitions have no leader that answers, and keep their messages: " (format::ids(&plan.unreachable)) "." }
        }
        div class="table" tabindex="0" role="region" aria-label="What would be deleted" {
            table {
                thead { tr {
                    th scope="col" class="number" { "Partition" } th scope="col" class="number" { "From" }
                    th scope="col" class="number" { "Before" } th scope="col" class="number" { "Messages at most" }
                    th scope="col" class="number" { "Data of the leader" }
                } }
                tbody {
                    @for one in &plan.partitions {
                        tr {
                            th scope="row" class="number" { (one.partition) }
                            td class="number" { (format::count(one.start)) }
                            td class="number" { (format::count(one.end)) }
                            td class="number" { (format::count(one.messages())) }
                            td class="number" { (or_dash(one.bytes.map(format::bytes))) }
                        }
                    }
                }
            }
        }
    }
}

fn groups(readers: &TopicReaders) -> Markup {
    html! {
        h3 { "Groups that read this topic" }
        @for missing in &readers.missing { p class="note warn" { (missing) "." } }
        @if readers.omitted > 0 { p class="note warn" { (format::counted(readers.omitted, "more group")) " could not be read completely." } }
        @if readers.groups.is_empty() {
            p class="quiet" { @if readers.is_whole() { "None." } @else { "None of those that could be read. Others may read it." } }
        } @else {
            div class="table" tabindex="0" role="region" aria-label="Groups" {
                table {
                    thead { tr {
                        th scope="col" { "Group" } th scope="col" { "State" } th scope="col" class="number" { "Members" }
                        th scope="col" class="number" { "Messages it has not read" }
                    } }
                    tbody {
                        @for group in &readers.groups {
                            tr {
                                th scope="row" { a href=(group_path(&group.group)) { bdi { (format::id(&group.group)) } } }
                                td { (state(&group.state)) }
                                td class="number" { (format::count(group.members)) }
                                td class="number" { (sum_of_lags(group.lag, group.beyond_end())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn form(name: &str, plan: &PurgePlan, problem: Option<&str>) -> Markup {
    let ends = plan.ends();
    let ends: Vec<String> = ends.iter().map(|end| format!("{}:{}", end.partition, end.offset)).collect();
    html! {
        @if let Some(problem) = problem { p class="note bad" role="alert" { (problem) } }
        form class="card narrow stack" method="post" action=(format!("{}/purge", path(name))) {
            input type="hidden" name="topic_id" value=(plan.topic_id);
            input type="hidden" name="until" value=(ends.join(","));
            label { "Type the topic's name" input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(name) data-visible=[visible_form(name)];
                span class="hint" { "The topic stays, with its settings." } }
            div class="actions" { button class="danger" { "Delete all messages" } a class="button" href=(path(name)) { "Cancel" } }
        }
    }
}

/// The form for a purge, with the typed confirmation.
#[derive(Deserialize)]
pub struct Purge {
    #[serde(default)]
    confirm: String,
    /// The id of the topic that the page has shown.
    topic_id: String,
    /// Partitions with the offsets of the page, as `0:120,1:7`.
    until: String,
}

/// Deletes the messages that the page has shown, if the typed name matches.
pub async fn purge(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(form): Form<Purge>,
) -> Response {
    if !is_name(&form.confirm, &name) {
        let message = format!("Nothing was deleted: {:?} is not {}.", form.confirm, visible(&name));
        let problem = Problem::wrong(message);
        return match page(&shell, &name, Some(&problem.message)).await {
            Ok(page) => shell.answer_again(Section::Topics, &name, &problem, &page),
            Err(problem) => shell.answer::<Problem>(Section::Topics, &name, Err(problem)),
        };
    }
    let purged = async { purge::purge(shell.view(), &name, &form.topic_id, &ends(&form.until)?).await };
    let note = match purged.await {
        Ok(outcome) => Note { is_error: !outcome.failed.is_empty(), ..Note::done(outcome.words(&name)) },
        Err(problem) => Note::error(format!("Nothing was deleted: {}", problem.message)),
    };
    see_other(&console, &path(&name), note)
}

fn ends(text: &str) -> Result<Vec<PurgeEnd>, Problem> {
    let end = |part: &str| {
        let (partition, offset) = part.split_once(':')?;
        Some(PurgeEnd { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
    };
    let parts = text.split(',').filter(|part| !part.is_empty());
    let wrong = |part: &str| Problem::wrong(format!("until: {part:?} is not PARTITION:OFFSET"));
    parts.map(|part| end(part).ok_or_else(|| wrong(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::purge::PurgedPartition;

    #[test]
    fn no_group_reads_the_topic_only_if_all_were_seen() {
        let mut readers = TopicReaders { groups: Vec::new(), omitted: 0, missing: Vec::new(), read_at_ms: 0 };
        assert!(groups(&readers).0.contains("None.</p>"));
        readers.missing.push("Groups that the login may not describe are not listed".to_owned());
        let page = groups(&readers).0;
        assert!(
            page.contains("are not listed.</p>") && page.contains("None of those that could be read."),
            "{page}"
        );
    }

    #[test]
    fn the_form_deletes_what_the_page_shows() {
        let partitions = || {
            vec![
                PurgedPartition { partition: 0, start: 5, end: 1205, bytes: Some(2048) },
                PurgedPartition { partition: 1, start: 0, end: 0, bytes: Some(0) },
            ]
        };
        let plan = PurgePlan {
            topic_id: "b3JkZXJz".to_owned(),
            refused: None,
            partitions: partitions(),
            messages: 1200,
            bytes: Some(2048),
            unreachable: vec![2],
        };
        let page = consequences(&plan).0;
        for part in ["Up to 1,200 messages (2.00 KiB", "keep their messages: 2.", "There is no way back"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let none = PurgePlan { partitions: Vec::new(), ..plan };
        let page = consequences(&none).0;
        assert!(page.contains("nothing can be deleted now") && !page.contains("Up to 0"), "{page}");
        let plan = PurgePlan { partitions: partitions(), ..none };
        let page = form("orders", &plan, Some("Nothing was deleted.")).0;
        for part in [
            "name=\"topic_id\" value=\"b3JkZXJz\"",
            "value=\"0:1205,1:0\"",
            "data-expect=\"orders\"",
            "role=\"alert\">Nothing was deleted.",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(ends("0:1205,1:0").map_err(|wrong| wrong.message), Ok(plan.ends()));
        let wrong = ends("0:1205,x").expect_err("a part is wrong").message;
        assert_eq!(wrong, "until: \"x\" is not PARTITION:OFFSET");
    }
}
