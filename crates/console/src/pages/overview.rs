//! The first page: alerts, throughput, brokers.

use axum::response::Response;
use maud::{Markup, html};
use thalweg_client::verdict::Severity;

use super::history;
use crate::chart::{Sample, chart};
use crate::cluster::disks::LogDirectory;
use crate::cluster::overview::{self, Alert, BrokerLine, Overview};
use crate::cluster::rates::Point;
use crate::format;
use crate::page::{Section, Shell, figure, or_dash, read_at};

/// Shows the overview.
pub async fn show(shell: Shell) -> Response {
    let overview = overview::read(shell.view()).await;
    let hour = history::of_broker(&shell).await;
    shell.answer(Section::Overview, "Overview", overview.map(|overview| body(&overview, &hour)))
}

fn body(overview: &Overview, hour: &Markup) -> Markup {
    html! {
        div id="overview" data-live {
            (alerts(overview))
            (figures(overview))
            (read_at(overview.read_at_ms))
        }
        div id="throughput" class="charts" data-live { (throughput(overview)) }
        (hour)
        div id="brokers" data-live {
            h2 { "Brokers" }
            (brokers(&overview.brokers))
            @if overview.is_partial { p class="quiet" { "Leaders and replicas are those of topics that this login may see." } }
            h2 { "Disks" }
            @for unknown in &overview.directories_unknown { p class="quiet" { (unknown) } }
            (directories(&overview.directories))
            (read_at(overview.read_at_ms))
            p class="quiet" { "Cluster " code { (overview.cluster_id.as_deref().unwrap_or("without an id")) } }
        }
    }
}

/// The reason for a dash where a login sees no topic.
const NOT_VISIBLE: &str = "not visible to this login";

fn figures(overview: &Overview) -> Markup {
    let now = overview.history.last();
    let number = |count: Option<usize>| count.map_or("–".to_owned(), format::count);
    // What a count covers.
    let part = match (overview.topics, overview.is_partial) {
        (None, _) => Some(NOT_VISIBLE),
        (Some(_), true) => Some("visible to this login"),
        (Some(_), false) => None,
    };
    let internal = overview.internal_topics.map(|internal| format!("and {internal} internal"));
    let topics = match (&internal, part) {
        (Some(internal), Some(part)) => Some(format!("{internal}, {part}")),
        (internal, part) => internal.clone().or(part.map(str::to_owned)),
    };
    let records = now.filter(|_| overview.topics.is_some());
    let records = records.and_then(|now| now.records_per_second).map_or("–".to_owned(), format::rate);
    let of_records =
        part.filter(|_| overview.topics.is_none()).or(overview.records_unknown.as_deref()).or(part);
    let growth = now.and_then(|now| now.bytes_per_second).map_or("–".to_owned(), format::bytes_rate);
    let gap = overview.log_bytes_unknown.as_deref();
    let bytes = overview.log_bytes.map_or("–".to_owned(), format::bytes);
    let up = overview.brokers.iter().filter(|broker| broker.state == "up").count();
    let away = (up < overview.brokers.len()).then(|| format!("of {}", overview.brokers.len()));
    html! {
        dl class="figures" {
            (figure("Records in", &records, of_records))
            (figure("Log growth", &growth, gap))
            (figure("Topics", &number(overview.topics), topics.as_deref()))
            (figure("Partitions", &number(overview.partitions), part))
            (figure("Under-replicated", &number(overview.under_replicated), part))
            (figure("Data", &bytes, Some(gap.unwrap_or("over all replicas"))))
            (figure("Brokers", &format::count(up), away.as_deref()))
            @match overview.controller {
                Some(controller) => (figure("Controller", &controller.id.to_string(), Some(&format!("epoch {}", controller.epoch)))),
                None => (figure("Controller", "–", overview.controller_unknown.as_deref())),
            }
        }
    }
}

fn throughput(overview: &Overview) -> Markup {
    let samples = |value: fn(&Point) -> Option<f64>| {
        let points = overview.history.iter();
        points
            .filter_map(|point| Some(Sample { at_ms: point.at_ms, value: value(point)? }))
            .collect::<Vec<_>>()
    };
    html! {
        @if overview.topics.is_some() {
            (chart("Records in", &samples(|point| point.records_per_second), format::rate))
        } @else {
            p class="quiet" { "Records in: " (NOT_VISIBLE) }
        }
        @match (&overview.log_bytes, &overview.log_bytes_unknown) {
            (None, Some(reason)) => p class="quiet" { "Log growth: " (reason) },
            _ => (chart("Log growth", &samples(|point| point.bytes_per_second), format::bytes_rate)),
        }
    }
}

fn alerts(overview: &Overview) -> Markup {
    let is_gap = |alert: &Alert| alert.severity == Severity::Unknown;
    html! {
        section aria-label="Alerts" class="alerts" {
            @if overview.alerts.is_empty() {
                p class="note good" { (in_order(overview)) }
            } @else if overview.alerts.iter().all(is_gap) {
                p class="note" { "No fault is visible, but this login does not see everything that is checked." }
            }
            @for alert in &overview.alerts {
                @let (class, word) = match alert.severity {
                    Severity::Critical => ("note bad", "Critical: "),
                    Severity::Warning => ("note warn", "Warning: "),
                    Severity::Unknown => ("note", "Unknown: "),
                };
                p class=(class) {
                    strong { (word) } (alert.text)
                    @if let Some(page) = alert.page { " " a href=(page) { "Show" } }
                }
            }
        }
    }
}

/// The sentence about a cluster without a verdict, with its extent.
fn in_order(overview: &Overview) -> String {
    let brokers = match overview.brokers.len() {
        1 => "the broker answers".to_owned(),
        all => format!("all {} brokers answer", format::count(all)),
    };
    match overview.partitions.unwrap_or_default() {
        0 => format!("Everything is in order: {brokers}. There are no partitions yet."),
        1 => format!(
            "Everything is in order: {brokers}, and the only partition has a leader and all its replicas in sync."
        ),
        all => format!(
            "Everything is in order: {brokers}, and all {} partitions have a leader and all their replicas in sync.",
            format::count(all)
        ),
    }
}

/// Brokers as a table.
pub fn brokers(brokers: &[BrokerLine]) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label="Brokers" {
            table {
                thead { tr {
                    th scope="col" { "Id" } th scope="col" { "Address" } th scope="col" { "Rack" }
                    th scope="col" class="number" { "Leads" } th scope="col" class="number" { "Replicas" }
                    th scope="col" class="number" { "Not in sync" } th scope="col" class="number" { "Data" }
                } }
                tbody {
                    @for broker in brokers {
                        tr {
                            th scope="row" { (broker.id) }
                            td {
                                @if let Some(address) = &broker.address { (address) " " }
                                @if broker.state != "up" { span class="badge bad" { (broker.state) } }
                            }
                            td { (or_dash(broker.rack.clone())) }
                            td class="number" { (or_dash(broker.leaders.map(format::count))) }
                            td class="number" { (or_dash(broker.replicas.map(format::count))) }
                            td class="number" { (or_dash(broker.lagging.map(format::count))) }
                            td class="number" { (or_dash(broker.log_bytes.map(format::bytes))) }
                        }
                    }
                }
            }
        }
    }
}

/// Log directories as a table.
pub fn directories(directories: &[LogDirectory]) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label="Log directories" {
            table {
                thead { tr {
                    th scope="col" { "Broker" } th scope="col" { "Log directory" } th scope="col" class="number" { "Replicas" }
                    th scope="col" class="number" { "Data" } th scope="col" class="number" { "Free" } th scope="col" { "Disk in use" }
                } }
                tbody {
                    @for directory in directories {
                        tr {
                            th scope="row" { (directory.broker) }
                            td { @match &directory.error {
                                Some(error) => { span class="badge bad" { "error" } " " (error) },
                                None => code { (directory.path) },
                            } }
                            td class="number" { (or_dash(directory.replicas.map(format::count))) }
                            td class="number" { (or_dash(directory.log_bytes.map(format::bytes))) }
                            td class="number" { (or_dash(directory.usable_bytes.map(format::bytes))) }
                            td { (in_use(directory)) }
                        }
                    }
                }
            }
        }
    }
}

fn in_use(directory: &LogDirectory) -> Markup {
    let (Some(total), Some(usable)) =
        (directory.total_bytes.filter(|total| *total > 0), directory.usable_bytes)
    else {
        return or_dash(None);
    };
    let percent = total.saturating_sub(usable).saturating_mul(100) / total;
    let class = if percent >= 90 { "bar bad" } else { "bar" };
    html! {
        span class="meter" {
            svg class=(class) viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
                rect class="track" width="100" height="8" {}
                rect class="fill" width=(percent) height="8" {}
            }
            (percent) " %"
        }
    }
}

#[cfg(test)]
mod tests;
