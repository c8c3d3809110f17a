//! Checks that the settings of a point are consistent. Each rule names the key to change.

use super::key::{self, grouped};
use super::layer::Layer;
use super::mistake::Mistake;
use super::{Clients, Load, Measure, Payload, Point, Unit, Verification};

/// Size of a stamp in bytes: magic, producer, sequence, intended time.
pub const STAMP_BYTES: u32 = 24;

/// Maximum partitions of all topics of a point, including replicas.
const REPLICAS_MAX: u64 = 100_000;

/// The mistakes of one point.
pub(super) fn point(layer: &Layer, point: &Point, mistakes: &mut Vec<Mistake>) {
    let mut rules = Rules { layer, mistakes };
    rules.cluster(point);
    rules.records(point);
    rules.clients("producers", &point.producers);
    rules.clients("consumers", &point.consumers);
    rules.consumer_groups(point);
    rules.measure(point);
    rules.load(point);
    rules.extent(point);
}

struct Rules<'a> {
    layer: &'a Layer,
    mistakes: &'a mut Vec<Mistake>,
}

impl Rules<'_> {
    fn is_set(&self, path: &str) -> bool {
        self.layer.settings.contains_key(path)
    }

    /// Reports `path` at its position, or at the start of the point if not set.
    fn refuse(&mut self, path: &str, problem: String, remedy: impl Into<String>) {
        let position = self.layer.settings.get(path).map_or(self.layer.at, |node| node.at);
        let remedy = remedy.into();
        self.mistakes.push(Mistake { position, key: path.to_owned(), problem, remedy });
    }

    fn cluster(&mut self, point: &Point) {
        let brokers = point.cluster.brokers;
        if brokers == 0 {
            return self.no_cluster(point);
        }
        let protocol = point.cluster.security.protocol;
        if self.is_set("cluster.sasl_mechanism") && !protocol.has_sasl() {
            let problem = format!("has no effect with cluster.security_protocol = {:?}", protocol.name());
            let remedy = "remove it, or use cluster.security_protocol = \"SASL_SSL\"";
            self.refuse("cluster.sasl_mechanism", problem, remedy);
        }
        let replicas = point.topics.replication_factor;
        if u32::from(replicas) > brokers {
            let problem = format!("{replicas} replicas on {brokers} broker{}", plural(brokers));
            let remedy = format!("use at most {brokers}, or more cluster.brokers");
            self.refuse("topics.replication_factor", problem, remedy);
        }
        let partitions = u64::from(point.topics.count) * u64::from(point.topics.partitions);
        let all = partitions * u64::from(replicas);
        if all > REPLICAS_MAX {
            let problem = format!("{all} replicas in total");
            self.refuse(
                "topics.partitions",
                problem,
                format!("use at most {}", grouped(REPLICAS_MAX as i64)),
            );
        }
        if let Some(in_sync) = point.topics.properties.get("min.insync.replicas") {
            let number = in_sync.parse::<u16>().ok().filter(|number| (1..=replicas).contains(number));
            if number.is_none() {
                let problem = format!("{in_sync} with a replication factor of {replicas}");
                let remedy = format!("use a whole number from 1 to {replicas}");
                self.refuse("topics.properties.min.insync.replicas", problem, remedy);
            }
        }
    }

    /// Streams in memory have no consumers, and nothing to read back.
    fn no_cluster(&mut self, point: &Point) {
        let without = "without a cluster (cluster.brokers = 0)";
        for key in [
            "cluster.security_protocol",
            "cluster.sasl_mechanism",
            "cluster.node_cpus",
            "cluster.node_memory_mb",
            "cluster.idle_connections",
            "cluster.idle_partitions",
            "topics.created_per_s",
        ] {
            if self.is_set(key) {
                self.refuse(key, format!("has no effect {without}"), "remove it");
            }
        }
        if point.consumers.count > 0 {
            self.refuse("consumers.count", format!("{} {without}", point.consumers.count), "use 0");
        }
        if point.measure != Measure::Produce {
            self.refuse("measure", format!("nothing is stored {without}"), "use \"produce\"");
        }
        if point.verify != Verification::Off {
            let problem = format!("there is nothing to read back {without}");
            self.refuse(
                "verify",
                problem,
                "use verify = \"off\": the stream itself counts and checks each message",
            );
        }
    }

    fn records(&mut self, point: &Point) {
        let size = point.records.size_bytes;
        if point.verify == Verification::Whole && size < STAMP_BYTES {
            let problem = format!("{size} bytes with verify = \"whole\", whose stamp takes {STAMP_BYTES}");
            let remedy = format!("use at least {STAMP_BYTES}, or verify = \"bounded\" or \"off\"");
            self.refuse("records.size_bytes", problem, remedy);
        }
        match &point.records.payload {
            Payload::File(_) if !self.is_set("records.file") => {
                let problem = "is missing, with records.payload = \"file\"".to_owned();
                self.refuse("records.file", problem, "add records.file = \"PATH\"");
            }
            Payload::File(path) if !std::path::Path::new(path).is_file() => {
                self.refuse("records.file", format!("{path} is not a file"), "use the path of a file");
            }
            Payload::File(_) => {}
            _ if self.is_set("records.file") => {
                let problem = "has no effect on this payload".to_owned();
                self.refuse("records.file", problem, "remove it, or use records.payload = \"file\"");
            }
            _ => {}
        }
    }

    fn clients(&mut self, section: &str, clients: &Clients) {
        let most = match clients.count {
            0 => 1,
            count => u64::from(count),
        };
        let workers = u64::from(clients.processes) * u64::from(clients.threads);
        if workers > most {
            let widest = if u64::from(clients.processes) > most { "processes" } else { "threads" };
            let problem = format!(
                "{} process{} of {} thread{} for {} client{}",
                clients.processes,
                if clients.processes == 1 { "" } else { "es" },
                clients.threads,
                plural(clients.threads),
                clients.count,
                plural(clients.count)
            );
            let remedy = format!("use processes times threads of at most {section}.count");
            self.refuse(&format!("{section}.{widest}"), problem, remedy);
        }
    }

    fn consumer_groups(&mut self, point: &Point) {
        let (groups, consumers) = (point.consumer_groups, point.consumers.count);
        if groups > consumers.max(1) {
            let problem = format!("{groups} groups for {consumers} consumer{}", plural(consumers));
            self.refuse("consumers.groups", problem, "use at most consumers.count");
        }
    }

    fn measure(&mut self, point: &Point) {
        let (producers, consumers) = (point.producers.count, point.consumers.count);
        let word = match point.measure {
            Measure::Produce => "produce",
            Measure::Consume => "consume",
            Measure::Drain => "drain",
        };
        if producers == 0 && point.measure != Measure::Consume {
            let problem = format!("no producers, with measure = \"{word}\"");
            let remedy = "use at least 1, or measure = \"consume\" to read records produced before";
            self.refuse("producers.count", problem, remedy);
        }
        if point.measure == Measure::Produce {
            return;
        }
        if consumers == 0 {
            let problem = format!("no consumers, with measure = \"{word}\"");
            self.refuse("consumers.count", problem, "use at least 1");
        }
        if matches!(point.extent.unit, Unit::Seconds(_)) {
            let problem = format!("is missing, with measure = \"{word}\"");
            self.refuse("extent.records", problem, "set the number of records to produce first");
        }
        match (point.measure, &point.load) {
            (Measure::Consume, Load::Maximum) | (Measure::Drain, Load::Rate { .. }) => {}
            (Measure::Consume, _) => {
                let problem = "consumers run at the maximum rate, with measure = \"consume\"".to_owned();
                self.refuse("load.kind", problem, "use \"maximum\"");
            }
            _ => {
                let problem = "a backlog can only drain if the producers leave capacity".to_owned();
                self.refuse("load.kind", problem, "use \"rate\", with load.records_per_s");
            }
        }
    }

    fn load(&mut self, point: &Point) {
        let (kind, own): (_, &[&str]) = match point.load {
            Load::Maximum => ("maximum", &[]),
            Load::Rate { .. } => ("rate", &["load.records_per_s"]),
            Load::AddProducers { .. } => ("add-producers", &["load.producers_max", "load.gain_min"]),
            Load::RaiseRate { .. } => {
                ("raise-rate", &["load.first_records_per_s", "load.factor", "load.precision"])
            }
        };
        for key in key::POINT.iter().filter(|key| key.path.starts_with("load.") && key.path != "load.kind") {
            if self.is_set(key.path) && !own.contains(&key.path) {
                let problem = format!("has no effect with load.kind = \"{kind}\"");
                let owner = key.meaning.split('`').nth(1).unwrap_or_default();
                self.refuse(key.path, problem, format!("remove it, or use load.kind = \"{owner}\""));
            }
        }
        let needed = match point.load {
            Load::Rate { .. } => "load.records_per_s",
            Load::AddProducers { .. } => "load.producers_max",
            _ => "",
        };
        if !needed.is_empty() && !self.is_set(needed) {
            self.refuse(
                needed,
                format!("is missing, with load.kind = \"{kind}\""),
                format!("add {needed} = NUMBER"),
            );
        }
        if let Load::AddProducers { producers_max, .. } = point.load
            && self.is_set(needed)
            && producers_max < point.producers.count
        {
            let problem = format!("{producers_max} with {} initial producers", point.producers.count);
            self.refuse(needed, problem, format!("use at least {}", point.producers.count));
        }
        let searches = matches!(point.load, Load::AddProducers { .. } | Load::RaiseRate { .. });
        if searches && matches!(point.extent.unit, Unit::Records(_)) {
            let problem = format!("the steps of load.kind = \"{kind}\" need a duration");
            self.refuse("extent.records", problem, "use extent.seconds");
        }
    }

    fn extent(&mut self, _point: &Point) {
        if self.is_set("extent.seconds") && self.is_set("extent.records") {
            let problem = "cannot be combined with extent.seconds".to_owned();
            self.refuse("extent.records", problem, "use one of the two");
        }
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}
