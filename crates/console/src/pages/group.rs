//! One group: members, offsets and lag; reset of offsets with a dry run; deletion of offsets and of the
//! group.
//!
//! The group id is in the query, because it may be any text, even `..`, which browsers would resolve in a
//! path.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use thalweg_client::TopicPartition;

use super::groups::{shown, state};
use crate::chart::{Sample, chart};
use crate::cluster::group::{self, AssignmentPart, Group, GroupOffset, ResetTarget, Scope, Step};
use crate::cluster::lags::LagPoint;
use crate::format;
use crate::page::{Section, Shell, encode, figure, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// The group in the query.
#[derive(Deserialize)]
pub struct GroupIdQuery {
    id: String,
}

/// The page of a group.
pub fn path(group: &str) -> String {
    format!("/group?id={}", encode(group))
}

/// Shows the group.
pub async fn show(shell: Shell, Query(named): Query<GroupIdQuery>) -> Response {
    let group = group::read(shell.view(), &named.id).await;
    shell.answer(Section::Groups, shown(&named.id), group.map(|group| body(&shell, &group)))
}

fn body(shell: &Shell, group: &Group) -> Markup {
    let lag: Option<i64> =
        group.offsets_problem.is_none().then(|| group.offsets.iter().filter_map(|offset| offset.lag).sum());
    html! {
        div id="group" data-live {
            dl class="figures" {
                div class="figure" { dt { "State" } dd { (state(&group.state)) } }
                (figure("Type", &group.kind, None))
                (figure("Members", &format::count(group.members.len()), None))
                @if let Some(lag) = lag { (figure("Lag", &format::count(lag), None)) }
                @if !group.assignor.is_empty() { (figure("Assignor", &group.assignor, None)) }
                @if let Some(epoch) = group.epoch { (figure("Epoch", &epoch.to_string(), None)) }
            }
        }
        @if group.offsets_problem.is_none() {
            div id="lag" data-live { (chart("Lag", &lag_samples(group), |lag| format::counted(lag as u64, "record"))) }
        }
        div id="members" data-live {
            h2 { "Members" }
            (members(group))
            h2 { "Offsets" }
            @if let Some(problem) = &group.offsets_problem { p class="note warn" { (problem) } }
            (offsets(shell, group))
        }
        @if !shell.is_read_only() { (changes(group)) }
    }
}

fn lag_samples(group: &Group) -> Vec<Sample> {
    let sample = |point: &LagPoint| Sample { at_ms: point.at_ms, value: point.lag as f64 };
    group.lag_history.iter().map(sample).collect()
}

fn members(group: &Group) -> Markup {
    html! {
        @if group.members.is_empty() {
            p class="quiet" { "The group has no members at the moment." }
        } @else {
            div class="table" tabindex="0" role="region" aria-label="Members" {
                table {
                    thead { tr {
                        th scope="col" { "Client" } th scope="col" { "Host" } th scope="col" { "Member" }
                        @if group.epoch.is_some() { th scope="col" class="number" { "Epoch" } }
                        th scope="col" { "Reads" }
                    } }
                    tbody {
                        @for member in &group.members {
                            tr {
                                th scope="row" { bdi { (shown(&member.client)) } }
                                td { (member.host) }
                                td class="value" {
                                    (member.member)
                                    @if let Some(instance) = &member.instance { " (static: " (instance) ")" }
                                    @if member.protocol.as_deref() == Some("classic") { " (classic protocol)" }
                                }
                                @if group.epoch.is_some() {
                                    td class="number" { (or_dash(member.epoch.map(|epoch| epoch.to_string()))) }
                                }
                                td {
                                    (partitions(&member.assignment))
                                    @if let Some(target) = &member.target {
                                        p class="quiet" { "is to read:" }
                                        (partitions(target))
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

fn partitions(parts: &[AssignmentPart]) -> Markup {
    html! {
        @for part in parts {
            @let (first, more) = group::first_partitions(&part.partitions);
            p { bdi { (part.name) } ": " (format::ids(first)) @if more > 0 { " and " (more) " more" } }
        }
        @if parts.is_empty() { span class="quiet" { "nothing" } }
    }
}

fn offsets(shell: &Shell, group: &Group) -> Markup {
    let may_delete = !shell.is_read_only() && group.kind != "share";
    html! {
        @if group.offsets.is_empty() {
            @if group.offsets_problem.is_none() { p class="quiet" { "The group has no offsets." } }
        } @else {
            div class="table" tabindex="0" role="region" aria-label="Offsets" {
                table {
                    thead { tr {
                        th scope="col" { "Topic" } th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Offset" }
                        th scope="col" class="number" { "End" } th scope="col" class="number" { "Lag" } th scope="col" { "Metadata" }
                        @if may_delete { th scope="col" class="actions" { "Change" } }
                    } }
                    tbody { @for offset in &group.offsets { (offset_row(group, offset, may_delete)) } }
                }
            }
        }
    }
}

fn offset_row(group: &Group, offset: &GroupOffset, may_delete: bool) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(super::topic::path(&offset.topic)) { (offset.topic) } }
            td class="number" { (offset.partition) }
            td class="number" { (format::count(offset.offset)) }
            td class="number" { (or_dash(offset.end.map(format::count))) }
            td class="number" { (or_dash(offset.lag.map(format::count))) }
            td class="value" { (offset.metadata) }
            @if may_delete {
                td class="actions" {
                    form method="post" action="/group/delete-offset" {
                        input type="hidden" name="id" value=(group.group);
                        input type="hidden" name="topic" value=(offset.topic);
                        input type="hidden" name="partition" value=(offset.partition);
                        button class="small" aria-label=(format!("Forget the offset of {}, partition {}", offset.topic, offset.partition)) { "Forget" }
                    }
                }
            }
        }
    }
}

fn changes(group: &Group) -> Markup {
    let topics: std::collections::BTreeSet<&str> =
        group.offsets.iter().map(|offset| offset.topic.as_str()).collect();
    html! {
        h2 { "Change" }
        div class="row" {
            @if group.kind != "share" {
                details class="card" open[!group.offsets.is_empty() && group.members.is_empty()] {
                    summary { "Reset offsets" }
                    form class="stack" method="get" action="/group/reset" {
                        input type="hidden" name="id" value=(group.group);
                        div class="row" {
                            label { "Topic" input name="topic" list="topics-of-group" placeholder="all of the group"; }
                            label { "Partition" input name="partition" inputmode="numeric" placeholder="all"; }
                        }
                        datalist id="topics-of-group" { @for topic in topics { option value=(topic) {} } }
                        div class="row" {
                            label { "To" select name="to" {
                                option value="earliest" { "the earliest record" } option value="latest" { "the end" }
                                option value="offset" { "an offset" } option value="time" { "a time (UTC)" } option value="by" { "records forward or back" }
                            } }
                            label { "Offset, time or number" input name="value" placeholder="2026-01-31 12:00"; }
                        }
                        button { "Show what would change" }
                    }
                }
            }
            details class="card" {
                summary { "Delete this group" }
                form class="stack" method="post" action="/group/delete" {
                    input type="hidden" name="id" value=(group.group);
                    label { "Type the group's name" input name="confirm" autocomplete="off" spellcheck="false" data-expect=(group.group);
                        span class="hint" { "Its offsets are lost. It must have no members." } }
                    button class="danger" { "Delete" }
                }
            }
        }
    }
}

/// The form for a reset.
#[derive(Deserialize)]
pub struct ResetQuery {
    id: String,
    #[serde(default)]
    topic: String,
    #[serde(default)]
    partition: String,
    to: String,
    #[serde(default)]
    value: String,
}

impl ResetQuery {
    fn scope(&self) -> Result<Scope, Problem> {
        let topic = Some(self.topic.trim().to_owned()).filter(|topic| !topic.is_empty());
        let partition = match self.partition.trim() {
            "" => None,
            text => Some(
                text.parse().map_err(|_| Problem::wrong(format!("Partition: {text:?} is not a number")))?,
            ),
        };
        if partition.is_some() && topic.is_none() {
            return Err(Problem::wrong("A partition needs its topic"));
        }
        Ok(Scope { topic, partition })
    }
}

/// Shows the plan of a reset.
pub async fn ask_reset(shell: Shell, Query(query): Query<ResetQuery>) -> Response {
    let plan = async {
        group::plan(shell.view(), &query.id, &query.scope()?, ResetTarget::read(&query.to, &query.value)?)
            .await
    };
    let plan = plan.await.map(|steps| plan_page(&query.id, &steps));
    shell.answer(Section::Groups, &format!("Reset offsets of {}", shown(&query.id)), plan)
}

fn plan_page(group: &str, steps: &[Step]) -> Markup {
    let changed = steps.iter().filter(|step| step.from != Some(step.to)).count();
    let lines: Vec<String> =
        steps.iter().map(|step| format!("{} {} {}", step.topic, step.partition, step.to)).collect();
    html! {
        p { "Nothing has changed yet. " (format::counted(changed, "offset")) " would change." }
        div class="table" tabindex="0" role="region" aria-label="Plan" {
            table {
                thead { tr {
                    th scope="col" { "Topic" } th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Now" }
                    th scope="col" class="number" { "Then" } th scope="col" class="number" { "Change" } th scope="col" class="number" { "Lag then" }
                } }
                tbody {
                    @for step in steps {
                        tr {
                            th scope="row" { (step.topic) } td class="number" { (step.partition) }
                            td class="number" { (or_dash(step.from.map(format::count))) }
                            td class="number" { (format::count(step.to)) }
                            td class="number" { (or_dash(step.from.map(|from| format::count(step.to - from)))) }
                            td class="number" { (format::count(step.lag)) }
                        }
                    }
                }
            }
        }
        form method="post" action="/group/reset" class="actions" {
            input type="hidden" name="id" value=(group);
            input type="hidden" name="offsets" value=(lines.join("\n"));
            button class="primary" { "Reset these offsets" }
            a class="button" href=(path(group)) { "Cancel" }
        }
    }
}

/// The confirmed offsets, one `TOPIC PARTITION OFFSET` per line.
#[derive(Deserialize)]
pub struct Reset {
    id: String,
    offsets: String,
}

/// Sets the confirmed offsets.
pub async fn reset(State(console): State<Console>, shell: Shell, Form(reset): Form<Reset>) -> Response {
    let done = async {
        let mut offsets = BTreeMap::new();
        for line in reset.offsets.lines() {
            let mut parts = line.split(' ');
            let mut parsed =
                || Some((parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?));
            let (topic, partition, offset): (&str, i32, i64) =
                parsed().ok_or_else(|| Problem::wrong(format!("{line:?} is not an offset")))?;
            offsets.insert(TopicPartition::new(topic, partition), offset);
        }
        group::set(shell.view(), &reset.id, &offsets).await?;
        Ok::<(), Problem>(())
    };
    see_other(&console, &path(&reset.id), Note::of(done.await, "The offsets were reset."))
}

/// A committed offset to delete.
#[derive(Deserialize)]
pub struct OffsetDeletion {
    id: String,
    topic: String,
    partition: i32,
}

/// Deletes a committed offset.
pub async fn delete_offset(
    State(console): State<Console>,
    shell: Shell,
    Form(of): Form<OffsetDeletion>,
) -> Response {
    let at = TopicPartition::new(of.topic.as_str(), of.partition);
    let words = format!("The group has no offset in {at} any more.");
    let done = group::delete_offsets(shell.view(), &of.id, &[at]).await;
    see_other(&console, &path(&of.id), Note::of(done, words))
}

/// The form for a deletion, with the typed confirmation.
#[derive(Deserialize)]
pub struct Deletion {
    id: String,
    confirm: String,
}

/// Deletes the group if the typed name matches.
pub async fn delete(
    State(console): State<Console>,
    shell: Shell,
    Form(deletion): Form<Deletion>,
) -> Response {
    if deletion.confirm != deletion.id {
        let note = Note::error(format!("The group was not deleted: {:?} is not its name.", deletion.confirm));
        return see_other(&console, &path(&deletion.id), note);
    }
    match group::delete(shell.view(), &deletion.id).await {
        Ok(()) => {
            see_other(&console, "/groups", Note::done(format!("The group {} was deleted.", deletion.id)))
        }
        Err(error) => see_other(&console, &path(&deletion.id), Note::error(Problem::from(error).message)),
    }
}
