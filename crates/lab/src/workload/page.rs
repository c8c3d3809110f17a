//! Documentation of workloads in Markdown: the table of keys, a workload's points and published figures. Used
//! by the pages under `docs/workloads/` and by `thalweg lab show`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::key::{self, Key, grouped};
use super::{
    Clients, ClusterSecurity, Load, Measure, Payload, Point, PublishedFigure, Unit, Verification, Workload,
    warnings,
};

/// The keys of a workload file: a table for the top of the file, and one for points.
pub fn key_table() -> String {
    let mut out = String::new();
    for (head, keys) in [
        ("Keys at the top of the file only:", key::FILE),
        ("Keys at the top of the file, for all points, or in a `[[point]]`, for that one:", key::POINT),
    ] {
        let _ = writeln!(out, "{head}\n\n| key | type | unit | default | meaning |\n|---|---|---|---|---|");
        for key in keys {
            let Key { path, kind, default, unit, meaning } = key;
            let _ = writeln!(out, "| `{path}` | {} | {unit} | {default} | {meaning} |", kind.describe());
        }
        out.push('\n');
    }
    let figures = super::file::figure_names();
    let figures: Vec<String> = figures.iter().map(|name| format!("`{name}`")).collect();
    let _ = writeln!(
        out,
        "Keys of `published`, a table (or a list of tables) in a point: `system`, `hardware`, `price`, `source`, if they differ \
         from `[publication]`, and any of the lab's figures, under their names in results: {}.",
        figures.join(", ")
    );
    out
}

/// A workload for people: description, warnings, points, published figures.
pub fn describe(workload: &Workload) -> String {
    let Workload { name, title, description, scale, .. } = workload;
    let mut out = format!("# {name}: {title}\n\n{description}\n\n");
    if *scale != 1.0 {
        let _ = writeln!(
            out,
            "Scaled: records, seconds and rates are multiplied by {scale}. This is not the workload as published.\n"
        );
    }
    for warning in warnings(workload) {
        let _ = writeln!(out, "Note: {warning}.\n");
    }
    out.push_str(&tables(workload));
    out
}

/// The points of a workload with all settings, and its published figures.
pub fn tables(workload: &Workload) -> String {
    let mut out = format!("## Points\n\n{}", points(workload));
    if !workload.published.is_empty() {
        let _ = write!(out, "\n## Published\n\n{}", published(workload));
    }
    out
}

/// A row per point, followed by the properties of all or some points.
fn points(workload: &Workload) -> String {
    let mut out = String::from(
        "| point | brokers | topics x partitions, replicas | records | producers | consumers | measured | load | \
         warm-up, length, repetitions |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &workload.points {
        let Point { label, cluster, topics, extent, repetitions, .. } = point;
        let _ = writeln!(
            out,
            "| {label} | {}{}{}{}{} | {} x {}, {}{} | {} | {} | {} | {} | {} | {} s, {}, {repetitions} times |",
            cluster.brokers,
            if cluster.node.is_none() { String::new() } else { format!(" of {}", cluster.node.describe()) },
            security(cluster.security),
            match cluster.idle_connections {
                0 => String::new(),
                idle => format!(", {} idle connections", grouped(i64::from(idle))),
            },
            match cluster.idle_partitions {
                0 => String::new(),
                idle => format!(", {} idle partitions", grouped(i64::from(idle))),
            },
            topics.count,
            topics.partitions,
            topics.replication_factor,
            match topics.created_per_s {
                0 => String::new(),
                created => format!("; {} more come and go each second", grouped(i64::from(created))),
            },
            records(point),
            clients(&point.producers),
            consumers(point),
            match point.measure {
                Measure::Produce => "produce",
                Measure::Consume => "consume",
                Measure::Drain => "drain",
            },
            load(&point.load),
            extent.warm_up_s,
            match extent.unit {
                Unit::Seconds(seconds) => format!("{seconds} s"),
                Unit::Records(records) => format!("{} records", grouped(records as i64)),
            },
        );
    }
    out.push('\n');
    out.push_str(&properties(workload));
    out
}

fn records(point: &Point) -> String {
    let records = &point.records;
    let payload = match &records.payload {
        Payload::Random => "random".to_owned(),
        Payload::Zeros => "zeros".to_owned(),
        Payload::Shared => "the same for all".to_owned(),
        Payload::Compressible => "compressible".to_owned(),
        Payload::Json => "JSON".to_owned(),
        Payload::File(path) => format!("lines of {path}"),
    };
    let keys =
        records.keys.map_or_else(String::new, |keys| format!(", {} keys", grouped(keys.distinct as i64)));
    let verified = match point.verify {
        Verification::Off => ", not verified",
        Verification::Bounded => "",
        Verification::Whole => ", verified whole",
    };
    format!("{} B, {payload}{keys}{verified}", grouped(i64::from(records.size_bytes)))
}

fn clients(clients: &Clients) -> String {
    let Clients { count, processes, threads, .. } = clients;
    match (processes, threads) {
        (1, 1) => count.to_string(),
        _ => format!("{count} in {processes} x {threads} threads"),
    }
}

fn consumers(point: &Point) -> String {
    let consumers = clients(&point.consumers);
    match point.consumer_groups {
        1 => consumers,
        groups => format!("{consumers}, {groups} groups"),
    }
}

fn load(load: &Load) -> String {
    match load {
        Load::Maximum => "maximum".to_owned(),
        Load::Rate { records_per_s } => format!("{records_per_s} records/s"),
        Load::AddProducers { producers_max, gain_min } => {
            format!("producers added up to {producers_max}, while each gains {gain_min}")
        }
        Load::RaiseRate { first_records_per_s, factor, precision } => {
            format!("rate raised from {first_records_per_s} records/s by {factor}, precision {precision}")
        }
    }
}

/// The security as text; empty for PLAINTEXT.
fn security(security: ClusterSecurity) -> String {
    let mut out = String::new();
    if security != ClusterSecurity::default() {
        let _ = write!(out, ", {}", security.protocol.name());
        if let Some(mechanism) = security.mechanism {
            let _ = write!(out, " ({})", mechanism.name());
        }
    }
    out
}

/// A property of some points, or a key of the file for which there is a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRow {
    /// The part that has the property, such as `broker`; empty for a key of the file.
    pub section: &'static str,
    /// `key=value`, or the key of the file.
    pub setting: String,
    /// The points that have the property, or `all`.
    pub points: String,
    /// The reason; empty if none is given.
    pub why: String,
}

/// The properties, each once, with the points that have them unless all do; then the keys of the file that
/// have reasons.
pub fn setting_rows(workload: &Workload) -> Vec<SettingRow> {
    let mut by_setting: BTreeMap<(&str, &String, &String), Vec<&str>> = BTreeMap::new();
    for point in &workload.points {
        let sections = [
            ("broker", &point.cluster.properties),
            ("Pulsar broker", &point.cluster.pulsar),
            ("consumer", &point.consumers.properties),
            ("Pulsar consumer", &point.consumers.pulsar),
            ("producer", &point.producers.properties),
            ("Pulsar producer", &point.producers.pulsar),
            ("topic", &point.topics.properties),
        ];
        for (section, properties) in sections {
            for (key, value) in properties {
                by_setting.entry((section, key, value)).or_default().push(&point.label);
            }
        }
    }
    let why = |name: &str| workload.why.get(name).cloned().unwrap_or_default();
    let of_points = by_setting.iter().map(|((section, key, value), labels)| SettingRow {
        section,
        setting: format!("{key}={value}"),
        points: match labels.len() == workload.points.len() {
            true => "all".to_owned(),
            false => labels.join("; "),
        },
        why: why(key),
    });
    let of_file = workload.why.keys().filter(|name| key::of(name).is_some()).map(|name| SettingRow {
        section: "",
        setting: name.clone(),
        points: String::new(),
        why: why(name),
    });
    of_points.chain(of_file).collect()
}

fn properties(workload: &Workload) -> String {
    let rows = setting_rows(workload);
    let mut out = String::new();
    let (head, rule) = if workload.why.is_empty() { ("", "") } else { (" why |", "---|") };
    if !rows.is_empty() {
        let _ = writeln!(out, "| property of | setting | points |{head}\n|---|---|---|{rule}");
    }
    for SettingRow { section, setting, points, why } in rows {
        let why = if workload.why.is_empty() { String::new() } else { format!(" {why} |") };
        let _ = writeln!(out, "| {section} | `{setting}` | {points} |{why}");
    }
    out
}

/// A row per published figure. Common parts precede the table.
fn published(workload: &Workload) -> String {
    type Column = (&'static str, fn(&PublishedFigure) -> &str);
    let about: [Column; 4] = [
        ("system", |figure| &figure.system),
        ("hardware", |figure| &figure.hardware),
        ("price", |figure| &figure.price),
        ("source", |figure| &figure.source),
    ];
    let differs = |of: fn(&PublishedFigure) -> &str| {
        workload.published.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]))
    };
    let mut out = String::new();
    for (name, of) in about.iter().filter(|(_, of)| !differs(*of)) {
        if let Some(figure) = workload.published.first().filter(|figure| !of(figure).is_empty()) {
            let _ = writeln!(out, "- {name}: {}", of(figure));
        }
    }
    let columns: Vec<&Column> = about.iter().filter(|(_, of)| differs(*of)).collect();
    let names: String = columns.iter().map(|(name, _)| format!(" {name} |")).collect();
    let rules = "---|".repeat(columns.len());
    let _ = writeln!(out, "\n| point | figure | published |{names}\n|---|---|---|{rules}");
    for figure in &workload.published {
        let value = match figure.value.fract() == 0.0 {
            true => grouped(figure.value as i64),
            false => format!("{:.2}", figure.value),
        };
        let about: String = columns.iter().map(|(_, of)| format!(" {} |", of(figure))).collect();
        let _ = writeln!(out, "| {} | `{}` | {value} |{about}", figure.point, figure.figure);
    }
    out
}
