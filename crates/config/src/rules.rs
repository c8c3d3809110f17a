//! Rules between the keys of a broker: Kafka's requirements, and Thalweg's limits.

use super::error::{ConfigError, InvalidValue};
use super::group_value::assignor;
use super::node::Roles;
use super::setting::Setting;
use super::table::{
    self, AccessSettings, CleanerSettings, ConsumerGroupKeys, ControllerSettings, GroupSettings,
    ListenerSettings, LogSettings, NetworkSettings, NodeSettings, RACK_AWARE_SELECTOR, ReplicationSettings,
    STANDARD_AUTHORIZER_CLASS, ShareGroupKeys, StreamsGroupKeys,
};
use super::value::Value;
use super::values::Values;

/// True if no other node can join this node's cluster: the controller is in this process, and has no listener
/// for other nodes.
pub(super) fn is_alone(values: &Values) -> bool {
    let of_controllers = values.get(ControllerSettings::listener_names);
    let listeners = values.get(ListenerSettings::listeners);
    let mut names = listeners.iter().filter_map(|listener| listener.split_once("://"));
    let is_reached =
        |(name, _): (&str, &str)| of_controllers.iter().any(|known| known.eq_ignore_ascii_case(name.trim()));
    values.get(NodeSettings::roles).controller && !names.any(is_reached)
}

/// All rules that `values` violate.
pub(super) fn broken(values: &Values) -> Vec<ConfigError> {
    let mut found = BrokenRules { values, errors: Vec::new() };
    log_rules(values, &mut found);
    cleaner_rules(&CleanerSettings::from(values), &mut found);
    network_rules(&NetworkSettings::from(values), &mut found);
    access_rules(values, &mut found);
    replication_rules(values, &mut found);
    group_rules(&GroupSettings::from(values), &mut found);
    consumer_group_rules(values, &mut found);
    share_group_rules(&ShareGroupKeys::from(values), &mut found);
    streams_group_rules(values, &mut found);
    bound_rules(values, &mut found);
    node_rules(values, &mut found);
    found.errors
}

/// The violated rules.
struct BrokenRules<'a> {
    values: &'a Values,
    errors: Vec<ConfigError>,
}

impl BrokenRules<'_> {
    fn unless<T>(&mut self, holds: bool, setting: Setting<T>, reason: &str) {
        self.unless_named(holds, setting.name(), reason);
    }

    fn unless_named(&mut self, holds: bool, name: &str, reason: &str) {
        if !holds {
            let value = self.values.named(name).map_or_else(|| "null".to_owned(), ToString::to_string);
            self.errors.push(InvalidValue::new(name, value, reason).into());
        }
    }
}

fn integer(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    }
}

fn log_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let at_least = |low, setting| integer(values.raw(setting)).is_none_or(|number| number >= low);
    let roll = LogSettings::roll_ms;
    found.unless(at_least(1, roll), roll, "Value must be at least 1");
    let jitter = LogSettings::roll_jitter_ms;
    found.unless(at_least(0, jitter), jitter, "Value must be at least 0");
    let retention = [LogSettings::retention_ms, LogSettings::retention_minutes, LogSettings::retention_hours];
    let given = retention.into_iter().find_map(|setting| Some((setting, integer(values.raw(setting))?)));
    if let Some((setting, number)) = given {
        found.unless(number != 0, setting, "Value must be unlimited (-1), or at least 1");
    }
}

fn cleaner_rules(cleaner: &CleanerSettings, found: &mut BrokenRules<'_>) {
    found.unless(cleaner.threads >= 1, CleanerSettings::threads, "Value must be at least 1");
    let enough = cleaner.dedupe_buffer_bytes / cleaner.threads.max(1) > 1024 * 1024;
    let reason = "Value must be more than 1 MiB per cleaner thread";
    found.unless(enough, CleanerSettings::dedupe_buffer_bytes, reason);
}

fn network_rules(network: &NetworkSettings, found: &mut BrokenRules<'_>) {
    let enough = network.queued_max_request_bytes.is_none_or(|bytes| bytes >= network.request_max_bytes);
    let reason = "Value must be at least socket.request.max.bytes, or -1";
    found.unless(enough, NetworkSettings::queued_max_request_bytes, reason);
    let reachable =
        network.max_connections_per_ip > 0 || !network.max_connections_per_ip_overrides.is_empty();
    let reason = "Value can be zero only if max.connections.per.ip.overrides is set";
    found.unless(reachable, NetworkSettings::max_connections_per_ip, reason);
}

/// Refuses unknown authorizers, which would make other decisions.
fn access_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let class = values.raw(AccessSettings::has_authorizer).map(ToString::to_string).unwrap_or_default();
    let is_known = class.is_empty() || class == STANDARD_AUTHORIZER_CLASS;
    let reason =
        format!("Java classes cannot be loaded: use {STANDARD_AUTHORIZER_CLASS}, or remove the authorizer");
    found.unless(is_known, AccessSettings::has_authorizer, &reason);
}

fn replication_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let longest = |setting| integer(values.raw(setting));
    let wait = ReplicationSettings::fetch_wait_max;
    let reason = "Value must be at most replica.socket.timeout.ms";
    found.unless(longest(wait) <= longest(ReplicationSettings::socket_timeout), wait, reason);
    let reason = "Value must be at most replica.lag.time.max.ms";
    found.unless(longest(wait) <= longest(ReplicationSettings::lag_time_max), wait, reason);
    const LEADER: &str = "org.apache.kafka.common.replica.LeaderSelector";
    let selector =
        values.raw(ReplicationSettings::reads_by_rack).map(ToString::to_string).unwrap_or_default();
    let known = ["", LEADER, RACK_AWARE_SELECTOR].contains(&selector.as_str());
    let reason = "Java classes cannot be loaded: expected Kafka's RackAwareReplicaSelector or LeaderSelector";
    found.unless(known, ReplicationSettings::reads_by_rack, reason);
}

fn group_rules(groups: &GroupSettings, found: &mut BrokenRules<'_>) {
    let classic = groups.rebalance_protocols.iter().any(|protocol| protocol == "classic");
    let reason = "Disabling the classic protocol is not supported";
    found.unless(classic, GroupSettings::rebalance_protocols, reason);
}

fn consumer_group_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let heartbeat = ConsumerGroupKeys::heartbeat_interval_ms;
    let session = ConsumerGroupKeys::session_timeout_ms;
    let reason = format!("Value must be less than {}", session.name());
    found.unless(values.get(heartbeat) < values.get(session), heartbeat, &reason);
    let known = match values.raw(ConsumerGroupKeys::assignors) {
        Some(Value::List(entries)) => entries.iter().all(|entry| assignor(entry).is_some()),
        _ => false,
    };
    let reason = "Java classes cannot be loaded: expected uniform or range, or the classes of Kafka's";
    found.unless(known, ConsumerGroupKeys::assignors, reason);
}

/// Checks that a bounded value is within its bounds, and that the bounds are in order.
fn bound_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let number = |name: &str| integer(values.named(name));
    for key in table::broker_keys() {
        let (least, largest) = key.within;
        for name in [Some(key.name), largest].into_iter().flatten() {
            let Some(least) = least else { continue };
            let reason = format!("Value must be at least {least}");
            found.unless_named(number(name) >= number(least), name, &reason);
        }
        if let Some(largest) = largest {
            let reason = format!("Value must be at most {largest}");
            found.unless_named(number(key.name) <= number(largest), key.name, &reason);
        }
    }
}

fn streams_group_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let heartbeat = StreamsGroupKeys::heartbeat_interval_ms;
    let session = StreamsGroupKeys::session_timeout_ms;
    let reason = format!("Value must be less than {}", session.name());
    found.unless(values.get(heartbeat) < values.get(session), heartbeat, &reason);
}

fn share_group_rules(groups: &ShareGroupKeys, found: &mut BrokenRules<'_>) {
    let (heartbeat, session) = (ShareGroupKeys::heartbeat_interval_ms, ShareGroupKeys::session_timeout_ms);
    let reason = format!("Value must be less than {}", session.name());
    found.unless(groups.heartbeat_interval_ms < groups.session_timeout_ms, heartbeat, &reason);
    let reason = format!("Value must be at least {}", ShareGroupKeys::max_size.name());
    found.unless(groups.max_share_sessions >= groups.max_size, ShareGroupKeys::max_share_sessions, &reason);
    const SIMPLE: [&str; 2] = ["simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"];
    let known = groups.assignors.len() == 1 && SIMPLE.contains(&groups.assignors[0].as_str());
    let reason = "Java classes cannot be loaded: expected simple, and nothing else";
    found.unless(known, ShareGroupKeys::assignors, reason);
}

fn node_rules(values: &Values, found: &mut BrokenRules<'_>) {
    let id = values.get(NodeSettings::id);
    let agree = values.raw(NodeSettings::broker_id) == values.raw(NodeSettings::id);
    found.unless(agree, NodeSettings::broker_id, "Value must be the same as node.id");
    let Roles { controller, .. } = values.get(NodeSettings::roles);
    let voters = values.get(ControllerSettings::voters);
    let servers = values.get(ControllerSettings::bootstrap_servers);
    if controller {
        let alone = voters.is_empty() || voters.len() == 1 && voters[0].id == id;
        let reason = "The embedded controller is the only voter: leave this empty or name this node alone, \
                      or join a quorum of Kafka controllers with process.roles=broker";
        found.unless(alone, ControllerSettings::voters, reason);
        let reason = "The embedded controller is alone: leave this empty or name this node, \
                      or join a quorum of Kafka controllers with process.roles=broker";
        found.unless(servers.len() <= 1, ControllerSettings::bootstrap_servers, reason);
    } else {
        let named = !voters.is_empty() || !servers.is_empty();
        let reason =
            "With process.roles=broker, either this or controller.quorum.voters must name the controllers";
        found.unless(named, ControllerSettings::bootstrap_servers, reason);
        let reason = "With process.roles=broker, this node must not be among the voters";
        found.unless(!voters.iter().any(|voter| voter.id == id), ControllerSettings::voters, reason);
    }
}
