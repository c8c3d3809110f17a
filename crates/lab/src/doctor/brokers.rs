//! The brokers' configuration, from DescribeConfigs: settings that affect event rate, latency and durability.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_client::{ClientError, Cluster, RefusedRequest};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::{DescribeClusterRequest, DescribeConfigsRequest};

use super::{Advice, size};
use crate::target;

/// DescribeConfigs' resource type of brokers.
const BROKER_RESOURCE: i8 = 4;

/// The location of findings about the cluster.
const ALL: &str = "brokers";

/// The settings of one broker, by name.
type Settings = BTreeMap<String, String>;

/// The context for judging a setting.
struct Context<'a> {
    /// Brokers of the cluster.
    brokers: usize,
    /// All settings of the broker.
    settings: &'a Settings,
    /// Partitions that the broker leads; `None` if unknown.
    led: Option<usize>,
}

impl Context<'_> {
    /// True for a broker of Thalweg, whose settings include Thalweg's own.
    fn is_thalweg(&self) -> bool {
        self.settings.keys().any(|key| key.starts_with("thalweg."))
    }
}

/// Judges one setting of a broker.
type Rule = fn(&Context<'_>, &str, Advice) -> Advice;

/// Examines all brokers of a cluster.
pub(super) async fn examine(servers: &[String], properties: &BTreeMap<String, String>) -> Vec<Advice> {
    let why = "Brokers that do not answer cannot be examined.";
    let failed = |found: String| {
        Advice::fine(ALL, "connection", found, why)
            .warning("start the cluster, or get permission to describe it")
    };
    let cluster = match target::connect(servers, properties).await {
        Ok(cluster) => cluster,
        Err(error) => return vec![failed(error.to_string())],
    };
    let mut advice = Vec::new();
    let mut all: BTreeMap<i32, Settings> = BTreeMap::new();
    let mut registered: BTreeSet<i32> = cluster.metadata().brokers.keys().copied().collect();
    for id in fenced(&cluster).await {
        // Count fenced brokers, because the cluster was designed for them.
        if registered.insert(id) {
            advice.push(failed(format!("broker {id}: fenced by the controller: it is down or cannot serve")));
        }
    }
    let ids: Vec<i32> = cluster.metadata().brokers.keys().copied().collect();
    for id in &ids {
        match describe(&cluster, *id).await {
            Ok(settings) => {
                all.insert(*id, settings);
            }
            Err(error) => advice.push(failed(format!("broker {id}: {error}"))),
        }
    }
    let led = led(&cluster).await;
    advice.extend(judge(&all, registered.len(), &led));
    advice
}

/// Partitions by leader; empty if unknown.
async fn led(cluster: &Cluster) -> BTreeMap<i32, usize> {
    let mut led = BTreeMap::new();
    let Ok(metadata) = cluster.refresh_all().await else { return led };
    // The partitions of internal topics carry little.
    for topic in metadata.topics.values().filter(|topic| !topic.internal) {
        for leader in topic.partitions.iter().filter_map(|partition| partition.leader) {
            *led.entry(leader).or_default() += 1;
        }
    }
    led
}

/// The fenced brokers, if the cluster reports them.
async fn fenced(cluster: &Cluster) -> Vec<i32> {
    let all = DescribeClusterRequest { include_fenced_brokers: true, ..DescribeClusterRequest::default() };
    let Ok(described) = cluster.send_any(&all).await else { return Vec::new() };
    described.brokers.iter().filter(|broker| broker.is_fenced).map(|broker| broker.broker_id).collect()
}

async fn describe(cluster: &Cluster, id: i32) -> Result<Settings, ClientError> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: BROKER_RESOURCE,
            resource_name: id.to_string(),
            configuration_keys: None,
        }],
        ..DescribeConfigsRequest::default()
    };
    let answer = cluster.broker(id).await?.send(&request).await?;
    let mut settings = Settings::new();
    for result in answer.results {
        RefusedRequest::check(result.error_code, result.error_message.as_deref(), || {
            format!("The configuration of broker {id}")
        })?;
        let settings_set = result.configs.into_iter().filter_map(|one| Some((one.name, one.value?)));
        settings.extend(settings_set);
    }
    Ok(settings)
}

/// All findings; brokers with equal findings share one.
fn judge(all: &BTreeMap<i32, Settings>, brokers: usize, led: &BTreeMap<i32, usize>) -> Vec<Advice> {
    let mut advice = Vec::new();
    for (subject, why, rule) in RULES {
        let mut by_finding: Vec<(Advice, Vec<i32>)> = Vec::new();
        for (id, settings) in all {
            let Some(value) = settings.get(subject) else { continue };
            let found = Advice::fine(ALL, subject, value.as_str(), why);
            let led = (!led.is_empty()).then(|| led.get(id).copied().unwrap_or_default());
            let one = rule(&Context { brokers, settings, led }, value, found);
            match by_finding.iter_mut().find(|(known, _)| *known == one) {
                Some((_, ids)) => ids.push(*id),
                None => by_finding.push((one, vec![*id])),
            }
        }
        let differ =
            by_finding.len() > 1 && by_finding.iter().any(|(one, _)| one.found != by_finding[0].0.found);
        for (mut one, ids) in by_finding {
            if ids.len() < all.len() || all.len() == 1 {
                let list: Vec<String> = ids.iter().map(i32::to_string).collect();
                one.place = format!("broker {}", list.join(", "));
            }
            advice.push(one);
        }
        if differ && MAY_DIFFER.iter().all(|may| *may != subject) {
            let found = format!("{subject} differs between brokers");
            let why = "The slowest broker limits a topic that spans all of them.";
            advice.push(
                Advice::fine(ALL, "equality", found, why)
                    .warning("use one value on all brokers of the same kind"),
            );
        }
    }
    advice
}

/// Settings that may differ between brokers.
const MAY_DIFFER: [&str; 1] = ["log.dirs"];

/// The examined settings: name, reason, rule.
const RULES: [(&str, &str, Rule); 17] = [
    (
        "num.partitions",
        "Topics created without a partition count get this many. A partition is limited to one broker and one lock.",
        |context, value, found| match number(value) {
            Some(count) if count < context.brokers as i64 || count <= 1 => {
                found.note("use at least the number of brokers, or set a count per topic")
            }
            _ => found,
        },
    ),
    (
        "num.io.threads",
        "The number of request handler threads. Apache Kafka did best with a few more than processors, and no more than \
         written partitions; Thalweg has no such threads.",
        |context, value, found| match number(value) {
            _ if context.is_thalweg() => found,
            Some(count) if context.led.is_some_and(|led| count > led as i64) => {
                let led = context.led.unwrap_or_default();
                let plural = if led == 1 { "" } else { "s" };
                found.note(format!(
                    "the broker leads {led} partition{plural}: with fewer partitions than threads, threads wait for each other; use \
                     more partitions or fewer threads"
                ))
            }
            Some(count) if count < 4 => found.note("use the number of the broker's processors or a few more"),
            _ => found,
        },
    ),
    (
        "num.network.threads",
        "The number of network threads per listener. At millions of records per second, and with TLS, three are few. \
         Thalweg has no such threads.",
        |context, value, found| match number(value) {
            _ if context.is_thalweg() => found,
            Some(count) if count < 3 => found.warning("use 3 or more; published studies use 4 to 9"),
            Some(3) => found.note(
                "use 4 to 9 if the network threads are busy (NetworkProcessorAvgIdlePercent below 0.3)",
            ),
            _ => found,
        },
    ),
    (
        "log.dirs",
        "Partitions are spread over the directories; one directory per disk lets all disks work in parallel.",
        |_, value, mut found| {
            let count = value.split(',').filter(|dir| !dir.trim().is_empty()).count();
            found.found = format!("{count}: {value}");
            if count == 1 {
                found.note("use a directory per disk, if there are several that are not striped")
            } else {
                found
            }
        },
    ),
    (
        "log.flush.interval.messages",
        "When a log is synced to disk. By default only when its segment is full: an acknowledged record is in the page \
         cache of the replicas, and is lost if all of them lose power at once.",
        |context, value, mut found| {
            let replicas = context.settings.get("default.replication.factor").and_then(|value| number(value));
            match number(value) {
                Some(i64::MAX) => {
                    found.found = "never (left to the kernel)".to_owned();
                    if replicas == Some(1) {
                        found.note("replicate, or use 1 for records that must survive a power failure: it costs a sync per request")
                    } else {
                        found
                    }
                }
                Some(count) if count < 1000 => found.note(
                    "replicate instead, unless all replicas may lose power at once: it costs frequent syncs",
                ),
                _ => found,
            }
        },
    ),
    ("log.flush.interval.ms", "The interval of syncs to disk.", |_, value, found| match number(value) {
        Some(ms) if ms > 0 && ms < 1000 => {
            found.note("use a second or more, or replicate: syncs block the disk for others")
        }
        _ => found,
    }),
    ("socket.send.buffer.bytes", SOCKET, socket_buffer),
    ("socket.receive.buffer.bytes", SOCKET, socket_buffer),
    (
        "num.replica.fetchers",
        "The number of fetcher threads per source broker. One carries some hundred MB/s.",
        |context, value, found| match number(value) {
            Some(1) if context.brokers > 1 => found
                .note(format!("use {} (the number of brokers), as in the published study", context.brokers)),
            _ => found,
        },
    ),
    (
        "default.replication.factor",
        "Topics created without a replication factor get this one.",
        |context, value, found| match number(value) {
            Some(1) if context.brokers > 1 => {
                found.warning("use 3, or 2 with two brokers: with 1, losing a broker loses data")
            }
            Some(1) => found.note("use 3 on three brokers for data that must not be lost"),
            Some(count) if count > context.brokers as i64 => found.warning(format!(
                "use at most {}: with more replicas than brokers, topics cannot be created",
                context.brokers
            )),
            _ => found,
        },
    ),
    (
        "min.insync.replicas",
        "acks=all waits for all in-sync replicas, and fails if there are fewer than this.",
        min_in_sync,
    ),
    ("offsets.topic.replication.factor", INTERNAL, internal_topic),
    ("transaction.state.log.replication.factor", INTERNAL, internal_topic),
    (
        "unclean.leader.election.enable",
        "Whether an out-of-sync replica may become leader if no other is left.",
        |_, value, found| {
            if value == "true" { found.warning("use false: true loses acknowledged records") } else { found }
        },
    ),
    (
        "compression.type",
        "Any value but `producer` makes the broker recompress each batch.",
        |_, value, found| {
            if value == "producer" { found } else { found.warning("use producer: let the clients compress") }
        },
    ),
    (
        "log.segment.bytes",
        "The segment size; small segments cost files, descriptors and pauses.",
        |_, value, mut found| {
            let bytes = number(value).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
            found.found = size(bytes);
            if bytes < 100 << 20 { found.note("use 1 GB, the default") } else { found }
        },
    ),
    (
        "group.initial.rebalance.delay.ms",
        "A new group waits this long for more members before its consumers read.",
        |_, value, found| match number(value) {
            Some(ms) if ms > 0 => {
                found.note("use 0 for measurements that begin with consumers; 3000 in production")
            }
            _ => found,
        },
    ),
];

const SOCKET: &str =
    "It bounds the data in flight per connection: 100 KB at a round trip of 10 ms allow 10 MB/s.";

const INTERNAL: &str = "The replication factor of the internal topics of groups and transactions.";

fn number(value: &str) -> Option<i64> {
    value.trim().parse().ok()
}

fn socket_buffer(_: &Context<'_>, value: &str, mut found: Advice) -> Advice {
    match number(value) {
        Some(bytes) if bytes < 0 => {
            found.found = "left to the kernel".to_owned();
            found
        }
        Some(bytes) => {
            found.found = size(bytes.unsigned_abs());
            match bytes {
                0..1_048_576 => found.note(
                    "use -1 (left to the kernel) or 1 MB for clients and followers that are milliseconds away",
                ),
                _ => found,
            }
        }
        None => found,
    }
}

fn internal_topic(context: &Context<'_>, value: &str, found: Advice) -> Advice {
    match number(value) {
        Some(count) if count > context.brokers as i64 => found.warning(format!(
            "use at most {}: with more replicas than brokers, the first group or transaction fails",
            context.brokers
        )),
        Some(1) if context.brokers > 1 => found.warning(format!(
            "use {}: with 1, losing a broker stops groups or transactions",
            context.brokers.min(3)
        )),
        _ => found,
    }
}

fn min_in_sync(context: &Context<'_>, value: &str, mut found: Advice) -> Advice {
    let replicas = context.settings.get("default.replication.factor").and_then(|value| number(value));
    let (Some(least), Some(replicas)) = (number(value), replicas) else { return found };
    found.found = format!("{least}, with a default.replication.factor of {replicas}");
    if least > replicas {
        found.warning("use at most the replication factor: otherwise acks=all always fails")
    } else if replicas > 1 && least == replicas {
        found.warning(format!(
            "use {}: now one missing broker stops all producers with acks=all",
            replicas - 1
        ))
    } else if replicas > 1 && least == 1 {
        found.warning("use 2: now acks=all may mean a single replica, whose loss loses data")
    } else {
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity::{self, Fine, Note, Warning};

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn severity(pairs: &[(&str, &str)], brokers: usize, subject: &str) -> Severity {
        let all = BTreeMap::from([(1, settings(pairs))]);
        let advice = judge(&all, brokers, &BTreeMap::new());
        advice.iter().find(|one| one.subject == subject).expect("a finding").severity
    }

    #[test]
    fn durability_is_judged_by_replicas_and_those_in_sync() {
        let of = |replicas: &str, least: &str| {
            let pairs = [("default.replication.factor", replicas), ("min.insync.replicas", least)];
            severity(&pairs, 3, "min.insync.replicas")
        };
        assert_eq!(of("3", "2"), Fine);
        assert_eq!(of("3", "1"), Warning);
        assert_eq!(of("3", "3"), Warning);
        assert_eq!(of("1", "1"), Fine);
        assert_eq!(of("1", "2"), Warning);
    }

    #[test]
    fn threads_are_judged_by_the_partitions_that_a_broker_leads_and_not_in_thalweg() {
        let advice = |pairs: &[(&str, &str)], led: usize| {
            let found = judge(&BTreeMap::from([(1, settings(pairs))]), 1, &BTreeMap::from([(1, led)]));
            found.into_iter().map(|one| (one.severity, one.right)).next().expect("a finding")
        };
        let io_threads = ("num.io.threads", "8");
        let (severity, right) = advice(&[io_threads], 3);
        assert!(severity == Note && right.contains("leads 3 partitions"), "{right}");
        assert_eq!(advice(&[io_threads], 8).0, Fine);
        let thalweg = ("thalweg.any", "1");
        assert_eq!(advice(&[io_threads, thalweg], 3).0, Fine);
        assert_eq!(advice(&[("num.network.threads", "2"), thalweg], 3).0, Fine);
        assert_eq!(advice(&[("num.network.threads", "2")], 3).0, Warning);
    }

    #[test]
    fn more_replicas_than_brokers_are_refused() {
        assert_eq!(
            severity(&[("offsets.topic.replication.factor", "3")], 1, "offsets.topic.replication.factor"),
            Warning
        );
        assert_eq!(
            severity(&[("offsets.topic.replication.factor", "3")], 3, "offsets.topic.replication.factor"),
            Fine
        );
        assert_eq!(
            severity(&[("offsets.topic.replication.factor", "1")], 3, "offsets.topic.replication.factor"),
            Warning
        );
    }

    #[test]
    fn extreme_flush_settings_are_reported() {
        let never = ("log.flush.interval.messages", "9223372036854775807");
        assert_eq!(severity(&[never, ("default.replication.factor", "3")], 3, never.0), Fine);
        assert_eq!(severity(&[never, ("default.replication.factor", "1")], 1, never.0), Note);
        assert_eq!(severity(&[("log.flush.interval.messages", "1")], 1, never.0), Note);
    }

    #[test]
    fn brokers_that_agree_share_a_finding() {
        let same = settings(&[("num.network.threads", "8"), ("log.dirs", "/a")]);
        let other = settings(&[("num.network.threads", "2"), ("log.dirs", "/b")]);
        let all = BTreeMap::from([(1, same.clone()), (2, same), (3, other)]);
        let advice = judge(&all, 3, &BTreeMap::new());
        let places: Vec<(&str, &str, Severity)> =
            advice.iter().map(|one| (one.place.as_str(), one.subject.as_str(), one.severity)).collect();
        assert_eq!(
            places,
            [
                ("broker 1, 2", "num.network.threads", Fine),
                ("broker 3", "num.network.threads", Warning),
                ("brokers", "equality", Warning),
                ("broker 1, 2", "log.dirs", Note),
                ("broker 3", "log.dirs", Note),
            ]
        );
    }

    #[test]
    fn a_broker_without_figures_is_not_judged() {
        assert_eq!(judge(&BTreeMap::from([(1, Settings::new())]), 1, &BTreeMap::new()), []);
    }
}
