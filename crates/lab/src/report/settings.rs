//! All data for judging or repeating a result: machine, versions, all settings, the command.

use std::collections::BTreeSet;

use serde_json::Value;
use thalweg_security::shell::quoted;

use super::text::{escape, facts, folded, table};
use crate::quantity;
use crate::result::{Machine, RunResult, TargetInfo, WorkloadResult, system};
use crate::workload::setting_rows;

/// A machine and its system: the facts that a page shows of each.
pub(super) fn hardware(machine: &Machine) -> Vec<(String, String)> {
    vec![
        ("processor".to_owned(), machine.cpu.clone()),
        ("logical processors".to_owned(), machine.cpus.to_string()),
        ("memory".to_owned(), quantity::bytes(machine.memory_bytes as f64)),
        ("operating system".to_owned(), machine.os.clone()),
        ("kernel".to_owned(), machine.kernel.clone()),
    ]
}

/// The machine and the measured systems.
pub(super) fn machine(run: &RunResult) -> String {
    let machine = &run.machine;
    let mut pairs = hardware(machine);
    pairs.extend([
        ("file system of the data".to_owned(), machine.filesystem.clone()),
        (
            "virtual machine".to_owned(),
            machine.hypervisor.clone().unwrap_or_else(|| "none detected".to_owned()),
        ),
    ]);
    pairs.extend(machine.facts.clone());
    let mut markup = format!("<h3>Machine</h3>{}<h3>Systems</h3>", facts(&pairs));
    for (name, info) in &run.targets {
        markup += &target(name, info, &securities(run, name));
    }
    markup += "<h3>The lab</h3>";
    let mut lab = vec![
        ("version".to_owned(), run.lab_version.clone()),
        ("seed".to_owned(), run.seed.to_string()),
        ("result's schema".to_owned(), run.schema.clone()),
    ];
    for client in clients(run) {
        lab.push(("client".to_owned(), client));
    }
    markup + &facts(&lab)
}

fn clients(run: &RunResult) -> Vec<String> {
    let mut clients: Vec<String> = Vec::new();
    for point in run.workloads.iter().flat_map(|workload| &workload.points) {
        let client = match point.client.is_empty() {
            true => continue,
            false => format!("{} ({})", point.client, point.driver.words()),
        };
        if !clients.contains(&client) {
            clients.push(client);
        }
    }
    clients
}

/// The negotiated security of a target, each variant once.
fn securities(run: &RunResult, target: &str) -> Vec<String> {
    let points = run.workloads.iter().flat_map(|workload| &workload.points);
    let all: BTreeSet<String> = points
        .filter(|point| point.target == target)
        .filter_map(|point| Some(point.security.as_ref()?.to_string()))
        .collect();
    all.into_iter().collect()
}

fn target(name: &str, info: &TargetInfo, securities: &[String]) -> String {
    let mut pairs =
        vec![("kind".to_owned(), info.kind.clone()), ("version".to_owned(), info.version.clone())];
    if !info.command.is_empty() {
        pairs.push(("started as".to_owned(), command_line(&info.command)));
    }
    pairs.extend(securities.iter().map(|security| ("security".to_owned(), security.clone())));
    pairs.extend(info.facts.clone());
    pairs.extend(info.notes.iter().map(|note| ("note".to_owned(), note.clone())));
    format!("<h4>{}</h4>{}", escape(system(name)), facts(&pairs))
}

/// All settings of all points.
pub(super) fn points(workload: &WorkloadResult) -> String {
    let mut markup = with_reasons(workload);
    for point in &workload.workload.points {
        let value = serde_json::to_value(point).expect("a point is plain data");
        let mut pairs = Vec::new();
        flatten("", &value, &mut pairs);
        markup += &folded(&format!("Settings: {}", point.label), &facts(&pairs), false);
    }
    markup
}

/// The properties that differ from defaults, with their reasons; empty if the workload gives no reason.
fn with_reasons(workload: &WorkloadResult) -> String {
    if workload.workload.why.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = setting_rows(&workload.workload)
        .into_iter()
        .map(|row| vec![escape(row.section), escape(&row.setting), escape(&row.points), escape(&row.why)])
        .collect();
    folded("Changed settings, and why", &table(&["of", "setting", "points", "why"], usize::MAX, &rows), true)
}

/// Flattens a value into paths and leaves.
fn flatten(path: &str, value: &Value, pairs: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, inner) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path} › {name}") };
                flatten(&path, inner, pairs);
            }
        }
        // The label is the heading already, and an empty map means defaults.
        Value::String(_) if path == "label" => {}
        Value::Object(_) => pairs.push((path.to_owned(), "all defaults".to_owned())),
        Value::String(text) => pairs.push((path.to_owned(), text.clone())),
        Value::Null => pairs.push((path.to_owned(), "none".to_owned())),
        other => pairs.push((path.to_owned(), other.to_string())),
    }
}

/// The command that repeats the run.
pub(super) fn command(run: &RunResult) -> String {
    let mut arguments = vec!["thalweg".to_owned()];
    arguments.extend(run.arguments.iter().cloned());
    format!(
        "<p>Repeat this on your machine:</p><pre class=\"command\"><code>{}</code></pre>\
         <p>With the JSON of this result, <code>thalweg lab rerun RESULT.json</code> repeats the same points \
         and seed, and <code>thalweg lab compare</code> compares two results.</p>",
        escape(&command_line(&arguments))
    )
}

/// Quotes arguments for a shell.
fn command_line(arguments: &[String]) -> String {
    let words: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_a_shell() {
        let arguments = ["lab", "--scale=0.1", "a b", "it's", "", "=x", r"a\"].map(str::to_owned);
        assert_eq!(command_line(&arguments), r"lab --scale=0.1 'a b' 'it'\''s' '' '=x' 'a'\\''");
    }
}
