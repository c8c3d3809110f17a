//! The first page: alerts, throughput, brokers.

use axum::response::Response;
use maud::{Markup, html};

use crate::chart::{Sample, chart};
use crate::cluster::disks::LogDirectory;
use crate::cluster::overview::{self, Alert, BrokerLine, Overview, Severity};
use crate::cluster::rates::Point;
use crate::format;
use crate::page::{Section, Shell, figure, or_dash};

/// Shows the overview.
pub async fn show(shell: Shell) -> Response {
    let overview = overview::read(shell.view()).await;
    shell.answer(Section::Overview, "Overview", overview.map(|overview| body(&overview)))
}

fn body(overview: &Overview) -> Markup {
    let now = overview.history.last();
    let topics = format::count(overview.topics);
    let internal = format!("and {} internal", overview.internal_topics);
    let alive = overview.brokers.iter().filter(|broker| broker.address.is_some()).count();
    html! {
        div id="overview" data-live {
            (alerts(&overview.alerts))
            dl class="figures" {
                (figure("Records in", &now.map_or("–".to_owned(), |now| format::rate(now.records_per_second)), None))
                (figure("Log growth", &now.map_or("–".to_owned(), |now| format::bytes_rate(now.bytes_per_second)), None))
                (figure("Topics", &topics, Some(&internal)))
                (figure("Partitions", &format::count(overview.partitions), None))
                (figure("Under-replicated", &format::count(overview.under_replicated), None))
                (figure("Data", &format::bytes(overview.log_bytes), Some("over all replicas")))
                (figure("Brokers", &format::count(alive), None))
                @if let Some(controller) = overview.controller {
                    (figure("Controller", &controller.id.to_string(), Some(&format!("epoch {}", controller.epoch))))
                }
            }
        }
        div id="throughput" class="charts" data-live { (throughput(&overview.history)) }
        div id="brokers" data-live {
            h2 { "Brokers" }
            (brokers(&overview.brokers))
            h2 { "Disks" }
            @for unknown in &overview.directories_unknown { p class="quiet" { (unknown) } }
            (directories(&overview.directories))
            p class="quiet" { "Cluster " code { (overview.cluster_id.as_deref().unwrap_or("without an id")) } }
        }
    }
}

fn throughput(history: &[Point]) -> Markup {
    let samples = |value: fn(&Point) -> f64| {
        history.iter().map(|point| Sample { at_ms: point.at_ms, value: value(point) }).collect::<Vec<_>>()
    };
    html! {
        (chart("Records in", &samples(|point| point.records_per_second), format::rate))
        (chart("Log growth", &samples(|point| point.bytes_per_second), format::bytes_rate))
    }
}

fn alerts(alerts: &[Alert]) -> Markup {
    html! {
        section aria-label="Alerts" class="alerts" {
            @if alerts.is_empty() {
                p class="note good" { "Everything is in order: every partition has a leader and all its replicas in sync." }
            }
            @for alert in alerts {
                @let (class, word) = match alert.severity {
                    Severity::Critical => ("note bad", "Critical: "),
                    Severity::Warning => ("note warn", "Warning: "),
                };
                p class=(class) {
                    strong { (word) } (alert.text)
                    @if let Some(page) = alert.page { " " a href=(page) { "Show" } }
                }
            }
        }
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
                            td { @match &broker.address {
                                Some(address) => (address),
                                None => span class="badge bad" { "away" },
                            } }
                            td { (or_dash(broker.rack.clone())) }
                            td class="number" { (format::count(broker.leaders)) }
                            td class="number" { (format::count(broker.replicas)) }
                            td class="number" { (format::count(broker.lagging)) }
                            td class="number" { (format::bytes(broker.log_bytes)) }
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
                            td class="number" { (format::count(directory.replicas)) }
                            td class="number" { (format::bytes(directory.log_bytes)) }
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
