//! Request metric families: counts, errors and times by API.

use super::exposition::Samples;
use super::sample::MetricKind;
use super::{Family, Figures, stages};
use crate::request_metrics::{BUCKETS, Counts, Purgatory, RequestMetrics, VERSIONS};
use std::sync::atomic::Ordering;
use thalweg_wire::{ApiKey, ErrorCode};

/// Quantile labels of Kafka's exporters, with the share of requests.
const QUANTILES: [(&str, f64); 6] =
    [("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999)];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "kafka_network_requestmetrics_requests_total",
        kind: MetricKind::Counter,
        help: "Requests that were answered, by API and version. FetchConsumer and FetchFollower are the parts of Fetch.",
        labels: &["request", "version"],
        read: requests,
    },
    Family {
        name: "kafka_network_requestmetrics_errors_total",
        kind: MetricKind::Counter,
        help: "Errors in answers, but for those that the controller has made; each partition, topic or group counts.",
        labels: &["request", "error"],
        read: refusals,
    },
    Family {
        name: "kafka_network_requestmetrics_totaltimems",
        kind: MetricKind::Summary,
        help: "Milliseconds from reading a request to its complete answer, including waiting time.",
        labels: &["request"],
        read: times,
    },
    Family {
        name: "thalweg_request_time_seconds",
        kind: MetricKind::Histogram,
        help: "Where the time of requests goes. Stages: queue (from the last read of the connection to the start), local (work of this broker), remote (waiting for replicas, data or other nodes, of requests that have to), throttle (pauses that clients are asked to make), send (from the complete answer until the socket has taken it), total (local and remote). Exemplars of requests above 0.1 s name the client by the FNV-1a hash of its id.",
        labels: &["request", "stage"],
        read: stages::times,
    },
    Family {
        name: "thalweg_request_size_bytes",
        kind: MetricKind::Histogram,
        help: "Bytes of requests.",
        labels: &["request"],
        read: stages::request_sizes,
    },
    Family {
        name: "thalweg_response_size_bytes",
        kind: MetricKind::Histogram,
        help: "Bytes of answers, with the records that are sent from files.",
        labels: &["request"],
        read: stages::response_sizes,
    },
    Family {
        name: "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        kind: MetricKind::Gauge,
        help: "Requests that wait: Produce for replicas or the disk, Fetch for more to be appended, ShareFetch for records to acquire.",
        labels: &["delayedOperation"],
        read: |figures, out| {
            let Some(broker) = figures.broker() else { return };
            waiting(&broker.requests, out);
        },
    },
];

fn waiting(requests: &RequestMetrics, out: &mut Samples<'_>) {
    for delayed in Purgatory::ALL {
        out.add(&[delayed.name()], requests.waiting(delayed));
    }
}

/// Upper bound of a bucket, in microseconds.
fn longest(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket % 4);
    ((5 + quarter as u64) << (power - 2)) - 1
}

/// The time below which a share of the requests lies, in milliseconds; NaN without requests.
fn quantile(counts: &Counts, share: f64) -> f64 {
    quantile_us(counts, share).map_or(f64::NAN, milliseconds)
}

/// The time below which a share of the requests lies, in microseconds; `None` without requests.
pub(crate) fn quantile_us(counts: &Counts, share: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are far below 2^53"
    )]
    let rank = ((total as f64 * share).ceil() as u64).max(1);
    let mut below = 0;
    let reaches = |count: &u64| {
        below += count;
        below >= rank
    };
    let found = counts.iter().position(reaches).unwrap_or(BUCKETS - 1);
    Some(longest(found))
}

#[expect(clippy::cast_precision_loss, reason = "times are far below 2^53 microseconds")]
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn sum(of: &Counts, and: &Counts) -> Counts {
    std::array::from_fn(|bucket| of[bucket] + and[bucket])
}

fn difference(of: &Counts, before: &Counts) -> Counts {
    std::array::from_fn(|bucket| of[bucket].saturating_sub(before[bucket]))
}

fn requests(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    let apis = &broker.requests.apis;
    let mut fetches = [0u64; VERSIONS];
    for api in apis {
        let is_fetch = api.key.is_none_or(|key| key == ApiKey::Fetch);
        for (version, count) in api.versions.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if is_fetch {
                fetches[version] += count;
            }
            if count > 0 {
                out.add(&[&api.name(), &version.to_string()], count);
            }
        }
    }
    for (version, count) in fetches.iter().enumerate().filter(|(_, count)| **count > 0) {
        out.add(&["Fetch", &version.to_string()], *count);
    }
}

fn refusals(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    for api in &broker.requests.apis {
        for (code, count) in api.errors.get().into_iter().flatten().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let code = i16::try_from(code).ok().and_then(|code| ErrorCode::from_i16(code - 1));
                out.add(&[&api.name(), code.map_or("UNKNOWN", ErrorCode::name)], count);
            }
        }
    }
}

fn times(figures: &Figures, out: &mut Samples<'_>) {
    let Some(broker) = figures.broker() else { return };
    let metrics = &broker.requests;
    let (begin, now) = metrics.window(figures.now);
    let us = |index: usize| metrics.apis[index].total.snapshot().sum;
    let fetch = metrics.label(ApiKey::Fetch).0;
    let followers = metrics.label_of_followers().0;
    for (index, api) in metrics.apis.iter().enumerate() {
        time(out, &api.name(), &begin[index], &now[index], us(index));
    }
    let (begin, now) = (sum(&begin[fetch], &begin[followers]), sum(&now[fetch], &now[followers]));
    time(out, "Fetch", &begin, &now, us(fetch) + us(followers));
}

fn time(out: &mut Samples<'_>, name: &str, begin: &Counts, now: &Counts, total_us: u64) {
    let count: u64 = now.iter().sum();
    if count == 0 {
        return;
    }
    let counts = difference(now, begin);
    let quantiles = QUANTILES.map(|(name, share)| (name, share, quantile(&counts, share)));
    out.summary(&[name], &quantiles, count, milliseconds(total_us));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::Exposition;
    use crate::request_metrics::{AnsweredRequest, bucket};
    use std::time::Duration;
    use thalweg_log::Clock;
    use tokio::time::Instant;

    #[test]
    fn all_kinds_of_waiting_requests_are_shown() {
        // A new kind does not compile here before it has a place in the list.
        let place = |kind| match kind {
            Purgatory::Produce => 0,
            Purgatory::Fetch => 1,
            Purgatory::ShareFetch => 2,
        };
        for (expected, kind) in Purgatory::ALL.into_iter().enumerate() {
            assert_eq!((place(kind), kind as usize), (expected, expected), "{kind:?}");
        }
    }

    #[test]
    fn waiting_requests_have_the_label_of_their_purgatory_in_kafka() {
        let metrics = RequestMetrics::new(&[ApiKey::ShareFetch], Clock::manual(0));
        let shown = || {
            let mut page = Exposition::default();
            waiting(&metrics, &mut page.family("waiting", MetricKind::Gauge, "", &["delayedOperation"]));
            let text = page.into_text();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let of = |kind, count| format!("waiting{{delayedOperation=\"{kind}\"}} {count}");
        let waits = [(); 2].map(|()| metrics.waits(Purgatory::ShareFetch));
        assert_eq!(shown(), [of("Produce", 0), of("Fetch", 0), of("ShareFetch", 2)]);
        drop(waits);
        assert_eq!(shown(), ["Produce", "Fetch", "ShareFetch"].map(|kind| of(kind, 0)));
    }

    #[test]
    fn every_time_has_a_bucket_that_ends_at_most_a_fifth_above_it() {
        for us in (0..5000).chain([1 << 20, (1 << 31) + 7, u64::from(u32::MAX)]) {
            let longest = longest(bucket(us));
            assert!(longest >= us && longest - us <= us / 4, "{us}: {longest}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut counts = [0; BUCKETS];
        counts[bucket(100)] = 98;
        counts[bucket(9000)] = 2;
        assert!((0.1..0.13).contains(&quantile(&counts, 0.5)));
        assert!((0.1..0.13).contains(&quantile(&counts, 0.98)));
        assert!((9.0..11.3).contains(&quantile(&counts, 0.99)));
        assert!(quantile(&[0; BUCKETS], 0.5).is_nan());
    }

    #[test]
    fn quantiles_forget_what_was_minutes_ago() {
        let metrics = RequestMetrics::new(&[ApiKey::Produce, ApiKey::Fetch], Clock::manual(0));
        let produce = metrics.label(ApiKey::Produce);
        let start = Instant::now();
        let count_at = |seconds| {
            let (begin, now) = metrics.window(start + Duration::from_secs(seconds));
            difference(&now[produce.0], &begin[produce.0]).iter().sum::<u64>()
        };
        let answered = AnsweredRequest {
            version: 9,
            received_at: start,
            local: None,
            throttled: Duration::ZERO,
            client_id: "",
        };
        metrics.answered(produce, &answered);
        // Scrapes every 15 seconds.
        let counts: Vec<_> = (0..=12).map(|scrape| count_at(15 * scrape)).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        metrics.answered(produce, &answered);
        assert_eq!((count_at(185), count_at(240), count_at(300)), (1, 1, 0));
    }
}
