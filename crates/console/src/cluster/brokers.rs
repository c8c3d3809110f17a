//! The brokers of the cluster as a list, with the Kafka version that each of them speaks.
//!
//! Kafka's protocol has no request for the software of a broker or for its start. The release follows from
//! the highest level of `metadata.version` that the broker supports. The time of the start is known only for
//! the broker beside which the console runs.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::overview::{BrokerLine, Overview};
use super::{View, now_ms, overview};
use crate::problem::Problem;
use crate::sorting::{SortColumn, Sorting};

/// Time limit for a connection to a broker. Most often there is one already.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// The columns of the list.
pub const COLUMNS: [SortColumn; 9] = [
    SortColumn::number("id", "Id").ascending(),
    SortColumn::text("address", "Address"),
    SortColumn::text("rack", "Rack"),
    SortColumn::text("version", "Kafka version"),
    SortColumn::number("uptime", "Up for"),
    SortColumn::number("leaders", "Leads"),
    SortColumn::number("replicas", "Replicas"),
    SortColumn::number("lagging", "Not in sync"),
    SortColumn::number("size", "Data"),
];

/// The broker beside which the console runs.
#[derive(Clone, Copy, Debug)]
pub struct OwnBroker {
    pub id: i32,
    /// The start of the broker, in milliseconds since 1970.
    pub started_ms: i64,
}

/// The order of the brokers.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct BrokerQuery {
    /// The column that sorts the list: `id`, `address`, `rack`, `version`, `uptime`, `leaders`, `replicas`,
    /// `lagging` or `size`.
    #[param(required = false)]
    pub sort: String,
    /// `ascending` or `descending`. Default: ids and texts ascending, other figures descending.
    #[param(required = false)]
    pub order: String,
}

/// A broker in the list.
#[derive(Debug, Serialize, ToSchema)]
pub struct BrokerRow {
    #[serde(flatten)]
    pub line: BrokerLine,
    /// The release of Apache Kafka whose `metadata.version` is the highest that the broker supports, such as
    /// `4.3`; none if the broker does not report it.
    pub kafka_version: Option<&'static str>,
    /// Milliseconds since the start of the broker; known only of the broker beside which the console runs.
    pub uptime_ms: Option<i64>,
    /// The time of the oldest reading of topics, log directories and controllers, in milliseconds since 1970.
    /// Readings are kept for some seconds.
    pub read_at_ms: i64,
}

/// Lists the brokers.
pub async fn list(view: &Arc<View>, query: &BrokerQuery) -> Result<Vec<BrokerRow>, Problem> {
    Ok(read(view, query).await?.0)
}

/// The brokers, and the overview that they are part of.
pub async fn read(view: &Arc<View>, query: &BrokerQuery) -> Result<(Vec<BrokerRow>, Overview), Problem> {
    let sorting = Sorting::of(&COLUMNS, &query.sort, &query.order)?;
    let mut overview = overview::read(view).await?;
    let lines = std::mem::take(&mut overview.brokers);
    let up = lines.iter().filter(|line| line.state == "up").map(|line| line.id);
    let versions = view.admin().broker_releases(up, CONNECT_WAIT).await;
    let now = now_ms();
    let rows = lines.into_iter().map(|line| {
        let own = view.own_broker().filter(|own| own.id == line.id);
        BrokerRow {
            kafka_version: versions.get(&line.id).copied(),
            uptime_ms: own.map(|own| (now - own.started_ms).max(0)),
            read_at_ms: overview.read_at_ms,
            line,
        }
    });
    let mut rows: Vec<BrokerRow> = rows.collect();
    sort(&mut rows, sorting);
    Ok((rows, overview))
}

fn sort(rows: &mut [BrokerRow], sorting: Sorting) {
    let direction = sorting.direction;
    // The rows are in the order of ids, and the sort is stable.
    rows.sort_by(|a, b| {
        let number = |of: fn(&BrokerRow) -> Option<u64>| direction.compare(of(a), of(b), Ord::cmp);
        let text = |of: fn(&BrokerRow) -> Option<&str>| direction.compare(of(a), of(b), Ord::cmp);
        match sorting.column {
            "address" => text(|row| row.line.address.as_deref()),
            "rack" => text(|row| row.line.rack.as_deref()),
            "version" => text(|row| row.kafka_version),
            "uptime" => number(|row| row.uptime_ms.map(i64::unsigned_abs)),
            "leaders" => number(|row| row.line.leaders.map(|count| count as u64)),
            "replicas" => number(|row| row.line.replicas.map(|count| count as u64)),
            "lagging" => number(|row| row.line.lagging.map(|count| count as u64)),
            "size" => number(|row| row.line.log_bytes),
            _ => direction.compare(Some(a.line.id), Some(b.line.id), Ord::cmp),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_are_sorted_with_unknown_figures_last() {
        let broker = |id: i32, leaders: Option<usize>, uptime_ms: Option<i64>| {
            let line = BrokerLine {
                id,
                state: "up",
                address: Some(format!("broker-{id}:9092")),
                rack: None,
                leaders,
                replicas: None,
                lagging: None,
                log_bytes: None,
            };
            BrokerRow { line, kafka_version: (id == 2).then_some("4.3"), uptime_ms, read_at_ms: 0 }
        };
        let mut rows = vec![broker(1, Some(3), None), broker(2, None, Some(5)), broker(3, Some(7), None)];
        let mut ids = |sort_by: &str, order: &str| {
            let sorting = Sorting::of(&COLUMNS, sort_by, order).expect("an order");
            rows.sort_by_key(|row| row.line.id);
            sort(&mut rows, sorting);
            rows.iter().map(|row| row.line.id).collect::<Vec<_>>()
        };
        assert_eq!(ids("", ""), [1, 2, 3]);
        assert_eq!(ids("id", "descending"), [3, 2, 1]);
        assert_eq!(ids("leaders", ""), [3, 1, 2]);
        assert_eq!(ids("leaders", "ascending"), [1, 3, 2]);
        assert_eq!(ids("uptime", ""), [2, 1, 3]);
        assert_eq!(ids("version", ""), [2, 1, 3]);
    }
}
