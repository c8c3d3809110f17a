//! The settings of a point as they stand in a file: those of the top with those of a `[[point]]` laid over them, and a
//! point for each value of a list. What the settings mean together is judged elsewhere.

use std::collections::BTreeMap;

use super::document::{Entry, Node, Value};
use super::key::{self, Key, Kind, grouped};
use super::mistake::{Mistake, Position};

/// Points of a workload; more is a mistake in a list.
pub(super) const POINTS_MAX: usize = 500;

/// Settings by their full paths, each with its place.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Where the point begins.
    pub(super) at: Position,
    /// One value each; of properties too, under `producers.properties.linger.ms`.
    pub(super) settings: BTreeMap<String, Node>,
    /// The tables of published figures.
    pub(super) published: Vec<Node>,
    /// The keys that have lists, with the value that this point has.
    pub(super) varied: Vec<String>,
}

impl Layer {
    /// The settings in the entries of a table; entries that are no settings are mistakes.
    pub(super) fn read(at: Position, entries: &[Entry], mistakes: &mut Vec<Mistake>) -> Layer {
        let mut layer = Layer { at, settings: BTreeMap::new(), published: Vec::new(), varied: Vec::new() };
        layer.take(entries, "", mistakes);
        layer
    }

    fn take(&mut self, entries: &[Entry], prefix: &str, mistakes: &mut Vec<Mistake>) {
        for entry in entries {
            let path = format!("{prefix}{}", entry.name);
            if path == "published" {
                self.take_published(&entry.node, mistakes);
                continue;
            }
            let in_properties = key::of(&path).is_some_and(|key| matches!(key.kind, Kind::Properties));
            match (&entry.node.value, key::of(&path)) {
                // A dotted name without quotes is a table to TOML, and still the name of a property.
                (Value::Table(inner), _) if in_properties || key::is_section(&path) => {
                    self.take(inner, &format!("{path}."), mistakes);
                }
                (Value::List(values), Some(key)) if key.path != "label" => {
                    self.take_list(key, &path, entry, values, mistakes);
                }
                (_, Some(key)) => match key.judge(&path, &entry.node) {
                    Some(mistake) => mistakes.push(mistake),
                    None => {
                        self.settings.insert(path, entry.node.clone());
                    }
                },
                (other, None) if key::is_section(&path) => mistakes.push(Mistake {
                    position: entry.node.at,
                    key: path.clone(),
                    problem: format!("{} is invalid", other.describe()),
                    remedy: format!("a table would be right, such as [{path}]"),
                }),
                (_, None) => mistakes.push(unknown(entry.at, &path, names(&path))),
            }
        }
    }

    fn take_list(
        &mut self,
        key: &Key,
        path: &str,
        entry: &Entry,
        values: &[Node],
        mistakes: &mut Vec<Mistake>,
    ) {
        let wrong: Vec<_> = values.iter().filter_map(|value| key.judge(path, value)).collect();
        if values.is_empty() {
            mistakes.push(Mistake {
                position: entry.node.at,
                key: path.to_owned(),
                problem: "the list is empty".to_owned(),
                remedy: "a value, or a list with a value for each point, would be right".to_owned(),
            });
        } else if wrong.is_empty() {
            self.settings.insert(path.to_owned(), entry.node.clone());
        }
        mistakes.extend(wrong);
    }

    fn take_published(&mut self, node: &Node, mistakes: &mut Vec<Mistake>) {
        match &node.value {
            Value::Table(_) => self.published.push(node.clone()),
            Value::List(nodes) if nodes.iter().all(|node| matches!(node.value, Value::Table(_))) => {
                self.published.extend(nodes.iter().cloned());
            }
            other => mistakes.push(Mistake {
                position: node.at,
                key: "published".to_owned(),
                problem: format!("{} is invalid", other.describe()),
                remedy: "a table of figures would be right, or a list of such tables".to_owned(),
            }),
        }
    }

    /// This layer under another one, whose settings hold where both have one.
    pub(super) fn under(&self, over: &Layer) -> Layer {
        let mut settings = self.settings.clone();
        // Who chooses the other unit, or another kind of load, does not mean what the layer below says about the first.
        if over.settings.contains_key("extent.records") || over.settings.contains_key("extent.seconds") {
            settings.remove("extent.records");
            settings.remove("extent.seconds");
        }
        if over.settings.contains_key("load.kind") {
            settings.retain(|path, _| !path.starts_with("load."));
        }
        settings.extend(over.settings.clone());
        let published = self.published.iter().chain(&over.published).cloned().collect();
        Layer { at: over.at, settings, published, varied: Vec::new() }
    }

    /// A layer for each combination of the values of lists; the list that stands first varies slowest. None when they
    /// are too many.
    pub(super) fn expand(self) -> Option<Vec<Layer>> {
        let mut lists: Vec<(Position, String, Vec<Node>)> = Vec::new();
        for (path, node) in &self.settings {
            if let Value::List(values) = &node.value {
                lists.push((node.at, path.clone(), values.clone()));
            }
        }
        lists.sort_by_key(|(at, ..)| *at);
        let total = lists.iter().try_fold(1_usize, |total, (.., values)| total.checked_mul(values.len()));
        if total.is_none_or(|total| total > POINTS_MAX) {
            return None;
        }
        let mut layers = vec![self];
        for (_, path, values) in &lists {
            let with = |layer: &Layer, value: &Node| {
                let mut layer = layer.clone();
                layer.settings.insert(path.clone(), value.clone());
                layer.varied.push(path.clone());
                layer
            };
            layers = layers.iter().flat_map(|layer| values.iter().map(|value| with(layer, value))).collect();
        }
        Some(layers)
    }

    /// The text of a setting for people: thousands have commas.
    pub(super) fn show(&self, path: &str) -> Option<String> {
        match &self.settings.get(path)?.value {
            Value::Whole(number) => Some(grouped(*number)),
            value => value.as_property(),
        }
    }
}

/// A key that nobody knows, and those that might have been meant.
pub(super) fn unknown(position: Position, path: &str, known: Vec<String>) -> Mistake {
    let near = known.iter().map(|name| (distance(name, path), name)).min();
    let remedy = match near {
        Some((distance, name)) if distance <= 2 => format!("{name} would be right"),
        _ => format!("one of {} would be right", known.join(", ")),
    };
    Mistake { position, key: path.to_owned(), problem: "no such key".to_owned(), remedy }
}

/// The keys beside a path.
fn names(path: &str) -> Vec<String> {
    let section = path.rfind('.').map_or("", |end| &path[..=end]);
    let mut names: Vec<String> = Vec::new();
    let all = key::POINT.iter().chain(if section.is_empty() || section == "publication." {
        key::FILE
    } else {
        &[]
    });
    for key in all {
        let Some(rest) = key.path.strip_prefix(section) else { continue };
        let name = format!("{section}{}", rest.split('.').next().unwrap_or(rest));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if section.is_empty() {
        names.extend(["published", "point"].map(str::to_owned));
    }
    if names.is_empty() { key::POINT.iter().map(|key| key.path.to_owned()).collect() } else { names }
}

/// The letters to insert, delete or replace to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        assert_eq!(distance("brokers", "broker"), 1);
        assert_eq!(distance("size_bytes", "size_byte"), 1);
        assert_eq!(distance("", "abc"), 3);
        let mistake = unknown(Position::START, "cluster.broker", names("cluster.broker"));
        assert_eq!(mistake.remedy, "cluster.brokers would be right");
        let mistake = unknown(Position::START, "cluster.nodes", names("cluster.nodes"));
        assert_eq!(mistake.remedy, "one of cluster.brokers, cluster.properties would be right");
    }
}
