//! The steps of the study: settings, order and reasons, as in a study of Kafka 3.0.0 on IBM z16: partitions,
//! data directories, the client, the broker's threads, sockets and JVM. Pure.

use std::path::PathBuf;

use crate::target::{TargetSpec, add_jvm_options};
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
    Broker { settings: Vec<(&'static str, String)> },
    Jvm { options: Vec<String> },
    Several { changes: Vec<Change> },
}

impl Change {
    /// The changed point, and its label; `None` if the value is set already.
    pub(super) fn of(&self, point: &Point) -> Option<Point> {
        let mut changed = point.clone();
        self.apply(&mut changed);
        (changed != *point).then(|| Point { label: self.label.clone(), ..changed })
    }

    fn apply(&self, point: &mut Point) {
        match &self.what {
            ChangedSetting::Topics { count, partitions } => {
                (point.topics.count, point.topics.partitions) = (*count, *partitions);
            }
            ChangedSetting::Producers { count } => {
                point.producers.count = *count;
                // A thread for each client, because clients that share one add nothing.
                point.producers.threads = count.div_ceil(point.producers.processes.max(1));
            }
            ChangedSetting::Producer { key, value } => {
                point.producers.properties.insert((*key).to_owned(), value.clone());
            }
            ChangedSetting::Broker { settings } => {
                let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
                point.cluster.properties.extend(settings);
            }
            ChangedSetting::Jvm { options } => {
                let known = &mut point.cluster.jvm_options;
                known.retain(|known| !options.contains(known));
                add_jvm_options(known, options);
            }
            ChangedSetting::Several { changes } => changes.iter().for_each(|change| change.apply(point)),
        }
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
    Change { label: format!("{key}={value}"), what: ChangedSetting::Broker { settings: vec![(key, value)] } }
}

fn jvm(options: &[&str]) -> Change {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    Change { label: options.join(" "), what: ChangedSetting::Jvm { options } }
}

fn producers(count: u32) -> Change {
    Change { label: format!("{count} producers, a thread each"), what: ChangedSetting::Producers { count } }
}

/// The conditions of the steps, besides the base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a> {
    pub(super) target: &'a TargetSpec,
    /// Logical processors of the machine.
    pub(super) cpus: u32,
    /// Directories for the broker's data on different disks; empty for several on one disk.
    pub(super) log_dirs: &'a [PathBuf],
    /// The text of `java -version`, if the brokers have a JVM.
    pub(super) java_version: Option<&'a str>,
}

/// The steps from a point on. For brokers, only settings that can be set and have an effect.
pub(super) fn all(base: &Point, conditions: &Conditions<'_>) -> Vec<Setting> {
    let Conditions { target, cpus, .. } = *conditions;
    let brokers_are_ours = target.is_started_by_lab();
    let mut all = Vec::from(partitions());
    if brokers_are_ours {
        // After the partitions: the data of one partition is in one directory.
        all.push(log_dirs(conditions.log_dirs));
    }
    all.extend(batches());
    all.extend(producing(base.producers.count));
    if matches!(target, TargetSpec::ApacheKafka) {
        // Thalweg has a worker thread per processor, regardless of these settings.
        all.extend(broker_threads(cpus));
    }
    all.extend(sockets(brokers_are_ours));
    if matches!(target, TargetSpec::ApacheKafka) {
        all.push(jvm_options(conditions.java_version));
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

fn log_dirs(dirs: &[PathBuf]) -> Setting {
    let (note, value) = match dirs {
        [] => (
            Some("all directories are on the same disk here; --log-dirs names directories on several"),
            "data-1,data-2".to_owned(),
        ),
        dirs => (None, dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(",")),
    };
    Setting {
        name: "log.dirs",
        why: "several directories spread the writes over several disks",
        note,
        changes: vec![broker("log.dirs", value)],
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
    let mut io_threads = vec![cpus, cpus + 1, cpus + cpus.div_ceil(2)];
    io_threads.dedup();
    [
        Setting {
            name: "num.io.threads",
            why: "a little above the number of processors, at most the number of partitions",
            note: None,
            changes: io_threads.into_iter().map(|count| broker("num.io.threads", count)).collect(),
        },
        Setting {
            name: "num.network.threads",
            why: "the number of processors, for many connections",
            note: None,
            changes: vec![broker("num.network.threads", cpus.max(2))],
        },
    ]
}

/// Bytes of a socket's buffers.
const SOCKET_BUFFER: u32 = 1 << 20;

fn sockets(brokers_are_ours: bool) -> Vec<Setting> {
    let why = "a connection carries no more than its buffer in each round trip";
    let note = Some("matters for brokers that are milliseconds away, not on one machine");
    let of_brokers = Change {
        label: format!("socket.*.buffer.bytes={SOCKET_BUFFER}"),
        what: ChangedSetting::Broker {
            settings: ["socket.receive.buffer.bytes", "socket.send.buffer.bytes"]
                .map(|key| (key, SOCKET_BUFFER.to_string()))
                .to_vec(),
        },
    };
    let brokers = Setting { name: "socket.*.buffer.bytes", why, note, changes: vec![of_brokers] };
    let clients = Setting {
        name: "send.buffer.bytes",
        why,
        note,
        changes: vec![producer("send.buffer.bytes", SOCKET_BUFFER)],
    };
    brokers_are_ours.then_some(brokers).into_iter().chain([clients]).collect()
}

fn jvm_options(java_version: Option<&str>) -> Setting {
    let mut changes = vec![jvm(&["-Xms2g", "-Xmx2g"]), jvm(&["-XX:+UseParallelGC"])];
    if java_version.is_some_and(|text| text.contains("OpenJ9")) {
        // OpenJ9 knows no collectors of HotSpot; its spinning at locks was the study's change.
        changes = vec![jvm(&["-Xms2g", "-Xmx2g"]), jvm(&["-Xthr:minimizeUserCpu"])];
    }
    Setting {
        name: "JVM options",
        why: "a larger heap and another collector pause less; spinning at locks takes processor time",
        note: None,
        changes,
    }
}

/// All changes that gained something, though too little to be kept, at once, each with its gain: in the
/// published study, many small steps made a tenth of the gain. Of two numbers of partitions, the better one
/// is tried. `None` for fewer than two.
pub(super) fn remainder(small: Vec<(f64, Change)>) -> Option<Setting> {
    let is_of_topics = |change: &Change| matches!(change.what, ChangedSetting::Topics { .. });
    let of_topics = small.iter().filter(|(_, change)| is_of_topics(change)).map(|(gain, _)| *gain);
    let most = of_topics.fold(f64::NEG_INFINITY, f64::max);
    let small: Vec<Change> = small
        .into_iter()
        .filter(|(gain, change)| !is_of_topics(change) || *gain >= most)
        .map(|(_, change)| change)
        .collect();
    let labels: Vec<&str> = small.iter().map(|change| change.label.as_str()).collect();
    let label = labels.join(", ");
    (small.len() > 1).then(|| Setting {
        name: "remainder",
        why: "many small gains together may be a large one",
        note: Some("what gained too little to be kept alone, at once"),
        changes: vec![Change { label, what: ChangedSetting::Several { changes: small } }],
    })
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

    fn settings(base: &Point, target: &TargetSpec) -> Vec<Setting> {
        all(base, &Conditions { target, cpus: 4, log_dirs: &[], java_version: None })
    }

    fn names(target: &TargetSpec) -> Vec<&'static str> {
        settings(&point(), target).iter().map(|setting| setting.name).collect()
    }

    fn labels(of: &[Setting], name: &str) -> Vec<String> {
        let setting = of.iter().find(|setting| setting.name == name).expect("a setting");
        setting.changes.iter().map(|change| change.label.clone()).collect()
    }

    #[test]
    fn each_change_changes_the_point_once() {
        let base = point();
        for setting in settings(&base, &TargetSpec::ApacheKafka) {
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
        assert!(kafka.contains(&"JVM options") && !ours.contains(&"JVM options"));
        let threads = labels(&settings(&point(), &TargetSpec::ApacheKafka), "num.io.threads");
        assert_eq!(threads, ["num.io.threads=4", "num.io.threads=5", "num.io.threads=6"]);
    }

    #[test]
    fn steps_depend_on_the_disks_and_the_java() {
        let (base, dirs) = (point(), [PathBuf::from("/disk-1"), PathBuf::from("/disk-2")]);
        let open_j9 = Some("Eclipse OpenJ9 VM 21");
        let conditions =
            Conditions { target: &TargetSpec::ApacheKafka, cpus: 4, log_dirs: &dirs, java_version: open_j9 };
        let all = all(&base, &conditions);
        assert_eq!(labels(&all, "log.dirs"), ["log.dirs=/disk-1,/disk-2"]);
        assert_eq!(labels(&all, "JVM options"), ["-Xms2g -Xmx2g", "-Xthr:minimizeUserCpu"]);
    }

    #[test]
    fn small_gains_are_tried_together() {
        let small = vec![
            (0.01, topics(1, 2)),
            (0.015, topics(2, 8)),
            (0.01, producer("linger.ms", 5)),
            (0.01, broker("log.dirs", "a,b")),
            (0.01, jvm(&["-Xmx2g"])),
        ];
        let remainder = remainder(small.clone()).expect("several");
        let changed = remainder.changes[0].of(&point()).expect("a change");
        assert_eq!(changed.producers.properties.get("linger.ms").map(String::as_str), Some("5"));
        assert_eq!(changed.cluster.properties.get("log.dirs").map(String::as_str), Some("a,b"));
        assert_eq!(
            (changed.cluster.jvm_options.len(), changed.label.as_str()),
            (1, "2 topics of 8 partitions, linger.ms=5, log.dirs=a,b, -Xmx2g")
        );
        assert_eq!(super::remainder(small[..2].to_vec()), None, "one of both numbers of partitions");
        let collector = |options: &[&str]| {
            jvm(options).of(&point()).map(|changed| jvm(&["-XX:+UseParallelGC"]).of(&changed))
        };
        let both = collector(&["-XX:+UseSerialGC", "-Xmx1g"]).flatten().expect("changed");
        assert_eq!(both.cluster.jvm_options, ["-Xmx1g", "-XX:+UseParallelGC"], "a JVM has one collector");
    }

    #[test]
    fn brokers_of_others_are_left_alone() {
        let base = point();
        let others = TargetSpec::Bootstrap { servers: vec!["b:1".to_owned()], properties: BTreeMap::new() };
        for setting in settings(&base, &others) {
            for change in &setting.changes {
                if let Some(changed) = change.of(&base) {
                    assert_eq!(changed.cluster, base.cluster, "{}", setting.name);
                }
            }
        }
    }
}
