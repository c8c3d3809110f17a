//! The replicas of a topic: moves with a plan and progress, and leader elections.

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::topic::{path, tabs};
use crate::cluster::moves::{self, MoveLine, MoveOrder, MovePlan, MoveProgress, MoveQuery, PartitionMove};
use crate::cluster::topic::{self, LeaderElection};
use crate::format;
use crate::page::{Section, Shell, or_dash, see_other};
use crate::problem::Problem;
use crate::state::{Console, Note};

/// A request for a plan of moves.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct MovePlanQuery {
    #[serde(flatten)]
    query: MoveQuery,
    /// `on` shows the plan.
    plan: String,
}

/// Shows the current moves, the requested plan, and the forms.
pub async fn show(
    shell: Shell,
    Path(name): Path<String>,
    Query(requested): Query<MovePlanQuery>,
) -> Response {
    let body = async {
        let moving = moves::progress(shell.view(), &name).await?;
        let plan = match requested.plan.as_str() {
            "on" if !shell.is_read_only() => Some(moves::plan(shell.view(), &name, &requested.query).await),
            _ => None,
        };
        Ok::<_, Problem>(html! {
            (tabs(&name, "replicas"))
            (progress(&moving))
            @if !shell.is_read_only() {
                (ends(&name, moving.len(), moves::is_throttled(shell.view(), &name).await))
                h2 { "Move" }
                (plan_form(&name, &requested.query))
                @match &plan {
                    Some(Ok(plan)) => (planned(&name, plan)),
                    Some(Err(problem)) => p class="note bad" role="alert" { (problem.message) },
                    None => {},
                }
                (elections(&name))
            }
        })
    };
    shell.answer(Section::Topics, &name, body.await)
}

fn progress(moving: &[MoveProgress]) -> Markup {
    html! {
        div id="moving" data-live {
            @if moving.is_empty() {
                p class="quiet" { "No partition of this topic moves." }
            } @else {
                p { (format::counted(moving.len(), "partition")) " of this topic " @if moving.len() == 1 { "moves." } @else { "move." } }
                div class="table" tabindex="0" role="region" aria-label="Moves" {
                    table {
                        thead { tr {
                            th scope="col" class="number" { "Partition" } th scope="col" { "Replicas then" }
                            th scope="col" { "Adding" } th scope="col" { "Removing" } th scope="col" class="number" { "Copied" }
                        } }
                        tbody {
                            @for one in moving {
                                tr {
                                    th scope="row" class="number" { (one.partition) }
                                    td { (format::ids(&one.replicas)) } td { (format::ids(&one.adding)) } td { (format::ids(&one.removing)) }
                                    td class="number" { (or_dash(one.copied_percent.map(|percent| format!("{percent} %")))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Ways to end what is going on; empty if nothing is.
fn ends(name: &str, moving: usize, is_throttled: bool) -> Markup {
    if moving == 0 && !is_throttled {
        return html! {};
    }
    html! {
        div class="actions" {
            @if moving > 0 {
                form method="post" action=(format!("{}/replicas/cancel", path(name))) { button class="danger" { "Cancel these moves" } }
            }
            @if is_throttled {
                form method="post" action=(format!("{}/replicas/end-throttle", path(name))) {
                    button title="Removes the rates of all brokers and the throttled replicas of this topic" { "Remove the throttle" }
                }
            }
        }
    }
}

fn plan_form(name: &str, query: &MoveQuery) -> Markup {
    html! {
        form class="card stack" method="get" action=(format!("{}/replicas", path(name))) {
            p class="quiet" { "Only what must move moves: replicas on excluded brokers, a new broker's share, and replicas that would share a rack." }
            div class="row" {
                label { "Partitions" input name="partitions" value=(query.partitions) placeholder="all" spellcheck="false"; }
                label { "Only on brokers" input name="brokers" value=(query.brokers) placeholder="all that run" spellcheck="false"; }
                label { "Not on brokers" input name="without" value=(query.without) placeholder="none" spellcheck="false"; }
                label { "Replicas of each" input name="replicas" value=(query.replicas) placeholder="as many as now" inputmode="numeric"; }
                label { "Or exactly these brokers" input name="exactly" value=(query.exactly) placeholder="2,3,1" spellcheck="false"; }
            }
            div class="actions" { button class="primary" name="plan" value="on" { "Show the plan" } }
        }
    }
}

fn planned(name: &str, plan: &MovePlan) -> Markup {
    if plan.moves.is_empty() {
        return html! { p class="note good" role="status" { "Nothing moves: every replica is where it should be." } };
    }
    let bytes = plan.bytes.map_or_else(|| "an unknown number of bytes".to_owned(), format::bytes);
    html! {
        p class="note" role="status" { "Nothing has changed yet. " (format::counted(plan.moves.len(), "partition")) " would move, with " (bytes) " to copy." }
        div class="table" tabindex="0" role="region" aria-label="Plan" {
            table {
                thead { tr {
                    th scope="col" class="number" { "Partition" } th scope="col" { "Replicas now" } th scope="col" { "Replicas then" }
                    th scope="col" class="number" { "To copy" }
                } }
                tbody {
                    @for one in &plan.moves {
                        tr {
                            th scope="row" class="number" { (one.partition) }
                            td { (format::ids(&one.from)) } td { (format::ids(&one.to)) }
                            td class="number" { (or_dash(one.bytes.map(format::bytes))) }
                        }
                    }
                }
            }
        }
        form class="card narrow stack" method="post" action=(format!("{}/replicas", path(name))) {
            input type="hidden" name="moves" value=(written(&plan.moves));
            label { "Copy at most, bytes per second" input name="throttle" inputmode="numeric" placeholder="no limit";
                span class="hint" { "From and to each broker. Remove the throttle when the moves are done." } }
            div class="actions" { button class="primary" { "Begin these moves" } a class="button" href=(format!("{}/replicas", path(name))) { "Cancel" } }
        }
    }
}

/// A plan as a form value: `0:1,2>2,3` per partition, separated by semicolons.
fn written(moves: &[MoveLine]) -> String {
    let ids = |ids: &[i32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let moves = moves.iter().map(|one| format!("{}:{}>{}", one.partition, ids(&one.from), ids(&one.to)));
    moves.collect::<Vec<_>>().join(";")
}

fn read(text: &str) -> Result<Vec<PartitionMove>, Problem> {
    let wrong = || Problem::wrong("The plan of this form cannot be read: show it again");
    let one = |text: &str| {
        let (partition, replicas) = text.split_once(':').ok_or_else(wrong)?;
        let (from, to) = replicas.split_once('>').ok_or_else(wrong)?;
        Ok(PartitionMove {
            partition: partition.parse().map_err(|_| wrong())?,
            from: moves::ids("Plan", from)?,
            to: moves::ids("Plan", to)?,
        })
    };
    text.split(';').filter(|part| !part.is_empty()).map(one).collect()
}

/// The form for starting moves.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct MoveForm {
    moves: String,
    throttle: String,
}

/// Starts the moves of a plan.
pub async fn begin(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(form): Form<MoveForm>,
) -> Response {
    let begun = async {
        let throttle = match form.throttle.trim().replace(',', "").as_str() {
            "" => None,
            text => Some(text.parse::<u64>().map_err(|_| {
                Problem::wrong(format!("Bytes per second: {text:?} is not a number above zero"))
            })?),
        };
        let order = MoveOrder { moves: read(&form.moves)?, throttle };
        moves::begin(shell.view(), &name, &order).await
    };
    let note = match begun.await {
        Ok(begun) => Note::done(format!("The moves of {} have begun.", format::counted(begun, "partition"))),
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, &format!("{}/replicas", path(&name)), note)
}

/// Cancels the moves of a topic.
pub async fn cancel(State(console): State<Console>, shell: Shell, Path(name): Path<String>) -> Response {
    let note = match moves::cancel(shell.view(), &name).await {
        Ok(0) => Note::done("No partition of this topic moves."),
        Ok(cancelled) => {
            Note::done(format!("The moves of {} were cancelled.", format::counted(cancelled, "partition")))
        }
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, &format!("{}/replicas", path(&name)), note)
}

/// Removes the throttle.
pub async fn end_throttle(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
) -> Response {
    let note = match moves::end_throttle(shell.view(), &name).await {
        Ok(kept) => Note::done(moves::throttle_ended(&kept)),
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, &format!("{}/replicas", path(&name)), note)
}

fn elections(name: &str) -> Markup {
    html! {
        h2 { "Elect leaders" }
        div class="row" {
            form class="card stack" method="post" action=(format!("{}/replicas/elect", path(name))) {
                p class="quiet" { "The preferred leader is the first replica. It is elected if it is in sync." }
                label { "Partitions for preferred leaders" input name="partitions" placeholder="all" spellcheck="false"; }
                div class="actions" { button { "Elect preferred leaders" } }
            }
            details class="card" {
                summary { "Elect leaders that are not in sync" }
                form class="stack" method="post" action=(format!("{}/replicas/elect", path(name))) {
                    input type="hidden" name="unclean" value="on";
                    label { "Partitions without a leader" input name="partitions" placeholder="all" spellcheck="false"; }
                    label { "Type the topic's name" input name="confirm" required autocomplete="off" spellcheck="false" data-expect=(name);
                        span class="hint" { "Only for partitions whose in-sync replicas are gone. Acknowledged records may be lost." } }
                    button class="danger" { "Elect unclean leaders" }
                }
            }
        }
    }
}

/// The form for an election.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ElectionForm {
    partitions: String,
    unclean: String,
    confirm: String,
}

pub async fn elect(
    State(console): State<Console>,
    shell: Shell,
    Path(name): Path<String>,
    Form(form): Form<ElectionForm>,
) -> Response {
    let unclean = form.unclean == "on";
    let elected = async {
        if unclean && form.confirm != name {
            let message = format!("No leader was elected: {:?} is not the topic's name", form.confirm);
            return Err(Problem::wrong(message));
        }
        let partitions = moves::ids("Partitions", &form.partitions)?;
        topic::elect(shell.view(), &name, &LeaderElection { partitions, unclean }).await
    };
    let note = match elected.await {
        Ok(0) => Note::done("No partition needs an election."),
        Ok(elected) => Note::done(format!("{} elected.", format::counted(elected, "leader"))),
        Err(problem) => Note::error(problem.message),
    };
    see_other(&console, &format!("{}/replicas", path(&name)), note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_can_be_ended() {
        let has = |moving, is_throttled| {
            let page = ends("orders", moving, is_throttled).0;
            (page.contains("Cancel these moves"), page.contains("Remove the throttle"))
        };
        assert_eq!(ends("orders", 0, false).0, "");
        assert_eq!((has(0, true), has(2, false), has(2, true)), ((false, true), (true, false), (true, true)));
    }
}
