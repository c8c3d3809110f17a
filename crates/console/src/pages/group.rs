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

use super::history;
use crate::chart::{Sample, chart};
use crate::cluster::group::{self, AssignmentPart, Group, GroupOffset, ResetPlan, ResetTarget, Scope};
use crate::cluster::lags::LagPoint;
use crate::confirm::{Confirmation, Removal, is_name, visible_form};
use crate::format;
use crate::page::{Section, Shell, encode, figure, keeping, or_dash, see_other};
use crate::problem::Problem;
use crate::restoration;
use crate::state::{Console, Note};

/// The title of a page that deletes a committed offset.
const FORGETTING: &str = "Forget an offset";

/// The group in the query.
#[derive(Deserialize)]
pub struct GroupIdQuery {
    id: String,
}

/// The page of a group.
pub fn path(group: &str) -> String {
    format!("/group?id={}", encode(group))
}

/// A badge for the state of a group.
pub fn state(state: &str) -> Markup {
    let class = match state {
        "Stable" => "badge good",
        "Empty" | "Dead" | "" => "badge",
        _ => "badge warn",
    };
    html! { span class=(class) { (if state.is_empty() { "not known" } else { state }) } }
}

/// Shows the group.
pub async fn show(shell: Shell, Query(named): Query<GroupIdQuery>) -> Response {
    let group = group::read(shell.view(), &named.id).await;
    let hour = match &group {
        Ok(group) => history::of_group(&shell, group).await,
        Err(_) => html! {},
    };
    shell.answer(Section::Groups, format::id(&named.id), group.map(|group| body(&shell, &group, &hour)))
}

fn body(shell: &Shell, group: &Group, hour: &Markup) -> Markup {
    let lag = group::lag_of(group);
    html! {
        div id="group" data-live {
            @if let Some(partial) = &group.partial {
                p class="note warn" { "Offsets of the group may be missing, and its lag is not known: " (partial) "." }
            }
            dl class="figures" {
                div class="figure" { dt { "State" } dd { (state(&group.state)) } }
                (figure("Type", &group.kind, None))
                (figure("Members", &format::count(group.members.len()), None))
                @if group.offsets_problem.is_none() {
                    @let beyond = beyond_end(&group.offsets);
                    @let note = group::lag_unknown(&group.offsets, group.partial.as_deref()).or(beyond).or_else(|| lag_time(group));
                    (figure("Lag", &lag.map_or_else(|| "–".to_owned(), format::count), note.as_deref()))
                }
                @if !group.assignor.is_empty() { (figure("Assignor", &group.assignor, None)) }
                @if let Some(epoch) = group.epoch { (figure("Epoch", &epoch.to_string(), None)) }
            }
        }
        @if group.offsets_problem.is_none() {
            div id="lag" data-live { (chart("Lag", &lag_samples(group), |lag| format::counted(lag as u64, "record"))) }
        }
        (hour)
        div id="members" data-live {
            h2 { "Members" }
            (members(shell, group))
            h2 { "Partitions" }
            @if let Some(problem) = &group.offsets_problem { p class="note warn" { (problem) } }
            (offsets(shell, group))
        }
        @if !shell.is_read_only() { (changes(group)) }
    }
}

/// The age of the oldest record that the group has not read, in words; none without a lag, or if unknown.
fn lag_time(group: &Group) -> Option<String> {
    let age_ms = group::lag_ms(&group.offsets).filter(|age_ms| *age_ms > 0)?;
    Some(format!("{} behind", format::millis(age_ms)))
}

/// The number of partitions whose offset is beyond the end, in words; none without one.
fn beyond_end(offsets: &[GroupOffset]) -> Option<String> {
    let beyond = group::beyond_end(offsets);
    (beyond > 0).then(|| format!("the offset is beyond the end in {}", format::counted(beyond, "partition")))
}

/// The lag of a partition in records.
pub fn lag(lag: Option<i64>) -> Markup {
    html! {
        @match lag {
            Some(lag @ ..0) => span title=(format::count(lag)) { "beyond the end" },
            lag => (or_dash(lag.map(format::count))),
        }
    }
}

/// The lag of a group, with the number of partitions whose offset is beyond the end, which count as 0.
pub fn sum_of_lags(lag: Option<i64>, beyond_end: usize) -> Markup {
    html! {
        (or_dash(lag.map(format::count)))
        @if beyond_end > 0 { " (" (format::count(beyond_end)) " beyond the end)" }
    }
}

/// The lag of a partition in time, in words.
pub fn age(age_ms: i64) -> String {
    if age_ms == 0 { "0".to_owned() } else { format::millis(age_ms) }
}

fn lag_samples(group: &Group) -> Vec<Sample> {
    let sample = |point: &LagPoint| Sample { at_ms: point.at_ms, value: point.lag as f64 };
    group.lag_history.iter().map(sample).collect()
}

/// A client id, with a link to its connections if they are known.
fn client(shell: &Shell, client: &str) -> Markup {
    let is_linked = shell.has_clients() && !client.is_empty();
    html! {
        @if is_linked { a href=(super::clients::path(client)) { bdi { (client) } } } @else { bdi { (format::id(client)) } }
    }
}

fn members(shell: &Shell, group: &Group) -> Markup {
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
                                th scope="row" { (client(shell, &member.client)) }
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
            @if group.offsets_problem.is_none() { p class="quiet" { (without_offsets(group)) } }
        } @else {
            div class="table" tabindex="0" role="region" aria-label="Partitions" {
                table {
                    thead { tr {
                        th scope="col" { "Topic" } th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Offset" }
                        th scope="col" class="number" { "End" } th scope="col" class="number lag" { "Lag" } th scope="col" class="number" { "Lag in time" }
                        th scope="col" { "Read by" } th scope="col" { "Host" } th scope="col" { "Metadata" }
                        @if may_delete { th scope="col" class="actions" { "Change" } }
                    } }
                    tbody { @for offset in &group.offsets { (offset_row(shell, group, offset, may_delete)) } }
                }
            }
        }
    }
}

/// The sentence for a group without rows.
fn without_offsets(group: &Group) -> &'static str {
    match group.partial {
        None => "The group has no offsets, and reads nothing.",
        Some(_) => "The group has no offsets in the topics that this login may describe.",
    }
}

fn offset_row(shell: &Shell, group: &Group, offset: &GroupOffset, may_delete: bool) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(super::topic::path(&offset.topic)) { (offset.topic) } }
            td class="number" { (offset.partition) }
            td class="number" { (or_dash(offset.offset.map(format::count))) }
            td class="number" { (or_dash(offset.end.map(format::count))) }
            td class="number lag" { (lag(offset.lag)) }
            td class="number" { (or_dash(offset.lag_ms.map(age))) }
            td class="value" {
                @if let Some(reader) = &offset.reader {
                    span title=(reader.member) { (client(shell, &reader.client)) }
                    @if offset.readers > 1 { " and " (offset.readers - 1) " more" }
                }
            }
            td { @if let Some(reader) = &offset.reader { (reader.host) } }
            td class="value" { (offset.metadata) }
            @if may_delete {
                td class="actions" { @if offset.offset.is_some() {
                    a class="button small" href=(deletion_path(&group.group, &offset.topic, offset.partition))
                        aria-label=(format!("Forget the offset of {}, partition {}", offset.topic, offset.partition)) { "Forget…" }
                } }
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
                                option value="offset" { "an offset" } option value="time" { "a time" } option value="by" { "records forward or back" }
                            } }
                            label { "Offset, time or number" input name="value" placeholder=(format::EXAMPLE_TIME); }
                        }
                        button { "Show what would change" }
                    }
                }
            }
            details class="card" {
                summary { "Delete this group" }
                form class="stack" method="post" action="/group/delete" {
                    input type="hidden" name="id" value=(group.group);
                    label { "Type the group's name" input name="confirm" autocomplete="off" spellcheck="false" data-expect=(group.group) data-visible=[visible_form(&group.group)];
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
        let partition = match self.partition.trim() {
            "" => None,
            text => Some(
                text.parse().map_err(|_| Problem::wrong(format!("Partition: {text:?} is not a number")))?,
            ),
        };
        Scope::new(Some(&self.topic), partition)
    }
}

/// Shows the plan of a reset.
pub async fn reset_page(shell: Shell, Query(query): Query<ResetQuery>) -> Response {
    let plan = async {
        group::plan(shell.view(), &query.id, &query.scope()?, ResetTarget::read(&query.to, &query.value)?)
            .await
    };
    let plan = plan.await.map(|plan| plan_page(&query.id, &plan));
    shell.answer(Section::Groups, &format!("Reset offsets of {}", format::id(&query.id)), plan)
}

fn plan_page(group: &str, ResetPlan { steps, partial }: &ResetPlan) -> Markup {
    let changed = steps.iter().filter(|step| step.from != Some(step.to)).count();
    let has_notes = steps.iter().any(|step| step.note.is_some());
    let lines: Vec<String> =
        steps.iter().map(|step| format!("{} {} {}", step.topic, step.partition, step.to)).collect();
    html! {
        p { "Nothing has changed yet. " (format::counted(changed, "offset")) " would change." }
        @if let Some(partial) = partial {
            p class="note warn" { "Offsets of the group in other topics may exist, and would stay: " (partial) "." }
        }
        div class="table" tabindex="0" role="region" aria-label="Plan" {
            table {
                thead { tr {
                    th scope="col" { "Topic" } th scope="col" class="number" { "Partition" } th scope="col" class="number" { "Now" }
                    th scope="col" class="number" { "Then" } th scope="col" class="number" { "Change" } th scope="col" class="number" { "Lag then" }
                    @if has_notes { th scope="col" { "Note" } }
                } }
                tbody {
                    @for step in steps {
                        tr {
                            th scope="row" { (step.topic) } td class="number" { (step.partition) }
                            td class="number" { (or_dash(step.from.map(format::count))) }
                            td class="number" { (format::count(step.to)) }
                            td class="number" { (or_dash(step.from.map(|from| format::count(step.to - from)))) }
                            td class="number" { (format::count(step.lag)) }
                            @if has_notes { td { (step.note.as_deref().unwrap_or_default()) } }
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

/// The committed offset in the query.
#[derive(Deserialize)]
pub struct OffsetQuery {
    id: String,
    topic: String,
    partition: i32,
}

impl OffsetQuery {
    fn at(&self) -> TopicPartition {
        TopicPartition::new(self.topic.as_str(), self.partition)
    }
}

fn deletion_path(group: &str, topic: &str, partition: i32) -> String {
    format!("/group/delete-offset?id={}&topic={}&partition={partition}", encode(group), encode(topic))
}

/// Shows a committed offset, and asks for confirmation to delete it.
pub async fn deletion_page(shell: Shell, Query(of): Query<OffsetQuery>) -> Response {
    let committed = group::committed_offset(shell.view(), &of.id, &of.at()).await;
    let body = committed.map(|offset| {
        html! {
            p class="note warn" { "The group " bdi { (format::id(&of.id)) } " is at offset " (format::count(offset.0)) " of " (of.at())
                ". Without it, a member begins where its auto.offset.reset says: it may skip records, or read all of them again." }
            (keeping(&restoration::of_offset(&of.id, &of.topic, of.partition, offset.0)))
            @if !shell.is_read_only() { (offset_form(&of, None)) }
        }
    });
    shell.answer(Section::Groups, FORGETTING, body)
}

fn offset_form(of: &OffsetQuery, problem: Option<&str>) -> Markup {
    Removal {
        action: &deletion_path(&of.id, &of.topic, of.partition),
        expected: &of.at().to_string(),
        hint: "The topic and the partition. No member of the group may read the topic.",
        verb: "Forget this offset",
        back: &path(&of.id),
    }
    .form(problem)
}

/// Deletes a committed offset if the typed partition matches.
pub async fn delete_offset(
    State(console): State<Console>,
    shell: Shell,
    Query(of): Query<OffsetQuery>,
    Form(given): Form<Confirmation>,
) -> Response {
    let at = of.at();
    if let Err(problem) = given.check(&at.to_string()) {
        let page = offset_form(&of, Some(&problem.message));
        return shell.answer_again(Section::Groups, FORGETTING, &problem, &page);
    }
    let note = match group::delete_offsets(shell.view(), &of.id, std::slice::from_ref(&at)).await {
        Ok(deleted) => {
            let text = format!("The group has no offset in {at} any more.");
            match deleted.get(&at) {
                Some(offset) => {
                    Note::removed(text, restoration::of_offset(&of.id, &of.topic, of.partition, offset.0))
                }
                None => Note::done(text),
            }
        }
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, &path(&of.id), note)
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
    if !is_name(&deletion.confirm, &deletion.id) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_beyond_the_end_is_no_lag_of_zero() {
        assert_eq!(lag(Some(-40)).0, "<span title=\"-40\">beyond the end</span>");
        assert_eq!((lag(Some(0)).0, lag(Some(1234)).0), ("0".to_owned(), "1,234".to_owned()));
        assert!(lag(None).0.contains("not known"));
        assert_eq!(
            (sum_of_lags(Some(3), 0).0, sum_of_lags(Some(0), 1).0),
            ("3".into(), "0 (1 beyond the end)".into())
        );
        let offset = |lag| GroupOffset {
            topic: "orders".to_owned(),
            partition: 0,
            offset: Some(50),
            end: Some(10),
            lag: Some(lag),
            lag_ms: Some(0),
            reader: None,
            readers: 0,
            metadata: String::new(),
        };
        assert_eq!(beyond_end(&[offset(0)]), None);
        let beyond = beyond_end(&[offset(-40), offset(3)]);
        assert_eq!(beyond.as_deref(), Some("the offset is beyond the end in 1 partition"));
    }

    #[test]
    fn an_offset_is_forgotten_by_the_name_of_its_partition() {
        let of = OffsetQuery { id: "a b".to_owned(), topic: "orders".to_owned(), partition: 3 };
        let page = offset_form(&of, Some("Nothing was removed: \"\" is not orders-3.")).0;
        for part in [
            "action=\"/group/delete-offset?id=a%20b&amp;topic=orders&amp;partition=3\"",
            "data-expect=\"orders-3\"",
            "href=\"/group?id=a%20b\"",
            "role=\"alert\">Nothing was removed",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
