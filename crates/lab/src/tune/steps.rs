//! The steps of the study: settings, order and reasons. The order is that of a study of Kafka 3.0.0 on IBM
//! z16: data directories, partitions, the client, the broker's threads. Pure.

use crate::target::TargetSpec;
use crate::workload::Point;

/// A setting and the values to try.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    /// The setting's name, Kafka's if there is one.
    pub(super) name: &'static str,
    /// The reason why the setting may help.
    pub(super) why: &'static str,
    /// A note for readers.
    pub(super) note: Option<&'static str>,
    pub(super) changes: Vec<Change>,
}

/// One change to a point.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    /// The new value, as text.
    pub(super) label: String,
    what: ChangedSetting,
}

#[derive(Clone, Debug, PartialEq)]
enum ChangedSetting {
    Topics { count: u32, partitions: u32 },
    Producers { count: u32 },
    Producer { key: &'static str, value: String },
    Broker { key: &'static str, value: String },
}

impl Change {
    /// The changed point, and its label; `None` if the value is set already.
    pub(super) fn of(&self, point: &Point) -> Option<Point> {
        let mut changed = point.clone();
        match &self.what {
            ChangedSetting::Topics { count, partitions } => {
                (changed.topics.count, changed.topics.partitions) = (*count, *partitions);
            }
            ChangedSetting::Producers { count } => {
                changed.producers.count = *count;
                // A thread for each client, because clients that share one add nothing.
                changed.producers.threads = count.div_ceil(changed.producers.processes.max(1));
            }
            ChangedSetting::Producer { key, value } => {
                changed.producers.properties.insert((*key).to_owned(), value.clone());
            }
            ChangedSetting::Broker { key, value } => {
                changed.cluster.properties.insert((*key).to_owned(), value.clone());
            }
        }
        (changed != *point).then(|| Point { label: self.label.clone(), ..changed })
    }
}

fn topics(count: u32, partitions: u32) -> Change {
    let label = match count {
        1 => format!("{partitions} partitions"),
        _ => format!("{count} topics of {partitions} partitions"),
    };
    Change { label, what: ChangedSetting::Topics { count, partitions } }
}

fn producer(key: &'static str, value: impl ToString) -> Change {
    let value = value.to_string();
    Change { label: format!("{key}={value}"), what: ChangedSetting::Producer { key, value } }
}

fn broker(key: &'static str, value: impl ToString) -> Change {
    let value = value.to_string();
    Change { label: format!("{key}={value}"), what: ChangedSetting::Broker { key, value } }
}

fn producers(count: u32) -> Change {
    Change { label: format!("{count} producers, a thread each"), what: ChangedSetting::Producers { count } }
}

/// The steps from a point on, for this number of processors. For brokers, only settings that can be set and
/// have an effect.
pub(super) fn all(base: &Point, cpus: u32, target: &TargetSpec) -> Vec<Setting> {
    let brokers_are_ours = target.is_started_by_lab();
    let mut all = Vec::new();
    if brokers_are_ours {
        all.push(log_dirs());
    }
    all.extend(partitions());
    all.extend(batches());
    all.extend(producing(base.producers.count));
    if matches!(target, TargetSpec::ApacheKafka) {
        // Thalweg has a worker thread per processor, regardless of these settings.
        all.extend(broker_threads(cpus));
    }
    if brokers_are_ours {
        all.push(flushes());
    }
    all.push(Setting {
        name: "buffer.memory",
        why: "a producer waits while its buffer is full",
        note: None,
        changes: vec![producer("buffer.memory", 64 << 20)],
    });
    all
}

fn log_dirs() -> Setting {
    Setting {
        name: "log.dirs",
        why: "several directories spread the writes over several disks",
        note: Some("all directories are on the same disk here; a gain needs several disks"),
        changes: vec![broker("log.dirs", "data-1,data-2")],
    }
}

fn partitions() -> [Setting; 2] {
    [
        Setting {
            name: "partitions",
            why: "partitions are appended in parallel; each has one lock and one log",
            note: None,
            changes: [2, 16].map(|partitions| topics(1, partitions)).to_vec(),
        },
        Setting {
            name: "topics x partitions",
            why: "in the study, only partitions mattered, not topics",
            note: None,
            changes: vec![topics(2, 8)],
        },
    ]
}

fn batches() -> [Setting; 2] {
    [
        Setting {
            name: "batch.size",
            why: "the cost of a request hardly depends on its size",
            note: None,
            changes: [65_536, 262_144].map(|bytes| producer("batch.size", bytes)).to_vec(),
        },
        Setting {
            name: "linger.ms",
            why: "batches sent before they are full waste the gain of a larger batch.size",
            note: None,
            changes: [5, 20].map(|ms| producer("linger.ms", ms)).to_vec(),
        },
    ]
}

fn producing(count: u32) -> [Setting; 2] {
    [
        Setting {
            name: "producers",
            why: "one producer may be the limit, and too many compete",
            note: None,
            changes: [count * 2, count.div_ceil(2)].map(producers).to_vec(),
        },
        Setting {
            name: "compression.type",
            why: "fewer bytes to send and store, for more processor time in the producer",
            note: Some("the gain depends on the records: random bytes gain nothing"),
            changes: ["lz4", "zstd"].map(|codec| producer("compression.type", codec)).to_vec(),
        },
    ]
}

fn broker_threads(cpus: u32) -> [Setting; 2] {
    [
        Setting {
            name: "num.io.threads",
            why: "a little above the number of processors, at most the number of partitions",
            note: None,
            changes: vec![broker("num.io.threads", cpus + 1)],
        },
        Setting {
            name: "num.network.threads",
            why: "the number of processors, for many connections",
            note: None,
            changes: vec![broker("num.network.threads", cpus.max(2))],
        },
    ]
}

fn flushes() -> Setting {
    Setting {
        name: "fsync policy",
        why: "early syncs avoid later write stalls by the kernel, but usually cost more",
        note: None,
        changes: vec![broker("log.flush.interval.messages", 100_000)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::point;
    use std::collections::BTreeMap;

    fn names(target: &TargetSpec) -> Vec<&'static str> {
        all(&point(), 4, target).iter().map(|setting| setting.name).collect()
    }

    #[test]
    fn each_change_changes_the_point_once() {
        let base = point();
        for setting in all(&base, 4, &TargetSpec::ApacheKafka) {
            for change in &setting.changes {
                let Some(changed) = change.of(&base) else {
                    assert_eq!(setting.name, "producers", "only half of one producer is one producer");
                    continue;
                };
                assert_ne!(changed, base, "{}", change.label);
                assert_eq!(change.of(&changed), None, "{}", change.label);
            }
        }
    }

    #[test]
    fn threads_are_tried_where_they_have_an_effect() {
        let threads = ["num.io.threads", "num.network.threads"];
        let (kafka, ours) = (names(&TargetSpec::ApacheKafka), names(&TargetSpec::Embedded));
        assert!(threads.iter().all(|name| kafka.contains(name) && !ours.contains(name)));
        assert!(ours.contains(&"log.dirs") && ours.contains(&"fsync policy"));
    }

    #[test]
    fn brokers_of_others_are_left_alone() {
        let base = point();
        let others = TargetSpec::Bootstrap { servers: vec!["b:1".to_owned()], properties: BTreeMap::new() };
        for setting in all(&base, 4, &others) {
            for change in &setting.changes {
                if let Some(changed) = change.of(&base) {
                    assert_eq!(changed.cluster, base.cluster, "{}", setting.name);
                }
            }
        }
    }
}
