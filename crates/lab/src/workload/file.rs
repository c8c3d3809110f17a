//! Reads a workload file: the top, the points, the published figures. Reports all mistakes at once, as far as
//! possible.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;

use super::Driver;
use super::check;
use super::document::{self, Entry, Node, Value};
use super::key::{self, Key};
use super::layer::{Layer, POINTS_MAX, unknown};
use super::mistake::{InvalidFile, Mistake, Position};
use super::{
    Clients, ClusterSecurity, ClusterSpec, Extent, Keys, Load, Measure, NodeLimits, Payload, Point,
    PublishedFigure, RecordSpec, TargetName, Topics, Unit, Workload,
};
use crate::figures::FIGURES;

/// The part of a publication that may be missing.
const PRICE: &str = "price";

/// Parses a workload file. `folder` is the base of relative paths.
#[cfg(test)]
pub(super) fn parse(name: &str, file: &str, text: &str, folder: &Path) -> Result<Workload, InvalidFile> {
    parse_for(1.0, name, file, text, folder)
}

/// Parses a workload file that will be scaled: its labels have the numbers after scaling, its points still
/// those of the file.
pub(super) fn parse_for(
    scale: f64,
    name: &str,
    file: &str,
    text: &str,
    folder: &Path,
) -> Result<Workload, InvalidFile> {
    let invalid = |mistakes| InvalidFile::of(file, text, mistakes);
    let root = document::toml::parse(text).map_err(|mistake| invalid(vec![mistake]))?;
    let Value::Table(entries) = root.value else { return Err(invalid(Vec::new())) };
    let mut mistakes = Vec::new();
    let top = Top::read(&entries, &mut mistakes);
    let layers = top.layers(name, scale, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(invalid(mistakes));
    }
    let mut workload = Workload {
        name: name.to_owned(),
        title: top.text("title"),
        description: top.text("description"),
        drivers: listed(&top.text("drivers")).unwrap_or_default(),
        targets: listed(&top.text("targets")).unwrap_or_default(),
        has_steps: top.text("points") == "steps",
        why: top.why.iter().map(|(name, (text, _))| (name.clone(), text.clone())).collect(),
        scale: 1.0,
        points: Vec::new(),
        published: Vec::new(),
    };
    for layer in &layers {
        let point = point(layer, folder);
        check::point(layer, &point, &mut mistakes);
        if workload.points.iter().any(|other| other.label == point.label) {
            mistakes.push(Mistake {
                position: layer.settings.get("label").map_or(layer.at, |node| node.at),
                key: "label".to_owned(),
                problem: format!("two points are called {:?}", point.label),
                remedy: "make the labels differ, for example with {records.size_bytes}".to_owned(),
            });
        }
        for node in &layer.published {
            workload.published.extend(top.published(&point.label, node, &mut mistakes));
        }
        workload.points.push(point);
    }
    for (name, (_, at)) in &top.why {
        if !layers.iter().any(|layer| layer.sets(name)) {
            mistakes.push(Mistake {
                position: *at,
                key: format!("why.{name}"),
                problem: "no point has such a setting".to_owned(),
                remedy: "use the name of a property, or of a key that the file sets".to_owned(),
            });
        }
    }
    if mistakes.is_empty() { Ok(workload) } else { Err(invalid(mistakes)) }
}

/// Reads the table of reasons: by name, with the position of each. An unquoted dotted name is a table in
/// TOML.
fn read_why(
    prefix: &str,
    entries: &[Entry],
    why: &mut BTreeMap<String, (String, Position)>,
    mistakes: &mut Vec<Mistake>,
) {
    for entry in entries {
        let name = format!("{prefix}{}", entry.name);
        match &entry.node.value {
            Value::Table(inner) => read_why(&format!("{name}."), inner, why, mistakes),
            Value::Text(text) if !text.trim().is_empty() => {
                why.insert(name, (text.trim().to_owned(), entry.node.at));
            }
            other => mistakes.push(Mistake {
                position: entry.node.at,
                key: format!("why.{name}"),
                problem: format!("{} is invalid", other.describe()),
                remedy: "use a quoted string".to_owned(),
            }),
        }
    }
}

/// The parts of a file besides points.
struct Top<'a> {
    texts: BTreeMap<&'static str, &'a str>,
    why: BTreeMap<String, (String, Position)>,
    base: Layer,
    points: Vec<Layer>,
}

impl<'a> Top<'a> {
    fn read(entries: &'a [Entry], mistakes: &mut Vec<Mistake>) -> Top<'a> {
        let mut texts = BTreeMap::new();
        let mut points = Vec::new();
        let mut why = BTreeMap::new();
        let mut settings = Vec::new();
        for entry in entries {
            match (entry.name.as_str(), &entry.node.value) {
                ("publication", Value::Table(inner)) => {
                    for entry in inner {
                        take_text(&format!("publication.{}", entry.name), entry, &mut texts, mistakes);
                    }
                }
                ("why", Value::Table(inner)) => read_why("", inner, &mut why, mistakes),
                ("why", other) => mistakes.push(Mistake {
                    position: entry.node.at,
                    key: "why".to_owned(),
                    problem: format!("{} is invalid", other.describe()),
                    remedy: "use a table, [why], with a sentence for each setting".to_owned(),
                }),
                ("point", value) => points.extend(read_points(entry, value, mistakes)),
                (name, _) if key::FILE.iter().any(|key| key.path.split('.').next() == Some(name)) => {
                    take_text(name, entry, &mut texts, mistakes);
                }
                _ => settings.push(entry.clone()),
            }
        }
        for key in ["title", "description"] {
            if !texts.contains_key(key) && !mistakes.iter().any(|mistake| mistake.key == key) {
                mistakes.push(Mistake {
                    position: Position::START,
                    key: key.to_owned(),
                    problem: "is missing".to_owned(),
                    remedy: format!("add {key} = \"...\" at the top of the file"),
                });
            }
        }
        let base = Layer::read(Position::START, &settings, mistakes);
        Top { texts, why, base, points }
    }

    fn text(&self, key: &str) -> String {
        self.texts.get(key).map_or_else(String::new, |text| text.trim().to_owned())
    }

    /// The settings of each point, with labels for a scale.
    fn layers(&self, name: &str, scale: f64, mistakes: &mut Vec<Mistake>) -> Vec<Layer> {
        let several = self.points.len() > 1;
        let merged: Vec<Layer> = match self.points.is_empty() {
            true => vec![self.base.clone()],
            false => self.points.iter().map(|point| self.base.under(point)).collect(),
        };
        let mut layers = Vec::new();
        for layer in merged {
            let at = layer.at;
            match layer.expand() {
                Some(expanded) if layers.len() + expanded.len() <= POINTS_MAX => layers.extend(expanded),
                _ => {
                    mistakes.push(Mistake {
                        position: at,
                        key: "point".to_owned(),
                        problem: format!("the lists make more than {POINTS_MAX} points"),
                        remedy: "use fewer or shorter lists".to_owned(),
                    });
                    return Vec::new();
                }
            }
        }
        for layer in &mut layers {
            label(layer, name, (several, scale), mistakes);
            if let Some(node) = layer.published.first().filter(|_| !layer.varied.is_empty()) {
                mistakes.push(Mistake {
                    position: node.at,
                    key: "published".to_owned(),
                    problem: "published figures beside a list, which makes several points".to_owned(),
                    remedy: "add a [[point]] for each value, with its own figures".to_owned(),
                });
            }
        }
        layers
    }

    /// Parses a `published` table.
    fn published(&self, point: &str, node: &Node, mistakes: &mut Vec<Mistake>) -> Vec<PublishedFigure> {
        let Value::Table(entries) = &node.value else { return Vec::new() };
        let mut about = BTreeMap::new();
        for key in key::FILE {
            if let Some((_, name)) =
                key.path.split_once("publication.").filter(|(before, _)| before.is_empty())
            {
                about.insert(name, self.texts.get(key.path).copied());
            }
        }
        let figures = figure_names();
        let mut values = Vec::new();
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_by_key(|entry| entry.at);
        for entry in entries {
            let path = format!("published.{}", entry.name);
            let wrong = |remedy: String| Mistake {
                position: entry.node.at,
                key: path.clone(),
                problem: format!("{} is invalid", entry.node.value.describe()),
                remedy,
            };
            match (&entry.node.value, about.get_mut(entry.name.as_str())) {
                (Value::Text(text), Some(slot)) if !text.trim().is_empty() => *slot = Some(text),
                (_, Some(_)) => mistakes.push(wrong("use a quoted string".to_owned())),
                (_, None) if !figures.contains(&entry.name) => {
                    let known = about.keys().map(|name| (*name).to_owned()).chain(figures.iter().cloned());
                    let known = known.map(|name| format!("published.{name}")).collect();
                    mistakes.push(unknown(entry.at, &path, known));
                }
                (Value::Whole(number), None) if *number >= 0 => {
                    values.push((entry.name.clone(), *number as f64));
                }
                (Value::Number(number), None) if *number >= 0.0 => values.push((entry.name.clone(), *number)),
                _ => mistakes.push(wrong("use a number that is not negative".to_owned())),
            }
        }
        for (name, text) in &about {
            if text.is_none() && *name != PRICE {
                mistakes.push(Mistake {
                    position: node.at,
                    key: format!("published.{name}"),
                    problem: "is missing".to_owned(),
                    remedy: format!("add {name} = \"...\" here or in [publication]"),
                });
            }
        }
        let about = |name: &str| about.get(name).copied().flatten().unwrap_or_default().to_owned();
        let published = |(figure, value)| PublishedFigure {
            point: point.to_owned(),
            system: about("system"),
            hardware: about("hardware"),
            price: about(PRICE),
            figure,
            value,
            source: about("source"),
        };
        values.into_iter().map(published).collect()
    }
}

fn take_text<'a>(
    path: &str,
    entry: &'a Entry,
    texts: &mut BTreeMap<&'static str, &'a str>,
    mistakes: &mut Vec<Mistake>,
) {
    let Some(key) = key::FILE.iter().find(|key: &&Key| key.path == path) else {
        let known = key::FILE.iter().map(|key| key.path.to_owned());
        let known = known.filter(|name| name.contains('.')).collect();
        mistakes.push(if path.contains('.') {
            unknown(entry.at, path, known)
        } else {
            Mistake {
                position: entry.node.at,
                key: path.to_owned(),
                problem: format!("{} is invalid", entry.node.value.describe()),
                remedy: format!("use a table, such as [{path}]"),
            }
        });
        return;
    };
    match (key.judge(path, &entry.node), &entry.node.value) {
        (None, Value::Text(text)) if path == "drivers" && listed::<Driver>(text).is_none() => {
            mistakes.push(invalid_list(path, entry, "thalweg, librdkafka, java or stream"));
        }
        (None, Value::Text(text)) if path == "targets" && listed::<TargetName>(text).is_none() => {
            mistakes.push(invalid_list(path, entry, "embedded, apache-kafka or pulsar"));
        }
        (None, Value::Text(text)) => {
            texts.insert(key.path, text);
        }
        (mistake, _) => mistakes.extend(mistake),
    }
}

fn invalid_list(path: &str, entry: &Entry, names: &str) -> Mistake {
    Mistake {
        position: entry.node.at,
        key: path.to_owned(),
        problem: format!("{} is invalid", entry.node.value.describe()),
        remedy: format!("use {names}, separated by commas"),
    }
}

/// Drivers or targets by name; `None` if one is unknown.
fn listed<T: ValueEnum>(text: &str) -> Option<Vec<T>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| T::from_str(name, false).ok()).collect()
}

fn read_points(entry: &Entry, value: &Value, mistakes: &mut Vec<Mistake>) -> Vec<Layer> {
    let nodes = match value {
        Value::List(nodes) => nodes.as_slice(),
        _ => &[],
    };
    let tables: Vec<_> = nodes
        .iter()
        .filter_map(|node| match &node.value {
            Value::Table(entries) => Some((node.at, entries)),
            _ => None,
        })
        .collect();
    if tables.is_empty() || tables.len() < nodes.len() {
        mistakes.push(Mistake {
            position: entry.at,
            key: "point".to_owned(),
            problem: format!("{} is invalid", value.describe()),
            remedy: "put [[point]], with two brackets, above the settings of each point".to_owned(),
        });
    }
    tables.into_iter().map(|(at, entries)| Layer::read(at, entries, mistakes)).collect()
}

/// Replaces the placeholders of a label, or composes a label from the varied keys.
fn label(layer: &mut Layer, name: &str, (several, scale): (bool, f64), mistakes: &mut Vec<Mistake>) {
    let mut mistake = |position, problem: String, remedy: &str| {
        mistakes.push(Mistake { position, key: "label".to_owned(), problem, remedy: remedy.to_owned() });
    };
    let Some(node) = layer.settings.get("label").cloned() else {
        if several && layer.varied.is_empty() {
            mistake(layer.at, "is missing".to_owned(), "add label = \"...\" to each [[point]]");
        }
        let varied =
            layer.varied.iter().map(|path| format!("{path} {}", layer.show(path, scale).unwrap_or_default()));
        let text = varied.collect::<Vec<_>>().join(", ");
        let text = if text.is_empty() { name.to_owned() } else { text };
        layer.settings.insert("label".to_owned(), Node { at: layer.at, value: Value::Text(text) });
        return;
    };
    let Value::Text(template) = &node.value else { return };
    let mut text = String::new();
    let mut rest = template.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let Some((path, behind)) = after.split_once('}') else {
            mistake(node.at, "{ without its }".to_owned(), "write it as {records.size_bytes}");
            return;
        };
        match layer.show(path, scale) {
            Some(value) => text.push_str(&value),
            None => {
                let problem = format!("{{{path}}} is not a setting of the point");
                mistake(node.at, problem, "use the path of a key that is set, such as {records.size_bytes}");
            }
        }
        rest = behind;
    }
    text.push_str(rest);
    layer.settings.insert("label".to_owned(), Node { at: node.at, value: Value::Text(text) });
}

/// The point of the settings; inconsistencies are left to the checks.
fn point(layer: &Layer, folder: &Path) -> Point {
    let values = Values(layer);
    let clients = |section: &str, count| Clients {
        count: values.whole(&format!("{section}.count"), count),
        processes: values.whole(&format!("{section}.processes"), 1),
        threads: values.whole(&format!("{section}.threads"), 1),
        properties: values.properties(&format!("{section}.properties")),
        pulsar: values.properties(&format!("{section}.pulsar")),
    };
    let keys_distinct = values.whole("records.keys_distinct", 0_u64);
    let replication_factor = values.whole("topics.replication_factor", 1_u32);
    Point {
        label: values.text("label").unwrap_or_default().to_owned(),
        cluster: ClusterSpec {
            brokers: values.whole("cluster.brokers", 1),
            security: ClusterSecurity::new(
                values.word("cluster.security_protocol").unwrap_or_default(),
                values.word("cluster.sasl_mechanism"),
            ),
            node: NodeLimits {
                cpu_millis: values
                    .get("cluster.node_cpus")
                    .map(|_| (values.number("cluster.node_cpus", 0.0) * 1000.0).round() as u32),
                memory_mb: values
                    .get("cluster.node_memory_mb")
                    .map(|_| values.whole("cluster.node_memory_mb", 0)),
            },
            idle_connections: values.whole("cluster.idle_connections", 0),
            idle_partitions: values.whole("cluster.idle_partitions", 0),
            racks: values.list("cluster.racks", ','),
            jvm_options: values.list("cluster.jvm_options", ' '),
            properties: values.properties("cluster.properties"),
            pulsar: values.properties("cluster.pulsar"),
        },
        topics: Topics {
            count: values.whole("topics.count", 1),
            partitions: values.whole("topics.partitions", 1),
            replication_factor: u16::try_from(replication_factor).unwrap_or(u16::MAX),
            created_per_s: values.whole("topics.created_per_s", 0),
            properties: values.properties("topics.properties"),
        },
        records: RecordSpec {
            size_bytes: values.whole("records.size_bytes", 100),
            payload: values.payload(folder),
            keys: (keys_distinct > 0).then_some(Keys { distinct: keys_distinct }),
        },
        producers: clients("producers", 1),
        consumers: clients("consumers", 0),
        consumer_groups: values.whole("consumers.groups", 1),
        measure: match values.text("measure") {
            Some("consume") => Measure::Consume,
            Some("drain") => Measure::Drain,
            _ => Measure::Produce,
        },
        load: values.load(),
        extent: Extent { warm_up_s: values.number("extent.warm_up_s", 1.0), unit: values.unit() },
        repetitions: values.whole("repetitions", 3),
        verify: values.word("verify").unwrap_or_default(),
    }
}

/// Typed access to settings, whose bounds are checked already.
struct Values<'a>(&'a Layer);

impl<'a> Values<'a> {
    fn get(&self, path: &str) -> Option<&'a Value> {
        self.0.settings.get(path).map(|node| &node.value)
    }

    fn word<W: ValueEnum>(&self, path: &str) -> Option<W> {
        W::from_str(self.text(path)?, false).ok()
    }

    fn whole<N: TryFrom<i64>>(&self, path: &str, default: N) -> N {
        match self.get(path) {
            Some(Value::Whole(number)) => N::try_from(*number).unwrap_or(default),
            _ => default,
        }
    }

    fn number(&self, path: &str, default: f64) -> f64 {
        match self.get(path) {
            Some(Value::Whole(number)) => *number as f64,
            Some(Value::Number(number)) => *number,
            _ => default,
        }
    }

    fn text(&self, path: &str) -> Option<&'a str> {
        match self.get(path) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The parts of a text, which separators divide.
    fn list(&self, path: &str, separator: char) -> Vec<String> {
        let parts = self.text(path).unwrap_or_default().split(separator).map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    /// The properties of a table.
    fn properties(&self, table: &str) -> BTreeMap<String, String> {
        let prefix = format!("{table}.");
        let inside = self.0.settings.iter().filter_map(|(path, node)| {
            Some((path.strip_prefix(&prefix)?.to_owned(), node.value.as_property()?))
        });
        inside.collect()
    }

    fn payload(&self, folder: &Path) -> Payload {
        match self.text("records.payload") {
            Some("zeros") => Payload::Zeros,
            Some("shared") => Payload::Shared,
            Some("compressible") => Payload::Compressible,
            Some("json") => Payload::Json,
            Some("file") => {
                let path = folder.join(self.text("records.file").unwrap_or_default());
                Payload::File(path.to_string_lossy().into_owned())
            }
            _ => Payload::Random,
        }
    }

    fn load(&self) -> Load {
        match self.text("load.kind") {
            Some("rate") => Load::Rate { records_per_s: self.number("load.records_per_s", 0.0) },
            Some("add-producers") => Load::AddProducers {
                producers_max: self.whole("load.producers_max", 1),
                gain_min: self.number("load.gain_min", 0.03),
            },
            Some("raise-rate") => Load::RaiseRate {
                first_records_per_s: self.number("load.first_records_per_s", 10_000.0),
                factor: self.number("load.factor", 1.5),
                precision: self.number("load.precision", 0.05),
            },
            _ => Load::Maximum,
        }
    }

    fn unit(&self) -> Unit {
        match self.get("extent.records") {
            Some(Value::Whole(records)) => Unit::Records(records.unsigned_abs()),
            _ => Unit::Seconds(self.number("extent.seconds", 5.0)),
        }
    }
}

/// The names of all figures, sorted.
pub(super) fn figure_names() -> Vec<String> {
    let mut names = FIGURES.map(|figure| figure.name.to_owned());
    names.sort_unstable();
    names.into()
}
