//! The measured system as a picture: client machines, brokers with their racks and limits, and the paths
//! between them. Of a workload, the point with the most brokers is drawn.

use super::text::{escape, folded, put};
use crate::quantity;
use crate::result::{PointResult, RunResult, TargetInfo, WorkloadResult, system};
use crate::workload::SecurityProtocol;

/// The width of the drawing.
const WIDTH: f64 = 760.0;
/// The sizes of a box, and the gap below it.
const BOX: (f64, f64) = (250.0, 46.0);
const GAP: f64 = 12.0;
/// The height of the captions above the boxes.
const HEAD: f64 = 44.0;
/// Maximum boxes of a column; the last stands for all others.
const BOXES_MAX: usize = 10;
/// Maximum characters of a line in a box.
const LINE_MAX: usize = 40;

/// A box: its name, and a line below it.
type Place = (String, String);

/// A measured system.
#[derive(Debug, PartialEq)]
struct Deployment {
    /// The systems of this shape.
    systems: Vec<String>,
    clients: Vec<Place>,
    brokers: Vec<Place>,
    /// The path from clients to brokers, and that between brokers.
    to_brokers: String,
    between_brokers: String,
    /// The machine of all boxes; `None` if they are on several, or unknown, ones.
    machine: Option<String>,
}

/// The systems of a workload; empty for streams in memory.
pub(super) fn markup(run: &RunResult, workload: &WorkloadResult) -> String {
    let mut deployments: Vec<Deployment> = Vec::new();
    for target in run.targets.keys() {
        let own = workload.points.iter().filter(|point| point.target == *target);
        let Some(point) = own.max_by_key(|point| point.point.cluster.brokers) else { continue };
        if point.point.cluster.brokers == 0 {
            continue;
        }
        let mut made = deployment(run, target, point);
        match deployments.iter_mut().find(|known| known.brokers == made.brokers) {
            Some(known) => known.systems.append(&mut made.systems),
            None => deployments.push(made),
        }
    }
    let drawn: String = deployments.iter().map(draw).collect();
    match drawn.is_empty() {
        true => String::new(),
        false => folded("The measured system as a picture", &drawn, false),
    }
}

fn deployment(run: &RunResult, target: &str, result: &PointResult) -> Deployment {
    let point = &result.point;
    let is_started = run.targets.get(target).is_some_and(|info| !info.command.is_empty());
    let counts = [(point.producers.count, "producer"), (point.consumers.count, "consumer")];
    let counted = |(count, name): (u32, &str)| match count {
        0 => None,
        1 => Some(format!("1 {name}")),
        _ => Some(format!("{count} {name}s")),
    };
    let clients = counts.into_iter().filter_map(counted).collect::<Vec<String>>().join(", ");
    let clients = match run.agents.is_empty() {
        true => vec![("clients".to_owned(), clients)],
        false => {
            run.agents.iter().map(|agent| (agent.address.clone(), processors(agent.machine.cpus))).collect()
        }
    };
    let protocol = point.cluster.security.protocol;
    let secured = match (is_started, protocol) {
        (true, SecurityProtocol::Plaintext) => "plain text".to_owned(),
        (true, protocol) => protocol.name().to_owned(),
        // A running cluster has the security of the client settings.
        (false, _) => result.security.as_ref().map_or("a network".to_owned(), ToString::to_string),
    };
    let placed = match (run.agents.is_empty(), &run.agents_place) {
        (false, Some(rule)) => format!("{secured}; clients placed {rule}"),
        _ => secured,
    };
    let replicas = match point.topics.replication_factor {
        1 => "1 replica: nothing between brokers".to_owned(),
        replicas => format!("{replicas} replicas"),
    };
    let replicas = match point.cluster.properties.get("inter.broker.listener.name") {
        Some(listener) => format!("{replicas}, listener {listener}"),
        None => replicas,
    };
    Deployment {
        systems: vec![system(target).to_owned()],
        clients,
        brokers: match is_started {
            true => started(result),
            false => running(run, run.targets.get(target), point.cluster.brokers),
        },
        to_brokers: placed,
        between_brokers: replicas,
        machine: (is_started && run.agents.is_empty())
            .then(|| format!("one machine, {}, paths over loopback", processors(run.machine.cpus))),
    }
}

fn processors(count: u32) -> String {
    format!("{count} processor{}", if count == 1 { "" } else { "s" })
}

/// The brokers that the lab started for a point.
fn started(result: &PointResult) -> Vec<Place> {
    let cluster = &result.point.cluster;
    let brokers = 0..cluster.brokers as usize;
    brokers
        .map(|place| {
            let rack = cluster.rack(place).map(|rack| format!("rack {rack}"));
            let limits = (!cluster.node.is_none()).then(|| cluster.node.describe());
            let about: Vec<String> = rack.into_iter().chain(limits).collect();
            (format!("broker {}", place + 1), about.join(", "))
        })
        .collect()
}

/// The brokers of a running cluster, as far as they are known: by machine, or by release.
fn running(run: &RunResult, info: Option<&TargetInfo>, count: u32) -> Vec<Place> {
    if !run.broker_machines.is_empty() {
        let machines = run.broker_machines.iter();
        return machines
            .map(|one| {
                let memory = quantity::bytes(one.machine.memory_bytes as f64);
                (one.address.clone(), format!("{}, {memory}", processors(one.machine.cpus)))
            })
            .collect();
    }
    let facts = info.into_iter().flat_map(|info| &info.facts);
    let known: Vec<Place> = facts
        .filter(|(name, _)| name.starts_with("broker "))
        .map(|(name, release)| (name.clone(), release.clone()))
        .collect();
    match known.is_empty() {
        true => (1..=count).map(|number| (format!("broker {number}"), String::new())).collect(),
        false => known,
    }
}

fn draw(deployment: &Deployment) -> String {
    let Deployment { systems, clients, brokers, to_brokers, between_brokers, machine } = deployment;
    let (clients, brokers) = (shortened(clients), shortened(brokers));
    let rows = clients.len().max(brokers.len()) as f64;
    let height = HEAD + rows * (BOX.1 + GAP) + 26.0;
    let (left, right) = (16.0, WIDTH - BOX.0 - 96.0);
    let caption = systems.join(", ");
    let mut svg = format!(
        "<figure><figcaption>{}</figcaption><svg class=\"deployment\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">",
        escape(&caption),
        escape(&format!(
            "{caption}: {} client machines or groups, {} brokers; {to_brokers}; {between_brokers}",
            deployment.clients.len(),
            deployment.brokers.len()
        ))
    );
    if let Some(machine) = machine {
        put(
            &mut svg,
            format_args!(
                "<rect class=\"frame\" x=\"2\" y=\"2\" width=\"{}\" height=\"{}\"/><text x=\"16\" y=\"{}\">{}</text>",
                WIDTH - 4.0,
                height - 4.0,
                height - 10.0,
                escape(machine)
            ),
        );
    }
    paths(&mut svg, (left, clients.len()), (right, brokers.len()));
    column(&mut svg, left, "clients", &clients);
    column(&mut svg, right, "brokers", &brokers);
    put(
        &mut svg,
        format_args!(
            "<text x=\"{}\" y=\"28\" text-anchor=\"middle\">{}</text><text x=\"{}\" y=\"28\" text-anchor=\"end\">{}</text>",
            (left + BOX.0 + right) / 2.0,
            escape(&cut(to_brokers)),
            WIDTH - 12.0,
            escape(&cut(between_brokers))
        ),
    );
    svg + "</svg></figure>"
}

/// The path of each client to each broker, and that between the brokers. Columns are given by their left edge
/// and length.
fn paths(svg: &mut String, (left, clients): (f64, usize), (right, brokers): (f64, usize)) {
    let middle = |number: usize| HEAD + number as f64 * (BOX.1 + GAP) + BOX.1 / 2.0;
    for client in 0..clients {
        for broker in 0..brokers {
            put(
                svg,
                format_args!(
                    "<line x1=\"{}\" y1=\"{}\" x2=\"{right}\" y2=\"{}\"/>",
                    left + BOX.0,
                    middle(client),
                    middle(broker)
                ),
            );
        }
    }
    if brokers > 1 {
        let edge = right + BOX.0;
        put(svg, format_args!("<path d=\"M{edge} {}h22V{}h-22\"/>", middle(0), middle(brokers - 1)));
    }
}

/// A column of boxes below its name.
fn column(svg: &mut String, x: f64, head: &str, places: &[Place]) {
    put(svg, format_args!("<text class=\"name\" x=\"{x}\" y=\"28\">{head}</text>"));
    for (number, (name, about)) in places.iter().enumerate() {
        let y = HEAD + number as f64 * (BOX.1 + GAP);
        put(
            svg,
            format_args!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\"/>\
                 <text class=\"name\" x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\">{}</text>",
                BOX.0,
                BOX.1,
                x + 12.0,
                y + 19.0,
                escape(&cut(name)),
                x + 12.0,
                y + 36.0,
                escape(&cut(about))
            ),
        );
    }
}

/// A column of at most [`BOXES_MAX`] boxes.
fn shortened(places: &[Place]) -> Vec<Place> {
    let mut shown: Vec<Place> = places.iter().take(BOXES_MAX).cloned().collect();
    if places.len() > BOXES_MAX {
        shown[BOXES_MAX - 1] = (format!("{} more", places.len() - BOXES_MAX + 1), String::new());
    }
    shown
}

fn cut(text: &str) -> String {
    match text.chars().count() > LINE_MAX {
        true => text.chars().take(LINE_MAX - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::testing::{measured, run_of};
    use crate::result::AgentInfo;
    use crate::workload::{NodeLimits, Point};

    fn info(is_started: bool) -> TargetInfo {
        TargetInfo {
            kind: String::new(),
            version: String::new(),
            command: if is_started { vec!["thalweg".to_owned()] } else { Vec::new() },
            notes: Vec::new(),
            facts: BTreeMap::new(),
        }
    }

    fn shape(brokers: u32) -> Point {
        let mut point = crate::result::testing::point();
        (point.cluster.brokers, point.consumers.count) = (brokers, 2);
        point.topics.replication_factor = 3;
        point
    }

    #[test]
    fn brokers_of_one_shape_share_a_picture_with_racks_and_limits() {
        let mut point = shape(3);
        point.cluster.racks = vec!["a".to_owned(), "b".to_owned()];
        point.cluster.node = NodeLimits { cpu_millis: Some(500), memory_mb: None };
        let targets = ["apache-kafka", "embedded"];
        let mut run = run_of(targets.map(|target| measured(&point, target, 1, &[1.0])).into());
        run.targets = targets.map(|target| (target.to_owned(), info(true))).into();
        let page = markup(&run, &run.workloads[0]);
        assert_eq!(page.matches("<svg").count(), 1, "{page}");
        for part in [
            "Apache Kafka, Thalweg",
            "broker 3",
            "rack a, 0.5 CPU",
            "rack b, 0.5 CPU",
            "3 replicas",
            "1 producer, 2 consumers",
            "one machine",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn machines_of_clients_have_a_box_each_and_many_are_summed_up() {
        let mut run = run_of(vec![measured(&shape(1), "b-1:9092", 1, &[1.0])]);
        run.targets.insert("b-1:9092".to_owned(), info(false));
        run.agents = (0..12)
            .map(|number| AgentInfo {
                address: format!("client-{number}:7000"),
                machine: Default::default(),
                boot_id: None,
                interfaces: Vec::new(),
                disks: Vec::new(),
                path: None,
                brokers: Vec::new(),
                data: Vec::new(),
            })
            .collect();
        run.agents_place = Some("apart".to_owned());
        let page = markup(&run, &run.workloads[0]);
        assert!(page.contains("client-8:7000") && page.contains("3 more"), "{page}");
        assert!(page.contains("clients placed apart") && !page.contains("one machine"), "{page}");
    }

    #[test]
    fn streams_in_memory_have_no_picture() {
        let mut run = run_of(vec![measured(&shape(0), "embedded", 1, &[1.0])]);
        run.targets.insert("embedded".to_owned(), info(true));
        assert_eq!(markup(&run, &run.workloads[0]), "");
    }
}
