//! The list of brokers.

use axum::extract::Query;
use axum::http::Uri;
use axum::response::Response;
use maud::{Markup, html};

use super::overview::directories;
use crate::cluster::brokers::{self, BrokerQuery, BrokerRow, COLUMNS};
use crate::format;
use crate::page::{Section, Shell, or_dash, read_at};
use crate::sorting::Sorting;

/// Shows the brokers.
pub async fn show(shell: Shell, uri: Uri, Query(query): Query<BrokerQuery>) -> Response {
    let read = brokers::read(shell.view(), &query).await;
    let body = read.map(|(rows, overview)| {
        html! {
            div id="brokers" data-live {
                (table(&uri, &query, &rows))
                @if overview.is_partial { p class="quiet" { "Leaders and replicas are those of topics that this login may see." } }
                h2 { "Log directories" }
                (directories(&overview.directories))
                (read_at(overview.read_at_ms))
            }
            p class="quiet" {
                "The Kafka version is that of the highest metadata.version that a broker supports. Kafka's protocol does not tell when a broker started: it is known only of the broker beside which a console runs."
            }
            p { a href="/brokers/all" { "Configuration of all brokers" } }
        }
    });
    shell.answer(Section::Brokers, "Brokers", body)
}

fn table(uri: &Uri, query: &BrokerQuery, rows: &[BrokerRow]) -> Markup {
    html! {
        div class="table" tabindex="0" role="region" aria-label="Brokers" {
            table {
                thead { tr { @if let Ok(sorting) = Sorting::of(&COLUMNS, &query.sort, &query.order) { (sorting.heads(uri, &COLUMNS)) } } }
                tbody { @for broker in rows { (row(broker)) } }
            }
        }
    }
}

fn row(BrokerRow { line: broker, kafka_version, uptime_ms, .. }: &BrokerRow) -> Markup {
    html! {
        tr {
            th scope="row" class="number" { a href=(format!("/brokers/{}", broker.id)) { (broker.id) } }
            td {
                @if let Some(address) = &broker.address { (address) " " }
                @if broker.state != "up" { span class="badge bad" { (broker.state) } }
            }
            td { (or_dash(broker.rack.clone())) }
            td { (or_dash(kafka_version.map(str::to_owned))) }
            td class="number" { (or_dash(uptime_ms.map(format::millis))) }
            td class="number" { (or_dash(broker.leaders.map(format::count))) }
            td class="number" { (or_dash(broker.replicas.map(format::count))) }
            td class="number" { (or_dash(broker.lagging.map(format::count))) }
            td class="number" { (or_dash(broker.log_bytes.map(format::bytes))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::overview::BrokerLine;

    #[test]
    fn what_is_not_known_of_a_broker_is_a_dash() {
        let line = BrokerLine {
            id: 7,
            state: "not reached",
            address: None,
            rack: None,
            leaders: None,
            replicas: None,
            lagging: None,
            log_bytes: Some(2048),
        };
        let broker = BrokerRow { line, kafka_version: Some("4.3"), uptime_ms: None, read_at_ms: 0 };
        let page = row(&broker).0;
        for part in ["href=\"/brokers/7\"", "not reached", "<td>4.3</td>", "2.00 KiB"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("title=\"not known\"").count(), 5, "{page}");
    }
}
