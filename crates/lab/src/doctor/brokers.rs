//! The brokers' configuration, as DescribeConfigs tells it: the settings that bear on event rate, latency and durability.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_client::{ClientError, Cluster, Refused};
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::{DescribeClusterRequest, DescribeConfigsRequest};

use super::{Advice, size};
use crate::target;

/// DescribeConfigs' number for the configuration of a broker.
const BROKER_RESOURCE: i8 = 4;

/// Where findings about the cluster stand.
const ALL: &str = "brokers";

/// The settings of one broker, by name.
type Settings = BTreeMap<String, String>;

/// What is known of a cluster when one setting is judged.
struct Context<'a> {
    /// Brokers of the cluster.
    brokers: usize,
    /// All settings of the broker.
    settings: &'a Settings,
}

/// Judges one setting of a broker.
type Rule = fn(&Context<'_>, &str, Advice) -> Advice;

/// Looks at all brokers of a cluster.
pub(super) async fn examine(servers: &[String], properties: &BTreeMap<String, String>) -> Vec<Advice> {
    let why = "Nothing can be said about brokers that do not answer.";
    let failed = |found: String| {
        Advice::fine(ALL, "connection", found, why)
            .warning("a cluster that answers, and the right to describe it")
    };
    let cluster = match target::connect(servers, properties).await {
        Ok(cluster) => cluster,
        Err(error) => return vec![failed(error.to_string())],
    };
    let mut advice = Vec::new();
    let mut all: BTreeMap<i32, Settings> = BTreeMap::new();
    let mut registered: BTreeSet<i32> = cluster.metadata().brokers.keys().copied().collect();
    for id in fenced(&cluster).await {
        // It counts: a cluster is not made for fewer brokers because one is down.
        if registered.insert(id) {
            advice
                .push(failed(format!("broker {id}: fenced by the controller: it is down, or cannot serve")));
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
    advice.extend(judge(&all, registered.len()));
    advice
}

/// The brokers that are registered and fenced, as far as the cluster says so.
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
        Refused::check(result.error_code, result.error_message.as_deref(), || {
            format!("The configuration of broker {id}")
        })?;
        let told = result.configs.into_iter().filter_map(|one| Some((one.name, one.value?)));
        settings.extend(told);
    }
    Ok(settings)
}

/// The findings: brokers that agree get one together.
fn judge(all: &BTreeMap<i32, Settings>, brokers: usize) -> Vec<Advice> {
    let mut advice = Vec::new();
    for (subject, why, rule) in RULES {
        let mut by_finding: Vec<(Advice, Vec<i32>)> = Vec::new();
        for (id, settings) in all {
            let Some(value) = settings.get(subject) else { continue };
            let found = Advice::fine(ALL, subject, value.as_str(), why);
            let one = rule(&Context { brokers, settings }, value, found);
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
            let why = "The slowest broker sets the pace of a topic that is spread over all.";
            advice.push(
                Advice::fine(ALL, "equality", found, why).warning("one value on all brokers of one kind"),
            );
        }
    }
    advice
}

/// Settings that are each broker's own.
const MAY_DIFFER: [&str; 1] = ["log.dirs"];

/// What is looked at: the setting, why it matters, how it is judged.
const RULES: [(&str, &str, Rule); 17] = [
    (
        "num.partitions",
        "Topics that are made without a number get so many partitions. One partition is one broker and one lock.",
        |context, value, found| match number(value) {
            Some(count) if count < context.brokers as i64 || count <= 1 => {
                found.note("as many as brokers or more, or a number for each topic")
            }
            _ => found,
        },
    ),
    (
        "num.io.threads",
        "Requests are served by so many threads. Apache Kafka did best with a few more than processors, and no more than \
         partitions that are written; Thalweg serves on the connection's own task.",
        |_, value, found| match number(value) {
            Some(count) if count < 4 => found.note("the number of the broker's processors or a few more"),
            _ => found,
        },
    ),
    (
        "num.network.threads",
        "So many threads of each listener read and write sockets. At rates of millions, and with TLS, three are few.",
        |_, value, found| match number(value) {
            Some(count) if count < 3 => found.warning("3 or more; 4 to 9 in published studies"),
            Some(3) => found.note(
                "4 to 9, where the network threads are busy (NetworkProcessorAvgIdlePercent below 0.3)",
            ),
            _ => found,
        },
    ),
    (
        "log.dirs",
        "Partitions are spread over the directories; a directory for each disk makes the disks work at the same time.",
        |_, value, mut found| {
            let count = value.split(',').filter(|dir| !dir.trim().is_empty()).count();
            found.found = format!("{count}: {value}");
            if count == 1 {
                found.note("a directory for each disk, where there are several and no stripe over them")
            } else {
                found
            }
        },
    ),
    (
        "log.flush.interval.messages",
        "When a log is synced to disk. By default never before its segment is full: an acknowledged record is in the page \
         cache of the replicas, and a power cut of all of them at once loses it.",
        |context, value, mut found| {
            let replicas = context.settings.get("default.replication.factor").and_then(|value| number(value));
            match number(value) {
                Some(i64::MAX) => {
                    found.found = "never (left to the kernel)".to_owned();
                    if replicas == Some(1) {
                        found.note("replication, or 1 for records that must survive a power cut: it costs a sync for each request")
                    } else {
                        found
                    }
                }
                Some(count) if count < 1000 => {
                    found.note("replication instead, unless all replicas may lose power at once: it costs a sync for each request")
                }
                _ => found,
            }
        },
    ),
    ("log.flush.interval.ms", "When a log is synced to disk, by time.", |_, value, found| {
        match number(value) {
            Some(ms) if ms > 0 && ms < 1000 => {
                found.note("a second or more, or replication: syncs stop the disk for others")
            }
            _ => found,
        }
    }),
    ("socket.send.buffer.bytes", SOCKET, socket_buffer),
    ("socket.receive.buffer.bytes", SOCKET, socket_buffer),
    (
        "num.replica.fetchers",
        "Followers copy with so many threads from each leader's broker. One carries some hundred MB/s.",
        |context, value, found| match number(value) {
            Some(1) if context.brokers > 1 => {
                found.note(format!("{} (the number of brokers), as in the published study", context.brokers))
            }
            _ => found,
        },
    ),
    (
        "default.replication.factor",
        "Topics that are made without a number get so many replicas.",
        |context, value, found| match number(value) {
            Some(1) if context.brokers > 1 => {
                found.warning("3, or 2 where there are two brokers: with 1 a lost broker is lost data")
            }
            Some(1) => found.note("3 on three brokers, for data that must not be lost"),
            Some(count) if count > context.brokers as i64 => found.warning(format!(
                "{} at most: there are no more brokers, and topics are refused",
                context.brokers
            )),
            _ => found,
        },
    ),
    (
        "min.insync.replicas",
        "acks=all waits for all replicas in sync, and refuses when they are fewer than this.",
        min_in_sync,
    ),
    ("offsets.topic.replication.factor", INTERNAL, internal_topic),
    ("transaction.state.log.replication.factor", INTERNAL, internal_topic),
    (
        "unclean.leader.election.enable",
        "Whether a replica that missed records may become leader when no other is left.",
        |_, value, found| {
            if value == "true" { found.warning("false: true loses acknowledged records") } else { found }
        },
    ),
    (
        "compression.type",
        "Anything but `producer` makes the broker open and compress each batch anew.",
        |_, value, found| {
            if value == "producer" { found } else { found.warning("producer: let the clients compress") }
        },
    ),
    (
        "log.segment.bytes",
        "A full segment is closed and the next one made; small ones cost files, descriptors and pauses.",
        |_, value, mut found| {
            let bytes = number(value).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
            found.found = size(bytes);
            if bytes < 100 << 20 { found.note("1 GB, the default") } else { found }
        },
    ),
    (
        "group.initial.rebalance.delay.ms",
        "A new group waits so long for more members: no consumer reads before.",
        |_, value, found| match number(value) {
            Some(ms) if ms > 0 => found.note("0 where measurements begin with consumers; 3000 in production"),
            _ => found,
        },
    ),
];

const SOCKET: &str =
    "What a connection may have under way: at 100 KB and 10 ms of round trip no more than 10 MB/s.";

const INTERNAL: &str = "The internal topics of groups and transactions get so many replicas.";

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
                    "-1 (left to the kernel) or 1 MB, for clients and followers that are milliseconds away",
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
            "{} at most: there are no more brokers, and the first group fails",
            context.brokers
        )),
        Some(1) if context.brokers > 1 => found.warning(format!(
            "{}: with 1, a lost broker stops groups or transactions",
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
        found.warning("no more than the replicas there are: acks=all is refused always")
    } else if replicas > 1 && least == replicas {
        found.warning(format!(
            "{}: as it is, one broker that is away stops every producer with acks=all",
            replicas - 1
        ))
    } else if replicas > 1 && least == 1 {
        found.warning("2: as it is, acks=all may mean one replica, and its loss is lost data")
    } else {
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity::{self, Fine, Note, Warning};
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn severity(pairs: &[(&str, &str)], brokers: usize, subject: &str) -> Severity {
        let all = BTreeMap::from([(1, settings(pairs))]);
        let advice = judge(&all, brokers);
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
    fn what_more_than_all_brokers_would_hold_is_refused() {
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
    fn a_sync_for_each_record_and_none_at_all_are_told() {
        let never = ("log.flush.interval.messages", "9223372036854775807");
        assert_eq!(severity(&[never, ("default.replication.factor", "3")], 3, never.0), Fine);
        assert_eq!(severity(&[never, ("default.replication.factor", "1")], 1, never.0), Note);
        assert_eq!(severity(&[("log.flush.interval.messages", "1")], 1, never.0), Note);
    }

    #[test]
    fn brokers_that_agree_get_one_finding_and_others_are_told_apart() {
        let same = settings(&[("num.network.threads", "8"), ("log.dirs", "/a")]);
        let other = settings(&[("num.network.threads", "2"), ("log.dirs", "/b")]);
        let all = BTreeMap::from([(1, same.clone()), (2, same), (3, other)]);
        let advice = judge(&all, 3);
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
    fn a_broker_that_tells_nothing_is_not_judged() {
        assert_eq!(judge(&BTreeMap::from([(1, Settings::new())]), 1), []);
    }
}
