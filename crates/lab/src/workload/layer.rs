//! The settings of a point as in the file: the top's settings, overridden by a `[[point]]`, and a point per
//! value of a list. Consistency is checked elsewhere.

use std::collections::BTreeMap;

use super::document::{Entry, Node, Value};
use super::key::{self, Key, Kind, grouped};
use super::mistake::{Mistake, Position};
use super::scale::scaled_setting;

/// Maximum points of a workload.
pub(super) const POINTS_MAX: usize = 500;

/// Settings by full path, with positions.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// The position of the point.
    pub(super) at: Position,
    /// Single values; including properties, as `producers.properties.linger.ms`.
    pub(super) settings: BTreeMap<String, Node>,
    /// The tables of published figures.
    pub(super) published: Vec<Node>,
    /// The keys with lists, and this point's value of each.
    pub(super) varied: Vec<String>,
}

impl Layer {
    /// Collects the settings in a table; unknown entries are mistakes.
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
                // An unquoted dotted name is a table in TOML, but here the name of a property.
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
                    remedy: format!("use a table, such as [{path}]"),
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
                remedy: "use a value, or a list with a value for each point".to_owned(),
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
                remedy: "use a table of figures, or a list of such tables".to_owned(),
            }),
        }
    }

    /// This layer overridden by another.
    pub(super) fn under(&self, over: &Layer) -> Layer {
        let mut settings = self.settings.clone();
        // Another unit or kind of load invalidates the lower layer's settings of the former.
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

    /// True if a key or a property of this name is set.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.settings
            .keys()
            .any(|path| path == name || key::property(path).is_some_and(|property| property == name))
    }

    /// A layer for each combination of list values; the first list varies slowest. `None` if there are too
    /// many.
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

    /// A setting as text, with thousands separators, as it is after scaling by a factor.
    pub(super) fn show(&self, path: &str, scale: f64) -> Option<String> {
        let value = &self.settings.get(path)?.value;
        let scaled = if scale == 1.0 { None } else { scaled_setting(path, value, scale) };
        match scaled.as_ref().unwrap_or(value) {
            Value::Whole(number) => Some(grouped(*number)),
            value => value.as_property(),
        }
    }
}

/// The mistake for an unknown key, with suggestions.
pub(super) fn unknown(position: Position, path: &str, known: Vec<String>) -> Mistake {
    let near = known.iter().map(|name| (distance(name, path), name)).min();
    let remedy = match near {
        Some((distance, name)) if distance <= 2 => format!("did you mean {name}?"),
        _ => format!("use one of {}", known.join(", ")),
    };
    Mistake { position, key: path.to_owned(), problem: "unknown key".to_owned(), remedy }
}

/// The keys next to a path.
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

/// The edit distance: letters inserted, deleted or replaced.
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
        assert_eq!(mistake.remedy, "did you mean cluster.brokers?");
        let mistake = unknown(Position::START, "cluster.nodes", names("cluster.nodes"));
        assert_eq!(
            mistake.remedy,
            "use one of cluster.brokers, cluster.security_protocol, cluster.sasl_mechanism, \
             cluster.node_cpus, cluster.node_memory_mb, cluster.idle_connections, cluster.idle_partitions, cluster.racks, cluster.jvm_options, cluster.properties, cluster.pulsar"
        );
    }
}
