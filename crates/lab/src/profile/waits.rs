//! Waits in a broker of Thalweg, by place, from its metrics: the lock of a partition, syncs of logs, and the
//! stages of requests. The broker counts them at any time, so that a look costs it two scrapes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::result::{Wait, Waits};

/// Time limit of an attempt to connect, to send, or to receive a part.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of a page: a broker limits its samples to 20,000 by default.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// Histograms of waits outside of requests: metric and place.
const HISTOGRAMS: [(&str, &str); 2] = [
    ("thalweg_partition_lock_wait_seconds", Wait::PARTITION_LOCK),
    ("thalweg_log_flush_seconds", "syncs of logs"),
];
/// The histogram of requests, and the names of its stages; the stage `total` repeats others.
const REQUESTS: &str = "thalweg_request_time_seconds";
const STAGES: [(&str, &str); 5] = [
    ("queue", "read, and not started"),
    ("local", "served here"),
    ("remote", "waiting for replicas, data, a sync or other nodes"),
    ("throttle", "the pause of a quota"),
    ("send", "answered, until the socket took it"),
];

/// The counters of a page of metrics, by place: number, and sum in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WaitCounters(BTreeMap<String, (f64, f64)>);

impl WaitCounters {
    /// Reads the metrics of the broker at `host:port`.
    pub(super) fn read(address: &str) -> Result<WaitCounters, String> {
        let page = scrape(address).map_err(|error| format!("its metrics at {address}: {error}"))?;
        let counters = WaitCounters::parse(&page);
        match counters.0.is_empty() {
            true => Err(format!("its metrics at {address} have no waits")),
            false => Ok(counters),
        }
    }

    fn parse(page: &str) -> WaitCounters {
        let mut counters = WaitCounters::default();
        for line in page.lines() {
            let Some((sample, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let is_sum = name.ends_with("_sum");
            let Some(metric) = name.strip_suffix("_sum").or_else(|| name.strip_suffix("_count")) else {
                continue;
            };
            let (Some(place), Ok(value)) = (place(metric, labels), value.parse::<f64>()) else { continue };
            let (count, sum) = counters.0.entry(place).or_default();
            *(if is_sum { sum } else { count }) += value;
        }
        counters
    }

    /// What was waited for since an earlier reading, `seconds` before; the longest sum first.
    pub(super) fn since(&self, earlier: &WaitCounters, seconds: f64) -> Waits {
        let waits = self.0.iter().map(|(place, (count, sum))| {
            let (count_before, sum_before) = earlier.0.get(place).copied().unwrap_or_default();
            let waited_s = (sum - sum_before).max(0.0);
            Wait { place: place.clone(), count: (count - count_before).max(0.0) as u64, waited_s }
        });
        let mut places: Vec<Wait> = waits.filter(|wait| wait.count > 0).collect();
        places.sort_by(|a, b| b.waited_s.total_cmp(&a.waited_s));
        Waits { seconds, places }
    }
}

/// The place of a histogram; `None` for other metrics.
fn place(metric: &str, labels: &str) -> Option<String> {
    if metric != REQUESTS {
        let named = HISTOGRAMS.iter().find(|(name, _)| *name == metric);
        return named.map(|(_, place)| (*place).to_owned());
    }
    let label = |name: &str| {
        let (_, rest) = labels.split_once(&format!("{name}=\""))?;
        rest.split('"').next()
    };
    let stage = label("stage")?;
    let (_, stage) = STAGES.iter().find(|(name, _)| *name == stage)?;
    Some(format!("{}: {stage}", label("request")?))
}

/// A page of metrics, by a request of HTTP 1.0, whose answer ends with the connection.
fn scrape(address: &str) -> std::io::Result<String> {
    let invalid = |why: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, why.to_owned());
    let socket = address.parse().map_err(|_| invalid("not an address with a port"))?;
    let mut stream = TcpStream::connect_timeout(&socket, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, page) = answer.split_once("\r\n\r\n").ok_or_else(|| invalid("the answer is not HTTP"))?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(page.to_owned()),
        status => Err(invalid(&format!("status {}", status.unwrap_or("unknown")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(waits: u32, remote_s: f64) -> String {
        format!(
            "# HELP thalweg_partition_lock_wait_seconds How long.\n\
             thalweg_partition_lock_wait_seconds_bucket{{le=\"0.0001\"}} {waits}\n\
             thalweg_partition_lock_wait_seconds_sum 1.5\nthalweg_partition_lock_wait_seconds_count {waits}\n\
             thalweg_request_time_seconds_sum{{request=\"Produce\",stage=\"remote\"}} {remote_s}\n\
             thalweg_request_time_seconds_count{{request=\"Produce\",stage=\"remote\"}} 7\n\
             thalweg_request_time_seconds_sum{{request=\"Produce\",stage=\"total\"}} 99\n\
             process_open_fds 7\n"
        )
    }

    #[test]
    fn waits_between_two_pages_are_by_place() {
        let (before, after) = (WaitCounters::parse(&page(10, 4.0)), WaitCounters::parse(&page(15, 24.0)));
        let none = after.since(&after, 10.0);
        assert_eq!((none.seconds, none.places.len()), (10.0, 0));
        let mut after = after;
        after.0.insert("Produce: waiting for replicas, data, a sync or other nodes".to_owned(), (17.0, 24.0));
        let waits = after.since(&before, 10.0);
        let places: Vec<(&str, u64, f64)> =
            waits.places.iter().map(|wait| (wait.place.as_str(), wait.count, waits.at_once(wait))).collect();
        assert_eq!(
            places,
            [
                ("Produce: waiting for replicas, data, a sync or other nodes", 10, 2.0),
                (Wait::PARTITION_LOCK, 5, 0.0)
            ]
        );
    }

    #[test]
    fn an_address_without_a_broker_is_named() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = port.local_addr().expect("bound").to_string();
        drop(port);
        let error = WaitCounters::read(&address).expect_err("nothing listens");
        assert!(error.starts_with(&format!("its metrics at {address}: ")), "{error}");
    }
}
