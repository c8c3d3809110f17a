//! Rules between the keys of a broker: Kafka's requirements, and what Thalweg can be.

use std::collections::BTreeMap;

use super::check::is_host_character;
use super::error::{ConfigError, InvalidValue};
use super::settings::RACK_AWARE_SELECTOR;
use super::values::Values;

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// It serves clients.
    pub broker: bool,
    /// It runs the embedded controller.
    pub controller: bool,
}

impl Roles {
    pub(super) fn of(values: &Values) -> Self {
        let roles = values.list("process.roles").unwrap_or_default();
        let plays = |role: &str| roles.iter().any(|known| known == role);
        Self { broker: plays("broker"), controller: plays("controller") }
    }
}

/// Whether no other node can belong to this one's cluster: the controller is in this process, and has no listener by which
/// others could reach it.
pub(super) fn is_alone(values: &Values) -> bool {
    let of_controllers = values.list("controller.listener.names").unwrap_or_default();
    let mut names = values.list("listeners").unwrap_or_default().iter().filter_map(|l| l.split_once("://"));
    let is_reached =
        |(name, _): (&str, &str)| of_controllers.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    Roles::of(values).controller && !names.any(is_reached)
}

/// Every rule that `values` break.
pub(super) fn broken(values: &Values) -> Vec<ConfigError> {
    let rules =
        [log_rules, cleaner_rules, network_rules, access_rules, replication_rules, group_rules, node_rules];
    let mut found = Vec::new();
    for rule in rules {
        rule(values, &mut found);
    }
    found
}

fn require(holds: bool, values: &Values, name: &str, reason: &str, found: &mut Vec<ConfigError>) {
    if !holds {
        let value = values.get(name).map_or_else(|| "null".to_owned(), ToString::to_string);
        found.push(InvalidValue::new(name, value, reason).into());
    }
}

fn log_rules(values: &Values, found: &mut Vec<ConfigError>) {
    let at_least = |low, name| values.integer_or_null(name).is_none_or(|number| number >= low);
    require(at_least(1, "log.roll.ms"), values, "log.roll.ms", "Value must be at least 1", found);
    require(
        at_least(0, "log.roll.jitter.ms"),
        values,
        "log.roll.jitter.ms",
        "Value must be at least 0",
        found,
    );
    let retention = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
    let given = retention.into_iter().find(|name| values.integer_or_null(name).is_some());
    if let Some(name) = given {
        let reason = "Value must be unlimited (-1), or at least 1";
        require(values.integer_or_null(name) != Some(0), values, name, reason, found);
    }
}

fn cleaner_rules(values: &Values, found: &mut Vec<ConfigError>) {
    const BUFFER: &str = "log.cleaner.dedupe.buffer.size";
    let threads = values.long("log.cleaner.threads");
    require(threads >= 1, values, "log.cleaner.threads", "Value must be at least 1", found);
    let enough = values.long(BUFFER) / threads.max(1) > 1024 * 1024;
    require(enough, values, BUFFER, "Value must be more than 1 MiB per cleaner thread", found);
}

fn network_rules(values: &Values, found: &mut Vec<ConfigError>) {
    const QUEUED: &str = "queued.max.request.bytes";
    let queued = values.long(QUEUED);
    let enough = queued <= 0 || queued >= values.long("socket.request.max.bytes");
    require(enough, values, QUEUED, "Value must be at least socket.request.max.bytes, or -1", found);
    match connection_overrides(values) {
        Ok(overrides) => {
            let reachable = values.long("max.connections.per.ip") > 0 || !overrides.is_empty();
            let reason = "Value can be zero only if max.connections.per.ip.overrides is set";
            require(reachable, values, "max.connections.per.ip", reason, found);
        }
        Err(error) => found.push(error.into()),
    }
}

/// Parses `max.connections.per.ip.overrides`; the limit follows the last colon, so an address may hold some.
pub(super) fn connection_overrides(values: &Values) -> Result<BTreeMap<String, usize>, InvalidValue> {
    const KEY: &str = "max.connections.per.ip.overrides";
    let text = values.text(KEY).unwrap_or_default();
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let parsed = pairs.map(|pair| {
        let (address, limit) = pair.rsplit_once(':')?;
        let address = address.trim();
        let valid = !address.is_empty() && address.chars().all(is_host_character);
        valid.then_some(()).and(Some((address.to_owned(), limit.trim().parse().ok()?)))
    });
    let found: Option<BTreeMap<_, _>> = parsed.collect();
    found.ok_or_else(|| InvalidValue::new(KEY, text, "Expected {address}:{limit}, separated by commas"))
}

/// Who asks for access control must not get a broker that is open to everybody.
fn access_rules(values: &Values, found: &mut Vec<ConfigError>) {
    const AUTHORIZER: &str = "authorizer.class.name";
    let open = values.text(AUTHORIZER).is_none_or(str::is_empty);
    require(open, values, AUTHORIZER, "Access control is not served yet: expected no authorizer", found);
}

fn replication_rules(values: &Values, found: &mut Vec<ConfigError>) {
    const WAIT: &str = "replica.fetch.wait.max.ms";
    let wait = values.long(WAIT);
    let reason = "Value must be at most replica.socket.timeout.ms";
    require(wait <= values.long("replica.socket.timeout.ms"), values, WAIT, reason, found);
    let reason = "Value must be at most replica.lag.time.max.ms";
    require(wait <= values.long("replica.lag.time.max.ms"), values, WAIT, reason, found);
    const SELECTOR: &str = "replica.selector.class";
    const LEADER: &str = "org.apache.kafka.common.replica.LeaderSelector";
    let selector = values.text(SELECTOR).filter(|class| !class.is_empty());
    let known = selector.is_none_or(|class| class == LEADER || class == RACK_AWARE_SELECTOR);
    let reason = "Java classes cannot be loaded: expected Kafka's RackAwareReplicaSelector or LeaderSelector";
    require(known, values, SELECTOR, reason, found);
}

fn group_rules(values: &Values, found: &mut Vec<ConfigError>) {
    const PROTOCOLS: &str = "group.coordinator.rebalance.protocols";
    let classic = values.list(PROTOCOLS).unwrap_or_default().iter().any(|protocol| protocol == "classic");
    require(classic, values, PROTOCOLS, "Disabling the classic protocol is not supported", found);
}

fn node_rules(values: &Values, found: &mut Vec<ConfigError>) {
    const VOTERS: &str = "controller.quorum.voters";
    const SERVERS: &str = "controller.quorum.bootstrap.servers";
    let id = values.long("node.id");
    require(values.long("broker.id") == id, values, "broker.id", "Value must be the same as node.id", found);
    let roles = Roles::of(values);
    let voters = values.list(VOTERS).unwrap_or_default();
    let servers = values.list(SERVERS).unwrap_or_default();
    let is_this_node = |voter: &String| voter.split('@').next().and_then(|id| id.parse().ok()) == Some(id);
    if roles.controller {
        let alone = voters.is_empty() || voters.len() == 1 && voters.iter().all(is_this_node);
        let reason = "The embedded controller is the only voter: leave this empty or name this node alone, \
                      or join a quorum of Kafka controllers with process.roles=broker";
        require(alone, values, VOTERS, reason, found);
        let reason = "The embedded controller is alone: leave this empty or name this node, \
                      or join a quorum of Kafka controllers with process.roles=broker";
        require(servers.len() <= 1, values, SERVERS, reason, found);
    } else {
        let reason =
            "With process.roles=broker, either this or controller.quorum.voters must name the controllers";
        require(!voters.is_empty() || !servers.is_empty(), values, SERVERS, reason, found);
        let reason = "With process.roles=broker, this node must not be among the voters";
        require(!voters.iter().any(is_this_node), values, VOTERS, reason, found);
    }
}
