//! Subscriptions: requested metrics by matching clients.

use regex::{Regex, RegexBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use thalweg_config::ClientMetricsSettings;
use thalweg_net::Peer;
use thalweg_security::Principal;
use thalweg_wire::Uuid;

/// The name that subscribes to all metrics.
const ALL: &str = "*";
/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// The attributes of a client that subscriptions match.
#[derive(Clone, Copy, Debug)]
pub struct TelemetryClient<'a> {
    /// The id of this client instance, assigned by the broker.
    pub instance_id: Uuid,
    /// The client's `client.id`.
    pub client_id: &'a str,
    /// The name of the client's library, if known.
    pub software_name: Option<&'a str>,
    /// The version of the client's library, if known.
    pub software_version: Option<&'a str>,
    /// The client's address.
    pub address: SocketAddr,
    /// The client's connection.
    pub connection: &'a Arc<Peer>,
    /// The client's principal.
    pub principal: &'a Arc<Principal>,
}

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    all: Vec<Subscription>,
    /// Changes with every change of the subscriptions.
    pub(super) version: u64,
}

#[derive(Debug)]
struct Subscription {
    interval_ms: i32,
    metrics: Vec<String>,
    patterns: Vec<(String, Regex)>,
}

/// The metrics requested from one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedMetrics {
    /// Prefixes of names; `*` alone for all; empty for nothing.
    pub(super) metrics: BTreeSet<String>,
    pub(super) interval_ms: i32,
}

impl Subscriptions {
    /// The subscriptions of these configurations. A subscription with an invalid pattern matches no client.
    pub(super) fn new<'a>(
        configs: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
    ) -> Subscriptions {
        let all = configs.filter_map(|(name, config)| match Subscription::new(config) {
            Ok(subscription) => Some(subscription),
            Err(pattern) => {
                tracing::warn!(subscription = name, pattern, "Ignored a subscription to clients' metrics");
                None
            }
        });
        Subscriptions { all: all.collect(), version: 0 }
    }

    pub(super) fn replace(&mut self, new: Subscriptions) {
        *self = Subscriptions { version: self.version + 1, ..new };
    }

    /// The union of all subscriptions that match the client, at the shortest of their intervals.
    pub(super) fn wanted(&self, client: &TelemetryClient<'_>) -> RequestedMetrics {
        let interval_ms = thalweg_config::client_metrics(&BTreeMap::new()).interval_ms;
        let mut wanted = RequestedMetrics { metrics: BTreeSet::new(), interval_ms };
        for subscription in self.all.iter().filter(|subscription| subscription.matches(client)) {
            wanted.metrics.extend(subscription.metrics.iter().cloned());
            wanted.interval_ms = wanted.interval_ms.min(subscription.interval_ms);
        }
        if wanted.metrics.contains(ALL) {
            wanted.metrics = [ALL.to_owned()].into();
        }
        wanted
    }
}

impl Subscription {
    fn new(config: &BTreeMap<String, String>) -> Result<Subscription, String> {
        let ClientMetricsSettings { interval_ms, matches, metrics } = thalweg_config::client_metrics(config);
        let pattern = |entry: &String| {
            let (name, pattern) = entry.split_once('=').ok_or_else(|| entry.clone())?;
            let mut builder = RegexBuilder::new(&format!(r"\A(?:{})\z", pattern.trim()));
            let regex = builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).build();
            Ok((name.trim().to_owned(), regex.map_err(|_| entry.clone())?))
        };
        let patterns = matches.iter().map(pattern).collect::<Result<_, String>>()?;
        Ok(Subscription { interval_ms, metrics, patterns })
    }

    fn matches(&self, client: &TelemetryClient<'_>) -> bool {
        self.patterns.iter().all(|(name, pattern)| {
            let (ip, port) = (client.address.ip().to_string(), client.address.port().to_string());
            let instance_id = client.instance_id.to_string();
            let value = match name.as_str() {
                "client_id" => Some(client.client_id),
                "client_software_name" => client.software_name,
                "client_software_version" => client.software_version,
                "client_source_address" => Some(ip.as_str()),
                "client_source_port" => Some(port.as_str()),
                "client_instance_id" => Some(instance_id.as_str()),
                // Validation allows no other name.
                _ => None,
            };
            value.is_some_and(|value| pattern.is_match(value))
        })
    }
}
